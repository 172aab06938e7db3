"""A running slave gives up the end of its log. Spec: store.md, sections 3.5 and 5.6."""

import json
from random import Random

import pytest

from rmq_ha.base.errors import StoreError
from rmq_ha.base.model.status import BrokerRole, FlushDiskType
from rmq_ha.base.runs.row_list import rows_of
from rmq_ha.base.runs.run import Run
from rmq_ha.base.store_format.commitlog import decode_record, dispatch_request_at
from rmq_ha.server.store.log.flush import _sync_all
from rmq_ha.server.store.log.setaside import folder_for
from rmq_ha.server.store.queues.deleted_queues import DeletedQueues
from rmq_ha.testing.disk import Inode, SimDisk
from tests.unit.server.store.lookup import query

SLAVE = {
    "broker_role": BrokerRole.SLAVE,
    "mapped_file_size_commit_log": 16384,
}
FAR = 1 << 62


class DyingDisk(SimDisk):
    """The machine dies before one of its operations; those that only look count as well."""

    def __init__(self, source, seed=0, last=1 << 30):
        super().__init__(Random(seed), lambda: 0)
        self.left = last
        self._dirs = dict(source._dirs)
        self._files = {
            path: Inode.from_bytes(bytes(inode.cache), 0) for path, inode in source._files.items()
        }

    def check(self):
        self.left -= 1
        if self.left < 0:
            raise OSError(5, "this machine has crashed")
        super().check()


def fill(machine, store, count, message):
    """Messages of two topics, with keys."""
    results = []
    for number in range(count):
        topic, queue_id = ("TopicA", 0) if number % 3 else ("TopicB", 1)
        item = message(b"%04d" % number * 140, topic, queue_id, KEYS=f"k{number}")
        store.put_many([item], results.extend)
        machine.now_ms += 2000  # so that the checkpoint vouches for files
        machine.turn()
    return [result.append for result in results]


def feed(store, master, end):
    """What the master would send, up to there."""
    while store.log.max_offset < end:
        at = store.log.max_offset
        store.log.append_raw(at, master.log.read(at, min(4096, end - at)))


def piece(log, start, end):
    """The bytes between two offsets, over any number of files."""
    data = b""
    while start + len(data) < end:
        data += log.read(start + len(data), end - start - len(data))
    return data


@pytest.fixture
def pair(machine, message):
    """A master's records, and a slave on a simulated disk that has them all and was stopped."""
    machine.disk, root = SimDisk(Random(1), lambda: 0), machine.root
    machine.root = f"{root}-master"
    master = machine.open(mapped_file_size_commit_log=16384)
    appended = fill(machine, master, 60, message)
    machine.root = root
    slave = machine.open(**SLAVE)
    feed(slave, master, appended[54].next_offset)
    machine.turn(20)
    machine.stop(slave)
    return master, appended


def units(store):
    return {
        key: queue.units(queue.min_offset, 1000)
        for key, queue in store.queues.items()
        if queue.max_offset
    }


def expect(store, appended, count, index_is_whole=True):
    """The first `count` messages and no others, in log, queues and index."""
    wanted = {}
    for number, item in enumerate(appended[:count]):
        key = ("TopicA", 0) if number % 3 else ("TopicB", 1)
        wanted.setdefault(key, []).append((item.physical_offset, item.size))
        record = decode_record(store.record_at(item.physical_offset), check_crc=True)
        assert record.body == b"%04d" % number * 140
    found = {key: [unit[:2] for unit in rows] for key, rows in units(store).items()}
    assert found == wanted
    for number in range(len(appended)):
        topic = "TopicA" if number % 3 else "TopicB"
        offsets = query(store.index, topic, f"k{number}", 64, 0, FAR)[0]
        right = {appended[number].physical_offset} if number < count else set()
        assert set(offsets) == right or (not index_is_whole and not offsets)


def set_aside(machine, store, end):
    return machine.finish(store.set_tail_aside(end, "the master has other bytes"))


