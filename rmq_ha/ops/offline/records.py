"""
Yields all records of a log, and the damaged places between them.

Spec: store.md, sections 2.1, 2.2 and 5.4; dledger.md, sections 3.2, 3.3 and 4.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from rmq_ha.base.errors import CorruptRecord
from rmq_ha.base.model.message import DispatchRequest, Row
from rmq_ha.base.runs.log_walk import MORE, walk
from rmq_ha.base.runs.row_list import rows_of
from rmq_ha.base.runs.run import Run
from rmq_ha.base.store_files import OVERLAP, WINDOW, window_of
from rmq_ha.base.store_format.commitlog import BLANK, decode_record, row_at
from rmq_ha.base.store_format.dledger_values import ENTRY_HEADER_SIZE, TERM_TOPIC
from rmq_ha.ops.offline.chain import (
    ChainEnding,
    Layout,
    entry_tail,
    first_record,
    sound_entries,
)
from rmq_ha.ops.offline.directory import StoreFiles
from rmq_ha.ops.offline.log_files import LogFile


class Damage(NamedTuple):
    """Bytes of a log file, [start, end), that are no record."""

    path: str
    start: int
    end: int


class LogStretch(NamedTuple):
    """
    Consecutive records of one file of the log.

    :ivar position: physical offset of the first byte of `data`.
    :ivar data: the bytes of the file that were read, with the records in them.
    :ivar has_right_crc: whether the bodies fit the CRCs that are stored with them. A record whose
        body does not is a stretch of its own.
    """

    path: str
    run: Run
    position: int
    data: bytes
    has_right_crc: bool = True


class FoundRecord(NamedTuple):
    """A record of the log, and the fields by which it is entered into queues and index."""

    request: DispatchRequest
    data: bytes


def records(store: StoreFiles, start: int = 0) -> Iterator[FoundRecord | Damage]:
    """
    Yield records and damage from the first record at or after `start` on. A record whose body does
    not fit its CRC counts as damage.

    :raises CannotDecide: the log cannot be read.
    """
    for stretch in stretches(store, start):
        if isinstance(stretch, Damage):
            yield stretch
        elif not stretch.has_right_crc:
            yield Damage(stretch.path, stretch.run.start, stretch.run.end)
        else:
            for request in map(DispatchRequest._make, stretch.run.rows):
                at = request.physical_offset - stretch.position
                yield FoundRecord(request, stretch.data[at : at + request.size])


def stretches(store: StoreFiles, start: int = 0) -> Iterator[LogStretch | Damage]:
    """
    Yield stretches of records, and the damage between them, from the first record at or after
    `start` on.

    :raises CannotDecide: the log cannot be read.
    """
    for file in store.log_files():
        end = min(file.end, store.max_offset())
        begin = max(start, file.base)
        if begin >= end:
            continue
        if begin > file.base:
            begin = _next(store, file, begin, end)
        of = _of_ledger if file.layout is Layout.DLEDGER else _of_file
        yield from of(store, file, begin, end)


def _of_file(
    store: StoreFiles, file: LogFile, position: int, end: int
) -> Iterator[LogStretch | Damage]:
    want = WINDOW
    while position < end:
        length = min(want, file.end - position)
        data = bytes(window_of(store.files, file.path, position - file.base, length))
        walked = walk(data, position, [], len(data), check_crc=True)
        if len(walked.run.rows):
            yield LogStretch(file.path, walked.run, position, data)
        begin = position
        want, position = WINDOW, position + walked.size
        if walked.verdict == BLANK:
            return
        if walked.verdict == MORE and length < file.end - begin:
            want = max(WINDOW, walked.needed)
        elif position < end:
            odd = _with_wrong_crc(data, begin, walked.size)
            if odd is not None:
                yield LogStretch(file.path, odd, begin, data, has_right_crc=False)
                position = odd.end
                continue
            following = _next(store, file, position + 1, end)
            yield Damage(file.path, position, following)
            position = following


def _of_ledger(
    store: StoreFiles, file: LogFile, position: int, end: int
) -> Iterator[LogStretch | Damage]:
    """Yield the records in the entries of a file; an entry that begins a term holds no message."""
    want = WINDOW
    while position < end:
        length = min(want, file.end - position)
        data = bytes(window_of(store.files, file.path, position - file.base, length))
        places, size = sound_entries(data, position)
        yield from _of_entries(file.path, data, position, places, size)
        tail, _, needed = entry_tail(data, position, size)
        begin, want, position = position, WINDOW, position + size
        if tail is ChainEnding.BLANK:
            return
        if tail is ChainEnding.MORE and length < file.end - begin:
            want = max(WINDOW, needed)
        elif position < end:
            following = _next(store, file, position + 1, end)
            yield Damage(file.path, position, following)
            position = following


def _of_entries(
    path: str, data: bytes, position: int, places: Sequence[int], size: int
) -> Iterator[LogStretch]:
    """
    Yield the records in some entries that follow each other. As in the broker, an entry that holds
    something else is left out; a queue that knows it has a finding of its own.

    :param places: where the entries begin in `data`.
    """
    rows: list[Row] = []
    for place, following in pairwise((*places, size)):
        at = place + ENTRY_HEADER_SIZE
        expected = position + at, following - at
        for check_crc in (True, False):
            row = row_at(data, at, following, [], check_crc)
            if isinstance(row, int) or row[2:4] != expected or row[0] == TERM_TOPIC:
                continue
            if check_crc:
                rows.append(row)
                break
            if rows:
                yield _stretch_of(path, rows, position, data)
                rows = []
            yield _stretch_of(path, [row], position, data)._replace(has_right_crc=False)
    if rows:
        yield _stretch_of(path, rows, position, data)


def _stretch_of(path: str, rows: list[Row], position: int, data: bytes) -> LogStretch:
    row_list = rows_of(rows)
    run = Run(row_list.start, row_list.end, row_list)
    return LogStretch(path, run, position, data)


def _with_wrong_crc(data: bytes, position: int, at: int) -> Run | None:
    """Return the record at the index `at` if only its body's CRC is wrong; otherwise None."""
    walked = walk(data, position, [], 1, at=at)
    if not len(walked.run.rows):
        return None
    try:
        decode_record(data, at, check_crc=True)
    except CorruptRecord:
        return walked.run
    return None


def _next(store: StoreFiles, file: LogFile, position: int, end: int) -> int:
    """Return the physical offset where the next record begins; `end` if none begins before that."""
    while position < end:
        length = min(WINDOW, file.end - position)
        data = bytes(window_of(store.files, file.path, position - file.base, length))
        at = first_record(data, position, layout=file.layout)
        if at >= 0:
            return min(position + at, end)
        position += max(1, length - OVERLAP)
    return end
