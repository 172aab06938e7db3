"""Finds ports of this machine that a server can take."""

import socket
from random import SystemRandom

# Below those that systems give to outgoing connections (Linux: from 32768 on), any of which
# could take a free port before its server listens.
_FIRST, _LAST = 10_000, 32_000
TAKEN = "it is in use by another process"
"""
The words with which a server's output says that another process has its port. The process may have
taken the port after `free_ports` found it.
"""


def free_ports(count: int) -> int:
    """
    Return the first of `count` neighbouring ports that can be bound on loopback now.

    The search begins at a random port, so that processes that search at the same time find
    different ports.

    :raises OSError: there are no such ports.
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
