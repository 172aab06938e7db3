"""A topic that was deleted and made again: whoever reads the log serves its last life only.

Spec: store.md, sections 3.2 and 9.3; the log itself does not tell of deletions.
"""

from contextlib import suppress
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.errors import StoreError
from rmq_ha.base.model.message import DispatchRequest
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.store_format.commitlog import decode_record
from rmq_ha.base.store_format.consumequeue import FILLER_SIZE
from rmq_ha.server.store.queues.deleted_queues import DeletedQueues
from rmq_ha.server.store.queues.table import ConsumeQueueTable
from rmq_ha.testing.disk import SimDisk

FILE = 800
SLAVE = {"broker_role": BrokerRole.SLAVE}


def request(queue_offset, physical_offset):
    return DispatchRequest("T", 0, physical_offset, 100, 7, 1, queue_offset, "", "", 0, 0, "")


def lives_of(starts_and_counts):
    """One record after the other, in lives that begin at a queue offset."""
    requests, physical = [], 0
    for start, count in starts_and_counts:
        for number in range(count):
            requests.append(request(start + number, physical))
            physical += 100
    return requests


def units(table):
    """The queue's lower bound, and the physical offsets from there to its end."""
    queue = table.queue("T", 0)
    found = []
    while len(found) < queue.max_offset - queue.min_offset:
        found += [unit[0] for unit in queue.units(queue.min_offset + len(found), 40)]
    return queue.min_offset, found


def expected(requests):
    """By a dict: a number that is given again takes it and all behind it away."""
    table = {}
    for item in requests:
        table = {key: at for key, at in table.items() if key < item.queue_offset}
        table[item.queue_offset] = item.physical_offset
    return min(table, default=0), [table[key] for key in sorted(table)]


def test_the_new_life_is_served():
    """49 old and 1 new message were, with the numbers of 20 new ones."""
    disk = SimDisk(Random(1), lambda: 1000)
    table = ConsumeQueueTable(disk, "/store", FILE)
    began = []
    table.restarted = lambda *key: began.append(key)
    requests = lives_of([(0, 50), (0, 20)])
    table.put_requests(requests[:40])
    table.put_requests(requests[40:53])
    table.put_requests(requests[53:])
    assert units(table) == (0, [item.physical_offset for item in requests[50:]])
    assert table.max_physical_offset == 7000
    assert began == [("T", 0, 0)]
    assert disk.list_dir("/store/consumequeue/T/0") == [f"{0:020d}"]


def test_numbers_given_again_in_the_middle():
    """As on a master that lost the end of its queue: what came before stays readable."""
    table = ConsumeQueueTable(SimDisk(Random(1), lambda: 1000), "/store", FILE)
    requests = lives_of([(0, 90), (45, 3), (80, 1), (40, 2)])
    table.put_requests(requests)
    assert units(table) == expected(requests)
    assert len(units(table)[1]) == 42


def test_a_lost_record_shifts_nothing():
    """What a damaged stretch of the log leaves out is left out in the queue, too."""
    table = ConsumeQueueTable(SimDisk(Random(1), lambda: 1000), "/store", FILE)
    requests = lives_of([(0, 120)])
    table.put_requests(requests[:10] + requests[11:20] + requests[100:])
    queue = table.queue("T", 0)
    assert queue.max_offset == 120
    for number in (0, 9, 11, 19, 100, 119):
        assert queue.units(number, 1)[0][0] == 100 * number
    for number in (10, 20, 99):
        assert queue.units(number, 1)[0][1] == FILLER_SIZE


@pytest.mark.parametrize("strange", [0, 3, 11, 500, 1 << 40, -1, (1 << 63) - 1])
def test_one_record_with_a_strange_number(strange):
    """One damaged field is no new life and no gap: the unit comes next, and all others as well."""
    table = ConsumeQueueTable(SimDisk(Random(1), lambda: 1000), "/store", FILE)
    requests = lives_of([(0, 30)])
    requests[10] = requests[10]._replace(queue_offset=strange)
    table.put_requests(requests)
    assert units(table) == (0, [100 * number for number in range(30)])


