"""`host:port`, read and written in one way: an IPv6 address stands in brackets.

RocketMQ's brokers register an IPv6 address without brackets, so that form is read, too.
"""

import re
from typing import NamedTuple

from rmq_ha.base.model.networks import canonical

MOST_PORT = 65535
_NAME = re.compile(r"[\w.-]+")
_MOST_SHOWN = 100


class HostPort(NamedTuple):
    """
    The address of a server's port.

    :ivar host: a name or an address, without brackets.
    """

    host: str
    port: int

    def __str__(self) -> str:
        """Return the address as a file names it: `10.0.0.5:9876`, or `[fd00::5]:9876`."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def with_distance(self, distance: int) -> "HostPort":
        """Return another port of the same host, such as the one for replication."""
        return HostPort(self.host, self.port + distance)


def parse_host_port(text: str, default_port: int | None = None) -> HostPort:
    """
    Read `host:port`; blanks around it do not count.

    :param default_port: the port of a text that names only a host; None: the text must name a port.
    :raises ValueError: the text is not `host:port`; the message ends with the form that is needed.
    """
    stripped = text.strip()
    host, colon, port = stripped.rpartition(":")
    if default_port is not None and (not colon or stripped.endswith("]")):
        host, port = stripped, str(default_port)
    is_port = port.isascii() and port.isdecimal() and 0 < int(port[:6]) <= MOST_PORT
    if not is_port or not _is_host(host):
        shown = text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
        raise ValueError(
            f"{shown!r} is not host:port; write a name or an address, and a port from 1 to "
            f"{MOST_PORT}, such as 10.0.0.5:9876 or [fd00::5]:9876"
        )
    return HostPort(host.strip("[]"), int(port))


def host_of(address: str) -> str:
    """
    Return the host of `1.2.3.4:5` or `[::1]:5`, without brackets; empty if there is no colon.

    Use it for the address of a connected peer, or for one that `parse_host_port` has checked.
    """
    return address.rpartition(":")[0].strip("[] ")


def _is_host(text: str) -> bool:
    if text.startswith("[") or text.endswith("]") or ":" in text:
        is_bracketed = text.startswith("[") and text.endswith("]")
        bare = text[1:-1] if is_bracketed else text
        return "[" not in bare and "]" not in bare and ":" in bare and canonical(bare) is not None
    return _NAME.fullmatch(text) is not None
