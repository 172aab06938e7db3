"""Reads ledgers, JSON lines or Parquet, by running `rmq_ha.lake.scan.ledger_files` on executors."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rmq_ha.base.errors import CannotDecide
from rmq_ha.lake.frames import functions as F
from rmq_ha.lake.frames.frame import CannotRead, DataFrame, Engine
from rmq_ha.lake.scan import ledger_files
from rmq_ha.lake.scan.ledger_compare import LedgerSpan
from rmq_ha.lake.scan.ledger_files import SPELLINGS, LedgerReading
from rmq_ha.lake.spark.audit.packed_rows import packed, unpacked

_TEXT = re.compile(r"\.(json|jsonl|ndjson)(\.gz|\.zst|\.bz2)?/*$", re.IGNORECASE)


@dataclass(frozen=True)
class AuditLedger:
    """
    A ledger that was read.

    :ivar rows: packed rows; a value that the ledger does not have is null.
    :ivar counts: partial counts: `topic`, `group`, `window` (null: without a time), `n`,
        `acknowledged`, `since` and `until` (ms).
    :ivar unusable: number of rows that are no JSON, or have no id.
    """

    rows: DataFrame
    counts: DataFrame
    unusable: int
    spans: Sequence[LedgerSpan]

    def select_ids(self, ids: DataFrame) -> "AuditLedger":
        """Return the part of the ledger with these ids."""
        some = unpacked(self.rows).join(ids, "id", "left_semi")
        return replace(self, rows=packed(some, None))

    @property
    def count(self) -> int:
        return sum(span.rows for span in self.spans)


def is_text(uri: str) -> bool:
    """Return whether a file has JSON lines, by its name; every other file is Parquet."""
    return _TEXT.search(uri) is not None


def read_ledger(engine: Engine, uri: str, reading: LedgerReading) -> AuditLedger:
    """
    Read a ledger of either kind.

    :param uri: a file or directory on any Hadoop file system.
    :raises CannotDecide: the ledger cannot be read, or no row has an id.
    """

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        yield from reading.batches(batches)

    try:
        told = _raw(engine, uri).mapInArrow(work, ledger_files.SCHEMA).freeze()
    except CannotRead as error:
        raise CannotDecide(
            f"the ledger {uri} cannot be read: {error}. Give JSON lines (.json, .jsonl, .ndjson)"
            " or Parquet"
        ) from error
    counts = told.where(F.col("kind") != ledger_files.PACKED).drop("data")
    sums = counts.groupBy("kind", "topic", "group").agg(
        F.sum("n").alias("n"), F.min("since").alias("since"), F.max("until").alias("until")
    )
    spans, others = [], {ledger_files.UNUSABLE: 0, ledger_files.OUTSIDE: 0}
    for kind, *about in sums.collect():
        if kind == ledger_files.COUNT:
            spans.append(LedgerSpan(*about))
        else:
            others[kind] = about[2]
    if others[ledger_files.UNUSABLE] and not (spans or others[ledger_files.OUTSIDE]):
        raise CannotDecide(
            f"no row of the ledger {uri} has {reading.id_column}: the columns of a ledger are"
            ' listed in docs/reference/spark-findings.md, "audit-messages"'
        )
    counted = counts.where(F.col("kind") == ledger_files.COUNT)
    rows = told.where(F.col("kind") == ledger_files.PACKED).select("data")
    return AuditLedger(rows, counted, others[ledger_files.UNUSABLE], spans)


def _raw(engine: Engine, uri: str) -> DataFrame:
    """Return the lines of a ledger, or those columns of Parquet whose names are known."""
    if is_text(uri):
        return engine.lines(uri)
    rows = engine.parquet([uri])
    nothing = F.lit(None).cast("string").alias("msg_id")  # rows without columns have no count
    return rows.select(nothing, *(name for name in rows.columns if name in SPELLINGS))
