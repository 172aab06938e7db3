"""A store whose sealed files go into an object store: uploads, deletions, reads and roles."""

from random import Random

import pytest

from rmq_ha.base.errors import StoreError
from rmq_ha.base.model.status import BrokerRole, GetMessageStatus
from rmq_ha.base.store_format.commitlog import decode_record
from rmq_ha.server.broker.context import BrokerContext
from rmq_ha.server.tiered.blocks import BLOCK
from rmq_ha.server.tiered.objects import TierError
from rmq_ha.server.tiered.plugin import TierSettings, tier_of
from rmq_ha.testing.disk import SimDisk
from tests.unit.server.store.conftest import NOW_MS, Machine, make_message
from tests.unit.server.tiered.objects_in_memory import MemoryObjects

FILE = 65536
HOUR_MS = 3_600_000
SETTINGS = TierSettings("bucket", "messages", None, None, 0, 16 * BLOCK)


class TieredMachine(Machine):
    """A machine whose stores use one object store."""

    def __init__(self, objects=None, settings=SETTINGS):
        super().__init__("/store", SimDisk(Random(1), lambda: self.host.now_ms()))
        self.objects = objects or MemoryObjects()
        self.tier_settings = settings
        self.tier = None

    def load(self, **settings):
        store = super().load(**settings)
        configuration = store.configuration
        configuration.broker.broker_name = "broker-a"
        configuration.broker.broker_cluster_name = "C"
        context = BrokerContext(self.host, configuration, store.record_starting_at)
        self.tier = tier_of(context, store, self.tier_settings, self.objects)
        return store

    def put(self, store, count, topic="T", queue_id=0, size=1000, **properties):
        for number in range(count):
            body = b"%08d" % number + bytes(size)
            store.put_message(make_message(body, topic, queue_id, False, **properties))
        self.turn()

    def upload(self):
        """Let two rounds of the tier pass; the log is flushed before."""
        for _ in range(210):
            self.clock.advance(0.1)

    def expire(self, store):
        """Let all files expire, and delete them here."""
        self.now_ms += 100 * HOUR_MS
        store.clean_expired_files()
        self.finish(store._service.clean())

    def read_all(self, store, offset=0, topic="T", queue_id=0, most=32, filter=None):
        """Pull from a queue offset to the end; offsets of the messages."""
        found = []
        for _ in range(10_000):
            result = store.get_message("g", topic, queue_id, offset, most, filter)
            if result.later is not None:
                self.finish(result.later)
                continue
            found += [decode_record(record).queue_offset for record in result.messages]
            if result.next_begin_offset == offset and not result.messages:
                return found
            offset = result.next_begin_offset
        raise AssertionError("the queue does not end")


@pytest.fixture
def machine():
    made = TieredMachine()
    yield made
    for store in made.stores:
        store.close()


def kinds(objects, kind):
    return [int(key[-20:]) for key in sorted(objects.objects) if f"/{kind}/" in key]


def test_sealed_files_are_uploaded_and_the_last_one_is_not(machine):
    store = machine.open()
    machine.put(store, 200)
    machine.upload()
    sealed = [start for start in store.log.row.starts if start + FILE <= store.log.max_offset]
    assert len(sealed) >= 3
    for kind in ("log", "units", "segments"):
        assert kinds(machine.objects, kind) == sealed
    for start in sealed:
        key = f"messages/C/broker-a/log/{start:020d}"
        assert (
            machine.objects.objects[key] == machine.disk.content(store.log.row.path(start))[:FILE]
        )
    assert machine.tier.waiting() == 0


def test_messages_whose_files_are_deleted_here_are_read_from_the_tier(machine):
    store = machine.open()
    machine.put(store, 200)
    machine.put(store, 30, topic="U", queue_id=3)
    machine.upload()
    machine.expire(store)
    assert store.log.min_offset > 0
    queue = store.queues.get("T", 0)
    low = store._local_bounds("T", 0)[0]
    assert low > 100
    assert machine.read_all(store) == list(range(200))
    assert machine.read_all(store, topic="U", queue_id=3) == list(range(30))
    assert store.min_offset_in_queue("T", 0) == 0
    assert store.get_message("g", "T", 0, low, 32, None).min_offset == 0
    assert queue.max_offset == 200


