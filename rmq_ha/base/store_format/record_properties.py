"""Reads the properties of a sound record without decoding the rest of it.

Spec: store.md, sections 2.1 and 2.4.
"""

from struct import Struct, error

from rmq_ha.base.model.properties import decode_properties

_INT = Struct(">i").unpack_from
_SHORT = Struct(">H").unpack_from
# Where the length of the body is, by the two IPv6 bits of `sysFlag >> 4`.
_LENGTH_AT = (84, 96, 96, 108)


def record_properties(record: bytes) -> dict[str, str]:
    """Return the properties by name; empty if the record has none, or is damaged."""
    try:
        length_at = _LENGTH_AT[record[39] >> 4 & 3]
        (length,) = _INT(record, length_at)
        topic_at = length_at + 4 + length
        start = topic_at + 3 + record[topic_at]
        (size,) = _SHORT(record, start - 2)
    except (IndexError, error):
        return {}
    return decode_properties(record[start : start + size].decode("utf-8", "replace"))
