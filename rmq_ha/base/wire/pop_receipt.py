"""Receipts: the text of a receipt stands for the lease of one popped message.

A consumer sends the receipt back to acknowledge the message. RocketMQ calls it POP_CK or extraInfo.

Spec: pop.md, section 2.3.
"""

from typing import NamedTuple

from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.model.numbers import INT64_DIGITS
from rmq_ha.base.wire.codes import ResponseCode

ORDERLY_QUEUE = 999
"""The revive queue in receipts of orderly pops."""
_LEAST = 6
_MOST = 9
_BLANK = " "


class PopReceipt(NamedTuple):
    """
    The content of a receipt.

    :ivar start_offset: queue offset of the first message that the pop looked at.
    :ivar pop_time: when the message was popped, ms since the epoch. It names the lease.
    :ivar invisible_ms: how long the lease lasts from `pop_time` on, ms.
    :ivar revive_queue: 999 for an orderly pop; otherwise a queue of RocketMQ's journal of pops.
    :ivar kind: a `TopicKind`.
    :ivar queue_id: -1 in receipts of old clients, which leave it out. The request has it, too.
    :ivar offset: queue offset of the message; -1 where `queue_id` is.
    :ivar commit_log_offset: physical offset of the message, which RocketMQ's proxy adds; None if
        the receipt does not have it.
    """

    start_offset: int
    pop_time: int
    invisible_ms: int
    revive_queue: int
    kind: int
    broker_name: str
    queue_id: int = -1
    offset: int = -1
    commit_log_offset: int | None = None

    @property
    def is_orderly(self) -> bool:
        return self.revive_queue == ORDERLY_QUEUE

    def encode(self) -> str:
        """Return the text of the receipt: eight items, or nine with the place of the record."""
        items = self if self.commit_log_offset is not None else self[:-1]
        return _BLANK.join(map(str, items))

    @classmethod
    def parse(cls, text: str) -> "PopReceipt":
        """
        Read a receipt of six to nine items.

        :raises RequestRejected: the text is no receipt.
        """
        items = text.split(_BLANK, _MOST)
        if len(items) < _LEAST:
            raise _refusal(f"{len(items)} items, where a receipt has {_LEAST} to {_MOST}")
        numbers = [*items[:5], *items[6:_MOST]]
        if not all(map(_is_number, numbers)):
            raise _refusal("an item that is no number")
        start, pop_time, invisible_ms, revive_queue, kind, *place = map(int, numbers)
        return cls(start, pop_time, invisible_ms, revive_queue, kind, items[5], *place)


def _is_number(text: str) -> bool:
    digits = text[1:] if text[:1] == "-" else text
    return digits.isascii() and digits.isdigit() and len(digits) < INT64_DIGITS


def _refusal(reason: str) -> RequestRejected:
    return RequestRejected(
        ResponseCode.SYSTEM_ERROR, f"the receipt (extraInfo) of the message has {reason}"
    )
