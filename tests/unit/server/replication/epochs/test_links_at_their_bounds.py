"""Both halves of a link where one byte, one tick or one epoch decides. Spec: controller.md, 7."""

from __future__ import annotations

from random import Random

import pytest

from rmq_ha.base.config.store import MessageStoreConfig
from rmq_ha.base.errors import DivergedLog, NothingInCommon, ReplicationError
from rmq_ha.server.controller.messages import SyncStateSet
from rmq_ha.server.replication.epochs.commit_log import EpochCommitLog
from rmq_ha.server.replication.epochs.epochs import Epoch, Epochs
from rmq_ha.server.replication.epochs.feed import EpochFeed
from rmq_ha.server.replication.epochs.frames import (
    SlaveHandshake,
    Transfer,
    encode_report,
    encode_slave_handshake,
    encode_transfer,
)
from rmq_ha.server.replication.epochs.replica import Cut, EpochReplica
from rmq_ha.server.replication.epochs.settings import ReplicationSettings
from rmq_ha.server.replication.epochs.sync_state import SyncState
from rmq_ha.server.store.log.files import FileRow
from rmq_ha.testing.disk import SimDisk
from tests.unit.server.replication.epochs.test_hazards_of_links import Pair, epochs, follower, hello
from tests.unit.server.replication.memory_log import MemoryLog
from tests.unit.server.replication.record_logs import blank, copy_of, extend, record, record_log

BEAT = 5.0


# ------------------------------------------------------------ the set


def test_a_set_that_was_asked_for_is_waited_for_until_the_controller_has_said_what_it_is() -> None:
    """It may have it already: whoever left it meanwhile, puts without it would be lost with us."""
    pair = Pair(1, all_ack_in_sync_state_set=True)
    _, link = pair.caught_up(2)
    asked = SyncStateSet((1, 2), 7)
    assert pair.state.proposal(0.0) == asked
    pair.state.closed(2, link)
    pair.state.adopt(SyncStateSet((1,), 7))
    assert pair.state.proposal(0.0) == asked
    assert not pair.state.is_kept(pair.put())
    pair.state.adopt(SyncStateSet((1, 2), 8))
    assert pair.state.proposal(0.0) == SyncStateSet((1,), 8)


def test_who_comes_nearer_while_it_joins_is_waited_for_though_it_never_has_all() -> None:
    """Under a steady load there is always more; what counts is what was acknowledged without it."""
    pair = Pair(1, all_ack_in_sync_state_set=True)
    feed, link = pair.caught_up(2)
    alone = pair.put()
    assert pair.state.proposal(0.0) is None
    pair.put()
    while feed.next_frame(0.0):
        pass
    pair.report(feed, link, alone - 50)
    assert pair.state.proposal(0.0) is None
    pair.put()
    pair.report(feed, link, alone)
    assert pair.state.proposal(0.0) == SyncStateSet((1, 2), 7)


@pytest.mark.parametrize(("needed", "at_once"), [(1, True), (2, False)])
def test_who_joins_a_set_that_waits_for_nobody_needs_not_have_all(
    needed: int, at_once: bool
) -> None:
    pair = Pair(1, in_sync_replicas=needed)
    feed, link = pair.caught_up(2)
    end = pair.put()
    assert (pair.state.proposal(0.0) is not None) is at_once
    while feed.next_frame(0.0):
        pass
    pair.report(feed, link, end)
    assert pair.state.proposal(0.0) == SyncStateSet((1, 2), 7)


def test_who_is_in_no_set_says_of_nothing_more_that_it_may_be_read() -> None:
    pair = Pair(1, 2, all_ack_in_sync_state_set=True)
    feed, link = pair.caught_up(2)
    pair.state.adopt(SyncStateSet((2,), 8))
    end = pair.put()
    feed.next_frame(0.0)
    pair.report(feed, link, end)
    assert pair.state.confirm_offset == 1000
    assert pair.state.proposal(100.0) is None


class FlushedLog(MemoryLog):
    """Of which less is on the disk than is there."""

    flushed_offset = 0


def test_what_reaches_the_masters_disk_last_may_be_read_at_once() -> None:
    """Nobody else says anything then."""
    log = FlushedLog(4096, 0, bytes(400))
    settings = ReplicationSettings(all_ack_in_sync_state_set=True, sync_flush=True)
    state = SyncState(1, log, epochs((4, 0)), SyncStateSet((1,), 7), settings, 0.0)
    for flushed in (0, 100, 400):
        log.flushed_offset = flushed
        state.flushed()
        assert state.confirm_offset == flushed


