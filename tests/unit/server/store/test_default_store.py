"""Puts, gets and the life of a store. Spec: store.md, sections 2.6 to 2.8, 5, 7 and 10.2."""

import errno
from dataclasses import replace

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import globalLogPublisher

from rmq_ha.base.errors import ConfigurationError, StoreError, StoreLocked
from rmq_ha.base.model.message import Address, MessageBatch, PutMessageResult
from rmq_ha.base.model.properties import MAX_PROPERTIES_SIZE
from rmq_ha.base.model.status import BrokerRole, FlushDiskType, GetMessageStatus, PutMessageStatus
from rmq_ha.base.seams import DiskUsage
from rmq_ha.base.store_format.commitlog import decode_record
from rmq_ha.server.store.log.batch import MEMBERS_A_TURN
from rmq_ha.server.store.message_store import DefaultMessageStore
from rmq_ha.testing.disk import SimFile
from tests.kits.descriptors import open_files

OK = PutMessageStatus.PUT_OK
ILLEGAL = PutMessageStatus.MESSAGE_ILLEGAL
REFUSED = PutMessageStatus.SERVICE_NOT_AVAILABLE
V4 = Address.parse("10.0.0.1", 7)
V6 = Address.parse("2001:db8::1", 8)


def put(store, *messages):
    results = []
    store.put_many(list(messages), results.append)
    assert len(results) == 1
    return results[0]


class Replication:
    """Answers puts with what the test says."""

    def __init__(self, answer):
        self.answer = answer
        self.acknowledged = 0
        self.calls = []

    def start(self):
        self.calls.append("start")

    def stop(self):
        self.calls.append("stop")

    def appended(self):
        self.calls.append("appended")

    def when_replicated(self, next_offset, start_offset, decided):
        if isinstance(self.answer, PutMessageStatus):
            return self.answer
        self.answer.addCallback(decided, 0.0)
        return None

    def is_replicated(self, start_offset, next_offset):
        return next_offset <= self.acknowledged


@pytest.mark.parametrize("name", ["abort", "checkpoint"])
def test_a_start_that_the_disk_refuses_is_none(machine, message, name):
    """It says why, and lets go of the store: the next one has all of it."""
    store = machine.open()
    put(store, message())
    machine.stop(store)
    machine.disk.fault = lambda operation, path: (
        errno.EIO if operation == "open" and path.endswith(name) else None
    )
    with pytest.raises(StoreError, match=f"cannot load the store at {machine.root}"):
        machine.load()
    machine.disk.fault = lambda operation, path: None
    assert machine.open().max_offset_in_queue("TopicA", 0) == 1


def test_a_store_of_a_killed_rocketmq_5_opens(machine, message):
    """RocketMQ 5 writes its process id into `abort`, which RocketMQ 4.9 and rmq-ha leave empty."""
    store = machine.open()
    put(store, message())
    machine.kill(store)
    path = f"{machine.root}/abort"
    machine.disk.remove(path)
    abort = machine.disk.open(path, 4)
    abort.pwrite(b"4711", 0)
    abort.close()
    store = machine.open()
    assert store.max_offset_in_queue("TopicA", 0) == 1
    machine.stop(store)
    assert not machine.disk.exists(path)


def test_pulls_are_counted(machine, message):
    """Those that found something, the others, and what they found."""
    store = machine.open()
    put(store, message(), message(), message())
    machine.turn()
    for offset in (0, 1, 3):
        store.get_message("g", "TopicA", 0, offset, 32, None)
    counts = store.statistics
    assert (counts.get_found, counts.get_missed, counts.get_transferred) == (2, 1, 5)


@pytest.mark.real_disk
def test_a_stopped_store_has_nothing_open(machine, message):
    """Neither after a clean start nor after one that had to mend queues and a cut index."""

    before = open_files()
    for ending in (machine.stop, machine.crash):
        store = machine.open()
        put(store, *[message(b"x", KEYS=f"k{number}") for number in range(9)])
        machine.turn()
        assert store.query("TopicA", "k7", 9, 0, 1 << 62).records
        assert open_files() != before
        ending(store)
        assert open_files() == before
        (name,) = machine.disk.list_dir(f"{machine.root}/index")
        path = f"{machine.root}/index/{name}"
        machine.disk.replace(path, machine.disk.read_bytes(path)[:-1])


def test_a_query_answers_with_the_newest_that_a_frame_may_hold(machine, message):
    """A part of it in a turn: 64 messages of 4 MB were read and checked in one, and fitted none."""
    store = machine.open(mapped_file_size_commit_log=1 << 25)
    bodies = [bytes([number]) * 1_000_000 for number in range(20)]
    put(store, *[message(body, KEYS="k") for body in bodies])
    machine.turn()
    found = []
    slices = sum(1 for _ in store.query_in_slices("TopicA", "k", 64, 0, 1 << 62, found.append))
    assert slices >= 15
    records = found[0].records
    assert [record[200:201] for record in records] == [bytes([number]) for number in range(4, 20)]
    assert sum(map(len, records)) < 1 << 24


@pytest.mark.parametrize(("most", "count"), [(1, 1), (2, 2), (64, 3)])
def test_a_query_gives_no_more_than_is_asked_for_or_configured(machine, message, most, count):
    """`maxMsgsNumBatch`; the newest ones."""
    store = machine.open(max_msgs_num_batch=3)
    put(store, *[message(b"%d" % number, KEYS="k") for number in range(9)])
    machine.turn()
    found = store.query("TopicA", "k", most, 0, 1 << 62).records
    assert [decode_record(record).body for record in found] == [b"6", b"7", b"8"][-count:]


def test_a_query_of_small_messages_takes_one_turn(machine, message):
    """Those that were read count by their bytes, not by their number."""
    store = machine.open()
    put(store, *[message(b"small", KEYS="k") for _ in range(20)])
    machine.turn()
    found = []
    assert not list(store.query_in_slices("TopicA", "k", 64, 0, 1 << 62, found.append))
    assert len(found[0].records) == 20