@pytest.mark.parametrize("kept", [0, 1, 23, 27, 28, 45, 54])
def test_the_tail_is_cut_kept_and_never_served(machine, pair, kept, monkeypatch):
    """Log, queues, index, numbering and checkpoint end there; the bytes are in a folder."""
    monkeypatch.setattr("rmq_ha.server.store.log.setaside._CHUNK", 1000)
    master, appended = pair
    store = machine.open(**SLAVE)
    end, old_end = appended[kept].physical_offset, appended[54].next_offset
    before = store.checkpoint.times
    aside = set_aside(machine, store, end)
    assert aside[1:] == (end, old_end, 55 - kept)
    assert aside.folder.startswith(f"{machine.root}/setaside/diverged-{end}-{old_end}-")
    about = json.loads(machine.disk.read_bytes(f"{aside.folder}/about.json"))
    assert about["why"] == "the master has other bytes"
    assert (about["from"], about["to"], about["messages"]) == aside[1:]
    assert sum(about["topics"].values()) == 55 - kept
    pieces = [name for name in machine.disk.list_dir(aside.folder) if name != "about.json"]
    assert int(pieces[0]) == end
    data = b"".join(machine.disk.read_bytes(f"{aside.folder}/{name}") for name in pieces)
    assert data == piece(master.log, end, old_end)
    assert store.statistics.set_aside_bytes == old_end - end
    assert store.statistics.set_aside_messages == 55 - kept
    assert store.log.max_offset == end
    assert store.log.flushed_offset <= end
    assert all(now <= then for now, then in zip(store.checkpoint.times, before, strict=True))
    expect(store, appended, kept)
    numbers = store.log.encoder.queue_offsets
    assert sum(numbers.values()) == kept
    feed(store, master, appended[-1].next_offset)
    machine.turn(20)
    expect(store, appended, 60)
    machine.clock.advance(5)
    machine.stop(store)
    assert not machine.disk.exists(f"{machine.root}/abort")
    expect(machine.open(**SLAVE), appended, 60)
    master.close()


def test_a_cut_between_two_files_vouches_for_neither(machine, pair):
    """What comes behind it may be older than what was there, but not than the file before."""
    master, appended = pair
    kept = next(n for n, item in enumerate(appended) if item.physical_offset == 16384)
    store = machine.open(**SLAVE)
    first = decode_record(store.record_at(0)).store_timestamp
    assert min(store.checkpoint.times[:2]) > first
    set_aside(machine, store, 16384)
    assert store.checkpoint.times[:2] == (first - 1,) * 2
    assert store.log.max_offset == 16384
    machine.crash(store)
    expect(machine.open(**SLAVE), appended, kept)
    master.close()


def test_a_cut_in_a_file_of_which_nobody_knows_the_beginning(machine, pair):
    """Its first record is damaged and says no time: the checkpoint vouches for none."""
    master, appended = pair
    store = machine.open(**SLAVE)
    store.log.row.file(0).pwrite(b"?" * 300, 100)
    set_aside(machine, store, appended[5].physical_offset)
    assert store.checkpoint.times[:3] == (0, 0, 0)
    master.close()
    store.close()


def test_what_comes_instead_is_indexed_and_numbered(machine, pair, message):
    """Other records take the place: none of the old ones shines through."""
    master, appended = pair
    store = machine.open(**SLAVE)
    set_aside(machine, store, appended[20].physical_offset)
    machine.stop(store)
    promoted = machine.open(mapped_file_size_commit_log=16384)
    results = []
    for number in range(30):
        put = message(b"new", "TopicA", 0, KEYS=f"new{number}")
        promoted.put_many([put], results.extend)
        machine.turn()
    assert [item.append.queue_offset for item in results] == list(range(13, 43))
    for number in range(55):
        topic = "TopicA" if number % 3 else "TopicB"
        found = promoted.query(topic, f"k{number}", 64, 0, FAR).records
        assert len(found) == (number < 20)
    assert len(promoted.query("TopicA", "new7", 64, 0, FAR).records) == 1
    master.close()


