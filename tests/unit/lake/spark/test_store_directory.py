"""Stores that Java's broker left, read completely and compared with what Java says of them."""

import base64
import hashlib
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_ha.base.config.store import MessageStoreConfig
from rmq_ha.base.errors import CannotDecide
from rmq_ha.base.host.disk import RealDisk
from rmq_ha.base.host.files import LocalFiles
from rmq_ha.base.model.message import Address, BrokerMessage
from rmq_ha.base.store_format.consumequeue import FILLER, UNIT
from rmq_ha.base.store_format.index import IndexHeader, index_file_size, key_hash
from rmq_ha.base.wire.bodies import decode_offset_table
from rmq_ha.lake.scan.log.columns import COLUMNS
from rmq_ha.lake.scan.log.records import Records
from rmq_ha.lake.scan.store.directory import StoreDirectory, open_store, scan, scan_with_gaps
from rmq_ha.lake.scan.store.parts import Queue, StoredIndexFile
from rmq_ha.ops.offline.chain import Layout
from rmq_ha.ops.offline.queues import LogBounds, RowFile
from rmq_ha.server.dledger.classic import ClassicPart
from rmq_ha.server.dledger.commit_log import DLedgerCommitLog
from rmq_ha.server.dledger.ledger import Ledger
from rmq_ha.server.store.log.commitlog import CommitLog
from rmq_ha.server.store.log.files import FileRow
from tests.unit.lake.spark.golden_stores import FIXTURES, java_store, read_records, rows_of_log
from tests.unit.server.store.appends import append_group

NAMES = ("clean", "killed", "torn", "ext")
HOST = Address.parse("10.1.2.3", 10911)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: java_store(name, tmp_path_factory.mktemp(name)) for name in NAMES}


@pytest.fixture(params=NAMES)
def java(request: pytest.FixtureRequest, stores: dict[str, Path]) -> tuple[StoreDirectory, Any]:
    """A store, and what Java found in it; of the torn one what it found after a start."""
    name = request.param
    expected = "torn.recovered" if name == "torn" else f"{name}.expected"
    with (FIXTURES / f"{expected}.json").open() as file:
        return open_store(str(stores[name])), json.load(file)


def rows(store: StoreDirectory, split_size: int = 1 << 30) -> Iterator[dict[str, Any]]:
    for split in store.splits(split_size):
        for records in scan(store, split):
            yield from records.batch(COLUMNS, "b").to_pylist()


def stored(store: StoreDirectory) -> Iterator[Records]:
    for split in store.splits():
        yield from scan(store, split)


def bodies_of(records: Records) -> list[bytes]:
    """As they are stored."""
    places = zip(records.shape.body.tolist(), records.shape.body_end.tolist(), strict=True)
    return [bytes(records.buffer[start:end]) for start, end in places]


def test_every_record_is_as_java_says(java: tuple[StoreDirectory, Any]) -> None:
    """All fields; bodies as they are stored, by their hash."""
    store, expected = java
    bounds = expected["commitLogMinOffset"], expected["commitLogMaxOffset"]
    assert (store.min_offset(), store.max_offset()) == bounds
    found = list(rows(store))
    for row, java_row in zip(found, expected["records"], strict=True):
        for ours, theirs in [
            ("commitLogOffset", "physicalOffset"),
            ("storeSize", "size"),
            *[(name, name) for name in ("topic", "queueId", "queueOffset", "flag", "bodyCRC")],
            *[(name, name) for name in ("preparedTransactionOffset", "reconsumeTimes")],
        ]:
            assert row[ours] == java_row[theirs], ours
        assert dict(row["properties"]) == java_row["properties"]
        assert (row["tags"], row["keys"]) == (java_row["tags"] or None, java_row["keys"] or None)
        assert row["uniqKey"] == java_row["uniqKey"]
        assert row["msgId"] == (java_row["uniqKey"] or java_row["msgId"])
        for name in ("bornTimestamp", "storeTimestamp"):
            assert round(row[name].timestamp() * 1000) == java_row[name]
        assert row["crcOk"]
        assert row["brokerName"] == "b"
    bodies = [body for records in stored(store) for body in bodies_of(records)]
    for body, java_row in zip(bodies, expected["records"], strict=True):
        assert hashlib.sha256(body).hexdigest() == java_row["bodySha256"]
    ids = [text for records in stored(store) for text in records.offset_msg_id.to_pylist()]
    assert ids == [row["msgId"] for row in expected["records"]]


