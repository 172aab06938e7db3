"""Counts what topics, queues and groups did in the last minute, hour and day (StatsItemSet).

Java samples every item every 10 s. Here an item notes its value at a sampling only when it first
grows after that sampling. The figures are the same, and an item that does not grow costs nothing.

Spec: remoting.md, section 7.5, appendix B16.
"""

from collections.abc import Callable, Hashable, ItemsView
from enum import IntEnum
from typing import Generic, NamedTuple, TypeVar

SAMPLE_S = 10
"""Seconds between two samplings. Their numbers ("ticks") count from the start of the broker."""

Key = TypeVar("Key", bound=Hashable)
_Past = tuple[int, tuple[int, int, int, int]]


class Window(IntEnum):
    """A span of time; the value is the index of the window's notes in an item."""

    MINUTE = 0
    HOUR = 1
    DAY = 2


# Ticks between two samples of a window, and the number of samples that it holds.
_WINDOWS = ((1, 7), (60, 7), (360, 25))


class Figure(IntEnum):
    MESSAGES = 0
    BYTES = 1
    MILLIS = 2


class Growth(NamedTuple):
    """
    The growth of a counter (BrokerStatsItem): over a window, per second, and per request.
    """

    total: int
    per_second: float
    per_time: float


class StatsItem:
    """Counters, with their values at the last samplings."""

    __slots__ = ("_notes", "born", "messages", "millis", "size", "tick", "times")

    def __init__(self, tick: int) -> None:
        self.messages = self.size = self.millis = self.times = 0
        self.born = tick
        self.tick = -1
        self._notes: tuple[list[_Past], ...] = ([], [], [])

    def note(self, tick: int) -> None:
        """
        Note the present values as those of the sampling `tick`. Call this before the first growth
        after that sampling.
        """
        past = (self.messages, self.size, self.millis, self.times)
        for notes, (unit, kept) in zip(self._notes, _WINDOWS, strict=True):
            sample = tick // unit
            if notes and notes[-1][0] == sample:
                continue
            notes.append((sample, past))
            while notes[0][0] <= sample - kept:
                del notes[0]
        self.tick = tick

    def growth(self, window: Window, figure: Figure, tick: int) -> Growth:
        """
        Return the growth between the first and the last sampling of a window; 0 if there is only
        one.
        """
        unit, kept = _WINDOWS[window]
        last = tick // unit
        first = max(last - kept + 1, self.born // unit)
        if first >= last:
            return Growth(0, 0.0, 0.0)
        new, old = self._values_at(window, last), self._values_at(window, first)
        total, times = new[figure] - old[figure], new[3] - old[3]
        seconds = (last - first) * unit * SAMPLE_S
        return Growth(total, total / seconds, total / times if times > 0 else 0.0)

    def _values_at(self, window: Window, sample: int) -> tuple[int, int, int, int]:
        for noted, past in self._notes[window]:
            if noted >= sample:
                return past
        return (self.messages, self.size, self.millis, self.times)


class StatsTable(Generic[Key]):
    """
    Items by key.

    :param capacity: most items. Above it, items that did not grow for a minute are removed; if all
        of them grew, the oldest items are.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._items: dict[Key, StatsItem] = {}

    def __len__(self) -> int:
        return len(self._items)

    def add(
        self, key: Key, tick: int, messages: int, size: int = 0, times: int = 1, millis: int = 0
    ) -> None:
        """
        Count; call it once for each batch.

        :param tick: the number of the last sampling.
        :param times: number of requests.
        """
        item = self._items.get(key)
        if item is None:
            item = self._new(key, tick)
        if item.tick != tick:
            item.note(tick)
        item.messages += messages
        item.size += size
        item.times += times
        item.millis += millis

    def get(self, key: Key) -> StatsItem | None:
        """Return an item; None if nothing was counted."""
        return self._items.get(key)

    def items(self) -> ItemsView[Key, StatsItem]:
        return self._items.items()

    def forget(self, is_gone: Callable[[Key], bool]) -> None:
        """Remove the items whose topic or group was deleted."""
        for key in [key for key in self._items if is_gone(key)]:
            del self._items[key]

    def _new(self, key: Key, tick: int) -> StatsItem:
        if len(self._items) >= self._capacity:
            self._make_room(tick)
        item = self._items[key] = StatsItem(tick)
        return item

    def _make_room(self, tick: int) -> None:
        """Free at least an eighth of the items at once, because it has to read all of them."""
        resting = tick - _WINDOWS[Window.MINUTE][1]
        for key in [key for key, item in self._items.items() if item.tick < resting]:
            del self._items[key]
        surplus = len(self._items) - self._capacity * 7 // 8
        for key in list(self._items)[: max(0, surplus)]:
            del self._items[key]
