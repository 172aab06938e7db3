"""Finds out from the log which delayed messages were delivered, before a new master delivers any.

delayOffset.json is up to ten seconds older than a crash, and a slave's copy of it up to twenty. The
copy may also be ahead of the slave's log. The log itself cannot be wrong: a delivered message has
its copy in the queue of its real topic. The copy's physical offset is above that of the delayed
message, whatever the clock said.

Spec: store.md, sections 10.3 to 10.5.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from rmq_ha.base.errors import CorruptRecord
from rmq_ha.base.model.properties import DELAY, REAL_TOPIC, UNIQ_KEY
from rmq_ha.base.store_format.commitlog import Record, decode_record, store_timestamp_of
from rmq_ha.base.store_format.consumequeue import FILLER_SIZE
from rmq_ha.server.store.delay.copies import real_place
from rmq_ha.server.store.queues.table import ConsumeQueue, ConsumeQueueTable

_RECORDS_A_CALL = 256
_MOST_BY_PLACE = 100_000
"""Most records that are read from one queue because of their physical offset alone; reading them
takes a second or two. A queue has more of them after the place of a message that waited for
hours."""
_MOST_COPIES = 2_000_000
"""Most copies that are held in memory, some 560 MB. Only a store whose progress file was lost comes
near."""

ABSENT = -1

Unit = tuple[int, int, int]


class CopiesSince(NamedTuple):
    """
    Where in the log to begin to look for copies.

    :ivar place: physical offset of the first copy that counts.
    :ivar ms: store time before which no copy can be. It is used only where more records lie after
        `place` than can be read, because store times stand still while the clock is behind them.
    """

    place: int
    ms: int


class _DeliveredQueue:
    """
    The copies that were found in one queue of a real topic, and the parts of the queue still to
    read.

    :ivar copies: physical offsets of copies, by identity.
    :ivar low: queue offset from which on the queue was read, or will be.
    :ivar parts: first and last queue offset of each part that is still to be read.
    :ivar covered: the requests that `low` and `parts` take into account already.
    :ivar has_gap: a part of the queue could not be read.
    """

    __slots__ = ("copies", "covered", "has_gap", "low", "parts")

    def __init__(self, end: int) -> None:
        self.low = end
        self.parts: list[tuple[int, int]] = []
        self.covered: set[CopiesSince] = set()
        self.copies: dict[str, list[int]] = {}
        self.has_gap = False


class DeliveredCopies:
    """
    Finds copies of delayed messages in the queues of their real topics.

    Each part of such a queue that is needed is read once, a piece in each call, up to the end that
    the queue had when this object was made.

    :param record_at: returns the record at a physical offset with a size; None if the log lacks it.
    """

    def __init__(
        self, queues: ConsumeQueueTable, record_at: Callable[[int, int], bytes | None]
    ) -> None:
        self._queues = queues
        self._record_at = record_at
        self._end = queues.max_physical_offset
        self._targets: dict[tuple[str, int], _DeliveredQueue] = {}
        self._count = 0

    def take(self, delayed: Record, since: CopiesSince) -> bool | None:
        """
        Return whether a message has a copy, and use the copy up: it stands for one message only.

        :param delayed: a record of the schedule topic.
        :returns: None while the answer is not known: a piece was read, so ask again in the next
            turn.
        :raises CorruptRecord: the record does not name its real topic and queue.
        :raises StoreError: the disk refuses.
        """
        properties = delayed.properties
        key, identity = real_place(properties), _identity(delayed, properties)
        places = self._places(key, identity, since, is_unique=UNIQ_KEY in properties)
        if not places:
            return None if places is None else False
        self._targets[key].copies[identity].remove(min(places))
        return True

    def find(self, delayed: Record, since: CopiesSince) -> int | None:
        """
        Return the physical offset of a message's copy, without using the copy up; `ABSENT` without
        a copy. Parameter, None and errors are as for `take`.

        Messages without a unique key may have copies that look alike: then it is the last copy.
        """
        properties = delayed.properties
        key, identity = real_place(properties), _identity(delayed, properties)
        is_unique = UNIQ_KEY in properties
        places = self._places(key, identity, since, is_unique=is_unique)
        if not places:
            return None if places is None else ABSENT
        return _choose(places, is_unique=is_unique)

    def glance(self, delayed: Record, ms: int) -> int:
        """
        Look for a message's copy among the records that were stored soon after a time.

        Return the copy's physical offset, or `ABSENT`, which does not prove that there is no copy.

        :param ms: the store time where to begin.
        :raises CorruptRecord: the record does not name its real topic and queue.
        :raises StoreError: the disk refuses.
        """
        properties = delayed.properties
        queue = self._queues.get(*real_place(properties))
        if queue is None:
            return ABSENT
        units = queue.units(self._by_time(queue, ms), _RECORDS_A_CALL)
        own_identity = _identity(delayed, properties)
        places = [
            place
            for place, identity in self._copies_among(units)
            if place > delayed.physical_offset and identity == own_identity
        ]
        return _choose(places, is_unique=UNIQ_KEY in properties) if places else ABSENT

    def may_be_gone(self, delayed: Record) -> bool:
        """
        Return whether the message may have been delivered although no copy is found: the queue of
        its real topic was deleted since, or cannot be read.

        Age alone cannot remove the copy: the log deletes the delayed message first.
        """
        key = real_place(delayed.properties)
        target = self._targets.get(key)
        return self._queues.is_deleted(key, delayed.physical_offset) or (
            target is not None and target.has_gap
        )

    def _places(
        self, key: tuple[str, int], identity: str, since: CopiesSince, *, is_unique: bool
    ) -> list[int] | None:
        """
        Return the physical offsets of copies; None: not known yet.

        :param is_unique: return as soon as one copy is found.
        """
        queue = self._queues.get(*key)
        if queue is None:
            return []
        target = self._targets.get(key)
        if target is None:
            self._targets[key] = target = _DeliveredQueue(queue.offset_by_place(self._end))
        if since not in target.covered:
            self._cover(queue, target, since)
        places = [place for place in target.copies.get(identity, ()) if place >= since.place]
        if not target.parts or (places and is_unique):
            return places
        self._read_on(queue, target)
        return None

    def _cover(self, queue: ConsumeQueue, target: _DeliveredQueue, since: CopiesSince) -> None:
        """
        Note the part of a queue that has to be read for a request, as far as it is not noted yet.

        By physical offset alone, the part may have too many records (`_MOST_BY_PLACE`). Then the
        store time narrows it.
        """
        first = queue.offset_by_place(since.place)
        if target.low - first > _MOST_BY_PLACE:
            first = max(first, self._by_time(queue, since.ms))
        if first < target.low:
            target.parts.append((first, target.low))
            target.low = first
        target.covered.add(since)

    def _by_time(self, queue: ConsumeQueue, ms: int) -> int:
        """
        Return a queue offset at or before the first message whose store time is `ms` or later.
        """
        return max(queue.offset_by_time(ms, self._store_time, 0), queue.min_offset)

    def _store_time(self, physical_offset: int, size: int) -> int:
        record = self._record_at(physical_offset, size)
        return -1 if record is None else store_timestamp_of(record)

    def _read_on(self, queue: ConsumeQueue, target: _DeliveredQueue) -> None:
        position, end = target.parts.pop()
        units = queue.units(position, min(_RECORDS_A_CALL, end - position))
        if not units or self._count > _MOST_COPIES:
            target.has_gap = True
            return
        position += len(units)
        if position < end:
            target.parts.append((position, end))
        for place, identity in self._copies_among(units):
            target.copies.setdefault(identity, []).append(place)
            self._count += 1

    def _copies_among(self, units: Iterable[Unit]) -> Iterable[tuple[int, str]]:
        """
        Yield physical offset and identity of each copy of a delayed message among these units.
        """
        for physical_offset, size, _ in units:
            data = None if size == FILLER_SIZE else self._record_at(physical_offset, size)
            if data is None or _DELAY_MARK not in data:
                continue
            try:
                record = decode_record(data)
            except CorruptRecord:
                continue
            properties = record.properties
            if properties.get(REAL_TOPIC) == record.topic:
                yield physical_offset, _identity(record, properties)


_DELAY_MARK = f"{DELAY}\x01".encode()


def _choose(places: list[int], *, is_unique: bool) -> int:
    """
    Return the first copy of a message with a unique key, else the last one of messages that look
    alike.
    """
    return min(places) if is_unique else max(places)


def _identity(record: Record, properties: dict[str, str]) -> str:
    """
    Return a text that is the same for a delayed message and its copy, and hardly for any other two.
    """
    return "|".join(
        (
            properties.get(UNIQ_KEY, ""),
            properties.get(DELAY, ""),
            f"{record.born_timestamp}|{record.body_crc}|{record.reconsume_times}",
            str(len(record.body)),
        )
    )