@pytest.mark.parametrize(("role", "is_elected"), [("SLAVE", False), ("SYNC_MASTER", True)])
def test_only_a_master_that_stays_one_delivers_what_is_delayed(machine, role, is_elected):
    """A slave would put messages of its own into its log; who is elected is told later."""
    store = machine.load(broker_role=BrokerRole(role))
    store.journal.role.may_begin = not is_elected
    machine.finish(store.start())
    machine.clock.pump([1] * 3)
    assert store.schedule._levels == {}


@pytest.mark.parametrize(("interval", "rounds"), [(5000, 3), (0, 100)])
def test_how_often_the_store_cleans(machine, interval, rounds):
    """`cleanResourceInterval`, and no more often than ten times a second."""
    store = machine.open(clean_resource_interval=interval)
    count = 0
    clean = store.cleaner.clean

    def counted():
        nonlocal count
        count += 1
        return clean()

    store.cleaner.clean = counted
    machine.clock.advance(60)
    assert count == 1
    machine.clock.pump([0.01] * 1000)
    assert rounds - 1 <= count <= rounds + 1


def test_a_stop_gives_others_their_turn_while_it_dispatches(machine):
    """Up to five seconds of it."""
    store = machine.open()
    began = []
    store.dispatcher.run_slice = lambda: began.append(machine.clock.seconds()) or len(began) < 4
    stopped = store.stop()
    assert len(began) == 1
    machine.finish(stopped)
    assert len(began) == 4


def test_each_directory_of_the_log_has_its_ratio(machine):
    """As RocketMQ tells it, which has one for all queues."""
    paths = [f"{machine.root}/one", f"{machine.root}/two"]
    store = machine.open(store_path_commit_log=",".join(paths))
    told = store.runtime_info()
    store.host.disk.usage = lambda path: DiskUsage(9, 1, 8) if "one" in path else None
    assert store.runtime_info()["commitLogDirCapacity"].startswith("Total : 9")
    ratios = {name: value for name, value in told.items() if "DiskRatio" in name}
    assert sorted(ratios)[1:3] == [f"commitLogDiskRatio_{path}" for path in paths]
    assert all(float(value) <= 1 for value in ratios.values())


def test_a_message_is_not_in_memory_any_more_by_its_place(machine, message):
    """So far behind the end of the log, whatever its tag."""
    store = machine.open(access_message_in_memory_max_ratio=40)
    store._memory_bytes = 10_000
    results = put(store, *[message(b"x" * 1000, TAGS="T") for _ in range(10)])
    machine.turn()
    far = [store.log.max_offset - result.append.physical_offset > 4000 for result in results]
    assert [store.is_in_disk("TopicA", 0, number) for number in range(10)] == far
    assert far.count(True) not in (0, 10)


def test_put_and_get(machine, message):
    """A message can be read as soon as its turn is over."""
    store = machine.open()
    (result,) = put(store, message(b"one", TAGS="TagA"))
    assert result.status is OK
    assert result.append.physical_offset == 0
    assert result.append.msg_id == "7F00000100002A9F0000000000000000"
    assert store.max_offset_in_queue("TopicA", 0) == 0
    machine.turn()
    found = store.get_message("g", "TopicA", 0, 0, 32, None)
    assert found.status is GetMessageStatus.FOUND
    record = decode_record(found.messages[0], check_crc=True)
    assert (record.body, record.properties) == (b"one", {"TAGS": "TagA"})
    assert record.store_timestamp == machine.now_ms == result.append.store_timestamp
    assert store.store_timestamp_at("TopicA", 0, 0) == machine.now_ms
    assert store.earliest_message_time() == -1, "as RocketMQ, before 2 x maxMessageSize"
    store.configuration.store.max_message_size = 10
    assert store.earliest_message_time() == machine.now_ms
    assert store.earliest_message_time("TopicA", 0) == machine.now_ms
    assert store.earliest_message_time("TopicA", 9) == -1
    assert store.offset_by_time("TopicA", 0, 0) == 0
    assert not store.is_in_disk("TopicA", 0, 0)


def test_put_message_fires_once(machine, message):
    """The Deferred form gives the same result."""
    store = machine.open()
    results = []
    store.put_message(message()).addCallback(results.append)
    assert [result.status for result in results] == [OK]


def test_limits(machine, message):
    """Each message is judged for itself; the good ones of a group are stored."""
    store = machine.open(max_message_size=2000)
    cases = [
        (message(b"x" * 2000), OK),
        (message(b"x" * 2001), ILLEGAL),
        (message(topic="t" * 127), OK),
        (message(topic="t" * 128), ILLEGAL),
        (message(topic="中" * 50), ILLEGAL),
        (message(topic=""), ILLEGAL),
        (message(topic="../x"), ILLEGAL),
        (message(a="x" * 40000), ILLEGAL),
        (message(a="中" * 12000), PutMessageStatus.PROPERTIES_SIZE_EXCEEDED),
        (message(b"x" * 2001, a="中" * 12000), PutMessageStatus.PROPERTIES_SIZE_EXCEEDED),
        (message(topic="../x", a="中" * 12000), ILLEGAL),
        (message(queue_id=1 << 40), ILLEGAL),
        (message(DELAY="soon"), ILLEGAL),
        (message(), OK),
    ]
    results = put(store, *[case for case, _ in cases])
    assert [result.status for result in results] == [status for _, status in cases]
    stored = [result.append for result in results if result.append]
    assert [before.next_offset for before in stored[:-1]] == [
        after.physical_offset for after in stored[1:]
    ]
    assert store.statistics.put_failed == 11
    assert store.statistics.put_times == 3


def test_a_record_larger_than_a_file_is_refused(machine, message):
    """Java would blank a whole file for it."""
    store = machine.open()
    (result,) = put(store, message(b"x" * 65500))
    assert result == PutMessageResult(ILLEGAL)
    assert store.log.max_offset == 0


