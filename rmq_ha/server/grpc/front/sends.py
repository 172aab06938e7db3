"""Checks the messages of SendMessage, and turns each into header and body for a broker.

The checks have the order of Java's proxy, so that a message with two faults gets the code that the
proxy would answer.

Spec: grpc.md, sections 4.1, 4.2 and 8.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from rmq_ha.base.model import properties as known
from rmq_ha.base.model.attributes import DELAY, FIFO, MIXED, NORMAL, TRANSACTION, message_type
from rmq_ha.base.model.flags import COMPRESSED, PERM_WRITE, TRANSACTION_PREPARED
from rmq_ha.base.model.properties import (
    CHECK_IMMUNITY_TIME_IN_SECONDS,
    KEYS,
    PGROUP,
    RECONSUME_TIME,
    TAGS,
    TIMER_ASKS,
    TIMER_DELIVER_MS,
    TRAN_MSG,
    UNIQ_KEY,
    encode_properties,
)
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.wire.send_header import SendHeader
from rmq_ha.server.grpc.front.consistent_hash import queue_of_group
from rmq_ha.server.grpc.front.limits import FrontSettings
from rmq_ha.server.grpc.front.names import has_control, is_of_a_group
from rmq_ha.server.grpc.front.properties import (
    BORN_HOST,
    BORN_TIMESTAMP,
    RESERVED,
    SHARDING_KEY,
    TRACE_CONTEXT,
)
from rmq_ha.server.grpc.front.refusals import FrontRefusal
from rmq_ha.server.grpc.wire.enums import AnswerCode, BodyEncoding, MessageType

_DELAYS = (known.DELAY, *TIMER_ASKS)
_ANY_QUEUE = -1
_MOST_SECONDS = 253_402_300_800
"""A client's times must be earlier than this: the end of the year 9999, in seconds."""


class StoredSend(NamedTuple):
    """
    A message in the form in which a broker takes it.

    :ivar unique_id: the id that its client gave it.
    :ivar is_half: whether it is the half message of a transaction.
    """

    header: SendHeader
    body: bytes
    unique_id: str
    is_half: bool


