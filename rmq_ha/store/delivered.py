"""Which delayed messages the log says were delivered: what a new master asks before it delivers.

delayOffset.json is up to ten seconds older than a crash, and a slave's copy of it up to twenty; it
may also be ahead of a slave's log. The log itself cannot be wrong: a delivered message has its copy
in the queue of its real topic.

Spec: store.md, sections 10.3 to 10.5.
"""

from collections import Counter
from collections.abc import Callable

from rmq_ha.errors import CorruptRecord
from rmq_ha.model.properties import DELAY, REAL_TOPIC, UNIQ_KEY
from rmq_ha.store.consumequeue import ConsumeQueue, ConsumeQueueTable
from rmq_ha.store.copies import real_place
from rmq_ha.store.format.commitlog import Record, decode_record, store_timestamp_of
from rmq_ha.store.format.consumequeue import FILLER_SIZE

_RECORDS_A_CALL = 256
_MOST_COPIES = 2_000_000
"""Some 300 MB; only a store whose progress file was lost comes near."""


class _Target:
    """What is known of one queue of a real topic: copies by identity, and how far it was read."""

    __slots__ = ("copies", "end", "position")

    def __init__(self, position: int, end: int) -> None:
        self.position = position
        self.end = end
        self.copies: Counter[str] = Counter()


class DeliveredCopies:
    """
    Finds copies of delayed messages in the queues that they were meant for.

    Each such queue is read once, a piece a call.

    :param record_at: the record at a physical offset with a size; None if the log has it not.
    :param since_ms: no copy that matters was stored before.
    """

    def __init__(
        self,
        queues: ConsumeQueueTable,
        record_at: Callable[[int, int], bytes | None],
        since_ms: int,
    ) -> None:
        self._queues = queues
        self._record_at = record_at
        self._since_ms = since_ms
        self._targets: dict[tuple[str, int], _Target] = {}
        self._count = 0

    def take(self, delayed: Record) -> bool | None:
        """
        Whether a copy is there; each copy stands for one message only.

        :param delayed: a record of the schedule topic.
        :returns: None: not known yet, ask again in the next turn.
        :raises CorruptRecord: the record does not say where its message belongs.
        :raises StoreError: the disk refuses.
        """
        properties = delayed.properties
        queue = self._queues.get(*real_place(properties))
        if queue is None:
            return False
        target = self._target(queue)
        if target.position < target.end:
            self._read_on(queue, target)
            if target.position < target.end:
                return None
        key = _identity(delayed, properties)
        if not target.copies[key]:
            return False
        target.copies[key] -= 1
        return True

    def _target(self, queue: ConsumeQueue) -> _Target:
        key = (queue.topic, queue.queue_id)
        target = self._targets.get(key)
        if target is None:
            # One ms before: of several with the same time, any may be found.
            first = queue.offset_by_time(self._since_ms - 1, self._store_time, 0)
            first = max(first, queue.min_offset)
            self._targets[key] = target = _Target(first, queue.max_offset)
        return target

    def _store_time(self, physical_offset: int, size: int) -> int:
        record = self._record_at(physical_offset, size)
        return -1 if record is None else store_timestamp_of(record)

    def _read_on(self, queue: ConsumeQueue, target: _Target) -> None:
        wanted = min(_RECORDS_A_CALL, target.end - target.position)
        units = queue.units(target.position, wanted)
        if not units or self._count > _MOST_COPIES:
            target.position = target.end  # what is not known is delivered again
            return
        target.position += len(units)
        for physical_offset, size, _ in units:
            data = None if size == FILLER_SIZE else self._record_at(physical_offset, size)
            if data is not None and _DELAY_MARK in data:
                self._note(target, data)

    def _note(self, target: _Target, data: bytes) -> None:
        try:
            record = decode_record(data)
        except CorruptRecord:
            return
        properties = record.properties
        if properties.get(REAL_TOPIC) == record.topic:
            target.copies[_identity(record, properties)] += 1
            self._count += 1


_DELAY_MARK = f"{DELAY}\x01".encode()


def _identity(record: Record, properties: dict[str, str]) -> str:
    """What a delayed message and its copy have in common, and hardly any two others."""
    return "|".join(
        (
            properties.get(UNIQ_KEY, ""),
            properties.get(DELAY, ""),
            f"{record.born_timestamp}|{record.body_crc}|{record.reconsume_times}",
            str(len(record.body)),
        )
    )
