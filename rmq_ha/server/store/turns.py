"""How long requests wait before this process gets to them, and whether anybody makes them wait."""

from collections import deque
from collections.abc import Hashable

_TURNS = 3


class TurnWatch:
    """
    The length of the reactor's last turns: who arrives just after its socket was looked at waits
    for about one.

    It is measured while there is work, from an append to the turn that takes care of it, so that no
    timer runs for it. Only a turn with a queue in it counts: a sender with more than one request in
    flight. Those that wait for each answer are never more than there are connections; where such a
    turn is long, the machine is busy with something else, and to refuse them mends nothing.

    :ivar shortest: of the last three turns, s; 0 where none of them was a long one with a queue.
    """

    def __init__(self) -> None:
        self._waits = deque([0.0] * _TURNS, _TURNS)
        self.shortest = 0.0
        self._at = 0.0
        self._sends: dict[Hashable, int] = {}
        self._is_queue = False

    def came(self, sender: Hashable, sends: int) -> bool:
        """
        Note sends of this turn; whether this sender has several of them in it.

        :param sends: 0 only asks.
        """
        count = self._sends.get(sender, 0) + sends
        if sends:
            self._sends[sender] = count
        is_queue = count > 1
        self._is_queue |= is_queue
        return is_queue

    def took(self, seconds: float, now: float) -> None:
        self._waits.append(seconds if self._is_queue else 0.0)
        self.shortest = min(self._waits) if self._is_queue else 0.0
        self._at = now
        self._sends.clear()
        self._is_queue = False

    def waiting_ms(self, now: float) -> int:
        """
        What each of the last three turns took at least: one or two long ones, as when the machine
        was busy with something else, are no overload. It counts for as long as the last one took;
        then it is old.
        """
        if now - self._at > self._waits[-1]:
            return 0
        return int(self.shortest * 1000)
