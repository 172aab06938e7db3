"""Types of a job's result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rmq_ha.lake.frames.frame import DataFrame
from rmq_ha.ops.offsets.findings import Finding, Outcome

Findings = Sequence[Finding] | DataFrame


@dataclass(frozen=True)
class Table:
    """
    A table of the report: `note` is a sentence above it, and it has some hundred rows at most.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""


@dataclass(frozen=True)
class Plot:
    """
    A plot of the report.

    `series` maps names to y values, each as long as `x`.

    :ivar kind: `line`, `bar`, `step` or `scatter`.
    """

    title: str
    x: Sequence[Any]
    series: Mapping[str, Sequence[float | None]]
    x_label: str = ""
    y_label: str = ""
    kind: str = "line"
    note: str = ""


@dataclass(frozen=True)
class JobResult:
    """
    The result of a job.

    :ivar findings: a list, or a frame of rows of `rmq_ha.lake.spark.findings.FINDINGS`.
    :ivar numbers: plain JSON values for the summary.
    :ivar frames: makes further frames by name, which are written below the output directory.
    """

    findings: Findings
    outcome: Outcome
    verdict: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    sections: Sequence[Table | Plot] = ()
    frames: Callable[[], Mapping[str, DataFrame]] = dict
