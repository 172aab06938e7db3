"""Ports that nobody has."""

import socket
from random import SystemRandom

# Below those that systems give to outgoing connections (Linux: from 32768 on), any of which
# could take a free port before its server listens.
_FIRST, _LAST = 10_000, 32_000
TAKEN = "it is in use by another process"
"""What a server says of a port that it cannot listen on, as it does when somebody was quicker."""


def free_ports(count: int) -> int:
    """
    The first of `count` neighbouring ports that can be bound on loopback now.

    The search begins anywhere, so that those who look at the same time find different ones.

    :raises OSError: there are none.
    """
    start: int = SystemRandom().randrange(_FIRST, _LAST - count)
    base: int
    for base in (*range(start, _LAST - count, count), *range(_FIRST, start, count)):
        if all(_is_free(port) for port in range(base, base + count)):
            return base
    raise OSError(f"no {count} neighbouring ports are free on 127.0.0.1")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
