"""Stores that Java left behind, cleanly or not. Spec: store.md, sections 5.4 and 15.1."""

import hashlib
import json
import os
from errno import ENOSPC
from random import Random
from zlib import crc32

import pytest
from twisted.logger import capturedLogs, formatEvent

from rmq_ha.base.errors import StoreError
from rmq_ha.base.model.status import BrokerRole, GetMessageStatus
from rmq_ha.base.store_format.checkpoint import CheckpointTimes
from rmq_ha.base.store_format.commitlog import decode_record, encode_blank
from rmq_ha.server.store.local.rebuild import QueueRebuild
from rmq_ha.server.store.log.recovery import LogRecovery
from rmq_ha.server.store.queues.ends import QueueEnd, QueueEnds
from rmq_ha.testing.disk import SimDisk
from tests.unit.server.store.lookup import query

SLAVE = {"broker_role": BrokerRole.SLAVE}
FAR = 1 << 62


def sizes(root):
    found = {}
    for directory, _, names in os.walk(root):
        for name in names:
            path = os.path.join(directory, name)
            found[os.path.relpath(path, root)] = os.path.getsize(path)
    return found


def read_log(store):
    """All records by the queues' way: offset to record."""
    records = {}
    for (_, _), queue in store.queues.items():
        for phy, size, _ in queue.units(0, 10000):
            records[phy] = store.record_at(phy, size)
    return records


def compare(store, expected, queue_bounds=True):
    assert store.log.min_offset == expected["commitLogMinOffset"]
    assert store.log.max_offset == expected["commitLogMaxOffset"]
    for wanted in expected["records"]:
        data = store.record_at(wanted["offset"])
        assert data is not None
        assert hashlib.sha256(data).hexdigest() == wanted["recordSha256"]
    for name, wanted in expected["queues"].items():
        topic, _, queue_id = name.rpartition("-")
        queue = store.queues.get(topic, int(queue_id))
        if queue is None:
            assert wanted["maxOffset"] == 0, name
            continue
        assert queue.max_offset == wanted["maxOffset"], name
        assert queue.min_offset == wanted["minOffset"], name
        units = []
        while len(units) < queue.max_offset:
            units += queue.units(len(units), 1000)
        assert [list(unit) for unit in units] == wanted["entries"], name
    for key, offsets in expected["keyLookups"].items():
        topic, _, text = key.partition("#")
        found, _, _ = query(store.index, topic, text, 64, 0, FAR)
        assert list(dict.fromkeys(found)) == list(dict.fromkeys(offsets)), key


@pytest.mark.parametrize(
    ("archive", "expectation"),
    [
        ("clean", "clean.expected"),
        ("killed", "killed.recovered"),
        ("torn", "torn.recovered"),
    ],
)
@pytest.mark.real_disk
def test_java_stores(machine, java, archive, expectation):
    """Bounds, records, queues and look-ups are what Java makes of the same store; so are the
    files that are left after a clean stop, and the checkpoint."""
    java.unpack(archive, machine.root)
    expected = json.loads((java.fixtures / f"{expectation}.json").read_text())
    store = machine.open(**SLAVE)
    compare(store, expected)
    machine.stop(store)
    left = sizes(machine.root)
    wanted = expected.get("filesAfterCleanShutdown", expected["filesBeforeOpen"])
    wanted = {path: size for path, size in wanted.items() if not path.startswith("index/")}
    assert "abort" not in left
    assert {path: size for path, size in left.items() if not path.startswith("index/")} == {
        **wanted,
        "lock": 4,
        "queueEnds": left["queueEnds"],
    }
    again = machine.open(**SLAVE)
    compare(again, expected)


def overwrite(machine, offset, data):
    """Other bytes on the disk, in the first file of the log."""
    file = machine.disk.open(f"{machine.root}/commitlog/{0:020d}", 65536)
    file.pwrite(data, offset)
    file.sync()


