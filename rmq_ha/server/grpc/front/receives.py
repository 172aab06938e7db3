"""Turns a request ReceiveMessage into a pop, and the result of the pop into messages.

Spec: grpc.md, sections 6.1 to 6.5.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from rmq_ha.base.errors import CorruptRecord
from rmq_ha.base.model.pop_topics import TopicKind, kind_of
from rmq_ha.base.store_format.commitlog import decode_record
from rmq_ha.base.wire.pop_headers import PopHeader
from rmq_ha.base.wire.pop_receipt import PopReceipt
from rmq_ha.server.grpc.face import GrpcCall
from rmq_ha.server.grpc.front.deliveries import stored_message
from rmq_ha.server.grpc.front.refusals import FrontRefusal
from rmq_ha.server.grpc.wire.enums import AnswerCode, FilterType
from rmq_ha.server.pop.face import PopAnswer

MOST_MESSAGES = 32
RENEWED_MS = 60_000
"""How long each lease lasts that the front renews for a push consumer, ms."""
LEAST_INVISIBLE_MS = 10_000
MOST_INVISIBLE_MS = 43_200_000
LEAST_POLL_MS = 5_000
MOST_POLL_MS = 20_000
_MARGIN_MS = 100
"""How long before its deadline a call is answered: some clients raise an error at the deadline."""
_FROM_MAX = 1


class CallPoller:
    """A call that waits for messages, as a `door.Poller`."""

    def __init__(self, call: GrpcCall) -> None:
        self._call = call
        self.remote_text = call.peer.remote_text

    @property
    def is_open(self) -> bool:
        return self._call.is_open

    @property
    def is_full(self) -> bool:
        return self._call.peer.is_full

    def on_close(self, callback: Callable[[Any], object]) -> None:
        """Have a function called when the client waits no more."""
        self._call.on_end(lambda _: callback(self))


class PoppedMessage(NamedTuple):
    """
    One message that was handed out.

    :ivar topic: the topic whose queue had the message, which may be a retry topic.
    :ivar message: the gRPC message for the client, with the receipt in it.
    """

    receipt: PopReceipt
    topic: str
    message: Any


def pop_header(
    request: Any, group: str, topic: str, left_ms: float | None, *, is_orderly: bool
) -> PopHeader:
    """
    Return the pop that a ReceiveMessage asks for.

    :param left_ms: how long the client still waits for the answer, ms; None if it waits for ever.
    :raises FrontRefusal: a time, or the kind of filter, is not allowed.
    """
    expression = request.filter_expression
    return PopHeader(
        consumer_group=group,
        topic=topic,
        queue_id=-1,
        max_msg_nums=min(max(1, request.batch_size), MOST_MESSAGES),
        invisible_time=RENEWED_MS if request.auto_renew else _invisible_ms(request),
        poll_time=_poll_ms(request, left_ms),
        init_mode=_FROM_MAX,
        exp_type="SQL92" if expression.type == FilterType.SQL else "TAG",
        exp=expression.expression or "*",
        order=is_orderly,
        attempt_id=request.attempt_id or None,
    )


def checked_invisible_ms(duration: Any, least: int) -> int:
    """
    Return a time of invisibility in ms.

    :raises FrontRefusal: it is shorter or longer than allowed.
    """
    invisible = int(duration.seconds) * 1000 + int(duration.nanos) // 1_000_000
    if invisible < least:
        raise FrontRefusal(
            AnswerCode.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too small. min is {least}"
        )
    if invisible > MOST_INVISIBLE_MS:
        raise FrontRefusal(
            AnswerCode.ILLEGAL_INVISIBLE_TIME,
            f"the invisibleTime is too large. max is {MOST_INVISIBLE_MS}",
        )
    return invisible


def _invisible_ms(request: Any) -> int:
    return checked_invisible_ms(request.invisible_duration, LEAST_INVISIBLE_MS)


def _poll_ms(request: Any, left_ms: float | None) -> int:
    polling = request.long_polling_timeout
    asked = int(polling.seconds) * 1000 + int(polling.nanos) // 1_000_000
    if not request.HasField("long_polling_timeout"):
        asked = MOST_POLL_MS if left_ms is None else int(left_ms / 2)
    asked = min(max(asked, LEAST_POLL_MS), MOST_POLL_MS)
    if left_ms is None or asked <= left_ms - _MARGIN_MS:
        return asked
    if left_ms < LEAST_POLL_MS - _MARGIN_MS:
        raise FrontRefusal(
            AnswerCode.ILLEGAL_POLLING_TIME,
            "The deadline time remaining is not enough for polling, please check network condition",
        )
    return int(left_ms) - _MARGIN_MS


def popped_messages(
    answer: PopAnswer, resource: Any, topic: str, broker_name: str
) -> Iterator[PoppedMessage]:
    """
    Yield the messages of a pop; a record that is damaged is left out.

    :param resource: the topic as the client names it.
    :param topic: the topic's name as it is stored.
    """
    for part in answer.parts:
        kind = TopicKind.NORMAL if part.topic == topic else kind_of(part.topic)
        first = answer.receipt_of(part, kind, broker_name)
        for offset, data in zip(part.offsets, part.records, strict=True):
            try:
                record = decode_record(data)
            except CorruptRecord:
                continue  # it comes again, and becomes a dead letter in the end
            receipt = first._replace(offset=offset, commit_log_offset=record.physical_offset)
            message = stored_message(record, resource)
            system = message.system_properties
            system.receipt_handle = receipt.encode()
            system.delivery_attempt = record.reconsume_times + 1 + part.counts.get(offset, 0)
            yield PoppedMessage(receipt, part.topic, message)
