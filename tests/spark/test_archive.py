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
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import functions as F

from rmq_ha.errors import CannotDecide, WrongUsage
from rmq_ha.model.topics import HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC
from rmq_ha.offsets.findings import Outcome
from rmq_ha.offsets.places import StorePlace
from rmq_ha.spark.archive.job import Asked, archive
from rmq_ha.spark.archive.table import CHECKPOINT, archived, table
from rmq_ha.spark.result import JobResult
from tests.spark.jobs import FakeJob
from tests.unit.spark.golden_stores import java_store, rows_of_log

KILLS = int(os.environ.get("RMQ_HA_SPARK_KILLS", "0"))
NOT_ARCHIVED = (SCHEDULE_TOPIC, HALF_TOPIC, OP_HALF_TOPIC)


def run(spark: Any, store: Path, to: Path, **asked: Any) -> JobResult:
    job: Any = FakeJob(spark)
    return archive(job, Asked(place=StorePlace(str(store)), to=str(to), **asked))


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
    assert archived(spark, str(to)).count() == len(cold)
    # Killed when the files of the batch were written, and the table had not got them.
    forget(to, f"{CHECKPOINT}/commits", 1)
    forget(to, "_spark_metadata", 1)
    together = table(spark, str(to), {"path": str(store)})
    rows = [row.asDict() for row in together.collect() if row.topic not in NOT_ARCHIVED]
    assert keys(rows) == keys(wanted)
    result = run(spark, store, to)
    assert result.outcome is Outcome.HOLDS, result.verdict
    rows = archived(spark, str(to)).orderBy("commitLogOffset").collect()
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
    assert {row["code"] for row in result.findings.collect()} == {"ARCHIVE_AHEAD"}
    result = run(spark, store, ahead, topics=("TopicC",), broker_name="broker-a")
    assert result.outcome is Outcome.HOLDS, result.verdict
    # An archive of before 0.2 is not gone on with.
    (ahead / "_rmqha").mkdir()
    (ahead / "_rmqha" / "run-000001.json").write_text("{}")
    with pytest.raises(CannotDecide, match="begin another archive"):
        run(spark, store, ahead, topics=("TopicC",), broker_name="broker-a")


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
        time.sleep(random.uniform(0, 12))
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        seen = archived(spark, str(to)).select("topic", "queueId", "queueOffset").collect()
        assert len(set(seen)) == len(seen)
        assert len(table(spark, str(to), {"path": str(store)}).collect()) >= len(wanted)
    run(spark, store, to)
    rows = [row.asDict() for row in archived(spark, str(to)).collect()]
    assert keys(rows) == keys(wanted)
