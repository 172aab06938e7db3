"""The hazards of replication in controller mode, each with what ours does instead.

Spec: controller.md, chapter 14.
"""

from __future__ import annotations

import pytest

from rmq_ha.base.errors import DivergedLog, NothingInCommon, ReplicationError
from rmq_ha.server.controller.messages import SyncStateSet
from rmq_ha.server.replication.epochs.epochs import Epoch, Epochs
from rmq_ha.server.replication.epochs.feed import EpochFeed, Report
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
from rmq_ha.server.replication.epochs.replica import Cut, EpochReplica, Remember
from rmq_ha.server.replication.epochs.settings import ReplicationSettings
from rmq_ha.server.replication.epochs.sync_state import SyncState
from tests.unit.server.replication.memory_log import MemoryLog
from tests.unit.server.replication.record_logs import record_log


def epochs(*entries: tuple[int, int]) -> Epochs:
    return Epochs(Epoch(*entry) for entry in entries)


class Pair:
    """A master of id 1, whose log has 1000 bytes of epoch 4 from 400 on, and what it knows."""

    def __init__(self, *members: int, **settings: object) -> None:
        self.settings = ReplicationSettings(**settings)  # type: ignore[arg-type]
        self.log = MemoryLog(4096, 0, bytes(400))
        known = SyncStateSet(members or (1, 2), 7)
        self.state = SyncState(1, self.log, epochs((1, 0), (4, 400)), known, self.settings, 0.0)
        self.put(600)

    def slave(self, broker_id: int, now: float = 0.0) -> tuple[EpochFeed, object]:
        feed, link = EpochFeed(self.log, self.state, self.settings, now), object()
        feed.receive_data(encode_slave_handshake(SlaveHandshake(broker_id)), now)
        assert feed.next_frame(now)
        self.state.connected(broker_id, link, now)
        return feed, link

    def report(self, feed: EpochFeed, link: object, offset: int, now: float = 0.0) -> None:
        for report in feed.receive_data(encode_report(offset), now):
            self.state.reported(link, report, now)
        while feed.next_frame(now):
            pass

    def caught_up(self, broker_id: int, now: float = 0.0) -> tuple[EpochFeed, object]:
        feed, link = self.slave(broker_id, now)
        self.report(feed, link, 400, now)
        self.report(feed, link, self.log.max_offset, now)
        return feed, link

    def put(self, size: int = 100, now: float = 0.0) -> int:
        end = self.log.put(bytes(size))
        self.state.appended(now)
        return end


# ------------------------------------------------------------ what is believed


@pytest.mark.parametrize("offset", [-1, 401, 1000, 1 << 62])
def test_hazard_6_a_first_report_of_what_nobody_sent_closes(offset: int) -> None:
    """Java takes it as an acknowledgement, and the shared watermark never falls again."""
    pair = Pair()
    feed, _ = pair.slave(2)
    with pytest.raises(ReplicationError, match="nobody can have sent"):
        feed.receive_data(encode_report(offset), 0.0)


def test_before_anything_was_sent_nobody_has_a_byte() -> None:
    """A log that was empty when its master was elected."""
    pair = Pair(1, 2)
    pair.log = MemoryLog(4096, 0)
    pair.state = SyncState(1, pair.log, epochs((4, 0)), SyncStateSet((1, 2), 7), pair.settings, 0.0)
    pair.put(100)
    feed, _ = pair.slave(2)
    with pytest.raises(ReplicationError, match="nobody can have sent it more than 0"):
        feed.receive_data(encode_report(1), 0.0)


def test_who_has_asked_for_nothing_yet_is_not_stranded() -> None:
    """He is once what he wants next is deleted here."""
    pair = Pair()
    pair.log.delete_below(500)
    feed, link = pair.slave(2)
    assert not feed.is_stranded
    pair.report(feed, link, 0)
    assert (feed.is_stranded, feed.sent) == (False, 1000)
    pair.put(500)
    pair.log.delete_below(1200)
    assert feed.is_stranded


