"""
Walks along records, one after the other, and returns their positions as numpy arrays.

The walk decides as the broker's own codec does (`decode_record` of
`rmq_ha.base.store_format.commitlog`, and `rmq_ha.base.runs.log_walk` for its end); only CRCs
are left to `Records.crc_ok`.

Spec: store.md, sections 2.1, 2.2, 5.4; dledger.md, sections 3.2, 3.3 and 4.
"""

from struct import Struct
from typing import Any, NamedTuple

import numpy as np

from rmq_ha.base.store_format.commitlog import MESSAGE_MAGIC, RECORD_OVERHEAD
from rmq_ha.base.store_format.dledger_values import ENTRY_HEADER_SIZE, TERM_TOPIC
from rmq_ha.lake.scan.log.shape import (
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
from rmq_ha.ops.offline.chain import ChainEnding, Layout, entry_chain, entry_tail, tail_at

_PREFIX = Struct(">iI").unpack_from
_TERM_TOPIC = TERM_TOPIC.encode()


class RecordWalk(NamedTuple):
    """
    Records, one after the other.

    :ivar positions: where the records begin in the buffer.
    :ivar sizes: bytes of each record; in a DLedger log without the 48 bytes before it.
    :ivar end: position in the buffer where the walk stopped; a further walk may start there.
    :ivar tail: the kind of bytes at `end`.
    :ivar needed: for `MORE`: how many bytes from `end` on the next look has to see to continue.
    """

    positions: Ints
    sizes: Ints
    end: int
    tail: ChainEnding
    reason: str = ""
    needed: int = 0
    shape: Shape | None = None


def walk(buffer: Any, base: int, start: int = 0, layout: Layout = Layout.CLASSIC) -> RecordWalk:
    """
    Find all records from `start` on, up to the first place without a record.

    :param buffer: bytes of one file, which may end anywhere.
    :param base: physical offset of its first byte; a record that claims another offset is torn.
    :param start: where a record, or with DLedger an entry, begins.
    """
    if layout is Layout.DLEDGER:
        return _walk_entries(buffer, base, start)
    places, end = _chain(buffer, start)
    positions = np.array(places, np.int64)
    sizes = np.diff(positions, append=end)
    data = as_bytes(buffer)
    shape = shape_of(data, positions, sizes)
    bad = _first_bad(base, positions, shape)
    if bad is not None:
        index, reason = bad
        end = int(positions[index])
        good = slice(index)
        return RecordWalk(
            positions[good], sizes[good], end, ChainEnding.TORN, reason, 0, shape.select(good)
        )
    return RecordWalk(positions, sizes, end, *tail_at(buffer, end), shape)


def _chain(buffer: Any, start: int) -> tuple[list[int], int]:
    """Follow records by magic code and size; return where each begins, and the last one's end."""
    places: list[int] = []
    keep, prefix = places.append, _PREFIX
    position, limit = start, len(buffer)
    last = limit - RECORD_OVERHEAD
    while position <= last:
        size, magic = prefix(buffer, position)
        if magic != MESSAGE_MAGIC or size < RECORD_OVERHEAD or position + size > limit:
            break
        keep(position)
        position += size
    return places, position


def _first_bad(base: int, positions: Ints, shape: Shape) -> tuple[int, str] | None:
    """Return the first record that is not sound, and why."""
    offsets = head_field(shape.heads, 28, ">i8")
    wrong = offsets != positions + base
    bad: Flags = wrong | ~shape.fits
    if not bad.any():
        return None
    index = int(bad.argmax())
    if wrong[index]:
        return index, f"a record that says that it is at {offsets[index]}"
    return index, "a record whose parts do not add up"


def _walk_entries(buffer: Any, base: int, start: int) -> RecordWalk:
    """Find all records in a DLedger log, whose entries wrap them."""
    places, end = entry_chain(buffer, start)
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
    # As in the broker, an entry without a message is left out, and so is the entry with which a
    # leader begins its term.
    good = shape.fits & (head_field(shape.heads, 28, ">i8") == at + base)
    good &= ~_are_of_topic(data, shape, _TERM_TOPIC)
    return RecordWalk(
        at[good], lengths[good], end, *entry_tail(buffer, base, end), shape.select(good)
    )


def _numbers(heads: Bytes, at: int, dtype: str) -> Any:
    kind = np.dtype(dtype)
    return heads[:, at : at + kind.itemsize].view(kind)[:, 0]


def _are_of_topic(data: Bytes, shape: Shape, topic: bytes) -> Flags:
    same: Flags = shape.fits & (shape.topic_end - shape.topic == len(topic))
    for index in np.flatnonzero(same):
        place = shape.topic[index]
        same[index] = data[place : place + len(topic)].tobytes() == topic
    return same