@given(
    lives=st.lists(st.tuples(st.sampled_from([0, 0, 0, 1, 40, 41, 79]), st.integers(1, 130))),
    cuts=st.sets(st.integers(0, 400), max_size=6),
    crashes=st.sets(st.integers(0, 8), max_size=2),
    seed=st.integers(0, 99),
)
def test_any_lives_any_slices_any_crash(lives, cuts, crashes, seed):
    """What is there in the end does not depend on slices, repeats and lost power."""
    disk = SimDisk(Random(seed), lambda: 1000)
    requests = lives_of(_in_order(lives))
    table = ConsumeQueueTable(disk, "/store", FILE)
    bounds = [0, *sorted(cut for cut in cuts if cut < len(requests)), len(requests)]
    for number, (start, end) in enumerate(pairwise(bounds)):
        table.put_requests(requests[start:end])
        if number in crashes:
            disk = disk.crash()
            table = ConsumeQueueTable(disk, "/store", FILE)
            table.load()
            table.recover(False)
            table.truncate(0)  # as nothing vouches for more
            table.put_requests(requests[:end])
    assert units(table) == expected(requests)


def _in_order(lives):
    """A life begins where the queue has been, or at 0: else there would be a hole in it."""
    made, end = [], 0
    for start, count in lives:
        start = start if start <= end else 0
        made.append((start, count))
        end = start + count
    return made


def test_a_new_life_below_all_that_is_left_of_the_old_one():
    """Its first files have expired; the start after a crash put an end to itself."""
    disk = SimDisk(Random(1), lambda: 1000)
    table = ConsumeQueueTable(disk, "/store", FILE)
    table.put_requests(lives_of([(0, 90)]))
    assert table.delete_expired(5000) == 1
    table.close()
    again = ConsumeQueueTable(disk, "/store", FILE)
    again.load()
    again.recover(False)
    again.put_requests([request(5, 20000), request(6, 20100)])
    assert units(again) == (5, [20000, 20100])
    assert disk.list_dir("/store/consumequeue/T/0") == [f"{0:020d}"]


def test_a_disk_that_refuses_in_between():
    """The same requests come again, and all is as it should be."""
    requests = lives_of([(0, 50), (0, 70)])
    for countdown in range(12):
        disk = SimDisk(Random(1), lambda: 1000)
        table = ConsumeQueueTable(disk, "/store", FILE)
        table.put_requests(requests[:30])
        left = [countdown]

        def fault(operation, path, left=left):
            left[0] -= 1
            return 5 if left[0] == 0 else None

        disk.fault = fault
        with suppress(StoreError):
            table.put_requests(requests[30:])
        disk.fault = lambda operation, path: None
        table.put_requests(requests[30:])
        assert units(table) == expected(requests), countdown


# In a whole store


def put(store, *messages):
    results = []
    store.put_many(list(messages), results.extend)
    assert all(result.append for result in results), results
    return results


def read(store):
    """Bodies that a consumer finds from offset 0 on."""
    found = store.get_message("g", "T", 0, 0, 99, None)
    return [decode_record(record).body for record in found.messages]


def old_and_new(machine, message, new=3):
    """A master whose topic T was deleted after five messages and made again."""
    store = machine.open()
    put(store, message(topic="Other"))
    put(store, *[message(b"old", topic="T") for _ in range(5)])
    machine.turn()
    assert store.clean_unused_topics({"Other"}) == 1
    for number in range(new):
        (result,) = put(store, message(b"new %d" % number, topic="T"))
        assert result.append.queue_offset == number
    return store


@pytest.mark.parametrize("new", [0, 3])
@pytest.mark.parametrize("ending", ["stop", "kill", "power", "power before dispatch"])
def test_a_master_does_not_bring_the_old_life_back(simulated, message, new, ending):
    """However it ends, and whether something came after the deletion or not."""
    machine = simulated
    store = old_and_new(machine, message, new)
    if ending != "power before dispatch":
        machine.turn()
    store.log.row.file(0).sync()  # what a consumer was told of is there
    if ending == "stop":
        machine.stop(store)
    else:
        machine.crash(store)
        machine.disk = machine.disk.crash(power=ending != "kill")
    store = machine.open()
    wanted = [b"new %d" % number for number in range(new)]
    assert read(store) == wanted
    assert put(store, message(b"next", topic="T"))[0].append.queue_offset == new
    machine.turn()
    assert read(store) == [*wanted, b"next"]


