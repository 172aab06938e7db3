"""The master's memory of slaves that cannot prove their logs, and the choice of a surplus
connection.

Spec: ha.md, section 14.2.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Protocol, TypeVar

from rmq_ha.server.replication.classic.feed import Feed

MOST_HOSTS = 256


class RefusedSlaves:
    """
    Remembers the machines whose slaves had longer logs than this broker, and the largest first
    report that is accepted from each.

    A larger report stays refused even when this broker's log outgrows it: the slave would be fed
    from the middle of bytes that are not this broker's. A rmq-ha slave that proves its log is not
    concerned. The memory lasts for this run; the oldest entry is forgotten when there are more than
    MOST_HOSTS.
    """

    def __init__(self) -> None:
        self._ceilings: dict[str, int] = {}

    @property
    def hosts(self) -> list[str]:
        """Return the machines, in the order in which they came."""
        return list(self._ceilings)

    def ceiling(self, host: str) -> int | None:
        """Return the largest first report that is accepted from a machine; None: any."""
        return self._ceilings.get(host)

    def remember(self, host: str, end: int) -> None:
        """Remember that a machine's slave reported more than this log, which ended at `end`."""
        known = self._ceilings.get(host)
        if known is None and len(self._ceilings) >= MOST_HOSTS:
            del self._ceilings[next(iter(self._ceilings))]
        self._ceilings[host] = end if known is None else min(known, end)

    def forget(self, host: str) -> None:
        """Forget a machine, since its slave came with a smaller report."""
        self._ceilings.pop(host, None)


class SentTo:
    """
    Remembers for at most MOST_HOSTS machines up to which offset they were sent the log in this run.
    If there are more, the oldest is forgotten.
    """

    def __init__(self) -> None:
        self._ends: dict[str, int] = {}

    def covers(self, host: str, offset: int) -> bool:
        """Whether a machine was sent the log up to an offset."""
        return offset <= self._ends.get(host, -1)

    def note(self, host: str, end: int) -> None:
        """Remember the end of a machine's connection, which was sent the log up to `end`."""
        known = self._ends.pop(host, -1)
        if len(self._ends) >= MOST_HOSTS:
            del self._ends[next(iter(self._ends))]
        self._ends[host] = max(known, end)


class SlaveConnection(Protocol):
    """A replication connection of a slave to this master."""

    feed: Feed

    @property
    def peer_host(self) -> str:
        """Return the machine at the other end."""


F = TypeVar("F", bound=SlaveConnection)


def whom_to_turn_away(connections: Sequence[F], most: int) -> F | None:
    """
    Return the connection that has to leave now that one more has come; None: all may stay.

    Only machines with the most connections lose one: the oldest connection that never reported, or
    else the newest one. So a machine that opens many connections cannot keep out a slave that opens
    one.

    :param connections: oldest first; the last one has just come.
    :param most: the number of connections that may stay.
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
