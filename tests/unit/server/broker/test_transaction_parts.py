"""The pure parts of the transaction check: verdicts, op messages, questions."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.model.flags import COMPRESSED, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from rmq_ha.base.model.message import Address, AppendResult
from rmq_ha.base.model.properties import encode_properties
from rmq_ha.base.store_format.commitlog import Record, decode_record
from rmq_ha.base.wire.frame import FrameReader, decode_frame, encode_frame
from rmq_ha.server.broker.transactions import fates as fates_module
from rmq_ha.server.broker.transactions import op_marks as op_marks_module
from rmq_ha.server.broker.transactions.fates import Fates, HalfMessageFate, HalfPlace
from rmq_ha.server.broker.transactions.messages import (
    OpMark,
    check_request,
    committed,
    discarded,
    op_mark,
    put_back,
    read_mark,
)
from rmq_ha.server.broker.transactions.op_marks import OpMarks
from rmq_ha.server.broker.transactions.verdict import (
    CheckLimits,
    Verdict,
    judge,
    next_check_times,
    number_of,
)

VECTORS = json.loads(
    (Path(__file__).parents[3] / "vectors" / "remoting" / "appendix_a.json").read_text("utf-8")
)
HOST = Address(b"\x7f\0\0\1", 10911)
LIMITS = CheckLimits(6000, 15, 72)
HOUR_MS = 3_600_000


def record(properties: dict[str, str], **changes: object) -> Record:
    values: dict[str, object] = {
        "size": 0,
        "body_crc": 0,
        "queue_id": 0,
        "flag": 0,
        "queue_offset": 7,
        "physical_offset": 700,
        "sys_flag": 0,
        "born_timestamp": 1000,
        "born_host": HOST,
        "store_timestamp": 1001,
        "store_host": HOST,
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "body": b"body",
        "topic": "RMQ_SYS_TRANS_HALF_TOPIC",
        "properties_string": encode_properties(properties),
        **changes,
    }
    return Record(**values)  # type: ignore[arg-type]


# ------------------------------------------------------------ the question, as Java wrote it


def test_question_is_javas_a7() -> None:
    """The frame that RocketMQ sent for this half message, byte for byte."""
    data = bytes.fromhex(VECTORS["check_transaction_frame_hex"])
    (frame,) = FrameReader().receive_data(data)
    golden = decode_frame(*frame)
    shown = decode_record(golden.body or b"")
    half = record(
        shown.properties | {"WAIT": "true", "TRANSACTION_CHECK_TIMES": "0"},
        born_timestamp=shown.born_timestamp,
        born_host=shown.born_host,
        store_timestamp=shown.store_timestamp,
        store_host=shown.store_host,
        body=shown.body,
    )
    times = {"TRANSACTION_CHECK_TIMES": str(next_check_times(half.properties))}
    copy = put_back(half, times)
    append = AppendResult(shown.physical_offset, shown.size, 0, shown.queue_offset, 1, shown.msg_id)
    request = check_request(copy, append, half.store_timestamp)
    request.opaque = golden.opaque
    assert encode_frame(request) == data


# ------------------------------------------------------------ what takes its place


HALF = {
    "REAL_TOPIC": "Paid",
    "REAL_QID": "3",
    "TRAN_MSG": "true",
    "PGROUP": "G",
    "KEYS": "k",
    "UNIQ_KEY": "U",
}


def test_a_committed_message_is_the_half_message_in_its_real_place() -> None:
    half = record(HALF, sys_flag=COMPRESSED | TRANSACTION_ROLLBACK, flag=5, reconsume_times=2)
    message = committed(half)
    assert (message.topic, message.queue_id, message.body) == ("Paid", 3, b"body")
    assert message.sys_flag == COMPRESSED | TRANSACTION_COMMIT
    assert message.prepared_transaction_offset == half.physical_offset
    assert (message.flag, message.reconsume_times, message.born_timestamp) == (5, 2, 1000)
    assert message.properties == {"PGROUP": "G", "KEYS": "k", "UNIQ_KEY": "U"}
    assert message.properties_string == half.properties_string


def test_one_that_nobody_settled_goes_to_queue_0_as_it_is() -> None:
    half = record(HALF, queue_id=2, sys_flag=COMPRESSED)
    message = discarded(half)
    assert (message.topic, message.queue_id) == ("TRANS_CHECK_MAX_TIME_TOPIC", 0)
    assert (message.properties, message.properties_string) == (HALF, half.properties_string)
    assert (message.sys_flag, message.prepared_transaction_offset) == (COMPRESSED, 0)


# ------------------------------------------------------------ verdicts


@pytest.mark.parametrize(
    ("properties", "age_ms", "verdict"),
    [
        ({}, 0, Verdict.LATER),
        ({}, 5999, Verdict.LATER),
        ({}, 6000, Verdict.CHECK),
        ({}, -1, Verdict.CHECK),
        ({}, 72 * HOUR_MS, Verdict.CHECK),
        ({}, 72 * HOUR_MS + 1, Verdict.DISCARD),
        ({"TRANSACTION_CHECK_TIMES": "14"}, 6000, Verdict.CHECK),
        ({"TRANSACTION_CHECK_TIMES": "15"}, 6000, Verdict.DISCARD),
        ({"TRANSACTION_CHECK_TIMES": "15"}, 0, Verdict.DISCARD),
        ({"TRANSACTION_CHECK_TIMES": "many"}, 6000, Verdict.CHECK),
        ({"CHECK_IMMUNITY_TIME_IN_SECONDS": "60"}, 59_999, Verdict.IMMUNE),
        ({"CHECK_IMMUNITY_TIME_IN_SECONDS": "60"}, 60_000, Verdict.CHECK),
        ({"CHECK_IMMUNITY_TIME_IN_SECONDS": "1"}, 1000, Verdict.CHECK),
        ({"CHECK_IMMUNITY_TIME_IN_SECONDS": "0"}, 0, Verdict.CHECK),
        ({"CHECK_IMMUNITY_TIME_IN_SECONDS": "soon"}, 5999, Verdict.IMMUNE),
        ({"CHECK_IMMUNITY_TIME_IN_SECONDS": "-1"}, 5999, Verdict.IMMUNE),
        ({"CHECK_IMMUNITY_TIME_IN_SECONDS": "9" * 40}, 6000, Verdict.CHECK),
        ({"CHECK_IMMUNITY_TIME_IN_SECONDS": "9" * 40}, 5999, Verdict.IMMUNE),
        ({"CHECK_IMMUNITY_TIME_IN_SECONDS": "-2"}, 5999, Verdict.CHECK),
        ({"CHECK_IMMUNITY_TIME_IN_SECONDS": "1"}, -1, Verdict.IMMUNE),
    ],
)
def test_verdict(properties: dict[str, str], age_ms: int, verdict: Verdict) -> None:
    """By its age and by what it says itself."""
    born = 1_700_000_000_000
    now = born + age_ms
    assert judge(properties, born, now - 1, now, now, LIMITS) is verdict


@pytest.mark.parametrize(
    ("text", "number", "next_times"),
    [
        (None, -1, 1),
        ("", -1, 0),
        ("-", -1, 0),
        ("--5", -1, 0),
        ("soon", -1, 0),
        ("\u0663", -1, 0),
        ("\u00b2", -1, 0),
        ("-1", -1, 0),
        ("-7", -7, -6),
        ("0", 0, 1),
        ("15", 15, 16),
        ("9" * 19, 10**19 - 1, 10**19),
        ("9" * 20, -1, 0),
    ],
)
def test_numbers_in_properties(text: str | None, number: int, next_times: int) -> None:
    """What is none, or longer than a long, is -1; what was never asked is asked once."""
    assert number_of(text) == number
    properties = {} if text is None else {"TRANSACTION_CHECK_TIMES": text}
    assert next_check_times(properties) == next_times


def test_what_was_stored_in_this_round_waits() -> None:
    """Whatever else is true of it: the last question about it was asked just now."""
    properties = {"TRANSACTION_CHECK_TIMES": "15"}
    assert judge(properties, 0, 5000, 5000, 9000, LIMITS) is Verdict.LATER


@given(st.dictionaries(st.sampled_from(["TRANSACTION_CHECK_TIMES",
                                        "CHECK_IMMUNITY_TIME_IN_SECONDS"]), st.text()),
       st.integers(), st.integers(), st.integers())  # fmt: skip
def test_any_properties_have_a_verdict(
    properties: dict[str, str], born: int, stored: int, now: int
) -> None:
    """A producer may write what it likes."""
    assert judge(properties, born, stored, now, now, LIMITS) in Verdict


# ------------------------------------------------------------ op messages


def test_op_message() -> None:
    """As RocketMQ writes it: 135 bytes with IPv4 hosts; a moved one says so besides."""
    mark = op_mark(record({}, queue_offset=12), HOST, 5)
    assert (mark.body, mark.properties_string) == (b"12", "WAIT\x01true\x02TAGS\x01d")
    assert mark.wait_store_ok is False
    moved = op_mark(record({}, queue_offset=3), HOST, 5, is_moved=True)
    for message, wanted in ((mark, (12, False)), (moved, (3, True))):
        stored = record({}, queue_offset=9, body=message.body)._replace(
            properties_string=message.properties_string
        )
        read = read_mark(stored)
        assert (read.half_offset, read.is_moved) == wanted
        assert (read.op_offset, read.stored_ms) == (9, 1001)


@given(st.binary(), st.text())
def test_any_op_message_is_a_mark(body: bytes, tag: str) -> None:
    """What cannot be read settles nothing."""
    mark = read_mark(record({"TAGS": tag} if tag else {}, body=body))
    assert mark.half_offset == -1 or (tag == "d" and int(body[:20]) == mark.half_offset)


def mark(op: int, half: int, moved: bool = False, stored_ms: int = 0) -> OpMark:
    return OpMark(op, half, moved, stored_ms)


def ledger(
    half: int = 10, op: int = 100, window: int = 64, rests: set[int] | None = None
) -> OpMarks:
    return OpMarks(half, op, lambda offset: offset in (rests or set()), window)


def test_op_messages_are_used_up_in_order() -> None:
    """Up to the first that settles something at or behind the head of the half queue."""
    book = ledger()
    for number, half in enumerate((10, 12, 9, 11, 13)):
        book.add(mark(100 + number, half))
    assert [book.is_settled(offset) for offset in range(9, 15)] == [0, 1, 1, 1, 1, 0]
    assert book.next_open(10) == 14
    assert [book.op_progress(head, 0) for head in (10, 11, 12, 13, 14)] == [
        100, 101, 101, 104, 105,
    ]  # fmt: skip


def test_missing_op_messages_are_used_up() -> None:
    """A hole in the op queue does not hold up the progress for ever."""
    book = ledger()
    book.add(mark(105, 10))
    assert book.op_progress(10, 0) == 105
    assert book.op_progress(11, 0) == 106


def test_a_window_is_all_that_is_kept() -> None:
    """However many messages there are; the rest is for the next pass."""
    book = ledger(window=16)
    for number in range(100):
        book.add(mark(100 + number, 10 + number))
    assert book.end == 26
    assert book.next_open(10) == 26
    assert not book.is_settled(26)
    assert book.op_progress(26, 0) == 116
    book.add(mark(300, 1 << 62))
    assert len(book._states) == len(book._values) == 16
    last = ledger(window=16)
    last.add(mark(100, 25))
    assert len(last._states) == 16


def test_ended_ones_with_resting_copies() -> None:
    """They are kept until a copy takes them, or until none can come any more."""
    book = ledger(rests={3, 4})
    book.add(mark(100, 2, stored_ms=1000))
    book.add(mark(101, 3, stored_ms=1000))
    book.add(mark(102, 4, moved=True, stored_ms=1000))
    assert book.op_progress(10, 61_000) == 103
    assert book.op_progress(10, 60_999) == 101
    assert not book.take_ended(4)
    assert book.take_ended(3)
    assert not book.take_ended(3)
    assert book.op_progress(10, 0) == 103


def test_what_lies_before_a_pass_is_open_for_it() -> None:
    book = ledger(half=10)
    assert [book.next_open(offset) for offset in (0, 9, 10)] == [0, 9, 10]
    book.add(mark(100, 10))
    assert [book.next_open(offset) for offset in (0, 9, 10)] == [0, 9, 11]


def test_resting_copies_of_so_many_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of them is asked about: memory is bounded, and their producers know the answer."""
    monkeypatch.setattr(op_marks_module, "_EARLY_AT_MOST", 2)
    book = ledger(rests={1, 2, 3})
    for number, half in enumerate((1, 2, 3)):
        book.add(mark(100 + number, half))
    assert [book.take_ended(half) for half in (1, 2, 3)] == [True, True, False]


