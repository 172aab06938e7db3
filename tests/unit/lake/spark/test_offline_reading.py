"""Reading stores without a broker, and without Spark around it."""

from __future__ import annotations

import json
import pickle
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.base.errors import CannotDecide, WrongUsage
from rmq_ha.base.model.flags import TRANSACTION_PREPARED
from rmq_ha.lake.spark.source.batch import make_reader, schema_of
from rmq_ha.lake.spark.source.messages import RangesPartition, SplitPartition
from rmq_ha.lake.spark.source.schema import COLUMNS, struct_of
from tests.unit.lake.spark.golden_stores import java_store, rows_of_log

NAMES = ("topic", "queueId", "queueOffset", "commitLogOffset", "tags", "sysFlag")
Row = dict[str, Any]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return java_store("clean", tmp_path_factory.mktemp("clean"))


@pytest.fixture(scope="module")
def log(store: Path) -> list[Row]:
    return rows_of_log(store, "b")


@pytest.fixture(scope="module")
def queued(log: list[Row]) -> list[Row]:
    """What a queue points at: all but what producers flagged as prepared or rolled back."""
    return [row for row in log if not row["sysFlag"] & TRANSACTION_PREPARED]


def read(
    store: Path,
    names: Sequence[str] = NAMES,
    parts: list[Any] | None = None,
    **options: str,
) -> list[Row]:
    """As Spark does it: the reader is pickled before it plans, the partitions after."""
    schema = struct_of({name: COLUMNS[name] for name in names})
    given = {"path": str(store), "brokerName": "b", **options}
    reader: Any = make_reader(given, schema)
    elsewhere = pickle.loads(pickle.dumps(reader))
    found = []
    for partition in reader.partitions():
        if parts is not None:
            parts.append(partition)
        for batch in elsewhere.read(pickle.loads(pickle.dumps(partition))):
            assert batch.schema.names == list(names)
            found += batch.to_pylist(maps_as_pydicts="strict")
    return sorted(found, key=lambda row: row["commitLogOffset"])


def some(rows: list[Row], names: Sequence[str] = NAMES) -> list[Row]:
    return [{name: row[name] for name in names} for row in rows]


@pytest.mark.parametrize("split", ["64m", "7777", "1000"])
def test_each_record_has_the_values_that_the_brokers_codec_reads(
    store: Path, log: list[Row], split: str
) -> None:
    """Of all columns, however the files are split."""
    assert read(store, tuple(COLUMNS), scan="files", splitSize=split) == log


def test_files_and_queues_have_the_same_rows(
    store: Path, log: list[Row], queued: list[Row]
) -> None:
    assert len(queued) < len(log)
    names = tuple(COLUMNS)
    assert read(store, names, scan="queues") == queued
    assert read(store, names) == queued
    assert read(store, names, scan="queues", minPartitions="50", batchRows="3") == queued


@pytest.mark.parametrize("scan", ["files", "queues", "auto"])
@pytest.mark.parametrize(
    "chosen",
    [
        {"subscribe": "TopicA,TopicC"},
        {"subscribePattern": "Topic[AC]"},
        {"assign": '{"TopicA":[0,2],"TopicB":{"b":[1]}}'},
        {"subscribe": "RMQ_SYS_TRANS_HALF_TOPIC"},
        {"subscribe": "SCHEDULE_TOPIC_XXXX", "tags": "TagA"},
        {"tags": "TagA || TagB"},
        {"subscribe": "TopicB", "startingOffsets": '{"TopicB":{"0":1,"1":40}}'},
        {
            "subscribe": "TopicB",
            "startingOffsets": '{"TopicB":{"0":-2,"1":40}}',
            "endingOffsets": '{"TopicB":{"0":2,"1":41}}',
        },
    ],
)
def test_what_is_chosen_is_read_whichever_way(
    store: Path, log: list[Row], queued: list[Row], scan: str, chosen: dict[str, str]
) -> None:
    rows = log if scan == "files" else queued
    named = set(chosen.get("subscribe", "").split(","))
    wanted = {
        "subscribePattern": lambda row: row["topic"] in ("TopicA", "TopicC"),
        "assign": lambda row: (
            (row["topic"], row["queueId"]) in (("TopicA", 0), ("TopicA", 2), ("TopicB", 1))
        ),
        "subscribe": lambda row: row["topic"] in named,
    }
    tags = [part.strip() for part in chosen.get("tags", "").split("||")]
    bounds = {
        1: {0: (1, 1 << 60), 1: (40, 1 << 60)},
        2: {0: (0, 2), 1: (40, 41)},
    }.get(len([name for name in chosen if name.endswith("Offsets")]))
    expected = [
        row
        for row in rows
        if all(wanted[name](row) for name in chosen if name in wanted)
        and ("tags" not in chosen or row["tags"] in tags)
        and (
            bounds is None
            or bounds[row["queueId"]][0] <= row["queueOffset"] < bounds[row["queueId"]][1]
        )
    ]
    assert expected
    assert read(store, scan=scan, **chosen) == some(expected)


