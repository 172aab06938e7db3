"""Faults of the disk in a whole store: which pass by themselves, and which only a start ends.

Spec: store.md, sections 2.7 and 7.
"""

from errno import EACCES, EDQUOT, EIO, EMFILE, ENFILE, ENOMEM, ENOSPC

import pytest

from rmq_ha.base.model.status import FlushDiskType, PutMessageStatus
from rmq_ha.base.store_flags import Flag, RunningFlags

OK = PutMessageStatus.PUT_OK
REFUSED = PutMessageStatus.SERVICE_NOT_AVAILABLE
NO_FILE = PutMessageStatus.CREATE_MAPEDFILE_FAILED
NO_FLUSH = PutMessageStatus.FLUSH_DISK_TIMEOUT
SYNC = {"flush_disk_type": FlushDiskType.SYNC_FLUSH}


def put(store, *messages):
    results = []
    store.put_many(list(messages), results.extend)
    return [result.status for result in results]


class Fault:
    """Lets calls of one name on paths with a word in them fail, `times` times or until `end`."""

    def __init__(self, machine, operation, word, number, times=-1):
        self.times, self._disk = times, machine.disk

        def fault(called, path):
            if called != operation or word not in path or not self.times:
                return None
            self.times -= 1
            return number

        machine.disk.fault = fault

    def end(self):
        self._disk.fault = lambda operation, path: None


def bodies(store, count):
    """What a consumer reads from the start of queue 0 on."""
    found = store.get_message("g", "TopicA", 0, 0, count, None)
    return len(found.messages)


@pytest.mark.parametrize("failures", [1, 5])
def test_a_log_that_could_not_be_read_for_dispatch(simulated, message, failures):
    """One failing read refuses nothing, more of them only until one succeeds."""
    machine = simulated
    store = machine.open()
    assert put(store, message()) == [OK]
    machine.turn()
    assert put(store, message()) + put(store, message()) == [OK, OK]  # more than the last write
    store.log.pending.clear()  # as with more than fit: the dispatcher reads the log itself
    fault = Fault(machine, "pread", "/commitlog/", EIO, failures)
    machine.turn()
    for _ in range(failures):
        assert store.is_writable or failures > 2
        machine.clock.advance(1)
    assert not fault.times
    assert store.is_writable, store.why_not_writable()
    assert put(store, message()) == [OK]
    machine.turn()
    assert bodies(store, 9) == 4
    machine.stop(store)
    assert not machine.disk.exists(f"{machine.root}/abort")


@pytest.mark.parametrize(
    ("operation", "folder", "patience", "number"),
    [
        ("pwrite", "/consumequeue/", 30, ENOSPC),
        ("open", "/consumequeue/", 30, EMFILE),
        ("pwrite", "/consumequeue/", 30, EIO),
        ("reserve", "/index/", 3, ENOSPC),
        ("map", "/index/", 3, ENOMEM),
        ("open", "/index/", 3, EMFILE),
    ],
)
def test_queues_or_index_that_cannot_be_written(
    simulated, message, operation, folder, patience, number
):
    """Tried every second; after a while puts are refused; when it works, all is there."""
    machine = simulated
    store = machine.open()
    fault = Fault(machine, operation, folder, number)
    assert put(store, message(b"one", KEYS="k")) == [OK]
    machine.turn()
    for _ in range(patience - 2):
        machine.clock.advance(1)
    assert put(store, message(KEYS="k")) == [OK]
    machine.clock.advance(1)
    assert put(store, message()) == [REFUSED]
    assert "consume queue" in store.why_not_writable() or "index" in store.why_not_writable()
    fault.end()
    machine.clock.advance(1)
    assert put(store, message(KEYS="k")) == [OK]
    machine.turn()
    assert bodies(store, 9) == 3
    assert len(store.query("TopicA", "k", 9, 0, 1 << 60).records) == 3


def test_one_that_recovers_does_not_speak_for_another(simulated, message):
    """Queues that can be written again lower their own flag only."""
    machine = simulated
    store = machine.open()
    fault = Fault(machine, "pwrite", "/consumequeue/", EIO)
    put(store, message(KEYS="k"))
    machine.turn()
    machine.clock.pump([1] * 30)
    Fault(machine, "reserve", "/index/", EIO)
    machine.clock.pump([1] * 3)
    assert store.flags.is_up(Flag.INDEX_FILE)
    assert not store.flags.is_up(Flag.CONSUME_QUEUE)
    store.flags.hoist(Flag.DISK_FULL, "91%")
    fault.end()
    machine.clock.advance(1)
    assert store.flags.reasons == ["disk full: 91%"]