def test_moved_is_not_ended() -> None:
    """A copy of a message that was only moved is still open."""
    book = ledger()
    book.add(mark(100, 10, moved=True))
    assert book.is_settled(10)
    assert not book.take_ended(10)
    book.add(mark(101, 10))
    assert book.take_ended(10)
    assert not book.take_ended(11)
    assert not book.take_ended(5000)
    assert not book.take_ended(-1)


def test_the_first_half_message_of_all_may_have_a_resting_copy() -> None:
    """Ended before this pass began; its copy is found by the offset 0."""
    book = ledger(half=1, op=0, rests={0})
    book.add(mark(0, 0))
    assert book.op_progress(1, 0) == 0
    assert book.take_ended(0)


@given(st.lists(st.tuples(st.integers(-2, 40), st.booleans())), st.integers(0, 20))
def test_ledger_agrees_with_a_set(marks: list[tuple[int, bool]], start: int) -> None:
    """Settled is what was named; progress is the first that names the head or what is behind it."""
    book = ledger(half=start, op=0, window=64)
    for number, (half, moved) in enumerate(marks):
        book.add(mark(number, half, moved))
    named = {half for half, _ in marks if half >= start}
    for offset in range(start, start + 64):
        assert book.is_settled(offset) == (offset in named)
        assert book.next_open(offset) == min(
            item for item in range(offset, start + 65) if item not in named
        )
    for head in (start, start + 5, start + 50):
        used = next((n for n, (half, _) in enumerate(marks) if half >= head), len(marks))
        assert book.op_progress(head, 1 << 60) == used


