"""
Archives of a store that Java wrote: killed at every step, in slices, beside the live topic.

`RMQ_HA_SPARK_KILLS=20` kills so many real processes, too, at random moments; CI has no time for it.
"""

import json
import os
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
from rmq_ha.spark.archive.files import Files
from rmq_ha.spark.archive.job import Asked, archive
from rmq_ha.spark.archive.reading import archived, table, view
from rmq_ha.spark.result import JobResult
from tests.spark.jobs import FakeJob
from tests.unit.spark.golden_stores import java_store, rows_of_log

KILLS = int(os.environ.get("RMQ_HA_SPARK_KILLS", "0"))
STEPS = ("verified", "pending", "moved 1", "pending gone")
if KILLS:
    STEPS = ("written", *STEPS[:3], "committed", STEPS[3])
NOT_ARCHIVED = (SCHEDULE_TOPIC, HALF_TOPIC, OP_HALF_TOPIC)
HOUR = 3_600_000


class Killed(Exception):
    pass


def run(spark: Any, store: Path, to: Path, die_at: str = "", **asked: Any) -> JobResult:
    """An archive job two hours after the last one, so that what that one left is stale."""
    now_ms = int(time.time() * 1000) + 2 * HOUR

    def step(name: str) -> None:
        if name == die_at:
            raise Killed(name)

    job: Any = FakeJob(spark, now_ms)
    return archive(job, Asked(place=StorePlace(str(store)), to=str(to), **asked), step)


