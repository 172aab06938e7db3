"""Runs of ordinary sends: decoded straight from their bytes, appended and answered as one.

Whatever is unusual about a message takes it out of the run to the general way, in order.

Spec: remoting.md, chapter 4; store.md, section 2.7.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rmq_ha.broker.overload import SendOverload
from rmq_ha.broker.processors.many_keys import has_many_keys
from rmq_ha.broker.processors.send_answers import CODES, SendAnswers
from rmq_ha.broker.stats import BrokerStats
from rmq_ha.broker.tables.topics import TopicConfigManager
from rmq_ha.config.broker_configuration import BrokerConfiguration
from rmq_ha.model.flags import PERM_WRITE
from rmq_ha.model.message import Address, Message, PutMessageResult
from rmq_ha.model.properties import CLUSTER, WAIT, decode_properties, encode_properties
from rmq_ha.model.topics import NOT_FOR_CLIENTS, RETRY_PREFIX
from rmq_ha.remoting.channel import Channel
from rmq_ha.store.default import DefaultMessageStore
from rmq_ha.wire.codes import ResponseCode
from rmq_ha.wire.command import FLAG_ONEWAY, RemotingCommand
from rmq_ha.wire.send_header import (
    UNDECODABLE,
    decode_fast_v1,
    decode_fast_v2,
    encode_send_response,
)

MULTI_TAG_FILTER = "MULTI_TAG"

# What takes a message out of a run: it is stored elsewhere, or answered at another time.
_DELAYED, _HALF, _WAIT, _WAITING = "DELAY\x01", "TRAN_MSG\x01", "WAIT\x01", "WAIT\x01true"
_WAIT_TRUE = "\x02WAIT\x01true"

RawFrame = tuple[bytes, bytes]
GeneralWay = Callable[[Channel, bytes, bytes], None]


@dataclass(slots=True)
class _Run:
    """Ordinary sends of one chunk, until they are answered."""

    channel: Channel
    began_ms: int
    messages: list[Message] = field(default_factory=list)
    opaques: list[int] = field(default_factory=list)  # -1: one-way, no answer


class SendRuns:
    """
    The hot path of a master.

    :param store_host: our own address.
    :param now_ms: ms since the epoch.
    """

    def __init__(
        self,
        configuration: BrokerConfiguration,
        store: DefaultMessageStore,
        topics: TopicConfigManager,
        stats: BrokerStats,
        answers: SendAnswers,
        overload: SendOverload,
        store_host: Address,
        now_ms: Callable[[], int],
    ) -> None:
        self._broker = configuration.broker
        self._store = store
        self._topics = topics
        self._stats = stats
        self._answers = answers
        self._overload = overload
        self._store_host = store_host
        self._now_ms = now_ms

    def handlers(
        self, general: GeneralWay
    ) -> dict[bytes, Callable[[Channel, list[RawFrame]], None]]:
        """
        For runs of raw frames with such a header.

        :param general: handles one frame the general way, in order with the run.
        """
        return {
            b'{"code":310,': lambda channel, frames: self.send_run(
                channel, frames, decode_fast_v2, general
            ),
            b'{"code":10,': lambda channel, frames: self.send_run(
                channel, frames, decode_fast_v1, general
            ),
        }

    def send_run(
        self,
        channel: Channel,
        frames: list[RawFrame],
        decode: Callable[[Any], Any],
        general: GeneralWay,
    ) -> None:
        """Append and answer consecutive sends of one chunk as one; unusual ones go their way."""
        run = _Run(channel, self._stats.steady_ms())
        cluster = self._broker.broker_cluster_name
        born_host, store_host = channel.remote, self._store_host
        accepting = self._is_accepting(channel, len(frames))
        topic, queues = None, 0
        for header_bytes, body in frames:
            try:
                frame = decode(header_bytes)
            except UNDECODABLE:
                self._flush_run(run)
                general(channel, header_bytes, body)
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
                or (_WAIT in text and _WAITING not in text)
                or has_many_keys(text)
            ):
                topic = None  # the general way may create it
                self._flush_run(run)
                general(channel, header_bytes, body)
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

    def _is_accepting(self, channel: Channel, sends: int) -> bool:
        """Nothing about this broker takes sends out of runs at the moment."""
        several = sends if sends > 1 else 0  # one alone is counted where it goes the general way
        return (
            bool(self._broker.broker_permission & PERM_WRITE)
            and self._now_ms() >= self._broker.start_accept_send_request_time_stamp
            and self._overload.reason(channel, several) is None
        )

    def _ordinary_queues(self, name: str) -> int:
        """How many queues a topic has for messages that go where they say; 0: look closer."""
        topic = self._topics.get(name)
        if (
            topic is None
            or topic.topic_filter_type == MULTI_TAG_FILTER
            or name.startswith(RETRY_PREFIX)
            or name in NOT_FOR_CLIENTS
            or not self._topics.is_ready(name)
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
        puts: dict[tuple[str, int], list[int]] = {}
        region, trace_on = self._broker.region_id, self._broker.trace_on
        last, code, is_stored = None, 0, False
        for message, opaque, (status, append) in zip(messages, opaques, results, strict=True):
            if status is not last:  # mostly one for all; what an enum can tell costs
                last, is_stored = status, status.is_stored
                code = CODES.get(status, ResponseCode.SYSTEM_ERROR)
            if append is not None and is_stored:
                key = (message.topic, message.queue_id)
                sizes = puts.get(key)
                if sizes is None:
                    puts[key] = [append.size]
                else:
                    sizes.append(append.size)
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
                channel.send(self._answers.refused(RemotingCommand(0, opaque=opaque), status))
        self._flush_answers(channel, answers)
        if puts:
            self._stats.put_run(puts, self._stats.steady_ms() - began_ms)

    @staticmethod
    def _flush_answers(channel: Channel, answers: list[bytes]) -> None:
        if answers:
            channel.write(b"".join(answers))
            answers.clear()


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
