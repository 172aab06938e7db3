"""The pure maker against the general way: what it leaves out, and that it changes nothing."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.model.message import Address, Row
from rmq_ha.base.runs import pure
from rmq_ha.base.runs.face import UNUSUAL_PROPERTIES, Rows
from rmq_ha.base.runs.records import lay_out
from rmq_ha.base.runs.row_list import NO_ROWS, joined, rows_of
from rmq_ha.base.store_format.commitlog import decode_records
from rmq_ha.base.store_format.consumequeue import decode_units
from rmq_ha.base.store_format.index import HEADER, index_file_size
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.frame import FrameReader, decode_frame, encode_frame

BORN, STORE = Address(b"\x0a\0\0\1", 4000), Address(b"\x0a\0\0\2", 10911)
TAIL = "\x02CLUSTER\x01c"
MOST = 1 << 20
EXT = {
    "a": "g",
    "b": "T",
    "e": "1",
    "f": "0",
    "g": "99",
    "h": "7",
    "i": "UNIQ_KEY\x01u\x02TAGS\x01t",
}


def send(body: bytes = b"body", code: int = 310, opaque: int = 5, **ext: str) -> bytes:
    return encode_frame(RemotingCommand(code, EXT | ext, body, opaque))


def headed(header: bytes, body: bytes = b"body") -> bytes:
    size = 4 + len(header) + len(body)
    return size.to_bytes(4, "big") + len(header).to_bytes(4, "big") + header + body


def laid_out(sends: Any, position: int = 0, gap: int = 0, **limits: Any) -> Any:
    numbers = limits.pop("numbers", {})
    given = {"room_end": MOST, "max_body": MOST, "largest": MOST, "stamp": 77} | limits
    return sends.lay_out(
        position, given["room_end"], given["max_body"], given["largest"], given["stamp"], numbers,
        BORN, STORE, TAIL, gap,
    )  # fmt: skip


def test_ordinary_sends_are_cut_up_to_the_first_unusual_one() -> None:
    data = b"xx" + send() + send(b"", opaque=6, b="U") + send(i="DELAY\x011") + send()
    sends = pure.cut(data, 2, MOST)
    assert sends is not None
    assert (len(sends), list(sends.topics)) == (2, ["T", "U"])
    assert list(sends.opaques()) == [5, 6]
    assert sends.uniq_keys() == [("T", "u"), ("U", "u")]
    assert sends.end == 2 + sends.size == len(b"xx" + send() + send(b"", opaque=6, b="U"))
    assert pure.cut(data, sends.end, MOST) is None
    requests = [decode_frame(*frame) for frame in sends.frames()]
    assert [request.body for request in requests] == [b"body", None]


@pytest.mark.parametrize(
    "frame",
    [
        *[send(i=f"{name}\x01x") for name in sorted(UNUSUAL_PROPERTIES)],
        send(i="A\x01b\x02WAIT\x01false"),
        send(i="A\x01b\x02WAIT\x01trueish"),
        send(i="name"),
        send(i="\x01value"),
        send(i="A\x01" + "b" * 7680),
        send(i="KEYS\x01" + " ".join(["k1"] * 66)),
        send(m="true"),
        send(f="4"),
        send(e="x"),
        send(code=320),
        send(code=34),
        encode_frame(RemotingCommand(310, EXT, b"", binary=True)),
        encode_frame(RemotingCommand(310, EXT, b"", flag=1)),
        headed(b'{"code":310,"opaque":1,"extFields":{"b":"T","e":"1"},"code":34}'),
        headed(b'{"opaque":1,"code":310,"extFields":{"b":"T","e":"1"}}'),
        headed(b'{"code":310,"opaque":1}'),
        headed(b'{"code":310,"opaque":1,"extFields":{"b":"T"}}'),
        headed(b'{"code":310,"opaque":99999999999,"extFields":{"b":"T","e":"1"}}'),
        send()[:-1],
        send()[:7],
    ],
)
def test_an_unusual_send_is_left_out(frame: bytes) -> None:
    assert pure.cut(frame, 0, MOST) is None


def test_a_header_longer_than_allowed_is_left_out() -> None:
    size = int.from_bytes(send()[4:8], "big")
    assert pure.cut(send(), 0, size) is not None
    assert pure.cut(send(), 0, size - 1) is None


@pytest.mark.parametrize(
    "header",
    [
        b' {\t"code" :\r\n310 , "opaque":         7, "extFields" : { "b":"T", "e" : "1" } } ',
        b'{"code":10,"opaque":7,"extFields":{"topic":"T","queueId":"1"}}',
        b'{"code":310,"language":"GO","opaque":7,"extFields":{"e":"1","b":"T"},"remark":null}',
    ],
)
def test_white_space_order_and_long_names_are_ordinary(header: bytes) -> None:
    sends = pure.cut(headed(header), 0, MOST)
    assert sends is not None
    assert (list(sends.opaques()), list(sends.topics), sends.fit([2])) == ([7], ["T"], 1)


def test_a_queue_that_does_not_exist_ends_what_fits() -> None:
    sends = pure.cut(send(e="0") + send(b="U", e="3") + send(e="-1"), 0, MOST)
    assert sends is not None
    assert [sends.fit(queues) for queues in ([0, 9], [4, 3], [4, 4], [9, 9])] == [0, 1, 2, 2]


def test_a_wait_that_is_true_and_a_separator_at_the_end_are_not_stored() -> None:
    texts = ["A\x01b\x02WAIT\x01true", "A\x01b\x02WAIT\x01true\x02C\x01d\x02", "", "A\x01b\x02"]
    sends = pure.cut(b"".join([send(i=text) for text in texts]), 0, MOST)
    data, rows = laid_out(sends)
    stored = ["A\x01b" + TAIL, "A\x01b\x02C\x01d" + TAIL, TAIL[1:], "A\x01b" + TAIL]
    assert [row[11] for row in rows] == stored
    assert [record.properties_string for record in decode_records(data)] == stored


@pytest.mark.parametrize("gap", [0, 48])
def test_records_are_numbered_and_walked_again(gap: int) -> None:
    """The rows of an append and those that a walk reads of its bytes are the same."""
    frames = [send(b"%d" % number, e=str(number % 3)) for number in range(9)]
    numbers = {("T", 1): 40}
    data, rows = laid_out(pure.cut(b"".join(frames), 0, MOST), 1000, gap, numbers=numbers)
    assert numbers == {("T", 0): 3, ("T", 1): 43, ("T", 2): 3}
    assert [row[6] for row in rows] == [0, 40, 0, 1, 41, 1, 2, 42, 2]
    assert (rows.start, rows.end) == (1000, 1000 + len(data))
    if not gap:
        walked = pure.walk(data, 0, 1000, 99, MOST, True, 0)
        assert list(walked or ()) == list(rows)
        assert pure.walk(data, 0, 1001, 99, MOST, True, 0) is None
        assert len(pure.walk(data[:-1], 0, 1000, 99, MOST, True, 0) or ()) == 8
        assert len(pure.walk(data, 0, 1000, 4, MOST, True, 0) or ()) == 4


@pytest.mark.parametrize(
    "limits",
    [{"max_body": 3}, {"largest": 100}, {"room_end": 200}, {"room_end": 0}],
)
def test_what_does_not_fit_changes_nothing(limits: dict[str, int]) -> None:
    numbers = {("T", 1): 4}
    sends = pure.cut(send() + send(), 0, MOST)
    assert laid_out(sends, numbers=numbers, **limits) is None
    assert numbers == {("T", 1): 4}


def test_what_is_laid_out_at_once_is_what_the_general_way_lays_out() -> None:
    sends = pure.cut(send() + send(b"", i="") + send(b="U", opaque=9), 0, MOST)
    assert sends is not None
    data, rows = laid_out(sends)
    drafts = sends.drafts(BORN, STORE, TAIL)
    general, others, is_whole, _ = lay_out(drafts, 0, MOST, MOST, MOST, 77, {}, 0)
    assert is_whole
    assert (general, list(others)) == (data, list(rows))


def test_a_part_is_what_was_cut_there() -> None:
    frames = [send(b"%d" % number, b="TUV"[number], opaque=number) for number in range(3)]
    whole, last = pure.cut(b"".join(frames), 0, MOST), pure.cut(b"".join(frames[1:]), 0, MOST)
    assert whole is not None
    assert last is not None
    part = whole.part(1, 3)
    assert (part.size, list(part.topics)) == (last.size, list(last.topics))
    assert laid_out(part)[0] == laid_out(last)[0]
    assert part.frames() == last.frames()


def test_a_reader_gives_runs_and_frames_in_their_order() -> None:
    """However the bytes arrive, each frame comes once."""
    frames = [send(), send(), send(i="DELAY\x011"), send(), encode_frame(RemotingCommand(34))]
    data = b"".join(frames)
    for size in (1, 7, 100, len(frames[0]), len(data)):
        reader = FrameReader(cut=pure.cut)
        items = [
            item
            for at in range(0, len(data), size)
            for item in reader.receive_data(data[at : at + size])
        ]
        seen = [
            encode_frame(decode_frame(*frame))
            for item in items
            for frame in ([item] if isinstance(item, tuple) else item.frames())
        ]
        assert seen == frames
    assert [len(item) if not isinstance(item, tuple) else 0 for item in items] == [2, 0, 1, 0]


ROWS = st.lists(
    st.tuples(
        st.sampled_from("TU"), st.integers(0, 2), st.integers(0, 12), st.text("k ", max_size=9)
    ),
    min_size=1,
    max_size=20,
)


def rows_from(drawn: list[tuple[str, int, int, str]]) -> list[Row]:
    numbers: dict[tuple[str, int], int] = {}
    rows: list[Row] = []
    for place, (topic, queue_id, flag, keys) in enumerate(drawn):
        number = numbers.get((topic, queue_id), 0)
        numbers[topic, queue_id] = number + (not flag & 4)
        rows.append(
            (topic, queue_id, 100 * place, 100, place, 5000 * place, number, keys, "u", flag, 0, "")
        )
    return rows


@given(ROWS)
def test_units_and_counts_are_those_of_each_row(drawn: Any) -> None:
    rows = rows_from(drawn)
    units = rows_of(rows).units()
    assert units is not None
    for key, first, data, start, end in units:
        own = [row for row in rows if row[:2] == key and not row[9] & 4]
        assert decode_units(data) == [row[2:5] for row in own]
        assert (first, start, end) == (own[0][6], own[0][2], own[-1][2] + 100)
    seen = {row[:2] for row in rows if not row[9] & 4}
    assert {run[0] for run in units} == seen
    counts = rows_of(rows).counts()
    assert {key: count for key, count, _ in counts} == {
        key: sum(row[:2] == key for row in rows) for key in {row[:2] for row in rows}
    }
    assert sum(size for *_, size in counts) == 100 * len(rows)


def test_a_hole_or_a_number_beyond_64_bits_is_for_the_general_way() -> None:
    first, second = rows_from([("T", 0, 0, ""), ("T", 0, 0, "")])
    assert rows_of([first, (*second[:6], 2, *second[7:])]).units() is None
    assert rows_of([(*first[:4], 1 << 63, *first[5:])]).units() is None


@given(ROWS, st.integers(0, 500))
def test_keys_that_find_no_room_are_not_put(drawn: Any, reached: int) -> None:
    rows, slots = rows_of(rows_from(drawn)), 8
    header = (0, 0, 0, 0, 0, 1)
    keys = sum(1 + len(row[7].split()) for row in rows if row[2] >= reached and row[9] & 0xC != 0xC)
    buffer = bytearray(index_file_size(slots, keys + 1))
    before = bytes(buffer)
    assert rows.index_put(buffer, slots, keys - 1, header, reached) is None or not keys
    assert rows.index_put(buffer[:-1], slots, keys, header, reached) is None
    assert bytes(buffer) == before
    after = rows.index_put(buffer, slots, keys, header, reached)
    assert after is not None
    assert after[5] == 1 + keys
    HEADER.pack(*after)


@given(ROWS, st.data())
def test_rows_that_are_joined_and_parted_are_the_same(drawn: Any, data: Any) -> None:
    rows = rows_of(rows_from(drawn))
    at = data.draw(st.integers(0, len(rows) - 1))
    parts: list[Rows] = [rows.part(at, len(rows))]
    if at:
        parts.insert(0, rows.part(0, at))
    whole = joined(parts)
    assert list(whole) == list(rows)
    for name in ("start", "end", "size", "work"):
        assert getattr(whole, name) == getattr(rows, name)
    assert set(whole.names) == set(rows.names)
    assert set(whole.topics) == set(rows.topics)


def test_no_rows_are_of_no_topic() -> None:
    assert (len(NO_ROWS), NO_ROWS.size, list(NO_ROWS.names)) == (0, 0, [])