def test_hosts_of_both_families(machine, message):
    """The store sets the two bits by the addresses, whatever the sender said."""
    store = machine.open()
    for born in (V4, V6):
        for stored in (V4, V6):
            one = message()
            one.born_host, one.store_host, one.sys_flag = born, stored, 0x31
            (result,) = put(store, one)
            data = store.record_at(result.append.physical_offset)
            record = decode_record(data)
            assert len(data) == result.append.size
            assert (record.born_host, record.store_host) == (born, stored)
            assert record.sys_flag == 1 | born.is_v6 << 4 | stored.is_v6 << 5
            assert record.msg_id == result.append.msg_id


def test_transaction_types_have_no_number(machine, message):
    """Prepared and rolled-back records carry 0 and get no entry; committed ones are numbered."""
    store = machine.open()
    messages = []
    for kind in (0, 4, 8, 12, 0):
        one = message()
        one.sys_flag = kind
        messages.append(one)
    results = put(store, *messages)
    assert [result.append.queue_offset for result in results] == [0, 0, 1, 0, 2]
    machine.turn()
    assert store.max_offset_in_queue("TopicA", 0) == 3


def batch_of(*members, **kwargs):
    return MessageBatch("TopicA", 1, V4, V4, list(members), **kwargs)


def test_a_long_batch_is_laid_out_in_slices(machine, message):
    """Each member once, in its order."""
    store = machine.open(mapped_file_size_commit_log=1 << 22)
    count = 2 * MEMBERS_A_TURN + 3
    batch = batch_of(*[(number, b"%d" % number, "") for number in range(count)])
    waiting = store.put_batch(batch)
    assert store.log.max_offset == 0
    result = machine.finish(waiting)
    assert (result.status, result.append.message_count) == (OK, count)
    machine.turn(50)
    assert store.max_offset_in_queue("TopicA", 1) == count
    units = [
        unit for at in range(0, count, 40) for unit in store.queues.queue("TopicA", 1).units(at, 40)
    ]
    bodies = [decode_record(store.record_at(offset)).body for offset, _, _ in units]
    assert bodies == [b"%d" % number for number in range(count)]


def test_a_short_batch_is_in_the_log_at_once(machine, message):
    """It waits for no turn, and so for nobody else's batch."""
    store = machine.open()
    waiting = store.put_batch(batch_of((0, b"x", ""), (0, b"y", "")))
    assert store.log.max_offset > 0
    assert machine.finish(waiting).append.message_count == 2


def test_a_batch_lies_in_one_file(machine, message):
    """It moves to the next file as a whole; its result is the first's, with all ids."""
    store = machine.open()
    put(store, message(b"x" * 60000))
    batch = batch_of(*[(number, b"y" * 2000, f"KEYS\x01k{number}") for number in range(5)])
    result = machine.finish(store.put_batch(batch))
    assert result.status is OK
    assert result.append.physical_offset == 65536
    assert result.append.message_count == 5
    assert result.append.queue_offset == 0
    assert len(result.append.msg_id.split(",")) == 5
    machine.turn()
    found = store.get_message("g", "TopicA", 1, 0, 32, None)
    records = [decode_record(data) for data in found.messages]
    assert [record.flag for record in records] == [0, 1, 2, 3, 4]
    assert sum(record.size for record in records) == result.append.size
    assert len(store.query("TopicA", "k3", 9, 0, 1 << 60).records) == 1


@pytest.mark.parametrize(
    "batch",
    [
        batch_of(),
        batch_of((0, b"x", ""), sys_flag=4),
        batch_of((0, b"x", ""), (0, b"x", "DELAY\x013")),
        batch_of((0, b"x" * 1500, ""), (0, b"x" * 1500, "")),
        batch_of((0, b"x", ""), (1 << 40, b"x", "")),
        batch_of((0, b"x", ""), (0, b"x", "a" * 33000)),
    ],
    ids=["empty", "transaction", "delay", "too large", "bad number", "bad properties"],
)
def test_a_bad_batch_is_refused_as_a_whole(machine, batch):
    """Nothing of it is stored, and no number is lost."""
    store = machine.open(max_message_size=2000)
    assert machine.finish(store.put_batch(batch)) == PutMessageResult(ILLEGAL)
    assert store.log.max_offset == 0
    assert machine.finish(store.put_batch(batch_of((0, b"x", "")))).append.queue_offset == 0


@pytest.mark.parametrize(("more", "status"), [(0, OK), (1, ILLEGAL)])
def test_a_batch_of_the_greatest_size_is_taken(machine, more, status):
    """The producer counts 22 bytes and the body for each member, and stays below just that."""
    store = machine.open(max_message_size=2000)
    batch = batch_of((0, b"x" * 978, ""), (0, b"x" * (978 + more), ""))
    assert machine.finish(store.put_batch(batch)).status is status


def test_delayed_messages_wait_in_the_schedule_topic(machine, message):
    """The level is capped, the target kept in properties; when due it is in its topic."""
    store = machine.open()
    first, second, third = put(
        store,
        message(b"later", queue_id=2, DELAY="2", WAIT="true"),
        message(b"much later", DELAY="99"),
        message(b"now", DELAY="0"),
    )
    assert first.append.queue_offset == 0
    record = decode_record(store.record_at(first.append.physical_offset))
    assert (record.topic, record.queue_id) == ("SCHEDULE_TOPIC_XXXX", 1)
    assert record.properties == {
        "DELAY": "2",
        "WAIT": "true",
        "REAL_TOPIC": "TopicA",
        "REAL_QID": "2",
    }
    record = decode_record(store.record_at(second.append.physical_offset))
    assert (record.queue_id, record.properties["DELAY"]) == (17, "18")
    assert decode_record(store.record_at(third.append.physical_offset)).topic == "TopicA"
    machine.turn()
    ((_, _, due),) = store.queues.queue("SCHEDULE_TOPIC_XXXX", 1).units(0, 1)
    assert due == first.append.store_timestamp + 2000
    assert store.max_offset_in_queue("TopicA", 2) == 0
    machine.clock.advance(2.1)
    machine.turn(5)
    found = store.get_message("g", "TopicA", 2, 0, 32, None)
    assert decode_record(found.messages[0]).body == b"later"
    assert store.runtime_info()["scheduleMessageOffset_2"] == "1,1"