class MessageChecks:
    """
    Checks the messages of one topic.

    :param topic: the topic's name as it is stored.
    :param config: the topic; None if this broker has none of that name.
    :param serves_timers: whether the broker delivers messages later.
    """

    def __init__(
        self,
        settings: FrontSettings,
        topic: str,
        config: TopicConfig | None,
        *,
        serves_timers: bool,
        now_ms: int,
    ) -> None:
        self._settings = settings
        self._topic = topic
        self._config = config
        self._serves_timers = serves_timers
        self._now_ms = now_ms

    def read(self, message: Any, born_host: str) -> StoredSend:
        """
        Check a message, and return the form in which a broker takes it.

        :param born_host: the client's address, for a message that names none.
        :raises FrontRefusal: with the code of the first check that fails.
        """
        system = message.system_properties
        self._check_body(message.body)
        self._check_properties(message.user_properties, system)
        self._check_texts(system)
        self._check_times(system)
        self._check_group(system)
        self._check_unserved(system)
        properties = self._properties(message, born_host)
        config = self._checked_topic(properties)
        header = SendHeader(
            producer_group=self._topic,
            topic=self._topic,
            queue_id=self._queue(system, config),
            sys_flag=_sys_flag(system),
            born_timestamp=_millis(system.born_timestamp),
            properties=encode_properties(properties),
        )
        return StoredSend(header, message.body, system.message_id, TRAN_MSG in properties)

    def _check_body(self, body: bytes) -> None:
        settings = self._settings
        if not body and settings.refuses_empty_bodies:
            raise FrontRefusal(AnswerCode.MESSAGE_BODY_EMPTY, "message body cannot be empty")
        if len(body) > settings.max_body:
            raise FrontRefusal(
                AnswerCode.MESSAGE_BODY_TOO_LARGE,
                f"message body cannot exceed the max {settings.max_body}",
            )

    def _check_properties(self, user: Mapping[str, str], system: Any) -> None:
        settings = self._settings
        if len(user) > settings.max_properties:
            raise FrontRefusal(
                AnswerCode.MESSAGE_PROPERTIES_TOO_LARGE,
                f"too many user properties, max is {settings.max_properties}",
            )
        texts = [*user, *user.values(), system.tag, *system.keys]
        if sum(len(text.encode()) for text in texts) > settings.max_properties_size:
            raise FrontRefusal(
                AnswerCode.MESSAGE_PROPERTIES_TOO_LARGE,
                "the total size of user property is too large, max is "
                f"{settings.max_properties_size}",
            )
        for name, value in user.items():
            if name in RESERVED:
                raise _bad_property(f"property is used by system: {name}")
            if not name or has_control(name):
                raise _bad_property(
                    "the key of property cannot be empty or contain control character"
                )
            if has_control(value):
                raise _bad_property("the value of property cannot contain control character")

    @staticmethod
    def _check_texts(system: Any) -> None:
        if system.HasField("tag"):
            fault = _word_fault(system.tag) or ("|" in system.tag and "cannot contain '|'")
            if fault:
                raise FrontRefusal(AnswerCode.ILLEGAL_MESSAGE_TAG, f"tag {fault}")
        for key in system.keys:
            fault = _word_fault(key)
            if fault:
                raise FrontRefusal(AnswerCode.ILLEGAL_MESSAGE_KEY, f"key {fault}")
        if not system.message_id.strip():
            raise FrontRefusal(AnswerCode.ILLEGAL_MESSAGE_ID, "message id cannot be empty")
        # Java forgets these: their control characters would become properties of the message.
        if has_control(system.message_id):
            raise FrontRefusal(
                AnswerCode.ILLEGAL_MESSAGE_ID, "message id cannot contain control character"
            )
        if has_control(system.born_host) or has_control(system.trace_context):
            raise FrontRefusal(
                AnswerCode.BAD_REQUEST,
                "born host and trace context cannot contain control character",
            )

    def _check_times(self, system: Any) -> None:
        settings = self._settings
        recovery = system.orphaned_transaction_recovery_duration.seconds
        if not 0 <= recovery <= settings.max_recovery_s:
            raise FrontRefusal(
                AnswerCode.BAD_REQUEST,
                "the max transaction recovery time of message is too large, max is "
                f"{settings.max_recovery_s}",
            )
        if not system.HasField("delivery_timestamp"):
            return
        delay = _millis(system.delivery_timestamp) - self._now_ms
        if delay > settings.max_delay_ms:
            raise FrontRefusal(
                AnswerCode.ILLEGAL_DELIVERY_TIME,
                f"the max delay time of message is too large, max is {settings.max_delay_ms}",
            )
        if delay > 0 and not self._serves_timers:
            raise FrontRefusal(
                AnswerCode.ILLEGAL_DELIVERY_TIME,
                "this broker delivers no message later: set timerWheelEnable=true at the broker, "
                "or send without a delivery timestamp",
            )

    def _check_group(self, system: Any) -> None:
        if not system.HasField("message_group"):
            return
        group, most = system.message_group, self._settings.max_group_size
        fault = _word_fault(group)
        if fault:
            raise FrontRefusal(AnswerCode.ILLEGAL_MESSAGE_GROUP, f"message group {fault}")
        if len(group.encode()) >= most:
            raise FrontRefusal(
                AnswerCode.ILLEGAL_MESSAGE_GROUP, f"message group exceed the max size {most}"
            )

    @staticmethod
    def _check_unserved(system: Any) -> None:
        """Refuse lite topics and priorities, which this broker does not have."""
        if system.HasField("lite_topic") or system.message_type == MessageType.LITE:
            raise FrontRefusal(
                AnswerCode.ILLEGAL_LITE_TOPIC, "this broker has no lite topics: leave it out"
            )
        if system.HasField("priority") or system.message_type == MessageType.PRIORITY:
            raise FrontRefusal(
                AnswerCode.BAD_REQUEST, "this broker has no priorities: leave the priority out"
            )

    def _properties(self, message: Any, born_host: str) -> dict[str, str]:
        system = message.system_properties
        properties = dict(message.user_properties)
        if system.message_type == MessageType.TRANSACTION:
            properties[TRAN_MSG] = "true"
            recovery = system.orphaned_transaction_recovery_duration.seconds
            if recovery:
                properties[CHECK_IMMUNITY_TIME_IN_SECONDS] = str(recovery)
        properties[UNIQ_KEY] = system.message_id
        if system.HasField("tag"):
            properties[TAGS] = system.tag
        if system.keys:
            properties[KEYS] = " ".join(system.keys)
        if system.HasField("delivery_timestamp") and self._serves_timers:
            properties[TIMER_DELIVER_MS] = str(max(1, _millis(system.delivery_timestamp)))
        if system.HasField("message_group"):
            properties[SHARDING_KEY] = system.message_group
        if system.trace_context:
            properties[TRACE_CONTEXT] = system.trace_context
        properties[RECONSUME_TIME] = str(system.delivery_attempt)
        properties[BORN_TIMESTAMP] = str(_millis(system.born_timestamp))
        properties[BORN_HOST] = system.born_host or born_host
        properties[PGROUP] = self._topic
        return properties

    def _checked_topic(self, properties: Mapping[str, str]) -> TopicConfig:
        config, settings = self._config, self._settings
        if config is None:
            raise topic_not_found(self._topic)
        if settings.checks_types and not is_of_a_group(self._topic):
            expected = message_type(config.attributes, settings.default_type)
            kind = type_of(properties)
            if expected not in (MIXED, kind):
                raise FrontRefusal(
                    AnswerCode.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
                    f"TopicMessageType validate failed, the expected type is {expected}, but "
                    f"actual type is {kind}: rmqha-admin topic update {self._topic} "
                    "--type MIXED takes all types",
                )
        if not (config.write_queue_nums and config.perm & PERM_WRITE):
            raise FrontRefusal(AnswerCode.FORBIDDEN, "no writable queue")
        return config

    @staticmethod
    def _queue(system: Any, config: TopicConfig) -> int:
        if not system.HasField("message_group"):
            return _ANY_QUEUE
        return queue_of_group(system.message_group, config.write_queue_nums)


