"""Decides what becomes of a send that asks for a timer.

Spec: timer.md, sections 3, 7 and 12.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random

from twisted.internet.defer import Deferred

from rmq_ha.base.config.own_keys import RmqHaConfig
from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.model.message import AppendResult, BrokerMessage, MessageBatch, PutMessageResult
from rmq_ha.base.model.properties import (
    REAL_TOPIC,
    TIMER_ASKS,
    TIMER_DEL_UNIQKEY,
    TIMER_OUT_MS,
    TIMER_SRC,
    UNIQ_KEY,
    decode_properties,
    encode_properties,
)
from rmq_ha.base.model.topics import HALF_TOPIC, RETRY_PREFIX, TIMER_TOPIC
from rmq_ha.base.model.unserved_properties import asks_for_timer
from rmq_ha.base.store_format.commitlog import decode_record
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.base.wire.recall_handle import RECALL_HANDLE, RecallHandle
from rmq_ha.server.broker.timer_recalls import RecallOutcome, TimerRecalls
from rmq_ha.server.store.message_store import DefaultMessageStore
from rmq_ha.server.store.timer.records import recalled_key
from rmq_ha.server.store.timer.request import (
    RESERVE,
    asked_due,
    drop_written_by_brokers,
    has_room,
    waiting_record,
    with_properties,
)
from rmq_ha.server.store.timer.sources import TimerSource
from rmq_ha.server.store.timer.timers import TimerMessage

Member = tuple[int, bytes, str]
_MARK = "TIMER_"
_BYTE_MARK = _MARK.encode()
_WHY_NOT = {
    RecallOutcome.RECALLED: "it was recalled before",
    RecallOutcome.NOT_NOW: "this broker is no master now, or its queues lack a part of the log",
}


class TimerSends:
    """
    Turns messages that ask for a timer into the records that wait in the topic of timers.

    A delay counts from the call of a method here; that of a message in a transaction counts from
    the commit.

    :param broker_name: this broker's name, for the recall handles by which clients take messages
        back.
    :param now_ms: returns ms since the epoch.
    :param random: makes unique keys for messages without one.
    """

    def __init__(
        self,
        config: RmqHaConfig,
        broker_name: str,
        store: DefaultMessageStore,
        recalls: TimerRecalls,
        now_ms: Callable[[], int],
        random: Random,
    ) -> None:
        self._config = config
        self._broker_name = broker_name
        self._store = store
        self._timers = store.timers
        self._recalls = recalls
        self._now_ms = now_ms
        self._random = random

    def clean(self, properties: dict[str, str], *, is_dead: bool = False) -> None:
        """
        Remove the properties that only brokers may write from those of a message that a client
        sends.

        :param is_dead: whether the message becomes a dead letter, which no timer delays.
        """
        if self._timers.is_enabled:
            drop_written_by_brokers(properties)
            if is_dead:
                for name in TIMER_ASKS:
                    properties.pop(name, None)
        else:
            properties.pop(TIMER_SRC, None)

    def recalls(self, properties: Mapping[str, str]) -> bool:
        """Return whether a message is the recall of another one."""
        return self._timers.is_enabled and _recalls(properties)

    def may_be_in(self, common: str, body: bytes) -> bool:
        """
        Return whether a batch may hold messages with timers, so that its members must be looked at
        one by one.

        :param common: the properties that the members share, as text.
        :param body: the encoded members.
        """
        return _MARK in common or _BYTE_MARK in body

    def decide(self, message: BrokerMessage) -> BrokerMessage:
        """
        Return the record that waits, or the message itself if nothing delays it.

        A half message is checked, and stays as it is until its commit.

        :param message: its properties were cleaned.
        :raises RequestRejected: the timer cannot be served.
        """
        if not self._timers.is_enabled:
            return message
        is_recall, is_half = _recalls(message.properties), message.topic == HALF_TOPIC
        if not asks_for_timer(message.properties):
            if is_recall:
                raise _illegal_recall("it needs TIMER_DELIVER_MS, and no delay level")
            return message
        if is_recall and is_half:
            raise _illegal_recall("it cannot be in a transaction")
        due = self._due(message.properties)
        if due is None:
            return message
        if is_recall:
            return self._waiting(message, due)
        self._check_room_at(due)
        record = self._waiting(message, due)
        return message if message.topic == HALF_TOPIC else record

    def recall(self, record: BrokerMessage) -> "Deferred[PutMessageResult]":
        """
        Store a recall that a client sent as a message, once for each message that it recalls.

        :param record: what `decide` returned.
        :returns: fires with the result of the first put. Fails with `RequestRejected` if no message
            of that topic, key and time waits.
        """
        return Deferred.fromCoroutine(self._recall(record))

    async def _recall(self, record: BrokerMessage) -> PutMessageResult:
        properties = record.properties
        topic = properties[REAL_TOPIC]

        def make(waiting: TimerMessage) -> BrokerMessage:
            changes = {TIMER_OUT_MS: str(waiting.out_ms), TIMER_SRC: waiting.source.text}
            return with_properties(record, {**properties, **changes})

        end = await self._recalls.by_key(
            topic, recalled_key(properties), int(properties[TIMER_OUT_MS]) + 1, make
        )
        if end.put is None:
            raise _illegal_recall(
                _WHY_NOT.get(end.outcome, f"no message of {topic} waits with this key and time")
            )
        return end.put

    def other_topic(self, message: BrokerMessage, record: BrokerMessage) -> str:
        """
        Return the topic of timers if an earlier send of this message may wait there, although the
        time of its timer is over now; else an empty text.

        :param record: what `decide` returned.
        """
        is_over = record is message and self._timers.is_enabled
        return TIMER_TOPIC if is_over and asks_for_timer(message.properties) else ""

    def committed(self, message: BrokerMessage) -> BrokerMessage:
        """
        Return what a transaction's commit stores: the message, or the record that waits.

        The send of the half message was acknowledged, so no limit refuses the commit. If the
        broker's timers were switched off meanwhile, the record waits until they are on again.
        """
        is_at_once = not (self._timers.is_enabled or self._config.refuse_unserved_properties)
        if is_at_once or not asks_for_timer(message.properties):
            return message
        now_ms = self._now_ms()
        due = asked_due(message.properties, now_ms)
        return message if due is None or due <= now_ms else waiting_record(message, due)

    def batch(self, batch: MessageBatch) -> MessageBatch:
        """
        Return the batch that is stored: either all its members become records that wait, or none
        does.

        :raises RequestRejected: a timer cannot be served, or only some members ask for a timer.
        """
        # Read and clean the properties of all members, and find out when each member is due.
        all_properties: list[dict[str, str]] = []
        dues: list[int | None] = []
        now_ms = self._now_ms()
        asking = 0
        for number, (_, _, text) in enumerate(batch.members):
            properties = decode_properties(text)
            self.clean(properties)
            all_properties.append(properties)
            if self.recalls(properties):
                raise _illegal_recall("it cannot be in a batch")
            due = None
            if self._timers.is_enabled and asks_for_timer(properties):
                asking += 1
                try:
                    due = self._due(properties)
                except RequestRejected as rejected:
                    raise RequestRejected(
                        rejected.code, f"{rejected.remark} (message {number} of the batch)"
                    ) from None
            dues.append(due)
        # No member waits: the batch is stored in its own topic, with cleaned properties.
        if all(due is None for due in dues):
            texts = list(map(encode_properties, all_properties))
            return replace(batch, members=_with_texts(batch.members, texts))
        if asking < len(dues):
            raise RequestRejected(
                ResponseCode.MESSAGE_ILLEGAL,
                f"{asking} of the {len(dues)} messages of the batch ask for a timer: send them in "
                "a batch of their own",
            )
        # All members wait: the batch is stored in the topic of timers, as one record for each.
        texts = []
        for number, (due, properties) in enumerate(zip(dues, all_properties, strict=True)):
            due = due or now_ms + 1  # its time is over, so it is due before all others
            self._check_room_at(due, number)
            message = BrokerMessage(
                batch.topic, batch.queue_id, b"", batch.born_host, batch.store_host,
                properties=properties,
            )  # fmt: skip
            texts.append(self._waiting(message, due).properties_string)
        return replace(
            batch, topic=TIMER_TOPIC, queue_id=0, members=_with_texts(batch.members, texts)
        )

    def answer_fields(
        self, record: BrokerMessage, append: AppendResult, *, is_known: bool
    ) -> dict[str, str]:
        """
        Return the header fields that an answer to a timer message has besides those of every
        answer.

        :param record: what `decide` returned.
        :param append: the place of the stored record.
        :param is_known: whether an earlier send stored the message; the time of that record may
            be another one.
        """
        properties = record.properties
        if is_known:
            data = self._store.record_at(append.physical_offset)
            properties = decode_record(data).properties if data else properties
        topic, unique_key = properties[REAL_TOPIC], properties[UNIQ_KEY]
        fields = {"transactionId": unique_key}
        if topic.startswith(RETRY_PREFIX):
            return fields
        handle = RecallHandle(
            topic,
            self._broker_name,
            str(int(properties[TIMER_OUT_MS]) + 1),
            unique_key,
            TimerSource(append.physical_offset, append.queue_offset).text,
        ).encode()
        return {**fields, RECALL_HANDLE: handle} if handle else fields

    def _due(self, properties: dict[str, str]) -> int | None:
        """
        Return when a message is due, in ms since the epoch; None if that time is over, so that
        nothing delays the message.

        :raises RequestRejected: the time cannot be read or is too far away; or the message is a
            recall, and the time is over.
        """
        now_ms, most_ms = self._now_ms(), self._config.timer_max_delay_sec * 1000
        due = asked_due(properties, now_ms)
        if due is None or due - now_ms > most_ms or (due <= now_ms and _recalls(properties)):
            raise RequestRejected(
                ResponseCode.MESSAGE_ILLEGAL,
                "timer message illegal, the delay time should not be bigger than the max delay "
                f"{most_ms}ms; or if set del msg, the delay time should be bigger than the current "
                "time",
            )
        return due if due > now_ms else None

    def _check_room_at(self, due_ms: int, already: int = 0) -> None:
        """
        Check that not too many messages wait: at this broker, and for the same second.

        :param due_ms: when the message is due, ms since the epoch.
        :param already: how many messages of this request will wait for the same second at most.
        :raises RequestRejected: with code 1, as RocketMQ's flow control of timers.
        """
        timers, config = self._timers, self._config
        limit = config.timer_congest_num_each_slot
        count = timers.waiting_in_second(due_ms) + already
        if timers.waiting + already >= config.timer_max_waiting:
            raise _congestion_refusal(config.timer_max_waiting, "timerMaxWaiting")
        if count <= limit:
            return
        # Between the limit and its double, more and more sends are refused, as RocketMQ does.
        if count >= 2 * limit or limit * self._random.random() < count - limit:
            raise _congestion_refusal(2 * limit, "timerCongestNumEachSlot", limit)

    def _waiting(self, message: BrokerMessage, due_ms: int) -> BrokerMessage:
        """
        Return the record of a message that waits until it is due. A message without a unique key
        gets one.

        :raises RequestRejected: the record's properties leave no room for those of the delivery.
        """
        if not message.properties.get(UNIQ_KEY):
            unique_key = f"{self._random.getrandbits(128):032X}"
            message = replace(message, properties={**message.properties, UNIQ_KEY: unique_key})
        record = waiting_record(message, due_ms)
        if not has_room(record.properties_string):
            raise RequestRejected(
                ResponseCode.MESSAGE_ILLEGAL,
                "the message is illegal: with a timer it needs "
                f"{RESERVE} bytes of properties more, for its delivery, than there is room for",
            )
        return record


def _illegal_recall(reason: str) -> RequestRejected:
    return RequestRejected(
        ResponseCode.MESSAGE_ILLEGAL, f"the recall by {TIMER_DEL_UNIQKEY} does nothing: {reason}"
    )


def _recalls(properties: Mapping[str, str]) -> bool:
    return bool(properties.get(TIMER_DEL_UNIQKEY))


def _with_texts(members: list[Member], texts: list[str]) -> list[Member]:
    return [(flag, body, text) for (flag, body, _), text in zip(members, texts, strict=True)]


def _congestion_refusal(most: int, key: str, limit: int | None = None) -> RequestRejected:
    return RequestRejected(
        ResponseCode.SYSTEM_ERROR,
        f"timer message is under flow control, max num limit is {most} or the current value is "
        f"greater than {most if limit is None else limit} and less than {most}, trigger random "
        f"flow control ({key})",
    )