def test_a_slave_begins_once_and_stays_who_it_is() -> None:
    """It may say the same again before its first report; each time is answered."""
    pair = Pair()
    feed, link = pair.slave(2)
    again = encode_slave_handshake(SlaveHandshake(2))
    assert feed.receive_data(again + again, 0.0) == []
    answers = [feed.next_frame(0.0) for _ in range(3)]
    assert [bool(answer) for answer in answers] == [True, True, False]
    for other in (SlaveHandshake(3), SlaveHandshake(2, is_learner=True)):
        with pytest.raises(ReplicationError, match="second time"):
            feed.receive_data(encode_slave_handshake(other), 0.0)
    pair.report(feed, link, 400)
    with pytest.raises(ReplicationError, match="second time"):
        feed.receive_data(again, 0.0)


def test_nothing_leaves_while_the_transport_is_full() -> None:
    pair = Pair()
    feed, _ = pair.slave(2)
    feed.receive_data(encode_report(400), 0.0)
    feed.pause()
    assert feed.next_frame(0.0) == b""
    assert feed.next_frame(1000.0) == b""
    feed.resume()
    assert feed.next_frame(0.0)


@pytest.mark.parametrize("offset", [-1, 399, 1001])
def test_hazard_6_a_report_beyond_what_was_sent_or_backwards_closes(offset: int) -> None:
    pair = Pair()
    feed, link = pair.slave(2)
    pair.report(feed, link, 400)
    with pytest.raises(ReplicationError, match="reports"):
        feed.receive_data(encode_report(offset), 0.0)


def test_what_was_sent_in_this_epoch_is_believed_after_a_reconnection() -> None:
    pair = Pair()
    pair.caught_up(2)
    feed, link = pair.slave(2)
    pair.report(feed, link, 1000)
    assert pair.state.acked(2) == 1000
    other, _ = pair.slave(3)
    with pytest.raises(ReplicationError, match="nobody can have sent"):
        other.receive_data(encode_report(1000), 0.0)


def test_a_report_before_the_handshake_closes() -> None:
    pair = Pair()
    feed = EpochFeed(pair.log, pair.state, pair.settings, 0.0)
    with pytest.raises(ReplicationError, match="before it said who it is"):
        feed.receive_data(encode_report(0), 0.0)


def test_another_handshake_on_a_running_connection_closes() -> None:
    pair = Pair()
    feed, _ = pair.caught_up(2)
    with pytest.raises(ReplicationError, match="second time"):
        feed.receive_data(encode_slave_handshake(SlaveHandshake(3)), 0.0)


def test_a_silent_slave_is_closed_after_the_housekeeping_interval() -> None:
    pair = Pair()
    feed, _ = pair.caught_up(2)
    feed.on_time(19.9)
    with pytest.raises(ReplicationError, match="said nothing for 20 s"):
        feed.on_time(20.0)


def test_a_frame_ends_where_its_epoch_ends() -> None:
    """And is named after it: Java names the next one there."""
    pair = Pair()
    feed, link = pair.slave(2)
    for report in feed.receive_data(encode_report(100), 0.0):
        pair.state.reported(link, report, 0.0)
    reader = MasterReader()
    reader.receive_data(feed.next_frame(0.0) + feed.next_frame(0.0))
    first, second = reader.next_frame(), reader.next_frame()
    assert isinstance(first, Transfer)
    assert isinstance(second, Transfer)
    assert (first.offset, len(first.body), first.epoch) == (100, 300, Epoch(1, 0))
    assert (second.offset, len(second.body), second.epoch) == (400, 600, Epoch(4, 400))


def test_hazard_29_an_open_connection_learns_of_a_new_epoch() -> None:
    pair = Pair()
    feed, _ = pair.caught_up(2)
    pair.state.epochs = pair.state.epochs.appended(6, 1000)
    pair.put()
    reader = MasterReader()
    reader.receive_data(feed.next_frame(0.0))
    frame = reader.next_frame()
    assert isinstance(frame, Transfer)
    assert frame.epoch == Epoch(6, 1000)


def test_an_empty_slave_may_want_the_last_file_only() -> None:
    pair = Pair()
    pair.log.put(bytes(5000))
    for from_last, start in ((False, 0), (True, 4096)):
        feed = EpochFeed(pair.log, pair.state, pair.settings, 0.0)
        feed.receive_data(encode_slave_handshake(SlaveHandshake(3, from_last)), 0.0)
        feed.next_frame(0.0)
        feed.receive_data(encode_report(0), 0.0)
        assert feed.sent == start