@pytest.mark.parametrize("kept", [1, 25])
def test_a_crash_at_any_operation_leaves_it_cut_or_uncut(machine, pair, kept):
    """The store starts, with all of its records or with those before the cut; more can come."""
    master, appended = pair
    source, end = machine.disk, appended[kept].physical_offset
    last, seed = appended[54].next_offset, 0
    outcomes = set()
    while True:
        seed += 1
        machine.disk = disk = DyingDisk(source, seed)
        store = machine.open(**SLAVE)
        feed(store, master, appended[57].next_offset)
        machine.turn(20)
        machine.stores.remove(store)  # one that dies amid a write vouches for nothing
        disk.left = seed
        done = []
        store.set_tail_aside(end, "test").addCallbacks(done.append, lambda failure: None)
        machine.turn(5)
        survived = bool(done)
        disk.left = 1 << 30
        machine.crash(store)
        machine.disk = disk.crash(power=bool(seed % 2))
        leading = machine.open(mapped_file_size_commit_log=16384)  # nothing cut passes for damage
        machine.stores.remove(leading)
        machine.crash(leading)
        again = machine.open(**SLAVE)
        records = next(
            (n for n in range(kept, 59) if again.log.max_offset <= appended[n].physical_offset),
            None,
        )
        assert records is not None
        expect(again, appended, records, index_is_whole=False)
        outcomes.add(records)
        feed(again, master, last)
        machine.turn(20)
        expect(again, appended, max(records, 55), index_is_whole=False)
        machine.stores.remove(again)
        machine.crash(again)
        if survived:
            break
    assert {kept, 58} <= outcomes

    master.close()


def test_later_rounds_vouch_for_nothing_that_was_cut(machine, pair):
    """Neither by the end of an index file that was full before; what comes instead counts anew."""
    master, appended = pair
    machine.root += "-other"
    store = machine.open(**SLAVE, max_index_num=20)
    feed(store, master, appended[54].next_offset)
    machine.turn(20)
    machine.clock.pump([1] * 70)
    assert store.checkpoint.times.index_msg_timestamp
    set_aside(machine, store, appended[5].physical_offset)
    after_cut = store.checkpoint.times.index_msg_timestamp
    feed(store, master, appended[6].physical_offset)
    machine.turn(20)
    machine.clock.pump([1] * 70)
    assert store.checkpoint.times.index_msg_timestamp == after_cut
    master.close()


def test_what_cannot_be_set_aside(machine, pair):
    """A place outside the log, two at once, a full disk: refused, and nothing is changed."""
    master, appended = pair
    store = machine.open(**SLAVE)
    end = appended[54].next_offset
    for place in (end, end + 1, -1):
        with pytest.raises(StoreError, match="not inside the log"):
            set_aside(machine, store, place)
    machine.worker.later = True
    first = store.set_tail_aside(appended[30].physical_offset, "test")
    with pytest.raises(StoreError, match="just being set aside"):
        set_aside(machine, store, appended[30].physical_offset)
    machine.worker.later = False
    machine.disk.is_full = True
    machine.worker.work()
    with pytest.raises(StoreError, match="No space left"):
        machine.finish(first)
    expect(store, appended, 55)
    machine.disk.is_full = False
    set_aside(machine, store, appended[30].physical_offset)
    expect(store, appended, 30)
    master.close()


@pytest.mark.parametrize("at", ["/setaside/", "/checkpoint"])
def test_an_attempt_that_fails_leaves_no_copy(machine, pair, at):
    """A slave tries every 5 s: copies of each attempt would fill the disk, and keep it full."""
    master, appended = pair
    store = machine.open(**SLAVE)
    written = 0

    def fault(operation, path):
        nonlocal written
        if at not in path or operation not in ("pwrite", "sync"):
            return None
        written += 1
        return 28 if at == "/checkpoint" or written > 2 else None

    machine.disk.fault = fault
    for _ in range(3):
        with pytest.raises(StoreError, match="No space left"):
            set_aside(machine, store, appended[5].physical_offset)
        written = 0
    assert machine.disk.list_dir(f"{machine.root}/setaside") == []
    expect(store, appended, 55)
    machine.disk.fault = lambda operation, path: None
    set_aside(machine, store, appended[5].physical_offset)
    expect(store, appended, 5)
    master.close()


