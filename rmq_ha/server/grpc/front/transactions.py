"""Transaction ids of the gRPC door. An id names the place of the half message in the log.

So no broker has to remember it. Java's proxy keeps the place in its memory for 30 s. An id of this
door is valid as long as the half message exists, also after a restart and at a new master.

Spec: grpc.md, section 7.
"""

from typing import NamedTuple

from rmq_ha.server.grpc.front.refusals import FrontRefusal
from rmq_ha.server.grpc.wire.enums import AnswerCode

_SEPARATOR = "."
_MOST_DIGITS = 16


class TransactionId(NamedTuple):
    """
    The content of a transaction id.

    :ivar unique_id: the id that the client gave its message.
    :ivar physical_offset: physical offset of the half message.
    :ivar queue_offset: queue offset of the half message.
    """

    unique_id: str
    physical_offset: int
    queue_offset: int

    def __str__(self) -> str:
        offsets = f"{self.physical_offset:X}{_SEPARATOR}{self.queue_offset:X}"
        return f"{self.unique_id}{_SEPARATOR}{offsets}"


def parse_transaction_id(text: str) -> TransactionId:
    """
    Read an id.

    :raises FrontRefusal: the text is no id that a door of rmq-ha made.
    """
    if not text.strip():
        raise FrontRefusal(AnswerCode.INVALID_TRANSACTION_ID, "transaction id cannot be empty")
    unique_id, *offsets = text.rsplit(_SEPARATOR, 2)
    if len(offsets) != 2 or not all(0 < len(item) <= _MOST_DIGITS for item in offsets):
        raise _unknown()
    try:
        physical_offset, queue_offset = (int(item, 16) for item in offsets)
    except ValueError:
        raise _unknown() from None
    if min(physical_offset, queue_offset) < 0 or max(physical_offset, queue_offset) >> 63:
        raise _unknown()
    return TransactionId(unique_id, physical_offset, queue_offset)


def _unknown() -> FrontRefusal:
    return FrontRefusal(
        AnswerCode.INVALID_TRANSACTION_ID,
        "this broker did not make the transaction id: use the one in the answer to the send",
    )
