"""SendMaker: makes sends of messages, with checks, ids and deadlines.

Spec: remoting.md, section 11.1.
"""

from collections.abc import Callable, Generator, Sequence
from math import inf
from random import Random
from typing import Any

from rmq_ha.base.errors import RemotingError
from rmq_ha.base.model.process import Process
from rmq_ha.base.model.properties import UNIQ_KEY
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.client.rules.batches import BatchPart, check_batch, split
from rmq_ha.client.rules.errors import BatchFailed, IllegalMessage, MQClientError
from rmq_ha.client.rules.messages import Message, SendResult
from rmq_ha.client.rules.queue_choice import Selector
from rmq_ha.client.rules.send_frames import Outgoing
from rmq_ha.client.rules.settings import ClientConfig, ProducerConfig
from rmq_ha.client.rules.unique_id import UniqueIds
from rmq_ha.client.send.send import (
    TIMER_MARK,
    PublishTopic,
    Send,
    check_message,
    check_properties,
    is_timed,
    outgoing_of,
)

INSTANCE_ID = "INSTANCE_ID"


class SendMaker:
    """Makes a producer's sends; refuses messages that break a rule by `IllegalMessage`."""

    def __init__(
        self,
        settings: ClientConfig,
        config: ProducerConfig,
        process: Process,
        random: Random,
        topic: Callable[[str], PublishTopic],
        seconds: Callable[[], float],
        now_ms: Callable[[], int],
    ) -> None:
        """
        :param topic: returns the topic of a name that the application uses.
        :param seconds: returns the time of the clock for deadlines, in seconds.
        :param now_ms: returns the current time, in ms since the epoch.
        """
        self._config = config
        self._namespace = settings.namespace
        self._topic = topic
        self._seconds = seconds
        self._now_ms = now_ms
        address = settings.client_ip or process.address
        self._ids = UniqueIds(address, process.pid, random.getrandbits(32))

    def of_message(
        self,
        message: Message,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        arg: Any = None,
        timeout_ms: float | None = None,
    ) -> Send:
        """
        Make the send of one message.

        :param timeout_ms: time for the whole send, in ms; None for the settings' timeouts.
        """
        check_message(message, self._config)
        properties = message.properties
        if UNIQ_KEY not in properties:
            self._give_unique_id(message)
        code, outgoing = outgoing_of(message, self._config)
        send = self._make(
            message.topic, code, outgoing, properties[UNIQ_KEY], (message,), timeout_ms
        )
        if TIMER_MARK in outgoing.properties:
            send.is_timed = is_timed(properties, self._config)
            send.asks |= send.is_timed
        if queue is not None:
            _fix_queue(send, queue)
        send.selector, send.arg = selector, arg
        return send

    def in_parts(
        self,
        messages: Sequence[Message],
        queue: MessageQueue | None = None,
        timeout_ms: float | None = None,
    ) -> Generator[Send, SendResult, list[SendResult]]:
        """
        Make the sends of a batch: messages of one topic, in as few requests as possible.

        :returns: a generator that yields one send after the other. Its caller sends each result, or
            throws each error, into it. It returns all results.
        :raises IllegalMessage: the messages break a rule of RocketMQ; raised before the first send.
        :raises BatchFailed: a request has failed after others were stored.
        """
        parts = self._parts(messages)
        results: list[SendResult] = []
        done = 0
        for part in parts:
            try:
                own = messages[done : done + part.length]
                results.append((yield self.of_part(part, own, queue, timeout_ms)))
            except (RemotingError, MQClientError) as error:
                if not results:
                    raise
                raise BatchFailed(error, tuple(results), len(messages) - done) from error
            done += part.length
        return results

    def _parts(self, messages: Sequence[Message]) -> list[BatchPart]:
        """Check a batch, and split it into as few requests as possible."""
        for message in messages:
            check_message(message, self._config)
        check_batch(messages)
        for message in messages:
            check_properties(message.properties, self._config)
            if UNIQ_KEY not in message.properties:
                self._give_unique_id(message)
        return split(messages, self._config.max_batch_size)

    def of_part(
        self,
        part: BatchPart,
        messages: Sequence[Message],
        queue: MessageQueue | None = None,
        timeout_ms: float | None = None,
    ) -> Send:
        """
        Make the send of one request of a batch; its time begins now.

        :param messages: the messages of this request.
        """
        outgoing = Outgoing(0, 0, part.properties, part.body)
        code, topic = RequestCode.SEND_BATCH_MESSAGE, messages[0].topic
        send = self._make(topic, code, outgoing, part.message_ids, tuple(messages), timeout_ms)
        if queue is not None:
            _fix_queue(send, queue)
        return send

    def _make(
        self,
        topic: str,
        code: int,
        outgoing: Outgoing,
        msg_id: str,
        messages: tuple[Message, ...],
        timeout_ms: float | None,
    ) -> Send:
        config = self._config
        if timeout_ms is None:
            limit, total = float(config.send_msg_timeout_ms), config.delivery_timeout_ms or inf
        else:
            limit = total = timeout_ms
        known, now = self._topic(topic), self._seconds()
        send = Send(known, code, outgoing, msg_id, messages, now, now + total / 1000, limit)
        send.asks = config.idempotent
        return send

    def _give_unique_id(self, message: Message) -> None:
        message.properties[UNIQ_KEY] = self._ids.next(self._now_ms())
        if self._namespace:
            message.properties[INSTANCE_ID] = self._namespace


def _fix_queue(send: Send, queue: MessageQueue) -> None:
    if queue.topic != send.topic.shown:
        raise IllegalMessage(
            f"the message is for {send.topic.shown}, but the queue is one of {queue.topic}"
        )
    send.fixed_queue = queue
