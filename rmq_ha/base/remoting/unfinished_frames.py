"""What connections have sent of frames that are not whole yet, and who waits when it is much.

Spec: remoting.md, section 1.2.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from rmq_ha.base.config.netty import NettyServerConfig
from rmq_ha.base.errors import ProtocolViolation

FREE_BYTES = 4096
"""Of each connection, which are not counted: the end of a chunk is nearly always within a frame."""
PER_HOST = "maxUnfinishedBytesPerIp"
IN_ALL = "maxUnfinishedBytes"
TIMEOUT = "frameTimeoutSeconds"
LOOK_S = 5.0
LEAST_BYTES = 65536
"""A frame for which others wait has to grow by so much from one look to the next."""


READ_PART = 0.75
"""Of an address's limit, for the frames that are read; the rest is for the beginnings of those that
wait, which have come before anybody knew how large their frames are."""
SMALL_PART = 64
"""A frame of such a part of an address's limit, for which there is room, does not wait for larger
ones: the usual message has some KiB."""


class Sender(Protocol):
    """A connection that may hold a part of a frame."""

    @property
    def host(self) -> str:
        """The peer's address without its port."""

    @property
    def waits_here(self) -> bool:
        """Its peer may send, but this side does not read for now, for reasons of its own."""

    def put_off(self) -> None:
        """Read nothing more until `let_read`: frames of its address that are older come first."""

    def let_read(self) -> None:
        """Its frame may be read on."""

    def overrun(self, violation: ProtocolViolation) -> None:
        """Close it and free what it sent."""


class _Frame:
    """
    Of one connection.

    :ivar size: bytes that wait.
    :ivar missing: bytes that are still to come.
    :ivar looked: what was missing at the last look; -1: there was none.
    """

    __slots__ = ("looked", "missing", "size")

    def __init__(self) -> None:
        self.size = self.missing = 0
        self.looked = -1


@dataclass(slots=True)
class _Address:
    """
    The connections of one address.

    :ivar size: bytes that wait, in all.
    :ivar due: bytes that are still to come of the frames that are being read.
    :ivar reading: connections whose frames are being read, oldest frame first.
    :ivar waiting: connections that are put off, oldest frame first.
    """

    size: int = 0
    due: int = 0
    reading: dict[Sender, _Frame] = field(default_factory=dict)
    waiting: dict[Sender, _Frame] = field(default_factory=dict)