@pytest.mark.parametrize("scan", ["files", "queues"])
def test_times_choose_the_first_message_stored_then_or_later(
    store: Path, queued: list[Row], scan: str
) -> None:
    mine = [row for row in queued if (row["topic"], row["queueId"]) == ("TopicB", 1)]
    times = [int(row["storeTimestamp"].timestamp() * 1000) for row in mine]
    given = {"assign": '{"TopicB":[1]}', "scan": scan, "startingTimestamp": str(times[20])}
    first = times.index(times[20])
    assert read(store, **given) == some(mine[first:])
    later = next(at for at, ms in enumerate(times) if ms > times[30])
    given["endingTimestamp"] = str(times[30] + 1)
    assert read(store, **given) == some(mine[first:later])
    with pytest.raises(WrongUsage, match="Strategy=latest"):
        read(store, assign='{"TopicB":[1]}', scan=scan, startingTimestamp=str(times[-1] + 1))


def test_the_scan_is_chosen_by_how_much_is_wanted(store: Path) -> None:
    def kind(**options: str) -> tuple[type, int]:
        parts: list[Any] = []
        read(store, parts=parts, **options)
        assert len({type(part) for part in parts}) <= 1
        return (type(parts[0]) if parts else type(None)), len(parts)

    assert kind() == (SplitPartition, 3)
    assert kind(minPartitions="6")[1] >= 6
    assert kind(assign='{"TopicA":[1]}')[0] is RangesPartition
    assert kind(maxRecordsPerPartition="10")[0] is RangesPartition


def test_files_outside_of_the_wanted_offsets_are_not_read(
    store: Path, tmp_path: Path, queued: list[Row]
) -> None:
    """Unless a queue is wrong about where its messages are."""
    times = [int(row["storeTimestamp"].timestamp() * 1000) for row in queued]
    given = {
        "subscribe": "TopicA,TopicB",
        "scan": "files",
        "splitSize": "8k",
        "startingTimestamp": str(times[60]),
        "endingTimestamp": str(times[90]),
        "startingOffsetsByTimestampStrategy": "latest",
    }
    expected = [
        row
        for row, ms in zip(queued, times, strict=True)
        if row["topic"] in ("TopicA", "TopicB") and times[60] <= ms < times[90]
    ]
    parts: list[Any] = []
    found = read(store, parts=parts, **given)
    assert [row for row in found if row["topic"] == "TopicB" and row["queueId"] == 1] == some(
        [row for row in expected if row["topic"] == "TopicB" and row["queueId"] == 1]
    )
    assert len(parts) < 19
    copy = shutil.copytree(store, tmp_path / "copy")
    first = next(row for row in found if (row["topic"], row["queueId"]) == ("TopicB", 1))
    file = copy / "consumequeue" / "TopicB" / "1" / ("0" * 20)
    data = bytearray(file.read_bytes())
    at = 20 * first["queueOffset"]
    assert at < 800
    data[at : at + 8] = (queued[150]["commitLogOffset"]).to_bytes(8, "big")
    file.write_bytes(data)
    span = '{"TopicB":{"1":%d}}'
    by_offset = {
        "assign": '{"TopicB":[1]}',
        "scan": "files",
        "startingOffsets": span % first["queueOffset"],
        "endingOffsets": span % (first["queueOffset"] + 2),
    }
    assert [row["queueOffset"] for row in read(copy, **by_offset)] == [
        first["queueOffset"],
        first["queueOffset"] + 1,
    ]


