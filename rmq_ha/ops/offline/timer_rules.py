"""Rules for the timer messages of a log: each that is past its time has one delivery or recall.

`timer_records` says which timer message a record is about, and what it says of the message.
`TimerHistory` gathers that for one message, and `faults_in` finds the faults in it. `TimerAudit`
does all this for the records of one log.

A waiting message is named by its place, as TIMER_SRC has it. Records of Java do not name it. They
settle all messages of their topic, unique key and second, and are not judged themselves: at Java
a fail-over delivers messages twice, and `timerPrecisionMs` decides what is early.

Spec: timer.md, sections 4, 13.1 and 13.3.
"""

from array import array
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple

from rmq_ha.base.errors import CorruptRecord
from rmq_ha.base.model.properties import (
    REAL_TOPIC,
    TIMER_DEL_UNIQKEY,
    TIMER_DEQUEUE_MS,
    TIMER_OUT_MS,
    TIMER_ROLL_TIMES,
    TIMER_SRC,
    UNIQ_KEY,
)
from rmq_ha.base.model.topics import TIMER_TOPIC
from rmq_ha.base.store_format.timer_times import due_of, ms_in
from rmq_ha.server.store.timer.frontier import NO_FRONTIER, Frontier, decode_frontier
from rmq_ha.server.store.timer.records import recalled_key
from rmq_ha.server.store.timer.sources import TimerSource, parse_source

LATE_MS = 60_000
"""A message that has been due for less than so many ms may wait for others, as after a start."""
_SECOND_MS = 1000
_MOST_MISSING = 1 << 16


class TimerFault(StrEnum):
    """The codes of findings about timer messages."""

    NOT_DELIVERED = "TIMER_NOT_DELIVERED"
    DELIVERED_TWICE = "TIMER_DELIVERED_TWICE"
    DELIVERED_EARLY = "TIMER_DELIVERED_EARLY"
    RECALLED_DELIVERED = "TIMER_RECALLED_DELIVERED"


class TimerPart(StrEnum):
    """The part that a record has in the life of a timer message."""

    WAITS = "waits"
    DELIVERY = "delivery"
    RECALL = "recall"
    REPLACEMENT = "replacement"
    """A copy waits in place of the message, whose file is about to be deleted."""


class TimerRecord(NamedTuple):
    """
    One record that is about a timer message.

    :ivar source: the place of the waiting message, as TIMER_SRC has it; empty in a record of Java.
    :ivar name: topic, unique key and second of the message, by which Java's records name it.
    :ivar due_ms: the earliest time at which it may be delivered.
    """

    part: TimerPart
    source: str
    name: str
    due_ms: int


class TimerHistory(NamedTuple):
    """
    The facts about one timer message that a log has.

    :ivar due_ms: the earliest time at which it may be delivered.
    :ivar delivered_ms: store time of the first delivery; 0 if there is none.
    :ivar is_named: whether a record of Java, which names only topic, key and second, may settle it.
    """

    due_ms: int
    waits: bool
    deliveries: int = 0
    delivered_ms: int = 0
    is_recalled: bool = False
    is_replaced: bool = False
    is_named: bool = False


def is_timer_record(topic: str, properties_text: str) -> bool:
    """Return whether a record may be about a timer message, without decoding its properties."""
    return topic == TIMER_TOPIC or f"{TIMER_DEQUEUE_MS}\x01" in properties_text


def timer_records(
    topic: str, properties: Mapping[str, str], place: int, queue_offset: int
) -> list[TimerRecord]:
    """Return the timer messages that a record is about: none, one, or for a rolled copy two."""
    out, due = ms_in(properties, TIMER_OUT_MS), due_of(properties)
    if out is None or due is None:
        return []
    real_topic, source = properties.get(REAL_TOPIC, ""), properties.get(TIMER_SRC, "")
    if parse_source(source) is None:
        source = ""
    if topic == TIMER_TOPIC:
        if properties.get(TIMER_DEL_UNIQKEY):
            name = _name(real_topic, recalled_key(properties), out)
            return [TimerRecord(TimerPart.RECALL, source, name, due)]
        name = _name(real_topic, properties.get(UNIQ_KEY, ""), out)
        own = TimerSource(place, queue_offset).text
        records = [TimerRecord(TimerPart.WAITS, own, name, due)]
        if properties.get(TIMER_ROLL_TIMES):
            records.append(TimerRecord(TimerPart.REPLACEMENT, source, name, due))
        return records
    if topic != real_topic or TIMER_DEQUEUE_MS not in properties:
        return []
    name = _name(real_topic, properties.get(UNIQ_KEY, ""), out)
    return [TimerRecord(TimerPart.DELIVERY, source, name, due)]


def _name(topic: str, key: str, out: int) -> str:
    return f"{out // _SECOND_MS} {topic} {key}"


