"""Finding records: from one to the next, or anywhere.

A record says where it is and how long it is, so a log can be read from any place on. The walk
decides as the broker's own codec does (`rmq_ha.store.format.commitlog.decode_record`, and
`rmq_ha.store.scan` for its end); only CRCs are left to `Records.crc_ok`.

Spec: store.md, sections 2.1, 2.2, 5.4; dledger.md, sections 3.2, 3.3 and 4.
"""

import re
from enum import Enum
from struct import Struct
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from rmq_ha.dledger.format import BLANK, HEADER, Header
from rmq_ha.dledger.format import BLANK_MAGIC as ENTRY_BLANK
from rmq_ha.dledger.format import MAGIC as ENTRY_MAGIC
from rmq_ha.dledger.values import ENTRY_HEADER_SIZE, MAX_ENTRY_SIZE, TERM_TOPIC
from rmq_ha.spark.log.shape import (
    Bytes,
    Flags,
    Ints,
    Shape,
    as_bytes,
    fields,
    head_field,
    shape_of,
    windows,
)
from rmq_ha.store.format.commitlog import (
    BLANK_MAGIC,
    BLANK_SIZE,
    CRC_MASK,
    MESSAGE_MAGIC,
    RECORD_OVERHEAD,
)
from rmq_ha.store.scan import MAX_RECORD_SIZE

_PREFIX = Struct(">iI").unpack_from
_OFFSET = Struct(">q").unpack_from
_MAGIC = re.compile(re.escape(MESSAGE_MAGIC.to_bytes(4, "big")))
_ENTRY = re.compile(re.escape(b"\0\0\0\1"))
_TERM_TOPIC = TERM_TOPIC.encode()
_LEAST_HEAD = 36


class Layout(Enum):
    """How records lie in the files."""

    CLASSIC = "classic"
    DLEDGER = "dledger"


class Tail(Enum):
    """What stands where a walk ends."""

    MORE = "the bytes end inside a record"
    BLANK = "the blank that fills a file up"
    NOT_WRITTEN = "zeros"
    TORN = "neither a record nor anything else that belongs into a log"


class Walk(NamedTuple):
    """
    Records, one behind the other.

    :ivar positions: of the records in the buffer.
    :ivar sizes: bytes of each record; of DLedger without the 48 before it.
    :ivar end: where the walk stopped, in the buffer; a further walk may start there.
    :ivar tail: what stands at `end`.
    :ivar reason: of `TORN`: what is wrong there, else empty.
    :ivar needed: of `MORE`: bytes from `end` on that the next look has to see to get any further.
    :ivar shape: of the records.
    """

    positions: Ints
    sizes: Ints
    end: int
    tail: Tail
    reason: str = ""
    needed: int = 0
    shape: Shape | None = None


def walk(buffer: Any, base: int, start: int = 0, layout: Layout = Layout.CLASSIC) -> Walk:
    """
    All records from `start` on, up to the first place where there is none.

    :param buffer: bytes of one file, cut off anywhere.
    :param base: physical offset of its first byte; a record that says otherwise is torn.
    :param start: where a record, or with DLedger an entry, begins.
    """
    if layout is Layout.DLEDGER:
        return _walk_entries(buffer, base, start)
    places, end = _chain(buffer, start)
    positions = np.array(places, np.int64)
    sizes = np.diff(positions, append=end)
    data = as_bytes(buffer)
    shape = shape_of(data, positions, sizes)
    bad, reason = _first_bad(base, positions, shape)
    if bad >= 0:
        end = int(positions[bad])
        good = slice(bad)
        return Walk(positions[good], sizes[good], end, Tail.TORN, reason, 0, shape.of(good))
    return Walk(positions, sizes, end, *_tail(buffer, end), shape)


def _chain(buffer: Any, start: int) -> tuple[list[int], int]:
    """The records that magic and size make, and where they end."""
    places: list[int] = []
    found, prefix = places.append, _PREFIX
    position, limit = start, len(buffer)
    last = limit - BLANK_SIZE
    while position <= last:
        size, magic = prefix(buffer, position)
        if magic != MESSAGE_MAGIC or size < RECORD_OVERHEAD or position + size > limit:
            break
        found(position)
        position += size
    return places, position


def _first_bad(base: int, positions: Ints, shape: Shape) -> tuple[int, str]:
    """The first record that is none, and why; -1 if all are."""
    offsets = head_field(shape.heads, 28, ">i8")
    wrong = offsets != positions + base
    bad: Flags = wrong | ~shape.fits
    if not bad.any():
        return -1, ""
    index = int(bad.argmax())
    if wrong[index]:
        return index, f"a record that says that it is at {offsets[index]}"
    return index, "a record whose parts do not add up"


def _tail(buffer: Any, end: int) -> tuple[Tail, str, int]:
    room = len(buffer) - end
    if room < BLANK_SIZE:
        return Tail.MORE, "", BLANK_SIZE
    size, magic = _PREFIX(buffer, end)
    if magic == BLANK_MAGIC:
        return Tail.BLANK, "", 0
    if magic == 0 and size == 0:
        return Tail.NOT_WRITTEN, "", 0
    if magic != MESSAGE_MAGIC:
        return Tail.TORN, f"no record: its magic is {magic:08x}", 0
    if RECORD_OVERHEAD <= size <= MAX_RECORD_SIZE:
        return Tail.MORE, "", size
    return Tail.TORN, f"a record that claims {size} bytes", 0


