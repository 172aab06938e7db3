"""Messages and results, as applications see them.

Spec: remoting.md, chapter 5 and section 4.2.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, NamedTuple, Protocol

from rmq_ha.base.model.flags import COMPRESSED
from rmq_ha.base.model.message import Address, offset_msg_id
from rmq_ha.base.model.properties import (
    DELAY,
    KEYS,
    TAGS,
    TRAN_MSG,
    UNIQ_KEY,
    WAIT,
    decode_properties,
    waits,
)
from rmq_ha.base.store_format.commitlog import Record, decode_records
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.rules.compression import UndecodableBody, inflate
from rmq_ha.client.rules.delay_levels import check_delay, timing
from rmq_ha.client.rules.errors import IllegalMessage, MQClientError

__all__ = [
    "Message",
    "MessageExt",
    "MessageQueue",
    "PullResult",
    "PullStatus",
    "SendResult",
    "SendStatus",
    "UndecodableBody",
    "decode_messages",
    "decode_pulled",
    "message_of",
]

KEY_SEPARATOR = " "
_LEAST_FLAG, _MOST_FLAG = -(1 << 31), (1 << 31) - 1
INFLATED_AT_ONCE = 16 << 20
"""Bytes of decompressed bodies after which no further message of an answer is decompressed."""


class Message:
    """
    A message to be sent.

    `properties` holds the caller's properties and those of RocketMQ's own names, like `TAGS`,
    `KEYS` and `DELAY`.

    :ivar body: bytes. A bytearray or a memoryview is copied into bytes.
    :ivar flag: the application's own 32-bit number.
    """

    __slots__ = ("body", "flag", "properties", "topic")

    def __init__(
        self,
        topic: str,
        body: bytes | bytearray | memoryview,
        tags: str = "",
        keys: str | Iterable[str] = "",
        *,
        properties: Mapping[str, str] | None = None,
        delay_time_level: int = 0,
        delay: timedelta | None = None,
        deliver_at: datetime | None = None,
        flag: int = 0,
        wait_store_msg_ok: bool = True,
    ) -> None:
        """
        :param keys: the keys by which the message can be queried: several texts, or one text with
            blanks between the keys.
        :param properties: the application's own properties; where they use RocketMQ's names, the
            other arguments win.
        :param delay_time_level: 1 to 18 (1s 5s 10s 30s 1m ... 2h by default); 0 for no delay.
        :param delay: the delay as a time, like `timedelta(hours=2)`, instead of a level. One that
            no level has needs a broker with timers (`timerWheelEnable`).
        :param deliver_at: when consumers get it, by the broker's clock, instead of a delay; with a
            time zone. It needs a broker with timers. A time in the past is at once.
        :param wait_store_msg_ok: whether the broker answers only after flush and replication, where
            these are configured.
        :raises IllegalMessage: the delay is below 0, the time has no time zone, or several of
            delay, level and time are given; the property DELAY is no level; topic, tags, keys or
            properties are no texts; or the flag is no number of 32 bits.
        """
        if not (isinstance(topic, str) and isinstance(tags, str)):
            raise IllegalMessage(f"topic and tags are texts, not {topic!r} and {tags!r}")
        if flag != 0 and (type(flag) is not int or not _LEAST_FLAG <= flag <= _MOST_FLAG):
            raise IllegalMessage(f"flag={flag!r}: it is a whole number of 32 bits")
        self.topic = topic
        # Exactly `bytes`: a bytearray could change while the send waits for its answer.
        self.body: bytes = body if type(body) is bytes else body_of(body)
        self.flag = flag
        own: dict[str, str] = {}
        self.properties = own
        if tags:
            own[TAGS] = tags
        if keys:
            own[KEYS] = keys if isinstance(keys, str) else _join_keys(keys)
        own[WAIT] = "true" if wait_store_msg_ok else "false"
        if delay_time_level or delay is not None or deliver_at is not None:
            asked = timing(delay_time_level, delay, deliver_at)
            if asked is not None:
                own[asked[0]] = asked[1]
        if properties:
            for name, value in properties.items():
                if not (isinstance(name, str) and isinstance(value, str)):
                    raise IllegalMessage(
                        f"names and values of properties are texts: {name!r} has {value!r}"
                    )
                # The arguments were set above, and they win.
                own.setdefault(name, value)
            check_delay(own.get(DELAY, "0"))

    def __repr__(self) -> str:
        return f"Message({self.topic!r}, {len(self.body)} bytes, {self.properties!r})"

    @property
    def tags(self) -> str:
        """The message's tag; empty if it has none."""
        return self.properties.get(TAGS, "")

    @property
    def keys(self) -> str:
        """The message's keys, separated by blanks; empty if it has none."""
        return self.properties.get(KEYS, "")

    @property
    def delay_time_level(self) -> int:
        """The message's delay level; 0 if it has none."""
        text = self.properties.get(DELAY, "")
        return int(text) if text.isdecimal() else 0

    @property
    def wait_store_msg_ok(self) -> bool:
        """Whether the broker answers only after flush and replication."""
        return waits(self.properties.get(WAIT))

    @property
    def unique_id(self) -> str:
        """The message id that the client gave it; empty before it is sent."""
        return self.properties.get(UNIQ_KEY, "")


