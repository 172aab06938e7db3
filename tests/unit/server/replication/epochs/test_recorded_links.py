"""Each end of ours in the place of Java's, in conversations that two of Java's had.

Spec: controller.md, chapters 6 and 7, section 15.
"""

from __future__ import annotations

import pytest

from rmq_ha.base.errors import ReplicationError
from rmq_ha.server.controller.messages import SyncStateSet
from rmq_ha.server.replication.epochs.epochs import Epoch, Epochs
from rmq_ha.server.replication.epochs.feed import EpochFeed
from rmq_ha.server.replication.epochs.frames import (
    MasterHandshake,
    MasterReader,
    SlaveHandshake,
    SlaveReader,
    Transfer,
    encode_master_handshake,
    encode_report,
    encode_slave_handshake,
    encode_transfer,
)
from rmq_ha.server.replication.epochs.replica import Cut, EpochReplica
from rmq_ha.server.replication.epochs.settings import ReplicationSettings
from rmq_ha.server.replication.epochs.sync_state import SyncState
from tests.unit.server.replication.epochs.recordings import Chunk, connections, said
from tests.unit.server.replication.memory_log import MemoryLog
from tests.unit.server.replication.record_logs import extend

ALL = connections("all")
LOADED = connections("loaded")
FILE_SIZE = 1 << 20
TALKS = [("all", key, chunks) for key, chunks in ALL.items() if said(chunks, "<")] + [
    ("loaded", key, chunks) for key, chunks in LOADED.items() if said(chunks, "<")
]
STRANGERS = ("all", ("ha-b", 5)), ("loaded", ("ha-b", 5))


def frames_of(data: bytes) -> list[MasterHandshake | Transfer]:
    reader = MasterReader()
    reader.receive_data(data)
    return list(iter(reader.next_frame, None))


@pytest.mark.parametrize(("name", "key", "chunks"), TALKS)
def test_what_java_wrote_is_read_and_written_again(
    name: str, key: tuple[str, int], chunks: list[Chunk]
) -> None:
    written = b""
    for said_by_slave in SlaveReader().receive_data(said(chunks, ">")):
        if isinstance(said_by_slave, SlaveHandshake):
            written += encode_slave_handshake(said_by_slave)
        else:
            written += encode_report(said_by_slave)
    assert written == said(chunks, ">")
    written = b""
    for frame in frames_of(said(chunks, "<")):
        if isinstance(frame, MasterHandshake):
            written += encode_master_handshake(frame)
        else:
            written += encode_transfer(frame)
    assert written == said(chunks, "<")


@pytest.mark.parametrize(("name", "key", "chunks"), TALKS)
def test_a_master_of_ours_says_what_javas_said(
    name: str, key: tuple[str, int], chunks: list[Chunk]
) -> None:
    """
    Given the same log at the same time, byte for byte; a stranger is closed instead.

    But for the end of the newest epoch in the handshake: Java says that of its log.
    """
    settings = ReplicationSettings()
    log = MemoryLog(FILE_SIZE)
    state = SyncState(9, log, Epochs(), SyncStateSet((9,), 1), settings, 0.0)
    feed, now = EpochFeed(log, state, settings, 0.0), 0.0
    reader = MasterReader()
    for way, data in chunks:
        if way == ">":
            for report in SlaveReader().receive_data(data):
                if not isinstance(report, SlaveHandshake) and (name, key) not in STRANGERS:
                    state.sending(feed.slave.broker_id, report)  # on an earlier connection
            if (name, key) in STRANGERS and len(data) == 12:
                with pytest.raises(ReplicationError, match="nobody can have sent"):
                    feed.receive_data(data, now)
                return
            feed.receive_data(data, now)
            continue
        reader.receive_data(data)
        for frame in iter(reader.next_frame, None):
            if isinstance(frame, MasterHandshake):
                state.epochs = frame.epochs
                if frame.max_offset > log.max_offset:
                    log.put(bytes(frame.max_offset - log.max_offset))
                last = frame.epochs.last_entry
                state.led_from = 0 if last is None else last.start
                known = max(state.led_from, state.sent_to(feed.slave.broker_id))
                ours = frame._replace(max_offset=min(frame.max_offset, known))
                assert feed.next_frame(now) == encode_master_handshake(ours)
                continue
            state.confirm_offset = frame.confirm_offset
            if frame.body:
                end = frame.offset + len(frame.body)
                log.put(bytes(max(0, end - log.max_offset)))
                log.data[frame.offset : end] = frame.body
                del log.data[end:]
            else:
                now += 5.0
                if frame.offset > log.max_offset:
                    log.put(bytes(frame.offset - log.max_offset))
                del log.data[max(frame.offset, 0) :]
            assert feed.next_frame(now) == encode_transfer(frame)


class Broker:
    """One that follows, through several connections."""

    def __init__(self, broker_id: int) -> None:
        self.id = broker_id
        self.log = MemoryLog(FILE_SIZE)
        self.epochs = Epochs()
        self.confirm_offset = 0
        self.cuts: list[Cut] = []

    def follow(self, chunks: list[Chunk]) -> bytes:
        """Hear what Java's master said; returns what we said."""
        replica = EpochReplica(
            self.id, self.log, self.epochs, self.confirm_offset, ReplicationSettings(), 0.0
        )
        answer = replica.connected(0.0)
        for way, data in chunks:
            if way == "<":
                answer += replica.receive_data(data, 0.0)
                while replica.task is not None:
                    if isinstance(replica.task, Cut):
                        self.cuts.append(replica.task)
                        del self.log.data[replica.task.end :]
                    answer += replica.done(0.0)
        self.epochs, self.confirm_offset = replica.epochs, replica.confirm_offset
        return answer

    def crash(self, end: int) -> None:
        """The process was killed before it had what came last."""
        del self.log.data[end:]
        self.confirm_offset = min(self.confirm_offset, end)