def test_statuses_of_disk_and_replica_are_combined(machine, message):
    """The replica's word overrides the disk's; who does not wait is told PUT_OK."""
    store = machine.open(flush_disk_type=FlushDiskType.SYNC_FLUSH, sync_flush_timeout=100)
    machine.worker.later = True
    replica = Deferred()
    for answer, wanted in (
        (OK, PutMessageStatus.FLUSH_DISK_TIMEOUT),
        (PutMessageStatus.SLAVE_NOT_AVAILABLE, PutMessageStatus.SLAVE_NOT_AVAILABLE),
        (replica, PutMessageStatus.FLUSH_SLAVE_TIMEOUT),
    ):
        store.journal.replicated_by(Replication(answer))
        results = []
        store.put_many([message(), message(b"x" * 70000)], results.extend)
        assert results == []
        machine.clock.advance(0.2)
        if answer is replica:
            assert results == []
            replica.callback(PutMessageStatus.FLUSH_SLAVE_TIMEOUT)
        assert [result.status for result in results] == [wanted, ILLEGAL]
        assert put(store, message(wait=False))[0].status is OK
    machine.worker.later = False
    machine.worker.work()


def test_each_message_of_a_run_has_its_own_status(machine, message):
    """When a slave acknowledged a part in time, that part is PUT_OK."""
    store = machine.open()
    late = Deferred()
    replication = Replication(late)
    store.journal.replicated_by(replication)
    results = []
    store.put_many([message(), message(), message()], results.extend)
    replication.acknowledged = store.log.max_offset // 3 * 2
    late.callback(PutMessageStatus.FLUSH_SLAVE_TIMEOUT)
    timeout = PutMessageStatus.FLUSH_SLAVE_TIMEOUT
    assert [result.status for result in results] == [OK, OK, timeout]


def test_replication_lives_with_the_store(machine, message):
    """Started, told once a turn, stopped."""
    store = machine.load()
    replication = Replication(OK)
    store.journal.replicated_by(replication)
    machine.finish(store.start())
    machine.turn()
    assert replication.calls == ["start", "appended"]
    put(store, message())
    put(store, message())
    machine.turn()
    machine.stop(store)
    assert replication.calls[2:] == ["appended", "stop"]


def test_arrivals_are_told_after_dispatch(machine, message):
    """Whoever waits for a message hears of it when it can be read; a failing listener is logged."""
    store = machine.open()
    heard = []

    def listen(requests):
        heard.append((len(requests), store.max_offset_in_queue("TopicA", 0)))
        raise ValueError("a listener's mistake")

    store.on_arrival(listen)
    put(store, message(), message())
    machine.turn()
    assert heard == [(2, 2)]
    put(store, message())
    machine.turn()
    assert heard == [(2, 2), (1, 3)]


def test_everybody_who_asked_hears_of_arrivals(machine, message):
    store = machine.open()
    heard = [], []
    for listener in heard:
        store.on_arrival(listener.extend)
    put(store, message(), message())
    machine.turn()
    assert [[row[6] for row in listener] for listener in heard] == [[0, 1]] * 2


def test_times_of_what_is_not_there(machine, message):
    """-1 is "unknown" to RocketMQ's tools."""
    store = machine.open()
    put(store, message())
    machine.turn()
    assert store.offset_by_time("nobody's", 0, 5) == 0
    assert store.store_timestamp_at("nobody's", 0, 0) == -1
    assert store.store_timestamp_at("TopicA", 0, 1) == -1
    store.log.recovered(0, 0)  # the queue is ahead of the log, as after a crash
    assert store.store_timestamp_at("TopicA", 0, 0) == -1


def test_extra_dispatchers(machine, message):
    """A plugin sees every record; its failure does not hold up the queues."""
    store = machine.open()

    class Plugin:
        seen = 0

        def dispatch(self, requests):
            self.seen += len(requests)
            raise ValueError("a plugin's mistake")

    plugin = Plugin()
    store.on_arrival(plugin.dispatch)
    put(store, message(), message())
    machine.turn()
    assert plugin.seen == 2
    assert store.max_offset_in_queue("TopicA", 0) == 2


def test_who_may_not_put(machine, message):
    """Before the start, on a slave, and after the stop puts are refused with the reason."""
    store = machine.load()
    assert put(store, message()) == [PutMessageResult(REFUSED)]
    assert "not started" in store.why_not_writable()
    assert store.get_message("g", "TopicA", 0, 0, 1, None) is None
    machine.finish(store.start())
    assert store.is_writable
    machine.stop(store)
    assert put(store, message()) == [PutMessageResult(REFUSED)]
    assert machine.finish(store.put_batch(batch_of((0, b"", "")))) == PutMessageResult(REFUSED)
    slave = machine.open(broker_role=BrokerRole.SLAVE)
    assert put(slave, message()) == [PutMessageResult(REFUSED)]
    assert "slave" in slave.why_not_writable()


@pytest.mark.real_disk
def test_one_store_at_a_time(machine):
    """A second one is refused, and does not harm the first."""
    machine.load()
    for _ in range(2):
        with pytest.raises(StoreLocked, match="another broker"):
            machine.load()


@pytest.mark.real_disk
def test_two_stores_never_share_a_log(machine):
    """Another store may name the folder of this one's log; it starts when the first is closed."""
    first = machine.open(store_path_commit_log=f"{machine.root}/one")
    root, shared = machine.root, f"{machine.root}/one"
    machine.root = f"{root}/other"
    for _ in range(2):
        with pytest.raises(StoreLocked, match=f"{shared} is locked: another broker has this"):
            machine.load(store_path_commit_log=shared)
    machine.finish(first.stop())
    machine.load(store_path_commit_log=shared)


