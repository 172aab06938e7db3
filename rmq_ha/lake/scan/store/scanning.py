"""
Reads a log from front to back, in parts that may be read anywhere and in any order.

Every record belongs to the split in which it starts. Reading begins before the split, by the size
of the largest message. So a record that lies only in another one's body has been recognised before
the split begins.

Spec: store.md, sections 2.2 and 14.2.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from rmq_ha.base.store_files import OVERLAP, WINDOW, Files, window_of
from rmq_ha.base.store_format.commitlog import BLANK_SIZE
from rmq_ha.lake.scan.log.records import MAX_BATCH_ROWS, Records
from rmq_ha.lake.scan.log.walk import RecordWalk, walk
from rmq_ha.ops.offline.chain import ChainEnding, Layout, first_record
from rmq_ha.ops.offline.log_files import LogFile

SPLIT_SIZE = 64 << 20
LOOK_BACK = (4 << 20) + (256 << 10)
"""Bytes before a split where reading begins: more than a record with a body of `maxMessageSize`."""
_BEYOND = 64 << 10
"""Bytes after a split that are read with it: usually room for its last record."""


class Split(NamedTuple):
    """
    The records that start in `[lo, hi)`, physical offsets of one file.

    :ivar base: physical offset of the file's first byte.
    :ivar stop: physical offset from which on no byte is read.
    :ivar end: physical offset of the file's end.
    """

    path: str
    base: int
    lo: int
    hi: int
    stop: int
    end: int
    layout: Layout = Layout.CLASSIC


class Gap(NamedTuple):
    """
    Bytes that should be records, but are not.

    :ivar start: physical offset.
    :ivar end: where records, or the next file, continue.
    """

    path: str
    start: int
    end: int
    reason: str


def splits_of(row: list[LogFile], split_size: int, start: int, stop: int) -> list[Split]:
    """Return all records from `start` up to `stop` as splits."""
    splits = []
    for file in row:
        for low in range(file.base, file.end, split_size):
            lo, hi = max(low, start), min(low + split_size, file.end, stop)
            if lo < hi:
                splits.append(Split(file.path, file.base, lo, hi, stop, file.end, file.layout))
    return splits


def pieces(
    files: Files, split: Split, window: int = WINDOW, look_back: int = LOOK_BACK
) -> Iterator[Records | Gap]:
    """
    Yield records, window by window, and the gaps between them.

    A gap also belongs to the split in which it starts.

    :param look_back: how many bytes before the split reading begins.
    :raises CannotDecide: the file is gone, or shorter than it was.
    """
    limit = min(split.end, split.stop)
    # A split begins anywhere in a file. Reading begins before it, at bytes that may look like a
    # record by chance, so that the records are in step when the split's own begin.
    position = max(split.base, split.lo - look_back)
    is_sure = position == split.base
    torn: tuple[int, str] | None = None
    needed = 0
    # `is_sure`: a record begins at `position`. `torn`: where records ended, and why: a gap lasts
    # from there to the next record. `needed`: how many bytes the record at `position` claims.
    while position < limit and (position < split.hi or torn is not None):
        length = max(needed, min(window, split.hi - position + _BEYOND))
        length = min(window if torn is not None else length, limit - position)
        buffer = window_of(files, split.path, position - split.base, length)
        start = 0 if is_sure else first_record(buffer, position, 0, split.layout)
        if start < 0:
            position += max(1, length - OVERLAP if position + length < limit else length)
            continue
        if torn is not None:
            if torn[0] >= split.lo:
                yield Gap(split.path, torn[0], position + start, torn[1])
            torn = None
            if position + start >= split.hi:
                return
        walked = walk(buffer, position, start, split.layout)
        yield from _batches_of_split(buffer, position, walked, split)
        position += walked.end
        is_sure = walked.tail is ChainEnding.MORE and position + walked.needed <= limit
        needed = walked.needed
        is_end = walked.tail is ChainEnding.MORE and position + BLANK_SIZE > limit
        if walked.tail is ChainEnding.BLANK or is_end or position >= split.hi:
            return
        if not is_sure:
            torn = position, _reason(walked)
            position += 1
    if torn is not None and limit == split.end and torn[0] >= split.lo:
        yield Gap(split.path, torn[0], limit, torn[1])


def _reason(walked: RecordWalk) -> str:
    """Return why a walk along the records stopped, for a `Gap`."""
    if walked.tail is ChainEnding.NOT_WRITTEN:
        return "zeros"
    return walked.reason or f"a record that claims {walked.needed} bytes, more than there are"


def _batches_of_split(
    buffer: Any, position: int, walked: RecordWalk, split: Split
) -> Iterator[Records]:
    """Yield the records that start in the split, at most `MAX_BATCH_ROWS` at a time."""
    begin = int(np.searchsorted(walked.positions, split.lo - position))
    end = int(np.searchsorted(walked.positions, split.hi - position))
    records = Records(buffer, position, walked.positions, walked.shape)
    for at in range(begin, end, MAX_BATCH_ROWS):
        yield records.select(slice(at, min(at + MAX_BATCH_ROWS, end)))