@pytest.mark.lake
def test_every_record_is_as_the_brokers_codec_says(java: tuple[StoreDirectory, Any]) -> None:
    """In one part and in many; nothing between the records is unexplained."""
    store, _ = java
    expected = rows_of_log(Path(store.root), "b") if "torn" not in store.root else None
    whole = list(rows(store))
    for row in whole:
        row["properties"] = dict(row["properties"])
    if expected is not None:
        assert whole == expected
    for split_size in (4096, 500):
        assert [row["commitLogOffset"] for row in rows(store, split_size)] == [
            row["commitLogOffset"] for row in whole
        ]
    found = [piece for split in store.splits() for piece in scan_with_gaps(store, split)]
    assert all(isinstance(piece, Records) for piece in found)


def test_queues_are_as_java_says(java: tuple[StoreDirectory, Any]) -> None:
    """Bounds and units; with extension files the hash that is looked up there."""
    store, expected = java
    names = {f"{topic}-{queue_id}" for topic, queue_id in store.topics_on_disk()}
    assert names == {name for name, queue in expected["queues"].items() if queue["entries"]}
    for topic, queue_id in store.topics_on_disk():
        java_queue = expected["queues"][f"{topic}-{queue_id}"]
        queue = store.queue(topic, queue_id)
        assert (queue.min_offset, queue.max_offset) == (
            java_queue["minOffset"],
            java_queue["maxOffset"],
        )
        units = queue.units(queue.min_offset, queue.max_offset)
        assert [list(unit) for unit in units.tolist()] == [
            entry[:3] for entry in java_queue["entries"]
        ]
        codes = queue.tags_codes(units).tolist()
        assert codes == [entry[3 if len(entry) > 3 else 2] for entry in java_queue["entries"]]
        assert queue.units(1, 0).tolist() == []


def test_records_are_read_where_queues_say(java: tuple[StoreDirectory, Any]) -> None:
    """In the queue's order; what is not there is left out."""
    store, _ = java
    for topic, queue_id in store.topics_on_disk():
        queue = store.queue(topic, queue_id)
        units = queue.units(queue.min_offset, queue.max_offset)
        records = read_records(store, units["offset"], units["size"])
        assert records.physical_offset.tolist() == units["offset"].tolist()
        assert set(records.topics().to_pylist()) == {topic}
        assert records.queue_id.tolist() == [queue_id] * len(units)
        backwards = read_records(store, units["offset"][::-1], units["size"][::-1])
        assert backwards.queue_offset.tolist() == records.queue_offset.tolist()[::-1]
    end = store.max_offset()
    missing = read_records(
        store, [0, 1, end, 1 << 50, -5, 0, 0], [300, 300, 300, 300, 300, -1, 1 << 30]
    )
    assert len(missing) <= 1


