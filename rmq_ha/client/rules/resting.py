"""
Resting: sends that wait for a broker to come back. One of them tries; the others wait for its
result.

If each of thousands of sends tried for itself, processor and network would be busy while no broker
answers, and a starting broker would get all sends at once.
"""

from collections import OrderedDict
from collections.abc import Hashable
from random import Random
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)
_MOST_DOUBLINGS = 20


class Pauses:
    """
    Pauses between attempts: longer each time, and random, so that clients do not act together.

    :param first_ms: about the length of the first pause, in ms.
    :param most_ms: the longest pause, in ms.
    """

    def __init__(self, random: Random, first_ms: int, most_ms: int) -> None:
        self._random = random
        self._first_s = first_ms / 1000
        self._most_s = most_ms / 1000

    def seconds(self, before: int) -> float:
        """
        Return the length of the next pause, in seconds.

        :param before: how many pauses there were before.
        """
        longest: float = min(self._first_s * 2 ** min(before, _MOST_DOUBLINGS), self._most_s)
        return longest * (0.5 + self._random.random() / 2)


class _Rest(Generic[T]):
    """
    The sends that wait for one key.

    :ivar since: when the first of them began to wait.
    :ivar due: when the next send tries; None while one tries.
    :ivar tried: how many attempts have failed.
    """

    __slots__ = ("due", "since", "tried", "waiting")

    def __init__(self, since: float, due: float) -> None:
        self.since = since
        self.due: float | None = due
        self.tried = 0
        self.waiting: OrderedDict[T, None] = OrderedDict()


class Resting(Generic[T]):
    """
    The waiting sends, by key. A key is for example a topic that no broker serves at the moment.

    :ivar rests: the waiting sends of each key; empty while all keys are served.
    """

    def __init__(self, pauses: Pauses) -> None:
        self.rests: dict[Hashable, _Rest[T]] = {}
        self._pauses = pauses
        self._keys: dict[T, Hashable] = {}
        self._triers: dict[T, Hashable] = {}

    @property
    def count(self) -> int:
        """How many items wait, without those that try now."""
        return len(self._keys)

    def holds(self, item: T, key: Hashable) -> bool:
        """
        Whether an item has to wait, because another item tries the key now or will try it next.
        """
        return key in self.rests and self._triers.get(item) != key

    def add(self, item: T, key: Hashable, now: float) -> bool:
        """
        Let an item wait, because its attempt failed or `holds` is true for it.

        :returns: whether it is the first that waits for the key.
        """
        is_first = key not in self.rests
        if is_first:
            self.rests[key] = _Rest(now, now + self._pauses.seconds(0))
        self.rests[key].waiting[item] = None
        self._keys[item] = key
        self.ended(item, now)
        return is_first

    def forget(self, item: T) -> bool:
        """Remove an item; return False if it did not wait."""
        key = self._keys.pop(item, None)
        if key is None:
            return False
        rest = self.rests[key]
        del rest.waiting[item]
        self._drop_if_empty(key, rest)
        return True

    def due(self, now: float) -> list[T]:
        """
        Return the items that are to try now, at most one for each key. Call `ended`, `add` or
        `back` for each of them afterwards.
        """
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
        """
        Note that an item has ended without an answer. If it was the one to try its key, the next
        item tries after a pause.
        """
        key = self._triers.pop(item, None)
        rest = self.rests.get(key)
        if rest is None:
            return
        rest.tried += 1
        rest.due = now + self._pauses.seconds(rest.tried)
        self._drop_if_empty(key, rest)

    def back(self, item: T, key: Hashable, now: float) -> tuple[list[T], float]:
        """
        Note that an item was answered: the key that it tried, and `key`, are served again.

        :returns: the items that waited, in order, and how long the first of them waited, in
            seconds.
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
        """Return the waiting items of all keys, without those that try now."""
        return list(self._keys)

    def next_due(self) -> float | None:
        """Return when to call `due` next; None if no item is to try."""
        return min((rest.due for rest in self.rests.values() if rest.due is not None), default=None)

    def _drop_if_empty(self, key: Hashable, rest: _Rest[T]) -> None:
        if not rest.waiting and rest.due is not None:
            del self.rests[key]