def _walk_entries(buffer: Any, base: int, start: int) -> Walk:
    places, end = _entry_chain(buffer, start)
    data, entries = as_bytes(buffer), np.array(places, np.int64)
    lengths = np.diff(entries, append=end) - ENTRY_HEADER_SIZE
    heads = windows(data, entries, ENTRY_HEADER_SIZE)
    sound: Flags = _numbers(heads, 24, ">i8") == entries + base
    sound &= (_numbers(heads, 8, ">i8") >= 0) & (_numbers(heads, 16, ">i8") >= 0)
    sound &= _numbers(heads, 44, ">i4") == lengths
    if not sound.all():
        count = int(sound.argmin())
        end = int(entries[count])
        entries, lengths = entries[:count], lengths[:count]
    large = lengths >= RECORD_OVERHEAD
    at, lengths = entries[large] + ENTRY_HEADER_SIZE, lengths[large]
    good = fields(data, at, ">i4") == lengths
    good &= fields(data, at + 4, ">u4") == MESSAGE_MAGIC
    at, lengths = at[good], lengths[good]
    shape = shape_of(data, at, lengths)
    # As the broker: an entry that holds no record of its own is left out, and so is the one
    # with which a leader begins its term.
    good = shape.fits & (head_field(shape.heads, 28, ">i8") == at + base)
    good &= ~_are_of_topic(data, shape, _TERM_TOPIC)
    return Walk(at[good], lengths[good], end, *_entry_tail(buffer, base, end), shape.of(good))


def _entry_chain(buffer: Any, start: int) -> tuple[list[int], int]:
    """The entries that magic and size make, and where they end."""
    places: list[int] = []
    found, prefix = places.append, BLANK.unpack_from
    position, limit = start, len(buffer)
    while position + ENTRY_HEADER_SIZE <= limit:
        magic, size = prefix(buffer, position)
        if magic != ENTRY_MAGIC or not ENTRY_HEADER_SIZE <= size <= MAX_ENTRY_SIZE:
            break
        if position + size > limit:
            break
        found(position)
        position += size
    return places, position


def _numbers(heads: Bytes, at: int, dtype: str) -> Any:
    kind = np.dtype(dtype)
    return heads[:, at : at + kind.itemsize].view(kind)[:, 0]


def _are_of_topic(data: Bytes, shape: Shape, topic: bytes) -> Flags:
    same: Flags = shape.fits & (shape.topic_end - shape.topic == len(topic))
    for index in np.flatnonzero(same):
        place = shape.topic[index]
        same[index] = data[place : place + len(topic)].tobytes() == topic
    return same


def _entry_tail(buffer: Any, base: int, end: int) -> tuple[Tail, str, int]:
    room = len(buffer) - end
    if room < BLANK_SIZE:
        return Tail.MORE, "", BLANK_SIZE
    if _PREFIX(buffer, end)[0] == ENTRY_BLANK:
        return Tail.BLANK, "", 0
    if not any(buffer[end : end + min(room, ENTRY_HEADER_SIZE)]):
        return Tail.NOT_WRITTEN, "", 0
    if room < ENTRY_HEADER_SIZE:
        return Tail.MORE, "", ENTRY_HEADER_SIZE
    head = Header(*HEADER.unpack_from(buffer, end))
    if not head.is_sound:
        return Tail.TORN, "no entry of a DLedger", 0
    if head.pos != base + end:
        return Tail.TORN, f"an entry that says that it is at {head.pos}", 0
    return Tail.MORE, "", head.size


def first_record(buffer: Any, base: int, start: int = 0, layout: Layout = Layout.CLASSIC) -> int:
    """
    The first place at or behind `start` where a walk can begin; -1: none.

    A record's bytes may also stand inside a body. One that says exactly where it is can only be
    meant to deceive; it is taken only if something that belongs into a log follows it, or its CRC
    holds. `rmq_ha.spark.store.scanning` also begins well before the part that it wants, so that
    what lies in one body is left behind.

    :returns: of the record, or with DLedger of its entry.
    """
    if layout is Layout.DLEDGER:
        return _first_entry(buffer, base, start)
    for found in _MAGIC.finditer(buffer, start + 4):
        position = found.start() - 4
        if _says(buffer, position + 28, base + position) and _may_begin(buffer, base, position):
            return position
    return -1


def _says(buffer: Any, at: int, offset: int) -> bool:
    """The number at a place is this one."""
    return bool(at + 8 <= len(buffer) and _OFFSET(buffer, at)[0] == offset)


def _may_begin(buffer: Any, base: int, position: int) -> bool:
    size, limit = _PREFIX(buffer, position)[0], len(buffer)
    if not RECORD_OVERHEAD <= size <= MAX_RECORD_SIZE:
        return False
    end = position + size
    if end > limit:
        return True
    at = np.array([position], np.int64)
    shape = shape_of(as_bytes(buffer), at, np.array([size], np.int64))
    if not shape.fits[0]:
        return False
    if limit - end < _LEAST_HEAD or _says(buffer, end + 28, base + end):
        return True
    if _tail(buffer, end)[0] in (Tail.BLANK, Tail.NOT_WRITTEN):
        return True
    body = memoryview(buffer)[int(shape.body[0]) : int(shape.body_end[0])]
    stored = int.from_bytes(buffer[position + 8 : position + 12], "big")
    return len(body) > 0 and crc32(body) & CRC_MASK == stored


def _first_entry(buffer: Any, base: int, start: int) -> int:
    for found in _ENTRY.finditer(buffer, start):
        position = found.start()
        if position + ENTRY_HEADER_SIZE > len(buffer):
            return -1
        head = Header(*HEADER.unpack_from(buffer, position))
        if head.is_sound and head.pos == base + position and head.size <= MAX_ENTRY_SIZE:
            return position
    return -1