# ------------------------------------------------------------ the set and what is kept


def test_a_slave_that_has_all_joins_and_one_that_is_gone_leaves() -> None:
    pair = Pair(1, all_ack_in_sync_state_set=True)
    feed, link = pair.slave(2)
    pair.report(feed, link, 400)
    assert pair.state.proposal(0.0) is None
    pair.report(feed, link, 1000)
    assert pair.state.proposal(0.0) == SyncStateSet((1, 2), 7)
    pair.state.adopt(SyncStateSet((1, 2), 8))
    pair.state.closed(2, link)
    assert pair.state.proposal(0.0) == SyncStateSet((1,), 8)


def test_who_joins_has_what_was_acknowledged_without_it() -> None:
    """Found by a seed of test_simulated_sets: a put between the report and the request was lost."""
    pair = Pair(1, all_ack_in_sync_state_set=True)
    feed, link = pair.slave(2)
    pair.report(feed, link, 400)
    pair.report(feed, link, 1000)
    alone = pair.put()
    assert pair.state.is_kept(alone)
    assert pair.state.proposal(0.0) is None
    both = pair.put()
    assert not pair.state.is_kept(both), "from now on it is waited for"
    assert pair.state.confirm_offset == alone
    assert feed.next_frame(0.0)
    pair.report(feed, link, alone)
    assert pair.state.proposal(0.0) == SyncStateSet((1, 2), 7)


def test_who_gets_stuck_while_it_joins_is_not_waited_for() -> None:
    pair = Pair(1, all_ack_in_sync_state_set=True)
    pair.caught_up(2)
    end = pair.put(now=1.0)
    assert pair.state.proposal(1.0) is None
    later = pair.put(now=2.0)
    assert pair.state.proposal(15.9) is None
    assert not pair.state.is_kept(later)
    pair.state.closed(2, pair.state._slaves[2].link)
    assert pair.state.proposal(16.0) is None
    assert pair.state.is_kept(later)
    assert end < later


def test_a_learner_never_joins() -> None:
    pair = Pair(1)
    link = object()
    pair.state.connected(2, link, 0.0)
    pair.state.reported(link, Report(2, 1000, True, True), 0.0)
    assert pair.state.proposal(0.0) is None


def test_hazard_4_a_slave_that_gets_all_and_acknowledges_nothing_leaves() -> None:
    pair = Pair(1, 2, all_ack_in_sync_state_set=True)
    feed, _ = pair.caught_up(2)
    pair.put(now=1.0)
    while feed.next_frame(1.0):
        pass
    assert pair.state.proposal(15.9) is None
    assert pair.state.proposal(16.0) == SyncStateSet((1,), 7)


def test_a_member_that_never_comes_leaves() -> None:
    pair = Pair(1, 2)
    assert pair.state.proposal(14.9) is None
    assert pair.state.deadline(14.9) == 15.0
    assert pair.state.deadline(15.0) is None
    assert pair.state.proposal(15.0) == SyncStateSet((1,), 7)


def test_the_first_of_several_that_may_have_to_leave_is_looked_at_in_time() -> None:
    """A later one does not hide it: puts wait for it until it has left."""
    pair = Pair(1, 2, 3, 4)
    for broker_id, now in ((2, 3.0), (3, 1.0), (4, 2.0)):
        pair.slave(broker_id, now)
    assert pair.state.deadline(3.0) == 16.0
    assert pair.state.deadline(16.0) == 17.0


def test_hazard_5_a_refused_change_is_dropped() -> None:
    """Java goes on to count who was refused, for as long as nothing else changes the set."""
    pair = Pair(1, 2, all_ack_in_sync_state_set=True)
    pair.caught_up(2)
    for stranger in (98, 99):
        pair.caught_up(stranger)
    assert pair.state.proposal(0.0) == SyncStateSet((1, 2, 98, 99), 7)
    end = pair.put()
    assert not pair.state.is_kept(end)
    assert pair.state.union == {1, 2, 98, 99}
    pair.state.refused(0.0)
    assert pair.state.union == {1, 2}
    for slave in (2, 98, 99):
        pair.caught_up(slave, 14.9)
    assert pair.state.proposal(14.9) is None
    assert pair.state.proposal(15.0) == SyncStateSet((1, 2, 98, 99), 7)


