"""The first byte of a connection tells TLS and HTTP/2 from remoting and replication."""

from enum import Enum

HTTP2_FIRST = ord("P")
"""
The first byte of HTTP/2, whose clients begin with `PRI * HTTP/2.0`. As the first byte of a frame's
length it would be too large.
"""
HTTP2 = b"h2"
"""HTTP/2's name in ALPN, by which both ends of a TLS connection choose a protocol."""


class FirstByte(Enum):
    """How a new connection goes on."""

    PLAIN = "plain"
    START_TLS = "start TLS"
    CLOSE = "close"
