"""
The ConsumeQueue extension file: what a tag code of 64 bits has no room for.

======  ====  =====  ==============================================================
offset  size  type   meaning
======  ====  =====  ==============================================================
0       2     int16  size of the unit, bytes; -1: the next file goes on; 0: the end
2       8     int64  hash of the tag
10      8     int64  store timestamp of the message, ms
18      2     int16  length of the bit map n
20      n            bit map of the SQL92 filters that the message matched
======  ====  =====  ==============================================================

Big-endian. The consume queue has a unit's position minus 2^63 in the place of the tag code.

Spec: store.md, section 3.6.
"""

from struct import Struct
from struct import error as struct_error

from rmq_ha.base.model.extension_unit import ExtensionUnit

HEAD = Struct(">hqqh")
MAX_UNIT_SIZE = 32767  # what the first field of a head can say
END_MARK = b"\xff\xff"
END_ROOM = 4
"""Number of bytes at the end of a file that stay free of units."""
_ADDRESS_BASE = -(1 << 63)


def encode_extension(unit: ExtensionUnit) -> bytes | None:
    """Return the bytes of a unit; None if its values do not fit."""
    bit_map = unit.bit_map or b""
    try:
        return HEAD.pack(unit.size, unit.tags_code, unit.store_timestamp, len(bit_map)) + bit_map
    except struct_error:
        return None


def decode_extension(data: bytes, at: int = 0) -> tuple[ExtensionUnit, int] | None:
    """Return the unit that starts at `at`, and its size; None if no whole unit starts there."""
    if not 0 <= at <= len(data) - HEAD.size:
        return None
    size, tags_code, store_timestamp, length = HEAD.unpack_from(data, at)
    end = at + HEAD.size + length
    if length < 0 or size != HEAD.size + length or end > len(data):
        return None
    bit_map = data[at + HEAD.size : end] or None
    return ExtensionUnit(tags_code, store_timestamp, bit_map), size


def address_of(position: int) -> int:
    """
    Return the number that the consume queue stores for a unit at this position in the row of files.
    """
    return position + _ADDRESS_BASE


def position_of(address: int) -> int:
    """Return the position of a unit in the row of files, from the number in the consume queue."""
    return address - _ADDRESS_BASE
