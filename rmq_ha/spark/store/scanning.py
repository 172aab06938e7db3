"""Reading a log from front to back, in parts that may be read anywhere and in any order.

Every record belongs to the split in which it starts. A split begins to look before its own part:
the largest message back, so that a record that only lies in another one's body has been left
behind when its part begins.

Spec: store.md, sections 2.2 and 14.2.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from rmq_ha.spark.host.files import Files
from rmq_ha.spark.log.records import MAX_BATCH_ROWS, Records
from rmq_ha.spark.log.walk import Layout, Tail, Walk, first_record, walk
from rmq_ha.spark.result import CannotDecide
from rmq_ha.spark.store.log_files import LogFile

SPLIT_SIZE = 64 << 20
WINDOW = 8 << 20
LOOK_BACK = (4 << 20) + (256 << 10)
"""More than a record with a body of `maxMessageSize`."""
_OVERLAP = 128
"""Of a window in which nothing was found: as long as a head."""


class Split(NamedTuple):
    """
    The records that start in `[lo, hi)`.

    :ivar base: physical offset of the file's first byte.
    :ivar end: of the file; nothing of this file is behind it.
    :ivar stop: bytes from there on are not looked at.
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
    Bytes that should be records and are none.

    :ivar start: physical offset.
    :ivar end: where records, or the next file, go on.
    """

    path: str
    start: int
    end: int
    reason: str


def splits_of(row: list[LogFile], split_size: int, start: int, stop: int) -> list[Split]:
    """All records from `start` up to `stop`."""
    found = []
    for file in row:
        for low in range(file.base, file.end, split_size):
            lo, hi = max(low, start), min(low + split_size, file.end, stop)
            if lo < hi:
                found.append(Split(file.path, file.base, lo, hi, stop, file.end, file.layout))
    return found


def pieces(files: Files, split: Split) -> Iterator[Records | Gap]:
    """
    Records, window by window, and what stands between them that is none.

    :raises CannotDecide: the file is gone.
    """
    limit = min(split.end, split.stop)
    position = max(split.base, split.lo - LOOK_BACK)
    is_sure = position == split.base
    torn: tuple[int, str] | None = None
    want = WINDOW
    while position < split.hi:
        length = min(want, limit - position)
        buffer = window_of(files, split.path, position - split.base, length)
        if len(buffer) < length:
            limit = position + len(buffer)
            length = len(buffer)
        start = 0
        if not is_sure:
            start = first_record(buffer, position, 0, split.layout)
            if start < 0:
                if position + length >= limit:
                    break
                position += max(1, length - _OVERLAP)
                continue
        if torn is not None:
            if position + start > split.lo and torn[0] < split.hi:
                yield Gap(split.path, torn[0], position + start, torn[1])
            torn = None
        found = walk(buffer, position, start, split.layout)
        yield from _mine(buffer, position, found, split)
        end = position + found.end
        is_sure, want = True, WINDOW
        if found.tail is Tail.BLANK:
            return
        if found.tail is Tail.MORE:
            if position + length >= limit:
                torn = (end, "a record that is longer than what is there")
                break
            want = max(WINDOW, found.needed)
            position = end
            continue
        torn = (end, found.reason or "zeros")
        is_sure = False
        position = end + 1
    if torn is not None and limit == split.end and split.lo <= torn[0] < split.hi:
        yield Gap(split.path, torn[0], limit, torn[1])


def _mine(buffer: Any, position: int, found: Walk, split: Split) -> Iterator[Records]:
    begin = int(np.searchsorted(found.positions, split.lo - position))
    end = int(np.searchsorted(found.positions, split.hi - position))
    records = Records(buffer, position, found.positions, found.shape)
    for at in range(begin, end, MAX_BATCH_ROWS):
        yield records.select(slice(at, min(at + MAX_BATCH_ROWS, end)))


def window_of(files: Files, path: str, offset: int, length: int) -> Any:
    """
    A part of a file of the log.

    :raises CannotDecide: the file is gone, or the disk refuses.
    """
    try:
        return files.window(path, offset, length)
    except FileNotFoundError:
        raise CannotDecide(
            f"{path} vanished while it was read: the broker deletes what is older than "
            "fileReservedTime. Read again, from a higher offset or from a copy"
        ) from None
    except OSError as error:
        raise CannotDecide(f"{path} cannot be read at {offset}: {error}") from None
