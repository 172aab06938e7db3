"""
After lost power a start goes on from where log, queues and index were whole on the disk.

`agrees` is what must hold of each store after each start, however it was left: each record of the
log is in its queue, in its place, and found by its key. `vouched` sees to it that nothing is said
to be whole which is only in the page cache.
"""

import errno
from contextlib import suppress
from random import Random

import pytest

from rmq_ha.base.errors import StoreError
from rmq_ha.base.runs.log_walk import walk
from rmq_ha.base.store_format.checkpoint import NOTHING_WHOLE, CheckpointTimes, CompletePositions
from rmq_ha.server.store.index.file import IndexFile
from rmq_ha.server.store.local.rebuild import QueueRebuild
from rmq_ha.server.store.log.checkpoint import StoreCheckpoint
from tests.unit.server.store.test_boot import places_of, put

ONE_FILE = {"mapped_file_size_commit_log": 1 << 20, "max_hash_slot_num": 40}


@pytest.fixture
def machine(make_simulated):
    return make_simulated()


@pytest.fixture(autouse=True)
def _no_look_back(monkeypatch):
    """What a start finds missing in the last 8 MiB it mends, whatever was said of them."""
    monkeypatch.setattr("rmq_ha.server.store.local.rebuild._LOOK_BACK", 300)


@pytest.fixture
def counted(monkeypatch):
    """How many records each start has dispatched again."""
    counts = []
    again = QueueRebuild.dispatch_again

    def counting(self, rows):
        counts.append(len(rows))
        again(self, rows)

    monkeypatch.setattr(QueueRebuild, "dispatch_again", counting)
    return counts


def agrees(store):
    """Queues and index are what the log says; how many records it has."""
    log = store.log
    found = walk(log.read(0, log.max_offset), 0, [], 1 << 20, True)
    assert found.size == log.max_offset
    numbers = {}
    for topic, queue_id, place, size, code, _, number, _, key, *_ in found.run.rows:
        assert store.queues.get(topic, queue_id).units(number, 1) == [(place, size, code)]
        assert number == numbers.setdefault((topic, queue_id), 0)
        numbers[topic, queue_id] += 1
        if store.index is not None:
            assert place in places_of(store, topic, key), (topic, key)
    for key, count in numbers.items():
        assert store.queues.get(*key).max_offset == count
    return len(found.run.rows)


def rounds(machine, seconds=65):
    for _ in range(seconds):
        machine.clock.advance(1)
    machine.turn()


def test_what_was_whole_is_left_alone(machine, message, counted):
    store = machine.open(**ONE_FILE)
    put(machine, store, message, 600)
    rounds(machine)
    put(machine, store, message, 50, 600)
    machine.lose_power(store)
    assert 600 <= agrees(machine.open(**ONE_FILE)) <= 650
    assert sum(counted) <= 51


def test_it_is_said_at_each_128_mib(machine, message, monkeypatch):
    """And not only once a minute: a start after lost power never reads more than that."""
    monkeypatch.setattr("rmq_ha.server.store.log.flush._WHOLE_EVERY", 20_000)
    store = machine.open(**ONE_FILE)
    rounds(machine, 2)  # the first round comes after a second
    for first in range(0, 600, 100):
        put(machine, store, message, 100, first)
        rounds(machine, 3)
        assert store.log.max_offset - store.checkpoint.whole.offset < 20_000
    machine.stop(store)


@pytest.mark.parametrize("change", [7, 15, 23])
def test_java_has_written_since(change):
    """Then nothing is known; Java keeps our bytes as they are."""
    times, whole = CheckpointTimes(3, 4, 5, 100, 0), CompletePositions(100, 20260101000000000, 7)
    data = bytearray(times.encode() + whole.encode(times, b"1 2"))
    assert CompletePositions.decode(bytes(data), b"1 2") == whole
    data[change] += 1
    assert CompletePositions.decode(bytes(data), b"1 2") == NOTHING_WHOLE


def test_a_copy_of_the_store_is_not_whole():
    """Its files may be of different times."""
    times, whole = CheckpointTimes(3, 4, 5, 100, 0), CompletePositions(100, 20260101000000000, 7)
    data = times.encode() + whole.encode(times, b"1 2")
    assert (
        CompletePositions.decode(data, b"1 3")
        == CompletePositions.decode(data, b"")
        == NOTHING_WHOLE
    )
    assert CompletePositions.decode(times.encode() + whole.encode(times, b""), b"") == NOTHING_WHOLE


def test_nothing_is_whole_while_a_start_changes_it(machine, message):
    store = machine.open(**ONE_FILE)
    put(machine, store, message, 100)
    rounds(machine)
    assert store.checkpoint.whole.offset
    machine.lose_power(store)
    again = machine.load(**ONE_FILE)
    assert again.checkpoint.whole == NOTHING_WHOLE
    assert again._complete() == NOTHING_WHOLE
    machine.finish(again.start())
    rounds(machine)
    assert again.checkpoint.whole.offset == again.log.max_offset


def test_a_cut_ends_it(machine, message):
    """Also where it lies behind: items of the index may be beyond what of the log was flushed."""
    store = machine.open(**ONE_FILE)
    put(machine, store, message, 100)
    rounds(machine)
    assert store.checkpoint.whole.offset == store.log.max_offset
    store.checkpoint.give_up(store.log.max_offset, store.log.last_store_timestamp)
    assert store.checkpoint.whole == NOTHING_WHOLE
    machine.lose_power(store)
    assert machine.load(**ONE_FILE).whole == NOTHING_WHOLE


