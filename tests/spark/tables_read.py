"""Tables of brokers and stores, read as Spark does it, without Spark around."""

from __future__ import annotations

from typing import Any

from rmq_ha.lake.spark.source.batch import make_reader
from rmq_ha.lake.spark.source.schema import TABLE_COLUMNS, struct_of

BOTH_WAYS = ("consumerOffsets", "topics", "groups", "delayOffsets", "queues", "consumeQueue")
"""Tables that files have, and brokers tell."""


def read_table(table: str, **options: str) -> list[tuple[Any, ...]]:
    """All rows, sorted."""
    schema = struct_of(TABLE_COLUMNS[table])
    reader: Any = make_reader({"table": table, **options}, schema)
    found: list[tuple[Any, ...]] = []
    for partition in reader.partitions():
        for batch in reader.read(partition):
            found += [tuple(row.values()) for row in batch.to_pylist()]
    return sorted(found)