def test_what_only_a_refused_member_lacks_may_be_read_at_once() -> None:
    pair = Pair(1, 2, all_ack_in_sync_state_set=True)
    feed, link = pair.caught_up(2)
    pair.caught_up(3)
    assert pair.state.proposal(0.0) == SyncStateSet((1, 2, 3), 7)
    end = pair.put()
    feed.next_frame(0.0)
    pair.report(feed, link, end)
    assert pair.state.confirm_offset == 1000
    pair.state.refused(0.0)
    assert pair.state.confirm_offset == end


def test_a_set_that_waits_for_nobody_reads_what_its_master_has() -> None:
    pair = Pair(1, 2, in_sync_replicas=0)
    assert pair.state.confirm_offset == 1000


# ------------------------------------------------------------ the master's half


def test_a_slave_is_served_from_the_very_byte_where_the_log_begins() -> None:
    pair = Pair()
    pair.log.delete_below(400)
    feed, link = pair.slave(2)
    (report,) = feed.receive_data(encode_report(400), 0.0)
    pair.state.reported(link, report, 0.0)
    assert not feed.is_stranded
    assert feed.next_frame(0.0)
    assert feed.sent == 1000


@pytest.mark.parametrize(("end", "start"), [(4096, 0), (4097, 4096), (8192, 4096), (8193, 8192)])
def test_the_last_file_is_the_one_with_the_last_byte(end: int, start: int) -> None:
    pair = Pair()
    pair.log.put(bytes(end - 1000))
    feed = EpochFeed(pair.log, pair.state, pair.settings, 0.0)
    feed.receive_data(encode_slave_handshake(SlaveHandshake(3, True)), 0.0)
    feed.next_frame(0.0)
    feed.receive_data(encode_report(0), 0.0)
    assert feed.sent == start


def test_a_heartbeat_leaves_when_it_is_due_and_not_before() -> None:
    pair = Pair()
    feed, _ = pair.caught_up(2)
    assert feed.deadline() == BEAT
    assert feed.next_frame(4.9) == b""
    assert feed.next_frame(BEAT)
    assert feed.deadline() == 2 * BEAT


def test_only_what_a_slave_has_may_it_hear_of_sooner() -> None:
    """More may be read than it was told; of what it lacks it hears with the bytes."""
    pair = Pair(1, 2, all_ack_in_sync_state_set=True)
    feed, link = pair.slave(2)
    pair.report(feed, link, 400)
    assert pair.state.confirm_offset == 400
    assert feed.deadline() == BEAT, "it was told up to where it has the log"
    pair.state.adopt(SyncStateSet((1,), 8))
    assert pair.state.confirm_offset == 1000
    assert feed.deadline() == BEAT, "it has not acknowledged more"
    for report in feed.receive_data(encode_report(1000), 1.0):
        pair.state.reported(link, report, 1.0)
    assert feed.deadline() == pytest.approx(0.1)
    assert feed.next_frame(1.0)
    assert feed.deadline() == 1.0 + BEAT


def test_an_epoch_may_have_one_byte() -> None:
    log, settings = MemoryLog(4096, 0, b"xyz"), ReplicationSettings()
    known = epochs((1, 0), (2, 1), (4, 2))
    state = SyncState(1, log, known, SyncStateSet((1,), 7), settings, 0.0)
    feed = EpochFeed(log, state, settings, 0.0)
    feed.receive_data(encode_slave_handshake(SlaveHandshake(2)) + encode_report(0), 0.0)
    feed.next_frame(0.0)
    sent = [Transfer(at, epoch, 3, log.read(at, 1)) for at, epoch in enumerate(known.entries)]
    assert [feed.next_frame(0.0) for _ in sent] == [encode_transfer(each) for each in sent]
    assert feed.next_frame(0.0) == b""


def test_what_is_deleted_before_it_was_sent_is_sent_to_nobody() -> None:
    pair = Pair()
    feed, _link = pair.slave(2)
    feed.receive_data(encode_report(100), 0.0)
    pair.log.delete_below(200)
    assert feed.is_stranded
    assert feed.next_frame(0.0) == b""


def test_whose_bytes_no_epoch_tells_of_hears_the_newest_one_and_gets_none() -> None:
    pair = Pair()
    pair.state.epochs = epochs((2, 400), (4, 500))
    feed, _ = pair.slave(2)
    feed.receive_data(encode_report(100), 0.0)
    assert feed.is_stranded
    assert feed.next_frame(0.0) == b""
    heartbeat = Transfer(100, Epoch(4, 500), pair.state.confirm_offset)
    assert feed.next_frame(BEAT) == encode_transfer(heartbeat)


