"""Reads single records from the places that a queue's entries give."""

from collections.abc import Iterator, Sequence

import numpy as np

from rmq_ha.base.store_files import WINDOW, Files, window_of
from rmq_ha.base.store_format.commitlog import MAX_RECORD_SIZE, MESSAGE_MAGIC, RECORD_OVERHEAD
from rmq_ha.lake.scan.log.bodies import joined
from rmq_ha.lake.scan.log.records import Records
from rmq_ha.lake.scan.log.shape import Bytes, Ints, fields, shape_of
from rmq_ha.ops.offline.log_files import LogFile

_NEAR = 64 << 10
"""Records that are at most so many bytes apart are fetched together with the bytes between them."""


def pick_records(
    files: Files, row: Sequence[LogFile], offsets: Ints, sizes: Ints, stop: int
) -> Records:
    """
    Return the records at these places, in this order; records that do not exist are left out.

    :param stop: a record that ends after it does not exist.
    """
    numbers = np.searchsorted([file.base for file in row], offsets, "right") - 1
    limits = np.minimum([file.end for file in row], stop)[numbers]
    possible = (sizes >= RECORD_OVERHEAD) & (sizes <= MAX_RECORD_SIZE) & (numbers >= 0)
    possible &= sizes <= limits - offsets
    offsets, sizes, numbers = offsets[possible], sizes[possible], numbers[possible]
    order = np.argsort(offsets, kind="stable")
    starts = offsets[order]
    parts = [
        joined(
            window_of(files, row[number].path, low - row[number].base, high - low),
            starts[run] - low,
            starts[run] + sizes[order[run]] - low,
        )
        for run, number, low, high in _runs(starts, sizes[order], numbers[order])
    ]
    data = np.concatenate(parts) if parts else np.empty(0, np.uint8)
    positions = np.empty(len(order), np.int64)
    positions[order] = np.cumsum(sizes[order]) - sizes[order]
    return _sound(data, positions, offsets, sizes)


def _runs(starts: Ints, sizes: Ints, numbers: Ints) -> Iterator[tuple[slice, int, int, int]]:
    """
    Divide records that are sorted by offset into runs, each fetched with one read.

    :param numbers: for each record the number of its file.
    :returns: for each run its slice of the records, the number of its file, and the physical
        offsets at which its bytes begin and end.
    """
    ends = np.maximum.accumulate(starts + sizes)
    is_cut = (starts[1:] > ends[:-1] + _NEAR) | (numbers[1:] != numbers[:-1])
    cuts = np.append(np.flatnonzero(is_cut) + 1, len(starts))
    first = 0
    while first < len(starts):
        last = int(cuts[np.searchsorted(cuts, first, "right")])
        low = int(starts[first])
        last = max(first + 1, min(last, int(np.searchsorted(ends, low + WINDOW, "right"))))
        yield slice(first, last), int(numbers[first]), low, int(ends[last - 1])
        first = last


def _sound(data: Bytes, positions: Ints, offsets: Ints, sizes: Ints) -> Records:
    """Return those of the records whose size, magic code, offset and parts are right."""
    good = fields(data, positions, ">i4") == sizes
    good &= fields(data, positions + 4, ">u4") == MESSAGE_MAGIC
    good &= fields(data, positions + 28, ">i8") == offsets
    shape = shape_of(data, positions, sizes)
    good &= shape.fits
    return Records(data, 0, positions[good], shape.select(good))
