"""What the log and the ledgers tell of each id, compared by `rmq_ha.scan.sieve` on executors."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from rmq_ha.scan.sieve import DELIVERED, PRODUCED, SCHEMA, STORED, TOLD, Sieve
from rmq_ha.spark.audit.ledgers import Ledger
from rmq_ha.spark.audit.shape import frozen
from rmq_ha.spark.audit.stored import Asked

_PER_PARTITION = 250_000
_OF_RECORDS = {"bodyCrc": "bodyCRC"}
_OF_LEDGERS = {"order": "coalesce(sequence, atMs)"}


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
    ids: DataFrame | None = None,
) -> Compared:
    """
    Compare.

    :param rows: of `stored.stored_rows`.
    :param count: how many, about.
    :param ids: what ledgers tell of these alone.
    """
    sieve = Sieve(
        asked.window_ms,
        () if produced is None else produced.spans,
        () if delivered is None else delivered.spans,
        asked.ordered,
    )
    told = [_told(rows.where("id is not null"), STORED, _OF_RECORDS)]
    for ledger, side in (produced, PRODUCED), (delivered, DELIVERED):
        if ledger is not None:
            some = ledger.rows if ids is None else ledger.rows.join(ids, "id", "left_semi")
            told.append(_told(some, side, _OF_LEDGERS))
            count += ledger.count

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        yield from sieve.batches(batches)

    every = reduce(DataFrame.unionAll, told).repartition(max(2, -(-count // _PER_PARTITION)), "id")
    result = frozen(every.mapInArrow(work, from_arrow_schema(SCHEMA)))
    kinds = result.select("kind", "side").distinct().collect()
    return Compared(result, frozenset((row["kind"], row["side"]) for row in kinds))


def _told(frame: DataFrame, side: int, named: Mapping[str, str]) -> DataFrame:
    have = {name: f"`{name}`" for name in frame.columns} | {"side": str(side), **named}
    return frame.select(
        *(
            F.expr(have.get(field.name, "null")).cast(field.dataType).alias(field.name)
            for field in from_arrow_schema(TOLD).fields
        )
    )