def test_no_store_is_made_in_the_folder_of_a_log(machine, message):
    """Files beside those of the log would keep the log's own store from opening."""
    store = machine.open()
    put(store, message())
    machine.finish(store.stop())
    whole, machine.root = machine.root, f"{machine.root}/commitlog"
    before = machine.disk.list_dir(machine.root)
    with pytest.raises(StoreError, match="storePathRootDir has to name the folder above"):
        machine.load()
    assert machine.disk.list_dir(machine.root) == before
    machine.root = whole
    machine.open()


def test_settings_that_cannot_be_served(machine):
    """The start stops, with the key and the reason."""
    with pytest.raises(ConfigurationError, match="enableDLegerCommitLog=true"):
        DefaultMessageStore(machine.host, machine.configuration(enable_dleger_commit_log=True))


def test_another_file_size(machine, message):
    """The store is not touched, and not left locked."""
    store = machine.open()
    put(store, message())
    machine.stop(store)
    with pytest.raises(StoreError, match="65536 bytes"):
        machine.load(mapped_file_size_commit_log=131072)
    machine.open()


class FullDisk:
    """Makes pwrite fail from some byte on."""

    def __init__(self, monkeypatch, error=errno.ENOSPC):
        self.room = None
        write = SimFile.pwrite

        def pwrite(file, data, position):
            if self.room is not None and "commitlog" in file._path:
                part = data[: self.room]
                write(file, part, position)
                self.room -= len(part)
                if len(part) < len(data):
                    raise OSError(error, "No space left on device")
            else:
                write(file, data, position)

        monkeypatch.setattr(SimFile, "pwrite", pwrite)


def test_a_full_disk(machine, message, monkeypatch):
    """Nothing half-written is ever seen; the reason is kept; with room again, puts go on."""
    disk = FullDisk(monkeypatch)
    store = machine.open()
    put(store, message(b"before"))
    end = store.log.max_offset
    disk.room = 1500
    results = put(store, message(b"x" * 1000), message(b"x" * 1000))
    assert [result.status for result in results] == [REFUSED, REFUSED]
    assert store.log.max_offset == end
    assert "No space left" in store.why_not_writable()
    assert put(store, message()) == [PutMessageResult(REFUSED)]
    machine.turn()
    assert store.max_offset_in_queue("TopicA", 0) == 1
    disk.room = None
    machine.clock.advance(11)
    (result,) = put(store, message(b"after"))
    assert (result.append.physical_offset, result.append.queue_offset) == (end, 1)
    machine.crash(store)
    again = machine.open()
    assert again.log.max_offset == result.append.next_offset


def test_nothing_of_a_write_that_failed_stays_behind_the_end(machine, message, monkeypatch):
    """A later, shorter record would else be followed by the rest of a message that was refused."""
    disk = FullDisk(monkeypatch)
    store = machine.open()
    put(store, message(b"before"))
    end = store.log.max_offset
    disk.room = 700
    assert put(store, message(b"x" * 1000)) == [PutMessageResult(REFUSED)]
    assert not any(machine.disk.content(store.log.row.path(0))[end:])


def test_everybody_hears_of_an_append(machine, message):
    """Replication, dispatch and whoever else: in the order in which they asked."""
    store = machine.open()
    heard = []
    for name in "abc":
        store.log.subscribe(lambda name=name: heard.append(name))
    put(store, message())
    assert heard == ["a", "b", "c"]


def test_a_full_disk_in_the_middle_of_a_group(machine, message, monkeypatch):
    """What went into the first file is stored, the rest is refused and keeps no number."""
    disk = FullDisk(monkeypatch)
    store = machine.open()
    put(store, message(b"x" * 40000))
    disk.room = 30000
    results = put(store, *[message(b"y" * 10000) for _ in range(4)])
    assert [result.status for result in results] == [OK, OK, REFUSED, REFUSED]
    assert store.log.max_offset == 65536
    disk.room = None
    machine.clock.advance(11)
    assert put(store, message())[0].append.queue_offset == 3


def test_a_broken_disk_is_for_good(machine, message, monkeypatch):
    """Another error than a full disk does not go away by itself."""
    disk = FullDisk(monkeypatch, errno.EIO)
    store = machine.open()
    disk.room = 10
    assert put(store, message()) == [PutMessageResult(REFUSED)]
    disk.room = None
    machine.clock.advance(30)
    assert put(store, message()) == [PutMessageResult(REFUSED)]


def test_a_file_that_cannot_be_made(machine, message, monkeypatch):
    """CREATE_MAPEDFILE_FAILED, and the records before it stay."""
    store = machine.open()
    put(store, message(b"x" * 60000))
    store.log.drop_spare()

    def refuse(path, size):
        raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(machine.disk, "open", refuse)
    results = put(store, message(b"fits"), message(b"x" * 10000))
    assert [result.status for result in results] == [
        OK,
        PutMessageStatus.CREATE_MAPEDFILE_FAILED,
    ]


def test_time_never_goes_back(machine, message):
    """A clock set back does not make store timestamps fall, not even over a restart."""
    store = machine.open()
    (first,) = put(store, message())
    machine.now_ms -= 3_600_000
    (second,) = put(store, message())
    assert second.append.store_timestamp == first.append.store_timestamp
    machine.turn()
    machine.stop(store)
    again = machine.open()
    (third,) = put(again, message())
    assert third.append.store_timestamp == first.append.store_timestamp


def test_topics_that_are_gone(machine, message):
    """Their queues are removed, the schedule topic's stay; numbering starts again."""
    store = machine.open()
    put(store, message(), message(topic="Gone"), message(DELAY="5"))
    machine.turn()
    assert store.clean_unused_topics({"TopicA"}) == 1
    assert store.max_offset_in_queue("Gone", 0) == 0
    assert store.max_offset_in_queue("SCHEDULE_TOPIC_XXXX", 4) == 1
    assert put(store, message(topic="Gone"))[0].append.queue_offset == 0