def test_hazard_5_a_set_that_was_only_asked_for_is_not_large_enough() -> None:
    pair = Pair(1, 2, min_in_sync_replicas=3)
    pair.caught_up(2)
    pair.caught_up(99)
    assert pair.state.proposal(0.0)
    assert not pair.state.has_enough


def test_hazard_7_two_connections_of_one_broker_count_once() -> None:
    pair = Pair(1, 2, 3, all_ack_in_sync_state_set=True)
    _, old = pair.caught_up(2)
    feed, new = pair.slave(2)
    pair.report(feed, new, 1000)
    assert not pair.state.is_kept(1000), "3 has said nothing"
    pair.state.closed(2, old)
    assert pair.state.acked(2) == 1000
    assert pair.state.proposal(0.0) is None, "the end of the stale one is not the end of 2"


def test_hazard_7_what_comes_on_the_stale_connection_is_no_acknowledgement() -> None:
    """Neither while there is another one, nor when there is none any more."""
    pair = Pair(1, 2, all_ack_in_sync_state_set=True)
    _, old = pair.slave(2)
    _, new = pair.slave(2)
    late = Report(2, 1000, True, False)
    pair.state.reported(old, late, 0.0)
    assert pair.state.acked(2) is None
    assert not pair.state.is_kept(1000)
    pair.state.closed(2, new)
    pair.state.reported(new, late, 0.0)
    assert pair.state.acked(2) is None


def test_who_says_the_same_again_gets_no_further() -> None:
    """It leaves the set as if it said nothing; who got further stays as long again."""
    pair = Pair(1, 2, all_ack_in_sync_state_set=True)
    feed, link = pair.slave(2)
    pair.report(feed, link, 400)
    pair.report(feed, link, 400, 10.0)
    assert pair.state.deadline(10.0) == 15.0
    pair.report(feed, link, 401, 14.0)
    pair.report(feed, link, 401, 28.0)
    assert pair.state.proposal(28.9) is None
    assert pair.state.proposal(29.0) == SyncStateSet((1,), 7)


def test_who_had_all_is_behind_from_the_next_put_on() -> None:
    """However long ago it had all: nothing was to be said meanwhile."""
    pair = Pair(1, 2, 3)
    pair.caught_up(2)
    pair.caught_up(3)
    pair.slave(50)  # who has said nothing yet
    assert pair.state.proposal(1000.0) is None
    pair.put(now=1000.0)
    assert pair.state.proposal(1014.9) is None
    assert pair.state.proposal(1015.0) == SyncStateSet((1,), 7)


def test_who_is_behind_stays_so_however_much_is_put() -> None:
    """Both who had all once, and who never had."""
    pair = Pair(1, 2, 3)
    pair.caught_up(2)
    feed, link = pair.slave(3)
    pair.report(feed, link, 400)
    for second in range(1, 16):
        pair.put(10, now=float(second))
    assert pair.state.proposal(15.0) == SyncStateSet((1, 2), 7)
    pair.state.adopt(SyncStateSet((1, 2), 8))
    assert pair.state.proposal(15.9) is None
    assert pair.state.proposal(16.0) == SyncStateSet((1,), 8)


def test_who_has_all_of_an_epoch_in_which_nothing_was_written_may_join() -> None:
    log, settings = MemoryLog(4096, 0, bytes(400)), ReplicationSettings()
    for held, proposed in ((399, None), (400, SyncStateSet((1, 2), 7))):
        known = SyncStateSet((1,), 7)
        state = SyncState(1, log, epochs((1, 0), (4, 400)), known, settings, 0.0)
        link = object()
        state.connected(2, link, 0.0)
        state.reported(link, Report(2, held, True, False), 0.0)
        assert state.proposal(0.0) == proposed


def test_hazard_7_the_stale_connection_is_named_to_be_closed() -> None:
    pair = Pair()
    _, old = pair.slave(2)
    assert pair.state.connected(2, object(), 0.0) is old