def test_who_is_no_slave_of_controller_mode_is_found_out_by_four_bytes() -> None:
    pair = Pair()
    feed = EpochFeed(pair.log, pair.state, pair.settings, 0.0)
    with pytest.raises(ReplicationError, match="not of controller mode"):
        feed.receive_data(bytes(4), 0.0)


@pytest.mark.parametrize("broker_id", [-1, 0])
def test_who_has_no_id_of_a_controller_is_no_slave(broker_id: int) -> None:
    pair = Pair()
    feed = EpochFeed(pair.log, pair.state, pair.settings, 0.0)
    with pytest.raises(ReplicationError, match="its id is"):
        feed.receive_data(encode_slave_handshake(SlaveHandshake(broker_id)), 0.0)


def test_who_has_said_nothing_yet_holds_nothing_and_was_sent_nothing() -> None:
    pair = Pair()
    feed = EpochFeed(pair.log, pair.state, pair.settings, 0.0)
    assert (feed.slave, feed.requested, feed.acked, feed.sent) == (None, None, 0, 0)


def test_who_had_all_at_its_last_report_may_join_until_it_falls_behind() -> None:
    """Under a steady load nobody ever has all that there is now."""
    pair = Pair()
    feed, _ = pair.slave(2)
    said = []
    for size, offset in ((0, 400), (0, 1000), (100, 1050), (100, 1090), (0, 1100), (0, 1199)):
        pair.put(size)
        while feed.next_frame(0.0):
            pass
        (report,) = feed.receive_data(encode_report(offset), 0.0)
        said.append(report.reached)
    assert said == [False, True, True, False, True, False]


def test_the_first_heartbeat_is_due_after_the_handshake_and_not_after_the_connection() -> None:
    pair = Pair()
    feed = EpochFeed(pair.log, pair.state, pair.settings, 0.0)
    feed.receive_data(encode_slave_handshake(SlaveHandshake(2)), 3.0)
    assert feed.deadline() == 23.0, "until it reports nothing is due but its silence"
    feed.next_frame(3.0)
    pair.state.confirm_offset = 0
    feed.receive_data(encode_report(400), 3.5)
    feed.sent = 1000
    assert feed.deadline() == 3.0 + BEAT


def test_of_a_single_byte_a_slave_hears_soon_that_it_may_be_read() -> None:
    log = MemoryLog(4096, 0, b"x")
    pair = Pair()
    state = SyncState(1, log, epochs((4, 0)), SyncStateSet((1,), 7), pair.settings, 0.0)
    feed = EpochFeed(log, state, pair.settings, 0.0)
    feed.receive_data(encode_slave_handshake(SlaveHandshake(2)) + encode_report(1), 0.0)
    feed.next_frame(0.0)
    assert feed.deadline() == pytest.approx(0.1)


# ------------------------------------------------------------ the slave's half


def following(log: MemoryLog, now: float = 0.0) -> EpochReplica:
    """A slave in epoch 1, which has all of its log from this master."""
    replica = follower(log, epochs((1, 0)))
    replica.connected(now)
    replica.receive_data(hello(9000, (1, 0)), now)
    assert replica.is_following
    return replica


def frame(offset: int, body: bytes = b"", confirmed: int = 0, epoch: int = 1) -> bytes:
    return encode_transfer(Transfer(offset, Epoch(epoch, 0), confirmed, body))


def test_what_may_be_read_here_is_what_is_here_and_never_becomes_less() -> None:
    log, _ = record_log([b"one"])
    end = log.max_offset
    replica = following(log)
    replica.receive_data(frame(end, confirmed=end + 1000), 0.0)
    assert replica.confirm_offset == end
    replica.receive_data(frame(end, b"x" * 10, confirmed=end + 5), 0.0)
    assert replica.confirm_offset == end + 5
    replica.receive_data(frame(end + 10, confirmed=3), 0.0)
    assert replica.confirm_offset == end + 5


def test_a_frame_may_end_with_a_file() -> None:
    log = MemoryLog(4096, 0, bytes(4000))
    replica = following(log)
    assert replica.receive_data(frame(4000, bytes(96)), 0.0) == encode_report(4096)
    with pytest.raises(DivergedLog, match="do not fit into a file"):
        following(MemoryLog(4096, 0, bytes(4000))).receive_data(frame(4000, bytes(97)), 0.0)


