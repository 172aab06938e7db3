"""SEND_MESSAGE in all its forms: single, V2, batch, half, delayed, and runs of them from one chunk.

The Java and Go clients' ordinary sends come in runs (`send_run`): decoded, appended and answered
as one. Whatever is unusual about a message takes it out of the run to `send`, which knows all.

Spec: remoting.md, chapter 4; store.md, sections 2.7 and 2.8.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rmq_ha.broker.processors.fields import Handler
from rmq_ha.broker.stats import BrokerStats
from rmq_ha.broker.tables.groups import SubscriptionGroupManager
from rmq_ha.broker.tables.topics import TopicConfigManager
from rmq_ha.config.broker_configuration import BrokerConfiguration
from rmq_ha.errors import ProtocolViolation, RequestRejected
from rmq_ha.interfaces import IMessageStore, ISendMessageHook
from rmq_ha.model.flags import (
    MULTI_TAGS,
    PERM_READ,
    PERM_WRITE,
    TOPIC_UNIT,
    TOPIC_UNIT_SUB,
    TRANSACTION_MASK,
)
from rmq_ha.model.message import Address, Message, MessageBatch, PutMessageResult
from rmq_ha.model.properties import (
    CLUSTER,
    REAL_QID,
    REAL_TOPIC,
    TRAN_MSG,
    WAIT,
    decode_properties,
    encode_properties,
)
from rmq_ha.model.status import PutMessageStatus
from rmq_ha.model.topic_config import TopicConfig
from rmq_ha.model.topics import (
    DLQ_PREFIX,
    HALF_TOPIC,
    MAX_TOPIC_LENGTH,
    NOT_FOR_CLIENTS,
    RETRY_PREFIX,
    topic_fault,
)
from rmq_ha.remoting.channel import Channel
from rmq_ha.store.default import DefaultMessageStore
from rmq_ha.wire.batch import decode_batch
from rmq_ha.wire.codes import RequestCode, ResponseCode
from rmq_ha.wire.command import FLAG_ONEWAY, RemotingCommand
from rmq_ha.wire.frame import JSON, decode_frame
from rmq_ha.wire.send_header import (
    UNDECODABLE,
    SendHeader,
    decode_fast_v1,
    decode_fast_v2,
    decode_send_header,
    encode_send_response,
)

VERSION_MAX_RECONSUME = 121  # V3_4_9: from here on the sender's maxReconsumeTimes counts
MULTI_TAG_FILTER = "MULTI_TAG"

CODES = {
    PutMessageStatus.PUT_OK: ResponseCode.SUCCESS,
    PutMessageStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutMessageStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    PutMessageStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutMessageStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutMessageStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutMessageStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
}

# What takes a message out of a run: it is stored elsewhere, or answered at another time.
_DELAYED, _HALF, _NOT_WAITING = "DELAY\x01", "TRAN_MSG\x01", "WAIT\x01false"
_WAIT_TRUE = "\x02WAIT\x01true"

RawFrame = tuple[bytes, bytes]
GeneralWay = Callable[[Channel, RemotingCommand], None]


@dataclass(slots=True)
class _Run:
    """Ordinary sends of one chunk, until they are answered."""

    channel: Channel
    began_ms: int
    messages: list[Message] = field(default_factory=list)
    opaques: list[int] = field(default_factory=list)  # -1: one-way, no answer


class SendMessageProcessor:
    """
    Accepts messages from producers.

    :param front: where messages are put: the store, or the plugins around it.
    :param random: picks a queue where the producer leaves that to us.
    :param now_ms: ms since the epoch.
    """

    log = Logger()

    def __init__(
        self,
        configuration: BrokerConfiguration,
        store: DefaultMessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        stats: BrokerStats,
        random: Random,
        now_ms: Callable[[], int],
        hooks: Sequence[Any] = (),
        front: IMessageStore | None = None,
    ) -> None:
        self._configuration = configuration
        self._broker = configuration.broker
        self._store = store
        self._front: Any = front or store
        self._topics = topics
        self._groups = groups
        self._stats = stats
        self._random = random
        self._now_ms = now_ms
        self._hooks = [hook for hook in hooks if ISendMessageHook.providedBy(hook)]
        self._store_host = Address.parse(
            self._broker.broker_ip1 or "127.0.0.1", configuration.server.listen_port
        )
        self._region = self._broker.region_id
        self._trace_ext = {
            "MSG_REGION": self._region,
            "TRACE_ON": "true" if self._broker.trace_on else "false",
        }

    def routes(self) -> dict[int, Handler]:
        """Request codes and their functions."""
        return {
            RequestCode.SEND_MESSAGE: self.send,
            RequestCode.SEND_MESSAGE_V2: self.send,
            RequestCode.SEND_BATCH_MESSAGE: self.send,
        }

    def bulk(self, general: GeneralWay) -> dict[bytes, Callable[[Channel, list[RawFrame]], None]]:
        """
        For runs of raw frames with such a header.

        :param general: handles one request the general way, in order with the run.
        """
        if self._hooks or self._front is not self._store:
            return {}
        return {
            b'{"code":310,': lambda channel, frames: self.send_run(
                channel, frames, decode_fast_v2, general
            ),
            b'{"code":10,': lambda channel, frames: self.send_run(
                channel, frames, decode_fast_v1, general
            ),
        }

    # ------------------------------------------------------------ runs

    def send_run(
        self,
        channel: Channel,
        frames: list[RawFrame],
        decode: Callable[[Any], Any],
        general: GeneralWay,
    ) -> None:
        """Append and answer consecutive sends of one chunk as one; unusual ones go their way."""
        run = _Run(channel, self._now_ms())
        cluster = self._broker.broker_cluster_name
        born_host, store_host = channel.remote, self._store_host
        accepting = self._is_accepting(run.began_ms)
        topic, queues = None, 0
        for header_bytes, body in frames:
            try:
                frame = decode(header_bytes)
            except UNDECODABLE:
                self._flush_run(run)
                general(channel, decode_frame(JSON, header_bytes, body))
                continue
            header = frame.ext
            if header.topic != topic:
                topic = header.topic
                queues = self._ordinary_queues(topic) if accepting else 0
            text = header.properties
            if (
                not 0 <= header.queue_id < queues
                or header.batch
                or _DELAYED in text
                or _HALF in text
                or _NOT_WAITING in text
            ):
                topic = None  # the general way may create it
                self._flush_run(run)
                general(channel, decode_frame(JSON, header_bytes, body))
                continue
            properties, text = _with_cluster(text, cluster)
            run.messages.append(
                Message(
                    header.topic,
                    header.queue_id,
                    body,
                    born_host,
                    store_host,
                    header.born_timestamp,
                    header.flag,
                    header.sys_flag,
                    header.reconsume_times,
                    0,
                    properties,
                    text,
                )
            )
            run.opaques.append(-1 if frame.flag & FLAG_ONEWAY else frame.opaque)
        self._flush_run(run)

    def _is_accepting(self, now_ms: int) -> bool:
        """Nothing about this broker takes sends out of runs at the moment."""
        return (
            bool(self._broker.broker_permission & PERM_WRITE)
            and now_ms >= self._broker.start_accept_send_request_time_stamp
            and not self._store.is_page_cache_busy()
        )

    def _ordinary_queues(self, name: str) -> int:
        """How many queues a topic has for messages that go where they say; 0: look closer."""
        topic = self._topics.get(name)
        if (
            topic is None
            or topic.topic_filter_type == MULTI_TAG_FILTER
            or name.startswith(RETRY_PREFIX)
            or name in NOT_FOR_CLIENTS
        ):
            return 0
        return max(topic.read_queue_nums, topic.write_queue_nums)

    def _flush_run(self, run: _Run) -> None:
        """Append what the run has so far; it is answered when flush and replica have decided."""
        if not run.messages:
            return
        messages, opaques = run.messages, run.opaques
        run.messages, run.opaques = [], []
        self._store.put_many(
            messages,
            lambda results: self._answer_run(run.channel, messages, opaques, results, run.began_ms),
        )

    def _answer_run(
        self,
        channel: Channel,
        messages: list[Message],
        opaques: list[int],
        results: list[PutMessageResult],
        began_ms: int,
    ) -> None:
        answers: list[bytes] = []
        stored = 0
        region, trace_on = self._region, self._broker.trace_on
        last, code, is_stored = None, 0, False
        for message, opaque, (status, append) in zip(messages, opaques, results, strict=True):
            if status is not last:  # mostly one for all; what an enum can tell costs
                last, is_stored = status, status.is_stored
                code = CODES.get(status, ResponseCode.SYSTEM_ERROR)
            if append is not None and is_stored:
                stored += 1
                if opaque != -1:
                    answers.append(
                        encode_send_response(
                            opaque,
                            code,
                            append.msg_id,
                            message.queue_id,
                            append.queue_offset,
                            region,
                            trace_on,
                        )
                    )
            elif opaque != -1:
                self._flush_answers(channel, answers)
                channel.send(self._refusal(RemotingCommand(0, opaque=opaque), status))
        self._flush_answers(channel, answers)
        if stored:
            self._stats.put_took(self._now_ms() - began_ms, stored)

    @staticmethod
    def _flush_answers(channel: Channel, answers: list[bytes]) -> None:
        if answers:
            channel.write(b"".join(answers))
            answers.clear()

    # ------------------------------------------------------------ one by one

    def send(
        self, channel: Channel, request: RemotingCommand
    ) -> RemotingCommand | Deferred[RemotingCommand | None]:
        """Any send: checked in RocketMQ's order, stored, answered when the store has decided."""
        began_ms = self._now_ms()
        try:
            header = decode_send_header(request)
            topic = self._check(header, began_ms)
            body = request.body or b""
            put: Deferred[PutMessageResult]
            if header.batch:
                batch = self._batch(channel, header, topic, body)
                context = self._before_hooks(channel, header, body)
                put = self._front.put_batch(batch)
            else:
                message = self._message(channel, request, header, topic, body)
                context = self._before_hooks(channel, header, body)
                put = self._front.put_message(message)
        except RequestRejected as rejected:
            return request.response(rejected.code, rejected.remark, dict(self._trace_ext))
        return put.addCallback(self._answer, request, header, context, began_ms)

    def _answer(
        self,
        result: PutMessageResult,
        request: RemotingCommand,
        header: SendHeader,
        context: dict[str, Any],
        began_ms: int,
    ) -> RemotingCommand:
        status, append = result
        if append is None or not status.is_stored:
            response = self._refusal(request, status)
        else:
            self._stats.put_took(self._now_ms() - began_ms, append.message_count)
            ext = {
                **self._trace_ext,
                "msgId": append.msg_id,
                "queueId": str(header.queue_id),
                "queueOffset": str(append.queue_offset),
            }
            response = request.response(CODES[status], None, ext)
        if self._hooks:
            self._after_hooks(context, response)
        return response

    def _refusal(self, request: RemotingCommand, status: PutMessageStatus) -> RemotingCommand:
        """The answer for a message that is not stored."""
        code = CODES.get(status, ResponseCode.SYSTEM_ERROR)
        return request.response(code, self._remark(status), dict(self._trace_ext))

    def _remark(self, status: PutMessageStatus) -> str:
        largest = self._configuration.store.max_message_size
        remarks = {
            PutMessageStatus.SERVICE_NOT_AVAILABLE: "service not available now: "
            + self._store.why_not_writable(),
            PutMessageStatus.MESSAGE_ILLEGAL: (
                f"the message is illegal, maybe msg body or properties length not matched: the body"
                f" may have {largest} bytes (maxMessageSize), the topic {MAX_TOPIC_LENGTH}"
            ),
            PutMessageStatus.PROPERTIES_SIZE_EXCEEDED: (
                "the message's properties, CLUSTER included, take more than 32767 bytes"
            ),
            PutMessageStatus.CREATE_MAPEDFILE_FAILED: (
                "create mapped file failed, server is busy or broken: "
                + self._store.why_not_writable()
            ),
            PutMessageStatus.OS_PAGECACHE_BUSY: (
                "[PC_SYNCHRONIZED]broker busy, start flow control for a while: the disk is slow"
            ),
        }
        return remarks.get(status, status.name)

    # ------------------------------------------------------------ checks

    def _check(self, header: SendHeader, now_ms: int) -> TopicConfig:
        """
        Checks 0 to 6 of the specification, in order; may create the topic and pick the queue.

        :raises RequestRejected: with the code of the first check that fails.
        """
        if self._store.is_page_cache_busy():
            raise RequestRejected(
                ResponseCode.SYSTEM_BUSY,
                "[REJECTREQUEST]system busy, start flow control for a while: the disk is slow",
            )
        starts = self._broker.start_accept_send_request_time_stamp
        if now_ms < starts:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"broker unable to service, until {starts} (startAcceptSendRequestTimeStamp)",
            )
        if not self._broker.broker_permission & PERM_WRITE and self._topics.is_order(header.topic):
            raise RequestRejected(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._broker.broker_ip1}] sending message is forbidden",
            )
        self._check_name(header.topic)
        topic = self._topics.get(header.topic) or self._create(header)
        queues = max(topic.read_queue_nums, topic.write_queue_nums)
        if header.queue_id >= queues:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"request queueId[{header.queue_id}] is illegal, topic {header.topic} has {queues}",
            )
        if header.queue_id < 0:
            header.queue_id = self._random.randrange(max(1, topic.write_queue_nums))
        return topic

    @staticmethod
    def _check_name(topic: str) -> None:
        fault = topic_fault(topic)
        if fault is not None:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, fault)
        if topic in NOT_FOR_CLIENTS:
            raise RequestRejected(
                ResponseCode.NO_PERMISSION, f"sending message to topic[{topic}] is forbidden"
            )

    def _create(self, header: SendHeader) -> TopicConfig:
        unit_flag = 0
        if header.unit_mode:
            unit_flag = TOPIC_UNIT_SUB if header.topic.startswith(RETRY_PREFIX) else TOPIC_UNIT
        topic = self._topics.create_in_send(
            header.topic, header.default_topic, header.default_topic_queue_nums, unit_flag
        )
        if topic is None:
            raise RequestRejected(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{header.topic}] not exist: create it with mqadmin updateTopic"
                " (autoCreateTopicEnable is off or its default topic is unknown here)",
            )
        return topic

    # ------------------------------------------------------------ messages

    def _message(
        self,
        channel: Channel,
        request: RemotingCommand,
        header: SendHeader,
        topic: TopicConfig,
        body: bytes,
    ) -> Message:
        """
        The message that a single send asks to store.

        :raises RequestRejected: its retry group is unknown, or it may not be transactional.
        """
        target, queue_id, reconsume = header.topic, header.queue_id, header.reconsume_times
        if target.startswith(RETRY_PREFIX):
            target, queue_id = self._retry_target(request, header)
        properties = decode_properties(header.properties)
        wait = properties.pop(WAIT, None)
        properties[CLUSTER] = self._broker.broker_cluster_name
        stored = encode_properties(properties)
        if wait is not None:
            properties[WAIT] = wait
        sys_flag = header.sys_flag
        if topic.topic_filter_type == MULTI_TAG_FILTER:
            sys_flag |= MULTI_TAGS
        if properties.get(TRAN_MSG, "").lower() == "true":
            if self._broker.reject_transaction_message:
                raise RequestRejected(
                    ResponseCode.NO_PERMISSION,
                    "the broker rejects transaction messages (rejectTransactionMessage=true)",
                )
            properties[REAL_TOPIC], properties[REAL_QID] = target, str(queue_id)
            target, queue_id = HALF_TOPIC, 0
            sys_flag &= ~TRANSACTION_MASK
            stored = encode_properties(properties)
        return Message(
            target,
            queue_id,
            body,
            channel.remote,
            self._store_host,
            header.born_timestamp,
            header.flag,
            sys_flag,
            reconsume,
            0,
            properties,
            stored,
            wait != "false",
        )

    def _retry_target(self, request: RemotingCommand, header: SendHeader) -> tuple[str, int]:
        """Where a client's own re-send goes: the retry topic, or the dead letters."""
        group = header.topic.removeprefix(RETRY_PREFIX)
        config = self._groups.find(group)
        if config is None:
            raise RequestRejected(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {group}: create it with mqadmin updateSubGroup",
            )
        limit = config.retry_max_times
        if request.version >= VERSION_MAX_RECONSUME and header.max_reconsume_times is not None:
            limit = header.max_reconsume_times
        if header.reconsume_times < limit:
            return header.topic, header.queue_id
        dead = DLQ_PREFIX + group
        self._topics.create_in_send_back(dead, 1, PERM_READ | PERM_WRITE, 0)
        return dead, 0

    def _batch(
        self, channel: Channel, header: SendHeader, topic: TopicConfig, body: bytes
    ) -> MessageBatch:
        """
        The messages of a batch, each with the batch's properties appended to its own.

        :raises RequestRejected: the batch cannot be taken apart.
        """
        if len(body) > self._configuration.store.max_message_size:
            raise RequestRejected(
                ResponseCode.MESSAGE_ILLEGAL,
                f"a batch of {len(body)} bytes; {self._configuration.store.max_message_size}"
                " are allowed (maxMessageSize)",
            )
        properties = decode_properties(header.properties)
        properties[CLUSTER] = self._broker.broker_cluster_name
        common = encode_properties(properties)
        try:
            members = decode_batch(body)
        except ProtocolViolation as violation:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, str(violation)) from None
        sys_flag = header.sys_flag
        if topic.topic_filter_type == MULTI_TAG_FILTER:
            sys_flag |= MULTI_TAGS
        return MessageBatch(
            header.topic,
            header.queue_id,
            channel.remote,
            self._store_host,
            [(flag, data, _joined(own, common)) for flag, data, own in members],
            header.born_timestamp,
            sys_flag,
            header.reconsume_times,
            properties.get(WAIT) != "false",
        )

    def _before_hooks(self, channel: Channel, header: SendHeader, body: bytes) -> dict[str, Any]:
        if not self._hooks:
            return {}
        context: dict[str, Any] = {
            "topic": header.topic,
            "queue_id": header.queue_id,
            "producer_group": header.producer_group,
            "born_host": channel.remote_text,
            "body_size": len(body),
            "properties": decode_properties(header.properties),
        }
        for hook in self._hooks:
            hook.before_send(context)
        return context

    def _after_hooks(self, context: dict[str, Any], response: RemotingCommand) -> None:
        """A hook's fault does not change the answer: the message is stored, or refused, already."""
        ext = response.ext or {}
        context["code"] = response.code
        context["msg_id"], context["queue_offset"] = ext.get("msgId"), ext.get("queueOffset")
        for hook in self._hooks:
            try:
                hook.after_send(context)
            except Exception:
                self.log.failure("send hook {hook!r} failed after a send", hook=hook)


def _with_cluster(text: str, cluster: str) -> tuple[dict[str, str], str]:
    """
    A message's properties with CLUSTER and without WAIT, and the string that is stored.

    The producer's string is kept where nothing else has to change: joining it anew costs more.
    """
    head, _, tail = text.partition(_WAIT_TRUE)
    if not tail or tail[0] == "\x02":
        text = head + tail
    properties = decode_properties(text)
    is_plain = WAIT not in properties and CLUSTER not in properties
    properties.pop(WAIT, None)
    properties[CLUSTER] = cluster
    if not is_plain or not text or text[-1] == "\x02":
        return properties, encode_properties(properties)
    return properties, f"{text}\x02{CLUSTER}\x01{cluster}"


def _joined(own: str, common: str) -> str:
    """A batch member's stored properties."""
    if not own or own.endswith("\x02"):
        return own + common
    return f"{own}\x02{common}"