def test_a_file_that_the_object_store_does_not_have_is_not_deleted(machine):
    store = machine.open()
    machine.put(store, 200)
    machine.objects.fails = "/units/"
    machine.upload()
    machine.expire(store)
    assert store.log.min_offset == 0
    assert machine.tier.failures > 0
    assert "no connection" in machine.tier.trouble
    assert machine.tier.waiting() == 3 * FILE
    machine.objects.fails = ""
    machine.upload()
    machine.expire(store)
    assert store.log.min_offset > 0
    assert machine.tier.trouble == ""
    assert machine.read_all(store) == list(range(200))


def test_a_failed_read_is_an_error_and_moves_no_offset(machine):
    store = machine.open()
    machine.put(store, 200)
    machine.upload()
    machine.expire(store)
    machine.objects.fails = "/log/"
    # The units come first, then the log.
    result = store.get_message("g", "T", 0, 5, 32, None)
    assert (result.status, result.next_begin_offset) == (GetMessageStatus.NO_MATCHED_MESSAGE, 5)
    machine.finish(result.later)
    result = store.get_message("g", "T", 0, 5, 32, None)
    with pytest.raises(TierError, match="no connection"):
        machine.finish(result.later)
    machine.objects.fails = ""
    assert machine.read_all(store, 5)[:3] == [5, 6, 7]


def test_wrong_bytes_in_the_object_store_are_not_given_to_consumers(machine):
    store = machine.open()
    machine.put(store, 200)
    machine.upload()
    machine.expire(store)
    key = f"messages/C/broker-a/log/{0:020d}"
    machine.objects.objects[key] = bytes(FILE)
    with pytest.raises(StoreError, match="does not have the message with queue offset 0"):
        machine.read_all(store)


def test_filters_by_tag_and_by_record_apply(machine):
    class OnlyB:
        def matches_unit(self, code):
            return code == hash_of_b

        def matches_extension(self, *unit):
            raise AssertionError

        def matches_record(self, record):
            return b"TAGS\x01b" in record

    store = machine.open()
    hash_of_b = ord("b")
    for number in range(200):
        tag = "b" if number % 50 == 7 else "a"
        store.put_message(make_message(bytes(1000), "T", 0, False, TAGS=tag))
    machine.turn()
    machine.upload()
    machine.expire(store)
    assert machine.read_all(store, filter=OnlyB()) == [7, 57, 107, 157]


def test_a_time_leads_to_the_segment_that_holds_it(machine):
    store = machine.open()
    times = []
    for _ in range(20):
        times.append(machine.host.now_ms())
        machine.put(store, 10)
        machine.clock.advance(60)
    machine.upload()
    machine.expire(store)
    low = store._local_bounds("T", 0)[0]
    for number, ms in enumerate(times):
        found = store.offset_by_time("T", 0, ms)
        assert found <= number * 10
        assert number * 10 - found <= FILE // 1000, "more than one file too early"
    assert store.offset_by_time("T", 0, 0) == 0
    assert store.offset_by_time("T", 0, machine.host.now_ms()) >= low


def test_a_topic_that_was_created_again_does_not_show_the_messages_of_its_first_life(machine):
    store = machine.open()
    machine.put(store, 150)
    machine.upload()
    store.clean_unused_topics(["U"])
    machine.put(store, 100)
    assert machine.read_all(store) == list(range(100))
    machine.put(store, 100)
    machine.upload()
    machine.expire(store)
    assert machine.read_all(store) == list(range(200))
    bodies = [
        decode_record(record) for record in store.get_message("g", "T", 0, 0, 1, None).messages
    ]
    assert bodies[0].physical_offset >= 150 * 1000


def test_queues_that_only_the_tier_has_messages_of_are_no_expired_queues(machine):
    store = machine.open()
    machine.put(store, 10, topic="Old")
    machine.put(store, 200)
    machine.upload()
    machine.expire(store)
    assert store.clean_expired_queues() == 0
    assert machine.read_all(store, topic="Old") == list(range(10))
    machine.put(store, 1, topic="Old")
    assert machine.read_all(store, topic="Old") == list(range(11))


