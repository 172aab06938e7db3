"""What a master remembers of slaves that cannot prove what they have, and who has to leave when
there are too many.

Spec: ha.md, section 14.2.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Protocol, TypeVar

from rmq_ha.server.replication.classic.feed import Feed

MOST_HOSTS = 256


class RefusedSlaves:
    """
    By machine: up to where a slave that was ahead of us may have our log.

    It stays refused, though our log outgrows it, until it comes with that or less: it would be fed
    from the middle of something that is not ours. A slave of ours that proves what it has need not
    care. Known for this run; the oldest goes when there are MOST_HOSTS.
    """

    def __init__(self) -> None:
        self._ceilings: dict[str, int] = {}

    @property
    def hosts(self) -> list[str]:
        """The machines, in the order in which they came."""
        return list(self._ceilings)

    def ceiling(self, host: str) -> int | None:
        """The largest first report that is taken from there; None: any."""
        return self._ceilings.get(host)

    def remember(self, host: str, end: int) -> None:
        """Its slave claimed more than our log held, which ended there."""
        known = self._ceilings.get(host)
        if known is None and len(self._ceilings) >= MOST_HOSTS:
            del self._ceilings[next(iter(self._ceilings))]
        self._ceilings[host] = end if known is None else min(known, end)

    def forget(self, host: str) -> None:
        """It came with less."""
        self._ceilings.pop(host, None)


class SentTo:
    """By machine: up to where it was sent our log in this run; the oldest goes as above."""

    def __init__(self) -> None:
        self._ends: dict[str, int] = {}

    def covers(self, host: str, offset: int) -> bool:
        """It was sent that much."""
        return offset <= self._ends.get(host, -1)

    def note(self, host: str, end: int) -> None:
        """A connection with it ended."""
        known = self._ends.pop(host, -1)
        if len(self._ends) >= MOST_HOSTS:
            del self._ends[next(iter(self._ends))]
        self._ends[host] = max(known, end)


class Fed(Protocol):
    """A replication connection."""

    feed: Feed

    @property
    def peer_host(self) -> str:
        """The machine at its other end."""


F = TypeVar("F", bound=Fed)


def whom_to_turn_away(connections: Sequence[F], most: int) -> F | None:
    """
    Who leaves now that there is one connection more.

    Of the machines with the most connections one that never reported, or else the newest: nobody
    who opens many of them keeps the slave out that comes with one. The newest may still report.

    :param connections: oldest first; the last one has just come.
    :param most: how many there may be.
    """
    if len(connections) <= most:
        return None
    of_host = Counter(connection.peer_host for connection in connections)
    heaviest = max(of_host.values())
    candidates = [
        connection for connection in connections if of_host[connection.peer_host] == heaviest
    ]
    silent = [connection for connection in candidates if connection.feed.requested is None]
    if silent and silent[0] is not connections[-1]:
        return silent[0]
    return candidates[-1]
