"""What connections have sent of frames that are not whole yet, and who has to go when it is much.

Spec: remoting.md, section 1.2.
"""

from typing import Protocol

from rmq_ha.base.config.netty import NettyServerConfig
from rmq_ha.base.errors import ProtocolViolation

FREE_BYTES = 4096
"""Of each connection, which are not counted: the end of a chunk is nearly always within a frame."""
PER_HOST = "maxUnfinishedBytesPerIp"
IN_ALL = "maxUnfinishedBytes"
TIMEOUT = "frameTimeoutSeconds"


class Sender(Protocol):
    """A connection."""

    @property
    def host(self) -> str:
        """The peer's address without its port."""

    def overrun(self, violation: ProtocolViolation) -> None:
        """Close it and free what it sent."""


class UnfinishedFrames:
    """
    Adds up what waits for the rest of its frame, before anybody knows whose it is.

    It costs nothing to send 16 MiB but one byte on each of a thousand connections. A frame of an
    honest peer is whole within seconds, so that the oldest goes first: of the address that has too
    much, or of all.

    :ivar kept: bytes, in all.
    :ivar dropped: connections that had to go, by the key that says so.
    """

    def __init__(self, config: NettyServerConfig) -> None:
        self._config = config
        self.kept = 0
        self.dropped = dict.fromkeys((PER_HOST, IN_ALL, TIMEOUT), 0)
        # Both oldest first: a frame keeps its place while it grows.
        self._sizes: dict[Sender, int] = {}
        self._hosts: dict[str, dict[Sender, None]] = {}
        self._of_host: dict[str, int] = {}

    @property
    def timeout(self) -> int:
        """Seconds within which a frame has to be whole; 0: any."""
        return self._config.frame_timeout_seconds

    @property
    def max_header_size(self) -> int:
        """Bytes of a frame's header."""
        return self._config.max_header_size

    def keep(self, sender: Sender, size: int) -> None:
        """
        So many bytes of a connection are waiting now.

        :param size: none, or less than `FREE_BYTES`: as `forget`.
        """
        if size <= FREE_BYTES:
            self.forget(sender)
            return
        host = sender.host
        change = size - self._sizes.get(sender, 0)
        self._sizes[sender] = size
        self._hosts.setdefault(host, {})[sender] = None
        self._of_host[host] = self._of_host.get(host, 0) + change
        self.kept += change
        most = self._config.max_unfinished_bytes_per_ip
        while self._of_host.get(host, 0) > most:
            self._drop(next(iter(self._hosts[host])), PER_HOST, most)
        most = self._config.max_unfinished_bytes
        while self.kept > most:
            self._drop(next(iter(self._sizes)), IN_ALL, most)

    def forget(self, sender: Sender) -> None:
        """Its frame is whole, or its connection gone; harmless when there is nothing."""
        size = self._sizes.pop(sender, 0)
        if not size:
            return
        host = sender.host
        self.kept -= size
        self._of_host[host] -= size
        del self._hosts[host][sender]
        if not self._hosts[host]:
            del self._hosts[host], self._of_host[host]

    def is_too_slow(self, sender: Sender) -> ProtocolViolation:
        """A frame was not whole in time: why its connection is closed."""
        self.forget(sender)
        self.dropped[TIMEOUT] += 1
        return ProtocolViolation(f"a frame is not whole after {self.timeout} s ({TIMEOUT})")

    def _drop(self, sender: Sender, key: str, most: int) -> None:
        size = self._sizes[sender]
        self.forget(sender)
        self.dropped[key] += 1
        whose = f"of {sender.host}" if key == PER_HOST else "in all"
        sender.overrun(
            ProtocolViolation(
                f"{size} bytes of a frame that is not whole: the oldest, and there are more than "
                f"{most} bytes of such {whose} ({key})"
            )
        )
