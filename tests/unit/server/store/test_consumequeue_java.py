"""Consume queues and indexes beside the ones that Java's broker wrote."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.base.config.store import MessageStoreConfig
from rmq_ha.base.host.disk import RealDisk
from rmq_ha.base.model.message import DispatchRequest
from rmq_ha.base.model.status import GetMessageStatus
from rmq_ha.base.store_format.commitlog import BLANK, dispatch_request_at
from rmq_ha.server.store.index.index import IndexService
from rmq_ha.server.store.queues.table import ConsumeQueueTable
from rmq_ha.server.store.reading.damage import ReadDamage
from rmq_ha.server.store.reading.pulls import MessageReader
from tests.unit.server.store.lookup import query

FIXTURES = Path(__file__).parents[3] / "fixtures" / "store"
LOG_FILE = 65536
LEVELS = [1, 2, 10, 30, *(60 * n for n in range(1, 11)), 1200, 1800, 3600, 7200]


class FileLog:
    """Just enough of a commit log over a directory."""

    file_size = LOG_FILE
    min_offset = cuts = 0
    delay_levels = LEVELS

    def __init__(self, directory: Path, max_offset: int) -> None:
        self.max_offset = max_offset
        self._data = b"".join(path.read_bytes() for path in sorted(directory.iterdir()))

    def read(self, physical_offset: int, limit: int) -> bytes:
        end = physical_offset - physical_offset % LOG_FILE + LOG_FILE
        return self._data[physical_offset : min(physical_offset + limit, end, self.max_offset)]

    def requests(self) -> Iterator[DispatchRequest]:
        position = 0
        levels = [seconds * 1000 for seconds in LEVELS]
        while position < self.max_offset:
            end = position - position % LOG_FILE + LOG_FILE
            found = dispatch_request_at(self._data, position, min(end, self.max_offset), levels)
            if found == BLANK:
                position = end
            else:
                assert isinstance(found, DispatchRequest)
                yield found
                position += found.size


def unpack(name: str, directory: Path) -> Path:
    shutil.unpack_archive(FIXTURES / f"{name}.tar.gz", directory)
    return directory / name


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    return unpack("clean", tmp_path)


@pytest.fixture
def expected() -> dict[str, Any]:
    return json.loads((FIXTURES / "clean.expected.json").read_text())


@pytest.fixture
def log(clean: Path, expected: dict[str, Any]) -> FileLog:
    return FileLog(clean / "commitlog", expected["commitLogMaxOffset"])


def loaded(path: Path, last_exit_ok: bool = True) -> ConsumeQueueTable:
    table = ConsumeQueueTable(RealDisk(), str(path), 800)
    table.load()
    table.recover(last_exit_ok)
    return table


def describe(table: ConsumeQueueTable) -> dict[str, Any]:
    return {
        f"{topic}-{queue_id}": {
            "minOffset": queue.min_offset,
            "maxOffset": queue.max_offset,
            "maxPhysicOffset": queue.max_physical_offset,
            "entries": [
                list(unit)
                for offset in range(queue.min_offset, queue.max_offset)
                for unit in queue.units(offset, 1)
            ],
        }
        for (topic, queue_id), queue in table.items()
        if queue.max_offset
    }


@pytest.mark.parametrize("last_exit_ok", [True, False])
def test_queues_of_a_clean_store(clean: Path, expected: dict[str, Any], last_exit_ok: bool) -> None:
    """Every unit, bound and end is what Java saw; recovery changes no byte."""
    before = {path: path.read_bytes() for path in clean.rglob("consumequeue/*/*/*")}
    table = loaded(clean, last_exit_ok)
    table.correct_min_offsets(0)
    assert describe(table) == expected["queues"]
    table.close()
    assert {path: path.read_bytes() for path in clean.rglob("consumequeue/*/*/*")} == before


@pytest.mark.parametrize("at_once", [1, 7, 1000])
def test_rebuilt_queues_equal_javas_bytes(
    clean: Path, log: FileLog, tmp_path: Path, at_once: int
) -> None:
    """From the same log come the same files, whatever the size of the batches."""
    ours = tmp_path / "ours"
    table = ConsumeQueueTable(RealDisk(), str(ours), 800)
    requests = list(log.requests())
    for start in range(0, len(requests), at_once):
        table.put_requests(requests[start : start + at_once])
    table.put_requests(requests)
    table.close()
    theirs = {
        str(path.relative_to(clean)): path.read_bytes()
        for path in clean.rglob("consumequeue/*/*/*")
    }
    assert theirs == {
        str(path.relative_to(ours)): path.read_bytes() for path in ours.rglob("consumequeue/*/*/*")
    }


def test_rebuilt_indexes_equal_javas_bytes(clean: Path, log: FileLog, tmp_path: Path) -> None:
    """Header, slots, chains and items of all three files."""
    index = IndexService(RealDisk(), str(tmp_path / "ours"), 50, 150, lambda: 1795245780632)
    index.load(True, 0)
    requests = list(log.requests())
    for start in range(0, len(requests), 10):
        index.put_requests(requests[start : start + 10])
    index.sync()
    index.close()
    theirs = [path.read_bytes() for path in sorted((clean / "index").iterdir())]
    ours = [path.read_bytes() for path in sorted((tmp_path / "ours" / "index").iterdir())]
    assert len(ours) == len(theirs)
    assert ours == theirs


def test_indexes_of_a_clean_store(clean: Path, expected: dict[str, Any]) -> None:
    """Headers and every look-up by key."""
    index = IndexService(RealDisk(), str(clean), 50, 150, lambda: 0)
    index.load(True, 0)
    names = (
        "beginTimestamp",
        "endTimestamp",
        "beginPhyOffset",
        "endPhyOffset",
        "hashSlotCount",
        "indexCount",
    )
    assert [
        {"file": os.path.basename(path), **dict(zip(names, header, strict=True))}
        for path, header in index.headers()
    ] == expected["indexFiles"]
    for name, offsets in expected["keyLookups"].items():
        topic, _, key = name.partition("#")
        found, end_time, end_offset = query(index, topic, key, 64, 0, 1 << 62)
        assert found == offsets, name
        assert end_time == expected["indexFiles"][-1]["endTimestamp"]
        assert end_offset == expected["indexFiles"][-1]["endPhyOffset"]
    index.close()


def test_a_crash_deletes_the_files_that_the_checkpoint_does_not_vouch_for(
    clean: Path, expected: dict[str, Any]
) -> None:
    """Equal times stay, as in Java."""
    index = IndexService(RealDisk(), str(clean), 50, 150, lambda: 0)
    index.load(False, expected["checkpointOnDiskBeforeOpen"][2])
    assert [os.path.basename(path) for path, _ in index.headers()] == [
        item["file"] for item in expected["indexFiles"][:2]
    ]
    assert len(list((clean / "index").iterdir())) == 2


def test_recovered_queues_of_a_torn_store(tmp_path: Path) -> None:
    """After the truncation that the log's recovery asks for, the queues are what Java made them."""
    recovered = json.loads((FIXTURES / "torn.recovered.json").read_text())
    end = json.loads((FIXTURES / "torn.json").read_text())["tornOffset"]
    store = unpack("torn", tmp_path)
    table = loaded(store, False)
    assert table.max_physical_offset > end
    table.truncate(end)
    table.correct_min_offsets(0)
    wanted = {key: value for key, value in recovered["queues"].items() if value["maxOffset"]}
    assert describe(table) == wanted
    files = {
        path for path in recovered["filesAfterCleanShutdown"] if path.startswith("consumequeue/")
    }
    table.close()
    ours = {str(path.relative_to(store)) for path in store.rglob("consumequeue/*/*/*")}
    assert ours == files