def faults_in(history: TimerHistory, newest_ms: int) -> list[TimerFault]:
    """
    Return the faults of one timer message.

    :param newest_ms: store time of the last record of the log. A message that is due later need not
        be delivered yet.
    """
    faults = []
    if history.deliveries + history.is_replaced > 1:
        faults.append(TimerFault.DELIVERED_TWICE)
    if history.deliveries and history.delivered_ms < history.due_ms:
        faults.append(TimerFault.DELIVERED_EARLY)
    if history.deliveries and history.is_recalled:
        faults.append(TimerFault.RECALLED_DELIVERED)
    is_settled = history.deliveries or history.is_recalled or history.is_replaced
    is_over = history.due_ms <= newest_ms - LATE_MS
    if history.waits and is_over and not is_settled and not history.is_named:
        faults.append(TimerFault.NOT_DELIVERED)
    return faults


class FoundTimerFault(NamedTuple):
    """
    A fault of a timer message in a log.

    :ivar place: the physical offset of the record at which it was found.
    :ivar is_passed_over: for a message that was not delivered, whether the last frontier record has
        it as delivered, so that no broker delivers it any more.
    """

    fault: TimerFault
    place: int
    source: str
    due_ms: int
    is_passed_over: bool = False


_DELIVERED, _RECALLED, _REPLACED = 1, 2, 4
_FLAGS = {
    TimerPart.DELIVERY: _DELIVERED,
    TimerPart.RECALL: _RECALLED,
    TimerPart.REPLACEMENT: _REPLACED,
}


class TimerAudit:
    """
    Finds the faults of the timer messages of one log, whose records are given in order.

    It keeps 25 bytes for each message of the log, in the order of the timer topic's queue.

    :ivar count: how many timer messages the log has.
    """

    def __init__(self) -> None:
        self.count = 0
        self._base = 0
        self._flags = bytearray()
        self._places, self._dues, self._names = array("q"), array("q"), array("q")
        self._strangers: dict[str, int] = {}
        self._named: set[int] = set()
        self._left: list[tuple[int, int, int, int]] = []
        self._frontier = NO_FRONTIER
        self._newest_ms = 0

    def take_frontier(self, body: bytes, place: int) -> None:
        """Take the body of a frontier record; a damaged one is ignored."""
        try:
            self._frontier = decode_frontier(body, place)
        except CorruptRecord:
            return

    def take(
        self,
        topic: str,
        properties: Mapping[str, str],
        place: int,
        queue_offset: int,
        stored_ms: int,
    ) -> Iterator[FoundTimerFault]:
        """Take a record for which `is_timer_record` is true; yield the faults that it shows."""
        for record in timer_records(topic, properties, place, queue_offset):
            if record.part is TimerPart.WAITS:
                self._add(place, queue_offset, record)
            elif not record.source:
                self._named.add(hash(record.name))
            else:
                yield from self._settle(record, place, stored_ms)

    def saw(self, stored_ms: int) -> None:
        """Take note of the store time of any record."""
        self._newest_ms = stored_ms

    def _add(self, place: int, queue_offset: int, record: TimerRecord) -> None:
        gap = queue_offset - self._base - len(self._flags)
        if not self._flags or not 0 <= gap <= _MOST_MISSING:  # the queue began anew
            self._keep_unsettled()
            self._base, gap = queue_offset, 0
        for _ in range(gap):
            self._append(-1, 0, 0)
        self._append(place, record.due_ms, hash(record.name))
        self.count += 1

    def _append(self, place: int, due_ms: int, name: int) -> None:
        self._flags.append(0)
        self._places.append(place)
        self._dues.append(due_ms)
        self._names.append(name)

    def _settle(self, record: TimerRecord, place: int, stored_ms: int) -> Iterator[FoundTimerFault]:
        source = parse_source(record.source)
        number = -1 if source is None else source.queue_offset - self._base
        is_here = (
            source is not None
            and 0 <= number < len(self._flags)
            and self._places[number] == source.physical_offset
        )
        before = self._flags[number] if is_here else self._strangers.get(record.source, 0)
        now = before | _FLAGS[record.part]
        if is_here:
            self._flags[number] = now
        else:
            self._strangers[record.source] = now
        is_delivery = record.part is TimerPart.DELIVERY
        if not before and not is_delivery:
            return
        history = TimerHistory(
            record.due_ms,
            is_here,
            bool(before & _DELIVERED) + is_delivery,
            stored_ms if is_delivery else record.due_ms,
            bool(now & _RECALLED),
            bool(now & _REPLACED),
        )
        for fault in faults_in(history, self._newest_ms):
            yield FoundTimerFault(fault, place, record.source, record.due_ms)

    def _keep_unsettled(self) -> None:
        self._left += [
            (self._base + number, place, self._dues[number], self._names[number])
            for number, place in enumerate(self._places)
            if place >= 0 and not self._flags[number]
        ]
        self._flags.clear()
        for column in (self._places, self._dues, self._names):
            del column[:]

    def end(self) -> Iterator[FoundTimerFault]:
        """Yield the messages that were not delivered; called after the last record."""
        self._keep_unsettled()
        frontier: Frontier = self._frontier
        for number, place, due_ms, name in self._left:
            history = TimerHistory(due_ms, waits=True, is_named=name in self._named)
            source = TimerSource(place, number)
            for fault in faults_in(history, self._newest_ms):
                is_passed_over = frontier.settles(due_ms, source)
                yield FoundTimerFault(fault, place, source.text, due_ms, is_passed_over)