def test_hazard_8_a_member_that_has_not_reported_holds_the_confirm_offset() -> None:
    pair = Pair(1, 2, all_ack_in_sync_state_set=True)
    assert pair.state.confirm_offset == 0
    feed, link = pair.slave(2)
    assert pair.state.confirm_offset == 0
    pair.report(feed, link, 400)
    assert pair.state.confirm_offset == 400


def test_hazard_9_what_is_read_is_what_the_set_holds() -> None:
    pair = Pair(1, 2, 3, in_sync_replicas=2)
    link = object()
    pair.state.connected(50, link, 0.0)  # a learner, or a stranger
    pair.state.reported(link, Report(50, 1000, True, True), 0.0)
    assert pair.state.confirm_offset == 0
    assert not pair.state.is_kept(1000)
    pair.caught_up(3)
    assert pair.state.confirm_offset == 1000
    assert pair.state.is_kept(1000)


def test_what_the_set_holds_is_read_as_soon_as_its_master_leads() -> None:
    """Alone, it holds all of it; nothing else has to happen."""
    log, settings = MemoryLog(4096, 0, bytes(400)), ReplicationSettings()
    state = SyncState(1, log, epochs((1, 0)), SyncStateSet((1,), 7), settings, 0.0)
    assert state.confirm_offset == 400


def test_asynchronous_pairs_read_at_once() -> None:
    pair = Pair(1, 2)
    end = pair.put()
    assert pair.state.confirm_offset == end
    assert pair.state.is_kept(end)


def test_hazard_10_the_size_of_the_set_is_looked_at_again_when_a_put_ends() -> None:
    pair = Pair(1, 2, all_ack_in_sync_state_set=True, min_in_sync_replicas=2)
    _, link = pair.caught_up(2)
    end = pair.put()
    assert pair.state.has_enough
    pair.state.closed(2, link)
    assert pair.state.proposal(0.0) == SyncStateSet((1,), 7)
    assert not pair.state.is_kept(end)
    pair.state.adopt(SyncStateSet((1,), 8))
    assert not pair.state.is_kept(end), "Java answers PUT_OK here"


def test_who_may_be_out_already_or_is_not_in_yet_counts_for_no_number() -> None:
    pair = Pair(1, 2, in_sync_replicas=2)
    _, link = pair.caught_up(2)
    assert pair.state.is_kept(1000)
    pair.caught_up(3)
    pair.state.closed(2, link)
    assert pair.state.proposal(0.0) == SyncStateSet((1, 3), 7)
    assert not pair.state.is_kept(1000)
    pair.state.adopt(SyncStateSet((1, 3), 8))
    assert pair.state.is_kept(1000)


def test_hazard_32_the_confirm_offset_never_falls() -> None:
    pair = Pair(1, 2, all_ack_in_sync_state_set=True)
    pair.caught_up(2)
    assert pair.state.confirm_offset == 1000
    pair.state.adopt(SyncStateSet((1, 2, 3), 8))
    feed, link = pair.slave(3)
    pair.report(feed, link, 400)
    assert pair.state.confirm_offset == 1000


# ------------------------------------------------------------ the slave


def follower(log: MemoryLog, known: Epochs, confirm: int = 0, **settings: object) -> EpochReplica:
    return EpochReplica(2, log, known, confirm, ReplicationSettings(**settings), 0.0)  # type: ignore[arg-type]


def hello(end: int, *entries: tuple[int, int]) -> bytes:
    return encode_master_handshake(
        MasterHandshake(end, max(epoch for epoch, _ in entries), epochs(*entries))
    )


def test_hazard_11_nothing_is_reported_before_the_cut_is_on_the_disk() -> None:
    log, starts = record_log([b"one", b"two", b"three"])
    replica = follower(log, epochs((1, 0)), confirm=log.max_offset)
    replica.connected(0.0)
    more = encode_transfer(Transfer(starts[1], Epoch(5, starts[1]), 0, b"x" * 10))
    assert replica.receive_data(hello(900, (1, 0), (5, starts[1])) + more, 0.0) == b""
    assert replica.task == Cut(starts[1], epochs((1, 0)))
    assert replica.deadline() is None
    assert replica.on_time(99.0) == b""
    del log.data[starts[1] :]
    assert replica.done(99.0) == b""
    assert replica.confirm_offset == starts[1]
    assert replica.task == Remember(epochs((1, 0), (5, starts[1]))), "its epoch goes first"
    assert log.max_offset == starts[1]
    assert replica.done(99.0) == encode_report(starts[1] + 10)