class UnfinishedFrames:
    """
    Adds up what waits for the rest of its frame, before anybody knows whose it is.

    It costs nothing to send 16 MiB but one byte on each of a thousand connections. So the frames of
    one address are read as far as all of them find room. The newest ones wait until an older one
    is whole, but for small ones that find room. A frame that hardly grows while others wait is
    dropped; so are the newest ones when not even their beginnings find room. Beyond the limit of
    all addresses together the oldest frame is dropped: else two addresses could keep all others
    waiting.

    :ivar kept: bytes, in all.
    :ivar dropped: connections that had to go, by the key that says so.
    :ivar waits: how often a connection was put off.
    """

    def __init__(self, config: NettyServerConfig, clock: IReactorTime) -> None:
        self._config = config
        self._clock = clock
        self._look: IDelayedCall | None = None
        self.kept = 0
        self.waits = 0
        self.dropped = dict.fromkeys((PER_HOST, IN_ALL, TIMEOUT), 0)
        self._frames: dict[Sender, _Frame] = {}  # oldest first: a frame keeps its place
        self._addresses: dict[str, _Address] = {}

    @property
    def timeout(self) -> int:
        """Seconds within which a frame has to be whole; 0: any."""
        return self._config.frame_timeout_seconds

    @property
    def max_header_size(self) -> int:
        """Bytes of a frame's header."""
        return self._config.max_header_size

    def keep(self, sender: Sender, size: int, missing: int = 0) -> None:
        """
        So many bytes of a connection are waiting now.

        :param size: `FREE_BYTES` or less: its frame is whole, or has hardly begun.
        :param missing: bytes that are still to come of its frame.
        """
        if size <= FREE_BYTES:
            if self._remove(sender):
                sender.let_read()
            return
        most = self._config.max_unfinished_bytes_per_ip
        if size + missing > most:  # it will be dropped; until then it takes no room from others
            missing = 0
        frame, waited = self._frames.get(sender), False
        if frame is not None and missing > frame.missing:  # another one: the one before is whole
            frame, waited = None, self._remove(sender)
        if frame is None:
            frame = self._frames[sender] = _Frame()
        address = self._addresses.setdefault(sender.host, _Address())
        self.kept += size - frame.size
        address.size += size - frame.size
        if sender in address.reading:
            address.due += missing - frame.missing
        frame.size, frame.missing = size, missing
        if sender not in address.reading and sender not in address.waiting:
            self._begin(sender, frame, address, most)
            if waited and sender in address.reading:
                sender.let_read()
        while address.waiting and address.size + address.due > most:
            self._drop(next(reversed(address.waiting)), PER_HOST, most, "the newest")
        while address.size > most:
            self._drop(next(iter(address.reading)), PER_HOST, most, "the oldest")
        most = self._config.max_unfinished_bytes
        while self.kept > most:
            self._drop(next(iter(self._frames)), IN_ALL, most, "the oldest")

    def forget(self, sender: Sender) -> None:
        """Its connection is gone; harmless when there is nothing."""
        self._remove(sender)

    def drop_too_slow(self, sender: Sender) -> ProtocolViolation:
        """Drop a frame that was not whole in time, and return why its connection is closed."""
        self.forget(sender)
        self.dropped[TIMEOUT] += 1
        return ProtocolViolation(f"a frame is not whole after {self.timeout} s ({TIMEOUT})")

    def _remove(self, sender: Sender) -> bool:
        """Take out what waits, and let others read on in its place; whether it was put off."""
        frame = self._frames.pop(sender, None)
        if frame is None:
            return False
        host = sender.host
        address = self._addresses[host]
        self.kept -= frame.size
        address.size -= frame.size
        waited = address.waiting.pop(sender, None) is not None
        if not waited:
            del address.reading[sender]
            address.due -= frame.missing
        self._let_read(address)
        if not address.reading:
            self._addresses.pop(host, None)
        return waited

    def _begin(self, sender: Sender, frame: _Frame, address: _Address, most: int) -> None:
        """The first bytes of a frame have come: read on, or put it off."""
        will_be = address.size + address.due + frame.missing
        is_small = frame.size + frame.missing <= most // SMALL_PART
        is_first = not address.waiting and will_be <= most * READ_PART
        if not address.reading or is_first or (is_small and will_be <= most):
            address.reading[sender] = frame
            address.due += frame.missing
            return
        address.waiting[sender] = frame
        self.waits += 1
        if self._look is None:
            call_later: Callable[..., IDelayedCall] = self._clock.callLater
            self._look = call_later(LOOK_S, self._look_at_all)
        sender.put_off()

    def _let_read(self, address: _Address) -> None:
        """The oldest that wait are read on, as far as there is room for them now."""
        most = self._config.max_unfinished_bytes_per_ip
        while address.waiting:
            sender, frame = next(iter(address.waiting.items()))
            will_be = address.size + address.due + frame.missing
            if address.reading and will_be > most * READ_PART:
                return
            del address.waiting[sender]
            address.reading[sender] = frame
            address.due += frame.missing
            sender.let_read()

    def _look_at_all(self) -> None:
        """Frames that hardly grow while others wait for them: drop them."""
        self._look = None
        most = self._config.max_unfinished_bytes_per_ip
        for address in [item for item in self._addresses.values() if item.waiting]:
            for sender, frame in list(address.reading.items()):
                has_grown = frame.looked < 0 or frame.looked - frame.missing >= LEAST_BYTES
                frame.looked = frame.missing
                if not has_grown and not sender.waits_here and address.waiting:
                    self._drop(sender, PER_HOST, most, f"it hardly grew in {LOOK_S:.0f} s")
        if any(address.waiting for address in self._addresses.values()):
            self._look = self._clock.callLater(LOOK_S, self._look_at_all)

    def _drop(self, sender: Sender, key: str, most: int, why: str) -> None:
        size = self._frames[sender].size
        self.forget(sender)
        self.dropped[key] += 1
        whose = f"of {sender.host}" if key == PER_HOST else "in all"
        sender.overrun(
            ProtocolViolation(
                f"{size} bytes of a frame that is not whole: {why}, and there is no room for more "
                f"than {most} bytes of such {whose} ({key})"
            )
        )
