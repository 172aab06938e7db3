"""Admission: limits a process's connections, in total and for each address."""

import resource
from collections.abc import Iterable
from typing import Protocol

MOST_KNOWN = 256
_FEWEST_FOR_FILES, _MOST_FOR_FILES = 96, 16_384
_MOST_KEPT = 64
IN_ALL, BY_ADDRESS = "maxConnections", "maxConnectionsPerIp"


class ConnectionLimits(Protocol):
    """
    The settings of the limits, which may change at any time. 0 stands for the value that
    `Admission` computes from the descriptors.
    """

    max_connections: int
    max_connections_per_ip: int


class Admission:
    """
    Counts the connections that all listening ports of a process have taken, and refuses more.

    Log, queues and small files have descriptors of their own, which no connection ever takes. The
    last places are kept for this machine and for known brokers. So strangers from many addresses do
    not keep slaves, name servers and operators out. IPv6 addresses count by their first 64 bits,
    because the owner of one address there has all addresses of that block.

    :param descriptors: how many descriptors the process may have; RLIM_INFINITY for no limit.
    :param known: addresses of brokers; host names among them have no effect.
    :ivar for_files: how many descriptors are kept for files.
    :ivar taken: how many connections are open.
    :ivar refused: how many connections were refused, by configuration key.
    """

    def __init__(
        self, limits: ConnectionLimits, descriptors: int, known: Iterable[str] = ()
    ) -> None:
        self._limits = limits
        self._descriptors = descriptors
        self.for_files = _MOST_FOR_FILES
        if descriptors != resource.RLIM_INFINITY:
            fewest = min(_FEWEST_FOR_FILES, descriptors // 2)
            self.for_files = max(fewest, min(descriptors // 4, _MOST_FOR_FILES))
        self._known = {"127.0.0.1", "::1"}
        self._by_address: dict[str, int] = {}
        self.taken = 0
        self.refused = {IN_ALL: 0, BY_ADDRESS: 0}
        for host in known:
            self.know(host)

    @property
    def places(self) -> int | None:
        """How many connections may be open; None without a limit."""
        room = None
        if self._descriptors != resource.RLIM_INFINITY:
            room = max(1, self._descriptors - self.for_files)
        limit = self._limits.max_connections
        return room if not limit else min(limit, room or limit)

    def know(self, host: str) -> None:
        """Note the address of a broker of this cluster, which may take the last places."""
        if len(self._known) < MOST_KNOWN:
            self._known.add(_plain(host))

    def why_not(self, host: str) -> str | None:
        """
        Decide whether a new connection is accepted, and count it if it is refused.

        :returns: the configuration key of the limit that refuses it; None to accept it.
        """
        places, host = self.places, _plain(host)
        per_address = self._limits.max_connections_per_ip
        if not per_address and places is not None:
            per_address = max(1, places // 2)
        key = None
        if per_address and self._by_address.get(_block(host), 0) >= per_address:
            key = BY_ADDRESS
        elif places is not None:
            kept = 0 if host in self._known else min(_MOST_KEPT, places // 8)
            if self.taken >= places - kept:
                key = IN_ALL
        if key is not None:
            self.refused[key] += 1
        return key

    def connection_made(self, host: str) -> None:
        """Count an accepted connection of an address."""
        block = _block(_plain(host))
        self.taken += 1
        self._by_address[block] = self._by_address.get(block, 0) + 1

    def connection_lost(self, host: str) -> None:
        """Stop counting a connection of an address."""
        block = _block(_plain(host))
        self.taken -= 1
        left = self._by_address.pop(block) - 1
        if left:
            self._by_address[block] = left


def _plain(host: str) -> str:
    """Return an IPv4 address in IPv4 form, also if it was mapped to IPv6."""
    return host.removeprefix("::ffff:") if "." in host else host.partition("%")[0]


def _block(host: str) -> str:
    """Return the part that counts as one address: all of an IPv4, the first half of an IPv6."""
    head, gap, tail = host.partition("::")
    groups = head.split(":") if head else []
    if gap:
        rest = tail.split(":") if tail else []
        groups += ["0"] * (8 - len(groups) - len(rest)) + rest
    return ":".join(groups[:4])
