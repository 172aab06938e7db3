"""What follows in the log: records, not enough bytes yet, a blank, or damage."""

import errno
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.model.message import draft_of
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.runs.log_walk import MORE, walk
from rmq_ha.base.runs.row_list import NO_ROWS
from rmq_ha.base.runs.run import SLICE, Run
from rmq_ha.base.store_format.commitlog import BLANK_SIZE, MAX_RECORD_SIZE, encode_blank
from rmq_ha.server.store.log.append import GroupEncoder

SLAVE = {"broker_role": BrokerRole.SLAVE}


@pytest.fixture
def told(monkeypatch):
    """What tails say at level error."""
    said = []
    monkeypatch.setattr(
        "rmq_ha.server.store.log.tail.LogTail._tell",
        lambda tail, offset, what: said.append((offset, what)),
    )
    return said


def records(machine, message, count=4):
    """The bytes of a log, and where its records end; nothing is left of the store."""
    store = machine.open()
    results = []
    for number in range(count):
        store.put_many([message(b"%d" % number * 90)], results.extend)
    data = store.log.read(0, 1 << 16)
    machine.stop(store)
    machine.disk.remove_tree(machine.root)
    return data, [result.append.next_offset for result in results]


def test_the_end_of_the_log_is_no_damage(simulated, message, told):
    """A failed queue write is done again from the log, up to its end, without an alarm."""
    machine, failures = simulated, [errno.ENOSPC] * 2
    store = machine.open()

    def fault(operation, path):
        return failures.pop() if failures and operation == "pwrite" and "queue" in path else None

    machine.disk.fault = fault
    store.put_many([message(), message()], lambda results: None)
    for _ in range(4):
        machine.clock.advance(1)
    assert not failures
    assert store.max_offset_in_queue("TopicA", 0) == 2
    assert not told


def test_what_can_never_become_a_record_is_told(machine, message, told):
    """A slave names the place as soon as it can be known, and forgets it when it is mended."""
    data, ends = records(machine, message)
    store = machine.open(**SLAVE)
    tail = store.journal.tail
    store.log.append_raw(0, data[: ends[1]] + b"\xff" * 20)
    machine.turn()
    assert tail.unreadable_at == store.dispatcher.position == ends[1]
    assert [offset for offset, _ in told] == [ends[1]]
    store.log.row.file(0).pwrite(data[ends[1] : ends[1] + 20], ends[1])
    store.log.append_raw(ends[1] + 20, data[ends[1] + 20 :])
    machine.turn()
    assert tail.unreadable_at is None
    assert store.max_offset_in_queue("TopicA", 0) == 4


@pytest.mark.parametrize(
    ("damage", "at"),
    [
        ((MAX_RECORD_SIZE + 1).to_bytes(4, "big"), 0),
        ((65530).to_bytes(4, "big"), 0),
        ((0).to_bytes(4, "big"), 0),
        (b"\x01", 4),
        ((7).to_bytes(8, "big"), 28),
        (b"\x01", 28),
    ],
    ids=["size", "behind the file", "no size", "magic", "another place", "far away"],
)
def test_it_is_known_from_the_head(machine, message, told, damage, at):
    """36 bytes of a record suffice, however long it says that it is."""
    data, ends = records(machine, message)
    head = bytearray(data[ends[1] : ends[1] + 36])
    head[at : at + len(damage)] = damage
    store = machine.open(**SLAVE)
    store.log.append_raw(0, data[: ends[1]] + head)
    machine.turn()
    assert store.journal.tail.unreadable_at == ends[1]
    assert told


def test_a_torn_record_that_was_cut_is_not_waited_for(machine, message, told):
    """Other bytes in its place are read as soon as they are whole."""
    data, ends = records(machine, message)
    store = machine.open(**SLAVE)
    long = bytearray(data[ends[1] : ends[1] + 40])
    long[0:4] = (5000).to_bytes(4, "big")
    store.log.append_raw(0, data[: ends[1]] + long)
    machine.turn()
    assert store.journal.tail.unreadable_at is None
    store.log.recovered(ends[1], 0)
    store.log.append_raw(ends[1], data[ends[1] : ends[2]])
    machine.turn()
    assert store.dispatcher.position == ends[2]
    assert not told


