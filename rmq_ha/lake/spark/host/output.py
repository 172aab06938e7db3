"""
The output directory of a job: findings and frames as Parquet, a report, a summary.

`summary.json` is removed first and written last: if it exists, all other files are complete and of
the same run.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from rmq_ha.base.errors import WrongUsage
from rmq_ha.lake.frames import functions as F
from rmq_ha.lake.frames.frame import DataFrame, Engine
from rmq_ha.lake.spark.host.parquet_files import save_rows
from rmq_ha.lake.spark.result import Findings, JobResult
from rmq_ha.ops.offsets.digest import Digest, digest, digest_of_rows
from rmq_ha.ops.offsets.findings import COLUMNS, Outcome
from rmq_ha.ops.offsets.summary import STRICT, Timings, outcome_of, summary_of, to_json, version

SUMMARY = "summary.json"
REPORT = "report.html"
FINDINGS_DIRECTORY = "findings"
AT_HAND = 1000
"""
Up to this many findings are fetched by the driver, and written there. If there are more, the driver
fetches only this many.
"""
SHOWN = 300
"""How many findings the report shows."""


class JobOutput(NamedTuple):
    """The counted findings, the written summary (if any), and the outcome after `--strict`."""

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
    engine: Callable[[], Engine],
    *,
    strict: bool = False,
) -> JobOutput:
    """
    Count the findings, which runs the job's plan, and write the output.

    Up to `AT_HAND` findings need only one Spark job; of more, only counts and the worst ones are
    fetched.

    :param out: a directory, new or of an earlier run; None: nothing is written.
    :param engine: starts the engine, which is needed for some places.
    :param timings: `write` is measured here, and the counting is added to `run`.
    """
    began = time.monotonic()
    with _persisted_findings(result.findings) as findings:
        few, counted = _count(findings)
        timings = timings._replace(run=timings.run + time.monotonic() - began)
        outcome = outcome_of(result.outcome, counted, strict)
        verdict = result.verdict if outcome is result.outcome else result.verdict + STRICT
        began = time.monotonic()
        place: Any = None
        frames: Mapping[str, DataFrame] = {}
        if out is not None:
            from rmq_ha.lake.spark.findings import table_of

            place, frames = _place(out, engine()), result.frames()
            place.begin()
            if not isinstance(findings, DataFrame):
                few = table_of(findings)
            place.save_findings(findings, few)
            for name, frame in frames.items():
                place.save(name, frame)
    timings = timings._replace(write=time.monotonic() - began)
    about = job, version(), inputs, outcome, verdict
    summary = summary_of(*about, counted, result.numbers, timings)
    if place is not None:
        place.write(REPORT, _render(summary, counted, result.sections, sorted(frames), SHOWN))
        # Written last: a directory with a summary is complete.
        place.write(SUMMARY, to_json(summary))
    return JobOutput(outcome, verdict, counted, summary)


def _render(*given: Any) -> str:
    from rmq_ha.lake.spark.report.page import render  # needs jinja2

    return render(*given)


def write_refusal(
    job: str,
    inputs: Mapping[str, str],
    outcome: Outcome,
    reason: str,
    out: str | None,
    timings: Timings,
    engine: Engine | None = None,
) -> JobOutput:
    """
    Write the output of a job without a result, because it could not decide, or failed.

    :param reason: text in place of the verdict.
    :param engine: the engine, if it was started; needed if `out` is not a local directory.
    """
    nothing = digest((), (), 0)
    summary = summary_of(job, version(), inputs, outcome, reason, nothing, {}, timings)
    if out is not None and (engine is not None or _local(out)):
        place = _place(out, engine)
        place.begin()
        place.write(REPORT, _render(summary, nothing, (), (), 0))
        place.write(SUMMARY, to_json(summary))
    return JobOutput(outcome, reason, nothing, summary)


def prepare(out: str) -> None:
    """
    Check before anything is read that the output can be written.

    :raises WrongUsage: the output cannot be written; the text says why.
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
def _persisted_findings(findings: Findings) -> Iterator[Findings]:
    """Compute the findings once, however often they are used in the block."""
    if not isinstance(findings, DataFrame) or findings.is_kept:
        yield findings
        return
    kept = findings.keep()
    try:
        yield kept
    finally:
        kept.release()


def _count(findings: Findings) -> tuple[Any, Digest]:
    """Return all findings as an Arrow table if they are few, else None; and their counts."""
    if not isinstance(findings, DataFrame):
        rows = [dict(zip(COLUMNS, finding, strict=True)) for finding in findings]
        return None, digest_of_rows(rows, AT_HAND)
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
    """Return the directory that a text means, %20 as it is; None: it is not on this machine."""
    if out.startswith("file:"):
        return Path("/", out.removeprefix("file:").lstrip("/"))
    return Path(out).absolute() if "://" not in out else None


def _place(out: str, engine: Engine | None) -> Any:
    """Return the output directory, on this machine or where the engine can write."""
    local = _local(out)
    if local is not None:
        return _LocalPlace(local)
    assert engine is not None, "a place that is not local needs an engine"
    return engine.place(out)


class _LocalPlace:
    """An output directory on this machine."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def begin(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        (self._directory / SUMMARY).unlink(missing_ok=True)

    def write(self, name: str, text: str) -> None:
        """Write a file so that it is either complete or missing."""
        unfinished = self._directory / f".{name}.new"
        with unfinished.open("wb") as file:
            file.write(text.encode("utf-8", "replace"))
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(self._directory / name)

    def save_findings(self, findings: DataFrame, few: Any) -> None:
        """Write the findings as Spark would: a directory, with the mark that it is complete."""
        if few is None:
            self.save(FINDINGS_DIRECTORY, findings)
        else:
            save_rows(few, self._directory / FINDINGS_DIRECTORY)

    def save(self, name: str, frame: DataFrame) -> None:
        frame.save(str(self._directory / name))