def test_a_cut_that_was_not_made_is_found_out() -> None:
    log, starts = record_log([b"one", b"two"])
    replica = follower(log, epochs((1, 0)))
    replica.receive_data(hello(900, (1, 0), (5, starts[1])), 0.0)
    with pytest.raises(ReplicationError, match="should end at"):
        replica.done(0.0)


def test_hazard_13_a_log_without_epochs_is_refused() -> None:
    """Java joins with any bytes."""
    log, _ = record_log([b"one"])
    with pytest.raises(DivergedLog, match="nobody can tell"):
        follower(log, Epochs()).connected(0.0)


def test_hazard_14_no_common_epoch_says_so() -> None:
    log, starts = record_log([b"one", b"two"])
    replica = follower(log, epochs((1, 0)), starts[1])
    with pytest.raises(NothingInCommon, match="no epoch of this slave's log"):
        replica.receive_data(hello(900, (2, 0)), 0.0)


def test_who_led_before_anybody_had_anything_gives_up_what_nobody_was_told_of() -> None:
    """Found by a seed: it stayed away for ever."""
    log, _ = record_log([b"one"])
    replica = follower(log, epochs((1, 0)))
    replica.receive_data(hello(900, (2, 0)), 0.0)
    assert replica.task == Cut(0, Epochs())


def test_half_a_message_that_all_had_is_no_message_that_anybody_was_told_of() -> None:
    """Seed 108144: one of the set had half of the first, was elected, and has it no more."""
    log, starts = record_log([b"one", b"two"])
    replica = follower(log, epochs((1, 0)), starts[1] - 1)
    replica.receive_data(hello(900, (2, 0)), 0.0)
    assert replica.task == Cut(0, Epochs())


def test_who_heard_of_an_epoch_and_has_no_file_of_a_log_yet_forgets_it() -> None:
    """Seed 123155: its master crashed before it sent a byte; it begins nowhere, which is -1."""
    log = MemoryLog(4096)
    assert (log.min_offset, log.max_offset) == (-1, 0)
    replica = follower(log, epochs((1, 0)))
    replica.receive_data(hello(900, (2, 0)), 0.0)
    assert replica.task == Remember(Epochs())


def test_hazard_14_a_cut_within_a_record_says_so() -> None:
    log, _ = record_log([b"one", b"two"])
    replica = follower(log, epochs((1, 0)))
    with pytest.raises(NothingInCommon, match="no record begins there"):
        replica.receive_data(hello(900, (1, 0), (2, 33)), 0.0)


def test_hazard_12_a_torn_record_may_begin_at_the_cut() -> None:
    """Found by a seed of test_simulated_sets: not even its head was whole."""
    log, starts = record_log([b"one", b"two"])
    del log.data[starts[1] + 28 :]
    replica = follower(log, epochs((1, 0)))
    replica.receive_data(hello(900, (1, 0), (2, starts[1])), 0.0)
    assert replica.task == Cut(starts[1], epochs((1, 0)))


def behind(log: MemoryLog, sure_to: int) -> EpochReplica:
    """A slave whose log may be another one than its master's from there on, as lost power does."""
    settings = ReplicationSettings()
    replica = EpochReplica(2, log, epochs((1, 0)), sure_to, settings, 0.0)
    replica.sure_to = sure_to
    return replica


def resent(log: MemoryLog, start: int, end: int) -> bytes:
    return encode_transfer(Transfer(start, Epoch(1, 0), 0, bytes(log.data[start:end])))


@pytest.mark.parametrize("inside", [0, 5])
def test_what_nobody_has_confirmed_is_asked_for_once_more(inside: int) -> None:
    """From the last record on that was confirmed; then it follows."""
    log, starts = record_log([b"one", b"two", b"three"])
    end = log.max_offset
    replica = behind(log, starts[1] + inside)
    assert replica.receive_data(hello(900, (1, 0)), 0.0) == encode_report(starts[1])
    assert replica.receive_data(resent(log, starts[1], starts[2] + 7), 0.0) == b""
    assert replica.receive_data(encode_transfer(Transfer(-1, Epoch(1, 0), 0)), 0.0) == b""
    assert (replica.is_following, replica.task) == (False, None)
    more = Transfer(starts[2] + 7, Epoch(1, 0), 0, bytes(log.data[starts[2] + 7 :]) + b"new")
    assert replica.receive_data(encode_transfer(more), 0.0) == encode_report(end + 3)
    assert bytes(log.data[end:]) == b"new"
    assert replica.is_following