def test_runtime_info(machine, message):
    """Strings all, with the keys that mqadmin reads."""
    store = machine.open()
    put(store, message())
    machine.turn()
    for _ in range(22):
        machine.clock.advance(1)
    info = store.runtime_info()
    assert all(isinstance(value, str) for value in info.values())
    assert (info["dispatchBehindBytes"], info["pageCacheLockTimeMills"]) == ("0", "0")
    for key in (
        "putTps",
        "getTransferedTps",
        "pageCacheLockTimeMills",
        "earliestMessageTimeStamp",
        "commitLogDiskRatio",
        "msgPutTotalYesterdayMorning",
        "msgPutTotalTodayMorning",
        "msgPutTotalTodayNow",
        "msgGetTotalYesterdayMorning",
        "msgGetTotalTodayMorning",
        "msgGetTotalTodayNow",
        "commitLogMinOffset",
        "commitLogMaxOffset",
        "dispatchBehindBytes",
        "remainHowManyDataToFlush",
        "consumeQueueDiskRatio",
        "commitLogDirCapacity",
        "runtime",
    ):
        assert key in info, key
    assert float(info["putTps"].split()[0]) == 0.0
    machine.disk.usage = lambda path: None
    assert store.runtime_info()["commitLogDirCapacity"] == "Total : 0 B, Free : 0 B."
    assert info["msgPutTotalTodayNow"] == "1"


def test_two_directories(machine, message):
    """Files alternate between the directories, whichever comes first."""
    paths = f"{machine.root}/a,{machine.root}/b"
    store = machine.open(store_path_commit_log=paths)
    for _ in range(4):
        put(store, message(b"x" * 40000))
    machine.turn()
    assert machine.disk.list_dir(f"{machine.root}/a") == [
        f"{0:020d}",
        f"{131072:020d}",
        f"{262144:020d}",
    ]
    assert machine.disk.list_dir(f"{machine.root}/b") == [f"{65536:020d}", f"{196608:020d}"]
    machine.stop(store)
    again = machine.open(store_path_commit_log=f"{machine.root}/b,{machine.root}/a")
    assert again.log.max_offset == store.log.max_offset
    for queue_offset in range(4):
        assert again.get_message("g", "TopicA", 0, queue_offset, 1, None).messages


def test_a_stop_leaves_no_timer(machine, message):
    """Also not the turn of what was put just before."""
    store = machine.open()
    machine.clock.advance(5)
    results = []
    store.put_many([message()], results.extend)
    stopped = store.stop()
    machine.finish(stopped)
    assert machine.clock.getDelayedCalls() == []
    assert machine.open().max_offset_in_queue("TopicA", 0) == 1


def test_a_stop_waits_for_all_that_the_worker_does_for_it(simulated, message):
    """Progress, log, queues, checkpoint: whichever thread is late, nobody has the store before."""
    machine, late, is_held = simulated, 0, True
    while is_held:
        store = machine.open()
        put(store, message(DELAY="1"), message())
        machine.clock.pump([0.1] * 30)
        store.deleted.is_dirty = True  # as after a disk that refused
        machine.worker.later = True
        done, held, calls = [], [], 0
        store.stop().addCallback(done.append)
        for _ in range(20):
            if machine.worker.queue and calls == late:
                held.append(machine.worker.queue.pop(0))
            calls += len(machine.worker.queue) + len(held)
            machine.worker.work()
            machine.clock.advance(0.01)
        assert bool(done) is not bool(held), f"the stop did not wait for {held}"
        machine.worker.later = False
        for function, args, later in held:
            later.callback(function(*args))
        machine.clock.advance(0.01)
        assert done
        late, is_held = late + 1, bool(held)
    assert late > 4


def test_stopped_before_it_started(machine, message):
    """What was loaded is let go; the next start repairs, as nothing was caught up."""
    store = machine.open()
    put(store, message())
    machine.turn()
    machine.stop(store)
    loaded = machine.load()
    machine.stop(loaded)
    machine.stop(loaded)
    again = machine.open()
    assert again.max_offset_in_queue("TopicA", 0) == 1


def test_stopped_while_it_started(machine, message):
    """A start that is still catching up gives up and opens nothing."""
    store = machine.open(message_index_enable=False, mapped_file_size_commit_log=1 << 23)
    for _ in range(100):
        put(store, *[message() for _ in range(200)])
        machine.turn()
    machine.stop(store)
    machine.disk.remove_tree(f"{machine.root}/consumequeue")
    again = machine.load(message_index_enable=False, mapped_file_size_commit_log=1 << 23)
    failures = []
    again.start().addErrback(failures.append)
    machine.stop(again)
    machine.turn()
    assert failures[0].check(StoreError)
    assert again.dispatcher.bytes_behind > 0, "it went on to the end first"
    assert not again.is_open


def test_a_start_that_fails(machine, message):
    """Replication cannot listen: the start fails, a stop releases everything."""
    store = machine.load()
    replication = Replication(OK)

    def start():
        raise OSError("port in use")

    replication.start = start
    store.journal.replicated_by(replication)
    with pytest.raises(OSError, match="port in use"):
        machine.finish(store.start())
    machine.stop(store)
    assert replication.calls == ["stop"]
    assert machine.clock.getDelayedCalls() == []
    machine.open()


def test_queues_without_a_topic_are_named(machine, message):
    """A damaged topics.json is seen at the start, not when a consumer finds nothing."""
    store = machine.open()
    put(store, message(topic="Lost"), message(topic="Known"))
    machine.turn()
    lines = []
    globalLogPublisher.addObserver(lines.append)
    try:
        store.tell_unused_topics({"Known"})
        store.tell_unused_topics({"Known", "Lost"})
    finally:
        globalLogPublisher.removeObserver(lines.append)
    assert [line["topics"] for line in lines if "topics" in line] == ["Lost"]


