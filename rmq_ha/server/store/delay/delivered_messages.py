"""Which delayed messages the log says were delivered: what a new master asks before it delivers.

delayOffset.json is up to ten seconds older than a crash, and a slave's copy of it up to twenty; it
may also be ahead of a slave's log. The log itself cannot be wrong: a delivered message has its copy
in the queue of its real topic, and behind its own place in the log, whatever the clock said.

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
"""Records; a second or two. A queue has more of them behind a message that waited for hours."""
_MOST_COPIES = 2_000_000
"""Some 560 MB; only a store whose progress file was lost comes near."""

ABSENT = -1

Unit = tuple[int, int, int]


class CopiesSince(NamedTuple):
    """
    Where the copies begin that count.

    :ivar place: physical offset.
    :ivar ms: store time before which there is none; asked only where more lies behind the place
        than can be read, as stamps stand still while the clock is behind them.
    """

    place: int
    ms: int


class _Target:
    """
    What is known of one queue of a real topic.

    :ivar copies: places of copies, by identity.
    :ivar low: queue offset from which on it is read, or will be.
    :ivar parts: first and last queue offset of what is still to be read.
    :ivar covered: what was asked, and lies above `low`.
    :ivar has_gap: not all of it could be read.
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
    Finds copies of delayed messages in the queues that they were meant for.

    Each such queue is read once, a piece a call, and not behind the end that it has now.

    :param record_at: the record at a physical offset with a size; None if the log has it not.
    """

    def __init__(
        self, queues: ConsumeQueueTable, record_at: Callable[[int, int], bytes | None]
    ) -> None:
        self._queues = queues
        self._record_at = record_at
        self._end = queues.max_physical_offset
        self._targets: dict[tuple[str, int], _Target] = {}
        self._count = 0

    def take(self, delayed: Record, since: CopiesSince) -> bool | None:
        """
        Whether a copy is there; each copy stands for one message only.

        :param delayed: a record of the schedule topic.
        :returns: None: not known yet, and a piece was read; ask again in the next turn.
        :raises CorruptRecord: the record does not say where its message belongs.
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
        Where a copy is, which is left there; `ABSENT` for none. Else as `take`.

        Of several that are alike, which only messages without a unique key are, the last one.
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
        Where a copy is, if it was stored soon after a time; `ABSENT` proves nothing.

        :raises CorruptRecord: the record does not say where its message belongs.
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
        That no copy is found proves nothing: its queue was deleted since, or cannot be read.

        Age alone takes no copy away while the log still has the delayed message before it.
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
        Where copies are, or one of them; None: not known yet.

        :param is_unique: the first one found will do.
        """
        queue = self._queues.get(*key)
        if queue is None:
            return []
        target = self._targets.get(key)
        if target is None:
            self._targets[key] = target = _Target(queue.offset_by_place(self._end))
        if since not in target.covered:
            self._cover(queue, target, since)
        places = [place for place in target.copies.get(identity, ()) if place >= since.place]
        if not target.parts or (places and is_unique):
            return places
        self._read_on(queue, target)
        return None

    def _cover(self, queue: ConsumeQueue, target: _Target, since: CopiesSince) -> None:
        first = queue.offset_by_place(since.place)
        if target.low - first > _MOST_BY_PLACE:
            first = max(first, self._by_time(queue, since.ms))
        if first < target.low:
            target.parts.append((first, target.low))
            target.low = first
        target.covered.add(since)

    def _by_time(self, queue: ConsumeQueue, ms: int) -> int:
        """Not behind the first message that was stored at a time, or later."""
        return max(queue.offset_by_time(ms, self._store_time, 0), queue.min_offset)

    def _store_time(self, physical_offset: int, size: int) -> int:
        record = self._record_at(physical_offset, size)
        return -1 if record is None else store_timestamp_of(record)

    def _read_on(self, queue: ConsumeQueue, target: _Target) -> None:
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
        """Place and identity of each copy of a delayed message."""
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
    """Of the copies of one message the first one; of those of messages that are alike the last."""
    return min(places) if is_unique else max(places)


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
