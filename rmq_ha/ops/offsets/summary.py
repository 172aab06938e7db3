"""`summary.json`: the answer of a job, for programs."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from importlib import metadata
from math import isfinite
from typing import Any, NamedTuple

from rmq_ha.ops.offsets.digest import Digest
from rmq_ha.ops.offsets.findings import Outcome

STRICT = " (--strict: a warning is a violation)"


class Timings(NamedTuple):
    """When a job ran (ms since the epoch), and the seconds of its parts."""

    started_at: int
    start: float = 0.0
    run: float = 0.0
    write: float = 0.0


def outcome_of(outcome: Outcome, counted: Digest, strict: bool) -> Outcome:
    """Return the final outcome: with `--strict`, a warning is a violation as well."""
    if strict and outcome is Outcome.HOLDS and counted.severities.get("WARN"):
        return Outcome.VIOLATED
    return outcome


def summary_of(
    job: str,
    version: str,
    inputs: Mapping[str, str],
    outcome: Outcome,
    verdict: str,
    counted: Digest,
    numbers: Mapping[str, Any],
    timings: Timings,
) -> dict[str, Any]:
    """Return `summary.json`; docs/reference/spark-findings.md describes its members."""
    return {
        "job": job,
        "version": version,
        "inputs": dict(inputs),
        "outcome": outcome.name,
        "exitCode": int(outcome),
        "verdict": verdict,
        "counts": counted.counts,
        "severities": counted.severities,
        "numbers": plain(numbers),
        "startedAt": iso(timings.started_at),
        "seconds": {
            "start": round(timings.start, 3),
            "run": round(timings.run, 3),
            "write": round(timings.write, 3),
        },
    }


def to_json(summary: Mapping[str, Any]) -> str:
    """Return the text of `summary.json`."""
    return json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def version() -> str:
    """Return the version of rmq-ha; `unknown` if it runs from a zip."""
    try:
        return metadata.version("rmq-ha")
    except metadata.PackageNotFoundError:  # runs from a zip given to spark-submit
        return "unknown"


def iso(ms: int) -> str:
    """Return a time as ISO 8601 in UTC, to the millisecond."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def plain(value: Any) -> Any:
    """Return a value for JSON: no NaN, times as ISO 8601, numpy's numbers as numbers."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes | bytearray):
        return [plain(item) for item in value]
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return plain(float(value))
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return str(value)
