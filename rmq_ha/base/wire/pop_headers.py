"""Header fields of pops, acknowledgements and related requests, and of their answers.

Spec: pop.md, section 2.
"""

from collections.abc import Mapping
from functools import cache
from typing import Self

import msgspec

from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.model.numbers import Int32, Int64
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.base.wire.ext_fields import ext_fields

_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)


class PopFields(msgspec.Struct, rename="camel", gc=False):
    """
    The base of all headers here: it reads header fields into typed attributes.

    An attribute has the name of its field on the wire, in snake_case: `max_msg_nums` is read from
    `maxMsgNums`, RocketMQ's own name.
    """

    @classmethod
    def read(cls, ext: Mapping[str, str] | None) -> Self:
        """
        Read a header. A boolean is true only as `true`; an empty number counts as missing.

        :raises RequestRejected: a required field is missing, or a number cannot be read.
        """
        fields = ext or {}
        try:
            return msgspec.convert(fields, cls, strict=False)
        except _UNREADABLE:
            return cls._read_tolerant(fields)

    @classmethod
    def _read_tolerant(cls, ext: Mapping[str, str]) -> Self:
        numbers, booleans = _kinds(cls)
        repaired: dict[str, object] = {}
        for name, value in ext.items():
            if name in booleans:
                repaired[name] = value.lower() == "true"
            elif value or name not in numbers:
                repaired[name] = value
        try:
            return msgspec.convert(repaired, cls, strict=False)
        except _UNREADABLE as error:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR, f"the request header cannot be read: {error}"
            ) from None

    def ext(self) -> dict[str, str]:
        """Return the fields for a request or an answer, without absent ones."""
        return ext_fields(self)


class PopHeader(PopFields):
    """
    POP_MESSAGE (200050).

    :ivar queue_id: -1 for all queues of the topic.
    :ivar invisible_time: how long the leases last, ms.
    :ivar poll_time: how long the request may wait for a message, ms.
    :ivar born_time: when the client sent it by its clock, ms; 0 if it does not say.
    :ivar init_mode: where a group without an offset begins: 0 at the first message, 1 at the last.
    :ivar exp_type: `TAG` or `SQL92`; None for `TAG`.
    :ivar exp: the filter expression; None for all messages.
    :ivar order: whether to pop in order.
    :ivar attempt_id: the name of this attempt. A repeated orderly attempt gets the same messages.
    """

    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32 = 0
    invisible_time: Int64 = 0
    poll_time: Int64 = 0
    born_time: Int64 = 0
    init_mode: Int32 = 0
    exp_type: str | None = None
    exp: str | None = None
    order: bool = False
    attempt_id: str | None = None
    bname: str | None = None


class PopAnswerHeader(PopFields):
    """
    The answer to a pop, and to a peek. All numbers are 0 in a refusal.

    :ivar pop_time: when the messages were handed out, ms since the epoch; the lease name.
    :ivar invisible_time: how long the leases last, ms.
    :ivar revive_qid: an item of the receipts; see `pop_receipt.PopReceipt.revive_queue`.
    :ivar rest_num: messages that are left in the queues that were looked at.
    :ivar start_offset_info: see `pop_places`, as for the two fields behind it.
    """

    pop_time: Int64 = 0
    invisible_time: Int64 = 0
    revive_qid: Int32 = 0
    rest_num: Int64 = 0
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class AckHeader(PopFields):
    """
    ACK_MESSAGE (200051): a message is consumed.

    :ivar topic: the topic as the consumer names it, or the retry topic that the message came from.
    :ivar extra_info: the receipt.
    :ivar offset: queue offset of the message.
    """

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    bname: str | None = None


class ChangeInvisibleHeader(PopFields):
    """
    CHANGE_MESSAGE_INVISIBLETIME (200053): the lease of a message ends at another time.

    :ivar extra_info: the receipt.
    :ivar offset: queue offset of the message.
    :ivar invisible_time: when the lease ends, in ms from now.
    """

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    invisible_time: Int64
    bname: str | None = None


class ChangeInvisibleAnswer(PopFields):
    """The answer to a change: items of the new receipt, times in ms. All are 0 in a refusal."""

    pop_time: Int64 = 0
    invisible_time: Int64 = 0
    revive_qid: Int32 = 0


class PeekHeader(PopFields):
    """PEEK_MESSAGE (200052): shows messages and gives no leases. `queue_id` -1 is all queues."""

    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32 = 0


class NotificationHeader(PopFields):
    """NOTIFICATION (200054) asks whether a message is there, or comes within `poll_time` ms."""

    consumer_group: str
    topic: str
    queue_id: Int32
    poll_time: Int64 = 0
    born_time: Int64 = 0
    order: bool = False
    attempt_id: str | None = None


class NotificationAnswer(PopFields):
    has_msg: bool = False
    polling_full: bool = False


class PollingInfoHeader(PopFields):
    """POLLING_INFO (200055) asks how many pops wait that name exactly this queue id."""

    consumer_group: str
    topic: str
    queue_id: Int32


class PollingInfoAnswer(PopFields):
    polling_num: Int32 = 0


@cache
def _kinds(form: type[PopFields]) -> tuple[set[str], set[str]]:
    """Return the names on the wire of the numbers and of the booleans of a header."""
    fields = msgspec.structs.fields(form)
    booleans = {item.encode_name for item in fields if item.type is bool}
    texts = {item.encode_name for item in fields if item.type in (str, str | None)}
    return {item.encode_name for item in fields} - booleans - texts, booleans
