"""The slave's half of a classic connection: what it appends, reports and refuses."""

import os
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.config.store import MessageStoreConfig
from rmq_ha.base.errors import DivergedLog, ReplicationError
from rmq_ha.server.replication.classic.frames import encode_frame, encode_report
from rmq_ha.server.replication.classic.replica import ClassicReplica
from tests.unit.server.replication.memory_log import MemoryLog


def make_replica(log: MemoryLog) -> ClassicReplica:
    replica = ClassicReplica(log, MessageStoreConfig(), 0.0)
    replica.connected(0.0)
    return replica


def test_the_first_report_is_sent_at_once() -> None:
    """A Java slave waits five seconds; a Java master answers both alike."""
    replica = ClassicReplica(MemoryLog(4096, 0, bytes(300)), MessageStoreConfig(), 0.0)
    assert replica.connected(0.0) == encode_report(300)


def test_an_empty_log_asks_for_0() -> None:
    replica = ClassicReplica(MemoryLog(4096), MessageStoreConfig(), 0.0)
    assert replica.connected(0.0) == encode_report(0)


def test_a_frame_is_appended_and_reported() -> None:
    log = MemoryLog(4096, 0, b"abc")
    assert make_replica(log).receive_data(encode_frame(3, b"de"), 1.0) == encode_report(5)
    assert log.data == b"abcde"


def test_frames_of_one_chunk_are_one_append_and_one_report() -> None:
    log = MemoryLog(4096, 0)
    chunk = encode_frame(0, b"ab") + encode_frame(2, b"cd") + encode_frame(4)
    assert make_replica(log).receive_data(chunk, 1.0) == encode_report(4)
    assert log.appends == [(0, 4)]


def test_a_chunk_that_reaches_into_the_next_file_is_two_appends() -> None:
    log = MemoryLog(4, 0)
    chunk = encode_frame(0, b"ab") + encode_frame(2, b"cd") + encode_frame(4, b"efgh")
    assert make_replica(log).receive_data(chunk + encode_frame(8, b"i"), 1.0) == encode_report(9)
    assert log.appends == [(0, 4), (4, 4), (8, 1)]


def test_a_body_is_appended_as_it_comes_but_reported_when_it_is_whole() -> None:
    log = MemoryLog(4096, 0)
    replica = make_replica(log)
    frame = encode_frame(0, b"abcdef")
    assert replica.receive_data(frame[:15], 1.0) == b""
    assert log.data == b"abc"
    assert replica.on_time(5.0) == encode_report(0)
    assert replica.receive_data(frame[15:], 6.0) == encode_report(6)
    assert log.data == b"abcdef"


def test_after_a_torn_frame_we_ask_for_what_we_lack() -> None:
    log = MemoryLog(4096, 0)
    make_replica(log).receive_data(encode_frame(0, b"abcdef")[:15], 1.0)
    assert ClassicReplica(log, MessageStoreConfig(), 2.0).connected(2.0) == encode_report(3)


def test_a_heartbeat_is_not_answered() -> None:
    replica = make_replica(MemoryLog(4096, 0, b"abc"))
    assert replica.receive_data(encode_frame(3), 1.0) == b""
    assert replica.frames == 1


def test_a_heartbeat_creates_the_first_file() -> None:
    log = MemoryLog(131072)
    replica = make_replica(log)
    assert replica.receive_data(encode_frame(262144), 1.0) == encode_report(262144)
    assert (log.min_offset, log.max_offset) == (262144, 262144)


def test_a_heartbeat_inside_a_file_creates_the_whole_file() -> None:
    """As a Java slave: 262244 creates 262144. What follows is asked for by the next connection."""
    log = MemoryLog(131072)
    replica = make_replica(log)
    assert replica.receive_data(encode_frame(262244), 1.0) == encode_report(262144)
    with pytest.raises(DivergedLog):
        replica.receive_data(encode_frame(262244, b"x"), 1.0)


@pytest.mark.parametrize("body", [b"", b"x"])
@pytest.mark.parametrize("offset", [2**62, 2**56 + 4096])
def test_an_empty_log_begins_at_no_impossible_place(offset: int, body: bytes) -> None:
    """It would be so for good: the true master then refuses us as one that is ahead."""
    log = MemoryLog(4096)
    replica = ClassicReplica(log, MessageStoreConfig(), 0.0, first_offset_max=2**56)
    replica.connected(0.0)
    with pytest.raises(DivergedLog, match="haFirstOffsetMax=72057594037927936"):
        replica.receive_data(encode_frame(offset, body), 1.0)
    assert (log.max_offset, log.appends) == (0, [])
    again = ClassicReplica(log, MessageStoreConfig(), 0.0, first_offset_max=2**56)
    assert again.connected(2.0) == encode_report(0)
    assert again.receive_data(encode_frame(2**56), 3.0) == encode_report(2**56)


def test_data_for_the_middle_of_a_file_cannot_begin_a_log() -> None:
    """A Java slave puts them at the file's start, where they do not belong."""
    with pytest.raises(DivergedLog):
        make_replica(MemoryLog(4096)).receive_data(encode_frame(100, b"x"), 1.0)