def test_a_slave_reports_once_for_what_is_new_and_else_when_it_is_due() -> None:
    log, _ = record_log([b"one"])
    end = log.max_offset
    replica = following(log)
    assert replica.deadline() == BEAT
    assert replica.receive_data(frame(end), 1.0) == b""
    assert replica.receive_data(frame(end, b"x"), 3.0) == encode_report(end + 1)
    assert replica.deadline() == 3.0 + BEAT
    assert replica.on_time(7.9) == b""
    assert replica.on_time(8.0) == encode_report(end + 1)


@pytest.mark.parametrize("begins", [None, 0])
@pytest.mark.parametrize("at", [0, 8192])
def test_an_empty_log_begins_where_the_masters_does_though_a_file_is_there(
    begins: int | None, at: int
) -> None:
    """Lost power left it, before a byte of it was on the disk; the master's first ones expired."""
    config = MessageStoreConfig()
    row = FileRow(SimDisk(Random(1), lambda: 0), ["/commitlog"], 4096)
    log = EpochCommitLog(config, row, [])
    if begins is not None:
        log.append_raw(begins, b"")
    replica = following(log)  # type: ignore[arg-type]
    assert replica.receive_data(frame(at), 1.0) == b""
    assert replica.receive_data(frame(at, b"x" * 100), 2.0) == encode_report(at + 100)
    assert (log.min_offset, log.max_offset) == (at, at + 100)
    with pytest.raises(DivergedLog):
        replica.receive_data(frame(at + 4096, b"x"), 3.0)


def test_a_master_is_silent_since_it_was_heard_and_not_since_the_slave_began() -> None:
    log, _ = record_log([b"one"])
    end = log.max_offset
    replica = follower(log, epochs((1, 0)))
    replica.connected(50.0)
    assert replica.deadline() == 70.0, "before the master has said who it is, nothing is reported"
    assert not replica.is_overdue(69.9)
    replica.receive_data(hello(9000, (1, 0)), 60.0)
    assert not replica.is_overdue(79.9)
    replica.receive_data(frame(end), 70.0)
    assert not replica.is_overdue(89.9)
    assert replica.is_overdue(90.0)


def test_what_a_task_took_is_not_the_masters_silence() -> None:
    log, starts = record_log([b"one", b"two"])
    replica = follower(log, epochs((1, 0)))
    replica.receive_data(hello(900, (1, 0), (5, starts[1])), 0.0)
    assert replica.task == Cut(starts[1], epochs((1, 0)))
    assert not replica.is_overdue(99.0)
    del log.data[starts[1] :]
    replica.done(99.0)
    assert not replica.is_overdue(118.9)
    assert replica.is_overdue(119.0)


def test_a_log_that_begins_later_has_nothing_to_give_up_for_a_master_of_other_epochs() -> None:
    """What was before is deleted here, so somebody was told that it is kept."""
    log, _ = record_log([b"one"], start=4096)
    replica = follower(log, epochs((1, 0)))
    with pytest.raises(NothingInCommon, match="no epoch of this slave's log"):
        replica.receive_data(hello(9000, (2, 0)), 0.0)


def test_only_a_log_without_a_byte_needs_no_epochs() -> None:
    follower(MemoryLog(4096, 4096), Epochs()).connected(0.0)
    for log in (MemoryLog(4096, 0, b"x"), MemoryLog(4096, 4096, b"x")):
        with pytest.raises(DivergedLog, match="nobody can tell"):
            follower(log, Epochs()).connected(0.0)


def test_what_is_not_on_the_disk_is_asked_for_by_nobody_and_reported_later() -> None:
    """Also of a log that was empty at first."""

    class Flushed(MemoryLog):
        flushed_offset = 0

    log = Flushed(4096, 0)
    replica = follower(log, epochs((1, 0)), sync_flush=True)
    assert replica.receive_data(hello(9000, (1, 0)), 0.0) == encode_report(0)
    assert replica.receive_data(frame(0, bytes(100)), 0.0) == b""
    log.flushed_offset = 50
    assert replica.flushed(0.0) == encode_report(50)
    assert replica.flushed(0.0) == b""
    replica = follower(log, epochs((1, 0)), sync_flush=True)
    assert replica.receive_data(hello(9000, (1, 0)), 0.0) == b""
    log.flushed_offset = 100
    assert replica.flushed(0.0) == encode_report(100)


