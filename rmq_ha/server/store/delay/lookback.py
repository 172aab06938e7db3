"""What a start asks the log about delayed messages before it trusts the progress file.

Places in the log decide, and never stamps: these stand still while the clock is behind them, and
jump when it is set forward.

Spec: store.md, section 10.5.
"""

from collections.abc import Callable, Iterable

from twisted.logger import Logger

from rmq_ha.base.errors import CorruptRecord
from rmq_ha.base.model.topics import SCHEDULE_TOPIC
from rmq_ha.base.store_format.commitlog import Record, decode_record
from rmq_ha.base.store_format.consumequeue import FILLER_SIZE
from rmq_ha.server.store.delay.delivered_messages import ABSENT, CopiesSince, DeliveredCopies, Unit
from rmq_ha.server.store.delay.level import DelayLevel, check_deliverable
from rmq_ha.server.store.queues.table import ConsumeQueue, ConsumeQueueTable

__all__ = ["LookBack", "Unit"]

_RUN = 3
"""Messages side by side that were delivered: one alone may be a client's second try of another."""


class _Walk:
    """
    The way back from a level's recorded progress to messages that were delivered.

    :ivar below: how far below the recorded progress it looks now.
    :ivar step: by how much farther the next look is, if this one finds no copy.
    :ivar top: the first offset behind the run of delivered messages that is looked at.
    :ivar places: of the copies of that run.
    :ivar is_lacking: a message above was not delivered.
    """

    __slots__ = ("below", "is_lacking", "places", "step", "top")

    def __init__(self, recorded: int) -> None:
        self.below = self.step = 1
        self.top = recorded
        self.places: list[int] = []
        self.is_lacking = False


class LookBack:
    """
    Says of the messages that may have been delivered before this start whether they were.

    A level's messages are delivered in the order of its queue, so what the log has copies of is all
    below some queue offset, whatever the progress file says. Where it is ahead of the log, as a
    slave's copy of it may be, the way back doubles its steps until it meets delivered messages;
    from there on, or else from the recorded progress on, each message is asked for.

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
        self._walks: dict[int, _Walk] = {}
        self._since: dict[int, CopiesSince] = {}
        self._copies: DeliveredCopies | None = None
        self._ended_ms = 0

    def begin(self, levels: Iterable[DelayLevel], ended_ms: int) -> None:
        """
        Have the log asked about all that is in the queues now.

        :param ended_ms: the store time of the newest record of the log; 0 for none.
        """
        self._levels, self._ended_ms = list(levels), ended_ms
        if ended_ms <= 0:
            return
        self._copies = DeliveredCopies(self._queues, self._record_at)
        for level in self._levels:
            queue = self._queue(level)
            if queue is not None and queue.max_offset:
                level.unsure_until = queue.max_offset
                self._walks[level.number] = _Walk(level.recorded)

    def end(self) -> None:
        self._levels = []
        self._walks.clear()
        self._since.clear()
        self._copies = None

    # Where a level begins

    def is_settled(self, level: DelayLevel) -> bool:
        """
        It is known where the level has to begin, earlier than recorded perhaps.

        :returns: False: ask again in the next turn; nothing may be delivered yet.
        :raises StoreError: the disk refuses.
        """
        walk, queue = self._walks.get(level.number), self._queue(level)
        if walk is None or queue is None or self._copies is None:
            return True
        offset = max(level.recorded - walk.below, queue.min_offset - 1)
        if offset >= queue.min_offset:
            seen = self._look(self._copies, level, queue, offset)
            if seen is None:
                return False
            if not self._is_over(walk, level, offset, seen):
                return False
        elif not walk.places:
            walk.top = queue.min_offset
        del self._walks[level.number]
        self._begin_at(level, queue, walk)
        return True

    def _is_over(self, walk: _Walk, level: DelayLevel, offset: int, place: int) -> bool:
        """Take note of a look; whether it was the last one."""
        if place > ABSENT:
            if not walk.places:
                walk.top = offset + 1
            walk.places.append(place)
            walk.below += 1
            return len(walk.places) == _RUN
        walk.places.clear()
        walk.is_lacking |= place == ABSENT
        walk.below += walk.step
        walk.step *= 2
        return False

    def _look(
        self, copies: DeliveredCopies, level: DelayLevel, queue: ConsumeQueue, offset: int
    ) -> int | None:
        """Where the copy of a message is; `ABSENT`, `_NOTHING_SAID`, or None: not known yet."""
        unit = queue.unit(offset)
        record = None if unit is None else self._record(unit)
        if unit is None or record is None:
            return _NOTHING_SAID
        due = min(self._planned_ms(level, unit), self._ended_ms)
        place = copies.glance(record, due)
        if place == ABSENT:
            copy_at = copies.find(record, CopiesSince(record.physical_offset + 1, due))
            if copy_at == ABSENT and copies.may_be_gone(record):
                return _NOTHING_SAID
            return copy_at
        return place

    def _record(self, unit: Unit) -> Record | None:
        """A delayed message; None for one that the log has not, or that nobody can deliver."""
        physical_offset, size, _ = unit
        data = None if size == FILLER_SIZE else self._record_at(physical_offset, size)
        if data is None:
            return None
        try:
            record = decode_record(data)
            check_deliverable(record)
            return record
        except CorruptRecord:
            return None

    def _begin_at(self, level: DelayLevel, queue: ConsumeQueue, walk: _Walk) -> None:
        level.offset = walk.top if walk.is_lacking else level.recorded
        place, due = min(walk.places, default=ABSENT) + 1, self._ended_ms
        first = queue.unit(level.offset)
        if first is not None and first[1] != FILLER_SIZE:
            place = max(place, first[0] + 1)
            due = min(due, self._planned_ms(level, first))
        self._since[level.number] = CopiesSince(place, due)
        self.reached(level, level.offset)

    def _queue(self, level: DelayLevel) -> ConsumeQueue | None:
        return self._queues.get(SCHEDULE_TOPIC, level.number - 1)

    # Message by message

    def is_delivered(self, level: DelayLevel, offset: int, record: Record) -> bool | None:
        """
        Delivered before this start; None: not known yet, ask again in the next turn.

        :param offset: queue offset of the message; the level is settled.
        :raises StoreError: the disk refuses.
        """
        if offset >= level.unsure_until or self._copies is None:
            return False
        is_there = self._copies.take(record, self._since[level.number])
        if is_there is False and offset < level.recorded:
            if self._copies.may_be_gone(record):
                return True  # as recorded
            level.again += 1
        elif is_there:
            level.found += 1
            level.stored_ahead.add(offset)  # each copy is found once; this may be asked again
        return is_there

    def reached(self, level: DelayLevel, offset: int) -> None:
        """
        Note that this level has delivered all messages before `offset`.

        From `unsure_until` on, no message can have been delivered before this start, so nothing is
        asked any more. The copies are dropped when no level asks.
        """
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


_NOTHING_SAID = ABSENT - 1
