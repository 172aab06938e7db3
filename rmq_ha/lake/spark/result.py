"""Types of a job's result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rmq_ha.ops.offsets.findings import Outcome

if TYPE_CHECKING:  # code that only reads files needs no session
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Table:
    """
    A table of the report.

    :ivar note: a sentence above it.
    :ivar rows: at most some hundreds; longer lists belong into the findings.
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
    :ivar x: numbers, texts, or datetimes.
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

    :ivar findings: rows of `rmq_ha.lake.spark.findings.FINDINGS`.
    :ivar outcome: `HOLDS`, `VIOLATED` or `UNDECIDED`.
    :ivar verdict: one line.
    :ivar numbers: plain JSON values for the summary.
    :ivar sections: sections of the report, in order.
    :ivar frames: further DataFrames by name, written as Parquet below the output directory.
    """

    findings: DataFrame
    outcome: Outcome
    verdict: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    sections: Sequence[Table | Plot] = ()
    frames: Mapping[str, DataFrame] = field(default_factory=dict)