def test_nothing_is_asked_for_that_is_not_on_our_disk() -> None:
    """What a slave asks for, its master takes for what lies on its disk."""
    whole, starts = record_log([b"one", b"two", b"three"])

    class Flushed(MemoryLog):
        flushed_offset = starts[1]

    log = Flushed(4096, 0, bytes(whole.data))
    settings = ReplicationSettings(sync_flush=True)
    replica = EpochReplica(2, log, epochs((1, 0)), starts[2], settings, 0.0)
    replica.sure_to = starts[2]
    assert replica.receive_data(hello(900, (1, 0)), 0.0) == encode_report(starts[1])


def test_what_is_confirmed_is_not_asked_for() -> None:
    log, starts = record_log([b"one", b"two"])
    end = log.max_offset
    for sure_to in (end, end + 100):
        assert behind(log, sure_to).receive_data(hello(900, (1, 0)), 0.0) == encode_report(end)
    replica = behind(log, end)
    replica.receive_data(hello(900, (1, 0), (2, starts[1])), 0.0)
    assert replica.task == Cut(starts[1], epochs((1, 0)))


@pytest.mark.parametrize("sure", [0, 1, 2])
def test_a_record_that_lost_power_changed_is_set_aside_with_those_behind_it(sure: int) -> None:
    """
    Three bytes of its properties were gone, which no CRC covers: seed 221194, on a simulated disk
    that tore two sectors in a row, as a real one may where a page is written while it is filled.
    """
    log, starts = record_log([b"one", b"two", b"three", b"four"])
    whole, _ = record_log([b"one", b"two", b"three", b"four"])
    log.data[starts[3] - 2] ^= 1
    replica = behind(log, starts[sure])
    assert replica.receive_data(hello(900, (1, 0)), 0.0) == encode_report(starts[sure])
    replica.receive_data(resent(whole, starts[sure], starts[2] + 7), 0.0)
    assert replica.task is None
    replica.receive_data(resent(whole, starts[2] + 7, log.max_offset), 0.0)
    assert replica.task == Cut(starts[2], epochs((1, 0)))
    del log.data[starts[2] :]
    with pytest.raises(ReplicationError, match=f"behind {starts[2]}.*set aside"):
        replica.done(0.0)
    again = behind(log, starts[sure])
    again.receive_data(hello(900, (1, 0)), 0.0)
    if sure < 2:
        again.receive_data(resent(whole, starts[sure], starts[2]), 0.0)
    again.receive_data(resent(whole, starts[2], whole.max_offset), 0.0)
    assert log.data == whole.data


def test_nothing_is_asked_for_that_the_master_may_have_deleted() -> None:
    """No more than the last file, whatever is confirmed; from there on its log may begin."""
    log, starts = record_log([b"x" * 1500] * 4)
    assert starts[2] == 4096
    for sure_to in (0, starts[1]):
        said = behind(log, sure_to).receive_data(hello(90_000, (1, 0)), 0.0)
        assert said == encode_report(starts[2])


def test_the_first_record_of_a_log_may_be_the_one_that_is_changed() -> None:
    log, _ = record_log([b"one"])
    whole, _ = record_log([b"one"])
    log.data[60] ^= 1
    replica = behind(log, 0)
    assert replica.receive_data(hello(900, (1, 0)), 0.0) == encode_report(0)
    replica.receive_data(resent(whole, 0, whole.max_offset), 0.0)
    assert replica.task == Cut(0, Epochs())


def test_hazard_15_a_deposed_master_truncates_nobody() -> None:
    log, starts = record_log([b"one", b"two"])
    replica = follower(log, epochs((1, 0), (5, starts[1])))
    with pytest.raises(ReplicationError, match="leads no more"):
        replica.receive_data(hello(starts[1], (1, 0), (4, starts[1] - 1)), 0.0)
    assert replica.task is None