def fill(machine, store, count, message, size=1000, **put):
    results = []
    for number in range(count):
        body = number.to_bytes(4, "big") * (size // 4)
        store.put_many(
            [message(body, queue_id=number % 3, KEYS=f"k{number}", **put)], results.extend
        )
        machine.now_ms += 10
        machine.turn()
    return results


def test_ours_after_a_clean_stop(machine, message):
    """What was put is there, numbering goes on, the spare file is gone, `abort` as well."""
    store = machine.open()
    assert machine.disk.exists(f"{machine.root}/abort")
    results = fill(machine, store, 150, message)
    machine.turn(10)
    end = store.log.max_offset
    assert len(store.log.row.starts) == end // 65536 + 2
    machine.stop(store)
    assert not machine.disk.exists(f"{machine.root}/abort")
    again = machine.open()
    assert again.log.max_offset == end
    assert len(again.log.row.starts) == end // 65536 + 1
    for number, result in enumerate(results):
        record = decode_record(again.record_at(result.append.physical_offset))
        assert record.body == number.to_bytes(4, "big") * 250
        assert record.queue_offset == result.append.queue_offset == number // 3
    more = fill(machine, again, 3, message)
    assert [item.append.queue_offset for item in more] == [50, 50, 50]


@pytest.mark.parametrize("lost", ["nothing", "checkpoint", "queues", "index", "everything else"])
def test_ours_after_a_crash(machine, message, lost):
    """Whatever of queues, index and checkpoint a crash takes: the log brings it back."""
    store = machine.open()
    fill(machine, store, 150, message)
    machine.clock.advance(2)
    fill(machine, store, 30, message)
    machine.turn(10)
    end = store.log.max_offset
    machine.crash(store)
    wanted = {"nothing": [], "queues": ["consumequeue"], "everything else": None}.get(lost, [lost])
    for name in ["consumequeue", "index", "checkpoint"] if wanted is None else wanted:
        path = f"{machine.root}/{name}"
        machine.disk.remove(path) if name == "checkpoint" else machine.disk.remove_tree(path)
    again = machine.open()
    assert again.log.max_offset == end
    assert [again.max_offset_in_queue("TopicA", queue_id) for queue_id in range(3)] == [60] * 3
    seen = 0
    for queue_id in range(3):
        offset = 0
        while (found := again.get_message("g", "TopicA", queue_id, offset, 32, None)).messages:
            assert found.status is GetMessageStatus.FOUND
            for data in found.messages:
                assert decode_record(data).queue_offset == offset
                offset += 1
                seen += 1
    assert seen == 180
    if lost != "index":
        assert len(again.query("TopicA", "k29", 32, 0, FAR).records) in (1, 2)


def test_a_torn_record_goes_with_its_entries(machine, message):
    """Half of the last record is zero: log and queues end before it, and the next put is there."""
    store = machine.open()
    results = fill(machine, store, 10, message)
    machine.turn()
    last = results[-1].append
    machine.crash(store)
    path = f"{machine.root}/commitlog/{0:020d}"
    overwrite(machine, last.physical_offset + last.size // 2, bytes(last.size))
    again = machine.open()
    assert again.log.max_offset == last.physical_offset
    assert again.max_offset_in_queue("TopicA", 0) == 3
    assert not any(machine.disk.read_bytes(path)[last.physical_offset :])
    assert machine.disk.is_safe(path), "a second crash would show the old bytes in new messages"
    assert fill(machine, again, 1, message)[0].append == last._replace(
        store_timestamp=again.log.last_store_timestamp
    )


def test_nothing_vouches_for_the_time_of_a_torn_record(machine, message):
    """What comes in its place may be as old, and is not on the disk yet (seed 236554)."""
    store = machine.open()
    kept = fill(machine, store, 1, message)[-1].append
    machine.clock.advance(5)
    last = fill(machine, store, 1, message)[-1].append
    assert last.store_timestamp > kept.store_timestamp
    machine.crash(store)
    overwrite(machine, last.physical_offset + last.size - 3, bytes(3))  # of its properties
    again = machine.load()
    assert again.log.max_offset == last.physical_offset
    assert again.log.last_store_timestamp == kept.store_timestamp
    assert again.checkpoint.logics == kept.store_timestamp


def test_stale_records_behind_the_end_stay_dead(machine, message):
    """A record that lies where it was not written is no record (store.md, section 5.6)."""
    store = machine.open()
    results = fill(machine, store, 4, message)
    machine.stop(store)
    first, third = results[0].append, results[2].append
    data = machine.disk.read_bytes(f"{machine.root}/commitlog/{0:020d}")[: first.size]
    overwrite(machine, third.physical_offset, data)
    with pytest.raises(StoreError, match="keepDamagedLog=false"):
        machine.open(verify_log_at_start=True)
    again = machine.open(verify_log_at_start=True, keep_damaged_log=False)
    assert again.log.max_offset == third.physical_offset


def test_a_record_that_would_end_behind_its_file_is_none(machine, message):
    """The end of the log is before it; a start that waited for the rest of it would never end."""
    store = machine.open()
    results = fill(machine, store, 4, message)
    machine.stop(store)
    end = results[-1].append.next_offset
    head = machine.disk.read_bytes(f"{machine.root}/commitlog/{0:020d}")[:92]
    overwrite(machine, end, b"\0\1\0\0" + head[4:28] + end.to_bytes(8, "big") + head[36:])
    again = machine.open(verify_log_at_start=True)
    assert again.log.max_offset == end


def test_damage_in_a_body_of_a_cleanly_closed_log(machine, message):
    """When it is wanted, the CRC is checked in the last three files, as in Java; what is behind is
    not given up as easily."""
    store = machine.open()
    results = fill(machine, store, 4, message)
    machine.stop(store)
    third = results[2].append
    overwrite(machine, third.physical_offset + 100, b"\xff")
    for settings in ({}, {"verify_log_at_start": True, "check_crcon_recover": False}):
        unchecked = machine.open(**settings)
        assert unchecked.log.max_offset == results[3].append.next_offset
        machine.stop(unchecked)
    with pytest.raises(StoreError, match="1 whole messages follow"):
        machine.open(verify_log_at_start=True)
    again = machine.open(verify_log_at_start=True, keep_damaged_log=False)
    assert again.log.max_offset == third.physical_offset
    assert again.max_offset_in_queue("TopicA", 0) == 1


@pytest.mark.parametrize("lost", ["queues", "one queue"])
def test_a_clean_stop_after_which_queues_vanished(machine, message, lost):
    """The log brings them back."""
    store = machine.open()
    results = fill(machine, store, 9, message)
    machine.stop(store)
    path = "/TopicA/2" if lost == "one queue" else ""
    machine.disk.remove_tree(f"{machine.root}/consumequeue{path}")
    again = machine.open()
    assert again.log.max_offset == results[-1].append.next_offset
    assert [again.max_offset_in_queue("TopicA", queue_id) for queue_id in range(3)] == [3, 3, 3]


def test_a_queue_that_could_not_be_built_anew_is_tried_again(machine, message):
    """A disk that fails for a while: dispatching begins where the queue lacks something."""
    store = machine.open()
    fill(machine, store, 9, message)
    machine.stop(store)
    machine.disk.remove_tree(f"{machine.root}/consumequeue/TopicA/1")
    machine.disk.fault = lambda operation, path: (
        ENOSPC if operation == "pwrite" and "TopicA/1/" in path else None
    )
    again = machine.open()
    assert again.max_offset_in_queue("TopicA", 1) == 0
    machine.disk.fault = lambda operation, path: None
    machine.clock.pump([1] * 12)
    counts = [again.max_offset_in_queue("TopicA", queue_id) for queue_id in range(3)]
    assert counts == [3, 3, 3]


def test_a_queue_with_more_than_there_was_at_the_clean_stop(machine, message):
    """What somebody copied there points nowhere: its number belongs to the next message."""
    store = machine.open()
    fill(machine, store, 9, message)
    machine.stop(store)
    file = machine.disk.open(f"{machine.root}/consumequeue/TopicA/1/{0:020d}", 800)
    file.pwrite(file.pread(20, 40), 60)
    file.close()
    again = machine.open()
    assert again.max_offset_in_queue("TopicA", 1) == 3
    results = []
    again.put_many([message(b"new", queue_id=1)], results.extend)
    machine.turn()
    assert results[0].append.queue_offset == 3
    assert len(again.get_message("g", "TopicA", 1, 0, 32, None).messages) == 4


@pytest.mark.parametrize("damaged", [[4], [7], [4, 7], [1, 4, 7]])
def test_numbers_of_lost_messages_are_not_given_again(machine, message, damaged):
    """A queue is gone, and the log has lost records of it: consumers are beyond these numbers."""
    store = machine.open()
    results = fill(machine, store, 9, message)
    machine.stop(store)
    machine.disk.remove_tree(f"{machine.root}/consumequeue/TopicA/1")
    for number in damaged:
        overwrite(machine, results[number].append.physical_offset, bytes(8))
    again = machine.open()
    assert again.max_offset_in_queue("TopicA", 1) == 3
    machine.stop(again)
    again = machine.open()
    results = []
    again.put_many([message(b"new", queue_id=1)], results.extend)
    machine.turn()
    assert results[0].append.queue_offset == 3
    found, offset = [], 0
    while offset < 4:
        pulled = again.get_message("g", "TopicA", 1, offset, 32, None)
        found += [decode_record(data).queue_offset for data in pulled.messages]
        assert pulled.next_begin_offset > offset
        offset = pulled.next_begin_offset
    assert found == [n for n in range(4) if 3 * n + 1 not in damaged]


@pytest.mark.parametrize("last", [None, (700, 130)])
def test_notes_of_a_clean_stop_are_read_as_they_were_written(last):
    """Whole, or not at all."""
    ends = QueueEnds(65536, 70000, last, {("T", 3): QueueEnd(40, 55, 69000)})
    data = ends.encode()
    assert QueueEnds.decode(data) == ends
    assert all(QueueEnds.decode(data[:size]) is None for size in range(len(data)))
    assert QueueEnds.decode(data.replace(b"69000", b"69001")) is None


@pytest.fixture
def asked(monkeypatch):
    """What of the log is read for queues that lack something."""
    found = []
    need = QueueRebuild._need
    monkeypatch.setattr(QueueRebuild, "_need", lambda *args: (found.append(args), need(*args)))
    return found


def test_a_store_that_is_whole_costs_no_start(machine, message, asked):
    """Nothing is compared with the log but the ends, which are as they were noted."""
    store = machine.open()
    fill(machine, store, 150, message)
    store.queues.queue("Unused", 0)
    for _ in range(2):
        machine.stop(store)
        store = machine.open()
    assert [store.max_offset_in_queue("TopicA", queue_id) for queue_id in range(3)] == [50] * 3
    assert not asked


def test_a_queue_that_has_grown_since_the_stop_costs_no_start_after_a_crash(
    machine, message, asked
):
    """The notes are old then: there may be more than they say."""
    store = machine.open()
    fill(machine, store, 9, message)
    machine.stop(store)
    store = machine.open()
    for _ in range(3):
        machine.now_ms += 10_000
        fill(machine, store, 60, message)
    machine.clock.pump([1] * 12)
    machine.crash(store)
    again = machine.open()
    assert [again.max_offset_in_queue("TopicA", queue_id) for queue_id in range(3)] == [63] * 3
    assert not asked


@pytest.mark.parametrize("change", ["first", "end", "reached"])
def test_a_queue_that_is_not_as_it_was_noted_is_built_anew(machine, message, asked, change):
    """Whichever of its ends it is: what is missing comes from the log."""
    store = machine.open(mapped_file_size_consume_queue=200)
    fill(machine, store, 60, message)
    machine.stop(store)
    folder = f"{machine.root}/consumequeue/TopicA/1"
    if change == "first":
        machine.disk.remove(f"{folder}/{0:020d}")
    else:
        path = f"{folder}/{200:020d}"
        data = machine.disk.read_bytes(path)
        unit = bytes(20) if change == "end" else data[160:180]
        machine.disk.damage(path, data[:180] + unit)
    again = machine.load(mapped_file_size_consume_queue=200)
    lives = []
    again.on_new_life = lambda *key: lives.append(key)
    machine.finish(again.start())
    assert (len(asked), lives) == (1, [])
    found = [again.queues.get("TopicA", 1).units(number, 1)[0][0] for number in range(20)]
    assert found == sorted(set(found))


@pytest.mark.parametrize("has_notes", [True, False])
@pytest.mark.parametrize(
    "lost", [(0, 600), (0, 400), (0, 200)], ids=["both ends", "a gap", "the first two"]
)
def test_a_queue_that_has_lost_its_beginning_and_more_is_whole_again(
    machine, message, has_notes, lost
):
    """What its end lacks is not all: messages of its beginning would be out of reach for ever."""
    store = machine.open(mapped_file_size_consume_queue=200)
    fill(machine, store, 120, message)
    machine.stop(store)
    for start in lost:
        machine.disk.remove(f"{machine.root}/consumequeue/TopicA/1/{start:020d}")
    if not has_notes:
        machine.disk.remove(f"{machine.root}/queueEnds")
    again = machine.open(mapped_file_size_consume_queue=200)
    assert again.min_offset_in_queue("TopicA", 1) == 0
    assert again.max_offset_in_queue("TopicA", 1) == 40


def check_rebuilt(machine, first, end):
    """Of a stopped store's queue of 20 messages some units are lost, and the notes of the stop."""
    machine.disk.remove(f"{machine.root}/queueEnds")
    path = f"{machine.root}/consumequeue/TopicA/1/{0:020d}"
    data = machine.disk.read_bytes(path)
    machine.disk.damage(path, data[: 20 * first] + bytes(20 * (end - first)) + data[20 * end :])
    again = machine.open()
    assert again.max_offset_in_queue("TopicA", 1) == 20
    assert machine.disk.read_bytes(path) == data


def test_a_queue_that_is_cut_in_the_middle_is_built_anew_without_notes(
    machine, message, monkeypatch
):
    """Java leaves none; and the log's end, which is looked at, has nothing of an old topic."""
    monkeypatch.setattr("rmq_ha.server.store.local.rebuild._LOOK_BACK", 2000)
    store = machine.open()
    fill(machine, store, 60, message)
    fill(machine, store, 9, message, topic="Newer")
    machine.stop(store)
    check_rebuilt(machine, 12, 13)


def test_a_queue_that_was_deleted_costs_no_start_after_a_crash(machine, message, asked):
    """What the last clean stop noted of it is history: all of the log was read for it."""
    store = machine.open()
    fill(machine, store, 9, message)
    machine.stop(store)
    store = machine.open()
    store.clean_unused_topics([])
    machine.clock.pump([1] * 13)
    machine.crash(store)
    again = machine.open()
    assert again.max_offset_in_queue("TopicA", 1) == 0
    assert not asked


def test_a_queue_that_was_deleted_costs_no_start_of_a_store_that_java_stopped(
    machine, message, asked
):
    """The log has its messages, and Java leaves no note of ends."""
    store = machine.open()
    fill(machine, store, 9, message)
    store.clean_unused_topics([])
    machine.clock.pump([1] * 13)
    machine.stop(store)
    machine.disk.remove(f"{machine.root}/queueEnds")
    again = machine.open()
    assert again.queues.get("TopicA", 1) is None
    assert not asked


@pytest.mark.parametrize("damaged", range(5))
def test_the_last_three_files_are_verified(machine, message, damaged):
    """As RocketMQ does; the others were, at starts before."""
    store = machine.open(mapped_file_size_commit_log=16384)
    results = fill(machine, store, 70, message)
    machine.stop(store)
    assert len(store.log.row.starts) == 5
    first = next(r.append for r in results if r.append.physical_offset >= damaged * 16384)
    path = f"{machine.root}/commitlog/{damaged * 16384:020d}"
    file = machine.disk.open(path, 16384)
    file.pwrite(b"\xff", first.physical_offset % 16384 + 200)
    file.sync()
    settings = {"mapped_file_size_commit_log": 16384, "verify_log_at_start": True}
    if damaged < 2:
        assert machine.open(**settings).log.max_offset == results[-1].append.next_offset
        return
    with pytest.raises(StoreError, match=f"damaged at {first.physical_offset}"):
        machine.open(**settings)


def test_two_files_are_verified_from_the_first_one_on(machine, message):
    """There are no three."""
    store = machine.open(mapped_file_size_commit_log=16384)
    fill(machine, store, 20, message)
    machine.stop(store)
    assert len(store.log.row.starts) == 2
    file = machine.disk.open(f"{machine.root}/commitlog/{0:020d}", 16384)
    file.pwrite(b"\xff", 200)
    file.sync()
    with pytest.raises(StoreError, match="damaged at 0,"):
        machine.open(mapped_file_size_commit_log=16384, verify_log_at_start=True)


def test_where_reading_begins_after_a_crash(machine, message):
    """At the last file of which the checkpoint vouches for the first record, however old it is."""
    machine.now_ms = 1
    store = machine.open(mapped_file_size_commit_log=16384)
    recovery = LogRecovery(store.log, True)
    assert recovery.first_unsure(9) == 0
    results = []
    for stamp in (1, 1, 5):
        machine.now_ms = stamp
        store.put_many([message(b"x" * 10_000)], results.extend)
    assert [recovery.begun_at(start) for start in store.log.row.starts[:3]] == [1, 1, 5]
    found = [recovery.first_unsure(stamp) for stamp in (0, 1, 4, 5, 6)]
    assert found == [0, 16384, 16384, 2 * 16384, 2 * 16384]


def test_a_clean_log_is_read_from_the_first_place_that_fits(machine, message):
    """Of those that are said to have the last record: a wrong one costs nothing but a look."""
    store = machine.open()
    results = fill(machine, store, 9, message)
    recovery = LogRecovery(store.log, True)
    last = results[-1].append.physical_offset, results[-1].append.size
    for wrong in ((3, 50), (last[0], last[1] + 1), (1 << 30, 100), None):
        found = recovery.normal(wrong, last)
        assert (found.end, found.records) == (results[-1].append.next_offset, 1)
    assert recovery.normal(None).records == 9


def test_a_queue_that_was_there_at_the_clean_stop_before_the_crash(machine, message, monkeypatch):
    """Nothing near the ends of the log is of it; the notes of that stop know it."""
    monkeypatch.setattr("rmq_ha.server.store.local.rebuild._LOOK_BACK", 2000)
    settings = {"mapped_file_size_commit_log": 16384}
    store = machine.open(**settings)
    for topic, count in (("Other", 20), ("TopicA", 15), ("Other", 20)):
        machine.now_ms += 10_000
        fill(machine, store, count, message, topic=topic)
    machine.stop(store)
    store = machine.open(**settings)
    machine.now_ms += 10_000
    fill(machine, store, 40, message, topic="Other")
    machine.clock.pump([1] * 70)
    machine.crash(store)
    machine.disk.remove_tree(f"{machine.root}/consumequeue/TopicA/0")
    again = machine.open(**settings)
    queue = again.queues.get("TopicA", 0)
    assert (queue.first_offset, queue.max_offset) == (0, 5)


def test_what_every_crash_leaves_of_the_queues_is_not_said(machine, message):
    """They are cut and written anew; nothing was missing."""
    store = machine.open()
    fill(machine, store, 9, message)
    machine.stop(store)
    store = machine.open()
    fill(machine, store, 3, message)
    machine.crash(store)
    with capturedLogs() as lines:
        again = machine.open()
    assert again.max_offset_in_queue("TopicA", 1) == 4
    assert [formatEvent(line) for line in lines if "what it lacks" in formatEvent(line)] == []


def test_a_queue_that_a_crash_lost_is_built_anew_before_it_goes_on(machine, message, monkeypatch):
    """Its messages are far from where a start looks; only the next one shows that they lack."""
    monkeypatch.setattr("rmq_ha.server.store.local.rebuild._LOOK_BACK", 2000)
    settings = {"mapped_file_size_commit_log": 16384}
    store = machine.open(**settings)
    for topic, count in (("Other", 20), ("TopicA", 15), ("Other", 40)):
        machine.now_ms += 10_000
        fill(machine, store, count, message, topic=topic)
    machine.now_ms += 10_000
    machine.clock.pump([1] * 70)
    sure = store.log.max_offset
    fill(machine, store, 20, message, topic="Other")
    fill(machine, store, 1, message)
    machine.crash(store)
    machine.disk.remove_tree(f"{machine.root}/consumequeue/TopicA/0")
    safe = []
    begin_again = QueueRebuild.begin_again
    monkeypatch.setattr(
        QueueRebuild, "begin_again", lambda self, at: (safe.append(at), begin_again(self, at))
    )
    again = machine.open(**settings)
    assert 20_000 < safe[0] <= sure
    queue = again.queues.get("TopicA", 0)
    assert (queue.first_offset, queue.max_offset) == (0, 6)
    places = [queue.units(number, 1)[0][0] for number in range(6)]
    assert places == sorted(set(places))


@pytest.mark.parametrize("file_size", [16384, 1 << 19])
def test_a_lost_queue_is_seen_wherever_a_start_looks(machine, message, file_size):
    """In the middle of many files, and of many messages of one; nothing notes what there was."""
    settings = {"mapped_file_size_commit_log": file_size}
    store = machine.open(**settings)
    others = [message(b"", topic="Other") for _ in range(2500)]
    for messages in (others, [message(b"") for _ in range(5)], others, others, others):
        store.put_many(messages, lambda results: None)
        machine.now_ms += 10_000
        machine.turn(20)
    machine.clock.pump([1] * 70)
    machine.crash(store)
    machine.disk.remove_tree(f"{machine.root}/consumequeue/TopicA/0")
    queue = machine.open(**settings).queues.get("TopicA", 0)
    assert (queue.first_offset, queue.max_offset) == (0, 5)


def test_a_queue_of_very_many_messages_is_built_anew(machine, message):
    """Piece by piece, and all of it."""
    store = machine.open(mapped_file_size_commit_log=1 << 20)
    store.put_many([message(b"") for _ in range(2500)], lambda results: None)
    store.put_many([message(b"", queue_id=1)], lambda results: None)  # is whole, to the end
    machine.turn(20)
    machine.stop(store)
    machine.disk.remove_tree(f"{machine.root}/consumequeue/TopicA/0")
    again = machine.open(mapped_file_size_commit_log=1 << 20)
    size = store.log.max_offset // 2501
    queue = again.queues.get("TopicA", 0)
    places = [queue.units(number, 1)[0][0] for number in range(2500)]
    assert places == list(range(0, 2500 * size, size))


@pytest.mark.parametrize("ending", ["stop", "crash"])
def test_files_of_a_queue_that_hold_nothing_go(machine, message, ending):
    """Lost power leaves such; what comes next begins where it would have begun."""
    store = machine.open()
    fill(machine, store, 3, message)
    getattr(machine, ending)(store)
    folder = f"{machine.root}/consumequeue/TopicB/0"
    for start in (800, 1600):
        machine.disk.replace(f"{folder}/{start:020d}", bytes(800))
    again = machine.open()
    assert machine.disk.list_dir(folder) == []
    fill(machine, again, 1, message, topic="TopicB")
    assert again.max_offset_in_queue("TopicB", 0) == 1


@pytest.mark.parametrize("end", ["stop", "crash"])
def test_an_index_that_is_damaged_is_built_from_where_the_log_begins(machine, message, end):
    """Not from a place that expired with the file that had it."""
    store = machine.open(mapped_file_size_commit_log=16384)
    fill(machine, store, 40, message)
    machine.stop(store) if end == "stop" else machine.crash(store)
    machine.disk.remove(f"{machine.root}/commitlog/{0:020d}")
    (name,) = machine.disk.list_dir(f"{machine.root}/index")
    path = f"{machine.root}/index/{name}"
    machine.disk.replace(path, machine.disk.read_bytes(path)[:-1])
    with capturedLogs() as lines:
        again = machine.open(mapped_file_size_commit_log=16384)
    texts = [formatEvent(line) for line in lines]
    assert any("taken from the log again, from 16384 on" in text for text in texts), texts
    assert len(again.query("TopicA", "k39", 9, 0, 1 << 62).records) == 1


def test_a_clean_stop_after_which_the_last_record_vanished(machine, message):
    """The stop said where the log ended: a master does not start without a word."""
    store = machine.open()
    results = fill(machine, store, 9, message)
    machine.stop(store)
    last = results[-1].append
    overwrite(machine, last.physical_offset, bytes(200))
    with pytest.raises(StoreError, match=f"{last.size} bytes are missing"):
        machine.open()
    again = machine.open(keep_damaged_log=False)
    assert again.log.max_offset == last.physical_offset
    counts = [again.max_offset_in_queue("TopicA", queue_id) for queue_id in range(3)]
    assert counts == [3, 3, 2]


def test_a_log_that_ends_in_a_blank(machine, message):
    """Without a next file the blank is not counted: it may be overwritten."""
    store = machine.open()
    results = fill(machine, store, 3, message)
    machine.stop(store)
    end = results[-1].append.next_offset
    overwrite(machine, end, encode_blank(65536 - end))
    again = machine.open()
    assert again.log.max_offset == end


def test_after_a_crash_the_checkpoint_vouches_for_all_that_was_put_into_the_queues(
    machine, message
):
    """Soon after the start, although nothing was put since: a second crash reads little."""
    store = machine.open()
    appended = fill(machine, store, 20, message)
    machine.crash(store)
    again = machine.open()
    newest = again.log.last_store_timestamp
    assert newest == appended[-1].append.store_timestamp
    for _ in range(130):
        machine.clock.advance(0.5)
    assert again.checkpoint.written.logics_msg_timestamp == newest


@pytest.mark.parametrize(
    ("settings", "sure"),
    [
        ({"message_index_safe": True}, 5000),
        ({"message_index_safe": False}, 7000),
        ({"message_index_safe": True, "message_index_enable": False}, 7000),
    ],
)
def test_a_crash_is_gone_behind_as_far_as_the_index_is_to_be_safe(machine, settings, sure):
    """`messageIndexSafe` asks for all keys; without it nobody waits for an index to be built."""
    store = machine.load(**settings)
    store.checkpoint.set(CheckpointTimes(10_000, 10_500, 5000, 1))
    assert store.sure_until_ms() == sure
    store.checkpoint.set(store.found_times)


@pytest.mark.parametrize("missing", [1, 3, 9])
@pytest.mark.parametrize("known", [0, 1, 2])
def test_a_slave_may_stop_within_the_properties_of_a_record(
    make_simulated, message, missing, known
):
    """No checksum covers them: what is left of the record looks whole."""
    source = make_simulated().open()
    results = []
    messages = [message(b"%d" % number, KEYS="order-789") for number in range(3)]
    source.put_many(messages, results.extend)
    data = source.log.read(0, source.log.max_offset)
    starts = [result.append.physical_offset for result in results]
    store = make_simulated().open(**SLAVE)
    store.log.append_raw(0, data[:-missing] + bytes(missing))
    assert decode_record(data[starts[2] : -missing] + bytes(missing), check_crc=True)
    recovery = LogRecovery(store.log, True)
    last = (starts[known], starts[1]) if known < 2 else None
    assert recovery.normal(last, dispatched=starts[known]).end == starts[2]
    assert recovery.normal(last, dispatched=len(data)).end == len(data), "it is known to be whole"


@pytest.mark.parametrize("settings", [{}, {"verify_log_at_start": True}])
def test_a_whole_record_with_odd_properties_stays(machine, message, settings):
    """The queues know it: it was whole."""
    store = machine.open()
    results = []
    store.put_many([message(b"odd", KEYS="zero\0")], results.extend)
    machine.turn()
    end = store.log.max_offset
    machine.stop(store)
    assert machine.open(**settings).log.max_offset == end


@pytest.mark.parametrize("seed", range(12))
def test_an_opened_store_is_not_clean_after_a_loss_of_power(machine, seed):
    """`abort` is on the disk before anything else: a crash must not pass for a clean stop."""
    machine.disk = SimDisk(Random(seed), lambda: machine.host.now_ms())
    machine.lose_power(machine.load())
    assert machine.disk.exists(f"{machine.root}/abort")


@pytest.mark.parametrize("lost", [1, 3, 19])
def test_a_queue_that_lacks_its_end_is_whole_again_without_notes(machine, message, lost):
    """Its last messages would be out of reach, and their numbers given to others."""
    store = machine.open()
    fill(machine, store, 60, message)
    machine.stop(store)
    check_rebuilt(machine, 20 - lost, 20)


def test_only_what_is_lacking_is_read_without_notes(machine, message, asked):
    store = machine.open()
    fill(machine, store, 9, message)
    machine.stop(store)
    machine.disk.remove(f"{machine.root}/queueEnds")
    machine.open()
    assert not asked


def test_a_record_that_is_longer_than_one_read(machine, message):
    """After a clean stop and after a crash."""
    store = machine.open(mapped_file_size_commit_log=8 << 20, max_message_size=4 << 20)
    results = []
    store.put_many([message(b"x" * (3 << 20)), message(b"next")], results.extend)
    machine.turn()
    end = store.log.max_offset
    assert LogRecovery(store.log, True).begun_at(0) == results[0].append.store_timestamp
    machine.stop(store)
    settings = {"mapped_file_size_commit_log": 8 << 20, "max_message_size": 4 << 20}
    store = machine.open(verify_log_at_start=True, **settings)
    assert store.log.max_offset == end
    machine.crash(store)
    assert machine.open(**settings).log.max_offset == end


def test_a_log_that_begins_later_than_at_its_clean_stop_says_so(machine, message):
    store = machine.open(mapped_file_size_commit_log=16384)
    fill(machine, store, 60, message)
    machine.stop(store)
    for is_gone in (False, True):
        if is_gone:
            machine.disk.remove(f"{machine.root}/commitlog/{0:020d}")
        with capturedLogs() as events:
            store = machine.open(mapped_file_size_commit_log=16384)
        told = [formatEvent(event) for event in events]
        said = [text for text in told if "was stopped: what lay between is gone" in text]
        assert bool(said) is is_gone
        if is_gone:
            assert said[0].startswith("the commit log begins at 16384, and began at 0 when")
        machine.stop(store)


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b"[]",
        b"{}",
        b'{"log":1}',
        b'{"log":[1],"last":[],"queues":{}}',
        b'{"log":[1,2],"last":[3],"queues":{}}',
        b'{"log":[1,2],"last":7,"queues":{}}',
        b'{"log":[1,2],"last":[],"queues":[]}',
        b'{"log":[1,2],"last":[],"queues":{"T":{"x":[0,1,2]}}}',
        b'{"log":[1,2],"last":[],"queues":{"T":{"0":[0,1]}}}',
        b'{"log":[1,2],"last":[],"queues":{"T":7}}',
    ],
)
def test_notes_that_are_not_what_we_write_are_none(text):
    """Whatever their checksum says: the start compares for itself then."""
    assert QueueEnds.decode(f"{crc32(text):08x}\n".encode() + text) is None


def test_a_clean_log_of_several_files_is_read_from_its_last_message(machine, message):
    """Not three files of it, which may be 3 GiB."""
    store = machine.open(mapped_file_size_commit_log=16384)
    results = fill(machine, store, 40, message)
    last = results[-1].append
    assert last.physical_offset > 16384
    found = LogRecovery(store.log, True).normal((last.physical_offset, last.size))
    assert (found.end, found.records) == (last.next_offset, 1)