def test_a_queue_that_was_built_again_is_named(machine, message):
    """With what it lacked and what it has now: an operator hears that its files were gone."""
    store = machine.open()
    put(store, *[message(topic="Lost") for _ in range(3)], message(topic="Kept"))
    machine.turn()
    machine.stop(store)
    machine.disk.remove_tree(f"{machine.root}/consumequeue/Lost")
    lines = []
    globalLogPublisher.addObserver(lines.append)
    try:
        store = machine.open()
    finally:
        globalLogPublisher.removeObserver(lines.append)
    assert store.max_offset_in_queue("Lost", 0) == 3
    told = [line for line in lines if "what it lacks was taken" in line.get("log_format", "")]
    assert [(line["topic"], line["queue_id"], line["low"], line["high"]) for line in told] == [
        ("Lost", 0, 0, 3)
    ]
    assert told[0]["why"] == "is gone, and ended at 3"


def test_a_store_that_was_only_loaded_is_not_closed_as_a_clean_one(machine, message):
    """Nothing was dispatched: the next start has to look for itself. Nobody else is stopped."""
    store = machine.open()
    put(store, message())
    machine.crash(store)
    loaded = machine.load()
    loaded.journal.replicated_by(replication := Replication(OK))
    machine.turn()
    machine.stop(loaded)
    assert machine.disk.exists(f"{machine.root}/abort")
    assert replication.calls == []
    assert machine.open().max_offset_in_queue("TopicA", 0) == 1


def test_messages_of_several_levels_that_come_together_are_delivered(machine, message):
    """Each level is told of its own; one that was not would sleep until its next message."""
    store = machine.open()
    machine.clock.advance(1.1)  # all levels have looked, and sleep
    put(store, *[message(b"%d" % level, DELAY=str(level)) for level in (1, 2, 3)])
    for seconds, count in ((1.5, 1), (1, 2), (9, 3)):
        machine.turn()
        machine.clock.advance(seconds)
        machine.turn(20)
        assert store.max_offset_in_queue("TopicA", 0) == count


def test_a_store_changes_sides(machine, message):
    """As a slave it takes no puts and waits for what it cannot read; as a master it skips that."""
    store = machine.open()
    put(store, message())
    machine.turn()
    end = store.log.max_offset
    store.configuration.store.broker_role = BrokerRole.SLAVE
    assert put(store, message()) == [PutMessageResult(REFUSED)]
    store.log.append_raw(end, b"\xff" * 200)
    machine.turn(5)
    assert store.dispatcher.position == end
    ask = ("g", "TopicA", 0, 99, 1, None)
    assert store.get_message(*ask).next_begin_offset == 99
    store.configuration.store.broker_role = BrokerRole.SYNC_MASTER
    store.dispatcher.run()
    machine.turn(5)
    assert store.dispatcher.position > end
    assert store.get_message(*ask).next_begin_offset == 1


def test_numbers_of_a_queue_that_is_gone_are_given_again(machine, message):
    """They come from what is on the disk, and from nothing that was known before."""
    store = machine.open()
    put(store, message(), message(topic="B"))
    machine.turn()
    store.queues.remove_queue("TopicA", 0)
    store.renumber()
    found = [put(store, message(topic=topic))[0].append.queue_offset for topic in ("TopicA", "B")]
    assert found == [0, 1]


@pytest.mark.parametrize("is_batch", [False, True])
@pytest.mark.parametrize(
    ("took", "is_busy"), [(1.0, False), (1.5, True), (9_999.0, True), (10_000.0, False)]
)
def test_a_slow_write_keeps_others_away(simulated, message, is_batch, took, is_busy):
    """For osPageCacheBusyTimeOutMills; hours are no slow disk, but a machine that slept."""
    machine, store = simulated, simulated.open()
    machine.clock.advance(1)

    def slow(operation, path):
        if operation == "pwrite" and "/commitlog/" in path:
            machine.clock.rightNow += took

    machine.disk.fault = slow
    if is_batch:
        store.put_batch(batch_of((0, b"", "")))
    else:
        put(store, message())
    assert store.is_page_cache_busy() is is_busy
    machine.clock.rightNow += 0.999
    assert store.is_page_cache_busy() is is_busy
    machine.clock.rightNow += 0.001
    machine.disk.fault = lambda operation, path: None
    assert put(store, message())[0].status is OK
    assert not store.is_page_cache_busy()


def test_no_dispatcher_speaks_for_another(machine, message):
    """The mistake of one does not keep the records from the next."""
    store = machine.open()
    seen = []

    class Plugin:
        def dispatch(self, requests):
            seen.append(self)
            raise ValueError("a plugin's mistake")

    for _ in range(2):
        store.on_arrival(Plugin().dispatch)
    put(store, message())
    machine.turn()
    assert len(set(seen)) == 2
    assert store.dispatcher.bytes_behind == 0


def test_new_lives_that_a_start_finds_are_told_once(machine, message):
    """Each with the number behind all that consumers may have read."""
    store = machine.open()
    put(store, message(), message(), message(topic="B"))
    machine.turn()
    told = []
    store.on_new_life = lambda *life: told.append(life)
    store.is_open = False
    store.queues.restarted("TopicA", 0, 0)
    store.queues.restarted("B", 0, 0)
    assert told == []
    store.is_open = True
    for _ in range(2):
        store.tell_new_lives()
    assert sorted(told) == [("B", 0, 1), ("TopicA", 0, 2)]


def test_the_oldest_message_is_told_from_the_size_of_two(machine, message):
    store = machine.open()
    put(store, message(b"one"))
    store.configuration.store.max_message_size = store.log.max_offset // 2
    assert store.earliest_message_time() == machine.now_ms
    store.configuration.store.max_message_size = store.log.max_offset // 2 + 1
    assert store.earliest_message_time() == -1


def test_the_oldest_message_of_a_log_that_begins_late(machine, message):
    """Its size counts, not its place."""
    store = machine.open(mapped_file_size_commit_log=4096)
    for _ in range(5):
        put(store, message(b"x" * 3000))
    store.log.drop_oldest(3)
    store.configuration.store.max_message_size = 4000
    assert store.earliest_message_time() == -1


