"""Compares log and ledgers, id by id: `lake.scan.ledger_compare` on executors."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

from rmq_ha.lake.frames import functions as F
from rmq_ha.lake.frames.frame import DataFrame
from rmq_ha.lake.scan.ledger_compare import SCHEMA, LedgerComparison
from rmq_ha.lake.scan.ledger_rows import unpack
from rmq_ha.lake.spark.audit.ledgers import AuditLedger
from rmq_ha.lake.spark.audit.packed_rows import divided
from rmq_ha.lake.spark.audit.shape import gathered
from rmq_ha.lake.spark.audit.stored_rows import AuditRequest

_PER_PART = 250_000
"""About how many rows of log and ledgers one task compares."""


@dataclass(frozen=True)
class LedgerDifferences:
    """
    The differences between log and ledgers.

    :ivar kinds: the pairs of kind and side that occur in `rows`. The side is the ledger that the
        difference concerns.
    """

    rows: DataFrame
    kinds: frozenset[tuple[int, int | None]]

    def rows_of(self, kind: int, side: int | None = None) -> DataFrame | None:
        """Return the rows of a kind and side; None: there are none, and Spark is not asked."""
        if not any(kind == other and side in (None, of) for other, of in self.kinds):
            return None
        rows = self.rows.where(F.col("kind") == kind)
        return rows if side is None else rows.where(F.col("side") == side)

    def rows_if_any(self, kind: int, side: int | None = None) -> Iterator[DataFrame]:
        """Yield the result of `rows_of`, if there are such rows."""
        rows = self.rows_of(kind, side)
        if rows is not None:
            yield rows


def compared(
    asked: AuditRequest,
    rows: DataFrame,
    count: int,
    produced: AuditLedger | None = None,
    delivered: AuditLedger | None = None,
) -> LedgerDifferences:
    """
    Compare log and ledgers.

    :param count: about how many messages these rows are; it decides how many tasks compare them.
    """
    sieve = LedgerComparison(
        asked.window_ms,
        () if produced is None else produced.spans,
        () if delivered is None else delivered.spans,
        asked.ordered,
        asked.grace_ms,
    )
    given = [ledger for ledger in (produced, delivered) if ledger is not None]
    told = [rows, *(ledger.rows for ledger in given)]
    count += sum(ledger.count for ledger in given)

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        parts: dict[int, list[bytes]] = {}
        for batch in batches:
            for part, data in zip(*(column.to_pylist() for column in batch), strict=True):
                parts.setdefault(part, []).append(data)
        while parts:
            yield from sieve.batches(map(unpack, parts.popitem()[1]))

    every = divided(reduce(DataFrame.unionAll, told), max(2, -(-count // _PER_PART)))
    result = every.mapInArrow(work, SCHEMA).freeze()
    kinds = {row[:2]: row[2] for row in result.groupBy("kind", "side").count().collect()}
    return LedgerDifferences(gathered(result, sum(kinds.values())), frozenset(kinds))
