"""What a start asks the log about delayed messages before it trusts the progress file.

Spec: store.md, section 10.5.
"""

from collections.abc import Callable, Iterable

from twisted.logger import Logger

from rmq_ha.model.topics import SCHEDULE_TOPIC
from rmq_ha.store.consumequeue import ConsumeQueue, ConsumeQueueTable
from rmq_ha.store.delayed import DelayLevel
from rmq_ha.store.delivered import DeliveredCopies
from rmq_ha.store.format.commitlog import Record
from rmq_ha.store.format.consumequeue import FILLER_SIZE

# What a slave's copy of the progress, and a delivery that fell behind, may be ahead of its log.
_AHEAD_MS = 15_000

Unit = tuple[int, int, int]


class LookBack:
    """
    Says of the messages that may have been delivered before this start whether they were.

    :param record_at: the record at a physical offset with a size; None if the log has it not.
    :param planned_ms: when the message of a unit of a level was to be delivered.
    """

    log = Logger()

    def __init__(
        self,
        queues: ConsumeQueueTable,
        record_at: Callable[[int, int], bytes | None],
        planned_ms: Callable[[DelayLevel, Unit], int],
    ) -> None:
        self._queues = queues
        self._record_at = record_at
        self._planned_ms = planned_ms
        self._levels: list[DelayLevel] = []
        self._copies: DeliveredCopies | None = None
        self._ended_ms = 0

    def begin(self, levels: Iterable[DelayLevel], ended_ms: int) -> None:
        """
        Where the recorded progress may be wrong, have the log asked; levels may start earlier.

        :param ended_ms: the store time of the newest record of the log; 0 for none.
        :raises StoreError: the disk refuses.
        """
        self._levels, self._ended_ms = list(levels), ended_ms
        if ended_ms <= 0:
            return
        since: list[int] = []
        for level in self._levels:
            queue = self._queues.get(SCHEDULE_TOPIC, level.number - 1)
            if queue is None:
                continue
            level.offset = self._first_due_from(level, queue, ended_ms - _AHEAD_MS)
            first = queue.units(level.offset, 1)
            if first:
                level.unsure_until = queue.max_offset
                due = self._planned_ms(level, first[0])
                if due <= ended_ms:
                    since.append(due)
        if since:
            self._copies = DeliveredCopies(self._queues, self._record_at, min(since))

    def end(self) -> None:
        """Nothing is delivered any more."""
        self._levels = []
        self._copies = None

    def is_delivered(
        self, level: DelayLevel, offset: int, unit: Unit, record: Record
    ) -> bool | None:
        """
        Delivered before this start; None: not known yet, ask again in the next turn.

        :param offset: queue offset of the unit.
        :raises StoreError: the disk refuses.
        """
        if offset >= level.unsure_until:
            return False
        found: bool | None = False
        if self._copies is not None and self._planned_ms(level, unit) <= self._ended_ms:
            found = self._copies.take(record)
        if found:
            level.found += 1
            level.stored_ahead.add(offset)  # each copy is found once; this may be asked again
        elif found is False and offset < level.recorded:
            level.again += 1
        return found

    def reached(self, level: DelayLevel, offset: int) -> None:
        """Everything below is delivered: from some offset on there is nothing to ask any more."""
        if not level.unsure_until or offset < level.unsure_until:
            return
        level.unsure_until = 0
        if level.found or level.again:
            self.log.info(
                "delay level {delay_level}: {found} messages after the recorded progress, or just "
                "before it, were delivered already; {again} before it were not and are now",
                delay_level=level.number,
                found=level.found,
                again=level.again,
            )
        if not any(other.unsure_until for other in self._levels):
            self._copies = None

    def _first_due_from(self, level: DelayLevel, queue: ConsumeQueue, ms: int) -> int:
        """The first queue offset below the recorded one whose message was due at `ms` or later."""
        low, high = queue.min_offset, level.offset
        while low < high:
            middle = (low + high) // 2
            units = queue.units(middle, 1)
            if units and units[0][1] != FILLER_SIZE and self._planned_ms(level, units[0]) >= ms:
                high = middle
            else:
                low = middle + 1
        return low
