"""Tables of a store, without Spark around them, beside what Java's broker said of itself."""

from __future__ import annotations

import json
import pickle
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.base.errors import CannotDecide, WrongUsage
from rmq_ha.base.store_format.index import HEADER, ITEM, SLOT
from rmq_ha.lake.spark.source import tables_offline
from rmq_ha.lake.spark.source.batch import make_reader, schema_of
from rmq_ha.lake.spark.source.schema import TABLE_COLUMNS, struct_of
from tests.unit.lake.spark.golden_stores import EPOCH, FIXTURES, java_store

Row = tuple[Any, ...]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return java_store("clean", tmp_path_factory.mktemp("clean"))


@pytest.fixture(scope="module")
def expected(store: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FIXTURES / "clean.expected.json").read_text())
    return found


def read(
    store: Path,
    table: str,
    names: tuple[str, ...] = (),
    **options: str,
) -> list[Row]:
    """As Spark does it: the reader is pickled before it plans."""
    known = TABLE_COLUMNS[table]
    schema = struct_of({name: known[name] for name in names or known})
    given = {"path": str(store), "table": table, "brokerName": "b", **options}
    assert schema_of(given) == struct_of(known)
    reader: Any = make_reader(given, schema)
    elsewhere = pickle.loads(pickle.dumps(reader))
    found: list[Row] = []
    for partition in reader.partitions():
        for batch in elsewhere.read(pickle.loads(pickle.dumps(partition))):
            found += [tuple(row.values()) for row in batch.to_pylist()]
    return found


def config(store: Path, name: str) -> Any:
    """Of the JSON file; Java writes numbers as keys there."""
    from rmq_ha.base.wire.fastjson import parse

    return parse((store / "config" / name).read_bytes())


def test_consumer_offsets(store: Path) -> None:
    table = config(store, "consumerOffset.json")["offsetTable"]
    wanted = sorted(
        ("b", name.split("@")[1], name.split("@")[0], int(queue), offset)
        for name, queues in table.items()
        for queue, offset in queues.items()
    )
    assert read(store, "consumerOffsets") == wanted
    mine = [row for row in wanted if row[2] == "TopicA"]
    assert mine
    assert read(store, "consumerOffsets", subscribe="TopicA") == mine


def test_topics_and_groups(store: Path) -> None:
    file = config(store, "topics.json")
    version = file["dataVersion"]
    rows = read(store, "topics", names=("topic", "perm", "dataVersionCounter"))
    assert rows == sorted(
        (name, topic["perm"], version["counter"])
        for name, topic in file["topicConfigTable"].items()
    )
    file = config(store, "subscriptionGroup.json")
    rows = read(store, "groups", names=("group", "retryMaxTimes", "brokerName"))
    assert rows == sorted(
        (name, group["retryMaxTimes"], "b")
        for name, group in file["subscriptionGroupTable"].items()
    )


def test_delay_offsets(store: Path) -> None:
    table = config(store, "delayOffset.json")["offsetTable"]
    assert read(store, "delayOffsets") == sorted(
        ("b", int(level), offset) for level, offset in table.items()
    )


def test_queues_and_their_units(
    store: Path, expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = {tuple(name.rsplit("-", 1)): queue for name, queue in expected["queues"].items()}
    rows = read(store, "queues")
    assert {(topic, str(number)): (low, high) for _, topic, number, low, high in rows} == {
        name: (queue["minOffset"], queue["maxOffset"]) for name, queue in queues.items()
    }
    wanted = sorted(
        ("b", topic, int(number), queue["minOffset"] + at, *unit)
        for (topic, number), queue in queues.items()
        for at, unit in enumerate(queue["entries"])
    )
    assert sorted(read(store, "consumeQueue")) == wanted
    for size in (1, 7):
        monkeypatch.setattr(tables_offline, "UNITS", size)
        assert sorted(read(store, "consumeQueue")) == wanted


def test_the_index(store: Path, expected: dict[str, Any]) -> None:
    rows = read(store, "index", maxHashSlotNum="50", maxIndexNum="150")
    assert rows == read(store, "index")  # found out
    files = expected["indexFiles"]
    assert len(rows) == sum(file["indexCount"] - 1 for file in files)
    by_file: dict[str, list[Row]] = {}
    for row in rows:
        by_file.setdefault(row[1], []).append(row)
    for file, (_, items) in zip(files, sorted(by_file.items()), strict=True):
        assert [item[2] for item in items] == list(range(1, len(items) + 1))
        assert items[0][5] == file["beginPhyOffset"]
        assert items[-1][5] == file["endPhyOffset"]
        assert all(item[3] == item[4] % 50 and item[7] < item[2] for item in items)


@pytest.mark.parametrize(("units", "rows"), [(1 << 20, 7), (40, 1 << 16), (40, 7), (1, 1)])
def test_an_index_is_the_same_in_whatever_pieces(
    store: Path, monkeypatch: pytest.MonkeyPatch, units: int, rows: int
) -> None:
    """Each item as it stands in its file."""
    monkeypatch.setattr(tables_offline, "UNITS", units)
    monkeypatch.setattr(tables_offline, "ROWS", rows)
    wanted: list[Row] = []
    for path in sorted((store / "index").iterdir()):
        data = path.read_bytes()
        begin, count = HEADER.unpack_from(data)[0], HEADER.unpack_from(data)[-1]
        for number in range(1, count):
            at = HEADER.size + 50 * SLOT.size + number * ITEM.size
            hashed, offset, seconds, before = ITEM.unpack_from(data, at)
            stored = EPOCH + timedelta(milliseconds=begin + 1000 * seconds)
            wanted.append(("b", path.name, number, hashed % 50, hashed, offset, stored, before))
    found = read(store, "index")
    assert found == wanted
    assert len({row[1] for row in found}) == 3


def test_units_of_queues_are_the_same_in_whatever_pieces(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = read(store, "consumeQueue")
    monkeypatch.setattr(tables_offline, "ROWS", 7)
    assert read(store, "consumeQueue") == wanted


def test_a_table_that_is_not_there_is_empty_and_one_that_is_damaged_is_an_error(
    tmp_path: Path,
) -> None:
    store = java_store("clean", tmp_path)
    for name in ("delayOffset.json", "delayOffset.json.bak"):
        (store / "config" / name).unlink()
    with pytest.warns(UserWarning, match=r"no delayOffset\.json"):
        assert read(store, "delayOffsets") == []
    (store / "config" / "consumerOffset.json").write_bytes(b"{")
    with pytest.warns(UserWarning, match=r"read .*consumerOffset\.json\.bak in its place"):
        assert read(store, "consumerOffsets")
    (store / "config" / "consumerOffset.json.bak").write_bytes(b"{")
    with pytest.raises(CannotDecide, match="damaged"):
        read(store, "consumerOffsets")
    huge = b'{"offsetTable":{"T@g":{0:%d}}}' % (1 << 63)
    (store / "config" / "consumerOffset.json").write_bytes(huge)
    with pytest.raises(CannotDecide, match="offset has a value that is no int64"):
        read(store, "consumerOffsets")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"table": "groups", "subscribe": "T"}, "has no topics"),
        ({"table": "index", "path": "", "namesrv": "a:1"}, "the index is read from a store"),
    ],
)
def test_what_a_table_cannot_do(given: dict[str, str], why: str) -> None:
    options = {name: value for name, value in ({"path": "/s"} | given).items() if value}
    with pytest.raises(WrongUsage, match=why):
        make_reader(options, struct_of(TABLE_COLUMNS[given["table"]]))
