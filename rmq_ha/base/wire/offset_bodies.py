"""Bodies about offsets that are set, compared and looked at.

Spec: remoting.md, sections 7.5 and 7.6, appendix B (B12, B14, B18).
"""

from base64 import b64encode
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from rmq_ha.base.model.extension_unit import ExtensionUnit
from rmq_ha.base.model.subscription import SubscriptionData
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.bodies import MessageQueue


def reset_offset_body(table: Mapping[MessageQueue, int]) -> dict[str, Any]:
    """ResetOffsetBody (B12): the Go client splits its text, so it stays as Java writes it."""
    return {"offsetTable": _by_queue(table)}


def reset_offset_list(table: Mapping[MessageQueue, int]) -> dict[str, Any]:
    """ResetOffsetBodyForC (B12), for clients without maps whose keys are objects."""
    return {
        "offsetTable": [
            {
                "brokerName": queue.broker_name,
                "offset": offset,
                "queueId": queue.queue_id,
                "topic": queue.topic,
            }
            for queue, offset in table.items()
        ]
    }


def consumer_status_body(
    by_client: Mapping[str, Mapping[MessageQueue, int]],
) -> dict[str, Any]:
    """
    GetConsumerStatusBody (code 223).

    :param by_client: client id to the offsets that it holds.
    """
    return {
        "consumerTable": {client: _by_queue(table) for client, table in by_client.items()},
        "messageQueueTable": {},
    }


class QueueTimeSpan(NamedTuple):
    """The times of one queue, ms; -1 unknown. `delay_ms`: how long the next message has waited."""

    queue: MessageQueue
    min_ms: int
    max_ms: int
    consume_ms: int
    delay_ms: int

    def to_json(self) -> dict[str, Any]:
        """The members have Java's names, in alphabetical order."""
        return {
            "consumeTimeStamp": self.consume_ms,
            "consumeTimeStampStr": _local_time(self.consume_ms),
            "delayTime": self.delay_ms,
            "maxTimeStamp": self.max_ms,
            "maxTimeStampStr": _local_time(self.max_ms),
            "messageQueue": self.queue.to_json(),
            "minTimeStamp": self.min_ms,
            "minTimeStampStr": _local_time(self.min_ms),
        }


def consume_time_spans(spans: Iterable[QueueTimeSpan]) -> dict[str, Any]:
    """QueryConsumeTimeSpanBody (B14)."""
    return {"consumeTimeSpanSet": [span.to_json() for span in spans]}


def correction_offsets(table: Mapping[int, int]) -> dict[str, Any]:
    """QueryCorrectionOffsetBody (code 308): queue id to offset."""
    return {"correctionOffsets": dict(table)}


class QueueEntry(NamedTuple):
    """
    One unit of a consume queue.

    :ivar tags_code: or the address of its extension.
    :ivar extension: what is there.
    :ivar is_wanted: by the group that was asked about; told only of units with an extension.
    :ivar fault: what is wrong with it.
    """

    physical_offset: int
    size: int
    tags_code: int
    extension: ExtensionUnit | None = None
    is_wanted: bool = False
    fault: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The members have Java's names, in alphabetical order."""
        extension = self.extension
        bit_map = None if extension is None else extension.bit_map
        return {
            "bitMap": None if bit_map is None else _bits(bit_map),
            "eval": self.is_wanted,
            "extendDataJson": None if extension is None else _extension_text(extension),
            "msg": self.fault,
            "physicOffset": self.physical_offset,
            "physicSize": self.size,
            "tagsCode": self.tags_code,
        }


def consume_queue_body(
    bounds: tuple[int, int],
    entries: Iterable[QueueEntry],
    subscription: SubscriptionData | None,
    filter_data: str | None,
) -> dict[str, Any]:
    """
    QueryConsumeQueueResponseBody (B18).

    :param bounds: first offset of the queue, and its end.
    :param filter_data: text about the group's filter.
    """
    return {
        "filterData": filter_data,
        "maxQueueIndex": bounds[1],
        "minQueueIndex": bounds[0],
        "queueData": [entry.to_json() for entry in entries],
        "subscriptionData": None if subscription is None else subscription.to_json(),
    }


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
    """As Java's BitsArray shows itself: the last bit first, a line for eight bytes."""
    text = [f"{byte:08b}" if at % 8 else f"{byte:08b}\n" for at, byte in enumerate(bit_map)]
    return "".join(reversed(text))


def _by_queue(table: Mapping[MessageQueue, int]) -> dict[Any, int]:
    return {queue.to_key(): offset for queue, offset in table.items()}


def _local_time(ms: int) -> str:
    """Of a damaged record it may be none that a calendar has: it is said as it is."""
    seconds, milliseconds = divmod(ms, 1000)
    try:
        return f"{datetime.fromtimestamp(seconds):%Y-%m-%d#%H:%M:%S}:{milliseconds:03d}"
    except (ValueError, OverflowError, OSError):
        return str(ms)
