"""Findings as rows of a DataFrame."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rmq_ha.offsets.findings import COLUMNS, Finding

_TYPES = {
    "queueId": IntegerType(),
    "physicalOffset": LongType(),
    "queueOffset": LongType(),
    "observedAt": TimestampType(),
}
# The first three are always there.
FINDINGS = StructType(
    [StructField(name, _TYPES.get(name, StringType()), at > 2) for at, name in enumerate(COLUMNS)]
)
"""The columns of every job's findings, in the order of `Finding`."""


def finding_row(one: Finding) -> tuple[Any, ...]:
    """As `FINDINGS` has it."""
    at = one.observed_at
    return (*one[:-1], None if at is None else datetime.fromtimestamp(at / 1000, UTC))


def frame_of(spark: SparkSession, rows: Sequence[Finding]) -> DataFrame:
    """Findings that the driver has made."""
    return spark.createDataFrame([finding_row(one) for one in rows], FINDINGS)
