"""
Archives of a store that Java wrote: killed on the way, in slices, beside the live topic.

`RMQ_HA_SPARK_KILLS=20` kills so many real processes, too, at random moments; CI has no time for it.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import functions as F

from rmq_ha.base.errors import CannotDecide, WrongUsage
from rmq_ha.base.model.topics import HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC
from rmq_ha.lake.spark.archive.forms import CHECKPOINT, DeltaArchive, open_archive
from rmq_ha.lake.spark.archive.job import ArchiveRequest, archive
from rmq_ha.lake.spark.archive.table import table
from rmq_ha.lake.spark.result import JobResult
from rmq_ha.ops.offsets.findings import Outcome
from rmq_ha.ops.offsets.places import StorePlace
from tests.spark import lakes
from tests.spark.jobs import FakeJob
from tests.unit.lake.spark.golden_stores import java_store, rows_of_log

KILLS = int(os.environ.get("RMQ_HA_SPARK_KILLS", "0"))
SECONDS = float(os.environ.get("RMQ_HA_SPARK_KILL_SECONDS", "12"))
NOT_ARCHIVED = (SCHEDULE_TOPIC, HALF_TOPIC, OP_HALF_TOPIC)


def run(spark: Any, store: Path, to: Path, **asked: Any) -> JobResult:
    job: Any = FakeJob(spark)
    asked = {"place": StorePlace(str(store)), "to": str(to), "form": lakes.FORMAT, **asked}
    return archive(job, ArchiveRequest(**asked))


def rows_in(spark: Any, to: Path) -> list[Any]:
    rows: list[Any] = open_archive(spark, str(to), lakes.FORMAT).rows().collect()
    return rows


def keys(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((row["topic"], row["queueId"], row["queueOffset"]) for row in rows)


def values(row: dict[str, Any]) -> dict[str, Any]:
    """As Spark gives it: times without a zone."""
    return row | {
        name: row[name].replace(tzinfo=None) for name in ("bornTimestamp", "storeTimestamp")
    }


def forget(to: Path, kind: str, most: int) -> None:
    """As if a process had been killed before it wrote down its last step: it is done again."""
    folder = to / kind
    names = sorted((path for path in folder.iterdir() if path.name.isdecimal()), key=_number)
    for path in names[-most:]:
        path.unlink()
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def _number(path: Path) -> int:
    return int(path.name)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return java_store("clean", tmp_path_factory.mktemp("archive"))


@pytest.fixture(scope="module")
def wanted(store: Path) -> list[dict[str, Any]]:
    """What a complete archive has."""
    return [
        row
        for row in rows_of_log(store, None)
        if row["topic"] not in NOT_ARCHIVED and not row["sysFlag"] & 4
    ]


def test_an_archive_is_asked_once_how_far_it_goes(
    spark: Any, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In Delta each time is a look at its history; Spark's own stream says nothing to its end."""
    to, asked = tmp_path / "archive", list[Path]()
    kind = type(open_archive(spark, str(to), lakes.FORMAT))
    ends = kind.ends

    def counted(archive: Any) -> Any:
        asked.append(to)
        return ends(archive)

    monkeypatch.setattr(kind, "ends", counted)
    for _ in range(2):
        asked.clear()
        assert run(spark, store, to, topics=("TopicC",)).outcome is Outcome.HOLDS
        assert len(asked) == (1 if lakes.FORMAT == "delta" else 2)
    asked.clear()
    assert table(spark, str(to), {"path": str(store)}, form=lakes.FORMAT).count()
    assert len(asked) == 1


