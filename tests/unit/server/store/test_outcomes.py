"""What a store counts of how its puts ended, on a time that the test makes."""

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.logger import capturedLogs

from rmq_ha.base.model.message import MessageBatch
from rmq_ha.base.model.status import FlushDiskType, PutMessageStatus

OK = PutMessageStatus.PUT_OK
SLAVE_TIMEOUT = PutMessageStatus.FLUSH_SLAVE_TIMEOUT


class Replica:
    """Answers when the test says so."""

    def __init__(self, clock):
        self.clock = clock
        self.answer = OK
        self.acknowledged = 0
        self.asked = []

    def start(self):
        pass

    def stop(self):
        pass

    def appended(self):
        pass

    def when_replicated(self, next_offset, start_offset, decided):
        self.asked.append((start_offset, next_offset))
        if isinstance(self.answer, PutMessageStatus):
            return self.answer
        self.answer.addCallback(lambda status: decided(status, self.clock.seconds()))
        return None

    def is_replicated(self, start_offset, next_offset):
        self.asked.append((start_offset, next_offset))
        return next_offset <= self.acknowledged


def replicated(store):
    """The store waits for this one from now on."""
    replica = Replica(store.host.clock)
    store.journal.replicated_by(replica)
    return replica


def put(store, *messages):
    store.put_many(list(messages), lambda results: None)


def test_a_put_that_waits_for_nobody_is_answered_at_once(machine, message):
    store = machine.open()
    put(store, message(), message())
    outcomes = store.statistics.outcomes
    assert outcomes.waiting == 0
    assert (store.statistics.put_times, store.statistics.put_size) == (2, store.log.max_offset)
    assert sum(outcomes.seconds.counts) == outcomes.seconds.counts[0] == 2
    assert sum(outcomes.replica_seconds.counts) == 0
    assert outcomes.degraded == outcomes.refused == {}


def test_waiting_for_a_slave_counts_until_it_answers(machine, message):
    store = machine.open()
    replica = replicated(store)
    replica.answer = Deferred()
    put(store, message(), message(), message())
    outcomes = store.statistics.outcomes
    assert outcomes.waiting == 3
    assert sum(outcomes.seconds.counts) == 0
    machine.clock.advance(0.03)
    replica.answer.callback(OK)
    assert outcomes.waiting == 0
    assert dict(outcomes.seconds.cumulative())[0.05] == 3
    assert dict(outcomes.seconds.cumulative())[0.025] == 0
    assert sum(outcomes.replica_seconds.counts) == 1
    assert round(outcomes.replica_seconds.total, 6) == 0.03
    assert outcomes.degraded == {}