def test_an_attempt_has_failed_only_when_its_copy_is_gone(machine, pair):
    """The next one begins with what is left of the disk."""
    master, appended = pair
    store = machine.open(**SLAVE)
    machine.disk.fault = lambda operation, path: 28 if "/checkpoint" in path else None
    machine.worker.later = True
    failed = []
    store.set_tail_aside(appended[5].physical_offset, "test").addErrback(failed.append)
    while not failed:
        assert machine.worker.queue
        machine.worker.work()
    assert machine.disk.list_dir(f"{machine.root}/setaside") == []
    machine.worker.later = False
    machine.disk.fault = lambda operation, path: None
    master.close()


def test_who_is_killed_during_or_after_a_cut_is_recovered_as_after_a_loss_of_power(machine, pair):
    """Queues and index follow the log in order no more: the mark goes before anything else."""
    master, appended = pair
    store = machine.open(**SLAVE)
    assert machine.disk.exists(store.boot.path)
    machine.worker.later = True
    aside = store.set_tail_aside(appended[5].physical_offset, "test")
    assert not machine.disk.exists(store.boot.path)
    machine.worker.later = False
    machine.worker.work()
    machine.finish(aside)
    assert not machine.disk.exists(store.boot.path)
    master.close()


def test_after_a_cut_queues_and_log_are_flushed_as_ever(machine, pair):
    """What was held while it was made goes on."""
    master, appended = pair
    store = machine.open(**SLAVE)
    set_aside(machine, store, appended[30].physical_offset)
    feed(store, master, appended[57].next_offset)
    machine.turn(20)
    machine.clock.pump([1] * 70)
    written = store.checkpoint.written
    assert written.flushed_offset == appended[57].next_offset
    last = decode_record(store.record_at(appended[57].physical_offset)).store_timestamp
    assert written.physic_msg_timestamp == written.logics_msg_timestamp == last
    master.close()


@pytest.mark.parametrize("operation", ["sync", "remove"])
def test_a_log_whose_end_cannot_be_wiped_takes_nothing_more(machine, pair, operation):
    """What lies there would shine through what comes in its place."""
    master, appended = pair
    store = machine.open(**SLAVE)
    machine.disk.fault = lambda done, path: 5 if done == operation and "commitlog" in path else None
    with pytest.raises(StoreError, match="cannot set aside what the log holds"):
        set_aside(machine, store, appended[5].physical_offset)
    assert "cannot be wiped" in store.log.fault
    machine.disk.fault = lambda done, path: None
    with pytest.raises(StoreError):
        store.log.append_raw(store.log.max_offset, b"x")
    machine.stores.clear()  # what is on the disk now is for the next start to find out
    machine.crash(store)
    master.close()


def test_what_a_cut_leaves_is_on_the_disk(machine, pair):
    """Log, queues and index, when it says that it is done; and nobody waits for what is gone."""
    master, appended = pair
    store = machine.open(**SLAVE)
    feed(store, master, appended[57].next_offset)
    machine.turn(20)
    store.journal.tail.unreadable_at = appended[40].physical_offset
    done = []
    store.set_tail_aside(appended[30].physical_offset, "test").addCallback(done.append)
    assert done
    disk = machine.disk
    for folder in ("index", "consumequeue/TopicA", "consumequeue/TopicB", "commitlog"):
        paths = disk.paths(f"{machine.root}/{folder}")
        assert paths
        assert [path for path in paths if not disk.is_safe(path)] == []
    assert store.journal.tail.unreadable_at is None
    master.close()


def test_the_cut_waits_for_a_round_of_the_queues(machine, pair):
    """Worker threads end in any order: a round of before must not write its times last."""
    master, appended = pair
    store = machine.open(**SLAVE)
    feed(store, master, appended[57].next_offset)
    machine.turn(20)
    machine.worker.later = True
    store.queue_flusher._round()
    (round_of_before,), machine.worker.queue = machine.worker.queue, []
    aside = store.set_tail_aside(appended[30].physical_offset, "test")
    for _ in range(20):
        machine.worker.work()
    machine.worker.queue.append(round_of_before)
    for _ in range(20):
        machine.worker.work()
        machine.turn()
    machine.worker.later = False
    machine.finish(aside)
    assert store.checkpoint.written.flushed_offset <= appended[30].physical_offset
    expect(store, appended, 30)
    master.close()


