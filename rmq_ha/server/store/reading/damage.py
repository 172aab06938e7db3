"""Leaves damaged records out, reports each once, and repairs the queue where the log allows it.

Spec: store.md, sections 2.1, 3.1 and 8.1. RocketMQ returns whatever a unit points at.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from twisted.logger import Logger

from rmq_ha.base.runs.log_walk import IDENTITY_SIZE
from rmq_ha.base.store_format.commitlog import MAX_RECORD_SIZE, dispatch_request_at
from rmq_ha.base.store_format.consumequeue import FILLER_SIZE
from rmq_ha.base.store_format.record_checks import (
    Checks,
    body_fits,
    head_fits,
    message_checks,
    record_fits,
    with_queue_offset,
)
from rmq_ha.server.store.log.search import whole_records
from rmq_ha.server.store.queues.queue import ConsumeQueue

Unit = tuple[int, int, int]

_MOST_PLACES = 4096
_MOST_NEIGHBOURS = 256
_MOST_SCANNED = 8 << 20
"""Bytes of the log that are searched for one message, which takes some 50 ms."""


class ReadLog(Protocol):
    """The part of a commit log that readers use."""

    @property
    def file_size(self) -> int:
        """Size of one file in bytes."""

    @property
    def delay_levels(self) -> list[int]:
        """Delay of level 1, 2, ..., ms."""

    @property
    def min_offset(self) -> int:
        """Physical offset of the first file; -1 without files."""

    @property
    def max_offset(self) -> int:
        """Physical offset of the end of the readable log."""

    def read(self, physical_offset: int, limit: int) -> bytes:
        """Return bytes from an offset on, up to the end of that file at most."""


class _DamagedStretch(NamedTuple):
    """
    The result of one search, so that a hole of thousands of messages does not cost thousands of
    searches.

    :ivar key: topic and queue id.
    :ivar number: the search covered the `_MOST_NEIGHBOURS` queue offsets from this one on.
    :ivar has_expired: the first result of `ReadDamage._low`.
    :ivar low: physical offset where the search began.
    :ivar end: physical offset where the search ended.
    :ivar units: the units that were found, by queue offset.
    """

    key: tuple[str, int]
    number: int
    has_expired: bool
    low: int
    end: int
    units: dict[int, Unit]


_NOTHING_SEARCHED = _DamagedStretch(("", -1), 0, False, 0, 0, {})


class ReadDamage:
    """
    Judges records before they are returned, and searches those that are not in their place.

    :param checks_body: check also the CRC of each body (`checkCRCOnRead`).
    :ivar searches: number of searches in the log, which take time.
    :ivar lost: number of messages that were left out; each place counts once.
    :ivar mended: number of queue units that were written again from the log.
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
        """Return the checks for the records of a queue."""
        checks = message_checks(queue.topic, queue.queue_id)
        return _with_bodies(checks) if self._checks_body else checks

    def is_sound(self, data: bytes, physical_offset: int) -> bool:
        """Return whether the bytes are the record of that physical offset, of any queue."""
        fits = record_fits(data, physical_offset, len(data))
        return fits and (not self._checks_body or body_fits(data))

    def find(self, queue: ConsumeQueue, queue_offset: int, unit: Unit) -> bytes | None:
        """
        Search the record of a unit that does not lead to it. The search covers the part of the log
        between the records of the neighbouring units.

        :returns: None if the record is not found: it has expired, or the message is left out.
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
            self._stretch = _DamagedStretch(key, queue_offset, has_expired, low, end, units)
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
        Return the key under which a lost message is counted once: the physical offset of its
        record, or topic, queue id and queue offset if the unit points to no place in the log.

        A unit of zeros points to no place, though a record may begin at physical offset 0.
        """
        is_some = 0 < unit[1] < FILLER_SIZE
        if is_some and self._log.min_offset <= unit[0] < self._log.max_offset:
            return unit[0]
        return queue.topic, queue.queue_id, queue_offset

    def _numbered_otherwise(
        self, queue: ConsumeQueue, unit: Unit, low: int, high: int
    ) -> bytes | None:
        """
        Return the record of a sound unit whose queue offset differs from its place in the queue.

        None if there is no such record. The two numbers differ where the queue closed up over lost
        messages, as Java's queues do, or where the number in the record is damaged: no checksum
        covers it. Consumers count places and commit them, so they get the number of the place.
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
        """Count a place of the index that does not lead to a record."""
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
        Return the lowest physical offset where the record can begin, by the units before it.

        :returns: first, whether the record may have expired, because the log has lost the units
            before as well; then the offset.
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
        Return the physical offset where the record must have ended, by the units after it.

        :param has_expired: the record may have expired; then a unit after it that has expired
            counts, too.
        """
        first = max(self._log.min_offset, 0)
        for unit in queue.units(queue_offset + 1, _MOST_NEIGHBOURS):
            if (has_expired and _has_expired(unit, first)) or self._is_good(unit):
                return unit[0]
        return self._log.max_offset

    def _is_good(self, unit: Unit) -> bool:
        """Return whether the start of the unit's record is sound."""
        physical_offset, size, _ = unit
        if not 0 < size <= MAX_RECORD_SIZE or physical_offset < 0:
            return False
        head = self._log.read(physical_offset, IDENTITY_SIZE)
        return head_fits(head, physical_offset, size)

    def _knows(self, queue: ConsumeQueue, queue_offset: int, low: int, end: int) -> bool:
        """Return whether the last search has covered this one."""
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
        """
        Read the records of the log between two physical offsets, and return the queue's units for
        this queue offset and the next ones.
        """
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
    """
    Return whether the log has deleted the record by age.

    A unit of zeros, which nobody wrote, does not say so.
    """
    return unit[1] != FILLER_SIZE and 0 < unit[0] + unit[1] <= min_offset
