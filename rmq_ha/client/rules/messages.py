"""Messages and results, as applications see them.

Spec: remoting.md, chapter 5 and section 4.2.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
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
from rmq_ha.client.rules.delay_levels import check_delay, delay_level
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

    `properties` holds what the caller and the client put into it, also under RocketMQ's own names
    (`TAGS`, `KEYS`, `DELAY`, ...).

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
        flag: int = 0,
        wait_store_msg_ok: bool = True,
    ) -> None:
        """
        :param keys: what it can be queried by: one text with blanks between them, or several.
        :param properties: the application's own; other arguments win over RocketMQ's names in it.
        :param delay_time_level: 1 to 18 (1s 5s 10s 30s 1m ... 2h by default); 0: at once.
        :param delay: the same by its time: `timedelta(hours=2)`.
        :param wait_store_msg_ok: the broker answers when flush and replica are done too.
        :raises IllegalMessage: no level has that delay, or DELAY is none; topic, tags, keys or
            properties are no texts; the flag is no number of 32 bits.
        """
        if not (isinstance(topic, str) and isinstance(tags, str)):
            raise IllegalMessage(f"topic and tags are texts, not {topic!r} and {tags!r}")
        if flag != 0 and (type(flag) is not int or not _LEAST_FLAG <= flag <= _MOST_FLAG):
            raise IllegalMessage(f"flag={flag!r}: it is a whole number of 32 bits")
        self.topic = topic
        self.body: bytes = body if type(body) is bytes else body_of(body)
        self.flag = flag
        own: dict[str, str] = {}
        self.properties = own
        if tags:
            own[TAGS] = tags
        if keys:
            own[KEYS] = keys if isinstance(keys, str) else _joined(keys)
        own[WAIT] = "true" if wait_store_msg_ok else "false"
        if delay_time_level or delay is not None:
            level = delay_level(delay_time_level, delay)
            if level:
                own[DELAY] = str(level)
        if properties:
            for name, value in properties.items():
                if not (isinstance(name, str) and isinstance(value, str)):
                    raise IllegalMessage(
                        f"names and values of properties are texts: {name!r} has {value!r}"
                    )
                own.setdefault(name, value)
            check_delay(own.get(DELAY, "0"))

    def __repr__(self) -> str:
        return f"Message({self.topic!r}, {len(self.body)} bytes, {self.properties!r})"

    @property
    def tags(self) -> str:
        """Empty when it has none."""
        return self.properties.get(TAGS, "")

    @property
    def keys(self) -> str:
        """Blanks between them; empty when it has none."""
        return self.properties.get(KEYS, "")

    @property
    def delay_time_level(self) -> int:
        """0: none."""
        text = self.properties.get(DELAY, "")
        return int(text) if text.isdecimal() else 0

    @property
    def wait_store_msg_ok(self) -> bool:
        """The broker waits for flush and replica."""
        return waits(self.properties.get(WAIT))

    @property
    def unique_id(self) -> str:
        """The message id that the client gave it; empty before it is sent."""
        return self.properties.get(UNIQ_KEY, "")


def body_of(value: bytes | bytearray | memoryview) -> bytes:
    """The bytes in a buffer. Any other value comes back as it is, for `check_message` to refuse."""
    return bytes(value) if isinstance(value, bytearray | memoryview) else value


def _joined(keys: Iterable[str]) -> str:
    try:
        return KEY_SEPARATOR.join(keys)
    except TypeError:
        raise IllegalMessage(f"keys are one text or several, not {keys!r}") from None


class Answerer(Protocol):
    """A consumer whose loop hands messages over, and is told what became of them."""

    def ack(self, message: Any, /) -> None:
        """It is consumed."""

    def reconsume_later(self, message: Any, delay_level: int = 0, /) -> None:
        """It is to come again."""

    def processing(self, message: Any, /) -> Any:
        """A block that answers by how it ends."""


class _Answerable:
    """
    What a message can be answered by, when a loop took it.

    It is no field of the message: a copy, a pickle or a comparison of messages leaves it out.
    """

    __slots__ = ("_answerer",)
    _answerer: Answerer

    def __getstate__(self) -> Any:
        state: Any = super().__getstate__()
        state[1].pop("_answerer", None)
        return state

    def taken_by(self, answerer: Answerer) -> None:
        """A loop of this consumer has it."""
        self._answerer = answerer

    def ack(self) -> None:
        """
        The message is consumed, as with `consumer.ack(message)`; twice is harmless.

        Nothing is to be awaited: the broker is told with the next offsets.

        :raises MQClientError: no loop took it.
        """
        self._must_be_taken().ack(self)

    def nack(self, delay_level: int = 0) -> None:
        """
        The message is to come again, as with `consumer.reconsume_later(message)`.

        :param delay_level: when; 0: the broker decides, longer each time; -1: not again, to the
            dead letters. Without meaning for ordered messages, whose queue rests a moment.
        :raises MQClientError: no loop took it, or it was answered already.
        """
        self._must_be_taken().reconsume_later(self, delay_level)

    def processing(self) -> Any:
        """
        `async with message.processing():` answers by how the block ends; in a thread `with`.

        See `processing` of the consumer.

        :raises MQClientError: no loop took it.
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
    A message that was stored, as a consumer gets it.

    :ivar msg_id: the id that its producer gave it, else `offset_msg_id`.
    :ivar offset_msg_id: where it is stored.
    :ivar born_timestamp: the producer's clock, ms since the epoch.
    :ivar store_timestamp: the broker's clock, ms since the epoch.
    :ivar store_size: bytes of the record.
    :ivar body: decompressed.
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
        """Empty when it has none."""
        return self.properties.get(TAGS, "")

    @property
    def keys(self) -> str:
        """Blanks between them; empty when it has none."""
        return self.properties.get(KEYS, "")

    @property
    def delay_time_level(self) -> int:
        """0: none."""
        text = self.properties.get(DELAY, "")
        return int(text) if text.isdecimal() else 0

    @property
    def queue(self) -> MessageQueue:
        """Where it came from."""
        return MessageQueue(self.topic, self.broker_name, self.queue_id)


