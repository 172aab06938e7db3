"""Findings as rows of a frame."""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from rmq_ha.lake.frames import functions as F
from rmq_ha.lake.frames.columns import Column
from rmq_ha.lake.frames.frame import DataFrame, Engine
from rmq_ha.lake.scan.reducing import LATEST_MS
from rmq_ha.ops.offsets.findings import COLUMNS, Finding

_KINDS = {
    "queueId": ("int", pa.int32()),
    "physicalOffset": ("bigint", pa.int64()),
    "queueOffset": ("bigint", pa.int64()),
    "observedAt": ("timestamp", pa.timestamp("us", "UTC")),
}
_TEXT = ("string", pa.string())
FINDINGS = pa.schema(
    # The first three columns are never null.
    [pa.field(name, _KINDS.get(name, _TEXT)[1], at > 2) for at, name in enumerate(COLUMNS)]
)
"""The columns of every job's findings, in the order of `Finding`."""


def row_of(finding: Finding) -> dict[str, Any]:
    """Return a finding as a row of `FINDINGS`."""
    at = finding.observed_at
    row = dict(zip(COLUMNS, finding, strict=True))
    return row | {"observedAt": None if at is None or not 0 <= at <= LATEST_MS else at * 1000}


def table_of(rows: Iterable[Finding]) -> Any:
    """Return findings as a `pyarrow.Table`."""
    return pa.Table.from_pylist([row_of(finding) for finding in rows], FINDINGS)


def frame_of(engine: Engine, rows: Iterable[Finding]) -> DataFrame:
    """Return findings of this process as a frame."""
    return engine.table(table_of(rows))


def findings_of(frame: DataFrame, **given: Any) -> DataFrame:
    """
    Return a finding for each row.

    :param given: columns or values by their name in `FINDINGS`; all others are null, and so are
        times after the year 9999.
    """
    at = F.lit(given.get("observedAt")).cast("timestamp")
    given["observedAt"] = F.when(F.unix_millis(at).between(0, LATEST_MS), at)
    return frame.select(
        *(F.lit(given.get(name)).cast(_KINDS.get(name, _TEXT)[0]).alias(name) for name in COLUMNS)
    )


def meaning(texts: Mapping[Any, str], code: Column) -> Column:
    """Return the meaning of each row's code: its severity or its sentence."""
    pairs = (F.lit(str(part)) for pair in texts.items() for part in pair)
    return F.element_at(F.create_map(*pairs), code)
