"""Reads some messages of a store, spread over all its queues, to see whether its log holds them."""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from rmq_ha.base.errors import CorruptRecord
from rmq_ha.base.store_format.commitlog import MAX_RECORD_SIZE, Record, decode_record
from rmq_ha.base.store_format.consumequeue import FILLER_SIZE
from rmq_ha.ops.offline.log_files import Hole
from rmq_ha.ops.offline.queues import OfflineQueue

MOST = 100
"""How many messages of one store are read."""
_SEVERAL = "INNER_MULTI_DISPATCH"
"""Property of a message that was sent to several queues: the topics, with commas between them."""
BytesAt = Callable[[int, int], bytes]
"""A function of a physical offset and a length that returns these bytes of the log, or fewer."""


class LogSample(NamedTuple):
    """How many messages were read, and a sentence about those that differ from their queues."""

    messages_read: int = 0
    faults: tuple[str, ...] = ()


def sample_log(
    bytes_at: BytesAt, queues: Sequence[OfflineQueue], holes: Sequence[Hole] = (), most: int = MOST
) -> LogSample:
    """
    Read messages at equal distances, the first and the last of all queues among them.

    :param holes: parts of the log that no file has; they are faults by themselves.
    """
    count, bad, first = 0, 0, ""
    for queue, offset in _spread(queues, most):
        unit = queue.unit(offset)
        if unit is None or unit[1] == FILLER_SIZE:
            continue
        at, size, _ = unit
        if any(hole.start < at + size and at < hole.end for hole in holes):
            continue
        count += 1
        reason = _fault_of(bytes_at, unit, queue, offset)
        if reason:
            bad += 1
            first = (
                first or f"message {offset} of queue {queue.queue_id} of {queue.topic}: {reason}"
            )
    if not bad:
        return LogSample(count)
    return LogSample(count, (f"{bad} of {count} messages that were read are damaged; {first}",))


def _spread(queues: Sequence[OfflineQueue], most: int) -> Iterator[tuple[OfflineQueue, int]]:
    """Yield queue and offset of messages at equal distances, if all queues are laid end to end."""
    filled = [queue for queue in queues if queue.max_offset > queue.min_offset]
    ends = list(accumulate(queue.max_offset - queue.min_offset for queue in filled))
    total = ends[-1] if ends else 0
    count = min(most, total)
    number = 0
    for index in range(count):
        place = index * (total - 1) // max(1, count - 1)
        while place >= ends[number]:
            number += 1
        queue = filled[number]
        yield queue, queue.max_offset - (ends[number] - place)


def _fault_of(
    bytes_at: BytesAt, unit: tuple[int, int, int], queue: OfflineQueue, offset: int
) -> str:
    """Return what is wrong with a queue's entry or its record; empty: nothing."""
    at, size, _ = unit
    if size <= 0:
        return "the queue has no entry for it"
    try:
        record = decode_record(bytes_at(at, min(size, MAX_RECORD_SIZE)), check_crc=True)
    except CorruptRecord as error:
        return f"{error} (physical offset {at})"
    if record.physical_offset != at or record.size != size:
        return f"at {at} stands a record of {record.size} bytes, of offset {record.physical_offset}"
    home = record.topic, record.queue_id, record.queue_offset
    if home == (queue.topic, queue.queue_id, offset) or is_in_several(record, queue.topic):
        return ""
    return f"at {at} stands message {home[2]} of queue {home[1]} of {home[0]}"


def is_in_several(record: Record, topic: str) -> bool:
    """Return whether a message was sent to several queues, of which the topic has one."""
    return topic in record.properties.get(_SEVERAL, "").split(",")
