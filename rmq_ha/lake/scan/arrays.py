"""Helpers for Arrow: schemas as texts, batches with all columns of one, groups, and hashes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

_ODD = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)
_KINDS = {
    "string": pa.string(), "int": pa.int32(), "long": pa.int64(), "boolean": pa.bool_(),
    "binary": pa.binary(), "timestamp": pa.timestamp("us", "UTC"),
    "map": pa.map_(pa.string(), pa.string()),
    "strings": pa.list_(pa.string()), "longs": pa.list_(pa.int64()),
}  # fmt: skip


def schema(columns: str, *more: tuple[str, Any]) -> Any:
    """Return the Arrow schema of columns like `topic:string queueId:int`, followed by others."""
    words = (word.split(":") for word in columns.split())
    return pa.schema([*((name, _KINDS[kind]) for name, kind in words), *more])


def filled(columns: dict[str, Any], schema: Any) -> Any:
    """
    Return an Arrow batch of arrays, at least one, and of values for all rows; the rest is null.
    """
    count = next(len(column) for column in columns.values() if isinstance(column, pa.Array))

    def array(field: Any) -> Any:
        column = columns.get(field.name)
        if column is None:
            return pa.nulls(count, field.type)
        if isinstance(column, pa.Array):
            return column
        return pa.repeat(pa.scalar(column, field.type), count)

    return pa.RecordBatch.from_arrays(list(map(array, schema)), schema=schema)


def grouped(columns: dict[str, Any], by: Sequence[str], how: dict[str, str]) -> dict[str, Any]:
    """
    Return columns with one row for each group.

    :param how: for each other column how it is aggregated: `sum`, `min`, `max`.
    """
    table = pa.table(columns).group_by(list(by)).aggregate(list(how.items()))
    names = {name: name for name in by} | {name: f"{name}_{kind}" for name, kind in how.items()}
    return {name: table[made].combine_chunks() for name, made in names.items()}


def text_hashes(texts: Any, seeds: Any) -> Any:
    """
    Return a number of 64 bits for each text.

    :param texts: an Arrow array of texts; the numbers of nulls mean nothing.
    :param seeds: a number for each text; equal texts with other seeds get other numbers.
    """
    buffers = texts.buffers()
    ends = np.frombuffer(buffers[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    data = np.frombuffer(buffers[2] or b"", np.uint8)
    starts, lengths = ends[:-1].astype(np.int64), np.diff(ends)
    hashes = np.empty(len(texts), np.uint64)
    for length in np.unique(lengths).tolist():
        mine = np.flatnonzero(lengths == length)
        width = -(-length // 8) * 8
        words = np.zeros((len(mine), width), np.uint8)
        words[:, :length] = data[starts[mine][:, None] + np.arange(length)]
        # Mixed before the text is added: seeds and first letters may differ by the same small
        # amount.
        mixed = (seeds[mine] ^ np.uint64(length)) * _ODD
        mixed ^= mixed >> _SHIFT
        for column in words.view(np.uint64).T:
            mixed = (mixed ^ column) * _ODD
            mixed ^= mixed >> _SHIFT
        hashes[mine] = mixed * _ODD
    return hashes