def test_columns_without_a_schema() -> None:
    names = schema_of({"path": "/s"}).fieldNames()
    assert " ".join(names) == (
        "topic queueId queueOffset commitLogOffset msgId keys tags body flag sysFlag"
        " bornTimestamp bornHost storeTimestamp storeHost bodyCRC reconsumeTimes brokerName"
    )
    more = schema_of({"path": "/s", "includeProperties": "true"}).fieldNames()
    assert more == [*names[:8], "properties", *names[8:]]


def test_limits_of_streams_have_no_effect_on_batches(store: Path, queued: list[Row]) -> None:
    with pytest.warns(UserWarning, match="maxOffsetsPerTrigger is for streams"):
        assert read(store, maxoffsetspertrigger="5") == some(queued)


def test_a_topic_that_is_not_there(store: Path) -> None:
    with pytest.raises(CannotDecide, match="no topic 'TopicAA'; did you mean 'TopicA'"):
        read(store, subscribe="TopicAA")
    with pytest.raises(CannotDecide, match="no queue TopicA/9"):
        read(store, assign='{"TopicA":[9]}')
    # known, but nobody ever sent a message to it
    assert read(store, subscribe="%RETRY%CG_fixture_sql") == []
    assert read(store, subscribePattern="Nope.*") == []


def test_so_many_partitions_that_they_would_be_too_many(store: Path) -> None:
    """They are made one by one in the driver: none is smaller than a page."""
    reader: Any = make_reader(
        {"path": str(store), "minPartitions": "2147483647", "scan": "files"},
        struct_of({"topic": COLUMNS["topic"]}),
    )
    assert 1 < len(reader.partitions()) < 100


def test_a_log_file_that_is_missing_is_data_loss(
    store: Path, tmp_path: Path, log: list[Row]
) -> None:
    """An error, or what is left, with a warning; never fewer rows without a word."""
    copy = shutil.copytree(store, tmp_path / "copy")
    sorted((copy / "commitlog").iterdir())[1].unlink()
    with pytest.raises(CannotDecide, match="no bytes from 65536 to 131072"):
        read(copy, scan="files")
    with pytest.warns(UserWarning, match="no bytes from 65536 to 131072"):
        found = read(copy, scan="files", failOnDataLoss="false")
    left = [row for row in log if not 65536 <= row["commitLogOffset"] < 131072]
    assert found == some(left)


def test_no_store(tmp_path: Path) -> None:
    with pytest.raises(CannotDecide, match="storePathRootDir"):
        read(tmp_path)


def test_a_queue_that_points_nowhere_is_data_loss(
    store: Path, tmp_path: Path, queued: list[Row]
) -> None:
    """Its unit 5 says another place; what can be read is read where loss is allowed."""
    copy = shutil.copytree(store, tmp_path / "copy")
    unit = copy / "consumequeue" / "TopicB" / "1" / "00000000000000000000"
    data = bytearray(unit.read_bytes())
    data[100:108] = (7).to_bytes(8, "big")
    unit.write_bytes(data)
    given = {"assign": '{"TopicB":[1]}', "scan": "queues"}
    with pytest.raises(CannotDecide, match=r"message 5 is not at 7 .*verify-replica"):
        read(copy, **given)
    mine = [row for row in queued if (row["topic"], row["queueId"]) == ("TopicB", 1)]
    found = read(copy, **given, failOnDataLoss="false")
    assert found == some(mine[:5] + mine[6:])


