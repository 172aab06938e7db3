"""When leases end, by the steady clock of the master that gives them.

Lease times in the journal are of the wall clock. Only the time that is left counts here, so a step
of the wall clock ends no lease early or late.
"""

from array import array
from heapq import heappop, heappush
from typing import NamedTuple

from rmq_ha.server.pop.state import QueueName

_TICK_MS = 100
_ITEMS = 5


class DueLeases(NamedTuple):
    """
    Messages of one queue whose leases end at the same time.

    A message whose lease has another due time by now, or none, does not count.

    :ivar first: queue offset of the first message.
    :ivar last: queue offset of the last message.
    :ivar due_ms: when the leases end, by the wall clock, as the journal has it.
    """

    queue: QueueName
    first: int
    last: int
    due_ms: int


class DueIndex:
    """
    The ends of all leases, rounded up to steps of 100 ms.

    A lease that an acknowledgement or a change ended stays in the index until its time. So the
    caller of `take` has to compare each due time with that of the present lease. One pop takes 40
    bytes.
    """

    def __init__(self) -> None:
        self._ticks: dict[int, array[int]] = {}
        self._order: list[int] = []

    def add(self, deadline_ms: int, leases: DueLeases) -> None:
        """
        Add leases of one pop.

        :param deadline_ms: the end, by the steady clock.
        """
        tick = -(-deadline_ms // _TICK_MS)
        items = self._ticks.get(tick)
        if items is None:
            items = self._ticks[tick] = array("q")
            heappush(self._order, tick)
        items.extend((*leases.queue, leases.first, leases.last, leases.due_ms))

    def next_ms(self) -> int | None:
        """Return the steady time in ms when the next leases end; None if there are none."""
        return self._order[0] * _TICK_MS if self._order else None

    def take(self, now_ms: int, most: int) -> list[DueLeases]:
        """
        Remove the leases that have ended from the index, and return them, the oldest first.

        :param now_ms: the steady time.
        :param most: stop when so many messages are taken. The leases of one pop are never divided,
            so the result may have more.
        """
        taken: list[DueLeases] = []
        count = 0
        while self._order and self._order[0] * _TICK_MS <= now_ms and count < most:
            items = self._ticks[self._order[0]]
            place = 0
            while place < len(items) and count < most:
                name, queue_id, first, last, due = items[place : place + _ITEMS]
                taken.append(DueLeases((name, queue_id), first, last, due))
                count += last - first + 1
                place += _ITEMS
            if place < len(items):
                del items[:place]
                break
            del self._ticks[heappop(self._order)]
        return taken
