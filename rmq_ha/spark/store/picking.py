"""Records read one by one, from where a queue says that they are."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rmq_ha.spark.host.files import Files
from rmq_ha.spark.log.records import Records
from rmq_ha.spark.log.shape import Ints, as_bytes, fields, shape_of
from rmq_ha.spark.store.log_files import LogFile
from rmq_ha.spark.store.scanning import WINDOW, window_of
from rmq_ha.store.format.commitlog import MESSAGE_MAGIC, RECORD_OVERHEAD
from rmq_ha.store.scan import MAX_RECORD_SIZE

_NEAR = 64 << 10
"""Records that are so close are fetched with what is between them."""


def pick_records(
    files: Files, row: Sequence[LogFile], offsets: Ints, sizes: Ints, stop: int
) -> Records:
    """
    The records at these places, in this order; those that are not there are left out.

    :param stop: what ends behind it is not there.
    """
    parts: list[Any] = [b""] * len(offsets)
    usable = (sizes >= RECORD_OVERHEAD) & (sizes <= MAX_RECORD_SIZE) & (offsets + sizes <= stop)
    order = np.flatnonzero(usable)
    order = order[np.argsort(offsets[order], kind="stable")]
    starts, ends = offsets.tolist(), (offsets + sizes).tolist()
    waiting = order.tolist()[::-1]
    for file in row:
        while waiting and starts[waiting[-1]] < file.end:
            run = [waiting.pop()]
            low, high = starts[run[0]], ends[run[0]]
            if low < file.base or high > file.end:
                continue
            while waiting:
                start, end = starts[waiting[-1]], ends[waiting[-1]]
                if start > high + _NEAR or end > min(low + WINDOW, file.end):
                    break
                run.append(waiting.pop())
                high = max(high, end)
            buffer = window_of(files, file.path, low - file.base, high - low)
            for index in run:
                parts[index] = buffer[starts[index] - low : ends[index] - low]
    return _sound(parts, offsets, sizes)


def _sound(parts: list[Any], offsets: Ints, sizes: Ints) -> Records:
    there = np.fromiter((len(part) for part in parts), np.int64, len(parts)) == sizes
    there &= sizes >= RECORD_OVERHEAD
    buffer = b"".join(part for part, is_there in zip(parts, there, strict=True) if is_there)
    offsets, sizes = offsets[there], sizes[there]
    positions = np.cumsum(sizes) - sizes
    data = as_bytes(buffer)
    good = fields(data, positions, ">i4") == sizes
    good &= fields(data, positions + 4, ">u4") == MESSAGE_MAGIC
    good &= fields(data, positions + 28, ">i8") == offsets
    good &= shape_of(data, positions, sizes).fits
    return Records(buffer, 0, positions[good])
