"""
Finds records in the bytes of a log: by following them one after the other, or from any place on.

A record has its own physical offset and size in its head, so it can be found and trusted.

Spec: store.md, sections 2.1, 2.2, 5.4; dledger.md, sections 3.2, 3.3 and 4.
"""

import re
from collections.abc import Iterator
from enum import Enum
from struct import Struct
from typing import Any, NamedTuple
from zlib import crc32

from rmq_ha.base.store_format.commitlog import (
    BLANK_MAGIC,
    BLANK_SIZE,
    CRC_MASK,
    HEADS,
    MAX_RECORD_SIZE,
    MESSAGE_MAGIC,
    RECORD_OVERHEAD,
    cuts_at,
    store_timestamp_of,
)
from rmq_ha.base.store_format.dledger import BLANK, HEADER, EntryHeader
from rmq_ha.base.store_format.dledger import BLANK_MAGIC as ENTRY_BLANK
from rmq_ha.base.store_format.dledger import MAGIC as ENTRY_MAGIC
from rmq_ha.base.store_format.dledger_values import ENTRY_HEADER_SIZE, MAX_ENTRY_SIZE, TERM_TOPIC

_PREFIX = Struct(">iI").unpack_from
_IDENTITY = Struct(">iI20xq")
_OFFSET = Struct(">q").unpack_from
_INT = Struct(">i").unpack_from
_MAGIC = re.compile(re.escape(MESSAGE_MAGIC.to_bytes(4, "big")))
_ENTRY = re.compile(re.escape(b"\0\0\0\1"))
_TERM_TOPIC = TERM_TOPIC.encode()
_LEAST_HEAD = 36


class Layout(Enum):
    """The form of a log: records one behind the other, or as bodies of DLedger's entries."""

    CLASSIC = "classic"
    DLEDGER = "dledger"


class ChainEnding(Enum):
    """The bytes at the place where a walk from record to record ends."""

    MORE = "the bytes end inside a record"
    BLANK = "the blank that fills a file up"
    NOT_WRITTEN = "zeros"
    TORN = "neither a record nor anything else that belongs into a log"


class RecordChain(NamedTuple):
    """
    A summary of consecutive records in a buffer that may end anywhere.

    :ivar first: store time of the first record in ms; -1 if there is no record.
    :ivar last: store time of the last record in ms; -1 if there is no record.
    :ivar end: index in the buffer behind the last record.
    :ivar needed: for `MORE`, the bytes that the next buffer needs from `end` on.
    """

    first: int
    last: int
    end: int
    tail: ChainEnding
    needed: int = 0


def chain(buffer: Any, base: int, layout: Layout = Layout.CLASSIC) -> RecordChain:
    """
    Follow records from the start of a buffer up to the first place without a record.

    :param base: physical offset of the buffer's first byte; a record that claims another offset is
        torn.
    """
    if layout is Layout.DLEDGER:
        return _chain_of_entries(buffer, base)
    places: list[int] = []
    keep, identity = places.append, _IDENTITY.unpack_from
    position, limit = 0, len(buffer)
    last = limit - _IDENTITY.size
    is_torn = False
    while position <= last:
        size, magic, offset = identity(buffer, position)
        if magic != MESSAGE_MAGIC or size < RECORD_OVERHEAD or position + size > limit:
            break
        is_torn = offset != base + position
        if is_torn:
            break
        keep(position)
        position += size
    # A record whose parts do not add up matters only at the end: elsewhere the next record follows
    # it.
    while places and _cuts(buffer, places[-1], position - places[-1]) is None:
        position, is_torn = places.pop(), True
    times = [_store_time_at(buffer, place) for place in (*places[:1], *places[-1:])] or [-1]
    if is_torn:
        return RecordChain(times[0], times[-1], position, ChainEnding.TORN)
    tail, _, needed = tail_at(buffer, position)
    return RecordChain(times[0], times[-1], position, tail, needed)


def _chain_of_entries(buffer: Any, base: int) -> RecordChain:
    places, end = sound_entries(buffer, base)
    first = next((time for time in _times(buffer, base, places, end)), -1)
    last = next((time for time in _times(buffer, base, places[::-1], end)), -1)
    tail, _, needed = entry_tail(buffer, base, end)
    return RecordChain(first, last, end, tail, needed)


def sound_entries(buffer: Any, base: int) -> tuple[list[int], int]:
    """
    Follow the entries of a DLedger as `entry_chain` does, up to one with a wrong header.

    :param base: physical offset of the buffer's first byte; an entry that claims another place is
        wrong.
    """
    places, end = entry_chain(buffer, 0)
    for at, place in enumerate(places):
        head = EntryHeader(*HEADER.unpack_from(buffer, place))
        if not head.is_sound or head.pos != base + place:
            return places[:at], place
    return places, end


def _times(buffer: Any, base: int, places: list[int], end: int) -> Iterator[int]:
    """Yield the store times (ms) of the records in entries; one that begins a term has none."""
    for place in places:
        at = place + ENTRY_HEADER_SIZE
        if at + RECORD_OVERHEAD > end:
            continue
        size, magic, offset = _IDENTITY.unpack_from(buffer, at)
        if size == _INT(buffer, at - 4)[0] and magic == MESSAGE_MAGIC and offset == base + at:
            cuts = _cuts(buffer, at, size)
            if cuts is not None and bytes(buffer[cuts[1] : cuts[2] - 2]) != _TERM_TOPIC:
                yield _store_time_at(buffer, at)


def _store_time_at(buffer: Any, position: int) -> int:
    return store_timestamp_of(bytes(buffer[position : position + RECORD_OVERHEAD]))


