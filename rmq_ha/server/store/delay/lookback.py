"""Finds out at a start from which queue offset each delay level has to deliver, and does not trust
the progress file alone.

A message was delivered if the log has its copy in the queue of its real topic. The physical offset
of a copy is always above that of the delayed message, so physical offsets prove that a record can
be the copy. Store timestamps prove nothing: they stand still while the clock is behind the newest
one, and jump when the clock is set forward. They only narrow the part of a queue that is searched.

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
"""How many neighbouring messages must be found delivered. A single one may be a client's second try
of another message."""


class _LevelSearch:
    """
    The search from a level's recorded progress backwards to messages that were delivered.

    :ivar below: distance of the next look from the recorded progress, in messages.
    :ivar step: how much `below` grows if the next look finds no copy.
    :ivar top: queue offset after the run of delivered messages that was met.
    :ivar places: physical offsets of the copies of that run.
    :ivar is_lacking: a message that was looked at before, with a higher queue offset, was not
        delivered.
    """

    __slots__ = ("below", "is_lacking", "places", "step", "top")

    def __init__(self, recorded: int) -> None:
        self.below = self.step = 1
        self.top = recorded
        self.places: list[int] = []
        self.is_lacking = False


class LookBack:
    """
    Decides which messages were delivered before this start.

    A level delivers in the order of its queue, so the delivered messages end at some queue offset,
    whatever the progress file says. The file may be ahead of the log, as a slave's copy of it may
    be. So the search goes backwards from the recorded progress, and doubles its steps until it
    meets delivered messages. From their end on, or from the recorded progress on if no message was
    lacking, each message's copy is looked for.

    :param record_at: returns the record at a physical offset with a size; None if the log lacks it.
    :param planned_ms: returns the delivery time of a unit of a level, ms.
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
        self._walks: dict[int, _LevelSearch] = {}
        self._since: dict[int, CopiesSince] = {}
        self._copies: DeliveredCopies | None = None
        self._ended_ms = 0

    def begin(self, levels: Iterable[DelayLevel], ended_ms: int) -> None:
        """
        Prepare to search for copies of all messages that are in the queues now.

        :param ended_ms: the store time of the newest record of the log; 0 if the log is empty.
        """
        self._levels, self._ended_ms = list(levels), ended_ms
        if ended_ms <= 0:
            return
        self._copies = DeliveredCopies(self._queues, self._record_at)
        for level in self._levels:
            queue = self._queue(level)
            if queue is not None and queue.max_offset:
                level.unsure_until = queue.max_offset
                self._walks[level.number] = _LevelSearch(level.recorded)

    def end(self) -> None:
        self._levels = []
        self._walks.clear()
        self._since.clear()
        self._copies = None

    # The queue offset where a level begins

    def find_beginning(self, level: DelayLevel) -> bool:
        """
        Search for the queue offset where the level begins, and set `level.offset` when it is found.

        It may be below the offset that the progress file records. Each call looks at one message.

        :returns: whether `level.offset` is set. If not, deliver nothing and call again in the next
            turn.
        :raises StoreError: the disk refuses.
        """
        walk, queue = self._walks.get(level.number), self._queue(level)
        if walk is None or queue is None or self._copies is None:
            return True
        offset = max(level.recorded - walk.below, queue.min_offset - 1)
        if offset >= queue.min_offset:
            place = self._look(self._copies, level, queue, offset)
            if place is None:
                return False
            if not self._note_copy(walk, level, offset, place):
                return False
        elif not walk.places:
            walk.top = queue.min_offset
        del self._walks[level.number]
        self._begin_at(level, queue, walk)
        return True

    def _note_copy(self, walk: _LevelSearch, level: DelayLevel, offset: int, place: int) -> bool:
        """Note the place of a message's copy, if it has one; return whether the search is over."""
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
        """
        Return the physical offset of the message's copy, `ABSENT`, `_NOTHING_SAID` if the log
        cannot tell, or None if it is not known yet.
        """
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
        """Return a delayed message; None if the log lacks it, or if nobody can deliver it."""
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

    def _begin_at(self, level: DelayLevel, queue: ConsumeQueue, walk: _LevelSearch) -> None:
        level.offset = walk.top if walk.is_lacking else level.recorded
        place, due = min(walk.places, default=ABSENT) + 1, self._ended_ms
        first = queue.unit(level.offset)
        if first is not None and first[1] != FILLER_SIZE:
            place = max(place, first[0] + 1)
            due = min(due, self._planned_ms(level, first))
        self._since[level.number] = CopiesSince(place, due)
        self.note_progress(level, level.offset)

    def _queue(self, level: DelayLevel) -> ConsumeQueue | None:
        return self._queues.get(SCHEDULE_TOPIC, level.number - 1)

    # Single messages

    def is_delivered(self, level: DelayLevel, offset: int, record: Record) -> bool | None:
        """
        Return whether a message was delivered before this start; None: not known yet, so ask again
        in the next turn.

        :param offset: queue offset of the message; call this only after `find_beginning` has
            returned True for the level.
        :raises StoreError: the disk refuses.
        """
        if offset >= level.unsure_until or self._copies is None:
            return False
        is_there = self._copies.take(record, self._since[level.number])
        if is_there is False and offset < level.recorded:
            if self._copies.may_be_gone(record):
                return True  # the progress file is trusted
            level.again += 1
        elif is_there:
            level.found += 1
            level.stored_ahead.add(offset)  # `take` finds each copy once, but may be called again
        return is_there

    def note_progress(self, level: DelayLevel, offset: int) -> None:
        """
        Note that a level has delivered all messages before a queue offset.

        Messages from `unsure_until` on came after this start, so none of them was delivered before
        it, and a level that has come so far needs `is_delivered` no more. The known copies take
        memory, so they are dropped when no level needs them.
        """
        is_finished = level.unsure_until == 0
        if is_finished or offset < level.unsure_until:
            return
        level.unsure_until = 0
        self._log_result(level)
        if not any(other.unsure_until for other in self._levels):
            self._copies = None

    def _log_result(self, level: DelayLevel) -> None:
        """Log how many messages the progress file counted wrongly, if any."""
        if level.found or level.again:
            self.log.info(
                "delay level {delay_level}: {found} messages after the recorded progress, or just "
                "before it, were delivered already; {again} before it were not and are now",
                delay_level=level.number,
                found=level.found,
                again=level.again,
            )


_NOTHING_SAID = ABSENT - 1
