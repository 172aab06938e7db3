"""Whether a record starts at a place that a client names.

Spec: remoting.md, sections 4.7, 7.6, 7.8 and 7.10. RocketMQ takes the bytes there for a record,
whatever they are; but a body may hold bytes that say of themselves that they are one, and that they
are in this place.
"""

from typing import Protocol

from rmq_ha.base.model.flags import TRANSACTION_PREPARED
from rmq_ha.base.store_format.commitlog import decode_record
from rmq_ha.server.store.log.dispatch import Dispatcher
from rmq_ha.server.store.queues.queue import ConsumeQueue

_SLICES_AT_ONCE = 8


class Queues(Protocol):
    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None: ...


class Records(Protocol):
    """What of a store is asked."""

    dispatcher: Dispatcher

    @property
    def queues(self) -> Queues: ...

    def record_at(self, physical_offset: int, size: int | None = None) -> bytes | None:
        """The record at this offset, whole; None where there is none."""


def record_starting_at(store: Records, physical_offset: int) -> bytes | None:
    """
    The record that starts at a physical offset, as the queue that it is in says.

    :returns: None when none does: also for one of a deleted topic, or not dispatched yet.
    :raises StoreError: the disk refuses.
    """
    record = store.record_at(physical_offset) if physical_offset >= 0 else None
    if record is None:
        return None
    dispatcher = store.dispatcher
    for _ in range(_SLICES_AT_ONCE):  # an answer may be quicker than the store's next turn
        if dispatcher.position > physical_offset or not dispatcher.run_slice():
            break
    message = decode_record(record)
    queue = store.queues.get(message.topic, message.queue_id)
    if queue is None:
        return None
    place = (physical_offset, len(record))
    if _is_at(queue, message.queue_offset, place):
        return record
    # Where a gap in a queue was closed, its numbers are others than those in the records.
    return record if _is_at(queue, queue.offset_by_place(physical_offset), place) else None


def unqueued_record_at(store: Records, physical_offset: int) -> bytes | None:
    """
    The bytes of a prepared or rolled back record, which by its kind is in no queue (spec: store.md,
    section 6.2). Nothing shows that it is more than a part of a body, so it is for reading only,
    and only by who may read everything.

    :returns: None when they are no such record.
    :raises StoreError: the disk refuses.
    """
    record = store.record_at(physical_offset) if physical_offset >= 0 else None
    if record is None or not decode_record(record).sys_flag & TRANSACTION_PREPARED:
        return None
    return record


def _is_at(queue: ConsumeQueue, queue_offset: int, place: tuple[int, int]) -> bool:
    unit = queue.unit(queue_offset)
    return unit is not None and unit[:2] == place
