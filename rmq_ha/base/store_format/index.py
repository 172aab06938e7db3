"""
The IndexFile: a hash table from keys to records, with chains from the newest item to the oldest.

======================  =====  ==================================================================
part                    bytes  content
======================  =====  ==================================================================
header                  40     int64 begin and end store time, ms; int64 begin and end physical
                               offset; int32 slots in use; int32 number of the next item
slots                   4 n    int32 number of the newest item of the slot, 0: none
items                   20 m   int32 hash of the key; int64 physical offset; int32 seconds since
                               the begin time; int32 number of the slot's previous item
======================  =====  ==================================================================

Big-endian. Items count from 1; item 0 is never used.

Spec: store.md, section 4.
"""

from collections.abc import Sequence
from datetime import datetime
from struct import Struct
from typing import Any, NamedTuple

from rmq_ha.base.errors import CorruptRecord
from rmq_ha.base.model.java_hash import java_hash

HEADER = Struct(">qqqqii")
HEADER_SIZE = 40
SLOT = Struct(">i")
SLOT_SIZE = 4
ITEM = Struct(">iqii")
ITEM_SIZE = 20
assert (HEADER.size, SLOT.size, ITEM.size) == (HEADER_SIZE, SLOT_SIZE, ITEM_SIZE)

MAX_TIME_DIFFERENCE = 0x7FFFFFFF
FILE_NAME_LENGTH = 17
ROLLBACK = 0xC
"""Of the four transaction types only a rollback has both bits of sysFlag."""

Entry = tuple[int, int, int]
"""Hash of a key, then physical offset and store timestamp of its record."""


class IndexHeader(NamedTuple):
    """
    The first 40 bytes of an IndexFile.

    :ivar begin_timestamp: store time of the first item's record, ms.
    :ivar index_count: the number that the next item gets.
    """

    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_physical_offset: int = 0
    end_physical_offset: int = 0
    hash_slot_count: int = 0
    index_count: int = 1

    def encode(self) -> bytes:
        """Return the 40 bytes in the file."""
        return HEADER.pack(*self)

    @classmethod
    def decode(cls, buffer: bytes) -> "IndexHeader":
        """
        Read a header. A count below 1, as in a file that was only created, reads as 1.

        :raises CorruptRecord: there are fewer than 40 bytes.
        """
        if len(buffer) < HEADER_SIZE:
            raise CorruptRecord(f"an index header has {HEADER_SIZE} bytes, not {len(buffer)}")
        header = cls._make(HEADER.unpack_from(buffer))
        return header._replace(index_count=max(1, header.index_count))


def index_file_size(slots: int, items: int) -> int:
    """Return the size of an IndexFile with these numbers of slots and items, in bytes."""
    return HEADER_SIZE + SLOT_SIZE * slots + ITEM_SIZE * items


def key_hash(topic: str, key: str) -> int:
    """Return the hash that an item stores for a key: not negative, at most 2^31 - 1."""
    value = java_hash(f"{topic}#{key}")
    return value if value >= 0 else -value & MAX_TIME_DIFFERENCE


def index_keys(keys: str, uniq_key: str) -> list[str]:
    """Return the keys under which a record is found, from its properties KEYS and UNIQ_KEY."""
    return [key for key in (uniq_key, *keys.split(" ")) if key]


def put_entries(
    buffer: Any, slots: int, header: tuple[int, ...], entries: Sequence[Entry]
) -> tuple[int, int, int, int, int, int]:
    """
    Insert entries into an IndexFile, and return the new numbers of its header.

    :param buffer: the whole file, writable. It must have room for the entries.
    :param slots: how many slots the file has.
    :param header: the six numbers of the header before, as in `IndexHeader`.
    :param entries: at least one.
    :returns: the six numbers after, which the caller writes into the file.
    """
    begin, _, begin_offset, _, used, number = header
    if number == 1:
        _, begin_offset, begin = entries[0]
    items_at = HEADER_SIZE + SLOT_SIZE * slots
    unpack, pack_slot, pack_item = SLOT.unpack_from, SLOT.pack_into, ITEM.pack_into
    # For each key the item is written before its slot, and the header after all items. If the
    # process dies in between, slots lead to items that the header does not count.
    # `IndexFile.undo_half_put` sets such a slot back to the older chain. Do not change the order.
    for hashed, physical_offset, timestamp in entries:
        seconds = (timestamp - begin) // 1000 if begin > 0 else 0
        if not 0 <= seconds <= MAX_TIME_DIFFERENCE:
            seconds = 0 if seconds < 0 else MAX_TIME_DIFFERENCE
        slot_at = HEADER_SIZE + hashed % slots * SLOT_SIZE
        (previous,) = unpack(buffer, slot_at)
        # 0 means that the slot is empty. A number that is not below this item's cannot be an older
        # item. In both cases the chain begins here.
        if not 0 < previous < number:
            used += previous == 0
            previous = 0
        position = items_at + number * ITEM_SIZE
        pack_item(buffer, position, hashed, physical_offset, seconds, previous)
        pack_slot(buffer, slot_at, number)
        number += 1
    _, end_offset, end = entries[-1]
    return begin, end, begin_offset, end_offset, used, number


def file_name(now_ms: int) -> str:
    """Return the name of a new file: `yyyyMMddHHmmssSSS` in local time."""
    seconds, milliseconds = divmod(now_ms, 1000)
    return f"{datetime.fromtimestamp(seconds):%Y%m%d%H%M%S}{milliseconds:03d}"
