"""Where records begin in a log that is read from its end or from the middle of a record."""

import itertools

import pytest

from rmq_ha.base.store_format.commitlog import BLANK_SIZE
from rmq_ha.server.replication import places
from rmq_ha.server.replication.places import (
    HEAD_SIZE,
    WINDOWS,
    LastRecord,
    chain_to,
    record_size,
    stretch,
)
from tests.unit.server.replication.memory_log import MemoryLog
from tests.unit.server.replication.record_logs import blank, extend, record, record_log

BODIES = [bytes([65 + number]) * (30 * number) for number in range(12)]


def test_a_stretch_goes_over_the_ends_of_files() -> None:
    log, _ = record_log(BODIES * 4, file_size=1024)
    assert stretch(log, 100, 5000) == bytes(log.data[100:5000])


def test_a_head_says_how_large_its_record_is_once_all_of_it_is_there() -> None:
    data = record(640, b"body")
    size = len(data)
    for there in range(size + 1):
        known = size if there >= HEAD_SIZE else -1
        assert record_size(data[:there], 0, 640, size) == known
        assert record_size(b"xyz" + data[:there], 3, 640, 4096) == known
    assert record_size(data, 0, 640, size - 1) == 0, "it would go beyond its file"
    assert record_size(data, 0, 641, 4096) == 0, "it is of another place"
    for there in range(BLANK_SIZE + 1):
        known = 100 if there == BLANK_SIZE else -1
        assert record_size(blank(100)[:there], 0, 0, 100) == known
    assert record_size(blank(100), 0, 0, 101) == 0, "a blank fills its file"


def test_the_last_whole_record_is_found_from_the_end() -> None:
    log, starts = record_log(BODIES)
    assert chain_to(log, 0, log.max_offset) == LastRecord(starts[-1], log.max_offset)


def test_a_torn_record_at_the_end_is_not_whole() -> None:
    log, starts = record_log(BODIES)
    for torn in range(starts[-1], log.max_offset):
        assert chain_to(log, 0, torn) == LastRecord(starts[-2], starts[-1])


def test_a_blank_is_passed_and_is_no_record() -> None:
    log, starts = record_log(BODIES * 4, file_size=1024)
    for start, following in itertools.pairwise(starts):
        if following % 1024 == 0:
            assert chain_to(log, 0, following) == LastRecord(start, following)


def test_from_the_middle_of_a_record_the_next_ones_are_found() -> None:
    log, starts = record_log(BODIES)
    for low in range(starts[5] + 1, starts[6]):
        assert chain_to(log, low, log.max_offset) == LastRecord(starts[-1], log.max_offset)
    assert chain_to(log, starts[-1] + 1, log.max_offset) is None


def test_a_record_within_a_body_is_none() -> None:
    """A producer may send what looks like a record, with the right place in it."""
    log, starts = record_log(BODIES[:3])
    inner = record(log.max_offset + 88, b"forged")
    starts += extend(log, [inner + b"x" * 50, b"last"])
    assert bytes(log.data).find(inner) == starts[3] + 88
    assert chain_to(log, 0, starts[4]) == LastRecord(starts[3], starts[4])
    assert chain_to(log, starts[3] + 1, starts[4]) is None


def test_bytes_that_are_no_records_hold_none() -> None:
    assert chain_to(MemoryLog(4096, 0, bytes(range(256)) * 40), 0, 10240) is None
    assert chain_to(MemoryLog(4096, 0, bytes(10240)), 0, 10240) is None


def test_a_chain_that_leads_nowhere_is_walked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """From each of its records it would take minutes on a window of small ones."""
    log, starts = record_log([b"x"] * 200)
    log.put(b"no record" * 9)
    walked: list[int] = []

    def counted(data: bytes, position: int, physical_offset: int, room: int) -> int:
        walked.append(position)
        return record_size(data, position, physical_offset, room)

    monkeypatch.setattr(places, "record_size", counted)
    assert chain_to(log, 0, log.max_offset) is None
    assert len(walked) < 2 * len(starts)


def test_a_damaged_record_breaks_the_chain() -> None:
    log, starts = record_log(BODIES)
    log.data[starts[4] + 4] ^= 1
    assert chain_to(log, 0, starts[4] + 20) is None
    assert chain_to(log, 0, starts[4]) == LastRecord(starts[3], starts[4])
    assert chain_to(log, 0, log.max_offset) == LastRecord(starts[-1], log.max_offset)


def test_a_record_larger_than_the_first_window_is_found() -> None:
    log, starts = record_log([b"a", bytes(200_000), b"b" * 100_000], file_size=1 << 20)
    assert chain_to(log, 0, log.max_offset) == LastRecord(starts[2], log.max_offset)
    assert chain_to(log, 0, log.max_offset - 1) == LastRecord(starts[1], starts[2])


def test_a_record_may_end_with_its_file() -> None:
    """Ours leaves room for a blank; what others wrote is read all the same."""
    data = record(0, b"whole")
    log = MemoryLog(len(data), 0)
    log.put(data)
    assert chain_to(log, 0, log.max_offset) == LastRecord(0, len(data))


def test_what_is_found_near_the_end_is_enough() -> None:
    """However large the log is, and whatever stands before: no more of it is read."""
    log = MemoryLog(1 << 25, 0, bytes(WINDOWS[-1] + WINDOWS[0]))
    starts = extend(log, BODIES)
    asked: list[int] = []
    read = log.read

    def counted(physical_offset: int, limit: int) -> bytes:
        asked.append(limit)
        return read(physical_offset, limit)

    log.read = counted  # type: ignore[method-assign]
    assert chain_to(log, 0, log.max_offset) == LastRecord(starts[-1], log.max_offset)
    assert sum(asked) == WINDOWS[0]