def test_what_was_just_appended_is_not_read_again(simulated, message):
    """It comes in slices, in its order; only what the turns before left out is read."""
    store = simulated.open()
    places = []
    store.put_many([message(b"x" * (number % 7)) for number in range(300)], places.extend)
    offsets = [place.append.physical_offset for place in places]
    read = []
    simulated.disk.fault = lambda operation, path: read.append(operation)
    tail = store.journal.tail
    first = tail.next_slice(0, False)
    assert [row[2] for row in first.rows] == offsets[:SLICE]
    assert first.end == offsets[SLICE]
    second = tail.next_slice(offsets[SLICE + 10], False)
    assert [row[2] for row in second.rows] == offsets[SLICE + 10 :]
    assert second.end == store.log.max_offset
    assert tail.next_slice(offsets[298], False).rows[0][2] == offsets[298]
    assert "pread" not in read
    store.log.recovered(store.log.max_offset, 0)
    assert tail.next_slice(offsets[298], False).rows[0][2] == offsets[298]
    assert "pread" in read


@given(cuts=st.sets(st.integers(1, 65536 + 3000), max_size=40), blank=st.booleans())
def test_a_slave_makes_its_queues_of_the_bytes_that_it_got(make_simulated, message, cuts, blank):
    """Wherever its master's frames end, it reads nothing of its log again."""
    log = good_log(message, blank, sizes=(10, 200, 300, 40, 0, 700) * 2)
    machine = make_simulated()
    store = machine.open(**SLAVE)
    preads = []

    def note(operation, path):
        if operation == "pread" and "commitlog" in path:
            preads.append(path)

    machine.disk.fault = note
    for start, end in pairwise(
        sorted({0, *(cut for cut in cuts if cut < len(log)), 65536, len(log)})
    ):
        store.log.append_raw(start, log[start:end])
        machine.turn()
    assert store.dispatcher.bytes_behind <= 0
    assert store.max_offset_in_queue("TopicA", 0) == 3 + 2 * 6
    assert preads == []


def test_what_lies_before_an_append_is_read(simulated, message):
    """It is not passed over for what memory knows of."""
    store = simulated.open()
    places = []
    store.put_many([message(b"%d" % number) for number in range(4)], places.extend)
    offsets = [place.append.physical_offset for place in places]
    store.log.pending.take(0, offsets[1])
    found = store.journal.tail.next_slice(0, False)
    assert [row[2] for row in found.rows] == offsets


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_nothing_behind_what_may_be_read_is_dispatched_from_memory(simulated, message, more):
    """What is not confirmed yet may be another master's to replace: to the byte."""
    store = simulated.open()
    results = []
    store.put_many([message(b"x" * 50 * n) for n in range(5)], results.extend)
    ends = [result.append.next_offset for result in results]
    run = store.log.pending.take(0, ends[2] + more)
    known = 3 if more >= 0 else 2
    assert [row[2] + row[3] for row in run.rows] == ends[:known]
    assert (run.start, run.end) == (0, ends[known - 1])
    rest = store.log.pending.take(ends[known - 1], ends[-1])
    assert [row[2] + row[3] for row in rest.rows] == ends[known:]


def a_log(machine, data, **settings):
    """The tail of a log that holds these bytes."""
    store = machine.open(**SLAVE, **settings)
    store.dispatcher.stop()
    store.log.append_raw(0, data)
    return store.journal.tail


@pytest.mark.parametrize("bytes_between", [1, 7, 400])
def test_a_master_goes_on_at_the_next_whole_record(simulated, message, told, bytes_between):
    """Wherever that is."""
    start = 1000 + bytes_between
    (segment,) = (
        GroupEncoder(65536, []).encode([draft_of(message())] * 2, start, 1 << 22, 1).segments
    )
    records = segment.data
    tail = a_log(simulated, bytes(1000) + b"\xff" * bytes_between + records)
    assert tail.next_slice(1000, False) == Run(1000, start, NO_ROWS)
    assert told == [(1000, f"{bytes_between} bytes that are no record; skipped")]
    assert tail.next_slice(start, False).end == start + len(records)


def test_a_master_does_not_go_beyond_the_end(simulated, told):
    """What will be appended there would never be dispatched."""
    tail = a_log(simulated, b"\xff" * 1000)
    assert tail.next_slice(0, False) == Run(0, 1000, NO_ROWS)
    assert [offset for offset, _ in told] == [0]


def test_a_record_whose_parts_do_not_fit_is_skipped_and_told(simulated, message, told):
    (segment,) = GroupEncoder(65536, []).encode([draft_of(message())], 0, 1 << 22, 1).segments
    record = bytearray(segment.data)
    record[0:4] = (len(record) + 10).to_bytes(4, "big")
    tail = a_log(simulated, bytes(record) + bytes(10))
    for waits in (False, True):
        assert tail.next_slice(0, waits) == Run(0, len(record) + 10, NO_ROWS)
    assert len(told) == 2