def test_pulls_from_a_clean_store(clean: Path, log: FileLog, expected: dict[str, Any]) -> None:
    """Every message comes out whole and in order, in batches that end with a queue file."""
    table = loaded(clean)
    reader = MessageReader(MessageStoreConfig(), log, table, ReadDamage(log, True), 1 << 40)
    sizes = {record["offset"]: record["size"] for record in expected["records"]}
    for name, queue in expected["queues"].items():
        topic, _, queue_id = name.rpartition("-")
        offset, physical = 0, []
        while offset < queue["maxOffset"]:
            found = reader.get_message("g", topic, int(queue_id), offset, 32, None)
            assert found.status is GetMessageStatus.FOUND
            for message in found.messages:
                at = int.from_bytes(message[28:36])
                assert len(message) == sizes[at]
                physical.append(at)
            assert found.next_begin_offset == offset + len(found.messages)
            assert len(found.messages) == min(32, 40 - offset % 40, queue["maxOffset"] - offset)
            offset = found.next_begin_offset
        assert physical == [entry[0] for entry in queue["entries"]]


def test_offsets_by_time(clean: Path, log: FileLog, expected: dict[str, Any]) -> None:
    """An exact store time finds its message, or one of the same millisecond."""
    table = loaded(clean)
    reader = MessageReader(MessageStoreConfig(), log, table, ReadDamage(log, True), 1 << 40)
    stamps = {record["offset"]: record["storeTimestamp"] for record in expected["records"]}
    for name, described in expected["queues"].items():
        topic, _, queue_id = name.rpartition("-")
        queue = table.queue(topic, int(queue_id))
        for entry in described["entries"]:
            stamp = stamps[entry[0]]
            for nearest in (False, True):
                found = queue.offset_by_time(stamp, reader.store_timestamp_at, 0, nearest=nearest)
                assert stamps[described["entries"][found][0]] == stamp
                assert nearest or not found or stamps[described["entries"][found - 1][0]] < stamp
        first, last = described["entries"][0][0], described["entries"][-1][0]
        early, late = stamps[first] - 1000, stamps[last] + 1000
        assert queue.offset_by_time(early, reader.store_timestamp_at, 0) == 0
        end = described["maxOffset"]
        assert queue.offset_by_time(late, reader.store_timestamp_at, 0) == end
        assert queue.offset_by_time(late, reader.store_timestamp_at, 0, nearest=True) == end - 1