def test_a_slave_deletes_the_queues_of_the_topics_that_it_is_told(simulated, message):
    """And no others; what is not dispatched yet is of the next life."""
    store = simulated.open()
    put(store, message(topic="T"), message(topic="Other"), message(topic="T", queue_id=1))
    simulated.turn()
    (new,) = put(store, message(b"new", topic="T"))
    assert store.remove_topics({"T", "Nobody"}) == 2
    assert store.queues.get("T", 1) is None
    simulated.turn()
    for _ in range(2):
        units = list(store.queues.queue("T", 0).units(new.append.queue_offset, 9))
        assert [unit[0] for unit in units] == [new.append.physical_offset]
        assert store.min_offset_in_queue("T", 0) == new.append.queue_offset
        assert store.max_offset_in_queue("Other", 0) == 1
        simulated.stop(store)
        store = simulated.open()


def test_records_of_a_deleted_topic_that_were_not_dispatched_yet(simulated, message):
    """The dispatcher reaches them after the deletion."""
    machine = simulated
    store = machine.open()
    put(store, message(b"old", topic="T"), message(b"old", topic="T"))
    machine.turn()
    put(store, message(b"old", topic="T"))
    assert store.clean_unused_topics(set()) == 1
    machine.turn()
    assert store.max_offset_in_queue("T", 0) == 0
    put(store, message(b"new", topic="T"))
    machine.turn()
    assert read(store) == [b"new"]


@pytest.mark.parametrize("ending", ["crash", "stop"])
def test_a_deletion_that_was_cut_short(simulated, message, ending):
    """
    It was noted, but the files are still there: the next start finishes it.

    By a crash, or by a disk that refused to remove them and a clean stop later.
    """
    machine = simulated
    store = machine.open()
    put(store, message(b"old", topic="T"))
    machine.turn()
    store.deleted.add([("T", 0)], store.log.max_offset)
    getattr(machine, ending)(store)
    machine.disk = machine.disk.crash(power=False)
    store = machine.open()
    assert store.queues.get("T", 0) is None
    assert not machine.disk.exists("/store/consumequeue/T")


def test_a_slave_follows(simulated, make_simulated, message):
    """It gets the log only, in any pieces, and may start again in between."""
    store = old_and_new(simulated, message)
    simulated.turn()
    data = store.log.read(0, 1 << 16)
    for restart_at in (None, 300, 700, len(data) - 1):
        machine, began = make_simulated(), []

        def start(machine=machine, began=began):
            slave = machine.open(**SLAVE)
            slave.on_new_life = lambda *key: began.append(key)
            return slave

        slave = start()
        while (end := slave.log.max_offset) < len(data):
            slave.log.append_raw(end, data[end : end + 100])
            machine.turn()
            if restart_at is not None and end >= restart_at:
                restart_at = None
                machine.crash(slave)
                machine.disk = machine.disk.crash(power=False)
                slave = start()
        assert read(slave) == [b"new 0", b"new 1", b"new 2"]
        assert began == [("T", 0, 0)]
        machine.stop(slave)


def test_a_new_life_that_a_start_finds(simulated, message):
    """What it has already may have been consumed: only what lies behind that is of the old one."""
    machine = simulated
    store = old_and_new(machine, message)
    machine.turn()
    data = store.log.read(0, 1 << 16)
    machine.stop(store)
    machine.disk.remove_tree("/store")
    slave = machine.open(**SLAVE)
    slave.log.append_raw(0, data)
    machine.crash(slave)
    machine.disk = machine.disk.crash(power=False)
    slave = machine.load(**SLAVE)
    began = []
    slave.on_new_life = lambda *key: began.append(key)
    machine.finish(slave.start())
    assert began == [("T", 0, 3)]


def test_a_log_that_was_cut_below_the_deletion(simulated, message):
    """What comes to the place of the records that were deleted is none of them."""
    store = old_and_new(simulated, message, 0)
    end = store.log.max_offset
    store.deleted.cut(end - 50)
    assert store.deleted.table == {("T", 0): end - 50}


def test_a_log_that_lost_what_was_deleted(simulated, message):
    """The new life begins in its place: a second crash must not take it for the old one."""
    machine = simulated
    store = machine.open()
    end = put(store, message(topic="Other"))[0].append.next_offset
    put(store, *[message(b"old", topic="T") for _ in range(5)])
    machine.turn()
    assert store.clean_unused_topics({"Other"}) == 1
    machine.crash(store)
    machine.disk = machine.disk.crash(power=False)
    path = f"{machine.root}/commitlog/{0:020d}"
    data = machine.disk.content(path)
    machine.disk.damage(path, data[:end] + bytes(len(data) - end))
    store = machine.open()
    assert store.log.max_offset == end
    put(store, *[message(b"new", topic="T") for _ in range(2)])
    put(store, message(b"x" * 2000, topic="Other"))
    machine.turn()
    assert read(store) == [b"new"] * 2
    machine.crash(store)
    machine.disk = machine.disk.crash(power=False)
    assert read(machine.open()) == [b"new"] * 2


