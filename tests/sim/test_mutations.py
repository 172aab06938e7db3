"""Bugs that are planted on purpose, and the seeds that find them: who watches the watchers."""

import pytest

from rmq_ha.base.errors import ReplicationError
from rmq_ha.base.model.status import BrokerRole, FlushDiskType, PutMessageStatus
from rmq_ha.base.runs.row_list import rows_of
from rmq_ha.server.replication.classic.feed import Feed
from rmq_ha.server.replication.classic.replica import ClassicReplica
from rmq_ha.server.replication.protocol import FeedProtocol
from rmq_ha.server.replication.waiting import GroupTransfer
from rmq_ha.server.store.log.commitlog import CommitLog
from rmq_ha.server.store.log.flush import CommitLogFlusher
from rmq_ha.server.store.log.recovery import LogRecovery
from rmq_ha.server.store.message_store import DefaultMessageStore
from rmq_ha.server.store.queues.table import ConsumeQueueTable
from tests.sim_kit.faults import Fault
from tests.sim_kit.pair import PairOptions
from tests.sim_kit.simulate import run_pair

SMALL_FRAMES = PairOptions(transfer_size=61)
SYNC_FLUSH = PairOptions(flush=FlushDiskType.SYNC_FLUSH)
SLAVE_CRASHES = [Fault(1.0, "kill", "slave", 0.5), Fault(3.0, "power", "slave", 0.5)]
SLOW_MASTER_LOSES_POWER = [
    Fault(at, kind, "master", seconds)
    for start in (0.1, 2.1, 4.1, 6.1)
    for at, kind, seconds in ((start, "slow_disk", 60), (start + 1.7, "power", 0.02))
]
MASTER_LOSES_POWER = [Fault(at, "power", "master", 0.02) for at in (1.5, 3.0, 4.5, 6.0, 7.5)]


def found_within(seeds, kind, **scenario):
    """The number of seeds that it took to find a violation of that kind."""
    for seed in range(seeds):
        result = run_pair(seed, busy=8.0, **scenario)
        if any(finding.kind == kind for finding in result.violations):
            return seed + 1
    pytest.fail(f"{seeds} seeds did not find it")
    return None


def test_nothing_planted():
    """Without a planted bug the scenarios below are clean."""
    for options in (SMALL_FRAMES, SYNC_FLUSH, PairOptions()):
        for seed in range(3):
            result = run_pair(seed, busy=8.0, options=options, faults=[])
            assert result.ok, result.report()


def test_waiting_completes_one_byte_early(monkeypatch):
    """A put that is told PUT_OK with its last byte still missing on the slave."""
    reached = GroupTransfer.reached
    monkeypatch.setattr(
        GroupTransfer, "reached", lambda self, offset, *rest: reached(self, offset + 1, *rest)
    )
    found_within(20, "acknowledged-without-replica", options=SMALL_FRAMES, faults=[])


def test_waiter_is_forgotten(monkeypatch):
    """Now and then one of the puts that a report completes is never told."""
    reached = GroupTransfer.reached

    def forgetful(self, offset, *rest):
        done = reached(self, offset, *rest)
        return done[1:] if offset % 13 == 0 else done

    monkeypatch.setattr(GroupTransfer, "reached", forgetful)
    found_within(3, "result", options=PairOptions(), faults=[])


def test_report_ahead_of_the_log_is_believed(monkeypatch):
    """A slave that is ahead of a master that lost its tail counts as a replica."""

    def believe(self, greeting):
        self.requested = self.sent = self.acked = self.proven = greeting.place

    monkeypatch.setattr(Feed, "_greeted", believe)
    found_within(20, "watermark", options=PairOptions(), faults=MASTER_LOSES_POWER)