@lakes.ONLY_PARQUET
def test_done_again_after_each_step_the_archive_has_every_message_once(
    spark: Any, store: Path, wanted: list[dict[str, Any]], tmp_path: Path
) -> None:
    """
    Cold slices first, then the rest; bodies, properties and retry topics as Java wrote them; the
    same table from archive and live store all the time, also when the store has lost its oldest.
    """
    to = tmp_path / "archive"
    moments = sorted(int(row["storeTimestamp"].timestamp() * 1000) for row in wanted)
    half = moments[len(moments) // 2]
    cold = [row for row in wanted if row["storeTimestamp"].timestamp() * 1000 < half]
    assert run(spark, store, to, before_ms=half).numbers["rows"] == len(cold) > 0
    # Killed when the table had the batch, and nobody had noted that it was done.
    forget(to, f"{CHECKPOINT}/commits", 1)
    assert run(spark, store, to, before_ms=half).outcome is Outcome.HOLDS
    assert open_archive(spark, str(to)).rows().count() == len(cold)
    # Killed when the files of the batch were written, and the table had not got them.
    forget(to, f"{CHECKPOINT}/commits", 1)
    forget(to, "_spark_metadata", 1)
    together = table(spark, str(to), {"path": str(store)})
    rows = [row.asDict() for row in together.collect() if row.topic not in NOT_ARCHIVED]
    assert keys(rows) == keys(wanted)
    result = run(spark, store, to)
    assert result.outcome is Outcome.HOLDS, result.verdict
    rows = open_archive(spark, str(to)).rows().orderBy("commitLogOffset").collect()
    assert [row.day for row in rows] == [f"{row.storeTimestamp:%Y-%m-%d}" for row in rows]
    assert [{k: v for k, v in row.asDict().items() if k != "day"} for row in rows] == [
        values(row) for row in wanted
    ]
    assert (to / "topic=%25RETRY%25CG_fixture" / f"day={rows[0].day}").is_dir()
    # Whoever reads the directory without knowing what it is sees the same.
    assert spark.read.parquet(str(to)).count() == len(wanted)

    # The broker deletes its oldest file: the table keeps what was in it.
    young = Path(shutil.copytree(store, tmp_path / "young"))
    (young / "commitlog" / f"{0:020}").unlink()
    live = {"path": str(young), "subscribePattern": "Topic.*|%RETRY%.*"}
    everything = table(spark, str(to), live)
    sums = everything.selectExpr("count(*) n", "count(distinct msgId) ids").first()
    assert sums.n == len(wanted)
    one = table(spark, str(to), live | {"subscribePattern": "TopicC"}, include_properties=True)
    assert one.where(F.col("properties").isNotNull()).count() == len(
        [row for row in wanted if row["topic"] == "TopicC"]
    )


@lakes.ONLY_PARQUET
def test_what_cannot_be_joined_or_told_apart_is_refused(
    spark: Any, store: Path, tmp_path: Path
) -> None:
    to = tmp_path / "archive"
    result = run(spark, store, to, topics=("TopicC",), most=25, broker_name="broker-a")
    assert result.numbers["rows"] == 41
    assert len([path for path in (to / "_spark_metadata").iterdir() if path.suffix != ".crc"]) == 2
    with pytest.raises(WrongUsage, match="--broker-name"):
        run(spark, store, to, topics=("TopicC",))
    with pytest.raises(WrongUsage, match="no starting offsets"):
        table(spark, str(to), {"path": str(store), "startingTimestamp": "5"})
    empty = table(spark, str(tmp_path / "none"))
    assert empty.count() == 0
    live = {"path": str(store), "subscribe": "TopicC", "brokerName": "broker-a"}
    assert table(spark, str(to), live).count() == 41

    def with_ends(more: int) -> Path:
        """The same archive, that has read further (or less far), of every queue."""
        other = Path(shutil.copytree(to, tmp_path / f"other{more}"))
        offsets = other / CHECKPOINT / "offsets" / "1"
        head, ends = offsets.read_text().rsplit("\n", 1)
        queues = json.loads(ends)["TopicC"]["broker-a"]
        moved = {name: offset + more for name, offset in queues.items()}
        offsets.write_text(f"{head}\n{json.dumps({'TopicC': {'broker-a': moved}})}")
        offsets.with_name(f".{offsets.name}.crc").unlink(missing_ok=True)
        return other

    # The end of every queue was lost: told once, and gone on with.
    ahead = with_ends(3)
    with pytest.raises(CannotDecide, match="its end was lost"):
        table(spark, str(ahead), live)
    result = run(spark, store, ahead, topics=("TopicC",), broker_name="broker-a")
    assert result.outcome is Outcome.VIOLATED
    assert {finding.code for finding in result.findings} == {"ARCHIVE_AHEAD"}
    result = run(spark, store, ahead, topics=("TopicC",), broker_name="broker-a")
    assert result.outcome is Outcome.HOLDS, result.verdict
    # An archive of before 0.2 is not gone on with, nor is one of the other form.
    (ahead / "_rmqha").mkdir()
    (ahead / "_rmqha" / "run-000001.json").write_text("{}")
    with pytest.raises(CannotDecide, match="begin another archive"):
        run(spark, store, ahead, topics=("TopicC",), broker_name="broker-a")
    shutil.rmtree(ahead / "_rmqha")
    (ahead / "_delta_log").mkdir()
    (ahead / "_delta_log" / f"{0:020}.json").write_text("{}")
    with pytest.raises(WrongUsage, match="--format delta"):
        run(spark, store, ahead, topics=("TopicC",), broker_name="broker-a")
    with pytest.raises(WrongUsage, match="no Delta"):
        table(spark, str(to), form="delta")


def test_what_was_deleted_or_damaged_before_it_was_archived_is_told(
    spark: Any, store: Path, tmp_path: Path
) -> None:
    """The job ran too seldom; and what is damaged is archived as it is."""
    late, to = Path(shutil.copytree(store, tmp_path / "late")), tmp_path / "archive"
    log = [row for row in rows_of_log(store, None) if row["topic"] == "TopicC"]
    stored = [int(row["storeTimestamp"].timestamp() * 1000) for row in log]
    first = run(spark, late, to, topics=("TopicC",), before_ms=stored[4] + 1).numbers["rows"]
    assert 0 < first < 12
    file, *_ = sorted((late / "commitlog").iterdir())
    file.unlink()
    *_, damaged = log
    file = sorted((late / "commitlog").iterdir())[-1]
    data = bytearray(file.read_bytes())
    at = damaged["commitLogOffset"] - int(file.name)
    data[at + 88] ^= 1
    file.write_bytes(data)
    result = run(spark, late, to, topics=("TopicC",))
    told = result.findings
    assert result.outcome is Outcome.VIOLATED
    assert {finding.code for finding in told} == {"EXPIRED", "BAD_CRC"}
    (bad,) = [finding for finding in told if finding.code == "BAD_CRC"]
    assert (bad.physical_offset, bad.severity) == (damaged["commitLogOffset"], "WARN")
    there = [row["commitLogOffset"] for row in rows_in(spark, to)]
    behind = [row for row in log if row["commitLogOffset"] >= 65536]
    assert sorted(there)[first:] == [row["commitLogOffset"] for row in behind]
    gone = len(log) - len(behind) - first
    expired = [finding.detail for finding in told if finding.code == "EXPIRED"]
    assert sum(int(text.split()[0]) for text in expired) == gone
    assert run(spark, late, to, topics=("TopicC",)).outcome is Outcome.HOLDS


@lakes.ONLY_DELTA
def test_a_delta_table_goes_on_where_its_last_commit_says(
    spark: Any, store: Path, wanted: list[dict[str, Any]], tmp_path: Path
) -> None:
    """Also when it was restored, compacted, or has no such commit; one of two writers is told."""
    to = tmp_path / "archive"
    moments = sorted(int(row["storeTimestamp"].timestamp() * 1000) for row in wanted)
    half = moments[len(moments) // 2]
    cold = [row for row in wanted if row["storeTimestamp"].timestamp() * 1000 < half]
    first = run(spark, store, to, before_ms=half, most=len(cold) // 2)
    assert (first.outcome, first.numbers["rows"]) == (Outcome.HOLDS, len(cold)), first.verdict
    lake = open_archive(spark, str(to), lakes.FORMAT)
    assert isinstance(lake, DeltaArchive)
    ends, name = lake.ends(), f"delta.`{to}`"
    (old,) = spark.sql(f"DESCRIBE HISTORY {name} LIMIT 1").select("version").first()
    assert run(spark, store, to).numbers["rows"] == len(wanted) - len(cold)
    rows = lake.rows().orderBy("commitLogOffset").collect()
    assert [{k: v for k, v in row.asDict().items() if k != "day"} for row in rows] == [
        values(row) for row in wanted
    ]
    for done in (f"RESTORE {name} TO VERSION AS OF {old}", f"OPTIMIZE {name}"):
        spark.sql(done)
        assert lake.ends() == ends
    assert run(spark, store, to).numbers["rows"] == len(wanted) - len(cold)
    together = table(spark, str(to), {"path": str(store)}, form="delta")
    rows = [row.asDict() for row in together.collect() if row.topic not in NOT_ARCHIVED]
    assert keys(rows) == keys(wanted)
    assert run(spark, store, to).numbers["rows"] == 0

    # A table that somebody else made of it: its rows say how far it goes.
    copy = str(tmp_path / "copy")
    lake.rows().write.format("delta").save(copy)
    other = open_archive(spark, copy, "delta")
    assert other.ends() == {queue: end for queue, end in (lake.ends() or {}).items() if end}

    # A job that had read the offsets before another one committed; and two at the same moment.
    now = lake.ends() or {}
    with pytest.raises(CannotDecide, match="this one has added nothing"):
        lake.append(lake.rows(), ends or {}, now)
    assert len(rows_in(spark, to)) == len(wanted)
    some = lake.rows().limit(1)

    def add(more: int) -> str:
        try:
            lake.append(some, now, {queue: end + more for queue, end in now.items()})
            return "added"
        except CannotDecide as error:
            return str(error)

    with ThreadPoolExecutor(2) as pool:
        added, refused = sorted(pool.map(add, (1, 1)))
    assert added == "added"
    assert "this one has added nothing" in refused
    assert len(rows_in(spark, to)) == len(wanted) + 1


@pytest.mark.skipif(not KILLS, reason="RMQ_HA_SPARK_KILLS=20 takes minutes")
def test_processes_that_are_killed_at_random_moments(
    spark: Any, store: Path, wanted: list[dict[str, Any]], tmp_path: Path
) -> None:
    """kill -9 of the process and its JVM, whatever it does; the last run is left in peace."""
    to, random = tmp_path / "archive", Random(20)
    command = [sys.executable, "-m", "tests.spark.archive_run", str(store), str(to), "20"]
    for _ in range(KILLS):
        process = subprocess.Popen(
            command, start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"warm\n"
        process.stdin.write(b"go\n")
        process.stdin.flush()
        time.sleep(random.uniform(0, SECONDS))
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        seen = keys([row.asDict() for row in rows_in(spark, to)])
        assert len(set(seen)) == len(seen)
    run(spark, store, to)
    assert keys([row.asDict() for row in rows_in(spark, to)]) == keys(wanted)
