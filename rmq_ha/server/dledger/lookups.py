"""Look-ups of the host names in `dLegerPeers`, repeated when a member may have moved."""

from rmq_ha.base.seams import Host
from rmq_ha.server.dledger.members import Members

_PAUSE_S = 2.0


class Lookups:
    """
    Looks up the addresses of members that `dLegerPeers` gives by name, and tells `Members`.

    Each name is looked up at most every 2 s and never twice at a time, so strangers cannot cause
    more look-ups. If a name is not found any more, its member keeps its last known addresses.
    """

    def __init__(self, host: Host, members: Members) -> None:
        self._host = host
        self._members = members
        self._not_before: dict[str, float] = {}
        self._running: set[str] = set()

    def start(self) -> None:
        """
        Look up all names. Requests that arrive earlier are refused; their senders repeat them.
        """
        self._members.doubtful.update(self._members.names)
        self.look_up_doubtful()

    def look_up_doubtful(self) -> None:
        """Look up the names of the members in `Members.doubtful`."""
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
