"""A commit log that is not there. Spec: store.md, section 5.2."""

import pytest
from twisted.logger import capturedLogs, formatEvent

from rmq_ha.base.errors import StoreError
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.store_format.checkpoint import CheckpointTimes
from rmq_ha.server.store.local.absent_log import tell_lost_files
from tests.kits.descriptors import open_files


def put(machine, store, message, count=3):
    results = []
    for number in range(count):
        store.put_many([message(b"x", KEYS=f"k{number}")], results.extend)
        machine.turn()
    return [result.append for result in results]


def stopped(machine, message, clean):
    store = machine.open()
    put(machine, store, message)
    machine.clock.pump([1] * 13)
    if clean:
        machine.stop(store)
    else:
        machine.crash(store)


def files(machine):
    disk, found = machine.disk, {}

    def walk(path):
        for name in disk.list_dir(path):
            inner = f"{path}/{name}"
            if disk.is_dir(inner):
                walk(inner)
            elif name != "lock":
                found[inner.removeprefix(machine.root)] = disk.read_bytes(inner)

    walk(machine.root)
    return found


@pytest.mark.parametrize("role", [BrokerRole.ASYNC_MASTER, BrokerRole.SLAVE])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    ("lost", "evidence"),
    [
        (["commitlog"], "consumequeue/TopicA/0/0+ points into it"),
        (["commitlog", "consumequeue"], "checkpoint says that it was written up to"),
        (["commitlog/" + "0" * 20], "consumequeue/TopicA/0/0+ points into it"),
    ],
)
def test_a_log_that_is_not_there_is_missed(machine, message, lost, evidence, clean, role):
    """Not mounted, or lost: refused with the reason, and nothing is changed, on a slave as well."""
    stopped(machine, message, clean)
    for name in lost:
        machine.disk.remove(f"{machine.root}/{name}") if "/" in name else machine.disk.remove_tree(
            f"{machine.root}/{name}"
        )
    spare = f"{machine.root}/commitlog/{65536:020d}"
    machine.disk.remove(spare)
    before = files(machine)
    with pytest.raises(StoreError, match=evidence) as caught:
        machine.open(broker_role=role)
    assert "startWithoutCommitLog=true" in str(caught.value)
    assert files(machine) == before


def test_the_times_of_a_checkpoint_are_evidence(machine, message):
    """RocketMQ's says no more than that."""
    stopped(machine, message, True)
    for name in ("commitlog", "consumequeue"):
        machine.disk.remove_tree(f"{machine.root}/{name}")
    path = f"{machine.root}/checkpoint"
    times = CheckpointTimes.decode(machine.disk.read_bytes(path))
    data = times._replace(flushed_offset=0).encode()
    machine.disk.damage(path, data.ljust(machine.disk.size(path), b"\0"))
    with pytest.raises(StoreError, match=f"was written at {times.physic_msg_timestamp} ms"):
        machine.open()


def test_told_to_it_begins_anew(machine, message):
    """What was built on the old log is set aside; nothing of it is served."""
    stopped(machine, message, True)
    machine.disk.remove_tree(f"{machine.root}/commitlog")
    before = files(machine)
    store = machine.open(start_without_commit_log=True)
    assert store.log.max_offset == 0
    assert list(store.queues.items()) == []
    assert store.checkpoint.times == store.checkpoint.written == CheckpointTimes()
    assert store.max_offset_in_queue("TopicA", 0) == 0
    assert store.query("TopicA", "k1", 64, 0, 1 << 62).records == []
    (folder,) = machine.disk.list_dir(f"{machine.root}/setaside")
    after = files(machine)
    for name, data in before.items():
        if name.startswith(("/consumequeue", "/index")):
            assert after[f"/setaside/{folder}{name}"] == data
    assert put(machine, store, message)[0].queue_offset == 0
    machine.clock.pump([1] * 13)
    machine.stop(store)
    assert machine.open().max_offset_in_queue("TopicA", 0) == 3


def test_files_that_went_before_their_time_are_said(machine, message):
    """An expired file went in time, and is said by nobody."""
    store = machine.open(mapped_file_size_commit_log=16384)
    results = []
    for _ in range(4):
        store.put_many([message(b"x" * 9000)], results.extend)
        machine.now_ms += 1000
        machine.turn()
    store.put_many([message(b"x", queue_id=1)], results.extend)  # this queue lacks nothing
    machine.turn()
    store.log.drop_oldest(1)
    first = results[1].append

    def says(now_ms):
        with capturedLogs() as lines:
            tell_lost_files(store.log, store.queues, 5000, now_ms)
        return [formatEvent(line) for line in lines]

    (text,) = says(first.store_timestamp + 4999)
    assert "begins at 16384, and queues point to messages from 0 on" in text
    assert says(first.store_timestamp + 5000) == []
    store.queues.delete_expired(16384)
    store.queues.correct_min_offsets(16384)
    for queue_id in (0, 1):
        store.queues.get("TopicA", queue_id).empty()
    assert says(first.store_timestamp) == []


@pytest.mark.real_disk
def test_nothing_of_the_old_queues_stays_open(machine, message):
    """Their files are somewhere else, and nobody would close them any more."""

    before = open_files()
    stopped(machine, message, True)
    machine.disk.remove_tree(f"{machine.root}/commitlog")
    store = machine.open(start_without_commit_log=True)
    assert [path for path in open_files() if "setaside" in path] == []
    machine.stop(store)
    assert open_files() == before


def test_a_store_that_never_had_one(machine):
    """A first start that was killed before the first message is none of these."""
    machine.crash(machine.open())
    assert machine.open().log.max_offset == 0


def test_a_crash_before_there_was_any_file(machine, message):
    """Of log, time and numbers it has none: the first message is at 0."""
    machine.crash(machine.load())
    store = machine.load()
    assert store.log.row.starts == []
    assert (store.log.max_offset, store.log.last_store_timestamp) == (0, 0)
    machine.finish(store.start())
    assert put(machine, store, message)[0].physical_offset == 0