def test_the_cut_waits_for_a_flush_of_the_log(machine, pair):
    """One of before would say later that what comes in place of the cut is on the disk."""
    master, appended = pair
    store = machine.open(flush_disk_type=FlushDiskType.SYNC_FLUSH, **SLAVE)
    machine.worker.later = True
    feed(store, master, appended[57].next_offset)
    machine.turn()
    flushes, machine.worker.queue = machine.worker.queue[:1], machine.worker.queue[1:]
    assert flushes[0][0] is _sync_all
    end = appended[30].physical_offset
    aside = store.set_tail_aside(end, "test")
    for _ in range(20):
        machine.worker.work()
    machine.worker.queue += flushes
    for _ in range(20):
        machine.worker.work()
        machine.turn()
    machine.finish(aside)
    assert max(store.log.flushed_offset, store.checkpoint.flushed) <= end
    machine.worker.later = False
    feed(store, master, appended[40].next_offset)
    machine.turn()
    assert store.log.flushed_offset == appended[40].next_offset
    master.close()


@pytest.mark.parametrize("is_at_its_begin", [False, True])
def test_the_worker_opens_no_file_of_the_log(machine, pair, is_at_its_begin):
    """The row of files belongs to the reactor's thread."""
    master, appended = pair
    store = machine.open(**SLAVE)
    store.log.row.close()
    machine.worker.later = True
    aside = store.set_tail_aside(16384 if is_at_its_begin else appended[10].physical_offset, "test")
    opened = []
    machine.disk.fault = lambda operation, path: (
        opened.append(path) if operation == "open" and "commitlog" in path else None
    )
    for _ in range(20):
        machine.worker.work()
    assert opened == []
    machine.worker.later = False
    machine.finish(aside)
    master.close()


def test_a_stop_waits_for_the_cut(machine, pair):
    """
    A store that is stopped meanwhile is closed cleanly, and cut.

    What it flushed last must not make the checkpoint vouch for what was just cut, and so for
    whatever a master sends in its place.
    """
    master, appended = pair
    store = machine.open(**SLAVE)
    feed(store, master, appended[57].next_offset)
    machine.turn(20)
    machine.worker.later = True
    ends = []
    aside = store.set_tail_aside(appended[30].physical_offset, "test")
    aside.addCallback(lambda found: ends.append("cut"))
    stopped = store.stop().addCallback(lambda _: ends.append("stopped"))
    for _ in range(20):
        machine.worker.work()
        machine.turn()
    machine.worker.later = False
    machine.finish(aside)
    machine.finish(stopped)
    assert ends == ["cut", "stopped"]
    assert not machine.disk.exists(f"{machine.root}/abort")
    assert store.checkpoint.written.flushed_offset <= appended[30].physical_offset
    expect(machine.open(**SLAVE), appended, 30)
    master.close()


def test_what_was_owed_before_is_given_up_with_the_tail(machine, pair):
    """All of it: the master has another log from there on, and nobody would give it anew."""
    _, appended = pair
    folders = [f"{machine.root}/setaside/damaged-{number}" for number in range(3)]
    store = machine.open(**SLAVE)
    for folder in folders:
        content = json.dumps({"owed": True, "to": appended[50].next_offset}).encode()
        machine.disk.replace(f"{folder}/about.json", content)
    set_aside(machine, store, appended[45].physical_offset)
    for folder in folders:
        assert json.loads(machine.disk.read_bytes(f"{folder}/about.json"))["owed"] is False


def test_what_comes_in_place_of_deleted_messages_is_none_of_them(machine, pair):
    """Also after a crash: a topic that its master made again has its messages on the slave."""
    master, appended = pair
    store = machine.open(**SLAVE)
    assert store.remove_topics({"TopicB"}) == 1
    set_aside(machine, store, appended[30].physical_offset)
    feed(store, master, appended[57].next_offset)
    machine.turn(20)
    there = units(store)
    assert len(there["TopicB", 1]) == 10
    machine.crash(store)
    assert units(machine.open(**SLAVE)) == there
    master.close()


