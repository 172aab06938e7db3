"""What the first byte of a connection says: it tells TLS from remoting and replication."""

from enum import Enum


class FirstByte(Enum):
    """How a new connection goes on."""

    PLAIN = "plain"
    START_TLS = "start TLS"
    CLOSE = "close"
