"""
Damage of every kind to a small store, after a clean stop and after a kill: nothing is silent.

Either the start is refused with a sentence, or each message is there, or it is said what is not;
no queue offset is given twice, and nothing but what was put is handed out.
"""

import os
import shutil
from random import Random

import pytest
from twisted.logger import LogLevel, globalLogPublisher

from rmq_ha.base.errors import CorruptRecord, StoreError
from rmq_ha.base.host.disk import RealDisk
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.store_format.commitlog import decode_record
from tests.unit.server.store.conftest import Machine, make_message

pytestmark = pytest.mark.real_disk

COUNT = 180
QUEUES = 3
SMALL = {"mapped_file_size_commit_log": 32768, "mapped_file_size_consume_queue": 400}


def log_file(machine, number):
    return f"{machine.root}/commitlog/{32768 * number:020d}"


def queue_file(machine, number, queue_id=1):
    return f"{machine.root}/consumequeue/TopicA/{queue_id}/{400 * number:020d}"


def index_file(machine):
    folder = f"{machine.root}/index"
    return f"{folder}/{sorted(os.listdir(folder))[0]}"


def overwrite(path, position, data):
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(data)


def flip(path, position, bit=0):
    with open(path, "r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1 << bit]))


def swap(machine):
    first, second = log_file(machine, 0), log_file(machine, 1)
    os.rename(first, first + "x")
    os.rename(second, first)
    os.rename(first + "x", second)


def cut_all(machine, size):
    for queue_id in range(QUEUES):
        for number in range(3):
            os.truncate(queue_file(machine, number, queue_id), size)


GARBAGE = Random(7).randbytes(4096)
KINDS = {
    "log: a bit of a body": lambda m: flip(log_file(m, 1), 5000),
    "log: a bit of a magic": lambda m: flip(log_file(m, 0), 5),
    "log: 4 KiB of zeros": lambda m: overwrite(log_file(m, 1), 8192, bytes(4096)),
    "log: 4 KiB of garbage": lambda m: overwrite(log_file(m, 1), 8192, GARBAGE),
    "log: cut": lambda m: os.truncate(log_file(m, 1), 20000),
    "log: a file in the middle gone": lambda m: os.remove(log_file(m, 1)),
    "log: the first file gone": lambda m: os.remove(log_file(m, 0)),
    "log: the last file gone": lambda m: os.remove(log_file(m, 3)),
    "log: all gone": lambda m: m.disk.remove_tree(f"{m.root}/commitlog"),
    "log: two files swapped": swap,
    "log: tail zeroed": lambda m: overwrite(log_file(m, 3), 2000, bytes(32768 - 2000)),
    "log: a stray file": lambda m: m.disk.replace(f"{m.root}/commitlog/stray", b"x"),
    "queue: first file gone": lambda m: os.remove(queue_file(m, 0)),
    "queue: middle file gone": lambda m: os.remove(queue_file(m, 1)),
    "queue: last file gone": lambda m: os.remove(queue_file(m, 2)),
    "queue: first file zeroed": lambda m: overwrite(queue_file(m, 0), 0, bytes(400)),
    "queue: middle file zeroed": lambda m: overwrite(queue_file(m, 1), 0, bytes(400)),
    "queue: last file zeroed": lambda m: overwrite(queue_file(m, 2), 0, bytes(400)),
    "queue: cut back": lambda m: overwrite(queue_file(m, 2), 100, bytes(300)),
    "queue: a hole": lambda m: overwrite(queue_file(m, 2), 100, bytes(20)),
    "queue: a bit": lambda m: flip(queue_file(m, 0), 105),
    "queue: a high bit": lambda m: flip(queue_file(m, 1), 60, 6),
    "queue: a bit of the size": lambda m: flip(queue_file(m, 1), 69, 2),
    "queue: a sign": lambda m: flip(queue_file(m, 0), 28, 7),
    "queue: a bit of the last unit": lambda m: flip(queue_file(m, 2), 386, 3),
    "queue: a high bit of the last unit": lambda m: flip(queue_file(m, 2), 380, 6),
    "queue: one file cut": lambda m: os.truncate(queue_file(m, 1), 77),
    "queue: last file cut": lambda m: os.truncate(queue_file(m, 2), 123),
    "queue: all files cut": lambda m: cut_all(m, 200),
    "queue: directory gone": lambda m: m.disk.remove_tree(f"{m.root}/consumequeue/TopicA/1"),
    "queues: all gone": lambda m: m.disk.remove_tree(f"{m.root}/consumequeue"),
    "index: cut": lambda m: os.truncate(index_file(m), 1500),
    "index: zeroed": lambda m: overwrite(index_file(m), 0, bytes(2000)),
    "index: garbage": lambda m: overwrite(index_file(m), 40, GARBAGE[:1000]),
    "index: gone": lambda m: m.disk.remove_tree(f"{m.root}/index"),
    "checkpoint: 10 bytes": lambda m: os.truncate(f"{m.root}/checkpoint", 10),
    "checkpoint: zeros": lambda m: overwrite(f"{m.root}/checkpoint", 0, bytes(4096)),
    "checkpoint: garbage": lambda m: overwrite(f"{m.root}/checkpoint", 0, GARBAGE),
    "checkpoint: gone": lambda m: os.remove(f"{m.root}/checkpoint"),
    "queueEnds: garbage": lambda m: m.disk.replace(f"{m.root}/queueEnds", GARBAGE),
    "abort: added": lambda m: m.disk.open(f"{m.root}/abort", 0).close(),
    "abort: removed": lambda m: m.disk.remove(f"{m.root}/abort"),
}


@pytest.fixture
def said():
    """What is logged at warn and above."""
    lines = []

    def observe(event):
        if event.get("log_level") in (LogLevel.warn, LogLevel.error, LogLevel.critical):
            lines.append(event["log_format"])

    globalLogPublisher.addObserver(observe)
    yield lines
    globalLogPublisher.removeObserver(observe)


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Three queues of 60 messages each, in three files each; stopped and killed, to be copied."""
    made = {}
    for stop in ("stopped", "killed"):
        machine = Machine(tmp_path_factory.mktemp(stop) / "store", RealDisk())
        store = fill(machine, make_message)
        machine.stop(store) if stop == "stopped" else machine.crash(store)
        made[stop] = machine
    return made


def fill(machine, message):
    store = machine.open(**SMALL)
    for number in range(COUNT):
        body = b"%04d" % number * 150
        store.put_many([message(body, queue_id=number % QUEUES, KEYS=f"k{number}")], lambda _: None)
        machine.now_ms += 500
        machine.turn()
    machine.clock.pump([1] * 70)
    return store


def read(store, queue_id):
    """Offset to body, as a consumer reads."""
    found, offset = {}, store.min_offset_in_queue("TopicA", queue_id)
    for _ in range(200):
        result = store.get_message("g", "TopicA", queue_id, offset, 32, None)
        for data in result.messages:
            try:
                record = decode_record(data, check_crc=True)
            except CorruptRecord:
                continue  # said by the pull, or by the consumer that checks its CRC
            found[record.queue_offset] = record.body
        if result.next_begin_offset <= offset and not result.messages:
            break
        offset = result.next_begin_offset
    return found


def wanted(queue_id):
    return {number // QUEUES: b"%04d" % number * 150 for number in range(queue_id, COUNT, QUEUES)}


@pytest.mark.parametrize("role", [BrokerRole.ASYNC_MASTER, BrokerRole.SLAVE])
@pytest.mark.parametrize("stop", ["stopped", "killed"])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_silent(machine, stores, message, said, kind, stop, role):
    """Refused with a sentence, or whole, or told; never wrong, never numbered twice."""
    shutil.copytree(stores[stop].root, machine.root)
    machine.now_ms = stores[stop].now_ms + 100_000
    KINDS[kind](machine)
    said.clear()
    refusal, again = "", None
    try:
        again = machine.open(**SMALL, broker_role=role, check_crc_on_read=True)
    except StoreError as error:
        refusal = str(error)
    if again is None:
        assert kind.startswith("log: ") or "all files cut" in kind, refusal
        assert len(refusal) > 60
        return
    lost = 0
    for queue_id in range(QUEUES):
        found, expected = read(again, queue_id), wanted(queue_id)
        assert all(expected.get(offset) == body for offset, body in found.items())
        lost += len(expected) - len(found)
    if kind.startswith("log: "):
        assert said or not lost, f"{lost} messages are missing, and nobody says so"
    else:
        assert not lost
    if role is BrokerRole.ASYNC_MASTER:
        for queue_id in range(QUEUES):
            results = []
            again.put_many([message(b"new", queue_id=queue_id)], results.extend)
            assert results[0].append.queue_offset == COUNT // QUEUES