def test_a_cut_is_over_when_it_is_on_the_disk_where_deleted_queues_end(machine, pair):
    """What comes next is new, and a start after a crash would count it among the deleted."""
    master, appended = pair
    store = machine.open(**SLAVE)
    assert store.remove_topics({"TopicB"}) == 1
    machine.worker.later = True
    end = appended[30].physical_offset
    done = store.set_tail_aside(end, "test")
    while not done.called:
        machine.worker.work()
    found = DeletedQueues(machine.disk.crash(), machine.worker, machine.root)
    found.load()
    assert found.table == {("TopicB", 1): end}
    machine.worker.later = False
    master.close()


def test_a_log_of_which_all_is_cut_remembers_where_it_began(machine, pair):
    """An empty log begins at 0: the slave would ask its master for what that has no more."""
    master, _ = pair
    store = machine.open(**SLAVE)
    store.log.row.delete(0)
    set_aside(machine, store, 16384)
    machine.crash(store)
    again = machine.open(**SLAVE)
    assert (again.log.min_offset, again.log.max_offset) == (16384, 16384)
    master.close()


def test_delivery_does_not_go_on_behind_what_was_cut(machine, message):
    """Else what the master has there instead would never be delivered."""
    machine.disk, root = SimDisk(Random(1), lambda: 0), machine.root
    machine.root = f"{root}-master"
    master = machine.open(mapped_file_size_commit_log=16384)
    results = []
    master.put_many([message(b"%d" % number, DELAY="1") for number in range(5)], results.extend)
    machine.root = root
    slave = machine.open(**SLAVE)
    feed(slave, master, master.log.max_offset)
    machine.turn(5)
    slave.schedule.offset_table[1] = 5
    set_aside(machine, slave, results[2].append.physical_offset)
    assert slave.schedule.offset_table == {1: 2}


@pytest.mark.parametrize("kept", [23, 28, 45])
def test_what_is_known_of_the_log_ends_with_it(machine, pair, kept):
    """Stamps, records that wait to be dispatched, and where deleted queues end."""
    _, appended = pair
    store = machine.open(**SLAVE)
    end = appended[kept].physical_offset
    last = decode_record(store.record_at(appended[kept - 1].physical_offset))
    store.deleted.add([("Gone", 0)], store.log.max_offset)
    store.log.pending.add(
        Run(end, end + 1, rows_of([dispatch_request_at(store.log.read(end, 4096), 0, 4096, [])]))
    )
    set_aside(machine, store, end)
    assert store.log.last_store_timestamp == last.store_timestamp
    assert store.deleted.table == {("Gone", 0): end}
    assert not store.log.pending


def test_what_is_left_is_dispatched_at_once(machine, pair):
    """It came just before the cut, and nothing may come after it for long."""
    master, appended = pair
    store = machine.open(**SLAVE)
    machine.turn(5)
    feed(store, master, appended[59].next_offset)
    machine.worker.later = True
    done = store.set_tail_aside(appended[57].physical_offset, "the master has other bytes")
    machine.turn(3)  # whoever was told of the new records looks now, in vain
    machine.worker.later = False
    while not done.called:
        machine.worker.work()
        machine.clock.advance(0)
    machine.turn(3)
    expect(store, appended, 57)


def test_nothing_is_dispatched_while_the_log_is_cut(machine, pair):
    """What is not dispatched yet may lie behind the cut; the rest goes on after it."""
    master, appended = pair
    machine.disk.remove_tree(machine.root)
    store = machine.open(**SLAVE)
    feed(store, master, appended[54].next_offset)
    machine.worker.later = True
    done = store.set_tail_aside(appended[30].physical_offset, "the master has other bytes")
    reached = store.dispatcher.position
    machine.clock.pump([0.01] * 9)
    assert store.dispatcher.position == reached < appended[30].physical_offset
    machine.worker.later = False
    machine.worker.work()
    machine.finish(done)
    machine.turn()
    assert store.dispatcher.position == appended[30].physical_offset


