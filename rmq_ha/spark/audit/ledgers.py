"""Ledgers: read by `rmq_ha.scan.ledgers` on executors, as JSON lines or Parquet."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from rmq_ha.errors import CannotDecide
from rmq_ha.scan.ledgers import (
    COUNT,
    LINE,
    OUTSIDE,
    PACKED,
    SCHEMA,
    SPELLINGS,
    STORED_STATUSES,
    UNUSABLE,
    Reading,
)
from rmq_ha.scan.sieve import Span
from rmq_ha.spark.audit.packed import packed, unpacked
from rmq_ha.spark.audit.shape import frozen, kept

COMMITTED = ("COMMIT_MESSAGE", "COMMIT")
"""What a producer says of a transaction that it ended so (`transactionState`)."""

_TEXT_FILES = (".json", ".jsonl", ".ndjson")
_PACKED = (".gz", ".zst", ".bz2")


@dataclass(frozen=True)
class Ledger:
    """
    A ledger that was read.

    :ivar rows: of `packed`; what the ledger does not have is null.
    :ivar counts: of these rows: `topic`, `group`, `window` (null: without a time), `n`,
        `acknowledged`, `since` and `until` (ms).
    :ivar unusable: rows that are no JSON, or have no id.
    :ivar spans: what `rows` are about.
    """

    rows: DataFrame
    counts: DataFrame
    unusable: int
    spans: Sequence[Span]

    def only(self, ids: DataFrame) -> "Ledger":
        """What it says of these ids alone."""
        some = unpacked(self.rows).join(ids, "id", "left_semi")
        return replace(self, rows=packed(some, None))

    @property
    def count(self) -> int:
        """Its rows."""
        return sum(span.rows for span in self.spans)


def is_text(uri: str) -> bool:
    """JSON lines by its name; everything else is Parquet."""
    name = uri.rstrip("/").lower()
    for suffix in _PACKED:
        name = name.removesuffix(suffix)
    return name.endswith(_TEXT_FILES)


def read_ledger(spark: SparkSession, uri: str, reading: Reading) -> Ledger:
    """
    Read a ledger of either kind.

    :param uri: a file or directory on any Hadoop file system.
    :raises CannotDecide: it cannot be read, or no row of it has an id.
    """

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        yield from reading.batches(batches)

    try:
        told = frozen(_raw(spark, uri).mapInArrow(work, from_arrow_schema(SCHEMA)))
    except AnalysisException as error:
        reason = str(error).splitlines()[0]
        raise CannotDecide(
            f"the ledger {uri} cannot be read: {reason}. Give JSON lines (.json, .jsonl, .ndjson)"
            " or Parquet"
        ) from error
    counts = kept(
        told.where(F.col("kind") != PACKED)
        .groupBy("kind", "topic", "group", "window")
        .agg(
            *(F.sum(name).alias(name) for name in ("n", "acknowledged")),
            F.min("since").alias("since"),
            F.max("until").alias("until"),
        )
    )
    sums = counts.groupBy("kind", "topic", "group").agg(
        F.sum("n").alias("n"), F.min("since"), F.max("until")
    )
    spans, others = [], {UNUSABLE: 0, OUTSIDE: 0}
    for kind, *about in sums.collect():
        if kind == COUNT:
            spans.append(Span(*about))
        else:
            others[kind] = about[2]
    if others[UNUSABLE] and not (spans or others[OUTSIDE]):
        raise CannotDecide(
            f"no row of the ledger {uri} has {reading.id_column}: docs/spark.md, audit_messages,"
            " says which columns a ledger has"
        )
    counted = counts.where(F.col("kind") == COUNT)
    rows = told.where(F.col("kind") == PACKED)
    return Ledger(rows.select("data"), counted, others[UNUSABLE], spans)


def _raw(spark: SparkSession, uri: str) -> DataFrame:
    """Its lines; of Parquet the columns that mean something to us."""
    if is_text(uri):
        lines = spark.read.text(uri).where(F.trim(LINE) != "")
        return lines.withColumn(LINE, F.col(LINE).cast("binary"))
    rows = spark.read.parquet(uri)
    names = [name for name in rows.columns if name in SPELLINGS]
    # Rows without a column would have no number.
    return rows.select(*names) if names else rows.select(F.lit(None).cast("string").alias("msgId"))


def acknowledged(status: Column) -> Column:
    """The producer was told that the message is stored."""
    return status.isNull() | status.isin(*STORED_STATUSES)