@pytest.mark.parametrize(("place", "loss"), [("TopicB/0", 0), ("TopicB/1", 6)])
def test_a_queue_that_points_at_another_message_is_data_loss(
    store: Path, tmp_path: Path, queued: list[Row], place: str, loss: int
) -> None:
    """Of another queue, or another one of its own: no row says that it is what it is not."""
    copy = shutil.copytree(store, tmp_path / "copy")
    source = copy / "consumequeue" / place / ("0" * 20)
    unit = copy / "consumequeue" / "TopicB" / "1" / ("0" * 20)
    data = bytearray(unit.read_bytes())
    data[100:120] = source.read_bytes()[20 * loss : 20 * loss + 20]
    unit.write_bytes(data)
    given = {"assign": '{"TopicB":[1]}', "scan": "queues"}
    with pytest.raises(CannotDecide, match=r"message 5 is not at"):
        read(copy, **given)
    mine = [row for row in queued if (row["topic"], row["queueId"]) == ("TopicB", 1)]
    found = read(copy, **given, failOnDataLoss="false")
    assert found == some(mine[:5] + mine[6:])


def test_a_log_that_was_copied_alone(store: Path, tmp_path: Path, queued: list[Row]) -> None:
    """Without queues there are no offsets, but all messages."""
    shutil.copytree(store / "commitlog", tmp_path / "commitlog")
    assert read(tmp_path) == some(queued)
    mine = [row for row in queued if row["topic"] == "TopicC"]
    assert read(tmp_path, subscribe="TopicC") == some(mine)
    for more in ({"scan": "queues"}, {"endingTimestamp": "1"}):
        with pytest.raises(CannotDecide, match="no consume queues"):
            read(tmp_path, **more)


def test_queues_that_end_before_the_log(
    store: Path, tmp_path: Path, log: list[Row], queued: list[Row]
) -> None:
    """As after a crash: what is not queued yet is read all the same, but not through queues."""
    copy = shutil.copytree(store, tmp_path / "copy")
    last = log[-1]
    file = copy / "consumequeue" / last["topic"] / str(last["queueId"]) / ("0" * 20)
    data = bytearray(file.read_bytes())
    data[20 * last["queueOffset"] % 800 :] = bytes(len(data) - 20 * last["queueOffset"] % 800)
    (sorted(file.parent.iterdir())[-1]).write_bytes(data)
    given = {"assign": f'{{"{last["topic"]}":[{last["queueId"]}]}}'}
    mine = [
        row for row in queued if (row["topic"], row["queueId"]) == (last["topic"], last["queueId"])
    ]
    parts: list[Any] = []
    assert read(copy, parts=parts, **given) == some(mine)
    assert isinstance(parts[0], SplitPartition)
    assert read(copy, scan="queues", **given) == some(mine[:-1])
    later = {"startingTimestamp": "1"}
    assert read(copy, **given, **later) == some(mine), "from a time on, up to the end of the log"
    first = mine[-1]["queueOffset"]
    start = {"startingOffsets": f'{{"{last["topic"]}":{{"{last["queueId"]}":{first}}}}}'}
    assert read(copy, **given, **start) == some(mine[-1:]), "the queue has nothing behind it"


def test_a_damaged_log_is_data_loss(store: Path, tmp_path: Path, log: list[Row]) -> None:
    """Unless one asks for files, which means: for whatever can be read in them."""
    copy = shutil.copytree(store, tmp_path / "copy")
    file = copy / "commitlog" / ("0" * 20)
    data = bytearray(file.read_bytes())
    place = log[20]["commitLogOffset"]
    data[place + 4] ^= 0x40
    file.write_bytes(data)
    with pytest.raises(CannotDecide, match=rf"from {place} to {log[21]['commitLogOffset']} of"):
        read(copy)
    sound = [row for row in log if row["commitLogOffset"] != place]
    assert read(copy, scan="files") == some(sound)
    queued = [row for row in sound if not row["sysFlag"] & TRANSACTION_PREPARED]
    assert read(copy, failOnDataLoss="false") == some(queued)