# ------------------------------------------------------------ fates


def test_places_of_copies_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest goes: it is found in the half queue."""
    monkeypatch.setattr(fates_module, "COPIES", 2)
    fates = Fates()
    fates.begin(0)
    halves = [record({}, queue_offset=offset) for offset in range(3)]
    for half in halves:
        fates.note_copy(half, HalfPlace(half.queue_offset + 10, 0))
    found = [fates.copy_of(half) for half in halves]
    assert [place and place.queue_offset for place in found] == [None, 11, 12]


def test_a_master_s_next_life_knows_nothing_of_the_one_before() -> None:
    """Others may have led in between: what became of a half message is looked up again."""
    fates, half = Fates(), record({}, queue_offset=3, physical_offset=700)
    assert (fates.lives, fates.knows(half)) == (0, False)
    fates.begin(700)
    fates.note(0, 3, HalfMessageFate.MOVED)
    fates.note_copy(half, HalfPlace(9, 900))
    assert (fates.lives, fates.fate_of(0, 3), fates.knows(half)) == (1, HalfMessageFate.MOVED, True)
    fates.begin(1000)
    assert (fates.lives, fates.fate_of(0, 3), fates.knows(half)) == (2, HalfMessageFate.OPEN, False)
    assert fates.copy_of(half) is None


def test_whoever_claims_a_half_message_first_settles_it() -> None:
    """All others hear when it is worth trying again; another queue's message is another one."""
    fates, half, other = Fates(), record({}, queue_id=0), record({}, queue_id=1)
    assert not fates.is_claimed(half)
    assert fates.claim(half) is None
    assert (fates.is_claimed(half), fates.is_claimed(other)) == (True, False)
    told: list[int] = []
    for number in range(2):
        waiting = fates.claim(half)
        assert waiting is not None
        waiting.addCallback(lambda _, number=number: told.append(number))
    assert told == []
    fates.release(half)
    assert told == [0, 1]
    assert not fates.is_claimed(half)
    assert fates.claim(half) is None


