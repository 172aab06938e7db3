"""
Yields all records of a classic log, and the damaged places between them.

Spec: store.md, sections 2.1, 2.2 and 5.4.
"""

from collections.abc import Iterator
from typing import NamedTuple

from rmq_ha.base.errors import CannotDecide
from rmq_ha.base.model.message import DispatchRequest
from rmq_ha.base.runs.log_walk import MORE, walk
from rmq_ha.base.store_files import OVERLAP, WINDOW, window_of
from rmq_ha.base.store_format.commitlog import BLANK
from rmq_ha.ops.offline.chain import Layout, first_record
from rmq_ha.ops.offline.directory import StoreFiles
from rmq_ha.ops.offline.log_files import LogFile


class Damage(NamedTuple):
    """
    Bytes of the log that are no record.

    :ivar path: the log file.
    :ivar end: physical offset where the next record begins, or the file or the log ends.
    """

    path: str
    start: int
    end: int


class FoundRecord(NamedTuple):
    """
    A record of the log.

    :ivar data: the record's bytes.
    """

    request: DispatchRequest
    data: bytes


def records(store: StoreFiles, start: int = 0) -> Iterator[FoundRecord | Damage]:
    """
    Yield records and damage from the first record at or after `start` on; the CRC of bodies is
    checked.

    :raises CannotDecide: the log is that of a DLedger group, or cannot be read.
    """
    if store.layout is not Layout.CLASSIC:
        raise CannotDecide(
            "this is the log of a DLedger group: each member checks its own at the start, and"
            " fetches from the leader what it lacks"
        )
    for file in store.log_files():
        end = min(file.end, store.max_offset())
        begin = max(start, file.base)
        if begin >= end:
            continue
        if begin > file.base:
            begin = _next(store, file, begin, end)
        yield from _of_file(store, file, begin, end)


def _of_file(
    store: StoreFiles, file: LogFile, position: int, end: int
) -> Iterator[FoundRecord | Damage]:
    want = WINDOW
    while position < end:
        length = min(want, file.end - position)
        data = bytes(window_of(store.files, file.path, position - file.base, length))
        walked = walk(data, position, [], len(data), check_crc=True)
        for request in map(DispatchRequest._make, walked.run.rows):
            at = request.physical_offset - position
            yield FoundRecord(request, data[at : at + request.size])
        want, position = WINDOW, position + walked.size
        if walked.verdict == BLANK:
            return
        if walked.verdict == MORE and length < file.end - (position - walked.size):
            want = max(WINDOW, walked.needed)
        elif position < end:
            following = _next(store, file, position + 1, end)
            yield Damage(file.path, position, following)
            position = following


def _next(store: StoreFiles, file: LogFile, position: int, end: int) -> int:
    """Return where the next record begins; `end` if none begins before it."""
    while position < end:
        length = min(WINDOW, file.end - position)
        data = bytes(window_of(store.files, file.path, position - file.base, length))
        at = first_record(data, position)
        if at >= 0:
            return min(position + at, end)
        position += max(1, length - OVERLAP)
    return end