@pytest.mark.parametrize("number", [ENOSPC, EDQUOT, EMFILE, ENFILE, ENOMEM])
def test_a_log_that_cannot_be_written_for_a_while(simulated, message, number):
    """Nothing half-written is seen; ten seconds after the fault has passed puts are taken."""
    machine = simulated
    store = machine.open()
    put(store, message(b"before"))
    end = store.log.max_offset
    fault = Fault(machine, "pwrite", "/commitlog/", number)
    assert put(store, message(b"lost")) == [REFUSED]
    machine.clock.advance(11)
    assert put(store, message(b"lost")) == [REFUSED]
    fault.end()
    machine.clock.advance(11)
    assert put(store, message(b"after")) == [OK]
    machine.turn()
    assert store.log.max_offset > end
    assert bodies(store, 9) == 2


@pytest.mark.parametrize("number", [ENOSPC, EMFILE])
def test_a_file_that_cannot_be_made_for_a_while(simulated, message, number):
    """The next commit log file."""
    machine = simulated
    store = machine.open()
    put(store, message(b"x" * 60000))
    store.log.drop_spare()
    fault = Fault(machine, "open", "/commitlog/", number)
    assert put(store, message(b"x" * 10000)) == [NO_FILE]
    fault.end()
    machine.clock.advance(11)
    assert put(store, message(b"x" * 10000)) == [OK]
    machine.turn()
    assert bodies(store, 1) == 1
    assert store.max_offset_in_queue("TopicA", 0) == 2


def test_what_a_failed_write_left_is_wiped_first(simulated, message):
    """While that cannot be done no put is taken: whole records nobody knows of might follow it."""
    machine = simulated
    store = machine.open()
    put(store, message(b"before"))
    machine.disk.is_full = True
    big = [message(b"x" * 3000) for _ in range(3)]  # a part of it gets on the disk
    assert put(store, *big) == [REFUSED] * 3
    machine.disk.is_full = False
    store.log.row.file(0).pwrite(b"\xff" * 99, store.log.max_offset)
    fault = Fault(machine, "zero", "/commitlog/", EMFILE)
    machine.clock.advance(11)
    assert put(store, message()) == [REFUSED]
    fault.end()
    machine.clock.advance(11)
    assert put(store, message()) == [OK]
    end = store.log.max_offset
    assert store.log.row.file(0).pread(99, end) == bytes(99)


@pytest.mark.parametrize("number", [EIO, EACCES])
def test_a_broken_disk_is_for_good(simulated, message, number):
    """The reason says what to do."""
    machine = simulated
    store = machine.open()
    fault = Fault(machine, "pwrite", "/commitlog/", number, 1)
    assert put(store, message()) == [REFUSED]
    fault.end()
    machine.clock.pump([11] * 3)
    assert put(store, message()) == [REFUSED]
    assert "start this broker again" in store.why_not_writable()


@pytest.mark.parametrize("number", [EIO, ENOSPC, ENOMEM])
def test_a_failed_sync_is_for_good(simulated, message, number):
    """Also for want of space: the kernel forgets which pages it lost, and what is there is not
    known before the log is read again."""
    machine = simulated
    store = machine.open(**SYNC)
    fault = Fault(machine, "sync", "/commitlog/", number, 1)
    results = []
    store.put_many([message(b"unsure")], results.extend)
    machine.turn()
    assert [result.status for result in results] == [NO_FLUSH]
    fault.end()
    machine.clock.pump([11] * 3)
    assert put(store, message()) == [REFUSED]
    assert store.log.flushed_offset == 0
    assert "flush failed" in store.why_not_writable()
    machine.stop(store)
    assert machine.disk.exists(f"{machine.root}/abort")
    again = machine.open(**SYNC)
    results = []
    again.put_many([message()], results.extend)
    machine.turn()
    assert [result.status for result in results] == [OK]


@pytest.mark.parametrize("number", [EMFILE, ENFILE, ENOMEM])
def test_a_log_that_cannot_be_opened_to_flush_it(simulated, message, number):
    """No sync has failed: it is tried again, and who waits is answered when it succeeds."""
    machine = simulated
    store = machine.open(**SYNC)
    results = []
    store.put_many([message()], results.extend)
    store.log.row.close()
    fault = Fault(machine, "open", "/commitlog/", number)
    machine.turn()
    assert store.max_offset_in_queue("TopicA", 0) == 1, "the turn goes on"
    machine.clock.pump([0.5] * 2)
    assert not results
    fault.end()
    machine.clock.pump([0.5] * 2)
    assert [result.status for result in results] == [OK]


def test_a_new_log_file_whose_directory_cannot_be_opened_to_sync_it(simulated, message):
    """Its content is on the disk and its name may not be: no answer yet, and no fault for good."""
    machine = simulated
    store = machine.open(**SYNC)
    fault = Fault(machine, "names", "/commitlog/", EMFILE)
    results = []
    store.put_many([message()], results.extend)
    machine.turn()
    machine.clock.pump([0.5] * 3)
    assert not results
    assert -7 < fault.times < -2, "two attempts a second, not one after the other"
    assert store.is_writable, store.why_not_writable()
    assert store.log.flushed_offset == 0
    fault.end()
    machine.clock.pump([0.5] * 2)
    assert [result.status for result in results] == [OK]
    Fault(machine, "names", "/commitlog/", EMFILE)
    store.put_many([message()], results.extend)
    machine.stop(store)
    assert [result.status for result in results] == [OK, NO_FLUSH]
    assert machine.disk.exists(f"{machine.root}/abort"), "no other time comes: no clean stop"


