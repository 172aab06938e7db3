"""When data reaches the disk, and who waits for it. Spec: store.md, sections 5.1 and 7."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred

from rmq_ha.base.errors import StoreError
from rmq_ha.base.model.status import FlushDiskType, PutMessageStatus
from rmq_ha.base.store_format.checkpoint import CheckpointTimes, CompletePositions
from rmq_ha.server.store.log.checkpoint import StoreCheckpoint
from rmq_ha.server.store.log.flush import FlushedFiles, QueueFlusher, _sync_all

SYNC = {"flush_disk_type": FlushDiskType.SYNC_FLUSH}
OK = PutMessageStatus.PUT_OK
TIMEOUT = PutMessageStatus.FLUSH_DISK_TIMEOUT


def put(store, message, **kwargs):
    results = []
    store.put_many([message(**kwargs)], results.extend)
    return results


def log_syncs(machine):
    return sum(function.__name__ == "_sync_all" for function, _, _ in machine.worker.queue)


def timers(machine):
    """What the flusher of the log still has in mind."""
    return [
        call for call in machine.clock.getDelayedCalls() if "CommitLogFlusher" in str(call.func)
    ]


def test_one_flush_for_all_who_wait(machine, message):
    """Puts of one turn share a flush; those that come meanwhile share the next."""
    store = machine.open(**SYNC)
    machine.worker.later = True
    first = [put(store, message) for _ in range(3)]
    machine.turn()
    assert log_syncs(machine) == 1
    second = [put(store, message) for _ in range(3)]
    machine.turn()
    assert log_syncs(machine) == 1
    assert first == [[], [], []]
    machine.worker.work()
    assert [result[0].status for result in first] == [OK] * 3
    assert second == [[], [], []]
    assert log_syncs(machine) == 1
    machine.worker.work()
    assert [result[0].status for result in second] == [OK] * 3
    assert log_syncs(machine) == 0
    assert store.log.flushed_offset == store.log.max_offset
    machine.worker.later = False


def test_a_flush_over_several_files(machine, message):
    """All of them are on the disk before anybody hears of it: one write, three files."""
    store = machine.open(**SYNC)
    results = []
    store.put_many([message(b"x" * 40000) for _ in range(3)], results.extend)
    machine.turn()
    assert [result.status for result in results] == [OK] * 3
    assert store.log.flushed_offset == store.log.max_offset > 2 * 65536
    machine.lose_power(store)
    again = machine.open(**SYNC)
    assert again.max_offset_in_queue("TopicA", 0) == 3


def test_the_deadline(machine, message):
    """Each put has its own deadline, all of them one timer."""
    store = machine.open(**SYNC, sync_flush_timeout=500)
    machine.worker.later = True
    first = put(store, message)
    machine.clock.advance(0.3)
    second = put(store, message)
    machine.clock.advance(0.19)
    assert (first, second) == ([], [])
    machine.clock.advance(0.01)
    assert first[0].status is TIMEOUT
    machine.clock.advance(0.29)
    assert second == []
    machine.worker.work()
    machine.worker.work()
    assert second[0].status is OK
    assert store.journal.flusher.waiting == 0
    machine.worker.later = False
    machine.turn()
    assert timers(machine) == []


def test_who_does_not_wait_is_still_flushed_at_once(machine, message):
    """WAIT=false with SYNC_FLUSH: PUT_OK at once, flush in the same turn."""
    store = machine.open(**SYNC)
    assert put(store, message, wait=False)[0].status is OK
    machine.turn()
    assert store.log.flushed_offset == store.log.max_offset


def test_asynchronous_flush(machine, message):
    """Four dirty pages are flushed with the next interval, less after ten seconds."""
    store = machine.open()
    put(store, message, body=b"x" * 20000)
    machine.turn()
    machine.clock.advance(0.25)
    machine.clock.advance(0.125)
    assert store.log.flushed_offset == 0
    machine.clock.advance(0.125)
    assert store.log.flushed_offset == store.log.max_offset > 0
    put(store, message)
    for _ in range(19):
        machine.clock.advance(0.5)
    assert store.log.flushed_offset < store.log.max_offset
    machine.clock.advance(0.5)
    assert store.log.flushed_offset == store.log.max_offset


def test_the_shortest_interval_of_flushes(machine, message):
    """It is a millisecond: with none at all no turn would be left for anything else."""
    store = machine.open(flush_interval_commit_log=0)
    put(store, message, body=b"x" * 20000)
    machine.turn()
    assert store.log.flushed_offset == 0
    machine.clock.advance(0.001)
    assert store.log.flushed_offset == store.log.max_offset > 0


def test_nothing_runs_while_nothing_is_dirty(machine, message):
    """An idle store has only its rounds."""
    store = machine.open()
    put(store, message)
    for _ in range(1600):
        machine.clock.advance(0.1)
    idle = sorted(
        call.getTime() - machine.clock.seconds() for call in machine.clock.getDelayedCalls()
    )
    assert len(idle) == 3
    assert store.log.flushed_offset == store.log.max_offset


def test_the_checkpoint_knows_soon_how_far_the_log_is(machine, message):
    """Queues are flushed once a minute; what is said of the log is never more than a second old."""
    store = machine.open()
    path = f"{machine.root}/checkpoint"
    machine.clock.pump([1] * 5)
    for _ in range(3):
        put(store, message)
        machine.clock.pump([1] * 12)
        told = CheckpointTimes.decode(machine.disk.read_bytes(path))
        assert told.flushed_offset == store.log.max_offset > 0
        assert told.physic_msg_timestamp == store.log.last_store_timestamp
        assert told.logics_msg_timestamp == store.checkpoint.written.logics_msg_timestamp
    assert told.logics_msg_timestamp < store.checkpoint.logics


def test_the_checkpoint_follows_the_flush(machine, message):
    """It never names a message that was not flushed before it."""
    store = machine.open()
    (result,) = put(store, message)
    machine.turn()
    stamp = result.append.store_timestamp
    path = f"{machine.root}/checkpoint"
    machine.clock.advance(1)
    assert CheckpointTimes.decode(machine.disk.read_bytes(path)) == (0, stamp, 0, 0, 0)
    for _ in range(160):
        machine.clock.advance(0.5)
    assert CheckpointTimes.decode(machine.disk.read_bytes(path)) == (
        stamp,
        stamp,
        0,
        store.log.max_offset,
        0,
    )


def test_a_failed_flush_is_the_end_of_writing(machine, message):
    """Nobody knows what is on the disk then: waiters time out, puts are refused, no clean stop."""
    store = machine.open(**SYNC)
    put(store, message)
    machine.turn()

    machine.disk.sync_fails = True
    results = put(store, message)
    machine.turn()
    machine.disk.sync_fails = False
    assert results[0].status is TIMEOUT
    assert "flush failed" in store.why_not_writable()
    assert put(store, message)[0].status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    machine.clock.advance(30)
    assert not store.is_writable
    machine.stop(store)
    assert machine.disk.exists(f"{machine.root}/abort")


def test_stop_waits_for_the_flush(machine, message):
    """Who waits gets an answer before the store closes."""
    store = machine.open(**SYNC)
    machine.worker.later = True
    results = put(store, message)
    machine.turn()
    stopped = []
    store.stop().addCallback(stopped.append)
    for _ in range(10):
        assert stopped == []
        machine.worker.work()
        machine.turn()
        if stopped:
            break
    assert results[0].status is OK
    assert stopped == [None]
    assert not machine.disk.exists(f"{machine.root}/abort")
    assert machine.clock.getDelayedCalls() == []


def test_a_stop_waits_for_the_flush_that_it_begins(machine, message):
    """Whatever else the worker does for it meanwhile: closed before, the log would be in doubt."""
    store = machine.open()
    put(store, message)
    machine.turn()
    machine.worker.later = True
    stopped, held = [], []
    store.stop().addCallback(stopped.append)
    for _ in range(10):
        held += [call for call in machine.worker.queue if call[0] is _sync_all]
        machine.worker.queue = [call for call in machine.worker.queue if call[0] is not _sync_all]
        machine.worker.work()
        machine.turn()
    assert len(held) == 1
    assert stopped == []
    machine.worker.queue += held
    for _ in range(10):
        machine.worker.work()
        machine.turn()
    assert stopped == [None]
    assert not machine.disk.exists(f"{machine.root}/abort")


def test_index_files_count_once_they_are_on_the_disk(machine, message):
    """A full index file raises the third time of the checkpoint."""
    store = machine.open()
    for number in range(160):
        put(store, message, KEYS=f"k{number}")
    machine.turn()
    assert store.checkpoint.index == 0
    machine.clock.advance(1)
    assert store.checkpoint.index == store.checkpoint.logics


@pytest.mark.parametrize("every", [1, 1000])
def test_queue_rounds_are_rare(machine, message, every):
    """However much is put, queues are flushed once a minute after the first second."""
    store = machine.open(flush_interval_consume_queue=every)
    machine.clock.advance(1)
    rounds = []
    sync = store.queues.sync
    store.queue_flusher._sync = lambda: (rounds.append(machine.clock.seconds()), sync())
    for _ in range(1300):
        put(store, message)
        machine.clock.advance(0.1)
    assert 2 <= len(rounds) <= 4


def syncs(machine):
    """From now on: the files that are synced, by name."""
    found = []

    def spy(operation, path):
        if operation == "sync":
            found.append(path.removeprefix(f"{machine.root}/"))

    machine.disk.fault = spy
    return found


def log_file(number):
    return f"commitlog/{number * 65536:020d}"


def test_only_what_was_written_is_synced(machine, message):
    """Neither a file that was flushed to its end, nor the spare one; and never one too few."""
    store = machine.open(**SYNC)
    found = syncs(machine)
    put(store, message, body=b"x" * 40000)
    machine.turn()
    assert [path for path in found if "commitlog" in path] == [log_file(0)]
    found.clear()
    put(store, message, body=b"x" * 40000)
    machine.turn()
    assert [path for path in found if "commitlog" in path] == [log_file(0), log_file(1)]
    found.clear()
    put(store, message)
    machine.turn()
    assert [path for path in found if "commitlog" in path] == [log_file(1)]
    machine.disk.fault = lambda operation, path: None


def test_what_came_during_a_flush_is_flushed_next(machine, message):
    """Also when nobody waits for it."""
    store = machine.open(**SYNC)
    machine.worker.later = True
    waiting = put(store, message)
    machine.turn()
    assert log_syncs(machine) == 1
    put(store, message, wait=False)
    machine.turn()
    assert log_syncs(machine) == 1
    machine.worker.work()
    assert waiting[0].status is OK
    assert store.log.flushed_offset < store.log.max_offset
    assert log_syncs(machine) == 1
    machine.worker.work()
    assert store.log.flushed_offset == store.log.max_offset
    assert log_syncs(machine) == 0
    machine.worker.later = False


def test_what_came_during_an_asynchronous_flush_is_not_forgotten(machine, message):
    """A timer is set for it when that one is over."""
    store = machine.open()
    put(store, message, body=b"x" * 20000)
    machine.turn()
    machine.worker.later = True
    machine.clock.advance(0.5)
    assert log_syncs(machine) == 1
    put(store, message)
    machine.turn()
    assert timers(machine) == []
    machine.worker.work()
    machine.worker.later = False
    assert 0 < store.log.flushed_offset < store.log.max_offset
    assert len(timers(machine)) == 1
    for _ in range(21):
        machine.clock.advance(0.5)
    assert store.log.flushed_offset == store.log.max_offset


def test_what_was_wanted_while_a_flush_ran_does_not_wait_for_the_next_interval(machine, message):
    """ASYNC_FLUSH, and nobody waits: an interval that ends during a flush asks for another."""
    store = machine.open()
    put(store, message, body=b"x" * 20000)
    machine.turn()
    held = Deferred.fromCoroutine(store.journal.flusher.hold())
    assert held.called
    machine.clock.advance(0.5)
    put(store, message, body=b"x" * 20000)
    machine.turn()
    machine.worker.later = True
    store.journal.flusher.release()
    assert log_syncs(machine) == 1
    put(store, message, body=b"x" * 20000)
    machine.clock.advance(0.5)
    assert timers(machine) == []
    while log_syncs(machine) and not store.log.flushed_offset:
        machine.worker.work()
    assert 0 < store.log.flushed_offset < store.log.max_offset
    assert log_syncs(machine) == 1
    machine.worker.work()
    assert store.log.flushed_offset == store.log.max_offset
    assert timers(machine) == []
    machine.worker.later = False


def test_deadlines_pass_one_after_the_other(machine, message):
    """Those of one turn together, the next one at its own time, and all of them once."""
    store = machine.open(**SYNC, sync_flush_timeout=500)
    machine.worker.later = True
    first = [put(store, message) for _ in range(2)]
    machine.clock.advance(0.2)
    second = put(store, message)
    machine.clock.advance(0.2)
    third = put(store, message)
    for due, early in ((first, [second, third]), ([second], [third]), ([third], [])):
        machine.clock.advance(0.11 if due is first else 0.2)
        assert [[result.status for result in results] for results in due] == [[TIMEOUT]] * len(due)
        assert early == [[]] * len(early)
    assert timers(machine) == []
    machine.worker.later = False
    while machine.worker.queue:
        machine.worker.work()


def test_after_a_failed_flush_nobody_waits_and_nothing_is_tried_again(machine, message):
    store = machine.open(**SYNC)
    machine.worker.later = True
    waiting = [put(store, message) for _ in range(2)]
    machine.turn()
    late = put(store, message)
    machine.disk.sync_fails = True
    machine.worker.work()
    machine.disk.sync_fails = False
    assert [results[0].status for results in (*waiting, late)] == [TIMEOUT] * 3
    end = store.log.max_offset
    assert store.journal.flusher.when_flushed(end, print) is TIMEOUT
    assert store.journal.flusher.when_flushed(0, print) is OK
    assert store.journal.flusher.waiting == 0
    store.journal.flusher.appended()
    machine.clock.advance(60)
    assert log_syncs(machine) == 0
    assert store.log.flushed_offset == 0
    machine.worker.later = False


def test_no_flush_while_they_are_held(machine, message):
    """The one that runs is waited for; what came is flushed when they are released."""
    store = machine.open(**SYNC)
    machine.worker.later = True
    put(store, message)
    machine.turn()
    held = Deferred.fromCoroutine(store.journal.flusher.hold())
    assert not held.called
    machine.worker.work()
    assert held.called
    flushed = store.log.flushed_offset
    results = put(store, message)
    machine.turn()
    assert log_syncs(machine) == 0
    assert store.log.flushed_offset == flushed
    store.journal.flusher.release()
    machine.worker.work()
    assert results[0].status is OK
    machine.worker.later = False


def test_a_round_during_which_the_queues_grew_is_followed_by_another(machine, message):
    """Nobody has to put anything for it."""

    def logics():
        data = machine.disk.content(f"{machine.root}/checkpoint")
        return CheckpointTimes.decode(data).logics_msg_timestamp

    store = machine.open(flush_consume_queue_thorough_interval=2000)
    first = put(store, message)[0].append.store_timestamp
    machine.turn()
    machine.worker.later = True
    machine.clock.advance(1)
    second = put(store, message)[0].append.store_timestamp
    machine.turn()
    machine.worker.work()
    machine.worker.later = False
    assert logics() == first < second
    for _ in range(8):
        machine.clock.advance(0.5)
    assert logics() == second
    machine.check()


@pytest.mark.parametrize("operation", ["consumequeue", "checkpoint"])
def test_queues_that_could_not_be_flushed_are_vouched_for_no_more(machine, message, operation):
    """The checkpoint stays as it is, also at the stop, and the stop is not a clean one."""
    store = machine.open()
    put(store, message)
    machine.turn()
    for _ in range(130):
        machine.clock.advance(0.5)
    path = f"{machine.root}/checkpoint"
    before = CheckpointTimes.decode(machine.disk.content(path)).logics_msg_timestamp
    assert before
    machine.disk.fault = lambda called, at: 5 if called == "sync" and operation in at else None
    machine.now_ms += 1000
    put(store, message)
    machine.turn()
    for _ in range(130):
        machine.clock.advance(0.5)
    assert store.queue_flusher.is_broken
    machine.disk.fault = lambda called, at: None
    if operation == "consumequeue":
        machine.stop(store)
        times = CheckpointTimes.decode(machine.disk.content(path))
        assert times.logics_msg_timestamp == before


def test_a_stop_that_cannot_open_the_log_leaves_nobody_waiting(machine, message):
    """It ends; who waited hears that it is not on the disk, and nothing says that it is."""
    store = machine.open(**SYNC)
    results = put(store, message)
    store.log.row.close()
    machine.disk.fault = lambda operation, path: 5 if "commitlog" in path else None
    done = Deferred.fromCoroutine(store.journal.flusher.stop())
    assert done.called
    assert [result.status for result in results] == [TIMEOUT]
    assert store.log.flushed_offset == 0
    assert timers(machine) == []
    machine.disk.fault = lambda operation, path: None


def checkpoint_writes(machine):
    return sum("write" in function.__name__ for function, _, _ in machine.worker.queue)


def test_one_at_a_time_writes_the_checkpoint(machine, message):
    """Of a round and a stamp that meet, and of a stop: none goes while another one runs."""
    store = machine.open(**SYNC, flush_interval_consume_queue=100)
    put(store, message)
    machine.turn()
    machine.worker.later = True
    machine.clock.advance(0.1)
    machine.clock.advance(0.1)
    assert checkpoint_writes(machine) == 1
    store.queue_flusher.log_flushed()
    machine.clock.advance(0.2)
    assert checkpoint_writes(machine) == 1
    stopped = Deferred.fromCoroutine(store.queue_flusher.stop())
    assert checkpoint_writes(machine) == 1
    for _ in range(4):
        machine.worker.work()
    assert stopped.called
    machine.worker.later = False


def test_no_round_and_no_stamp_while_they_are_held(machine, message):
    """What was wanted meanwhile is done when they are released."""
    store = machine.open(**SYNC, flush_interval_consume_queue=100)
    put(store, message)
    machine.turn()
    machine.worker.later = True
    machine.clock.advance(0.1)
    assert checkpoint_writes(machine) == 1
    held = Deferred.fromCoroutine(store.queue_flusher.hold())
    assert not held.called
    machine.worker.work()
    assert held.called
    machine.now_ms += 1000
    put(store, message)
    machine.turn()
    machine.worker.work()
    for _ in range(700):
        machine.clock.advance(0.1)
    assert checkpoint_writes(machine) == 0
    store.queue_flusher.release()
    machine.clock.advance(0.1)
    assert checkpoint_writes(machine) == 1
    for _ in range(4):
        machine.worker.work()
    machine.worker.later = False
    assert store.checkpoint.written.flushed_offset == store.log.max_offset


class Rounds:
    """A `QueueFlusher` alone, on a worker that waits; a second between what it does."""

    def __init__(self, machine, **settings):
        self.clock, self.worker, self.disk = machine.clock, machine.worker, machine.disk
        configuration = machine.configuration(**settings).store
        self.checkpoint = StoreCheckpoint(machine.disk, f"{machine.root}/checkpoint")
        self.checkpoint.load()
        self.syncs, self.fault = 0, None
        self.flusher = QueueFlusher(
            self.clock,
            self.worker,
            configuration,
            self.checkpoint,
            FlushedFiles(self.sync, list, CompletePositions),
            list,
        )
        self.worker.later = True

    def sync(self):
        if self.fault:
            raise self.fault
        self.syncs += 1

    def flush_log(self, end):
        """More of the log is on the disk."""
        self.checkpoint.flushed = end
        self.flusher.log_flushed()

    def later(self, seconds):
        """Time passes, and the worker works all the time."""
        for _ in range(seconds):
            self.clock.advance(1)
            self.worker.work()


@pytest.fixture
def rounds(make_simulated):
    return Rounds(make_simulated())


def test_a_stamp_that_meets_a_round_comes_after_it(rounds):
    """What was flushed during the round is told, though nothing is flushed any more."""
    rounds.flush_log(100)
    rounds.clock.advance(1)
    rounds.checkpoint.flushed = 200
    rounds.worker.work()
    assert (rounds.syncs, rounds.checkpoint.written.flushed_offset) == (1, 100)
    rounds.later(1)
    assert (rounds.syncs, rounds.checkpoint.written.flushed_offset) == (1, 200)


def test_a_round_that_meets_a_stamp_comes_after_it(rounds):
    rounds.flusher.dispatched()
    rounds.later(1)
    rounds.flusher.dispatched()
    rounds.clock.advance(58.5)
    rounds.flush_log(100)
    rounds.clock.advance(1)
    rounds.clock.advance(1)
    assert rounds.syncs == 1
    rounds.worker.work()
    assert (rounds.syncs, rounds.checkpoint.written.flushed_offset) == (1, 100)
    rounds.later(1)
    assert rounds.syncs == 2


def test_a_round_that_was_held_is_made_up_for(rounds):
    """With the release; nothing has to be dispatched for it."""
    rounds.flusher.dispatched()
    held = Deferred.fromCoroutine(rounds.flusher.hold())
    assert held.called
    rounds.later(200)
    assert rounds.syncs == 0
    rounds.flusher.release()
    rounds.later(1)
    assert rounds.syncs == 1


def test_the_shortest_interval_of_rounds_and_stamps(make_simulated):
    """A millisecond, as for the log."""
    rounds = Rounds(make_simulated(), flush_interval_consume_queue=0)
    rounds.flush_log(100)
    rounds.clock.advance(0.0009)
    assert rounds.worker.queue == []
    rounds.clock.advance(0.0002)
    rounds.worker.work()
    assert (rounds.syncs, rounds.checkpoint.written.flushed_offset) == (1, 100)
    for end in (200, 300):
        rounds.flush_log(end)
        rounds.clock.advance(0.0011)
        rounds.worker.work()
        assert (rounds.syncs, rounds.checkpoint.written.flushed_offset) == (1, end)


def test_there_is_one_stamp_at_a_time(rounds):
    for end in (200, 300):
        rounds.flush_log(end)
        assert len(rounds.clock.getDelayedCalls()) == 2, "it and the round"
    rounds.later(2)
    assert rounds.checkpoint.written.flushed_offset == 300
    assert len(rounds.clock.getDelayedCalls()) <= 1


@pytest.mark.parametrize("failing", ["a stamp", "a round"])
def test_after_a_failure_neither_a_round_nor_a_stamp_writes_the_checkpoint(rounds, failing):
    """What is on the disk is not known: it stays where it is, whatever was planned before."""
    rounds.flush_log(100)
    rounds.later(3)
    if failing == "a stamp":
        rounds.flush_log(200)
        rounds.disk.fault = lambda operation, path: 5 if operation == "sync" else None
    else:
        rounds.flusher.dispatched()
        rounds.later(57)
        rounds.clock.advance(0.5)
        rounds.flush_log(200)
        rounds.fault = StoreError("cannot flush a queue")
    rounds.later(1)
    rounds.disk.fault, rounds.fault = lambda operation, path: None, None
    assert rounds.flusher.is_broken
    rounds.flush_log(300)
    assert rounds.clock.getDelayedCalls() == []
    assert rounds.checkpoint.written.flushed_offset == 100


def test_a_stop_leaves_no_timer_and_may_be_followed_by_another(rounds):
    """A start that fails stops what it had begun, and the process stops it again."""
    rounds.flush_log(100)
    for _ in range(2):
        stopped = Deferred.fromCoroutine(rounds.flusher.stop())
        while not stopped.called:
            rounds.worker.work()
        assert rounds.clock.getDelayedCalls() == []
    assert stopped.result is None
    assert rounds.checkpoint.written.flushed_offset == 100


def test_a_stop_waits_for_a_stamp_that_is_being_written(machine, message):
    """Two writers of one file: the older one must not be the last."""
    store = machine.open(**SYNC, flush_interval_consume_queue=100)
    put(store, message)
    machine.turn()
    machine.clock.advance(1)
    put(store, message)
    machine.turn()
    machine.worker.later = True
    machine.clock.advance(0.1)
    assert checkpoint_writes(machine) == 1
    stopped = Deferred.fromCoroutine(store.queue_flusher.stop())
    assert checkpoint_writes(machine) == 1
    for _ in range(4):
        machine.worker.work()
    assert stopped.called
    machine.worker.later = False
    assert store.checkpoint.written.flushed_offset == store.log.max_offset


def test_the_index_is_on_the_disk_before_a_stop_says_that_all_is(machine, message):
    """One thing after the other: index, then queues and checkpoint, and only then `abort` goes."""
    store = machine.open(**SYNC)
    put(store, message, KEYS="k")
    machine.turn()
    machine.worker.later = True
    stopped = store.stop()
    (index,) = machine.disk.paths(f"{machine.root}/index")
    for _ in range(20):
        running = {function.__name__ for function, _, _ in machine.worker.queue}
        assert len(machine.worker.queue) <= 1, running
        if "_write" in running:
            assert machine.disk.is_safe(index)
        machine.worker.work()
        machine.turn()
    machine.worker.later = False
    machine.finish(stopped)
    assert not machine.disk.exists(f"{machine.root}/abort")


# In any order

TIMEOUT_S = 0.5
STEPS = st.one_of(
    st.tuples(st.just("put"), st.sampled_from([10, 3000, 20000])),
    st.tuples(st.sampled_from(["turn", "work", "hold log", "hold queues", "release"]), st.just(0)),
    st.tuples(st.just("wait"), st.sampled_from([0.1, 0.3, 0.5, 1, 5, 61])),
)


@settings(max_examples=40)
@given(st.sampled_from(list(FlushDiskType)), st.lists(STEPS, min_size=5, max_size=40))
def test_puts_flushes_rounds_and_holds_in_any_order(make_simulated, message, kind, steps):
    """
    Never two flushes of the log at once, nor two writers of the checkpoint, nor one that begins
    while it is held; everybody who waits is answered in time, and PUT_OK if the disk has it; and
    when nobody holds anything any more, log, queues, index and checkpoint reach the disk by
    themselves, and no timer is left.
    """
    machine = make_simulated()
    store = machine.open(flush_disk_type=kind, max_index_num=20, sync_flush_timeout=500)
    machine.worker.later = True
    flushers = {"hold log": store.journal.flusher, "hold queues": store.queue_flusher}
    held, waiting, answers, number = {}, {}, [], 0

    def answer(put_at, result):
        del waiting[result.append.physical_offset]
        age = machine.clock.seconds() - put_at
        assert result.status is OK or (result.status is TIMEOUT and age >= TIMEOUT_S - 1e-6)
        answers.append(result.status)

    for what, amount in steps:
        if what == "put":
            number += 1
            at, now = store.log.max_offset, machine.clock.seconds()
            if store.log.row.start_of(at) != store.log.row.start_of(at + amount + 300):
                at = store.log.row.start_of(at) + 65536
            waiting[at] = now
            item = message(b"x" * amount, KEYS=f"k{number}")
            store.put_many([item], lambda results, now=now: answer(now, results[0]))
        elif what == "work":
            machine.worker.work()
        elif what == "wait":
            machine.clock.advance(amount)
        elif what == "release":
            for name in held:
                flushers[name].release()
            held.clear()
        elif what in flushers and what not in held:
            held[what] = Deferred.fromCoroutine(flushers[what].hold())
        machine.turn(1)
        assert log_syncs(machine) <= ("hold log" not in held or not held["hold log"].called)
        assert checkpoint_writes(machine) <= (
            "hold queues" not in held or not held["hold queues"].called
        )
        now = machine.clock.seconds() - 1e-6  # sums of tenths
        late = [at for at in waiting.values() if now >= at + TIMEOUT_S]
        assert late == []
    for name in held:
        flushers[name].release()
    for _ in range(130):
        machine.worker.work()
        machine.clock.advance(0.5)
    machine.check()
    assert store.log.flushed_offset == store.log.max_offset
    assert store.checkpoint.written == store.checkpoint.times
    assert store.checkpoint.written.flushed_offset == store.log.max_offset
    assert store.checkpoint.written.index_msg_timestamp == store.queue_flusher.index_end
    idle = [call for call in machine.clock.getDelayedCalls() if "Periodic" not in str(call.func)]
    assert (idle, log_syncs(machine), checkpoint_writes(machine)) == ([], 0, 0)
    assert len(answers) == number
    machine.worker.later = False
    machine.worker.work()
    machine.stop(store)
    assert not machine.disk.exists(f"{machine.root}/abort")