def body_of(value: bytes | bytearray | memoryview) -> bytes:
    """Return a buffer as bytes. Return any other value unchanged, for `check_message` to refuse."""
    return bytes(value) if isinstance(value, bytearray | memoryview) else value


def _join_keys(keys: Iterable[str]) -> str:
    try:
        return KEY_SEPARATOR.join(keys)
    except TypeError:
        kind = type(keys).__name__
        raise IllegalMessage(f"keys are one text or several texts, and this is {kind}") from None


class Answerer(Protocol):
    """A consumer that hands messages to loops and takes their answers."""

    def ack(self, message: Any, /) -> None:
        """Note that a message is consumed."""

    def reconsume_later(self, message: Any, delay_level: int = 0, /) -> None:
        """Note that a message is to come again."""

    def processing(self, message: Any, /) -> Any:
        """Return a context manager that answers a message by how its block ends."""


class _Answerable:
    """
    The methods by which a loop answers a message that it took.

    The consumer to answer is no field of the message: a copy, a pickle or a comparison of messages
    leaves it out.
    """

    __slots__ = ("_answerer",)
    _answerer: Answerer

    def __getstate__(self) -> Any:
        state: Any = super().__getstate__()
        state[1].pop("_answerer", None)
        return state

    def set_answerer(self, answerer: Answerer) -> None:
        """Note the consumer whose loop has taken this message; it gets the answers."""
        self._answerer = answerer

    def ack(self) -> None:
        """
        Answer that the message is consumed, as `consumer.ack(message)` does. A second call changes
        nothing.

        The call need not be awaited: the broker learns of it with the next offsets.

        :raises MQClientError: no loop took the message.
        """
        self._must_be_taken().ack(self)

    def nack(self, delay_level: int = 0) -> None:
        """
        Answer that the message is to come again, as `consumer.reconsume_later(message)` does.

        :param delay_level: the delay level after which it comes again. 0 lets the broker decide,
            longer each time; -1 sends it to the dead-letter queue. Ignored for ordered messages,
            whose queue rests a moment.
        :raises MQClientError: no loop took the message, or it was answered already.
        """
        self._must_be_taken().reconsume_later(self, delay_level)

    def processing(self) -> Any:
        """
        Return a context manager that answers the message by how its block ends, as the consumer's
        `processing` does. Use it with `async with`, or with `with` in a thread.

        :raises MQClientError: no loop took the message.
        """
        return self._must_be_taken().processing(self)

    def _must_be_taken(self) -> Answerer:
        answerer: Answerer | None = getattr(self, "_answerer", None)
        if answerer is None:
            raise MQClientError(
                "only a message that a loop took can be answered: a listener answers by what it"
                " returns or raises, and a pull consumer by the offset that it commits"
            )
        return answerer


@dataclass(slots=True)
class MessageExt(_Answerable):
    """
    A stored message, as a consumer gets it.

    :ivar msg_id: the id that its producer gave it, else `offset_msg_id`.
    :ivar offset_msg_id: an id that encodes the broker's address and the record's offset there.
    :ivar born_timestamp: when it was sent, by the producer's clock, in ms since the epoch.
    :ivar store_timestamp: when it was stored, by the broker's clock, in ms since the epoch.
    :ivar store_size: size of the stored record, in bytes.
    :ivar body: the body, decompressed.
    """

    topic: str
    body: bytes
    properties: dict[str, str]
    broker_name: str
    queue_id: int
    queue_offset: int
    msg_id: str
    offset_msg_id: str
    commit_log_offset: int
    born_timestamp: int
    born_host: Address
    store_timestamp: int
    store_host: Address
    store_size: int
    sys_flag: int = 0
    flag: int = 0
    body_crc: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    transaction_id: str | None = field(default=None)

    @property
    def tags(self) -> str:
        """The message's tag; empty if it has none."""
        return self.properties.get(TAGS, "")

    @property
    def keys(self) -> str:
        """The message's keys, separated by blanks; empty if it has none."""
        return self.properties.get(KEYS, "")

    @property
    def delay_time_level(self) -> int:
        """The message's delay level; 0 if it has none."""
        text = self.properties.get(DELAY, "")
        return int(text) if text.isdecimal() else 0

    @property
    def queue(self) -> MessageQueue:
        """The queue that the message was read from."""
        return MessageQueue(self.topic, self.broker_name, self.queue_id)


