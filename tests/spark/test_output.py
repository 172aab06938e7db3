"""What a job leaves in its output directory."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'rmq-ha[spark]'")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from rmq_ha.lake.spark.findings import FINDINGS, table_of
from rmq_ha.lake.spark.host.engine import SparkEngine, SparkFrame
from rmq_ha.lake.spark.host.hadoop import HadoopPlace
from rmq_ha.lake.spark.host.output import AT_HAND, refuse_foreign, write_output
from rmq_ha.lake.spark.result import JobResult, Table
from rmq_ha.ops.offsets.findings import Finding, Outcome
from rmq_ha.ops.offsets.summary import Timings

pytestmark = pytest.mark.spark

TIMINGS = Timings(1_700_000_000_000, 1.0, 2.0)
FEW = [
    Finding("WARN", "STALE", "Look again.", broker="b"),
    Finding("ERROR", "LOST", "Restore it.", topic="t", queue_id=1, queue_offset=2**40),
]


def jobs_done(spark: SparkSession) -> int:
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup("counted"))


def rows_of(spark: SparkSession) -> DataFrame:
    """`FEW` as a frame of Spark, which is not kept."""
    return spark.createDataFrame(table_of(FEW))


def engine() -> Any:
    raise AssertionError("nothing is written, so no engine is needed")


def result(findings: DataFrame, **values: Any) -> JobResult:
    frames = {name: SparkFrame(rows) for name, rows in values.pop("frames", {}).items()}
    values["frames"] = lambda: frames
    return JobResult(
        SparkFrame(findings),
        values.pop("outcome", Outcome.VIOLATED),
        "Not safe.",
        {"lag": 3},
        **values,
    )


def test_few_findings_are_counted_and_written(spark: SparkSession, tmp_path: Path) -> None:
    """Summary, report, findings and frames; the same directory takes the next run."""
    findings = rows_of(spark)
    out = tmp_path / "out dir"
    frames = {"lag": spark.range(3)}
    sections = [Table("Lag", ("queue", "lag"), [(1, 2)])]
    written = write_output(
        "verify-offsets",
        {"master": "/a"},
        result(findings, frames=frames, sections=sections),
        str(out),
        TIMINGS,
        lambda: SparkEngine(spark),
    )
    assert written.findings.counts == {"LOST": 1, "STALE": 1}
    assert written.outcome is Outcome.VIOLATED
    summary = json.loads((out / "summary.json").read_text())
    assert summary == written.summary
    assert summary["severities"] == {"ERROR": 1, "WARN": 1, "INFO": 0}
    assert summary["seconds"]["run"] >= 2
    assert "Not safe." in (out / "report.html").read_text()
    again = spark.read.parquet(str(out / "findings"))
    assert again.columns == FINDINGS.names
    assert {tuple(found) for found in again.collect()} == set(FEW)
    assert spark.read.parquet(str(out / "lag")).count() == 3
    assert sorted(path.name for path in out.iterdir()) == [
        "findings",
        "lag",
        "report.html",
        "summary.json",
    ]
    refuse_foreign(str(out))
    none = write_output(
        "x",
        {},
        result(findings.limit(0), outcome=Outcome.HOLDS),
        str(out),
        TIMINGS,
        lambda: SparkEngine(spark),
    )
    assert (none.outcome, none.findings.total) == (Outcome.HOLDS, 0)
    assert spark.read.parquet(str(out / "findings")).count() == 0


def test_few_findings_cost_one_pass(spark: SparkSession, tmp_path: Path) -> None:
    """What it costs to find them is paid once, in one Spark job, also when they are written."""
    context = spark.sparkContext
    seen = context.accumulator(0)

    def counted(batches: Any) -> Any:
        for batch in batches:
            seen.add(batch.num_rows)
            yield batch

    findings = rows_of(spark).mapInArrow(counted, from_arrow_schema(FINDINGS))
    context.setJobGroup("counted", "findings")
    before = jobs_done(spark)
    write_output("x", {}, result(findings), str(tmp_path), TIMINGS, lambda: SparkEngine(spark))
    assert jobs_done(spark) - before == 1
    assert seen.value == len(FEW)
    assert findings.storageLevel.useMemory is False


def test_many_findings_stay_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    """All are counted and written; only the worst come to the driver."""
    many = spark.range(5000, numPartitions=2).select(
        F.when(F.col("id") == 4321, "ERROR").otherwise("INFO").alias("severity"),
        F.when(F.col("id") == 4321, "LOST").otherwise("LATE").alias("code"),
        F.lit("Look.").alias("detail"),
        *(
            F.lit(None).cast(field.dataType).alias(field.name)
            if field.name != "queueOffset"
            else F.col("id").alias("queueOffset")
            for field in from_arrow_schema(FINDINGS).fields[3:]
        ),
    )
    written = write_output(
        "x", {}, result(many), str(tmp_path / "out"), TIMINGS, lambda: SparkEngine(spark)
    )
    assert written.findings.counts == {"LOST": 1, "LATE": 4999}
    assert len(written.findings.top) == AT_HAND
    assert written.findings.top[0]["queueOffset"] == 4321
    assert spark.read.parquet(str(tmp_path / "out" / "findings")).count() == 5000


def test_any_file_system_of_spark_takes_the_output(spark: SparkSession, tmp_path: Path) -> None:
    """Hadoop's classes write what is no local path; here they write a local one."""
    place = HadoopPlace(f"file://{tmp_path}", spark)
    place.begin()
    for text in ("old", "new \u00fc"):
        place.write("summary.json", text)
    place.save_findings(SparkFrame(rows_of(spark)), None)
    assert (tmp_path / "summary.json").read_text("utf-8") == "new \u00fc"
    assert spark.read.parquet(f"file://{tmp_path}/findings").count() == 2
    place.begin()
    assert not (tmp_path / "summary.json").exists()


def test_strict_counts_warnings(spark: SparkSession) -> None:
    """Without a directory nothing is written, but all is counted."""
    found = result(rows_of(spark).limit(1), outcome=Outcome.HOLDS)
    assert write_output("x", {}, found, None, TIMINGS, engine).outcome is Outcome.HOLDS
    strict = write_output("x", {}, found, None, TIMINGS, engine, strict=True)
    assert strict.outcome is Outcome.VIOLATED
    assert strict.verdict == "Not safe. (--strict: a warning is a violation)"
