"""InFlight: limits how many sends wait for answers, and queues the sends beyond that limit."""

from collections import OrderedDict
from collections.abc import Hashable
from enum import Enum
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class SendAdmission(Enum):
    """The decision about a new send: it goes, waits for a place, or is refused."""

    GO = 0
    WAIT = 1
    REFUSED = 2


class InFlight(Generic[T]):
    """
    Counts sends in flight, which wait for answers, and their bytes. Further sends wait for a place.
    A send that is larger than the limit of bytes goes when no other send is in flight.

    :ivar count: number of sends in flight.
    :ivar size: bytes of the sends in flight.
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
        """Whether one more small send would go at once."""
        return not self._waiting and self._fits(0)

    @property
    def waiting(self) -> int:
        """How many sends wait for a place."""
        return len(self._waiting)

    def admit(self, item: T, size: int, *, again: bool = False) -> SendAdmission:
        """
        Let a send go, or wait, or refuse it.

        :param size: the size of the send, in bytes.
        :param again: whether the send was admitted before; then it is never refused.
        """
        if not self._waiting and self._fits(size):
            self.count += 1
            self.size += size
            return SendAdmission.GO
        if len(self._waiting) >= self._max_waiting and not again:
            return SendAdmission.REFUSED
        self._waiting[item] = size
        return SendAdmission.WAIT

    def release(self, size: int) -> bool:
        """Free the place of a send that is done; return whether other sends wait."""
        self.count -= 1
        self.size -= size
        return bool(self._waiting)

    def next(self) -> T | None:
        """Give a place to the first waiting send and return it; None if none waits or fits."""
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
        """Take a send out of the waiting ones; return False if it did not wait."""
        return self._waiting.pop(item, None) is not None

    def items_waiting(self) -> list[T]:
        """Return the waiting sends, in their order."""
        return list(self._waiting)

    def _fits(self, size: int) -> bool:
        if self.count >= self._max_count:
            return False
        return self.count == 0 or self.size + size <= self._max_size
