"""Bodies with offsets: of resets, of consumers' progress, and of single queues.

Spec: remoting.md, sections 7.5 and 7.6, appendix B (B12, B14, B18).
"""

from base64 import b64encode
from collections.abc import Mapping
from datetime import datetime

import msgspec
from msgspec import field

from rmq_ha.base.model.extension_unit import ExtensionUnit
from rmq_ha.base.model.subscription import SubscriptionData
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.bodies import AnswerBody, MessageQueue


class ResetOffsetBody(AnswerBody):
    """
    Offsets by queue (B12). The Go client splits its text, so it keeps the form that Java writes.
    """

    offsets: Mapping[MessageQueue, int] = field(name="offsetTable")


class QueueOffset(msgspec.Struct, rename="camel"):
    """One queue of a `ResetOffsetBodyForC`."""

    topic: str
    broker_name: str
    queue_id: int
    offset: int


class ResetOffsetBodyForC(AnswerBody):
    """Offsets as a list, for clients that cannot read a map whose keys are objects."""

    offsets: list[QueueOffset] = field(name="offsetTable")

    @classmethod
    def from_table(cls, table: Mapping[MessageQueue, int]) -> "ResetOffsetBodyForC":
        """Make the body from a map of queues to offsets: one list item for each queue."""
        return cls(
            [
                QueueOffset(queue.topic, queue.broker_name, queue.queue_id, offset)
                for queue, offset in table.items()
            ]
        )


class ConsumerStatusBody(AnswerBody):
    """
    GetConsumerStatusBody (code 223).

    :ivar by_client: by client id, the offsets of the queues that the client holds.
    """

    by_client: Mapping[str, Mapping[MessageQueue, int]] = field(name="consumerTable")
    offsets: Mapping[MessageQueue, int] = field(name="messageQueueTable", default_factory=dict)


class QueueTimeSpan(msgspec.Struct, rename="camel"):
    """
    Store times of one queue, in ms and as texts in local time; -1 stands for an unknown time.

    :ivar delay_time: how long the next message of the group has waited, ms.
    """

    message_queue: MessageQueue
    min_time_stamp: int
    max_time_stamp: int
    consume_time_stamp: int
    delay_time: int
    min_time_stamp_str: str = ""
    max_time_stamp_str: str = ""
    consume_time_stamp_str: str = ""

    def __post_init__(self) -> None:
        self.min_time_stamp_str = _local_time(self.min_time_stamp)
        self.max_time_stamp_str = _local_time(self.max_time_stamp)
        self.consume_time_stamp_str = _local_time(self.consume_time_stamp)


class ConsumeTimeSpans(AnswerBody):
    """QueryConsumeTimeSpanBody (B14)."""

    spans: list[QueueTimeSpan] = field(name="consumeTimeSpanSet")


class CorrectionOffsets(AnswerBody):
    """QueryCorrectionOffsetBody (code 308): offsets by queue id."""

    correction_offsets: dict[int, int]


class QueueEntry(msgspec.Struct, rename="camel"):
    """
    One unit of a consume queue.

    :ivar tags_code: hash code of the tag, or the address of the unit's extension.
    :ivar is_wanted: whether the group in the request wants the message; known only with an
        extension.
    :ivar fault: text that the unit's extension is missing; None: it is not.
    :ivar extension: the members of the extension, as JSON.
    :ivar bit_map: the bit map of the extension, as digits.
    """

    physical_offset: int = field(name="physicOffset")
    size: int = field(name="physicSize")
    tags_code: int
    is_wanted: bool = field(name="eval", default=False)
    fault: str | None = field(name="msg", default=None)
    extension: str | None = field(name="extendDataJson", default=None)
    bit_map: str | None = None

    def add_extension(self, unit: ExtensionUnit, *, is_wanted: bool) -> "QueueEntry":
        """Add the unit of the extension file, and the filter's decision; return this entry."""
        self.is_wanted, self.extension = is_wanted, _extension_text(unit)
        self.bit_map = None if unit.bit_map is None else _bits(unit.bit_map)
        return self


class ConsumeQueueBody(AnswerBody):
    """
    QueryConsumeQueueResponseBody (B18).

    :ivar min_queue_index: the first offset of the queue.
    :ivar max_queue_index: the end of the queue.
    :ivar filter_data: text about the group's filter.
    """

    min_queue_index: int
    max_queue_index: int
    queue_data: list[QueueEntry]
    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None


def _extension_text(unit: ExtensionUnit) -> str:
    bit_map = unit.bit_map
    members = {
        "filterBitMap": None if bit_map is None else b64encode(bit_map).decode(),
        "msgStoreTime": unit.store_timestamp,
        "size": unit.size,
        "tagsCode": unit.tags_code,
    }
    return fastjson.encode(members).decode()


def _bits(bit_map: bytes) -> str:
    """Return the text of Java's BitsArray: the last bit first, a line for eight bytes."""
    text = [f"{byte:08b}" if at % 8 else f"{byte:08b}\n" for at, byte in enumerate(bit_map)]
    return "".join(reversed(text))


def _local_time(ms: int) -> str:
    """
    Return a time as text in local time; the number of ms if no calendar has it, as in a damaged
    record.
    """
    seconds, milliseconds = divmod(ms, 1000)
    try:
        return f"{datetime.fromtimestamp(seconds):%Y-%m-%d#%H:%M:%S}:{milliseconds:03d}"
    except (ValueError, OverflowError, OSError):
        return str(ms)
