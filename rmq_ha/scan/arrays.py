"""Arrow batches filled up, and texts as numbers."""

from typing import Any

import numpy as np
import pyarrow as pa

_ODD = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)


def filled(columns: dict[str, Any], schema: Any) -> Any:
    """
    An Arrow batch of columns; what is not given is null.

    :param columns: one at least, equally long.
    """
    count = len(next(iter(columns.values())))
    arrays = [
        columns[field.name] if field.name in columns else pa.nulls(count, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def text_hashes(texts: Any, seeds: Any) -> Any:
    """
    A number of 64 bits for each text.

    :param texts: an Arrow array of texts; those of nulls mean nothing.
    :param seeds: one for each; equal texts with other seeds have other numbers.
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
        # Stirred before the text comes: seeds and first letters may differ by the same little.
        mixed = (seeds[mine] ^ np.uint64(length)) * _ODD
        mixed ^= mixed >> _SHIFT
        for column in words.view(np.uint64).T:
            mixed = (mixed ^ column) * _ODD
            mixed ^= mixed >> _SHIFT
        hashes[mine] = mixed * _ODD
    return hashes
