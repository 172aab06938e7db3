"""Findings as rows of a DataFrame."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rmq_ha.lake.scan.reducing import LATEST_MS
from rmq_ha.ops.offsets.findings import COLUMNS, Finding

_TYPES = {
    "queueId": T.IntegerType(),
    "physicalOffset": T.LongType(),
    "queueOffset": T.LongType(),
    "observedAt": T.TimestampType(),
}
# The first three columns are never null.
FINDINGS = T.StructType(
    [
        T.StructField(name, _TYPES.get(name, T.StringType()), at > 2)
        for at, name in enumerate(COLUMNS)
    ]
)
"""The columns of every job's findings, in the order of `Finding`."""


def finding_row(finding: Finding) -> tuple[Any, ...]:
    """Return a finding as a row of `FINDINGS`."""
    at = finding.observed_at
    return (*finding[:-1], None if at is None else datetime.fromtimestamp(at / 1000, UTC))


def frame_of(spark: SparkSession, rows: Sequence[Finding]) -> DataFrame:
    """Return findings of the driver as a DataFrame."""
    return spark.createDataFrame([finding_row(finding) for finding in rows], FINDINGS)


def findings_of(frame: DataFrame, **given: Any) -> DataFrame:
    """
    Return a finding for each row.

    :param given: columns or values by their name in `FINDINGS`; all others are null, and so are
        times after the year 9999.
    """
    at = F.lit(given.get("observedAt")).cast("timestamp")
    given["observedAt"] = F.when(F.unix_millis(at).between(0, LATEST_MS), at)
    return frame.select(
        *(F.lit(given.get(field.name)).cast(field.dataType).alias(field.name) for field in FINDINGS)
    )


def meaning(texts: Mapping[Any, str], code: Column) -> Column:
    """Return the meaning of each row's code: its severity or its sentence."""
    pairs = (F.lit(str(part)) for pair in texts.items() for part in pair)
    return F.element_at(F.create_map(*pairs), code)