def test_a_master_without_a_file_has_nothing_to_say_of_ours() -> None:
    replica = following(MemoryLog(4096, 0))
    assert replica.receive_data(frame(-1), 0.0) == b""
    assert replica.is_following


def test_all_that_comes_counts_as_the_rate() -> None:
    replica = following(MemoryLog(4096, 0))
    data = frame(0, bytes(100))
    replica.receive_data(data, 7.5)
    assert replica.rate.in_this_second(7.5) == len(data)


def test_a_log_that_goes_whole_may_have_anything_in_it() -> None:
    replica = follower(MemoryLog(4096, 0, bytes(100)), epochs((1, 0)))
    replica.receive_data(hello(9000, (2, 0)), 0.0)
    assert replica.task == Cut(0, Epochs())


@pytest.mark.parametrize("is_blank", [False, True])
def test_a_cut_where_a_record_or_a_blank_begins_needs_no_sound_one_before(is_blank: bool) -> None:
    log = MemoryLog(4096, 0, bytes(1000))
    log.put(blank(4096 - 1000) if is_blank else record(1000, b"one"))
    replica = follower(log, epochs((1, 0)))
    replica.receive_data(hello(9000, (1, 0), (2, 1000)), 0.0)
    assert replica.task == Cut(1000, epochs((1, 0)))


# ------------------------------------------------------------ logs from before controller mode


class Classic:
    """A slave of a classic pair, which asks for its last record once more."""

    def __init__(self) -> None:
        self.log, self.starts = record_log([b"one", b"two"])
        self.end = self.log.max_offset
        self.master = copy_of(self.log)
        extend(self.master, [b"three"])
        self.replica = follower(copy_of(self.log), epochs((0, 0)))
        asked = self.replica.receive_data(hello(self.master.max_offset, (0, 0)), 0.0)
        assert asked == encode_report(self.starts[1])
        assert not self.replica.is_following

    def send(self, start: int, end: int) -> bytes:
        return self.replica.receive_data(
            frame(start, self.master.read(start, end - start), epoch=0), 0.0
        )


@pytest.mark.parametrize("size", [1, 50, 10_000])
def test_the_last_record_is_compared_in_whatever_pieces_it_comes(size: int) -> None:
    """What comes behind it in the same piece is appended."""
    pair = Classic()
    assert pair.replica.receive_data(frame(pair.starts[1], epoch=0), 0.0) == b""
    at = pair.starts[1]
    while at < pair.master.max_offset:
        assert pair.replica.is_following is (at >= pair.end)
        stop = min(at + size, pair.master.max_offset)
        said = pair.send(at, stop)
        if stop >= pair.end:
            assert said == encode_report(stop)
        at = stop
    assert bytes(pair.replica._log.read(0, 4096)) == bytes(pair.master.data)


def test_one_other_byte_in_the_last_record_is_another_log() -> None:
    pair = Classic()
    pair.master.data[pair.end - 1] ^= 1
    with pytest.raises(DivergedLog, match="not the logs of one pair"):
        pair.send(pair.starts[1], pair.master.max_offset)


def test_what_was_not_asked_for_is_not_compared() -> None:
    pair = Classic()
    with pytest.raises(DivergedLog, match="was asked for"):
        pair.send(pair.starts[0], pair.end)


def test_a_last_record_that_is_not_whole_can_be_compared_with_nothing() -> None:
    log, _ = record_log([b"one", b"two"])
    del log.data[-1:]
    replica = follower(log, epochs((0, 0)))
    with pytest.raises(NothingInCommon, match="no record of this slave's log ends"):
        replica.receive_data(hello(9000, (0, 0)), 0.0)


def test_a_log_that_begins_later_is_compared_from_there_on() -> None:
    log, starts = record_log([b"one", b"two"], start=4096)
    replica = follower(log, epochs((0, 0)))
    assert replica.receive_data(hello(9000, (0, 0)), 7.0) == encode_report(starts[1])
    assert replica.last_write == 7.0


def test_what_is_not_proven_and_goes_whole_is_compared_with_nothing() -> None:
    log, _ = record_log([b"one", b"two"], start=4096)
    replica = follower(log, epochs((0, 0)))
    replica.receive_data(hello(9000, (0, 0), (1, 4096)), 0.0)
    assert replica.task == Cut(4096, epochs((0, 0)))


def test_nothing_comes_before_a_master_has_said_what_it_has() -> None:
    with pytest.raises(ReplicationError):
        follower(MemoryLog(), Epochs()).receive_data(frame(0, b"x"), 0.0)
