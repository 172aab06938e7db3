"""The body of a batch: several messages, one after the other.

    ======  ====  ==================================================
    offset  size  meaning
    ======  ====  ==================================================
    0       4     size of this message, itself included
    4       4     magic, 0
    8       4     crc of the body, 0: the broker computes it
    12      4     flag
    16      4     length n of the body
    20      n     body
    20+n    2     length m of the properties
    22+n    m     properties, UTF-8
    ======  ====  ==================================================

Numbers are big-endian. Spec: remoting.md, section 5.7.
"""

from collections.abc import Iterable, Iterator
from struct import Struct

from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.wire.text import to_bytes

_HEAD = Struct(">iiiii")
_SHORT = Struct(">h")
MEMBER_OVERHEAD = _HEAD.size + _SHORT.size
"""Bytes that a message of a batch takes besides its body and its properties."""
_MAX_PROPERTIES_SIZE = 32767

BatchMember = tuple[int, bytes, str]


def read_batch(body: bytes) -> Iterator[BatchMember]:
    """
    Yield flag, body and property string of each message of a batch.

    :raises ProtocolViolation: the lengths do not fit together.
    """
    position = number = 0
    total = len(body)
    while position < total:
        if total - position < MEMBER_OVERHEAD:
            raise ProtocolViolation(f"{total - position} bytes too many at the end of a batch")
        size, _, _, flag, body_size = _HEAD.unpack_from(body, position)
        start = position + _HEAD.size
        end = position + size
        properties_at = start + body_size
        if end > total or body_size < 0 or properties_at + _SHORT.size > end:
            raise ProtocolViolation(f"message {number} of a batch is larger than its frame")
        (properties_size,) = _SHORT.unpack_from(body, properties_at)
        if properties_at + _SHORT.size + (properties_size & 0xFFFF) == end and properties_size < 0:
            raise ProtocolViolation(
                f"message {number} of a batch has {properties_size & 0xFFFF} bytes of properties; "
                f"{_MAX_PROPERTIES_SIZE} are allowed"
            )
        if properties_at + _SHORT.size + properties_size != end or properties_size < 0:
            raise ProtocolViolation(f"message {number} of a batch: lengths do not add up")
        properties = body[properties_at + _SHORT.size : end].decode("utf-8", "replace")
        yield flag, body[start:properties_at], properties
        position = end
        number += 1


def encode_batch(members: Iterable[BatchMember]) -> bytes:
    """
    Return the body of a batch with these messages, as a producer sends it.

    :raises ProtocolViolation: a message has more than 32767 bytes of properties.
    """
    pieces: list[bytes] = []
    for flag, body, text in members:
        properties = to_bytes(text)
        if len(properties) > _MAX_PROPERTIES_SIZE:
            raise ProtocolViolation(f"{len(properties)} bytes of properties in a batch")
        size = MEMBER_OVERHEAD + len(body) + len(properties)
        pieces += (
            _HEAD.pack(size, 0, 0, flag, len(body)),
            body,
            _SHORT.pack(len(properties)),
            properties,
        )
    return b"".join(pieces)
