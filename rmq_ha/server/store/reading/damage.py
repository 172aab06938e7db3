"""What readers find damaged: left out, said once, and mended where the log allows it.

Spec: store.md, sections 2.1, 3.1 and 8.1. RocketMQ hands out whatever a unit points at.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from twisted.logger import Logger

from rmq_ha.base.store_format.commitlog import dispatch_request_at
from rmq_ha.base.store_format.consumequeue import FILLER_SIZE
from rmq_ha.base.store_format.record_checks import (
    Checks,
    body_fits,
    head_fits,
    message_checks,
    record_fits,
    with_queue_offset,
)
from rmq_ha.base.store_format.walk import IDENTITY_SIZE, MAX_RECORD_SIZE
from rmq_ha.server.store.log.search import whole_records
from rmq_ha.server.store.queues.queue import ConsumeQueue

Unit = tuple[int, int, int]

_MOST_PLACES = 4096
_MOST_NEIGHBOURS = 256
_MOST_SCANNED = 8 << 20
"""Bytes of the log, some 50 ms, that are searched for one message."""


class ReadLog(Protocol):
    """What of a commit log is read."""

    @property
    def file_size(self) -> int:
        """Size of one file in bytes."""

    @property
    def delay_levels(self) -> list[int]:
        """Ms of level 1, 2, ..."""

    @property
    def min_offset(self) -> int:
        """Start of the first file; -1 without files."""

    @property
    def max_offset(self) -> int:
        """End of what may be read."""

    def read(self, physical_offset: int, limit: int) -> bytes:
        """Bytes from an offset on, up to the end of that file at most."""


class _Stretch(NamedTuple):
    """
    What one search found: a hole of thousands of messages must not cost as many.

    :ivar key: topic and queue id.
    :ivar number: units are known of this queue offset and the next ones, `_MOST_NEIGHBOURS` in all.
    :ivar has_expired: as `ReadDamage._low` said, with `low`.
    :ivar end: of what was searched.
    :ivar units: by queue offset.
    """

    key: tuple[str, int]
    number: int
    has_expired: bool
    low: int
    end: int
    units: dict[int, Unit]


_NOTHING_SEARCHED = _Stretch(("", -1), 0, False, 0, 0, {})


class ReadDamage:
    """
    Judges records before they are handed out, and looks for those that are not in their place.

    :param checks_body: judge a record by the CRC of its body, too (`checkCRCOnRead`).
    :ivar searches: of the log, which take time.
    :ivar lost: messages that were left out, each place counted once.
    :ivar mended: units of queues that were written anew from the log.
    """

    log = Logger()

    def __init__(self, log: ReadLog, checks_body: bool) -> None:
        self._log = log
        self._checks_body = checks_body
        self._places: dict[object, None] = {}
        self._stretch = _NOTHING_SEARCHED
        self.searches = 0
        self.lost = 0
        self.mended = 0

    def checks_for(self, queue: ConsumeQueue) -> Checks:
        """What judges the records of a queue."""
        checks = message_checks(queue.topic, queue.queue_id)
        return _with_bodies(checks) if self._checks_body else checks

    def is_sound(self, data: bytes, physical_offset: int) -> bool:
        """The bytes are the record of that physical offset, of whatever queue."""
        fits = record_fits(data, physical_offset, len(data))
        return fits and (not self._checks_body or body_fits(data))

    def find(self, queue: ConsumeQueue, queue_offset: int, unit: Unit) -> bytes | None:
        """
        The record of a unit that does not lead to it: where its neighbours say that it must be.

        :returns: None when it is not there: it has expired, or the message is left out.
        :raises StoreError: the disk refuses.
        """
        place = self._place(queue, queue_offset, unit)
        if place in self._places:
            return None
        has_expired, low = self._low(queue, queue_offset)
        high = self._high(queue, queue_offset, has_expired)
        record = self._numbered_otherwise(queue, unit, low, high)
        if record is not None:
            return with_queue_offset(record, queue_offset)
        end = min(high, low + _MOST_SCANNED)
        if not self._knows(queue, queue_offset, low, end):
            units = self._search(queue, queue_offset, low, end)
            key = (queue.topic, queue.queue_id)
            self._stretch = _Stretch(key, queue_offset, has_expired, low, end, units)
        elsewhere = self._stretch.units.get(queue_offset)
        if elsewhere is not None and low <= elsewhere[0] <= high - elsewhere[1]:
            record = self._log.read(*elsewhere[:2])
            if self.checks_for(queue)((record,), elsewhere[:1], elsewhere[1:2], (queue_offset,)):
                self._mend(queue, queue_offset, unit, elsewhere)
                return record
        if not (has_expired and (unit[0] < self._log.min_offset or unit[1] == FILLER_SIZE)):
            what = f"the message {queue_offset} of {queue.topic} {queue.queue_id}"
            self._leave_out(place, what, unit[0])
        return None

    def _place(self, queue: ConsumeQueue, queue_offset: int, unit: Unit) -> object:
        """
        What counts once: the record in the log, or the unit that points to nowhere.

        A unit of zeros is one of the latter, though a record may begin at 0.
        """
        is_some = 0 < unit[1] < FILLER_SIZE
        if is_some and self._log.min_offset <= unit[0] < self._log.max_offset:
            return unit[0]
        return queue.topic, queue.queue_id, queue_offset

    def _numbered_otherwise(
        self, queue: ConsumeQueue, unit: Unit, low: int, high: int
    ) -> bytes | None:
        """
        The record of a sound unit that has another number than its place in the queue.

        Java's queues close a gap in the numbering, and so do ours: the next unit comes next. Or
        the number was damaged, which no checksum covers. Consumers go by places and commit what
        they read, so they get the place's number.
        """
        physical_offset, size, _ = unit
        if not (0 < size <= MAX_RECORD_SIZE and low <= physical_offset <= high - size):
            return None
        data = self._log.read(physical_offset, size)
        if len(data) < size or not self.is_sound(data, physical_offset):
            return None
        request = dispatch_request_at(data, 0, size, self._log.delay_levels)
        if isinstance(request, int) or (request.topic, request.queue_id) != (
            queue.topic,
            queue.queue_id,
        ):
            return None
        return data

    def _mend(self, queue: ConsumeQueue, queue_offset: int, unit: Unit, elsewhere: Unit) -> None:
        physical_offset, size, _ = elsewhere
        self.mended += 1
        self.log.error(
            "{topic} {queue_id}: the consume queue was damaged at queue offset {queue_offset}: it "
            "said {size} bytes at {physical_offset}; mended from the log: {right} bytes at {at}",
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=queue_offset,
            physical_offset=unit[0],
            size=unit[1],
            at=physical_offset,
            right=size,
        )
        queue.mend(queue_offset, elsewhere)

    def bad_record(self, physical_offset: int) -> None:
        """The index points to a record that is none."""
        if physical_offset not in self._places:
            self._leave_out(physical_offset, "a message", physical_offset)

    def _leave_out(self, place: object, what: str, physical_offset: int) -> None:
        self.lost += 1
        if len(self._places) >= _MOST_PLACES:
            del self._places[next(iter(self._places))]
        self._places[place] = None
        self.log.error(
            "{what} is left out: the log has no whole record at {physical_offset}, where it should "
            "be; another replica may have it",
            what=what,
            physical_offset=physical_offset,
        )

    def _low(self, queue: ConsumeQueue, queue_offset: int) -> tuple[bool, int]:
        """
        Where the record can begin at the earliest, by the units before.

        :returns: with it, whether it may have expired: the log has none of them any more, either.
        """
        first = max(self._log.min_offset, 0)
        begin = max(queue.min_offset, queue_offset - _MOST_NEIGHBOURS)
        for unit in reversed(queue.units(begin, queue_offset - begin)):
            if _has_expired(unit, first):
                return True, first
            if self._is_good(unit):
                return False, unit[0] + unit[1]
        last = self._stretch
        if last.key == (queue.topic, queue.queue_id) and begin <= last.number < queue_offset:
            return last.has_expired, max(first, last.low)
        return begin == queue.min_offset, first

    def _high(self, queue: ConsumeQueue, queue_offset: int, has_expired: bool) -> int:
        """
        Where the record must have ended, by the units behind.

        :param has_expired: those before may have; nothing behind one that has not can have.
        """
        first = max(self._log.min_offset, 0)
        for unit in queue.units(queue_offset + 1, _MOST_NEIGHBOURS):
            if (has_expired and _has_expired(unit, first)) or self._is_good(unit):
                return unit[0]
        return self._log.max_offset

    def _is_good(self, unit: Unit) -> bool:
        """By the start of its record."""
        physical_offset, size, _ = unit
        if not 0 < size <= MAX_RECORD_SIZE or physical_offset < 0:
            return False
        head = self._log.read(physical_offset, IDENTITY_SIZE)
        return head_fits(head, physical_offset, size)

    def _knows(self, queue: ConsumeQueue, queue_offset: int, low: int, end: int) -> bool:
        """The last search has covered this one."""
        last = self._stretch
        return (
            last.key == (queue.topic, queue.queue_id)
            and last.number <= queue_offset < last.number + _MOST_NEIGHBOURS
            and last.low <= low
            and (end <= last.end or end <= low)
        )

    def _search(
        self, queue: ConsumeQueue, queue_offset: int, low: int, high: int
    ) -> dict[int, Unit]:
        """The units of that number and the next ones, by the records between two places."""
        units: dict[int, Unit] = {}
        numbers = range(queue_offset, queue_offset + _MOST_NEIGHBOURS)
        size = self._log.file_size
        self.searches += low < high
        while low < high:
            end = min(high, low - low % size + size)
            for batch in whole_records(self._read, low, end, self._log.delay_levels):
                for topic, queue_id, place, length, code, _, number, *_ in batch:
                    if number in numbers and (topic, queue_id) == (queue.topic, queue.queue_id):
                        units.setdefault(number, (place, length, code))
                if len(units) == _MOST_NEIGHBOURS:
                    return units
            low = end
        return units

    def _read(self, size: int, physical_offset: int) -> bytes:
        return self._log.read(physical_offset, size)


def _with_bodies(checks: Checks) -> Checks:
    def count(records: Sequence[bytes], *places: Iterable[int]) -> int:
        good = checks(records, *places)
        bad = (number for number, data in enumerate(records[:good]) if not body_fits(data))
        return next(bad, good)

    return count


def _has_expired(unit: Unit, min_offset: int) -> bool:
    """The log lost the record to age; zeros, which nobody wrote, say nothing of the kind."""
    return unit[1] != FILLER_SIZE and 0 < unit[0] + unit[1] <= min_offset
