"""Sends that wait for a broker to come back: one of them tries, the others wait for what it finds.

If each of thousands knocked for itself, processor and network would be busy while nobody is there,
and a broker that starts would meet all of them at once.
"""

from collections import OrderedDict
from collections.abc import Hashable
from random import Random
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)
_MOST_DOUBLINGS = 20


class Pauses:
    """
    Longer each time, and never the same for two clients.

    :param first_ms: of about this length is the first one.
    :param most_ms: no longer than this.
    """

    def __init__(self, random: Random, first_ms: int, most_ms: int) -> None:
        self._random = random
        self._first_s = first_ms / 1000
        self._most_s = most_ms / 1000

    def seconds(self, before: int) -> float:
        """:param before: how many there were before."""
        longest: float = min(self._first_s * 2 ** min(before, _MOST_DOUBLINGS), self._most_s)
        return longest * (0.5 + self._random.random() / 2)


class _Rest(Generic[T]):
    """
    Those who wait for one thing.

    :ivar due: when the next one tries; None while one does.
    :ivar tried: how many of them found nobody.
    """

    __slots__ = ("due", "since", "tried", "waiting")

    def __init__(self, since: float, due: float) -> None:
        self.since = since
        self.due: float | None = due
        self.tried = 0
        self.waiting: OrderedDict[T, None] = OrderedDict()


class Resting(Generic[T]):
    """
    Who waits for what: by key, a topic say, since somebody found that nobody serves it.

    :ivar rests: by key; empty while all is well.
    """

    def __init__(self, pauses: Pauses) -> None:
        self.rests: dict[Hashable, _Rest[T]] = {}
        self._pauses = pauses
        self._keys: dict[T, Hashable] = {}
        self._triers: dict[T, Hashable] = {}

    @property
    def count(self) -> int:
        """How many wait."""
        return len(self._keys)

    def holds(self, item: T, key: Hashable) -> bool:
        """Somebody else finds out whether it is worth trying."""
        return key in self.rests and self._triers.get(item) != key

    def add(self, item: T, key: Hashable, now: float) -> bool:
        """
        It found nobody, or `holds`: it waits.

        :returns: True for the first one.
        """
        is_first = key not in self.rests
        if is_first:
            self.rests[key] = _Rest(now, now + self._pauses.seconds(0))
        self.rests[key].waiting[item] = None
        self._keys[item] = key
        self.ended(item, now)
        return is_first

    def forget(self, item: T) -> bool:
        """It waits no more; False when it did not wait."""
        key = self._keys.pop(item, None)
        if key is None:
            return False
        rest = self.rests[key]
        del rest.waiting[item]
        self._drop_if_empty(key, rest)
        return True

    def due(self, now: float) -> list[T]:
        """Those who are to try now, one for each key; `ended` or `add` has to follow."""
        triers = []
        for key, rest in self.rests.items():
            if rest.due is not None and rest.due <= now:
                rest.due = None
                item, _ = rest.waiting.popitem(last=False)
                del self._keys[item]
                self._triers[item] = key
                triers.append(item)
        return triers

    def ended(self, item: T, now: float) -> None:
        """It found nothing out; if it was the one to try, the next one is, after a pause."""
        key = self._triers.pop(item, None)
        rest = self.rests.get(key)
        if rest is None:
            return
        rest.tried += 1
        rest.due = now + self._pauses.seconds(rest.tried)
        self._drop_if_empty(key, rest)

    def back(self, item: T, key: Hashable, now: float) -> tuple[list[T], float]:
        """
        It was answered: what it tried, and `key`, is there.

        :returns: who waited, in order, and for how long the first of them, s.
        """
        waiters: list[T] = []
        lasted = 0.0
        for served in {self._triers.get(item, key): None, key: None}:
            rest = self.rests.pop(served, None)
            if rest is not None:
                waiters += rest.waiting
                lasted = max(lasted, now - rest.since)
            self._triers = {trier: of for trier, of in self._triers.items() if of != served}
        for waiting in waiters:
            del self._keys[waiting]
        return waiters, lasted

    def items(self) -> list[T]:
        """All who wait."""
        return list(self._keys)

    def next_due(self) -> float | None:
        """When to ask `due`."""
        return min((rest.due for rest in self.rests.values() if rest.due is not None), default=None)

    def _drop_if_empty(self, key: Hashable, rest: _Rest[T]) -> None:
        if not rest.waiting and rest.due is not None:
            del self.rests[key]
