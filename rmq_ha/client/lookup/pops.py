"""Requests to pop messages and to end or change their leases, and the answers to them.

Spec: pop.md, sections 2.1 to 2.6.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from rmq_ha.base.errors import ProtocolViolation, RequestRejected
from rmq_ha.base.model.pop_topics import kind_of, original_topic, real_topic
from rmq_ha.base.model.properties import FIRST_POP_TIME, POP_CK
from rmq_ha.base.model.subscription import SubscriptionData
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.pop_bodies import BatchAck, BatchAckEntry, encode_bit_set
from rmq_ha.base.wire.pop_headers import (
    AckHeader,
    ChangeInvisibleAnswer,
    ChangeInvisibleHeader,
    PopAnswerHeader,
    PopHeader,
)
from rmq_ha.base.wire.pop_places import (
    QueueKey,
    parse_msg_offsets,
    parse_order_counts,
    parse_start_offsets,
)
from rmq_ha.base.wire.pop_receipt import PopReceipt
from rmq_ha.client.rules.errors import BrokerRefused
from rmq_ha.client.rules.messages import MessageExt, decode_messages

ALL_QUEUES = -1
MOST_POPPED = 32
"""Most messages that a broker hands out in one answer."""
_NOTHING = (ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND)
_NO_POPS = "a broker of rmq-ha hands out messages with popEnable=true, RocketMQ since 5.0"


@dataclass(frozen=True, slots=True)
class Pop:
    """
    The arguments of a pop.

    :ivar topic: the topic, with its namespace.
    :ivar queue_id: a queue, or `ALL_QUEUES` of the broker.
    :ivar invisible_ms: how long the leases last, in ms.
    :ivar poll_ms: how long the broker may wait for a message, in ms; 0 for an answer at once.
    :ivar from_max: whether a group without an offset begins at the end of the queue.
    :ivar attempt_id: the name of an orderly attempt, which gets the same messages when it is
        repeated; empty for a pop that is not orderly.
    """

    topic: str
    broker_name: str
    queue_id: int
    subscription: SubscriptionData
    max_nums: int
    invisible_ms: int
    poll_ms: int
    from_max: bool
    attempt_id: str = ""


class PopResult(NamedTuple):
    """
    The answer to a pop.

    :ivar is_full: whether the broker refuses, as too many messages are out or too many pops wait.
    """

    messages: list[MessageExt]
    is_full: bool = False


class MessageLease(NamedTuple):
    """
    The lease of a message, as acknowledgements name it.

    :ivar topic: the topic that the message was read from: a retry topic for a retried message.
    """

    topic: str
    receipt: PopReceipt


def pop_request(group: str, pop: Pop, now_ms: int) -> RemotingCommand:
    header = PopHeader(
        group,
        pop.topic,
        pop.queue_id,
        pop.max_nums,
        pop.invisible_ms,
        pop.poll_ms,
        now_ms,
        int(pop.from_max),
        pop.subscription.expression_type,
        pop.subscription.sub_string,
        bool(pop.attempt_id),
        pop.attempt_id or None,
        pop.broker_name,
    )
    return RemotingCommand(RequestCode.POP_MESSAGE, header.ext())


def read_popped(response: RemotingCommand, group: str, pop: Pop, address: str) -> PopResult:
    """
    Read a broker's answer to a pop. Each message gets its receipt as the property `POP_CK`, and
    has the topic that the group subscribed to.

    :raises BrokerRefused: the broker refuses.
    :raises CorruptRecord: the body is not a sequence of records.
    :raises ProtocolViolation: the receipts cannot be built from the answer.
    """
    if response.code == ResponseCode.POLLING_FULL:
        return PopResult([], is_full=True)
    if response.code in _NOTHING:
        return PopResult([])
    if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        raise BrokerRefused(response.code, f"{response.remark or ''}; {_NO_POPS}", address)
    if response.code:
        raise BrokerRefused(response.code, response.remark, address)
    try:
        header = PopAnswerHeader.read(response.ext)
    except RequestRejected as error:
        raise ProtocolViolation(f"the answer to a pop: {error.remark}") from None
    messages = decode_messages(response.body or b"", pop.broker_name)
    _Receipts(header, pop.broker_name, group).give(messages)
    return PopResult(messages)


class _Receipts:
    """Builds the receipts of the messages in one answer, as the Java client does."""

    def __init__(self, header: PopAnswerHeader, broker_name: str, group: str) -> None:
        self._header = header
        self._broker_name = broker_name
        self._group = group
        self._starts = parse_start_offsets(header.start_offset_info or "")
        self._offsets = parse_msg_offsets(header.msg_offset_info or "")
        self._counts = parse_order_counts(header.order_count_info or "")

    def give(self, messages: list[MessageExt]) -> None:
        plain: dict[QueueKey, list[MessageExt]] = {}
        for message in messages:
            message.properties.setdefault(FIRST_POP_TIME, str(self._header.pop_time))
            kind = kind_of(message.topic)
            message.topic = original_topic(self._group, message.topic)
            if not self._has_receipt(message):
                plain.setdefault((kind, message.queue_id), []).append(message)
        for key, of_queue in plain.items():
            self._give_queue(key, sorted(of_queue, key=lambda message: message.queue_offset))

    def _has_receipt(self, message: MessageExt) -> bool:
        """
        Whether the broker put a receipt of this answer into the record, as for retried messages. A
        receipt of another pop came with a message that somebody forwarded.
        """
        try:
            receipt = PopReceipt.parse(message.properties.get(POP_CK, ""))
        except RequestRejected:
            return False
        return (receipt.pop_time, receipt.broker_name) == (self._header.pop_time, self._broker_name)

    def _give_queue(self, key: QueueKey, messages: list[MessageExt]) -> None:
        kind, queue_id = key
        offsets = self._offsets.get(key, ())
        if key not in self._starts or len(offsets) != len(messages):
            raise ProtocolViolation(
                f"{len(messages)} messages of queue {queue_id} came with {len(offsets)} offsets"
            )
        header = self._header
        for message, offset in zip(messages, offsets, strict=True):
            receipt = PopReceipt(
                self._starts[key],
                header.pop_time,
                header.invisible_time,
                header.revive_qid,
                kind,
                self._broker_name,
                queue_id,
                offset,
            )
            message.properties[POP_CK] = receipt.encode()
            count = self._counts.get((kind, f"qo{queue_id}%{offset}"), 0) or self._counts.get(
                (kind, str(queue_id)), 0
            )
            if count > 0:
                message.reconsume_times = count


def lease_of(message: MessageExt, group: str, topic: str) -> MessageLease | None:
    """
    Return the lease of a popped message; None if the message was not popped.

    :param topic: the message's topic, with its namespace.
    """
    try:
        receipt = PopReceipt.parse(message.properties.get(POP_CK, ""))
    except RequestRejected:
        return None
    return MessageLease(real_topic(group, topic, receipt.kind), receipt)


def ack_request(group: str, lease: MessageLease) -> RemotingCommand:
    receipt = lease.receipt
    header = AckHeader(
        group,
        lease.topic,
        receipt.queue_id,
        receipt.encode(),
        receipt.offset,
        receipt.broker_name,
    )
    return RemotingCommand(RequestCode.ACK_MESSAGE, header.ext())


def batch_ack_request(
    group: str, broker_name: str, leases: "Iterable[tuple[str, PopReceipt]]"
) -> RemotingCommand:
    """
    Make a request that acknowledges many messages of one broker.

    :param leases: for each message the topic that the group subscribed to, with its namespace, and
        the receipt.
    """
    entries: dict[tuple[object, ...], tuple[BatchAckEntry, list[int]]] = {}
    for topic, receipt in leases:
        key = topic, receipt.kind, receipt.queue_id, receipt.start_offset, receipt.pop_time
        if key not in entries:
            entry = BatchAckEntry(
                group,
                topic,
                str(receipt.kind),
                receipt.start_offset,
                receipt.queue_id,
                receipt.revive_queue,
                receipt.pop_time,
                receipt.invisible_ms,
            )
            entries[key] = entry, []
        entries[key][1].append(receipt.offset - receipt.start_offset)
    for entry, indices in entries.values():
        entry.bit_set = encode_bit_set(indices)
    batch = BatchAck(broker_name, [entry for entry, _ in entries.values()])
    return RemotingCommand(RequestCode.BATCH_ACK_MESSAGE, None, batch.encode())


def change_request(group: str, lease: MessageLease, invisible_ms: int) -> RemotingCommand:
    receipt = lease.receipt
    header = ChangeInvisibleHeader(
        group,
        lease.topic,
        receipt.queue_id,
        receipt.encode(),
        receipt.offset,
        invisible_ms,
        receipt.broker_name,
    )
    return RemotingCommand(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header.ext())


def changed_receipt(response: RemotingCommand, receipt: PopReceipt) -> PopReceipt:
    """
    Return the receipt that replaces one whose lease was changed.

    :raises ProtocolViolation: the answer cannot be read.
    """
    try:
        answer = ChangeInvisibleAnswer.read(response.ext)
    except RequestRejected as error:
        raise ProtocolViolation(f"the answer to a change of a lease: {error.remark}") from None
    return receipt._replace(
        start_offset=receipt.offset,
        pop_time=answer.pop_time,
        invisible_ms=answer.invisible_time,
        revive_queue=answer.revive_qid,
        commit_log_offset=None,
    )
