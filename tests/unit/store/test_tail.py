"""What follows in the log: records, not enough bytes yet, a blank, or damage."""

import errno
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.model.status import BrokerRole
from rmq_ha.store.append import GroupEncoder
from rmq_ha.store.format.commitlog import encode_blank
from rmq_ha.store.scan import MAX_RECORD_SIZE

SLAVE = {"broker_role": BrokerRole.SLAVE}


@pytest.fixture
def told(monkeypatch):
    """What tails say at level error."""
    said = []
    monkeypatch.setattr(
        "rmq_ha.store.tail.LogTail._tell", lambda tail, offset, what: said.append((offset, what))
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
    tail = store.parts.tail
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
    ],
    ids=["size", "behind the file", "no size", "magic", "another place"],
)
def test_it_is_known_from_the_head(machine, message, told, damage, at):
    """36 bytes of a record suffice, however long it says that it is."""
    data, ends = records(machine, message)
    head = bytearray(data[ends[1] : ends[1] + 36])
    head[at : at + len(damage)] = damage
    store = machine.open(**SLAVE)
    store.log.append_raw(0, data[: ends[1]] + head)
    machine.turn()
    assert store.parts.tail.unreadable_at == ends[1]
    assert told


def test_a_torn_record_that_was_cut_is_not_waited_for(machine, message, told):
    """Other bytes in its place are read as soon as they are whole."""
    data, ends = records(machine, message)
    store = machine.open(**SLAVE)
    long = bytearray(data[ends[1] : ends[1] + 40])
    long[0:4] = (5000).to_bytes(4, "big")
    store.log.append_raw(0, data[: ends[1]] + long)
    machine.turn()
    assert store.parts.tail.unreadable_at is None
    store.log.recovered(ends[1], 0)
    store.log.append_raw(ends[1], data[ends[1] : ends[2]])
    machine.turn()
    assert store.dispatcher.position == ends[2]
    assert not told


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
            assert store.parts.tail.unreadable_at is None
    assert store.dispatcher.behind <= 0
    assert store.max_offset_in_queue("TopicA", 0) == 4


def good_log(message, blank):
    """Four records; with `blank` the third one begins the second file."""
    encoder = GroupEncoder(65536, [1000])
    messages = [message(b"x" * size) for size in (10, 20000, 46000 if blank else 400, 300)]
    group = encoder.encode(messages, 0, 1 << 22, 1)
    data = bytearray()
    for segment in group.segments:
        data += bytes(segment.physical_offset - len(data)) + b"".join(segment.parts)
    assert (encode_blank(8)[4:] in data) is blank
    return bytes(data)
