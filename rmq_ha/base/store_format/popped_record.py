"""Rewrites a record of a retry topic for the consumer that pops it.

The consumer gets the message under the topic that it subscribed to, with the receipt in the
property POP_CK. Spec: pop.md, section 2.4.
"""

from struct import Struct, error

from rmq_ha.base.errors import CorruptRecord
from rmq_ha.base.model.properties import MAX_PROPERTIES_SIZE, POP_CK, WRITTEN_BY_POPS
from rmq_ha.base.store_format.commitlog import HEADS, cuts_at, topic_part

_INT = Struct(">i")
_SHORT = Struct(">H")
_NAME = POP_CK.encode()
_REPLACED = tuple(f"{name}\x01".encode() for name in WRITTEN_BY_POPS)


def with_receipt(record: bytes, topic: bytes, receipt: bytes) -> bytes:
    """
    Return a record under another topic and with a receipt; body and head stay the same.

    A receipt that the stored record has is replaced. If the receipt does not fit into the
    properties, the record is returned as it is: RocketMQ's client then makes the receipt itself, by
    the retry topic that stays in the record.

    :raises CorruptRecord: the parts of the record do not add up.
    """
    try:
        body_at = HEADS[record[39] >> 4 & 3].size
        (length,) = _INT.unpack_from(record, body_at - 4)
        cuts = cuts_at(record, len(record), body_at, length)
    except (IndexError, error):
        cuts = None
    if cuts is None or cuts[3] != len(record):
        raise CorruptRecord("the parts of a popped record do not add up")
    _, topic_at, properties_at, end = cuts
    pieces = [
        piece
        for piece in record[properties_at:end].split(b"\x02")
        if piece and not piece.startswith(_REPLACED)
    ]
    pieces.append(_NAME + b"\x01" + receipt)
    properties = b"\x02".join(pieces)
    if len(properties) > MAX_PROPERTIES_SIZE:
        return record
    after_size = record[4 : topic_at - 1]
    size = 4 + len(after_size) + 1 + len(topic) + 2 + len(properties)
    return b"".join(
        (
            _INT.pack(size),
            after_size,
            topic_part(topic),
            _SHORT.pack(len(properties)),
            properties,
        )
    )