@pytest.mark.parametrize(
    "header",
    [encode_frame(6), encode_frame(4), encode_frame(4, b"x")[:12], encode_frame(6, b"x")[:12]],
)
def test_another_offset_than_our_end_is_refused_before_the_body(header: bytes) -> None:
    log = MemoryLog(4096, 0, b"abcde")
    with pytest.raises(DivergedLog, match="ends at 5"):
        make_replica(log).receive_data(header, 1.0)


def test_a_frame_that_crosses_the_end_of_a_file_is_refused() -> None:
    log = MemoryLog(4096, 0, bytes(4000))
    with pytest.raises(DivergedLog, match="mappedFileSizeCommitLog"):
        make_replica(log).receive_data(encode_frame(4000, bytes(97))[:12], 1.0)
    assert log.max_offset == 4000


def test_what_came_before_the_refusal_is_kept() -> None:
    log = MemoryLog(4096, 0)
    with pytest.raises(DivergedLog):
        make_replica(log).receive_data(encode_frame(0, b"ab") + encode_frame(9, b"x"), 1.0)
    assert log.data == b"ab"


def test_an_unchanged_offset_is_reported_every_interval() -> None:
    replica = make_replica(MemoryLog(4096, 0, b"abc"))
    assert replica.deadline() == 5.0
    assert replica.on_time(4.9) == b""
    assert replica.on_time(5.0) == encode_report(3)
    assert replica.deadline() == 10.0


def test_a_report_puts_off_the_next() -> None:
    replica = make_replica(MemoryLog(4096, 0))
    replica.receive_data(encode_frame(0, b"x"), 3.0)
    assert replica.on_time(5.0) == b""
    assert replica.deadline() == 8.0


def test_a_silent_master_is_left_though_we_write() -> None:
    """Java's cannot fire: its own reports refresh the time (4.7)."""
    replica = make_replica(MemoryLog(4096, 0))
    replica.receive_data(encode_frame(0), 1.0)
    for now in (5.0, 10.0, 15.0, 20.0):
        assert replica.on_time(now) == encode_report(0)
    assert replica.deadline() == 21.0
    with pytest.raises(ReplicationError, match="20 s"):
        replica.on_time(21.0)


def test_all_bodies_of_a_chunk_are_appended_at_once() -> None:
    """Then the dispatcher finds them in memory."""

    class KeepingLog(MemoryLog):
        def __init__(self) -> None:
            super().__init__(1 << 20, 0)
            self.kept: list[bytes] = []

        def append_raw(self, physical_offset: int, data: bytes) -> None:
            super().append_raw(physical_offset, data)
            self.kept.append(data)

    log = KeepingLog()
    replica = make_replica(log)
    first, second = os.urandom(100_000), os.urandom(50_000)
    much = encode_frame(0, first) + encode_frame(100_000, second)[:-1]
    assert replica.receive_data(much, 1.0) == encode_report(100_000)
    assert log.kept == [b"", first + second[:-1]]  # first an empty log begins
    log.kept.clear()
    little = second[-1:] + encode_frame(150_000, b"a") + encode_frame(150_001, b"b")
    assert replica.receive_data(little, 1.0) == encode_report(150_002)
    assert log.kept == [second[-1:] + b"ab"]
    assert log.read(0, 1 << 20) == first + second + b"ab"


@given(st.lists(st.binary(max_size=40)), st.sampled_from([None, 0, 4096]))
def test_any_bytes_are_appended_or_refused(chunks: list[bytes], start: int | None) -> None:
    log = MemoryLog(4096, start)
    replica = make_replica(log)
    total = 0
    with suppress(ReplicationError):
        for chunk in chunks:
            total += len(chunk)
            assert len(replica.receive_data(chunk, 1.0)) in (0, 8)
            assert len(log.data) <= total


@given(
    st.binary(min_size=1, max_size=300),
    st.lists(st.integers(1, 60), min_size=1),
    st.lists(st.integers(1, 50), min_size=1),
)
def test_any_cut_of_the_stream_gives_the_masters_bytes(
    data: bytes, sizes: list[int], chunks: list[int]
) -> None:
    """Reports rise, stand for whole frames and end at the log's end."""
    stream, ends, position = b"", {0}, 0
    while position < len(data):
        size = min(sizes[position % len(sizes)], 64 - position % 64, len(data) - position)
        stream += encode_frame(position, data[position : position + size])
        position += size
        ends.add(position)
    log = MemoryLog(64, 0)
    replica = make_replica(log)
    reports, place, turn = [], 0, 0
    while place < len(stream):
        size = chunks[turn % len(chunks)]
        if answer := replica.receive_data(stream[place : place + size], 1.0):
            reports.append(int.from_bytes(answer, "big"))
        place, turn = place + size, turn + 1
    assert log.data == data
    assert reports == sorted(set(reports))
    assert set(reports) <= ends
    assert reports[-1] == len(data)