@pytest.mark.parametrize("number", [EMFILE, ENFILE, ENOMEM])
@pytest.mark.parametrize("folder", ["/consumequeue/", "/index/"])
def test_queues_that_cannot_be_opened_to_flush_them(simulated, message, number, folder):
    """What the checkpoint says of them waits, and goes on."""
    machine = simulated
    store = machine.open(max_index_num=8)
    machine.clock.advance(2)
    put(store, *[message(KEYS=f"k{number}") for number in range(8)])
    machine.turn()
    store.queues.close()
    store.index.close()
    fault = Fault(machine, "open", folder, number)
    before = store.checkpoint._file.pread(16, 8)
    machine.clock.pump([1] * 70)
    assert fault.times < -1
    assert not store.queue_flusher.is_broken
    assert store.checkpoint._file.pread(16, 8) == before
    fault.end()
    machine.clock.pump([1] * 70)
    assert store.checkpoint._file.pread(16, 8) != before
    machine.stop(store)
    assert not machine.disk.exists(f"{machine.root}/abort")


@pytest.mark.parametrize("number", [EMFILE, ENFILE, ENOMEM])
def test_queues_that_cannot_be_opened_at_a_stop(simulated, message, number):
    """No other time comes, so this was no clean stop: the next start compares and builds anew."""
    machine = simulated
    store = machine.open()
    machine.clock.advance(2)
    put(store, message())
    machine.turn()
    store.queues.close()
    fault = Fault(machine, "open", "/consumequeue/", number)
    machine.stop(store)
    assert machine.disk.exists(f"{machine.root}/abort")
    fault.end()
    machine.lose_power(store)
    again = machine.open()
    assert bodies(again, 9) == 1


@pytest.mark.parametrize(("operation", "is_broken"), [("sync", True), ("pwrite", False)])
def test_a_full_disk_and_the_checkpoint(simulated, message, operation, is_broken):
    """A checkpoint that could not be written is written later; one that was not synced never."""
    machine = simulated
    store = machine.open()
    fault = Fault(machine, operation, "/checkpoint", ENOSPC, 1)
    put(store, message())
    machine.clock.pump([1] * 130)
    assert not fault.times
    assert store.queue_flusher.is_broken is is_broken
    assert store.checkpoint._file.pread(24, 0) != bytes(24) or is_broken
    machine.stop(store)
    assert machine.disk.exists(f"{machine.root}/abort") is is_broken


@pytest.mark.parametrize(("operation", "word"), [("pread", "/commitlog/"), ("pwrite", "queue/")])
def test_a_start_that_cannot_catch_up(simulated, message, operation, word):
    """It serves what it has, but gives no number before the queues know all of the log."""
    machine = simulated
    store = machine.open()
    put(store, *[message() for _ in range(3)])
    machine.turn()
    machine.stop(store)
    machine.disk.remove_tree(f"{machine.root}/consumequeue")
    store = machine.load()
    fault = Fault(machine, operation, word, EIO)
    machine.finish(store.start())
    assert put(store, message()) == [REFUSED]
    assert "queues behind the log" in store.why_not_writable()
    machine.clock.pump([1] * 12)
    assert put(store, message()) == [REFUSED]
    fault.end()
    machine.clock.pump([1] * 12)
    results = []
    store.put_many([message()], results.extend)
    assert results[0].append.queue_offset == 3


def test_flags():
    """Each has one way up and one way down."""
    flags = RunningFlags()
    assert flags.hoist(Flag.INDEX_FILE, "one")
    assert not flags.hoist(Flag.INDEX_FILE, "other")
    assert flags.reasons == ["index file error: other"]
    assert not flags.lower(Flag.CONSUME_QUEUE)
    assert not flags.is_writable
    assert not flags.may_be_closed_cleanly
    assert flags.lower(Flag.INDEX_FILE)
    assert flags.is_writable
    flags.hoist(Flag.DISK_FULL, "full")
    assert flags.may_be_closed_cleanly
    assert not flags.is_writable


def test_a_stop_is_clean_though_it_cannot_note_where_the_queues_end(simulated, message):
    """The next start compares queues and log for itself."""
    machine = simulated
    store = machine.open()
    put(store, *[message(b"%d" % number) for number in range(9)])
    machine.turn()
    machine.disk.is_full = True
    machine.stop(store)
    machine.disk.is_full = False
    assert not machine.disk.exists(f"{machine.root}/queueEnds")
    assert not machine.disk.exists(f"{machine.root}/abort")
    assert bodies(machine.open(), 9) == 9