def test_another_log_is_read_from_the_beginning(machine, message, counted):
    store = machine.open(**ONE_FILE)
    put(machine, store, message, 100)
    rounds(machine)
    path = store.log.row.path(0)
    last = store.queues.last_record()[0]
    machine.lose_power(store)
    data = bytearray(machine.disk.content(path))
    data[last + 88] ^= 1  # the body of the last record
    machine.disk.damage(path, bytes(data))
    store = machine.open(**ONE_FILE, keep_damaged_log=False)
    assert agrees(store) == 99
    assert sum(counted) == 99


@pytest.mark.parametrize("verifies", [False, True])
def test_what_was_whole_is_looked_at_where_that_is_asked_for(machine, message, counted, verifies):
    """Else damage there is found by readers, as after a clean stop."""
    store = machine.open(**ONE_FILE)
    put(machine, store, message, 100)
    rounds(machine)
    path = store.log.row.path(0)
    machine.lose_power(store)
    data = bytearray(machine.disk.content(path))
    data[88] ^= 1  # the body of the first record
    machine.disk.damage(path, bytes(data))
    settings = {**ONE_FILE, "verify_log_at_start": verifies, "keep_damaged_log": False}
    again = machine.open(**settings)
    assert again.log.max_offset == (0 if verifies else store.log.max_offset)
    assert sum(counted) == (0 if verifies else 1)


def test_an_index_that_is_gone_is_built_anew(machine, message, counted):
    store = machine.open(**ONE_FILE)
    put(machine, store, message, 100)
    rounds(machine)
    machine.lose_power(store)
    for path in machine.disk.paths(f"{machine.root}/index"):
        machine.disk.remove(path)
    assert agrees(machine.open(**ONE_FILE)) == 100
    assert sum(counted) == 100


def test_without_an_index_there_is_none_to_be_whole(machine, message, counted):
    store = machine.open(**ONE_FILE, message_index_enable=False)
    put(machine, store, message, 100)
    rounds(machine)
    machine.lose_power(store)
    store = machine.open(**ONE_FILE, message_index_enable=False)
    assert (agrees(store), sum(counted)) == (100, 1)
    rounds(machine)
    machine.lose_power(store)
    assert agrees(machine.open(**ONE_FILE)) == 100  # now with one


def test_an_index_that_knows_more_than_the_log_forgets_it(make_simulated, message):
    """Its full files are flushed before the log is: what the log gets instead has its keys, too."""
    ahead = 0
    for seed in range(8):  # the disk keeps of the log what it likes
        machine = make_simulated()
        settings = {**ONE_FILE, "max_index_num": 60}
        store = machine.open(**settings)
        store.queue_flusher._whole = lambda: NOTHING_WHOLE
        put(machine, store, message, 30)
        rounds(machine)
        store.journal.flusher._on_interval = lambda: None
        put(machine, store, message, 60, 30)
        rounds(machine)
        machine.disk._random.seed(seed)
        machine.lose_power(store)
        reached = store.index.headers()[0][1].end_physical_offset
        store = machine.open(**settings)
        ahead += reached > store.log.max_offset
        put(machine, store, message, 60, 200)
        agrees(store)
    assert ahead


def lose_power_in_a_start(machine, settings, random):
    """While it changes what it finds, or just behind that."""
    left = random.randrange(50)

    def fault(operation, path):
        nonlocal left
        left -= operation in ("pwrite", "zero", "remove", "sync")
        return errno.EIO if left < 0 else None

    machine.disk.fault = fault
    with suppress(StoreError, OSError):
        machine.load(**settings)
    machine.disk = machine.disk.crash()


def life(machine, message, seed):
    """Stores that end in every way, one after the other."""
    random, serial = Random(seed), 0
    settings = {**ONE_FILE, "max_index_num": random.choice([60, 400])}
    settings["message_index_enable"] = random.random() < 0.5
    for _ in range(5):
        store = machine.open(**settings)
        agrees(store)
        for _ in range(random.randrange(1, 5)):
            count = random.randrange(1, 40)
            put(machine, store, message, count, serial)
            serial += count
            rounds(machine, random.choice([0, 0, 1, 3, 70]))
        random.choice([machine.lose_power, machine.lose_power, machine.kill, machine.stop])(store)
        if random.random() < 0.4:
            lose_power_in_a_start(machine, settings, random)
    agrees(machine.open(**settings))


@pytest.mark.parametrize("seed", range(12))
def test_however_stores_end(machine, message, seed):
    life(machine, message, seed)


def _keeps(self):
    return self.whole


def _only_the_header(self, count):
    self.header = self.header._replace(index_count=count)


# with the first seed that finds it
FAULTS = {
    "nothing is forgotten at a start": (31, StoreCheckpoint, "take_whole", _keeps),
    "slots lead to items that are lost": (0, IndexFile, "restore", _only_the_header),
    "the queues are not synced first": (0, None, "_sync", lambda: None),
    "the index is not synced first": (0, None, "_sync_index", lambda: None),
    "it is dispatched, and not flushed": (0, None, "_whole", None),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(make_simulated, message, monkeypatch, fault):
    first, owner, name, planted = FAULTS[fault]
    if owner is not None:
        monkeypatch.setattr(owner, name, planted)

    def lives():
        for seed in range(first, first + 60):
            machine = make_simulated()
            if owner is None:
                _plant(machine, name, planted)
            life(machine, message, seed)

    with pytest.raises(AssertionError):
        lives()


def _plant(machine, name, planted):
    real = machine.load

    def load(**settings):
        store = real(**settings)
        fake = planted or (lambda: store._complete()._replace(offset=store.dispatcher.position))
        setattr(store.queue_flusher, name, fake)
        return store

    machine.load = load
