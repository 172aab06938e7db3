"""The log and the ledgers, compared id by id: `rmq_ha.lake.scan.sieve`, run on executors."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from rmq_ha.lake.scan.sieve import SCHEMA, Sieve
from rmq_ha.lake.scan.told import unpack
from rmq_ha.lake.spark.audit.ledgers import Ledger
from rmq_ha.lake.spark.audit.packed import divided
from rmq_ha.lake.spark.audit.shape import frozen, gathered
from rmq_ha.lake.spark.audit.stored import Asked

_PER_PART = 250_000


@dataclass(frozen=True)
class Compared:
    """
    What came of it.

    :ivar rows: as `sieve.SCHEMA`.
    :ivar kinds: with their sides, of these rows.
    """

    rows: DataFrame
    kinds: frozenset[tuple[int, int | None]]

    def of(self, kind: int, side: int | None = None) -> DataFrame | None:
        """The rows of a kind, of one ledger's; None: there are none, so Spark is asked nothing."""
        if not any(kind == other and side in (None, of) for other, of in self.kinds):
            return None
        rows = self.rows.where(F.col("kind") == kind)
        return rows if side is None else rows.where(F.col("side") == side)

    def each(self, kind: int, side: int | None = None) -> Iterator[DataFrame]:
        """`of`, if there are any."""
        rows = self.of(kind, side)
        if rows is not None:
            yield rows


def compared(
    asked: Asked,
    rows: DataFrame,
    count: int,
    produced: Ledger | None = None,
    delivered: Ledger | None = None,
) -> Compared:
    """
    Compare.

    :param rows: of the log, of `packed`.
    :param count: how many, about.
    """
    sieve = Sieve(
        asked.window_ms,
        () if produced is None else produced.spans,
        () if delivered is None else delivered.spans,
        asked.ordered,
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
    result = frozen(every.mapInArrow(work, from_arrow_schema(SCHEMA)))
    kinds = {row[:2]: row[2] for row in result.groupBy("kind", "side").count().collect()}
    return Compared(gathered(result, sum(kinds.values())), frozenset(kinds))
