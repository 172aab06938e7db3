"""How many sends may wait for answers, and who waits for a place among them."""

from collections import OrderedDict
from collections.abc import Hashable
from enum import Enum
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Admission(Enum):
    """What becomes of a send at first."""

    GO = 0
    WAIT = 1
    REFUSED = 2


class InFlight(Generic[T]):
    """
    Counts sends and their bytes. One that is larger than all bytes goes when it is alone.

    :ivar count: sends in flight.
    :ivar size: bytes in flight.
    """

    __slots__ = ("_max_count", "_max_size", "_max_waiting", "_waiting", "count", "size")

    def __init__(self, max_count: int, max_size: int, max_waiting: int) -> None:
        self._max_count = max(1, max_count)
        self._max_size = max_size
        self._max_waiting = max_waiting
        self._waiting: OrderedDict[T, int] = OrderedDict()
        self.count = 0
        self.size = 0

    @property
    def has_room(self) -> bool:
        """One more would go at once, unless it is large."""
        return not self._waiting and self._fits(0)

    @property
    def waiting(self) -> int:
        """How many wait for a place."""
        return len(self._waiting)

    def admit(self, item: T, size: int, *, again: bool = False) -> Admission:
        """
        Let it go, or wait.

        :param size: bytes.
        :param again: it was here before, and is not refused.
        """
        if not self._waiting and self._fits(size):
            self.count += 1
            self.size += size
            return Admission.GO
        if len(self._waiting) >= self._max_waiting and not again:
            return Admission.REFUSED
        self._waiting[item] = size
        return Admission.WAIT

    def release(self, size: int) -> bool:
        """One that was in flight is done; True when others wait."""
        self.count -= 1
        self.size -= size
        return bool(self._waiting)

    def next(self) -> T | None:
        """The first that waits, if there is a place for it; it has the place then."""
        if not self._waiting:
            return None
        item, size = next(iter(self._waiting.items()))
        if not self._fits(size):
            return None
        self._waiting.popitem(last=False)
        self.count += 1
        self.size += size
        return item

    def forget(self, item: T) -> bool:
        """It waits no more; False when it did not wait."""
        return self._waiting.pop(item, None) is not None

    def items_waiting(self) -> list[T]:
        """In their order."""
        return list(self._waiting)

    def _fits(self, size: int) -> bool:
        if self.count >= self._max_count:
            return False
        return self.count == 0 or self.size + size <= self._max_size