def type_of(properties: Mapping[str, str]) -> str:
    """Return the type of a message by its properties: one of the types that a topic may have."""
    if properties.get(TRAN_MSG) == "true":
        return TRANSACTION
    if any(properties.get(name) for name in _DELAYS):
        return DELAY
    return FIFO if properties.get(SHARDING_KEY) else NORMAL


def topic_not_found(topic: str) -> FrontRefusal:
    """Return the refusal of a topic that no broker has."""
    return FrontRefusal(
        AnswerCode.TOPIC_NOT_FOUND,
        f"no broker has the topic {topic}, and clients of RocketMQ 5 do not create topics: "
        f"rmqha-admin topic create {topic}",
    )


def _sys_flag(system: Any) -> int:
    flag = COMPRESSED if system.body_encoding == BodyEncoding.GZIP else 0
    if system.message_type == MessageType.TRANSACTION:
        flag |= TRANSACTION_PREPARED
    return flag


def _millis(stamp: Any) -> int:
    """
    Return a `Timestamp` in ms since the epoch.

    :raises FrontRefusal: the time is before the epoch, or after the year 9999.
    """
    if not (0 <= stamp.seconds < _MOST_SECONDS and 0 <= stamp.nanos < 1_000_000_000):
        raise FrontRefusal(AnswerCode.BAD_REQUEST, "a timestamp is out of its range")
    return int(stamp.seconds) * 1000 + int(stamp.nanos) // 1_000_000


def _word_fault(text: str) -> str:
    if not text.strip():
        return "cannot be the char sequence of whitespace"
    return "cannot contain control character" if has_control(text) else ""


def _bad_property(text: str) -> FrontRefusal:
    return FrontRefusal(AnswerCode.ILLEGAL_MESSAGE_PROPERTY_KEY, text)