def test_the_store_waits_for_its_replication_to_end(machine, message):
    """Nothing of the log is closed while a slave or master still works on it."""
    store = machine.open()
    stopped = Deferred()
    replication = Replication(OK)
    replication.stop = lambda: stopped
    store.journal.replicated_by(replication)
    machine.finish(store.journal.start())
    done = store.stop()
    machine.clock.advance(1.0)
    assert not done.called
    assert machine.disk.exists(f"{machine.root}/abort")
    stopped.callback(None)
    machine.finish(done)
    assert not machine.disk.exists(f"{machine.root}/abort")


def test_each_delay_level_is_told(machine, message):
    store = machine.open()
    put(store, message(b"one", DELAY="1"), message(b"two", DELAY="2"), message(b"2", DELAY="2"))
    machine.turn()
    machine.clock.advance(2.1)
    machine.turn(5)
    info = store.schedule.runtime_info()
    assert info == {"scheduleMessageOffset_1": "1,1", "scheduleMessageOffset_2": "2,2"}


def test_when_a_message_was_stored_that_is_not_there(machine, message):
    store = machine.open(message_index_enable=False)
    put(store, message(b"one"))
    machine.turn()
    assert store.store_timestamp_at("TopicA", 0, 1) == -1
    assert store.store_timestamp_at("None", 0, 0) == -1
    store.queues.queue("TopicA", 0).mend(0, (store.log.max_offset - 10, 100, 0))
    assert store.store_timestamp_at("TopicA", 0, 0) == -1
    for more, known in ((0, True), (1, False)):  # it is there as a whole, or not
        store.queues.queue("TopicA", 0).mend(0, (0, store.log.max_offset + more, 0))
        assert (store.store_timestamp_at("TopicA", 0, 0) > 0) is known
    store.queues.queue("TopicA", 0).mend(0, (store.log.max_offset, 100, 0))
    assert store.store_timestamp_at("TopicA", 0, 0) == -1
    assert store.query("TopicA", "k", 9, 0, 1 << 60) == ([], 0, 0), "there is no index"


def test_whoever_counts_deliveries_is_told_of_each(machine, message):
    store = machine.open()
    told = []
    store.schedule.on_delivered = lambda level, messages, results: told.append(
        (level, [item.body for item in messages], [result.status for result in results])
    )
    put(store, message(b"one", DELAY="1"), message(b"two", DELAY="1"))
    machine.turn()
    machine.clock.advance(1.1)
    machine.turn(5)
    assert told == [(1, [b"one", b"two"], [PutMessageStatus.PUT_OK] * 2)]


@pytest.mark.parametrize("more", [0, 1])
def test_properties_may_have_all_the_room_that_there_is(machine, message, more):
    store = machine.open(mapped_file_size_commit_log=1 << 20)
    text = "K\x01" + "v" * (MAX_PROPERTIES_SIZE - 2 + more)
    (result,) = put(store, replace(message(b"x"), properties={}, properties_string=text))
    assert (result.status is PutMessageStatus.PUT_OK) is not bool(more)


def test_what_an_answer_may_hold_is_read_in_slices(machine, message, monkeypatch):
    """All of it, in the order of the log, up to the last that fits."""
    store = machine.open(mapped_file_size_commit_log=1 << 20)
    found = put(store, *[message(b"%d" % number * 100, KEYS="k") for number in range(20)])
    machine.turn()
    sizes = [result.append.size for result in found]
    assert len(set(sizes[:10])) == 1
    monkeypatch.setattr("rmq_ha.server.store.reading.reads._READ_AT_ONCE", 1)
    asked = ("TopicA", "k", 32, 0, 1 << 60)
    places = [result.append.physical_offset for result in found]
    assert store.query(*asked).records == [store.record_at(place) for place in places]
    for more in (0, -1):
        monkeypatch.setattr("rmq_ha.server.store.reading.reads._MAX_ANSWER", sum(sizes[-3:]) + more)
        assert len(store.query(*asked).records) == 3 + more


def test_whether_a_message_is_in_memory(machine, message):
    store = machine.open()
    put(store, message(b"one"), message(b"two"))
    machine.turn()
    ratio = store.configuration.store.access_message_in_memory_max_ratio / 100
    store._memory_bytes = store.log.max_offset / ratio
    assert not store.is_in_disk("TopicA", 0, 0)
    store._memory_bytes = (store.log.max_offset - 1) / ratio
    assert store.is_in_disk("TopicA", 0, 0)
    assert not store.is_in_disk("TopicA", 0, 1)
    assert not store.is_in_disk("TopicA", 0, 2)
    assert store.min_offset_in_queue("None", 0) == 0


def test_long_turns_are_told_to_those_who_send_one_after_the_other(machine, message):
    """As an overload: what they sent waited for the turns of others."""
    store = machine.open()
    machine.turn()
    machine.clock.advance(64)
    for _ in range(3):
        assert store.waited_ms("client", 2) == 0
        put(store, message())
        machine.clock.advance(0.5)
    assert store.waited_ms("client", 2) == 500


def test_what_a_start_built_is_flushed(simulated, message):
    """Also where nothing comes after it."""
    machine = simulated
    store = machine.open()
    put(store, *[message(b"%d" % number) for number in range(9)])
    machine.turn()
    machine.finish(store.stop())
    path = f"{machine.root}/consumequeue/TopicA/0/{0:020d}"
    machine.disk.remove(path)
    machine.disk.remove(f"{machine.root}/queueEnds")
    store = machine.open()
    assert store.max_offset_in_queue("TopicA", 0) == 9
    for _ in range(100):
        machine.clock.advance(0.1)
    assert machine.disk.is_safe(path)


@pytest.mark.parametrize("kind", list(FlushDiskType))
def test_nothing_is_timed_any_more_after_a_stop(machine, message, kind):
    store = machine.open(flush_disk_type=kind)
    store.put_many([message(b"one"), message(b"two", DELAY="1")], lambda results: None)
    machine.turn()
    machine.finish(store.stop())
    assert machine.clock.getDelayedCalls() == []
