"""Reads a commit log record by record, in large steps.

Spec: store.md, sections 5.4 and 6.3.
"""

import sys
from typing import NamedTuple

from rmq_ha.base.runs import maker
from rmq_ha.base.runs.face import Rows
from rmq_ha.base.runs.row_list import NO_ROWS, rows_of
from rmq_ha.base.runs.run import Run
from rmq_ha.base.store_format.commitlog import (
    BLANK_SIZE,
    MAX_RECORD_SIZE,
    UNREADABLE,
    record_size_at,
    row_at,
)

READ_SIZE = 1 << 20

IDENTITY_SIZE = 36
"""
The first bytes of a record that show its size, and whether it belongs to its place in the log.
"""

MORE = -2


class Walk(NamedTuple):
    """
    The records in a part of the log.

    :ivar run: the records, in order.
    :ivar verdict: the kind of the bytes after the records: `MORE` (read again from there), `BLANK`,
        `UNREADABLE`, or the size of a record whose parts do not add up.
    :ivar needed: with `MORE`: how many bytes the next read must have to get any further.
    """

    run: Run
    verdict: int
    needed: int = 0

    @property
    def size(self) -> int:
        """The size of the records, in bytes."""
        return self.run.end - self.run.start


def walk(
    data: bytes,
    physical_offset: int,
    delay_levels: list[int],
    max_count: int,
    check_crc: bool = False,
    max_work: int = sys.maxsize,
    at: int = 0,
) -> Walk:
    """
    Read records that follow each other.

    :param data: bytes of one file, which may end anywhere.
    :param physical_offset: where `data` begins; a record with another physical offset is
        unreadable.
    :param max_work: the walk ends after the record with which the work of all reaches this; see
        `Rows.work`.
    :param at: position in `data` where the first record begins.
    """
    parts: list[Rows] = []
    position, work, needed = at, 0, 0
    verdict = MORE
    limit = len(data)
    while max_count > 0 and work < max_work:
        rows = maker.walk(
            data, position, physical_offset + position, max_count, max_work - work, check_crc, 0
        )
        if rows is None:
            # The maker takes only ordinary records. Python reads the next one by all rules.
            row = row_at(data, position, limit, delay_levels, check_crc)
            if isinstance(row, int):
                verdict = row
                if row == UNREADABLE:
                    verdict, needed = _unreadable(data, position, limit, physical_offset)
                break
            if row[2] != physical_offset + position:
                verdict = UNREADABLE
                break
            rows = rows_of([row])
        parts.append(rows)
        position = rows.end - physical_offset
        max_count -= len(rows)
        work += rows.work
    start, end = physical_offset + at, physical_offset + position
    return Walk(Run(start, end, maker.concat(parts) if parts else NO_ROWS), verdict, needed)


def _unreadable(data: bytes, position: int, limit: int, physical_offset: int) -> tuple[int, int]:
    """
    Decide whether unreadable bytes may be the begin of a record.

    :returns: `MORE` and how many bytes have to be read to know it, or `UNREADABLE` and 0.
    """
    size = record_size_at(data, position, limit)
    if position + size > limit and size <= MAX_RECORD_SIZE:
        if limit - position >= IDENTITY_SIZE and not _belongs(data, position, physical_offset):
            return UNREADABLE, 0
        return MORE, size
    if limit - position < BLANK_SIZE:
        return MORE, BLANK_SIZE
    return UNREADABLE, 0


def _belongs(data: bytes, position: int, physical_offset: int) -> bool:
    """
    Return whether the record at `position` names that position as its physical offset; see
    `IDENTITY_SIZE`.
    """
    said = int.from_bytes(data[position + 28 : position + IDENTITY_SIZE], "big")
    return said == physical_offset + position
