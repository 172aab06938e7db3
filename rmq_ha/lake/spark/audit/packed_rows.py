"""
Packs rows that only Python reads.

Spark carries many rows as one value (`rmq_ha.lake.scan.ledger_rows`) in a column `data`, so that it
spends no time on each row.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from rmq_ha.lake.frames.frame import DataFrame
from rmq_ha.lake.scan.arrays import schema
from rmq_ha.lake.scan.ledger_rows import PARTS, STORED, TOLD, divide, pack, unpack

_DATA = schema("data:binary")


def packed(rows: DataFrame, side: int | None = STORED) -> DataFrame:
    """
    Return a frame with one column, `data`, in which each value holds many rows.

    :param rows: some columns of `TOLD`.
    :param side: where the rows come from; None: the column `side` of `rows` says it.
    """

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield pa.RecordBatch.from_arrays([pack(batch, side)], schema=_DATA)

    return rows.mapInArrow(work, _DATA)


def unpacked(some: DataFrame) -> DataFrame:
    """Return packed rows as rows of Spark with the schema `TOLD`."""

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield from map(unpack, batch["data"].to_pylist())

    return some.mapInArrow(work, TOLD)


def divided(some: DataFrame, parts: int) -> DataFrame:
    """Divide packed rows, those of an id into one part and task: rows with the schema `PARTS`."""

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for data in batch["data"].to_pylist():
                yield from divide(unpack(data), parts)

    every = some.mapInArrow(work, PARTS)
    return every.repartition(parts, "part")
