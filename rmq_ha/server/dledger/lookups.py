"""What the names in dLegerPeers stand for, looked up when somebody may have moved."""

from rmq_ha.base.seams import Host
from rmq_ha.server.dledger.members import Members

_PAUSE_S = 2.0


class Lookups:
    """
    Tells `Members` where those are that are given by name.

    Strangers cannot make it ask more often than every 2 s for each member, nor twice at a time. A
    name that nobody knows any more leaves a member where it was.
    """

    def __init__(self, host: Host, members: Members) -> None:
        self._host = host
        self._members = members
        self._not_before: dict[str, float] = {}
        self._running: set[str] = set()

    def start(self) -> None:
        """Look up all; requests that come earlier are refused, and come again."""
        self._members.doubtful.update(self._members.names)
        self.again()

    def again(self) -> None:
        """Look up who is in doubt."""
        now = self._host.clock.seconds()
        for peer in sorted(self._members.doubtful):
            if peer not in self._running and now >= self._not_before.get(peer, now):
                self._not_before[peer] = now + _PAUSE_S
                self._running.add(peer)
                looked_up = self._host.network.look_up(self._members.names[peer])
                looked_up.addCallback(self._found, peer)
        self._members.doubtful.clear()

    def _found(self, addresses: list[str], peer: str) -> None:
        self._running.discard(peer)
        if addresses:
            self._members.located(peer, addresses)