def test_after_a_restart_the_catalogue_is_read_again(machine):
    store = machine.open()
    machine.put(store, 200)
    machine.upload()
    machine.expire(store)
    machine.stop(store)
    store = machine.open()
    machine.upload()
    assert machine.read_all(store) == list(range(200))


def test_before_the_catalogue_is_known_nothing_is_deleted_or_skipped(machine):
    store = machine.open()
    machine.put(store, 200)
    machine.upload()
    machine.stop(store)
    machine.objects.fails = "segments"
    store = machine.open()
    machine.expire(store)
    assert store.log.min_offset == 0
    assert machine.read_all(store) == list(range(200))


def test_old_segments_are_deleted_when_the_tier_keeps_hours(machine):
    machine.tier_settings = SETTINGS._replace(hours=200)
    store = machine.open()
    machine.put(store, 200)
    machine.upload()
    machine.expire(store)
    count = len(kinds(machine.objects, "segments"))
    machine.upload()
    assert len(kinds(machine.objects, "segments")) == count
    machine.now_ms += 150 * HOUR_MS
    machine.upload()
    gone = [key for key in machine.objects.objects if key.endswith(f"{0:020d}")]
    assert gone == []
    low = store.min_offset_in_queue("T", 0)
    assert low > 0
    result = store.get_message("g", "T", 0, 0, 32, None)
    assert (result.status, result.next_begin_offset) == (GetMessageStatus.OFFSET_TOO_SMALL, low)


def test_a_slave_reads_and_deletes_but_does_not_write(machine):
    store = machine.open()
    machine.put(store, 200)
    machine.upload()
    machine.stop(store)
    before = dict(machine.objects.objects)
    del machine.objects.objects[f"messages/C/broker-a/segments/{FILE * 2:020d}"]
    store = machine.open(broker_role=BrokerRole.SLAVE)
    machine.upload()
    assert f"messages/C/broker-a/segments/{FILE * 2:020d}" not in machine.objects.objects
    machine.expire(store)
    # It keeps the newest file of the tier, and what the master did not upload yet.
    assert store.log.min_offset == FILE
    machine.objects.objects.update(before)
    machine.upload()
    assert machine.read_all(store) == list(range(200))


def test_a_new_master_deletes_segments_whose_messages_were_lost(machine):
    other = TieredMachine(machine.objects)
    ahead = other.open()
    other.put(ahead, 200, size=1100)
    other.upload()
    count = len(kinds(machine.objects, "segments"))
    store = machine.open()
    machine.put(store, 70, size=1000)
    machine.upload()
    assert kinds(machine.objects, "segments") == [0]
    assert count > 2
    key = f"messages/C/broker-a/log/{0:020d}"
    assert machine.objects.objects[key] == machine.disk.content(store.log.row.path(0))[:FILE]
    for one in other.stores:
        one.close()


def test_reads_of_one_block_are_shared(machine):
    store = machine.open()
    machine.put(store, 200)
    machine.upload()
    machine.expire(store)
    machine.worker.later = True
    results = [store.get_message(f"g{number}", "T", 0, 0, 32, None) for number in range(5)]
    assert all(result.later is not None for result in results)
    machine.objects.gets.clear()
    machine.worker.work()
    assert len(machine.objects.gets) == 1
    machine.worker.later = False


def test_times_of_segments_are_those_of_their_messages(machine):
    store = machine.open()
    machine.put(store, 200)
    machine.upload()
    segment = machine.tier._catalogue.get(0)
    assert NOW_MS <= segment.first_ms <= segment.last_ms <= machine.host.now_ms()


def test_a_broker_that_stops_in_the_middle_of_an_upload_abandons_it(machine, monkeypatch):
    monkeypatch.setattr("rmq_ha.server.tiered.uploading.PART", 1000)
    store = machine.open()
    machine.put(store, 200)
    machine.worker.later = True
    for _ in range(300):
        machine.worker.work()
        machine.clock.advance(0.1)
        if any(machine.objects.uploads.values()):
            break
    (parts,) = machine.objects.uploads.values()
    assert 0 < len(parts) < FILE // 1000
    stopping = store.stop()
    for _ in range(60):
        machine.worker.work()
        machine.clock.advance(0.01)
    machine.worker.later = False
    machine.finish(stopping)
    assert machine.objects.uploads == {}
    assert machine.objects.objects == {}