class SendStatus(Enum):
    """
    How safely a sent message is stored. All values but SEND_OK mean that it is stored, but not yet
    flushed or replicated as configured.
    """

    SEND_OK = 0
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12


class SendResult(NamedTuple):
    """
    The result of a send that a broker has stored.

    :ivar msg_id: the message's unique id; for a batch the ids of all messages, with commas.
    :ivar message_queue: the queue of the message; its topic is without namespace.
    :ivar queue_offset: the offset in that queue; a delayed message has the offset in the queue of
        its delay level.
    :ivar offset_msg_id: an id that encodes the broker's address and the record's offset there.
    :ivar region_id: the region of the broker.
    :ivar trace_on: whether the broker wants traces.
    :ivar duplicate: whether an earlier attempt, whose answer was lost, had already stored the
        message, so that it was not stored again. The other fields then tell of the first storing
        (`ProducerConfig.idempotent`).
    :ivar recall_handle: the text by which `recall` takes a message with a timer back; None if it
        cannot be recalled.
    """

    send_status: SendStatus
    msg_id: str
    message_queue: MessageQueue
    queue_offset: int
    offset_msg_id: str
    transaction_id: str | None = None
    region_id: str = "DefaultRegion"
    trace_on: bool = True
    duplicate: bool = False
    recall_handle: str | None = None


class PullStatus(Enum):
    """Whether a pull found messages, and if not, why."""

    FOUND = "FOUND"
    NO_NEW_MSG = "NO_NEW_MSG"
    NO_MATCHED_MSG = "NO_MATCHED_MSG"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"


class PullResult(NamedTuple):
    """
    The result of a pull.

    :ivar next_begin_offset: the offset for the next pull.
    :ivar suggest_which_broker_id: id of the broker that the next pull should ask.
    """

    pull_status: PullStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    msg_found_list: list[MessageExt]
    suggest_which_broker_id: int = 0


def decode_messages(data: bytes, broker_name: str = "") -> list[MessageExt]:
    """
    Decode the messages in the body of an answer or of a broker's request.

    Once `INFLATED_AT_ONCE` is reached, further bodies stay compressed, and their bits in `sys_flag`
    stay set.

    :raises CorruptRecord: the data is not a sequence of records.
    """
    messages: list[MessageExt] = []
    inflated = 0
    for record in decode_records(data):
        message = message_of(record, broker_name, inflates=inflated < INFLATED_AT_ONCE)
        if record.sys_flag & COMPRESSED:
            inflated += len(message.body)
        messages.append(message)
    return messages


def decode_pulled(
    data: bytes, broker_name: str = "", most: int = INFLATED_AT_ONCE
) -> tuple[list[MessageExt], int | None]:
    """
    Decode the messages in the body of a pull response, as many as should be in memory at a time.

    64 KiB of a response may decompress to 64 MiB, and a response may hold many such bodies.
    Messages that are left out are pulled again, so none is lost.

    :param most: once decompressed bodies have this many bytes, no further message is decoded; one
        message always is.
    :returns: the messages, and the queue offset of the first message that was left out; None if all
        were decoded.
    :raises CorruptRecord: the data is not a sequence of records.
    """
    messages: list[MessageExt] = []
    inflated = 0
    for record in decode_records(data):
        if inflated >= most:
            return messages, record.queue_offset
        message = message_of(record, broker_name)
        if record.sys_flag & COMPRESSED:
            inflated += len(message.body)
        messages.append(message)
    return messages, None


def message_of(record: Record, broker_name: str = "", *, inflates: bool = True) -> MessageExt:
    """
    Return a record as a message with its body decompressed.

    A body that cannot be decompressed stays as it is, and its bit in `sys_flag` stays set: one bad
    message must not stop its queue.

    :param inflates: whether to decompress the body.
    """
    properties = decode_properties(record.properties_string)
    body, sys_flag = record.body, record.sys_flag
    if inflates and sys_flag & COMPRESSED:
        try:
            body = inflate(body, sys_flag)
            sys_flag &= ~COMPRESSED
        except UndecodableBody:
            pass
    place = offset_msg_id(record.store_host, record.physical_offset)
    unique = properties.get(UNIQ_KEY)
    return MessageExt(
        record.topic,
        body,
        properties,
        broker_name,
        record.queue_id,
        record.queue_offset,
        unique or place,
        place,
        record.physical_offset,
        record.born_timestamp,
        record.born_host,
        record.store_timestamp,
        record.store_host,
        record.size,
        sys_flag,
        record.flag,
        record.body_crc,
        record.reconsume_times,
        record.prepared_transaction_offset,
        unique if properties.get(TRAN_MSG) == "true" else None,
    )
