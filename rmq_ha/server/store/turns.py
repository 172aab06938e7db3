"""Measures how long requests wait before this process handles them, and whether a queue of sends is
the cause.
"""

from collections import deque
from collections.abc import Hashable

_TURNS = 3


class TurnWatch:
    """
    The durations of the reactor's last turns.

    A request that arrives just after its socket was read waits for about one turn.

    A turn is measured from an append to the turn that handles its records, so turns without work
    are not measured, and no timer is needed. Only a turn with a queue counts: one in which a sender
    has several requests in flight. Senders that wait for each answer have at most one request for
    each connection. If a turn with only such senders is long, other work keeps the machine busy,
    and refusing sends would not help.

    :ivar shortest: the shortest of the last three turns, seconds; 0 if any of them was without a
        queue.
    """

    def __init__(self) -> None:
        self._waits = deque([0.0] * _TURNS, _TURNS)
        self.shortest = 0.0
        self._at = 0.0
        self._sends: dict[Hashable, int] = {}
        self._is_queue = False

    def count_sends(self, sender: Hashable, sends: int) -> bool:
        """
        Count sends of this turn; return whether this sender has several of them in it.

        :param sends: number of sends, to be counted; 0: count none.
        """
        count = self._sends.get(sender, 0) + sends
        if sends:
            self._sends[sender] = count
        is_queue = count > 1
        self._is_queue |= is_queue
        return is_queue

    def end_turn(self, seconds: float, now: float) -> None:
        """
        Note that a turn is over, and begin to count the sends of the next one.

        :param seconds: duration of the turn, from its first append on.
        :param now: time in seconds.
        """
        self._waits.append(seconds if self._is_queue else 0.0)
        self.shortest = min(self._waits) if self._is_queue else 0.0
        self._at = now
        if self._sends:
            self._sends.clear()
        self._is_queue = False

    def waiting_ms(self, now: float) -> int:
        """
        Return how many ms the shortest of the last three turns took.

        One or two long turns, as when other work keeps the machine busy, are no overload. The
        result counts for as long as the last turn took; after that it is 0.
        """
        if now - self._at > self._waits[-1]:
            return 0
        return int(self.shortest * 1000)
