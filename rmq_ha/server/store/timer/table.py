"""Keeps the set of waiting timer messages, on every replica, as the records of the log change it.

A message of the timer topic (T) waits until its delivery (D), a recall (R) or a rolled copy of it
(T′) is dispatched, which *settles* it. These records name T by TIMER_SRC. Records of Java do not
name T; T is found by topic, unique key and time.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from twisted.logger import Logger

from rmq_ha.base.errors import CorruptRecord, StoreError
from rmq_ha.base.model.message import Row
from rmq_ha.base.model.properties import (
    REAL_TOPIC,
    TIMER_DEQUEUE_MS,
    TIMER_OUT_MS,
    UNIQ_KEY,
    decode_properties,
)
from rmq_ha.base.model.topics import TIMER_TOPIC
from rmq_ha.base.store_format.commitlog import Record, decode_record
from rmq_ha.base.store_format.consumequeue import FILLER_SIZE
from rmq_ha.base.store_format.timer_times import (
    LEAST_DUE,
    RECALL_BIT,
    ROLLED_BIT,
    due_in,
    ms_in,
    timer_code,
)
from rmq_ha.server.store.queues.table import ConsumeQueue, ConsumeQueueTable
from rmq_ha.server.store.timer.frontier import NO_FRONTIER, Frontier
from rmq_ha.server.store.timer.records import (
    DELIVERY_MARK,
    recalled_key,
    rolls_of,
    source_of,
)
from rmq_ha.server.store.timer.sources import TimerSource
from rmq_ha.server.store.timer.waiting import WaitingMessages

_SECOND_MS = 1000
_MOST_SECONDS = 16

Unit = tuple[int, int, int]


class TimerLog(NamedTuple):
    """
    Access to the timer messages in the log.

    :ivar queues: the queues of the log; the timer topic has queue 0 alone.
    :ivar record_at: returns the record at a physical offset with a size, or of any size if that is
        None; None if the log lacks it.
    :ivar file_start: returns the physical offset where the file of a record begins.
    """

    queues: ConsumeQueueTable
    record_at: Callable[[int, int | None], bytes | None]
    file_start: Callable[[int], int]

    @property
    def queue(self) -> ConsumeQueue | None:
        """The queue of the timer topic; None before its first message."""
        return self.queues.get(TIMER_TOPIC, 0)

    def record(self, unit: Unit) -> Record | None:
        """Return the record of a unit; None if the log lacks it, or if it is damaged."""
        return None if unit[1] == FILLER_SIZE else self.record_starting_at(unit[0], unit[1])

    def record_starting_at(self, place: int, size: int | None = None) -> Record | None:
        """Return the record of the timer topic at a physical offset; None if none is there."""
        data = self.record_at(place, size)
        if data is None:
            return None
        try:
            record = decode_record(data)
        except CorruptRecord:
            return None
        return record if record.topic == TIMER_TOPIC else None

    def due_of(self, unit: Unit) -> int | None:
        """
        Return the number that a unit of the timer topic has: its due time and flags, see
        `timer_code`.

        A unit of Java has another number; then the record is read. None if it is no timer message.
        """
        if unit[2] >= LEAST_DUE:
            return unit[2]
        record = self.record(unit)
        return None if record is None else timer_code(record.properties)

    def waiting_record(self, source: TimerSource) -> tuple[int, Unit] | None:
        """
        Return due time and unit of the waiting record that a source names.

        None if no record that waits, or waited, is at that place.
        """
        queue = self.queue
        unit = None if queue is None else queue.unit(source.queue_offset)
        if unit is None or unit[0] != source.physical_offset or unit[1] == FILLER_SIZE:
            return None
        code = self.due_of(unit)
        return None if code is None or code & RECALL_BIT else (due_in(code), unit)


class _NamedMessage(NamedTuple):
    """
    A waiting message, found by topic and unique key, as records of Java name it.

    :ivar due: its due time, ms since the epoch.
    :ivar out: its TIMER_OUT_MS.
    :ivar rolls: how often it was rolled.
    """

    due: int
    source: TimerSource
    out: int
    rolls: int


class _NamedSecond:
    """
    The messages whose TIMER_OUT_MS is in one second, by real topic and unique key.

    :ivar end: messages from this queue offset on were not looked at yet.
    """

    __slots__ = ("end", "names")

    def __init__(self) -> None:
        self.end = 0
        self.names: dict[tuple[str, str], list[_NamedMessage]] = {}


class TimerTable:
    """
    The waiting messages of a log, with the rules by which its records settle them.

    :param frontier: the frontier with which the table begins.
    :ivar waiting: the messages.
    :ivar next: queue offset of the first unit of the timer topic that was not taken.
    :ivar greatest: due time and queue offset of the last message, in the order of delivery, that a
        delivery settled.
    """

    log = Logger()

    def __init__(self, source: TimerLog, frontier: Frontier = NO_FRONTIER) -> None:
        self._log = source
        self.waiting = WaitingMessages(frontier)
        queue = source.queue
        self.next = 0 if queue is None else queue.min_offset
        self.greatest = (frontier.due_ms, frontier.queue_offset)
        self._seconds: dict[int, _NamedSecond] = {}

    # Units of the timer topic

    @property
    def is_level(self) -> bool:
        """Whether the table has all units of the timer topic."""
        queue = self._log.queue
        return queue is None or self.next >= queue.max_offset

    def take_units(self, count: int) -> list[tuple[int, int]]:
        """
        Take the next units of the timer topic.

        :returns: due time and queue offset of each waiting message among them.
        :raises StoreError: the disk refuses.
        """
        queue, added = self._log.queue, list[tuple[int, int]]()
        if queue is None:
            return added
        self.next = max(self.next, queue.min_offset)
        if self.next >= queue.max_offset:
            return added
        units = queue.units(self.next, count)
        if not units:
            self.next = queue.next_file_offset(self.next)
            return added
        frontier, add = self.waiting.frontier, self.waiting.add
        end, last_due = frontier.end, frontier.due_ms
        for unit in units:
            place, size, code = unit
            # Nearly all units are of messages that no frontier knows.
            if LEAST_DUE <= code < ROLLED_BIT and (place >= end or code > last_due):
                if size != FILLER_SIZE:
                    add(code, self.next)
                    added.append((code, self.next))
            else:
                try:
                    due = self._take_unit(self.next, unit)
                except (StoreError, OSError):
                    if not added:
                        raise
                    return added  # the next call fails at this unit
                if due is not None:
                    added.append((due, self.next))
            self.next += 1
        return added

    def _take_unit(self, number: int, unit: Unit) -> int | None:
        """Take a unit of any kind; return its due time if its message waits now, otherwise None."""
        place, size, code = unit
        if size == FILLER_SIZE:
            return None
        if code < LEAST_DUE:
            known = self._log.due_of(unit)
            if known is None:
                self._tell(unit, "it is no timer message")
                return None
            code = known
        due = due_in(code)
        if code & (RECALL_BIT | ROLLED_BIT):
            self._settle_by_record(number, unit, due)
        if code & RECALL_BIT or self.waiting.frontier.settles(due, TimerSource(place, number)):
            return None
        self.waiting.add(due, number)
        return due

    def _settle_by_record(self, number: int, unit: Unit, due: int) -> None:
        """Let the record of a recall or of a rolled copy settle the messages that it names."""
        frontier = self.waiting.frontier
        is_old = unit[0] < frontier.end and due + _SECOND_MS < frontier.due_ms
        if is_old and not frontier.unsettled:
            return  # the frontier speaks of all messages that it can be about
        record = self._log.record(unit)
        if record is None:
            self._tell(unit, "the log lacks it")
            return
        properties = record.properties
        code = timer_code(properties) or 0
        is_recall = bool(code & RECALL_BIT)
        source = source_of(properties)
        if source is not None:
            self._settle(source, is_recall=is_recall)
            return
        out = ms_in(properties, TIMER_OUT_MS)
        if out is None:
            return
        key = recalled_key(properties) if is_recall else properties.get(UNIQ_KEY, "")
        for named in self._messages_with_key(properties.get(REAL_TOPIC, ""), key, out):
            if named.source.queue_offset >= number:
                continue
            if is_recall or (named.out == out and named.rolls < rolls_of(properties)):
                self.waiting.settle(named.due, named.source, is_recall=is_recall)

    def _settle(self, source: TimerSource, *, is_recall: bool = False) -> int | None:
        """Settle the message of a source; return its due time, or None if it is unknown."""
        located = self._log.waiting_record(source)
        if located is None:
            return None
        self.waiting.settle(located[0], source, is_recall=is_recall)
        return located[0]

    def _tell(self, unit: Unit, why: str) -> None:
        self.log.warn(
            "the record at {physical_offset} of the timer topic is skipped: {why}",
            physical_offset=unit[0],
            why=why,
        )

    # Deliveries

    def take_deliveries(self, rows: Sequence[Row]) -> int:
        """
        Let the deliveries among records settle their messages.

        :returns: number of deliveries.
        :raises StoreError: the disk refuses.
        """
        count = 0
        for row in rows:
            if DELIVERY_MARK in row[11]:
                count += self._take_delivery(row[0], decode_properties(row[11]))
        return count

    def _take_delivery(self, topic: str, properties: dict[str, str]) -> bool:
        if topic != properties.get(REAL_TOPIC) or TIMER_DEQUEUE_MS not in properties:
            return False
        source = source_of(properties)
        if source is not None:
            due = self._settle(source)
            if due is None:
                return False
            self.greatest = max(self.greatest, (due, source.queue_offset))
            return True
        out = ms_in(properties, TIMER_OUT_MS)
        if out is None:
            return False
        for named in self._messages_with_key(topic, properties.get(UNIQ_KEY, ""), out):
            if named.out == out and self.waiting.settle(named.due, named.source):
                self.greatest = max(self.greatest, (named.due, named.source.queue_offset))
                return True
        return False

    # Records of Java

    def _messages_with_key(self, topic: str, key: str, out: int) -> list[_NamedMessage]:
        """Return the messages of a topic with a unique key, of the second of a TIMER_OUT_MS."""
        if not key:
            return []
        number = out // _SECOND_MS
        second = self._seconds.pop(number, None) or _NamedSecond()
        self._seconds[number] = second
        while len(self._seconds) > _MOST_SECONDS:
            del self._seconds[next(iter(self._seconds))]
        if second.end < self.waiting.end:
            first = number * _SECOND_MS + 1
            for due, offset in self.waiting.due_between(first, first + 2 * _SECOND_MS):
                if offset >= second.end:
                    self._name(second, number, due, offset)
            second.end = self.waiting.end
        return second.names.get((topic, key), [])

    def _name(self, second: _NamedSecond, number: int, due: int, offset: int) -> None:
        queue = self._log.queue
        unit = None if queue is None else queue.unit(offset)
        record = None if unit is None else self._log.record(unit)
        if record is None:
            return
        properties = record.properties
        out = ms_in(properties, TIMER_OUT_MS)
        if out is not None and out // _SECOND_MS == number:
            key = properties.get(REAL_TOPIC, ""), properties.get(UNIQ_KEY, "")
            source = TimerSource(record.physical_offset, offset)
            named = _NamedMessage(due, source, out, rolls_of(properties))
            second.names.setdefault(key, []).append(named)