def _cuts(buffer: Any, position: int, size: int) -> tuple[int, int, int, int] | None:
    """Return where body, topic and properties begin, and the end; None: the sizes are wrong."""
    head = HEADS[buffer[position + 39] >> 4 & 3].size
    end = position + size
    if size <= head:
        return None
    length = _INT(buffer, position + head - 4)[0]
    cuts = cuts_at(buffer, end, position + head, length)
    return cuts if cuts is not None and cuts[3] == end else None


def tail_at(buffer: Any, end: int) -> tuple[ChainEnding, str, int]:
    """
    Return the kind of the bytes at a place without a record.

    :returns: the kind; why it is TORN, or an empty text; and for `MORE` the bytes that the next
        buffer needs from the place on.
    """
    room = len(buffer) - end
    if room < BLANK_SIZE:
        return ChainEnding.MORE, "", BLANK_SIZE
    size, magic = _PREFIX(buffer, end)
    if magic == BLANK_MAGIC:
        return ChainEnding.BLANK, "", 0
    if magic == 0 and size == 0:
        return ChainEnding.NOT_WRITTEN, "", 0
    if magic != MESSAGE_MAGIC:
        return ChainEnding.TORN, f"no record: its magic is {magic:08x}", 0
    if RECORD_OVERHEAD <= size <= MAX_RECORD_SIZE:
        return ChainEnding.MORE, "", size
    return ChainEnding.TORN, f"a record that claims {size} bytes", 0


def entry_chain(buffer: Any, start: int) -> tuple[list[int], int]:
    """
    Follow the entries of a DLedger by their magic codes and sizes.

    :returns: the index of each entry in the buffer, and the index behind the last one.
    """
    places: list[int] = []
    keep, prefix = places.append, BLANK.unpack_from
    position, limit = start, len(buffer)
    while position + ENTRY_HEADER_SIZE <= limit:
        magic, size = prefix(buffer, position)
        if magic != ENTRY_MAGIC or not ENTRY_HEADER_SIZE <= size <= MAX_ENTRY_SIZE:
            break
        if position + size > limit:
            break
        keep(position)
        position += size
    return places, position


def entry_tail(buffer: Any, base: int, end: int) -> tuple[ChainEnding, str, int]:
    room = len(buffer) - end
    if room < BLANK_SIZE:
        return ChainEnding.MORE, "", BLANK_SIZE
    if _PREFIX(buffer, end)[0] == ENTRY_BLANK:
        return ChainEnding.BLANK, "", 0
    if not any(buffer[end : end + min(room, ENTRY_HEADER_SIZE)]):
        return ChainEnding.NOT_WRITTEN, "", 0
    if room < ENTRY_HEADER_SIZE:
        return ChainEnding.MORE, "", ENTRY_HEADER_SIZE
    head = EntryHeader(*HEADER.unpack_from(buffer, end))
    if not head.is_sound:
        return ChainEnding.TORN, "no entry of a DLedger", 0
    if head.pos != base + end:
        return ChainEnding.TORN, f"an entry that says that it is at {head.pos}", 0
    return ChainEnding.MORE, "", head.size


def first_record(buffer: Any, base: int, start: int = 0, layout: Layout = Layout.CLASSIC) -> int:
    """
    Return the first index at or after `start` where a walk can begin; -1 if there is none.

    A message's body may contain bytes that look like a record. If they even name their own offset,
    somebody made them on purpose. So a record counts only if it is followed by bytes that belong
    into a log, or if its CRC is right. `rmq_ha.lake.scan.store.scanning` also begins well before
    the part that it wants, so that it has left any such body before that part.

    :returns: the place of the record, or in a DLedger log of its entry.
    """
    if layout is Layout.DLEDGER:
        return _first_entry(buffer, base, start)
    for magic in _MAGIC.finditer(buffer, start + 4):
        position = magic.start() - 4
        if _says(buffer, position + 28, base + position) and _may_begin(buffer, base, position):
            return position
    return -1


def _says(buffer: Any, at: int, offset: int) -> bool:
    """Return whether the 64-bit number at an index of the buffer is `offset`."""
    return bool(at + 8 <= len(buffer) and _OFFSET(buffer, at)[0] == offset)


def _may_begin(buffer: Any, base: int, position: int) -> bool:
    """
    Return whether a record may begin here: the next record, a blank or unwritten bytes follow it,
    or its body has the stored CRC. A record that ends after the buffer cannot be checked so, and
    may.
    """
    size, limit = _PREFIX(buffer, position)[0], len(buffer)
    if not RECORD_OVERHEAD <= size <= MAX_RECORD_SIZE:
        return False
    end = position + size
    if end > limit:
        return True
    cuts = _cuts(buffer, position, size)
    if cuts is None:
        return False
    # Byte 28 of a record is its physical offset, byte 8 the CRC of its body.
    if limit - end < _LEAST_HEAD or _says(buffer, end + 28, base + end):
        return True
    if tail_at(buffer, end)[0] in (ChainEnding.BLANK, ChainEnding.NOT_WRITTEN):
        return True
    body = memoryview(buffer)[cuts[0] : cuts[1] - 1]
    stored = int.from_bytes(buffer[position + 8 : position + 12], "big")
    return len(body) > 0 and crc32(body) & CRC_MASK == stored


def _first_entry(buffer: Any, base: int, start: int) -> int:
    for magic in _ENTRY.finditer(buffer, start):
        position = magic.start()
        if position + ENTRY_HEADER_SIZE > len(buffer):
            return -1
        head = EntryHeader(*HEADER.unpack_from(buffer, position))
        if head.is_sound and head.pos == base + position and head.size <= MAX_ENTRY_SIZE:
            return position
    return -1
