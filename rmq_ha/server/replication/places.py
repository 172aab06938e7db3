"""Finds where records begin in a log that is read from any offset.

Spec: store.md, section 2.
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from rmq_ha.base.store_format.commitlog import (
    BLANK_MAGIC,
    BLANK_SIZE,
    MESSAGE_MAGIC,
    RECORD_OVERHEAD,
)
from rmq_ha.server.store.log.journal_log import LogBytes

_HEAD = Struct(">iI")
_PLACE = Struct(">q")
_PLACE_AT = 28
HEAD_SIZE = _PLACE_AT + _PLACE.size
_MAGIC = MESSAGE_MAGIC.to_bytes(4, "big")
WINDOWS = (1 << 16, 1 << 20, 1 << 24)
"""
How far back a record is searched for, in bytes; the last window holds several of the largest
records.
"""


class LastRecord(NamedTuple):
    """
    The last whole record in front of a certain offset.

    :ivar last: start of the last whole record.
    :ivar end: end of that record; it is below the certain offset if that offset lies within the
        next record.
    """

    last: int
    end: int


def lowest_place(log: LogBytes) -> int:
    """Return the smallest offset that a report may name: 0 would mean an empty log."""
    return max(int(log.min_offset), 1)


def begins_at(report: int) -> int:
    """
    Return the offset from which a report asks for the log. 1 stands for the first byte, as 0 would
    mean an empty log.
    """
    return 0 if report == 1 else report


def holds_nothing(log: LogBytes) -> bool:
    """Whether the log holds no record; it may have an empty first file, at any offset."""
    return int(log.max_offset) <= max(int(log.min_offset), 0)


def stretch(log: LogBytes, start: int, end: int) -> bytes:
    """
    Return the log's bytes between two offsets, across the ends of files.

    :raises StoreError: the disk cannot read them.
    """
    pieces = []
    while start < end and (piece := log.read(start, end - start)):
        pieces.append(piece)
        start += len(piece)
    return b"".join(pieces)


def record_size(data: bytes | bytearray, position: int, physical_offset: int, room: int) -> int:
    """
    Return the size in bytes of the record or blank at `position`, as its head says.

    :param physical_offset: physical offset of `position`.
    :param room: number of bytes from there to the end of the file.
    :returns: 0 if neither a record nor a blank is there; -1 if the head is cut off.
    """
    if position + BLANK_SIZE > len(data):
        return -1
    size, magic = _HEAD.unpack_from(data, position)
    if magic == BLANK_MAGIC:
        return size if size == room else 0
    if magic != MESSAGE_MAGIC or not RECORD_OVERHEAD <= size <= room:
        return 0
    if position + HEAD_SIZE > len(data):
        return -1
    return size if _PLACE.unpack_from(data, position + _PLACE_AT) == (physical_offset,) else 0


def chain_to(log: LogBytes, low: int, end: int) -> LastRecord | None:
    """
    Find the records that lead up to `end`, from as early as possible.

    Bytes in a message's body that look like a record are not found, since no records lead from them
    to `end`. Only bytes made for that purpose could pass.

    :param low: offset at which the search begins at the earliest.
    :returns: None if no whole record leads there.
    :raises StoreError: the disk cannot read the log.
    """
    for window in WINDOWS:
        start = max(low, end - window)
        chain = _find(stretch(log, start, end), start, log.file_size)
        if chain is not None or start == low:
            return chain
    return None


def whole_records_end(log: LogBytes, place: int) -> int | None:
    """
    Return the offset where the log's whole records end: `place`, or the log's end if that is lower.

    The caller knows that all records before `place` are whole. Only a piece of a record may follow:
    the part of a frame that a killed master had sent.

    :returns: None if whole records, or other bytes, follow on `place`.
    :raises StoreError: the disk cannot read the log.
    """
    end = int(log.max_offset)
    if place >= end:
        return end
    head = stretch(log, place, min(end, place + HEAD_SIZE))
    size = record_size(head, 0, place, log.file_size - place % log.file_size)
    return place if size < 0 or 0 < end - place < size else None


def _find(data: bytes, start: int, file_size: int) -> LastRecord | None:
    failed: set[int] = set()
    for position in _candidates(data):
        chain = _walk(data, start, position, file_size, failed)
        if chain is not None:
            return chain
    return None


def _candidates(data: bytes) -> Iterator[int]:
    """
    Yield positions with the magic number of a record.

    Blanks are not among them: a record follows a blank, but a chain must not start at one.
    """
    at = data.find(_MAGIC, 4)
    while at >= 0:
        yield at - 4
        at = data.find(_MAGIC, at + 1)


def _walk(
    data: bytes, start: int, position: int, file_size: int, failed: set[int]
) -> LastRecord | None:
    """Go from one record to the next; `failed` collects the positions that lead nowhere."""
    last = -1
    while position not in failed:
        place = start + position
        room = file_size - place % file_size
        size = record_size(data, position, place, room)
        if size == 0:
            break
        if size < 0 or position + size > len(data):
            return None if last < 0 else LastRecord(last, place)
        failed.add(position)
        if data[position + 4 : position + 8] == _MAGIC:
            last = place
        position += size
    return None
