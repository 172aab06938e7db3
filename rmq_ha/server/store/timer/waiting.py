"""The set of timer messages that wait, by minute of their due time.

A message takes eight bytes. It is *settled* when it waits no more: it was delivered, recalled or
replaced. Then it stays in the array of its minute until the minute is over, and a set beside the
array names it.
"""

from array import array
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

from rmq_ha.server.store.timer.frontier import NO_FRONTIER, Frontier
from rmq_ha.server.store.timer.sources import TimerSource

MINUTE_MS = 60_000
_SECOND_MS = 1000
_OFFSET_BITS = 47
_OFFSETS = (1 << _OFFSET_BITS) - 1
_MOST_FLOORS = 8192
_FEW = 256


def minute_of(due_ms: int) -> int:
    """
    Return the minute of a due time, since the epoch.

    A due time of exactly a full minute belongs to the minute before, because Java's TIMER_OUT_MS of
    such a message, one ms less, is in that minute.
    """
    return (due_ms - 1) // MINUTE_MS


class _WaitingMinute:
    """
    The messages of one minute.

    :ivar entries: a number for each message: the ms within the minute in the bits above the lowest
        47, and the queue offset in these.
    :ivar settled: queue offsets of entries that are settled.
    :ivar recalled: queue offsets of messages that a recall settled.
    :ivar floor: entries below this queue offset may have been taken out of `entries`.
    :ivar per_second: how many messages wait for each second of the minute; None until it is asked
        for.
    """

    __slots__ = ("entries", "floor", "per_second", "recalled", "settled")

    def __init__(self, floor: int) -> None:
        self.entries = array("q")
        self.settled: set[int] = set()
        self.recalled: set[int] = set()
        self.floor = floor
        self.per_second: list[int] | None = None

    def count_seconds(self) -> list[int]:
        """Return how many messages wait for each second of the minute."""
        counts = self.per_second
        if counts is None:
            counts = self.per_second = [0] * (MINUTE_MS // _SECOND_MS)
            settled = self.settled
            for entry in self.entries:
                if entry & _OFFSETS not in settled:
                    counts[(entry >> _OFFSET_BITS) // _SECOND_MS] += 1
        return counts


class WaitingMessages:
    """
    The timer messages of a log that wait: they are neither delivered nor recalled nor replaced.

    A message is named by its queue offset in the timer topic. Its due time is that of its unit.

    :param frontier: messages that this frontier settles are not added.
    :ivar count: number of waiting messages.
    :ivar end: the queue offset after the last message that was added.
    """

    def __init__(self, frontier: Frontier = NO_FRONTIER) -> None:
        self.frontier = frontier
        self.count = 0
        self.end = 0
        self._minutes: dict[int, _WaitingMinute] = {}
        self._order: list[int] = []
        self._floors: dict[int, int] = {}
        self._no_floors_to = -1

    # Adding and settling

    def add(self, due_ms: int, queue_offset: int) -> None:
        """Add a message; its queue offset must be above those that were added before."""
        number, ms = divmod(due_ms - 1, MINUTE_MS)
        minute = self._minutes.get(number) or self._minute(number)
        minute.entries.append(ms << _OFFSET_BITS | queue_offset)
        if minute.per_second is not None:
            minute.per_second[ms // _SECOND_MS] += 1
        self.count += 1
        self.end = queue_offset + 1

    def _minute(self, number: int) -> _WaitingMinute:
        minute = self._minutes.get(number)
        if minute is None:
            floor = self.end if number <= self._no_floors_to else self._floors.pop(number, 0)
            self._minutes[number] = minute = _WaitingMinute(floor)
            heappush(self._order, number)
        return minute

    def waits(self, due_ms: int, source: TimerSource) -> bool:
        """Return whether a message of the timer topic waits."""
        minute = self._minutes.get(minute_of(due_ms))
        queue_offset = source.queue_offset
        if minute is None or queue_offset in minute.settled or queue_offset >= self.end:
            return False
        if queue_offset >= minute.floor:
            return not self.frontier.settles(due_ms, source)
        return (due_ms - 1) % MINUTE_MS << _OFFSET_BITS | queue_offset in minute.entries

    def settle(self, due_ms: int, source: TimerSource, *, is_recall: bool = False) -> bool:
        """
        Note that a message waits no more.

        :param is_recall: whether a recall settled the message.
        :returns: whether the message waited until now.
        """
        if not self.waits(due_ms, source):
            return False
        minute = self._minutes[minute_of(due_ms)]
        minute.settled.add(source.queue_offset)
        if minute.per_second is not None:
            minute.per_second[(due_ms - 1) % MINUTE_MS // _SECOND_MS] -= 1
        if is_recall:
            minute.recalled.add(source.queue_offset)
        self.count -= 1
        return True

    def was_recalled(self, due_ms: int, queue_offset: int) -> bool:
        """Return whether a recall settled a message; False once the minute was forgotten."""
        minute = self._minutes.get(minute_of(due_ms))
        return minute is not None and queue_offset in minute.recalled

    def tidy(self, now_ms: int) -> None:
        """Free the memory of settled messages in the minutes that are over."""
        over = minute_of(now_ms)
        kept: list[int] = []
        while self._order and self._order[0] < over:
            number = heappop(self._order)
            minute = self._minutes[number]
            left = len(minute.entries) - len(minute.settled)
            if left:
                kept.append(number)
                if len(minute.settled) > left + _FEW:
                    self._shrink(minute)
            else:
                del self._minutes[number]
                self._floors[number] = self.end
        for number in kept:
            heappush(self._order, number)
        while len(self._floors) > _MOST_FLOORS:
            number = next(iter(self._floors))
            del self._floors[number]
            self._no_floors_to = max(self._no_floors_to, number)

    def _shrink(self, minute: _WaitingMinute) -> None:
        settled = minute.settled
        minute.entries = array(
            "q", [entry for entry in minute.entries if entry & _OFFSETS not in settled]
        )
        minute.settled = set()
        minute.floor = self.end

    # Looking

    def minutes(self) -> list[int]:
        """Return the numbers of all minutes that are kept, ascending."""
        return sorted(self._minutes)

    def next_minute(self, after: int) -> int | None:
        """Return the number of the first minute after another one; None if there is none."""
        return min((number for number in self._minutes if number > after), default=None)

    def earliest(self) -> tuple[int, int] | None:
        """Return due time and queue offset of the message that is due first."""
        return next(iter(self), None)

    def of_minute(self, number: int) -> list[tuple[int, int]]:
        """Return due time and queue offset of the waiting messages of a minute, in that order."""
        minute = self._minutes.get(number)
        if minute is None:
            return []
        base, settled = number * MINUTE_MS + 1, minute.settled
        return [
            (base + (entry >> _OFFSET_BITS), queue_offset)
            for entry in sorted(minute.entries)
            if (queue_offset := entry & _OFFSETS) not in settled
        ]

    def due_by(self, number: int, times: Sequence[int]) -> list[int]:
        """
        Count the waiting messages of a minute that are due at some times.

        :param times: times in ms since the epoch.
        :returns: for each of them the number of messages that are due then or earlier.
        """
        minute = self._minutes.get(number)
        first, counts = number * MINUTE_MS + 1, list[int]()
        for time in times:
            count = 0
            if minute is not None and time >= first + MINUTE_MS - 1:
                count = len(minute.entries) - len(minute.settled)
            elif minute is not None and time >= first:
                most, settled = (time - first + 1) << _OFFSET_BITS, minute.settled
                count = sum([e < most and e & _OFFSETS not in settled for e in minute.entries])
            counts.append(count)
        return counts

    @property
    def recalled(self) -> int:
        """Number of recalled messages in the minutes that are not forgotten."""
        return sum([len(minute.recalled) for minute in self._minutes.values()])

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Yield due time and queue offset of all waiting messages, in that order."""
        for number in self.minutes():
            yield from self.of_minute(number)

    def due_between(self, first_ms: int, last_ms: int) -> list[tuple[int, int]]:
        """Return due time and queue offset of the messages due from `first_ms` to `last_ms`."""
        return [
            message
            for number in range(minute_of(first_ms), minute_of(last_ms) + 1)
            for message in self.of_minute(number)
            if first_ms <= message[0] <= last_ms
        ]

    def up_to(self, due_ms: int, queue_offset: int) -> list[tuple[int, int]]:
        """Return the waiting messages up to a due time and queue offset, in the order of both."""
        last, before = minute_of(due_ms), list[tuple[int, int]]()
        for number in self.minutes():
            if number > last:
                break
            messages = self.of_minute(number)
            if number == last:
                messages = [message for message in messages if message <= (due_ms, queue_offset)]
            before += messages
        return before

    def in_second(self, due_ms: int) -> int:
        """Count the messages that wait for the second of a due time; fast, as each send may ask."""
        minute = self._minutes.get(minute_of(due_ms))
        if minute is None:
            return 0
        return minute.count_seconds()[(due_ms - 1) % MINUTE_MS // _SECOND_MS]

    def offsets_below(self, queue_offset: int) -> list[int]:
        """Return the queue offsets of the waiting messages below a queue offset, ascending."""
        offsets: list[int] = []
        for minute in self._minutes.values():
            settled = minute.settled
            for entry in minute.entries:  # in the order of queue offsets
                offset = entry & _OFFSETS
                if offset >= queue_offset:
                    break
                if offset not in settled:
                    offsets.append(offset)
        return sorted(offsets)