def test_one_that_lies_too_far_below_is_not_taken_for_open() -> None:
    """Memory has no room to note what became of it, so it does not claim to know."""
    fates = Fates(window=4)
    fates.begin(0)
    first = record({}, queue_offset=0)
    fates.note(0, 10, HalfMessageFate.ENDED)
    fates.note(0, 0, HalfMessageFate.ENDED)
    assert not fates.knows(first)
    assert fates.knows(record({}, queue_offset=10))


@pytest.mark.parametrize(("offset", "is_known"), [(9, True), (7, True), (6, False), (0, False)])
def test_a_window_reaches_down_from_the_first_that_was_noted(offset: int, is_known: bool) -> None:
    """What was never noted is open, until something is forgotten."""
    fates = Fates(window=4)
    fates.begin(0)
    fates.note(0, 10, HalfMessageFate.ENDED)
    halves = [record({}, queue_offset=number) for number in (0, offset, 9, 10)]
    assert [fates.knows(half) for half in halves] == [True] * 4
    fates.note(0, offset, HalfMessageFate.MOVED)
    assert [fates.knows(half) for half in halves] == [is_known] * 3 + [True]
    noted = {10: HalfMessageFate.ENDED} | ({offset: HalfMessageFate.MOVED} if is_known else {})
    assert {number: fates.fate_of(0, number) for number in range(12)} == {
        number: noted.get(number, HalfMessageFate.OPEN) for number in range(12)
    }


