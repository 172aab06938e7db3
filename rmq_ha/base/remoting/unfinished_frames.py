"""UnfinishedFrames: limits the memory of frames that have not arrived completely.

Spec: remoting.md, section 1.2.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from rmq_ha.base.config.netty import NettyServerConfig
from rmq_ha.base.errors import ProtocolViolation

FREE_BYTES = 4096
"""Bytes of each connection that are not counted, as a chunk nearly always ends within a frame."""
PER_HOST = "maxUnfinishedBytesPerIp"
IN_ALL = "maxUnfinishedBytes"
TIMEOUT = "frameTimeoutSeconds"
LOOK_S = 5.0
LEAST_BYTES = 65536
"""Bytes by which a frame has to grow from one look to the next, while other frames wait."""


READ_PART = 0.75
"""Part of an address's limit for the frames that are being read. The rest is for the beginnings of
waiting frames, which have arrived before their size was known.
"""
SMALL_PART = 64
"""A frame below this part (1/64) of an address's limit does not wait for larger frames, if it has
room: a usual message has some KiB.
"""


class FrameSender(Protocol):
    """A connection that may hold a part of a frame."""

    @property
    def host(self) -> str:
        """The peer's address without its port."""

    @property
    def waits_here(self) -> bool:
        """Whether this end does not read for other reasons, although the peer may send."""

    def put_off(self) -> None:
        """Stop reading until `let_read`, as older frames of the same address come first."""

    def let_read(self) -> None:
        """Read on the rest of the frame."""

    def overrun(self, violation: ProtocolViolation) -> None:
        """Close the connection and free its bytes."""


class _UnfinishedFrame:
    """
    The unfinished frame of one connection.

    :ivar size: bytes that have arrived.
    :ivar missing: bytes that are still to come.
    :ivar looked: the missing bytes at the last look; -1 before the first look.
    """

    __slots__ = ("looked", "missing", "size")

    def __init__(self) -> None:
        self.size = self.missing = 0
        self.looked = -1


@dataclass(slots=True)
class _AddressConnections:
    """
    The connections of one address.

    :ivar size: bytes of all their unfinished frames that have arrived.
    :ivar due: bytes that are still to come of the frames that are being read.
    :ivar reading: connections whose frames are being read, oldest frame first.
    :ivar waiting: connections that are put off, oldest frame first.
    """

    size: int = 0
    due: int = 0
    reading: dict[FrameSender, _UnfinishedFrame] = field(default_factory=dict)
    waiting: dict[FrameSender, _UnfinishedFrame] = field(default_factory=dict)


class UnfinishedFrames:
    """
    Counts and limits the bytes of unfinished frames, whose senders are not authenticated yet.

    A peer could send 16 MiB without the last byte on each of a thousand connections. So the frames
    of one address are read only as far as all of them have room. The newest frames wait until an
    older one is complete, except for small frames that have room. A frame that hardly grows while
    others wait is dropped. The newest frames are dropped if even their beginnings have no room.
    Above the limit of all addresses together the oldest frame is dropped: else two addresses could
    keep all others waiting.

    :ivar kept: bytes of all unfinished frames.
    :ivar dropped: how many connections were closed, by the configuration key of the limit.
    :ivar waits: how many times a connection was put off.
    """

    def __init__(self, config: NettyServerConfig, clock: IReactorTime) -> None:
        self._config = config
        self._clock = clock
        self._look: IDelayedCall | None = None
        self.kept = 0
        self.waits = 0
        self.dropped = dict.fromkeys((PER_HOST, IN_ALL, TIMEOUT), 0)
        self._frames: dict[
            FrameSender, _UnfinishedFrame
        ] = {}  # oldest first: a frame keeps its place
        self._addresses: dict[str, _AddressConnections] = {}

    @property
    def timeout(self) -> int:
        """Seconds within which a frame has to be complete; 0 for no limit."""
        return self._config.frame_timeout_seconds

    @property
    def max_header_size(self) -> int:
        """Most bytes of a frame's header."""
        return self._config.max_header_size

    def keep(self, sender: FrameSender, size: int, missing: int = 0) -> None:
        """
        Note how many bytes of a connection's unfinished frame have arrived.

        :param size: these bytes; up to `FREE_BYTES` the frame counts as complete or hardly begun.
        :param missing: bytes of the frame that are still to come.
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
            frame = self._frames[sender] = _UnfinishedFrame()
        address = self._addresses.setdefault(sender.host, _AddressConnections())
        self.kept += size - frame.size
        address.size += size - frame.size
        if sender in address.reading:
            address.due += missing - frame.missing
        frame.size, frame.missing = size, missing
        if sender not in address.reading and sender not in address.waiting:
            self._begin(sender, frame, address, most)
            if waited and sender in address.reading:
                sender.let_read()
        # Three limits, one after the other: the frames of this address with the bytes that are
        # still to come, its bytes that have arrived, and the bytes of all addresses.
        while address.waiting and address.size + address.due > most:
            self._drop(next(reversed(address.waiting)), PER_HOST, most, "the newest")
        while address.size > most:
            self._drop(next(iter(address.reading)), PER_HOST, most, "the oldest")
        most = self._config.max_unfinished_bytes
        while self.kept > most:
            self._drop(next(iter(self._frames)), IN_ALL, most, "the oldest")

    def forget(self, sender: FrameSender) -> None:
        """Forget a connection that is gone; do nothing if it has no unfinished frame."""
        self._remove(sender)

    def drop_too_slow(self, sender: FrameSender) -> ProtocolViolation:
        """Drop a frame that was not whole in time, and return why its connection is closed."""
        self.forget(sender)
        self.dropped[TIMEOUT] += 1
        return ProtocolViolation(f"a frame is not whole after {self.timeout} s ({TIMEOUT})")

    def _remove(self, sender: FrameSender) -> bool:
        """Remove a connection's frame, let others read on, and return whether it was put off."""
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

    def _begin(
        self, sender: FrameSender, frame: _UnfinishedFrame, address: _AddressConnections, most: int
    ) -> None:
        """Read on or put off a frame whose first bytes have arrived."""
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

    def _let_read(self, address: _AddressConnections) -> None:
        """Read on the oldest waiting frames, as far as they have room now."""
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
        """Drop frames that hardly grow while others wait for them."""
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

    def _drop(self, sender: FrameSender, key: str, most: int, why: str) -> None:
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