def test_entries_expire_with_the_log(simulated, message):
    """The file does not grow for ever."""
    store = old_and_new(simulated, message, 0)
    end = store.log.max_offset
    store.deleted.expire(end - 1)
    assert store.deleted.table
    store.deleted.expire(end)
    assert not store.deleted.table
    simulated.stop(store)
    assert b"T" not in simulated.disk.read_bytes("/store/config/deletedQueues.json")


def test_cleaning_forgets_deletions_with_the_log_that_had_the_messages(simulated, message):
    """Nobody else does."""
    store = simulated.open(mapped_file_size_commit_log=16384)
    put(store, *[message(b"old", topic="T") for _ in range(5)])
    simulated.turn(5)
    store.clean_unused_topics({"Other"})
    put(store, *[message(b"x" * 10_000, topic="Other") for _ in range(3)])
    simulated.turn(5)
    simulated.clock.pump([10] * 8)
    assert store.deleted.table
    store.log.drop_oldest(1)
    simulated.clock.pump([10] * 2)
    assert not store.deleted.table


@pytest.mark.parametrize("content", [b"[]", b"{}", b'{"deletedQueues": {"T": {"x": 1}}}', b"\xff"])
def test_a_damaged_file_of_deletions(simulated, content):
    """Its backup is read; a file that is none is no table."""
    disk = simulated.disk
    table = DeletedQueues(disk, simulated.worker, "/store")
    table.add([("T", 0), ("T", 3)], 100)
    table.add([("U", 1)], 200)
    disk.replace(table.path, content)
    again = DeletedQueues(disk, simulated.worker, "/store")
    again.load()
    assert again.table == {("T", 0): 100, ("T", 3): 100}


def test_strange_numbers_are_said(monkeypatch):
    """One that is left out, one that jumps ahead, and one that no queue can have."""
    said = []
    log = type("Log", (), {"warn": lambda self, text, **fields: said.append(fields)})
    monkeypatch.setattr("rmq_ha.server.store.queues.queue.ConsumeQueue.log", log())
    table = ConsumeQueueTable(SimDisk(Random(1), lambda: 1000), "/store", FILE)
    table.put_requests(lives_of([(0, 3)]))
    assert said == []
    for number, strange, then in ((3, 7, 4), (5, 9, None), (10, -1, None)):
        at = 100_000 * number
        requests = [request(strange, at)]
        requests += [request(then, at + 100)] if then is not None else []
        table.put_requests(requests)
        fields = said.pop()
        assert (fields["found"], fields["expected"]) == (strange, number)
        assert fields["physical_offset"] == at
        assert said == []


def test_all_entries_that_are_due_expire_and_no_others():
    """However many topics were deleted at once; later changes of the log move none of them up."""
    disk = SimDisk(Random(1), lambda: 1000)
    table = DeletedQueues(disk, None, "/store")
    table.table.update({("T", 0): 100, ("T", 1): 100, ("U", 0): 101, ("V", 0): 300})
    table.expire(100)
    assert table.table == {("U", 0): 101, ("V", 0): 300}
    table.is_dirty = False
    table.cut(300)
    assert not table.is_dirty
    table.cut(200)
    assert table.table == {("U", 0): 101, ("V", 0): 200}
    assert table.is_dirty
    table.expire(200)
    assert table.table == {}


def test_all_deletions_that_a_crash_cut_short_are_finished(simulated, message):
    machine = simulated
    store = machine.open()
    for queue_id in range(3):
        put(store, message(b"old", topic="T", queue_id=queue_id))
    put(store, message(b"kept", topic="Other"))
    machine.turn()
    store.deleted.add([("T", 0), ("T", 1), ("T", 2)], store.log.max_offset)
    machine.crash(store)
    machine.disk = machine.disk.crash(power=False)
    store = machine.load()
    assert [key for key, _ in store.queues.items()] == [("Other", 0)]