def test_acknowledgement_beyond_what_was_sent_is_believed(monkeypatch):
    """A slave acknowledges more than it holds, and the master takes its word."""
    report, receive = ClassicReplica._report, Feed.receive_data

    def boast(self, offset, now):
        return report(self, offset, now)[:-8] + (offset + 300).to_bytes(8, "big")

    def believe(self, data, now):
        try:
            return receive(self, data, now)
        except ReplicationError:
            self.acked = self.proven = int.from_bytes(data[-8:], "big")
            return True

    monkeypatch.setattr(ClassicReplica, "_report", boast)
    monkeypatch.setattr(Feed, "receive_data", believe)
    monkeypatch.setattr(Feed, "_begin", lambda self, offset: _begin_below(self, offset - 300))
    found_within(3, "watermark", options=PairOptions(), faults=[])
    found_within(3, "acknowledged-without-replica", options=SMALL_FRAMES, faults=[])


def _begin_below(feed, offset):
    feed.requested = offset
    feed.sent = offset


def test_slave_damages_a_byte(monkeypatch):
    """One byte in many changes on its way into the slave's log."""
    append_raw = CommitLog.append_raw

    def damaging(self, offset, data):
        if len(data) > 50 and offset % 31 == 0:
            data = bytes(data[:40]) + bytes([data[40] ^ 1]) + bytes(data[41:])
        append_raw(self, offset, data)

    monkeypatch.setattr(CommitLog, "append_raw", damaging)
    found_within(10, "acknowledged-without-replica", options=PairOptions(), faults=[])
    found_within(10, "diverged", options=PairOptions(), faults=[])


def test_queue_unit_is_dropped(monkeypatch):
    """One record in many does not get into its consume queue."""
    put = ConsumeQueueTable.put_rows
    monkeypatch.setattr(
        ConsumeQueueTable,
        "put_rows",
        lambda self, rows: put(self, rows_of([row for row in rows if row[2] % 97 != 5])),
    )
    found_within(3, "queues", options=PairOptions(), faults=[])


def test_flush_is_skipped_before_the_result(monkeypatch):
    """SYNC_FLUSH that does not wait for the disk."""
    monkeypatch.setattr(
        CommitLogFlusher, "when_flushed", lambda *arguments: PutMessageStatus.PUT_OK
    )
    options = PairOptions(BrokerRole.ASYNC_MASTER, FlushDiskType.SYNC_FLUSH)
    found_within(3, "lost-after-flush", options=options, faults=SLOW_MASTER_LOSES_POWER)


def test_flush_counts_what_came_after_it_began(monkeypatch):
    """A flush vouches for what was written while it ran."""
    flushed = CommitLogFlusher._flushed

    def generous(self, result, target, newest):
        flushed(self, result, self._log.max_offset, newest)

    monkeypatch.setattr(CommitLogFlusher, "_flushed", generous)
    options = PairOptions(BrokerRole.ASYNC_MASTER, FlushDiskType.SYNC_FLUSH)
    found_within(10, "lost-after-flush", options=options, faults=SLOW_MASTER_LOSES_POWER)


def test_recovery_cuts_a_good_record(monkeypatch):
    """After a crash the last whole record is gone."""
    cut = LogRecovery.cut
    monkeypatch.setattr(
        LogRecovery, "cut", lambda self, end, *rest: cut(self, max(0, end - 8), *rest)
    )
    found_within(3, "recovery", options=PairOptions(), faults=SLAVE_CRASHES)


def test_numbering_is_forgotten(monkeypatch):
    """After a restart the queues are numbered from 0 again."""
    monkeypatch.setattr(DefaultMessageStore, "renumber", lambda self: None)
    faults = [Fault(3.0, "restart", "master", 0.1)]
    found_within(3, "numbering", options=PairOptions(), faults=faults)


def test_timer_is_left_behind(monkeypatch):
    """A connection that is closed leaves its timer running."""
    lost = FeedProtocol.connectionLost

    def leaving(self, reason):
        lost(self, reason)
        self._clock.callLater(3600, lambda: None)

    monkeypatch.setattr(FeedProtocol, "connectionLost", leaving)
    found_within(3, "left after stop", options=PairOptions(), faults=[])


def test_slave_never_comes_back(monkeypatch):
    """A slave that does not connect again."""
    from rmq_ha.server.replication.link import MasterLink

    monkeypatch.setattr(MasterLink, "_connect_after", lambda self, seconds: None)
    found_within(3, "not caught up", options=PairOptions(), faults=[Fault(2.0, "drop", "slave", 1)])
