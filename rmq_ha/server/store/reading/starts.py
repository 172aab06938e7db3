"""Decides whether a record starts at a physical offset that a client names.

Spec: remoting.md, sections 4.7, 7.6, 7.8 and 7.10. RocketMQ takes any bytes there for a record. But
a message body may hold bytes that look like a record with the right physical offset.
"""

from typing import Protocol

from rmq_ha.base.model.flags import TRANSACTION_PREPARED
from rmq_ha.base.store_format.commitlog import decode_record
from rmq_ha.server.store.log.dispatch import Dispatcher
from rmq_ha.server.store.queues.queue import ConsumeQueue

_SLICES_AT_ONCE = 8


class QueueLookup(Protocol):
    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None: ...


class RecordSource(Protocol):
    """The parts of a store that are used here."""

    dispatcher: Dispatcher

    @property
    def queues(self) -> QueueLookup: ...

    def record_at(self, physical_offset: int, size: int | None = None) -> bytes | None:
        """Return the whole record at this offset; None if no record is there."""


def record_starting_at(store: RecordSource, physical_offset: int) -> bytes | None:
    """
    Return the record that starts at a physical offset, if its queue points there.

    :returns: None if no record starts there, its topic was deleted, or it is not dispatched yet.
    :raises StoreError: the disk refuses.
    """
    record = store.record_at(physical_offset) if physical_offset >= 0 else None
    if record is None:
        return None
    dispatcher = store.dispatcher
    for _ in range(_SLICES_AT_ONCE):  # a client may ask before the turn that dispatches the record
        if dispatcher.position > physical_offset or not dispatcher.run_slice():
            break
    message = decode_record(record)
    queue = store.queues.get(message.topic, message.queue_id)
    if queue is None:
        return None
    place = (physical_offset, len(record))
    if _is_at(queue, message.queue_offset, place):
        return record
    # Where a gap in a queue was closed, its queue offsets differ from those in the records.
    return record if _is_at(queue, queue.offset_by_place(physical_offset), place) else None


def unqueued_record_at(store: RecordSource, physical_offset: int) -> bytes | None:
    """
    Return the bytes of a prepared or rolled back record, which no queue has (spec: store.md,
    section 6.2).

    Nothing proves that the bytes are not a part of a body. So use them only for reading, and only
    for a client that may read everything.

    :returns: None if the bytes are not such a record.
    :raises StoreError: the disk refuses.
    """
    record = store.record_at(physical_offset) if physical_offset >= 0 else None
    if record is None or not decode_record(record).sys_flag & TRANSACTION_PREPARED:
        return None
    return record


def _is_at(queue: ConsumeQueue, queue_offset: int, place: tuple[int, int]) -> bool:
    unit = queue.unit(queue_offset)
    return unit is not None and unit[:2] == place