def test_messages_that_expired_are_data_loss(
    store: Path, tmp_path: Path, queued: list[Row]
) -> None:
    """The log's first file was deleted: queues begin at their first message that is left."""
    copy = shutil.copytree(store, tmp_path / "copy")
    (copy / "commitlog" / ("0" * 20)).unlink()
    left = [row for row in queued if row["commitLogOffset"] >= 65536]
    assert read(copy) == some(left)
    assert read(copy, scan="queues") == some(left)
    with pytest.raises(CannotDecide, match=r"were|are gone"):
        read(copy, assign='{"TopicB":[1]}', startingOffsets='{"TopicB":{"1":0}}')
    with pytest.warns(UserWarning, match="messages are gone"):
        found = read(
            copy,
            assign='{"TopicB":[1]}',
            startingOffsets='{"TopicB":{"1":0}}',
            failOnDataLoss="false",
        )
    mine = [row for row in left if (row["topic"], row["queueId"]) == ("TopicB", 1)]
    assert found == some(mine)


@pytest.mark.parametrize("gone", ["first", "last"])
def test_files_that_are_deleted_between_planning_and_reading(
    store: Path, tmp_path: Path, queued: list[Row], gone: str
) -> None:
    """No message is taken for another one: an error, or those that are left."""
    copy = shutil.copytree(store, tmp_path / "copy")
    given = {"path": str(copy), "brokerName": "b", "assign": '{"TopicB":[1]}', "scan": "queues"}
    schema = struct_of({name: COLUMNS[name] for name in NAMES})
    readers: list[Any] = [
        make_reader(given | {"failOnDataLoss": loss}, schema) for loss in ("true", "false")
    ]
    partitions = readers[0].partitions()
    files = sorted((copy / "consumequeue" / "TopicB" / "1").iterdir())
    assert len(files) == 2  # of 40 units each
    files[0 if gone == "first" else 1].unlink()
    with pytest.raises(CannotDecide, match=f"has no message {0 if gone == 'first' else 40}"):
        list(readers[0].read(partitions[0]))
    mine = [row for row in queued if (row["topic"], row["queueId"]) == ("TopicB", 1)]
    found = [row for batch in readers[1].read(partitions[0]) for row in batch.to_pylist()]
    assert found == some(mine[40:] if gone == "first" else mine[:40])


@pytest.mark.parametrize("name", ["ext", "killed", "torn"])
def test_other_stores_of_javas(name: str, tmp_path: Path) -> None:
    """With queue extensions, and after a crash: files and queues agree on what queues have."""
    store = java_store(name, tmp_path)
    files = read(store, tuple(COLUMNS))
    queues = read(store, tuple(COLUMNS), scan="queues")
    assert queues
    by_place = {row["commitLogOffset"]: row for row in files}
    assert all(by_place[row["commitLogOffset"]] == row for row in queues)
    assert json.dumps(sorted(by_place)) == json.dumps([row["commitLogOffset"] for row in files])


def test_a_read_begins_where_a_group_goes_on(store: Path, queued: list[Row]) -> None:
    """By the table in the store's files, which Java wrote."""
    text = (store / "config" / "consumerOffset.json").read_text()
    (ends,) = re.findall(r'"TopicA@CG_fixture_sql":\{([^}]*)\}', text)
    at = {int(queue): int(offset) for queue, offset in re.findall(r"(\d+):(\d+)", ends)}
    wanted = [row for row in queued if row["topic"] == "TopicA"]
    assert set(at) == {row["queueId"] for row in wanted}
    given = {"subscribe": "TopicA", "startingOffsets": "group:CG_fixture_sql"}
    found = read(store, **given)
    behind = [row for row in wanted if row["queueOffset"] >= at[row["queueId"]]]
    places = [row["commitLogOffset"] for row in behind]
    assert [row["commitLogOffset"] for row in found] == places
    assert 0 < len(found) < len(wanted)
