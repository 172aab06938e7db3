"""
The ConsumeQueue file: a row of 20-byte units, one for each message of one queue.

======  ====  =====  ===================================================================
offset  size  type   meaning
======  ====  =====  ===================================================================
0       8     int64  physical offset of the record in the CommitLog, bytes
8       4     int32  size of the record, bytes; 0: never written
12      8     int64  hash of the tag; in SCHEDULE_TOPIC_XXXX the delivery time, ms
======  ====  =====  ===================================================================

Big-endian. A unit (0, 0x7FFFFFFF, 0) is a filler: history that this store never had.

Spec: store.md, sections 3.1 and 3.2.
"""

import sys
from array import array
from collections.abc import Callable
from functools import lru_cache
from struct import Struct

UNIT = Struct(">qiq")
UNIT_SIZE = 20
assert UNIT.size == UNIT_SIZE

FILLER_SIZE = 0x7FFFFFFF
FILLER = UNIT.pack(0, FILLER_SIZE, 0)

# Tag codes are 32-bit hashes, so anything below is the address of an extension unit.
_EXTENSION_ADDRESS = -2147483649

_WORDS = UNIT_SIZE // 4


def is_torn_filler(size: int) -> bool:
    """
    Return whether a size is the rest of a filler that a crash cut. No record is as large as that.
    """
    return size != FILLER_SIZE and size >> 24 == FILLER_SIZE >> 24


def is_extension_address(tags_code: int) -> bool:
    """
    Return whether a number is no tag code but points into a consume queue extension file (section
    3.6).
    """
    return tags_code <= _EXTENSION_ADDRESS


def decode_units(data: bytes) -> list[tuple[int, int, int]]:
    """
    Return physical offset, size and tag code of each whole unit, unchecked.

    :param data: an incomplete unit at its end is ignored.
    """
    excess = len(data) % UNIT_SIZE
    return list(UNIT.iter_unpack(data[:-excess] if excess else data))


def decode_places(data: bytes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """
    Return the physical offsets and the sizes of whole units, unchecked, without their tag codes.

    :param data: the units of one pull. The format for each number of units is kept.
    """
    values = _places(len(data) // UNIT_SIZE)(data)
    return values[::2], values[1::2]


@lru_cache(maxsize=256)
def _places(count: int) -> Callable[[bytes], tuple[int, ...]]:
    return Struct(">" + "qi8x" * count).unpack


def count_valid(data: bytes) -> int:
    """
    Return how many units at the start of `data` were written, which means an offset that is not
    negative and a positive size.

    A whole chunk is tested at once, since recovery reads millions of units.
    """
    count = len(data) // UNIT_SIZE
    words = array("i", data[: count * UNIT_SIZE])
    if sys.byteorder == "little":
        words.byteswap()
    offsets, sizes = words[0::_WORDS], words[2::_WORDS]
    if 0 in sizes:
        del sizes[sizes.index(0) :]
        del offsets[len(sizes) :]
    if not sizes or (min(offsets) >= 0 and min(sizes) > 0):
        return len(sizes)
    return next(index for index, size in enumerate(sizes) if size < 0 or offsets[index] < 0)