def distinct(data: bytes) -> list[SlaveHandshake | int]:
    """What a slave said, without what it repeated."""
    found: list[SlaveHandshake | int] = []
    for each in SlaveReader().receive_data(data):
        if found[-1:] != [each]:
            found.append(each)
    return found


def test_a_slave_of_ours_says_what_javas_said() -> None:
    """From an empty store over a stall, a crash and three changes of the master."""
    b = Broker(2)
    for number in (1, 2, 3):
        ours, javas = (
            distinct(b.follow(ALL["ha-a", number])),
            distinct(said(ALL["ha-a", number], ">")),
        )
        assert ours[: len(javas)] == javas, "its last reports were held up in the recording"
        if number == 2:
            b.crash(0x712)
    assert b.log.max_offset == b.confirm_offset == 0x8DC
    assert b.epochs == Epochs([Epoch(1, 0)])

    a = Broker(1)
    a.log, a.epochs = MemoryLog(FILE_SIZE, 0, bytes(b.log.data)), b.epochs
    extend(a.log, [b"lost0", b"lost1", b"lost2"])
    assert distinct(a.follow(ALL["ha-b", 1])) == distinct(said(ALL["ha-b", 1], ">"))
    assert a.cuts == [Cut(0x8DC, Epochs([Epoch(1, 0)]))]
    assert a.epochs == Epochs([Epoch(1, 0), Epoch(2, 0x8DC)])
    assert a.log.max_offset == a.confirm_offset == 0xD43

    b.log, b.epochs = MemoryLog(FILE_SIZE, 0, bytes(a.log.data)), a.epochs
    for number in (4, 5):
        assert distinct(b.follow(ALL["ha-a", number])) == distinct(said(ALL["ha-a", number], ">"))
        a.log, a.epochs = MemoryLog(FILE_SIZE, 0, bytes(b.log.data)), b.epochs
        a.follow(ALL["ha-b", 2] if number == 4 else [])
        b.log, b.epochs = MemoryLog(FILE_SIZE, 0, bytes(a.log.data)), a.epochs
    a.log, a.epochs = MemoryLog(FILE_SIZE, 0, bytes(b.log.data)), b.epochs
    assert distinct(a.follow(ALL["ha-b", 4])) == distinct(said(ALL["ha-b", 4], ">"))
    assert a.log.max_offset == 0x1747
    assert a.epochs.last_entry == Epoch(6, 0xF14)
    assert a.confirm_offset == 0x12C7, "the stranger held it back at Java's master"


def test_the_recorded_truncation() -> None:
    """Spec: controller.md, section 15.3."""
    b = Broker(2)
    b.follow(LOADED["ha-a", 2])
    a = Broker(1)
    a.log, a.epochs = MemoryLog(FILE_SIZE, 0, bytes(b.log.data[:0x460])), b.epochs
    extend(a.log, [b"one", b"two", b"three"])
    assert distinct(a.follow(LOADED["ha-b", 1])) == distinct(said(LOADED["ha-b", 1], ">"))
    assert a.cuts == [Cut(0x460, Epochs([Epoch(1, 0)]))]
    assert a.log.max_offset == 0x9B6
    assert a.epochs == Epochs([Epoch(1, 0), Epoch(5, 0x460)])


def test_a_slave_of_4_9_is_refused() -> None:
    with pytest.raises(ReplicationError, match="not of controller mode"):
        list(SlaveReader().receive_data(said(ALL["ha-b", 3], ">")))


def test_hazard_30_a_handshake_in_pieces_is_read_whole() -> None:
    """Java takes the id of twelve of its sixteen bytes."""
    data = encode_slave_handshake(SlaveHandshake(2, True, True)) + encode_report(0x460)
    for first in range(len(data) + 1):
        reader = SlaveReader()
        found = [*reader.receive_data(data[:first]), *reader.receive_data(data[first:])]
        assert found == [SlaveHandshake(2, True, True), 0x460]


def test_hazard_31_more_than_a_thousand_epochs() -> None:
    many = Epochs(Epoch(number, number * 100) for number in range(5000))
    handshake = MasterHandshake(1_000_000, 4999, many)
    assert frames_of(encode_master_handshake(handshake)) == [handshake]


@pytest.mark.parametrize(
    "data",
    [
        bytes(20),
        b"\0\0\0\1\0\0\0\5" + bytes(17),
        b"\0\0\0\2\xff\xff\xff\xff" + bytes(28),
        b"\0\0\0\2\0\0\0\1" + b"\xff" * 8 + bytes(21),
        encode_master_handshake(MasterHandshake(0, 1, Epochs([Epoch(1, 0)])))[:-12] + b"\xff" * 12,
    ],
)
def test_what_no_master_says_is_refused(data: bytes) -> None:
    with pytest.raises(ReplicationError):
        frames_of(data)