def test_what_is_known_begins_with_the_first_message_of_a_master() -> None:
    """What was in the log before, others may have settled."""
    fates = Fates()
    fates.begin(700)
    assert fates.knows(record({}, physical_offset=700))
    assert not fates.knows(record({}, physical_offset=699))
    fates.knows_from(record({}, physical_offset=500), fates.lives)
    assert fates.knows(record({}, physical_offset=500))
    assert not fates.knows(record({}, physical_offset=499))
    life = fates.lives
    fates.begin(1000)
    fates.knows_from(record({}, physical_offset=500), life)
    assert not fates.knows(record({}, physical_offset=999))


def test_half_of_a_window_is_remembered_when_it_is_full() -> None:
    """No more, as it is memory; no less, as what is forgotten is looked for in the op queue."""
    fates = Fates(window=8)
    fates.begin(0)
    known = []
    for offset in range(9):
        fates.note(0, offset, HalfMessageFate.ENDED)
        known.append([it for it in range(9) if fates.knows(record({}, queue_offset=it))])
    assert known[-2:] == [list(range(9)), [5, 6, 7, 8]]


@pytest.mark.parametrize(("offset", "is_held"), [(17, True), (16, False)])
def test_what_was_read_is_known_where_the_window_holds_it(offset: int, is_held: bool) -> None:
    """The other half of it is for what comes: nothing of what was read is forgotten soon."""
    fates = Fates(window=8)
    fates.begin(1000)
    fates.note(0, 19, HalfMessageFate.ENDED)
    fates.note(0, 20, HalfMessageFate.ENDED)
    fates.note(
        0, 0, HalfMessageFate.ENDED
    )  # too far below: only what is read says anything of those between
    older = record({}, queue_offset=offset, physical_offset=500)
    fates.knows_from(older, fates.lives)
    assert fates.knows(older) is is_held


@given(
    st.lists(
        st.tuples(
            st.integers(0, 24), st.sampled_from([HalfMessageFate.MOVED, HalfMessageFate.ENDED])
        )
    )
)
def test_what_is_known_of_a_fate_is_true(notes: list[tuple[int, HalfMessageFate]]) -> None:
    """In whatever order it was noted; the newest that was noted is always known."""
    fates, noted = Fates(window=8), dict[int, HalfMessageFate]()
    fates.begin(0)
    for offset, fate in notes:
        fates.note(0, offset, fate)
        noted[offset] = max(noted.get(offset, HalfMessageFate.OPEN), fate)
        for other in range(25):
            if fates.knows(record({}, queue_id=0, queue_offset=other)):
                assert fates.fate_of(0, other) == noted.get(other, HalfMessageFate.OPEN)
            else:
                assert other < max(noted)