def test_index_files_lead_to_the_records(java: tuple[StoreDirectory, Any]) -> None:
    """The sizes are found out; chains from the slots lead where Java's lookups lead."""
    store, expected = java
    found: dict[str, set[int]] = {name: set() for name in expected["keyLookups"]}
    for index in store.index_files():
        entries = index.entries()
        assert len(entries.slot) == max(0, index.header.index_count - 1)
        if not len(entries.slot):
            continue
        assert (index.slots, index.items) == (50, 150)
        heads = index.slot_numbers(0, index.slots)
        for name in found:
            topic, _, key = name.partition("#")
            wanted = key_hash(topic, key)
            number = heads[wanted % index.slots]
            while number:
                if entries.hash[number - 1] == wanted:
                    found[name].add(int(entries.physical_offset[number - 1]))
                assert entries.slot[number - 1] == wanted % index.slots
                assert entries.previous[number - 1] < number
                number = int(entries.previous[number - 1])
        part = index.entries(2, 5)
        assert part.physical_offset.tolist() == entries.physical_offset[2:5].tolist()
    if "torn" not in store.root:  # its lookups are those after the last record was cut
        assert found == {name: set(places) for name, places in expected["keyLookups"].items()}


def test_index_sizes_that_do_not_fit_are_refused(stores: dict[str, Path], tmp_path: Path) -> None:
    """Neither guessed nor given."""
    wrong = open_store(str(stores["clean"]), index_sizes=(51, 150))
    with pytest.raises(CannotDecide, match="maxHashSlotNum and maxIndexNum"):
        wrong.index_files()
    right = open_store(str(stores["clean"]), index_sizes=(50, 150))
    assert [index.slots for index in right.index_files()] == [50] * 3
    log = tmp_path / "commitlog"
    log.mkdir()
    (log / f"{0:020d}").write_bytes(bytes(64))
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "20261121072300632").write_bytes(b"\1" * 3240)
    with pytest.raises(CannotDecide, match="give the broker's numbers"):
        open_store(str(tmp_path)).index_files()


def test_tables_checkpoint_and_abort(java: tuple[StoreDirectory, Any]) -> None:
    """As they were on the disk before anybody opened them."""
    store, expected = java
    if "checkpointOnDiskBeforeOpen" in expected and "torn" not in store.root:
        *times, flushed, confirmed = store.checkpoint() or ()
        assert times == expected["checkpointOnDiskBeforeOpen"]
        assert (flushed, confirmed) == (0, 0)  # 4.9.7 writes no more than the times
    assert store.abort is any(name in store.root for name in ("killed", "torn"))
    topics = store.topics()
    if "ext" in store.root.rsplit("/", 1)[-1]:
        return
    assert topics is not None
    assert topics.topics["TopicA"].read_queue_nums == 4
    for name in ("subscriptionGroup.json", "consumerOffset.json"):
        data = store.config(name)
        assert data is not None
        assert b"CG_fixture" in data
    assert store.config("delayOffset.json") is not None
    assert store.notes == []