def test_waiting_for_the_disk_is_counted_apart(machine, message):
    store = machine.open(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    machine.worker.later = True
    put(store, message())
    machine.clock.advance(0.2)
    machine.worker.later = False
    machine.worker.work()
    machine.turn()
    outcomes = store.statistics.outcomes
    assert outcomes.waiting == 0
    assert round(outcomes.flush_seconds.total, 6) == 0.2
    assert sum(outcomes.replica_seconds.counts) == 0


def test_degraded_acknowledgements_are_counted_by_reason(machine, message):
    store = machine.open()
    replica = replicated(store)
    replica.answer = PutMessageStatus.SLAVE_NOT_AVAILABLE
    put(store, message(), message())
    replica.answer = late = Deferred()
    put(store, message(), message())
    late.callback(SLAVE_TIMEOUT)
    replica.answer = late = Deferred()
    put(store, message(), message(), message())
    replica.acknowledged = store.log.max_offset - 1  # all but the last of the run
    late.callback(SLAVE_TIMEOUT)
    assert store.statistics.outcomes.degraded == {
        PutMessageStatus.SLAVE_NOT_AVAILABLE: 2,
        SLAVE_TIMEOUT: 3,
    }


def test_what_was_not_stored_is_counted_by_reason_and_never_timed(machine, message):
    store = machine.open()
    put(store, message(topic=""), message())
    outcomes = store.statistics.outcomes
    assert outcomes.refused == {PutMessageStatus.MESSAGE_ILLEGAL: 1}
    assert sum(outcomes.seconds.counts) == 1
    machine.stop(store)
    put(store, message(), message())
    assert outcomes.refused[PutMessageStatus.SERVICE_NOT_AVAILABLE] == 2
    assert store.statistics.put_failed == 3
    assert sum(outcomes.seconds.counts) == 1


def test_what_no_quorum_has_is_counted_as_not_stored(machine, message):
    """It is in the log, and a group's next leader may cut it off."""
    store = machine.open()
    replica = replicated(store)
    replica.answer = PutMessageStatus.SERVICE_NOT_AVAILABLE
    put(store, message(), message())
    outcomes = store.statistics.outcomes
    assert outcomes.refused == {PutMessageStatus.SERVICE_NOT_AVAILABLE: 2}
    assert outcomes.degraded == {}


def test_a_put_takes_as_long_as_it_took(machine, message, monkeypatch):
    store = machine.open()
    machine.clock.advance(100.0)
    append = store.log.append_group

    def slow(*arguments):
        machine.clock.advance(0.25)
        return append(*arguments)

    monkeypatch.setattr(store.log, "append_group", slow)
    put(store, message(), message())
    assert round(store.statistics.outcomes.seconds.total, 6) == 0.5


def test_waits_are_counted_from_their_beginning(machine, message):
    """Whatever the clock says."""
    store = machine.open(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    machine.clock.advance(1000.0)
    replica = replicated(store)
    replica.answer = late = Deferred()
    machine.worker.later = True
    put(store, message())
    machine.clock.advance(0.2)
    machine.worker.later = False
    machine.worker.work()
    machine.clock.advance(0.3)
    late.callback(OK)
    outcomes = store.statistics.outcomes
    assert round(outcomes.seconds.total, 6) == 0.5
    assert round(outcomes.replica_seconds.total, 6) == 0.5
    assert round(outcomes.flush_seconds.total, 6) == 0.2


def test_of_a_run_that_came_too_late_each_message_has_its_own_answer(machine, message):
    """Also when it is known at once; a single one has that of all."""
    store = machine.open()
    replica = replicated(store)
    replica.answer = SLAVE_TIMEOUT
    for acknowledged, count, status in (
        (1 << 40, 2, OK),
        (0, 2, SLAVE_TIMEOUT),
        (0, 1, SLAVE_TIMEOUT),
    ):
        replica.acknowledged = acknowledged
        found = []
        store.put_many([message()] * count, found.extend)
        assert [result.status for result in found] == [status] * count


def test_a_replica_is_asked_for_all_of_what_was_put(machine, message):
    """A slave that began in the middle of it, with an empty store, lacks what lies before."""
    store = machine.open()
    replica = replicated(store)
    host = message().born_host
    batch = MessageBatch("TopicA", 0, host, host, [(0, b"x", ""), (0, b"yy", "")])
    for put_it in (
        lambda: put(store, message()),
        lambda: put(store, message(), message(b"longer"), message()),
        lambda: store.put_batch(batch),
    ):
        start = store.log.max_offset
        put_it()
        assert replica.asked[-1] == (start, store.log.max_offset)


def test_a_replica_that_is_asked_by_message_is_asked_for_each_as_it_lies(machine, message):
    store = machine.open()
    replica = replicated(store)
    put(store, message())
    replica.answer = SLAVE_TIMEOUT
    found = []
    store.put_many([message(b"x" * size) for size in (1, 2, 3)], found.extend)
    places = [result.append for result in found]
    assert {place.message_count for place in places} == {1}
    assert replica.asked[2:] == [
        (place.physical_offset, place.physical_offset + place.size) for place in places
    ]


def test_what_is_flushed_to_its_last_byte_is_flushed(machine, message):
    store = machine.open(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    replica = replicated(store)
    replica.answer = late = Deferred()
    found = []
    store.put_many([message(), message()], found.extend)
    machine.turn()
    assert store.log.flushed_offset == store.log.max_offset
    replica.acknowledged = 1 << 40
    late.callback(SLAVE_TIMEOUT)
    machine.turn()
    assert [result.status for result in found] == [OK, OK]


def test_who_fails_at_an_answer_keeps_it_from_nobody_else(machine, message):
    """It is said, and the next one of those who waited with it hears."""
    store = machine.open(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    machine.worker.later = True
    found = []

    def fail(results):
        raise ValueError("no more answers")

    with capturedLogs() as events:
        store.put_many([message()], fail)
        store.put_many([message()], found.extend)
        machine.turn()
        machine.worker.later = False
        machine.worker.work()
    assert [result.status for result in found] == [OK]
    assert store.statistics.outcomes.waiting == 0
    assert "what became of a put" in events[-1]["log_format"]


@pytest.mark.parametrize("disk_first", [True, False])
@pytest.mark.parametrize("status", [OK, SLAVE_TIMEOUT])
def test_what_waits_for_disk_and_replica_is_answered_when_both_are_known(
    machine, message, disk_first, status
):
    store = machine.open(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    replica = replicated(store)
    replica.answer = late = Deferred()
    machine.worker.later = True
    found = []
    store.put_many([message()], found.extend)
    machine.turn()
    steps = [machine.worker.work, lambda: late.callback(status)]
    machine.worker.later = False
    for step in steps if disk_first else reversed(steps):
        assert found == []
        step()
    assert [result.status for result in found] == [status]


def test_a_replica_may_answer_before_it_has_said_that_it_waits(machine, message):
    """As a group of one does."""
    store = machine.open()
    replica = replicated(store)
    for status in (OK, SLAVE_TIMEOUT):
        replica.answer = succeed(status)
        found = []
        store.put_many([message()], found.extend)
        assert [result.status for result in found] == [status]
        assert store.statistics.outcomes.waiting == 0


def test_who_answers_before_it_waits_may_do_so_before_the_disk_does(machine, message):
    store = machine.open(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    replica = replicated(store)
    for status in (OK, SLAVE_TIMEOUT):
        replica.answer = succeed(status)
        machine.worker.later = True
        found = []
        store.put_many([message()], found.extend)
        machine.turn()
        assert found == []
        machine.worker.later = False
        machine.worker.work()
        assert [result.status for result in found] == [status]


@pytest.mark.parametrize(("status", "count"), [(OK, 0), (SLAVE_TIMEOUT, 2)])
def test_each_member_of_a_batch_that_is_stored_less_safely_counts(machine, message, status, count):
    store = machine.open()
    replica = replicated(store)
    host = message().born_host
    degraded = store.statistics.outcomes.degraded
    for answer in (status, Deferred()):
        replica.answer = answer
        members = [(0, b"x", ""), (0, b"yy", "")]
        store.put_batch(MessageBatch("TopicA", 0, host, host, members))
        assert sum(degraded.values()) == count
    replica.answer.callback(status)
    assert degraded == ({status: 2 * count} if count else {})