class SendStatus(Enum):
    """How a message that was sent is stored; all but the first mean: stored, but less safely."""

    SEND_OK = 0
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12


class SendResult(NamedTuple):
    """
    What became of a send.

    :ivar msg_id: the unique id; of a batch all of them, with commas.
    :ivar message_queue: where it was put; the topic without its namespace.
    :ivar queue_offset: there; of delayed messages in the queue of their delay.
    :ivar offset_msg_id: the address of the record.
    :ivar region_id: of the broker.
    :ivar trace_on: the broker wants traces.
    :ivar duplicate: it was stored before, by an attempt whose answer was lost, and not again: what
        is said is said of the first (`ProducerConfig.idempotent`).
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


class PullStatus(Enum):
    """What a pull found."""

    FOUND = "FOUND"
    NO_NEW_MSG = "NO_NEW_MSG"
    NO_MATCHED_MSG = "NO_MATCHED_MSG"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"


class PullResult(NamedTuple):
    """
    What a pull brought.

    :ivar next_begin_offset: where the next one goes on.
    :ivar suggest_which_broker_id: whom to ask next.
    """

    pull_status: PullStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    msg_found_list: list[MessageExt]
    suggest_which_broker_id: int = 0


def decode_messages(data: bytes, broker_name: str = "") -> list[MessageExt]:
    """
    The body of an answer, or of a push with one message.

    Once `INFLATED_AT_ONCE` is reached, bodies stay as they are, and so do their bits in `sys_flag`.

    :raises CorruptRecord: something else than records is in it.
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
    The body of a pull response, as far as it fits into memory.

    64 KiB of an answer may become 64 MiB, and it may hold many of those. What is left out is pulled
    again, so that nothing is lost.

    :param most: bytes of decompressed bodies behind which nothing more is taken; one message is
        always taken.
    :returns: messages, and the queue offset of the first that was left out, None for none.
    :raises CorruptRecord: something else than records is in it.
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
    One record as a message; its body decompressed.

    A body that does not decompress stays as it is, and so does its bit in `sys_flag`: one bad
    message must not stop its queue.

    :param inflates: whether to try.
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