def test_each_attempt_within_a_second_has_its_own_folder(simulated):
    disk, folders = simulated.disk, []
    for _ in range(4):
        folders.append(folder_for(disk, "/store", "tail", 0))
        disk.make_dirs(folders[-1])
    assert [folder.removeprefix(folders[0]) for folder in folders] == ["", "-2", "-3", "-4"]


# ------------------------------------------------------------ all of it


def test_a_whole_log_is_moved_and_another_one_begins_elsewhere(machine, pair):
    """A slave was away for longer than its master keeps messages: both of its files go."""
    master, appended = pair
    store = machine.open(**SLAVE)
    end, begins = appended[54].next_offset, 16384
    assert len(store.log.row.starts) == 3
    files = [master.log.read(start, 16384) for start in (0, begins)]
    aside = machine.finish(store.set_all_aside("the master begins later"))
    assert aside[1:] == (0, end, 55)
    assert aside.folder.startswith(f"{machine.root}/setaside/all-0-{end}-")
    about = json.loads(machine.disk.read_bytes(f"{aside.folder}/about.json"))
    assert (about["why"], about["messages"]) == ("the master begins later", 55)
    assert about["topics"] == {"TopicA": 36, "TopicB": 19}
    for start, data in zip((0, begins), files, strict=True):
        kept = machine.disk.read_bytes(f"{aside.folder}/{start:020d}")
        assert kept.startswith(data)
    assert (store.log.min_offset, store.log.max_offset, store.dispatcher.position) == (-1, 0, 0)
    assert not units(store)
    assert not machine.disk.list_dir(f"{machine.root}/commitlog")
    assert store.get_message("G", "TopicA", 0, 3, 32, None).messages == []
    later = [item for item in appended if item.physical_offset >= begins]
    store.log.append_raw(begins, b"")
    feed(store, master, appended[-1].next_offset)
    machine.turn(20)
    assert sum(len(rows) for rows in units(store).values()) == len(later)
    assert store.record_at(later[0].physical_offset) == master.record_at(later[0].physical_offset)
    assert query(store.index, "TopicA", "k59", 64, 0, FAR)[0]
    machine.clock.advance(5)
    machine.stop(store)
    again = machine.open(**SLAVE)
    assert sum(len(rows) for rows in units(again).values()) == len(later)
    assert again.max_offset_in_queue("TopicA", 0) == master.max_offset_in_queue("TopicA", 0)
    master.close()


def test_an_empty_log_has_nothing_to_be_moved(machine):
    store = machine.open(**SLAVE)
    with pytest.raises(StoreError, match="no file"):
        machine.finish(store.set_all_aside("test"))


def test_a_disk_that_moves_no_file_has_lost_nothing(machine, pair):
    master, appended = pair
    store = machine.open(**SLAVE)

    def refuse(path, new_path):
        raise OSError(18, "Invalid cross-device link")

    machine.disk.move = refuse
    with pytest.raises(StoreError, match="cross-device"):
        machine.finish(store.set_all_aside("test"))
    expect(store, appended, 55)
    feed(store, master, appended[-1].next_offset)
    machine.turn(20)
    expect(store, appended, 60)
    master.close()


def test_a_crash_at_any_operation_leaves_a_log_that_begins_anew_or_ends_earlier(machine, pair):
    """The store starts, and what is left of it can be moved again."""
    master, appended = pair
    source, seed, lefts = machine.disk, 0, set()
    while True:
        seed += 3
        machine.disk = disk = DyingDisk(source, seed)
        store = machine.open(**SLAVE)
        machine.stores.remove(store)
        disk.left = seed
        done = []
        store.set_all_aside("test").addCallbacks(done.append, lambda failure: None)
        machine.turn(5)
        disk.left = 1 << 30
        machine.crash(store)
        machine.disk = disk.crash(power=bool(seed % 2))
        again = machine.open(**SLAVE)
        lefts.add(len(again.log.row.starts))
        count = sum(item.next_offset <= again.log.max_offset for item in appended)
        expect(again, appended, count, index_is_whole=False)
        if again.log.row.starts:
            machine.finish(again.set_all_aside("test"))
        again.log.append_raw(16384, b"")
        machine.stores.remove(again)
        machine.crash(again)
        if done:
            break
    assert lefts == {0, 1, 2, 3}
    master.close()
