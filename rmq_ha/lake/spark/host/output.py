"""
The output directory of a job: findings and frames as Parquet, a report, a summary.

`summary.json` is removed first and written last: if it exists, all other files are complete and of
the same run.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from pyspark.sql.utils import is_remote

from rmq_ha.base.errors import WrongUsage
from rmq_ha.lake.spark.findings import FINDINGS
from rmq_ha.lake.spark.report.page import render
from rmq_ha.lake.spark.result import JobResult
from rmq_ha.ops.offsets.digest import Digest, digest, digest_of_rows
from rmq_ha.ops.offsets.findings import COLUMNS, Outcome
from rmq_ha.ops.offsets.summary import STRICT, Timings, outcome_of, summary_of, to_json, version

SUMMARY = "summary.json"
REPORT = "report.html"
FINDINGS_DIRECTORY = "findings"
AT_HAND = 1000
"""
Up to so many findings are fetched by the driver, and written there; of more findings only so many
are fetched.
"""
SHOWN = 300
"""How many findings the report shows."""


class JobOutput(NamedTuple):
    """
    The counted findings of a job, and the summary that was written (if any).

    :ivar outcome: the exit code, after `--strict`.
    """

    outcome: Outcome
    verdict: str
    findings: Digest
    summary: dict[str, Any]


def write_output(
    job: str,
    inputs: Mapping[str, str],
    result: JobResult,
    out: str | None,
    timings: Timings,
    *,
    strict: bool = False,
) -> JobOutput:
    """
    Count the findings, which runs the job's plan, and write the output.

    Up to `AT_HAND` findings need only one Spark job; of more, only counts and the worst ones are
    fetched.

    :param out: a directory, new or of an earlier run; None: nothing is written.
    :param timings: `write` is measured here, and the counting is added to `run`.
    """
    began = time.monotonic()
    with _persisted_findings(result.findings) as findings:
        few, counted = _count(findings)
        timings = timings._replace(run=timings.run + time.monotonic() - began)
        outcome = outcome_of(result.outcome, counted, strict)
        verdict = result.verdict if outcome is result.outcome else result.verdict + STRICT
        began = time.monotonic()
        place = None if out is None else _place(out, findings.sparkSession)
        if place is not None:
            place.begin()
            place.save_findings(findings.select(*COLUMNS), few)
            for name, frame in result.frames.items():
                place.save(name, frame)
    timings = timings._replace(write=time.monotonic() - began)
    about = job, version(), inputs, outcome, verdict
    summary = summary_of(*about, counted, result.numbers, timings)
    if place is not None:
        page = render(summary, counted, result.sections, sorted(result.frames), SHOWN)
        place.write(REPORT, page)
        place.write(SUMMARY, to_json(summary))
    return JobOutput(outcome, verdict, counted, summary)


def write_refusal(
    job: str,
    inputs: Mapping[str, str],
    outcome: Outcome,
    reason: str,
    out: str | None,
    timings: Timings,
    spark: SparkSession | None = None,
) -> JobOutput:
    """
    Write the output of a job without a result, because it could not decide, or failed.

    :param reason: text in place of the verdict.
    :param spark: the session, if one was started; needed if `out` is not a local directory.
    """
    nothing = digest((), (), 0)
    summary = summary_of(job, version(), inputs, outcome, reason, nothing, {}, timings)
    if out is not None and (spark is not None or _local(out)):
        place = _place(out, spark)
        place.begin()
        place.write(REPORT, render(summary, nothing, (), (), 0))
        place.write(SUMMARY, to_json(summary))
    return JobOutput(outcome, reason, nothing, summary)


def prepare(out: str) -> None:
    """
    Check before anything is read that the output can be written.

    :raises WrongUsage: it cannot; the text says why.
    """
    refuse_foreign(out)
    local = _local(out)
    if local is None:
        return
    try:
        local.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=local) as file:
            file.write(bytes(4096))
    except OSError as failed:
        why = failed.strerror or str(failed)
        raise WrongUsage(f"--out {out} cannot be written: {why}; name another place") from None


def refuse_foreign(out: str) -> None:
    """
    Refuse to write into a directory with other files.

    :raises WrongUsage: the local directory is not empty, and no job wrote it.
    """
    local = _local(out)
    if local is None:
        return
    if local.is_dir():
        try:
            names = set(os.listdir(local))
        except OSError as failed:
            raise WrongUsage(f"--out {out} cannot be read: {failed.strerror}") from None
        if names and not names & {SUMMARY, FINDINGS_DIRECTORY}:
            raise WrongUsage(
                f"--out {out}: the directory holds other things; name an empty or a new one"
            )
    elif local.exists():
        raise WrongUsage(f"--out {out}: that is a file; name a directory")


# ---------------------------------------------------------------- findings


@contextmanager
def _persisted_findings(findings: DataFrame) -> Iterator[DataFrame]:
    """Compute the findings once, however often they are used in the block."""
    if findings.storageLevel != StorageLevel.NONE:
        yield findings
        return
    findings.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield findings
    finally:
        findings.unpersist()


def _count(findings: DataFrame) -> tuple[pa.Table | None, Digest]:
    """Return all findings if they are few, else None; and their counts."""
    few = findings.limit(AT_HAND + 1).toArrow()
    if few.num_rows <= AT_HAND:
        return few, digest_of_rows(few.to_pylist(), AT_HAND)
    counts = findings.groupBy("severity", "code").count().toArrow().to_pylist()
    worst = F.when(F.col("severity") == "ERROR", 0).when(F.col("severity") == "WARN", 1)
    top = findings.orderBy(worst.otherwise(2), "code", "topic", "queueId", "queueOffset")
    return None, digest(
        ((row["severity"], row["code"], row["count"]) for row in counts),
        top.limit(AT_HAND).toArrow().to_pylist(),
        AT_HAND,
    )


# ---------------------------------------------------------------- places


def _local(out: str) -> Path | None:
    """
    Return the local directory that a text means; None: it is not local. As in Hadoop, no character
    is unquoted.
    """
    if out.startswith("file:"):
        return Path("/", out.removeprefix("file:").lstrip("/"))
    return Path(out).absolute() if "://" not in out else None


def _place(out: str, spark: SparkSession | None) -> "_Place":
    local = _local(out)
    if local is not None:
        return _LocalPlace(local)
    assert spark is not None, "a place that only Spark can reach needs a session"
    if is_remote():
        raise WrongUsage(f"--out {out}: over Spark Connect, name a directory of this machine")
    return _HadoopPlace(out, spark)


class _LocalPlace:
    """An output directory on this machine."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def begin(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        (self._directory / SUMMARY).unlink(missing_ok=True)

    def write(self, name: str, text: str) -> None:
        """Write the whole file or nothing."""
        unfinished = self._directory / f".{name}.new"
        with unfinished.open("wb") as file:
            file.write(text.encode("utf-8", "replace"))
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(self._directory / name)

    def save_findings(self, findings: DataFrame, few: pa.Table | None) -> None:
        """Write the findings as Spark would: a directory, with the mark that it is complete."""
        if few is None:
            self.save(FINDINGS_DIRECTORY, findings)
        else:
            self._save_rows(FINDINGS_DIRECTORY, few.select(list(COLUMNS)), FINDINGS)

    def save(self, name: str, frame: DataFrame) -> None:
        """
        Write a frame; with Spark Connect this process writes it, because Spark may run on another
        machine.
        """
        if is_remote():
            self._save_rows(name, frame.toArrow(), frame.schema)
        else:
            frame.write.mode("overwrite").parquet(f"file://{self._directory / name}")

    def _save_rows(self, name: str, rows: pa.Table, schema: StructType) -> None:
        directory = self._directory / name
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        rows = rows.cast(to_arrow_schema(schema, timezone="UTC"))
        pq.write_table(rows, directory / "part-0.parquet")
        (directory / "_SUCCESS").touch()


class _HadoopPlace:
    """An output directory on any file system that Spark knows."""

    def __init__(self, directory: str, spark: SparkSession) -> None:
        self._directory = directory.rstrip("/")
        jvm: Any = spark.sparkContext._jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        configuration = spark._jsparkSession.sessionState().newHadoopConf()
        self._files: Any = self._path(directory).getFileSystem(configuration)

    def _uri(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def begin(self) -> None:
        self._files.mkdirs(self._path(self._directory))
        self._files.delete(self._path(self._uri(SUMMARY)), False)

    def write(self, name: str, text: str) -> None:
        unfinished = self._path(self._uri(f".{name}.new"))
        stream = self._files.create(unfinished, True)
        stream.write(bytearray(text.encode("utf-8", "replace")))
        stream.close()
        self._files.delete(self._path(self._uri(name)), False)
        self._files.rename(unfinished, self._path(self._uri(name)))

    def save_findings(self, findings: DataFrame, few: pa.Table | None) -> None:
        self.save(FINDINGS_DIRECTORY, findings)

    def save(self, name: str, frame: DataFrame) -> None:
        frame.write.mode("overwrite").parquet(self._uri(name))


_Place = _LocalPlace | _HadoopPlace