def test_hazard_20_a_slave_reports_at_once() -> None:
    """Java's says nothing for five seconds."""
    log, _ = record_log([b"one"])
    replica = follower(log, epochs((1, 0)))
    assert replica.connected(0.0) == encode_slave_handshake(SlaveHandshake(2))
    assert replica.receive_data(hello(900, (1, 0)), 0.0) == encode_report(log.max_offset)
    assert follower(MemoryLog(), Epochs()).receive_data(hello(0, (1, 0)), 0.0) == encode_report(0)


def test_epochs_of_which_nothing_came_are_forgotten() -> None:
    """A master that has never heard of them sends the same bytes as of an older one."""
    log, _ = record_log([b"one"])
    end = log.max_offset
    replica = follower(log, epochs((1, 0), (3, end)))
    replica.receive_data(hello(end + 500, (1, 0), (4, end + 100)), 0.0)
    assert replica.task == Remember(epochs((1, 0)))
    assert replica.done(0.0) == encode_report(end)


def test_flags_are_told() -> None:
    asked = follower(MemoryLog(), Epochs(), sync_from_last_file=True, async_learner=True)
    (said,) = SlaveReader().receive_data(asked.connected(0.0))
    assert said == SlaveHandshake(2, True, True)


def test_an_empty_slave_begins_where_the_master_says() -> None:
    log = MemoryLog(4096)
    replica = follower(log, Epochs())
    replica.receive_data(hello(9000, (1, 0)), 0.0)
    replica.receive_data(encode_transfer(Transfer(-1, Epoch(1, 0), 0)), 0.0)
    replica.receive_data(encode_transfer(Transfer(8192, Epoch(1, 0), 8195, b"abcd")), 0.0)
    assert replica.done(0.0) == encode_report(8196)
    assert (log.min_offset, log.max_offset, replica.confirm_offset) == (8192, 8196, 8195)


@pytest.mark.parametrize(
    "frame",
    [
        Transfer(5, Epoch(1, 0), 0, b"x"),
        Transfer(0, Epoch(1, 0), 0, bytes(5000)),
        Transfer(0, Epoch(0, 0), 0, b"x"),
    ],
)
def test_what_does_not_continue_our_log_is_refused(frame: Transfer) -> None:
    log = MemoryLog(4096, 0)
    replica = follower(log, epochs((1, 0)))
    replica.receive_data(hello(9000, (1, 0)), 0.0)
    with pytest.raises(ReplicationError):
        replica.receive_data(encode_transfer(frame), 0.0)


def test_a_silent_master_is_left() -> None:
    replica = follower(MemoryLog(), Epochs())
    replica.receive_data(hello(0, (1, 0)), 0.0)
    assert replica.deadline() == 5.0
    assert replica.on_time(5.0) == encode_report(0)
    with pytest.raises(ReplicationError, match="sent nothing for 20 s"):
        replica.on_time(20.0)


def test_a_master_that_restarts_in_its_epoch_shares_with_a_slave_what_it_has_now() -> None:
    """The slave may have bytes that the master has lost, and has written anew since."""
    pair = Pair()
    restarted = SyncState(1, pair.log, pair.state.epochs, pair.state.known, pair.settings, 0.0)
    pair.state = restarted
    pair.put(500)
    feed = EpochFeed(pair.log, restarted, pair.settings, 0.0)
    feed.receive_data(encode_slave_handshake(SlaveHandshake(2)), 0.0)
    (handshake,) = _frames(feed.next_frame(0.0))
    assert isinstance(handshake, MasterHandshake)
    assert handshake.max_offset == 1000
    assert epochs((1, 0), (4, 400)).consistent_point(1300, handshake.epochs, 1000) == 1000
    restarted.sending(2, 1400)
    again = EpochFeed(pair.log, restarted, pair.settings, 0.0)
    again.receive_data(encode_slave_handshake(SlaveHandshake(2)), 0.0)
    (handshake,) = _frames(again.next_frame(0.0))
    assert isinstance(handshake, MasterHandshake)
    assert handshake.max_offset == 1400


def _frames(data: bytes) -> list[MasterHandshake | Transfer]:
    reader = MasterReader()
    reader.receive_data(data)
    return list(iter(reader.next_frame, None))