def test_a_damaged_table_is_read_from_its_backup(stores: dict[str, Path], tmp_path: Path) -> None:
    """And it is said; with a damaged backup there is no answer. Spec: store.md, section 12.1."""
    store = open_store(str(stores["clean"]))
    store.root = str(tmp_path)
    config = tmp_path / "config"
    config.mkdir()
    path, backup = config / "consumerOffset.json", config / "consumerOffset.json.bak"

    def offsets() -> dict[str, dict[int, int]] | None:
        data = store.config("consumerOffset.json")
        return None if data is None else decode_offset_table(data)

    assert offsets() is None
    backup.write_bytes(b'{"offsetTable":{"T@G":{0:7}}}')
    assert offsets() == {"T@G": {0: 7}}
    assert "is missing; read" in store.notes[-1]
    path.write_bytes(b"")
    assert offsets() == {"T@G": {0: 7}}
    path.write_bytes(b'{"offsetTable":{"T@G":{0:')
    assert offsets() == {"T@G": {0: 7}}
    assert "is damaged" in store.notes[-1]
    backup.write_bytes(b"[")
    with pytest.raises(CannotDecide, match="copy the file from another replica"):
        store.config("consumerOffset.json")
    backup.unlink()
    path.write_bytes(b"")
    assert store.config("consumerOffset.json") is None


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_index_files_and_queues_never_hang(draw: st.DataObject) -> None:
    """They are read as they are, or refused with what to do."""
    count = draw.draw(st.integers(0, 20))
    header = IndexHeader(5, 9, draw.draw(st.sampled_from([0, 77])), 77, 3, count + 1).encode()
    data = bytearray(header.ljust(index_file_size(50, 40), b"\0"))
    for _ in range(draw.draw(st.integers(0, 5))):
        at = draw.draw(st.integers(0, len(data) - 8))
        data[at : at + 8] = draw.draw(st.binary(min_size=8, max_size=8))
    with TemporaryDirectory() as directory:
        path = f"{directory}/{0:020d}"
        Path(path).write_bytes(data)
        for sizes in (None, (50, 40)):
            try:
                index = StoredIndexFile(LocalFiles(), path, len(data), sizes)
            except CannotDecide:
                assert sizes is None
                continue
            assert len(index.entries().slot) == index.count < 40
        row = [RowFile(path, 0, len(data) // UNIT.size * UNIT.size)]
        queue = Queue(LocalFiles(), "T", 0, row, row, LogBounds(0, 500))
        assert 0 <= queue.min_offset <= queue.max_offset <= queue.written_offset <= 53
        units = queue.units(0, 100)
        assert len(queue.tags_codes(units)) == len(units)


# Queues of other shapes


def queue_of(directory: Path, *files: bytes, size: int = 800) -> StoreDirectory:
    """A store with one queue and a log of 1000 bytes that holds nothing."""
    log = directory / "commitlog"
    log.mkdir(parents=True)
    (log / f"{100:020d}").write_bytes(bytes(1000))
    place = directory / "consumequeue" / "T" / "3"
    place.mkdir(parents=True)
    (directory / "consumequeue" / "T" / "junk").mkdir()
    (directory / "consumequeue" / "file").write_bytes(b"")
    for number, data in enumerate(files):
        (place / f"{1600 + number * size:020d}").write_bytes(data.ljust(size, b"\0"))
    return open_store(str(directory))


def test_fillers_are_no_messages(tmp_path: Path) -> None:
    """A queue whose history this store never had. Spec: store.md, sections 3.2 and 3.3."""
    data = FILLER * 5 + UNIT.pack(100, 91, 1) + UNIT.pack(191, 91, 2)
    store = queue_of(tmp_path, data)
    store.__dict__["_max_offset"] = 1100
    queue = store.queue("T", 3)
    assert store.topics_on_disk() == [("T", 3)]
    assert (queue.min_offset, queue.max_offset) == (85, 87)
    store.__dict__["_max_offset"] = 200  # the second record is not there
    queue = store.queue("T", 3)
    assert (queue.min_offset, queue.max_offset, queue.written_offset) == (85, 86, 87)


def test_units_below_the_log_are_expired(tmp_path: Path) -> None:
    """Over several files; the range asked for may be any."""
    units = [UNIT.pack(20 * index, 20, index) for index in range(60)]
    store = queue_of(tmp_path, b"".join(units[:40]), b"".join(units[40:55]))
    store.__dict__["_max_offset"] = 1100
    queue = store.queue("T", 3)
    assert (queue.min_offset, queue.max_offset) == (85, 135)
    assert queue.units(118, 122)["tagsCode"].tolist() == [38, 39, 40, 41]
    assert len(queue.units(0, 1 << 40)) == 80


def test_a_queue_that_lacks_a_file_is_named(tmp_path: Path) -> None:
    """Between two others."""
    store = queue_of(tmp_path, b"", b"", b"")
    (tmp_path / "consumequeue" / "T" / "3" / f"{2400:020d}").unlink()
    with pytest.raises(CannotDecide, match="queue 3 of T lacks the file between"):
        store.queue("T", 3)


def test_a_queue_whose_files_have_parts_of_units_is_refused(tmp_path: Path) -> None:
    row = [RowFile("a", 0, 30), RowFile("b", 30, 30)]
    with pytest.raises(CannotDecide, match="a has 30 bytes, which are no whole units"):
        Queue(open_store_files(tmp_path), "T", 0, row)


def test_names_that_no_broker_gives_are_passed_over(tmp_path: Path) -> None:
    """Directories and files whose names look like numbers, and are none of a store's."""
    store = queue_of(tmp_path, UNIT.pack(0, 91, 1))
    for name in ("007", "99999999999", "\u0663"):
        (tmp_path / "consumequeue" / "T" / name).mkdir()
    (tmp_path / "commitlog" / ("9" * 20)).write_bytes(bytes(100))
    again = open_store(str(tmp_path))
    assert again.topics_on_disk() == store.topics_on_disk() == [("T", 3)]
    assert again.log_files() == store.log_files()


def test_a_queue_file_that_vanishes_is_named(tmp_path: Path) -> None:
    """Deleted by retention while it is read."""
    queue = Queue(open_store_files(tmp_path), "T", 0, [RowFile(str(tmp_path / "gone"), 0, 800)])
    with pytest.raises(CannotDecide, match="gone vanished"):
        queue.units(0, 5)


def test_a_queue_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """As one that belongs to another user."""
    (tmp_path / "mine").mkdir()
    queue = Queue(open_store_files(tmp_path), "T", 0, [RowFile(str(tmp_path / "mine"), 0, 800)])
    with pytest.raises(CannotDecide, match="mine cannot be read"):
        queue.units(0, 5)


def open_store_files(tmp_path: Path) -> Any:
    return queue_of(tmp_path / "other").files


# DLedger


def test_a_store_of_a_dledger(tmp_path: Path) -> None:
    """Ours, written by the real ledger; a classic log before it, as after an upgrade."""
    disk, size = RealDisk(), 8192
    ledger = Ledger(disk, str(tmp_path / "dledger-n0"), size, index_file_size=32 * 1024)
    ledger.load()
    config = MessageStoreConfig()
    classic = ClassicPart(CommitLog(config, FileRow(disk, [str(tmp_path / "none")], size), [1000]))
    log = DLedgerCommitLog(config, ledger, [1000], classic)

    class Leads:
        def term_to_append(self) -> int:
            return 3

    log.leadership = Leads()  # type: ignore[assignment]
    log.admits = True
    expected = []
    for index in range(60):
        message = BrokerMessage("T", 0, b"%03d" % index + b"x" * index * 7, HOST, HOST, 5)
        (result,) = append_group(log, [message], 1_700_000_000_000 + index)
        expected.append((result.physical_offset, message.body))
    store = open_store(str(tmp_path))
    assert store.layout is Layout.DLEDGER
    assert store.max_offset() == expected[-1][0] + result.size
    for split_size in (1 << 30, 3000, 100):
        found = [
            (int(place), bytes(body))
            for split in store.splits(split_size)
            for records in scan(store, split)
            for place, body in zip(records.physical_offset, records.bodies(), strict=True)
        ]
        assert found == expected
    again = pickle.loads(pickle.dumps(store))
    places = np.array([place for place, _ in expected])
    assert len(read_records(again, places, [result.size] * 60)) == 1
    assert (
        open_store(str(tmp_path), commit_log=str(tmp_path / "dledger-n0" / "data")).layout
        is Layout.DLEDGER
    )
    (tmp_path / "dledger-n1").mkdir()
    with pytest.raises(CannotDecide, match="several DLedger members"):
        open_store(str(tmp_path))


def test_the_recorded_bodies_are_the_bytes(stores: dict[str, Path]) -> None:
    """Short ones are in the expectations."""
    store = open_store(str(stores["clean"]))
    with (FIXTURES / "clean.expected.json").open() as file:
        expected = json.load(file)["records"]
    bodies = [body for records in stored(store) for body in bodies_of(records)]
    pairs = zip(bodies, expected, strict=True)
    known = [(bytes(body), row["bodyBase64"]) for body, row in pairs if row.get("bodyBase64")]
    assert known
    assert all(body == base64.b64decode(text) for body, text in known)
