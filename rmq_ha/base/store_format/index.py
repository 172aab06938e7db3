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

from datetime import datetime
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

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


# Unique keys are of digits and capital letters, which are among 31 neighbours: read as digits of
# base 31 they are the hash by themselves, but for what the first neighbour is worth in each place.
_FIRST = ord("0")
_DIGITS = bytes(
    b"0123456789abcdefghijklmnopqrstu"[unit - _FIRST] if 0 <= unit - _FIRST < 31 else ord("?")
    for unit in range(256)
)
_LONGEST = 64
_POWERS: list[int] = [pow(31, size, 1 << 32) for size in range(_LONGEST + 1)]
_FIRSTS: list[int] = [_FIRST * (31**size - 1) // 30 & 0xFFFFFFFF for size in range(_LONGEST + 1)]


def unique_hash(topic: str, key: str) -> int:
    """
    Return `key_hash` of a key, in half the time if the key has the form of clients' message ids.
    """
    size = len(key)
    try:
        value = _seed(topic) * _POWERS[size] + int(key.encode().translate(_DIGITS), 31)
        value = value + _FIRSTS[size] & 0xFFFFFFFF
    except (IndexError, ValueError):
        return key_hash(topic, key)
    return value if value <= MAX_TIME_DIFFERENCE else -value & MAX_TIME_DIFFERENCE


@lru_cache(maxsize=4096)
def _seed(topic: str) -> int:
    return java_hash(f"{topic}#")


def file_name(now_ms: int) -> str:
    """Return the name of a new file: `yyyyMMddHHmmssSSS` in local time."""
    seconds, milliseconds = divmod(now_ms, 1000)
    return f"{datetime.fromtimestamp(seconds):%Y%m%d%H%M%S}{milliseconds:03d}"