def keys(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((row["topic"], row["queueId"], row["queueOffset"]) for row in rows)


def values(row: dict[str, Any]) -> dict[str, Any]:
    """As Spark gives it: times without a zone."""
    return row | {
        name: row[name].replace(tzinfo=None) for name in ("bornTimestamp", "storeTimestamp")
    }


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


def test_killed_at_every_step_the_archive_has_every_message_once(
    spark: Any, store: Path, wanted: list[dict[str, Any]], tmp_path: Path
) -> None:
    """
    Cold slices first, then the rest; bodies, properties and retry topics as Java wrote them; the
    same table from archive and live store all the time, also when the store has lost its oldest.
    """
    to = tmp_path / "archive"
    moments = sorted(int(row["storeTimestamp"].timestamp() * 1000) for row in wanted)
    half = moments[len(moments) // 2]
    for die_at in STEPS:
        before = half if die_at in ("written", "verified", "pending") else None
        with pytest.raises(Killed):
            run(spark, store, to, die_at, before_ms=before)
        seen = archived(spark, str(to)).select("topic", "queueId", "queueOffset").collect()
        assert len(set(seen)) == len(seen)
        if die_at == "pending":
            # The next run finishes it, and finds the rest of its own slice archived.
            result = run(spark, store, to, before_ms=before)
            assert result.numbers["rows"] == 0
            cold = [row for row in wanted if row["storeTimestamp"].timestamp() * 1000 < half]
            assert result.numbers["archiveRows"] == len(cold)
            assert 0 < len(cold) < len(wanted)
            together = table(spark, str(to), {"path": str(store)})
            rows = [row.asDict() for row in together.collect() if row.topic not in NOT_ARCHIVED]
            assert keys(rows) == keys(wanted)
    result = run(spark, store, to)
    assert result.outcome is Outcome.HOLDS, result.verdict
    assert result.numbers["archiveRows"] == len(wanted)
    rows = archived(spark, str(to)).orderBy("commitLogOffset").collect()
    assert [row.day for row in rows] == [f"{row.storeTimestamp:%Y-%m-%d}" for row in rows]
    assert [{k: v for k, v in row.asDict().items() if k != "day"} for row in rows] == [
        values(row) for row in wanted
    ]
    day = f"day={rows[0].day}"
    assert list((to / "topic=%25RETRY%25CG_fixture" / day).glob("run-*.parquet"))
    # Whoever reads the directory without knowing of runs sees the same.
    assert spark.read.parquet(str(to)).count() == len(wanted)
    assert not list((to / "_rmqha" / "staging").glob("*"))

    # The broker deletes its oldest file: the table keeps what was in it.
    young = tmp_path / "young"
    young.mkdir()
    for path in store.rglob("*"):
        target = young / path.relative_to(store)
        if path.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        elif path.parent.name != "commitlog" or int(path.name):
            target.write_bytes(path.read_bytes())
    live = {"path": str(young), "subscribePattern": "Topic.*|%RETRY%.*"}
    view(spark, "everything", str(to), live)
    sums = spark.sql("select count(*) n, count(distinct msgId) ids from everything").first()
    assert sums.n == len(wanted)
    one = table(spark, str(to), live | {"subscribePattern": "TopicC"}, include_properties=True)
    assert one.where(F.col("properties").isNotNull()).count() == len(
        [row for row in wanted if row["topic"] == "TopicC"]
    )


def test_what_cannot_be_joined_or_verified_is_refused(
    spark: Any, store: Path, tmp_path: Path
) -> None:
    to = tmp_path / "archive"
    result = run(spark, store, to, topics=("TopicC",), most=25, broker_name="broker-a")
    assert result.numbers["runs"] == 2
    assert result.numbers["archiveRows"] == 41
    with pytest.raises(WrongUsage, match="--broker-name"):
        run(spark, store, to, topics=("TopicC",))
    with pytest.raises(WrongUsage, match="no starting offsets"):
        table(spark, str(to), {"path": str(store), "startingTimestamp": "5"})
    empty = table(spark, str(tmp_path / "none"))
    assert empty.count() == 0
    live = {"path": str(store), "subscribe": "TopicC", "brokerName": "broker-a"}
    assert table(spark, str(to), live).count() == 41
    # Another message is where the archive ends: as when a master was replaced by a shorter slave.
    manifest = to / "_rmqha" / "run-000002.json"
    written = json.loads(manifest.read_text())
    assert all(each["last"] for each in written["ranges"])
    written["ranges"][-1]["last"] = "AC1100020001@1700000000000"
    manifest.write_text(json.dumps(written))
    result = run(spark, store, to, topics=("TopicC",), broker_name="broker-a")
    assert result.outcome is Outcome.VIOLATED
    assert [row["code"] for row in result.findings.collect()] == ["REPLACED"]
    with pytest.raises(CannotDecide, match="holds another message now"):
        table(spark, str(to), live)
    assert table(spark, str(to), live | {"failOnDataLoss": "false"}).count() == 41
    (to / "_rmqha" / "run-000001.json").write_text("{")
    with pytest.raises(CannotDecide, match=r"run-000001\.json is damaged"):
        run(spark, store, to, topics=("TopicC",), broker_name="broker-a")


def test_two_jobs_at_once_do_not_archive_the_same_twice(
    spark: Any, store: Path, tmp_path: Path
) -> None:
    """The second one plans, archives and ends between the first one's plan and its run."""
    to, now_ms = tmp_path / "archive", int(time.time() * 1000)
    asked = Asked(place=StorePlace(str(store)), to=str(to), topics=("TopicC",))
    second: Any = FakeJob(spark, now_ms)
    first: Any = FakeJob(spark, now_ms)

    def step(name: str) -> None:
        if name == "planned":
            assert archive(second, asked).outcome is Outcome.HOLDS

    with pytest.raises(CannotDecide, match="one at a time"):
        archive(first, asked, step)
    rows = archived(spark, str(to)).select("queueId", "queueOffset").collect()
    assert len(set(rows)) == len(rows) == 41
    # What both rest on: of two that make a file or move one, one succeeds.
    files = Files(spark, str(tmp_path / "files"))
    assert files.create("a", "1", "x")
    assert not files.create("a", "2", "y")
    assert not files._link("b", "a")
    assert files.move("a", "deep/b")
    assert not files.move("a", "deep/b")
    assert files.read("deep/b") == "1"


@pytest.mark.skipif(not KILLS, reason="RMQ_HA_SPARK_KILLS=20 takes minutes")
def test_processes_that_are_killed_at_random_moments(
    spark: Any, store: Path, wanted: list[dict[str, Any]], tmp_path: Path
) -> None:
    """kill -9 of the command and its JVM; the last run is left in peace."""
    to, random = tmp_path / "archive", Random(20)
    command = [
        sys.executable, "-c", "from rmq_ha.spark.cli import main; main()", "archive", str(store),
        "--to", str(to), "--before", "now", "--run-messages", "20", "--master", "local[2]",
    ]  # fmt: skip
    began = time.monotonic()
    subprocess.run([*command[:5], "--to", str(tmp_path / "timing"), "--before", "now"], check=True)
    whole = time.monotonic() - began
    for _ in range(KILLS):
        process = subprocess.Popen(command, start_new_session=True)
        time.sleep(random.uniform(0.3, 1.1) * whole)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        seen = archived(spark, str(to)).select("topic", "queueId", "queueOffset").collect()
        assert len(set(seen)) == len(seen)
    subprocess.run(command, check=True)
    rows = [row.asDict() for row in archived(spark, str(to)).collect()]
    assert keys(rows) == keys(wanted)
    assert spark.read.parquet(str(to)).count() == len(wanted)