def test_a_blank_ends_its_file(simulated, message, told):
    """What follows may be looked at now."""
    data = good_log(message, True)
    tail = a_log(simulated, data[:65536])
    ends = tail.next_slice(0, False)
    assert (ends.end, len(ends.rows)) == (65536, 2)
    behind = ends.rows[1][2] + ends.rows[1][3]
    assert tail.next_slice(behind, True) == Run(behind, 65536, NO_ROWS)
    assert not told


def test_a_record_that_ends_with_its_file_is_waited_for(simulated, message, told):
    (segment,) = (
        GroupEncoder(65536, []).encode([draft_of(message(b"x" * 500))], 0, 1 << 22, 1).segments
    )
    head = bytearray(segment.data[:36])
    for size, is_bad in ((65536, False), (65537, True)):
        head[0:4] = size.to_bytes(4, "big")
        tail = a_log(simulated, bytes(head))
        assert tail.next_slice(0, True) is None
        assert (tail.unreadable_at == 0) is is_bad
        simulated.stores[-1].close()
        simulated.disk.remove_tree(simulated.root)


def test_a_place_is_told_once_until_it_was_cut(simulated, monkeypatch):
    """A slave looks at it in every turn, and its log goes round."""
    said = []
    log = type("Log", (), {"error": lambda self, text, **fields: said.append(text)})
    monkeypatch.setattr("rmq_ha.server.store.log.tail.LogTail.log", log())
    tail = a_log(simulated, b"\xff" * 1000)
    for _ in range(3):
        assert tail.next_slice(0, True) is None
    assert (tail.unreadable_at, len(said)) == (0, 1)
    tail.forget()
    assert tail.unreadable_at is None
    tail.next_slice(0, True)
    assert (tail.unreadable_at, len(said)) == (0, 2)


def test_a_record_that_is_cut_anywhere_is_waited_for(message):
    """Behind others and far from the beginning of the log: more bytes may follow."""
    segments = GroupEncoder(65536, []).encode([draft_of(message())] * 3, 5000, 1 << 22, 1).segments
    data = segments[0].data
    size = len(data) // 3
    for cut in range(1, size):
        found = walk(data[: 2 * size + cut], 5000, [], 9)
        assert (len(found.run.rows), found.size, found.verdict) == (2, 2 * size, MORE)
        assert found.needed == (size if cut >= BLANK_SIZE else BLANK_SIZE)


@given(cuts=st.sets(st.integers(1, 65536 + 700), max_size=12), blank=st.booleans())
def test_whole_logs_give_no_alarm(make_simulated, message, cuts, blank):
    """However the bytes of a good log are cut, nothing of it is called damage."""
    machine = make_simulated()
    store = machine.open(**SLAVE)
    data = good_log(message, blank)
    ends = sorted({*cuts, 65536, len(data)})
    for start, end in pairwise([0, *ends]):
        if piece := data[start:end]:
            store.log.append_raw(start, piece)
            machine.turn()
            assert store.journal.tail.unreadable_at is None
    assert store.dispatcher.bytes_behind <= 0
    assert store.max_offset_in_queue("TopicA", 0) == 4


def good_log(message, blank, sizes=(300,)):
    """Three records and those of `sizes`; with `blank` the third one begins the second file."""
    encoder = GroupEncoder(65536, [1000])
    sizes = (10, 20000, 46000 if blank else 400, *sizes)
    messages = [message(b"x" * size) for size in sizes]
    group = encoder.encode([draft_of(one) for one in messages], 0, 1 << 22, 1)
    data = bytearray()
    for segment in group.segments:
        data += bytes(segment.physical_offset - len(data)) + segment.data
    assert (encode_blank(8)[4:] in data) is blank
    return bytes(data)


def test_a_slice_has_so_many_records_and_no_more(simulated, message):
    """From memory as from the log; the next one goes on behind it."""
    store = simulated.open()
    store.put_many([message() for _ in range(2 * SLICE + 1)], lambda results: None)
    size = store.log.max_offset // (2 * SLICE + 1)
    tail = store.journal.tail
    for _ in range(2):
        sizes = []
        position = 0
        while position < store.log.max_offset:
            start, end, rows = tail.next_slice(position, False)
            assert (start, end) == (position, rows[-1][2] + size)
            position = end
            sizes.append(len(rows))
        assert sizes == [SLICE, SLICE, 1]
        assert not store.log.pending
