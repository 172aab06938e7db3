"""Shells around the two halves of a replication connection: a socket and one timer each."""

from collections.abc import Callable
from enum import Enum
from typing import Any
from typing import Protocol as Interface

from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import (
    IAddress,
    IConsumer,
    IDelayedCall,
    IPushProducer,
    IReactorTime,
    ITCPTransport,
)
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.tcp import Connection
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from rmq_ha.errors import ReplicationError, StoreError
from rmq_ha.ha.feed import Feed
from rmq_ha.ha.replica import Replica, ReplicaStage
from rmq_ha.timing.timer import LastTurn, rearm
from rmq_ha.tls.transport import TlsTransport

FRAMES_PER_TURN = 4
"""After these the feed lets others have their turn."""

READ_SIZE = 1 << 18
"""A slave reads in chunks of this many bytes; measured: 64 KiB and 1 MiB are slower by half."""

TLS_HELLO = b"\x16\x03"
SPEAKS_TLS = "it speaks TLS, and tls.ha.mode=disabled"

CLOSE_SECONDS = 1.0
"""How long a connection that we leave may take to send what it still holds."""


class ITransport(ITCPTransport, IConsumer):
    """What the connections need of their transport; the TCP methods only where there is TCP."""


def prepare(transport: object) -> None:
    """Small frames leave at once; the kernel, too, looks for a peer that is gone."""
    if ITCPTransport.providedBy(transport):
        transport.setTcpNoDelay(True)
        transport.setTcpKeepAlive(True)


def address_text(address: IAddress) -> str:
    """`host:port`, or whatever the address says of itself."""
    host, port = getattr(address, "host", None), getattr(address, "port", None)
    return str(address) if host is None else f"{host}:{port}"


def reason_text(reason: Failure) -> str:
    """Why the other end is gone."""
    if isinstance(reason.value, ConnectionDone):
        return "it closed the connection"
    return reason.getErrorMessage()


class Stage(Enum):
    """How far a slave has come, for those who look at it."""

    NEW = "connected"
    CATCHING_UP = "catching up"
    CAUGHT_UP = "caught up"
    STRANDED = "stranded"


class FeedOwner(Interface):
    """What a FeedProtocol tells the service."""

    def met(self, connection: "FeedProtocol") -> None:
        """Somebody is there; nothing was said yet."""

    def compared(self, connection: "FeedProtocol") -> None:
        """A slave of ours said what it has: it is known what the two logs have in common."""

    def reported(self, connection: "FeedProtocol") -> None:
        """A complete report came and was believed."""

    def left(self, connection: "FeedProtocol", error: ReplicationError | None, why: str) -> None:
        """The connection does not count any more; `error`: we closed it because of that."""

    def gone(self, connection: "FeedProtocol") -> None:
        """The socket is closed."""


@implementer(IPushProducer)
class FeedProtocol(Protocol):
    """
    The master's end of a replication connection, around a `Feed`.

    A push producer, since the transport's writes are eager: it asks for a pause as soon as a
    frame does not go out at once, so a slow slave slows only itself.
    """

    log = Logger()
    transport: ITransport

    def __init__(self, feed: Feed, owner: FeedOwner, clock: IReactorTime, since_ms: int) -> None:
        self.feed = feed
        self.stage = Stage.NEW
        self.peer = ""
        self._since_ms = since_ms
        self._owner = owner
        self._clock = clock
        self._timer: IDelayedCall | None = None
        self._last_turn = LastTurn()
        self._is_open = True

    def connectionMade(self) -> None:
        """The timer starts: a peer that says nothing is dropped."""
        self.peer = address_text(self.transport.getPeer())
        prepare(self.transport)
        self.transport.registerProducer(self, True)
        self._owner.met(self)
        self.push()

    def dataReceived(self, data: bytes) -> None:
        """Reports; what they free for sending leaves before anybody hears of them."""
        if not self._is_open:
            return
        before = self.feed.common
        try:
            is_report = self.feed.receive_data(data, self._clock.seconds())
        except ReplicationError as error:
            self.close(SPEAKS_TLS if data.startswith(TLS_HELLO) else str(error), error)
            return
        except (OSError, StoreError) as error:
            self._cannot_read(error)
            return
        if self.feed.common is not before:
            self._owner.compared(self)
        self.push()
        if is_report:
            self._owner.reported(self)

    @property
    def peer_host(self) -> str:
        """The slave's machine."""
        return self.peer.rpartition(":")[0]

    def statistics(self) -> dict[str, Any]:
        """What this slave has; sizes in bytes."""
        feed = self.feed
        return {
            "address": self.peer,
            "stage": self.stage.value,
            "common": feed.common.value,
            "requested": feed.requested,
            "sent": feed.sent,
            "acked": feed.acked,
            "vouched": feed.vouched,
            "lag": feed.lag,
            "since_ms": self._since_ms,
        }

    def push(self) -> None:
        """Send what there is to send, and see to the timer."""
        if not self._is_open:
            return
        now = self._clock.seconds()
        try:
            deadline = self._send(now)
        except (OSError, StoreError) as error:
            self._cannot_read(error)
            return
        if self._is_open:
            self._timer = rearm(self._clock, self._timer, deadline, self._on_time)

    def _cannot_read(self, error: Exception) -> None:
        self.log.failure("cannot read the log for slave {peer}", peer=self.peer)
        self.close(f"our log cannot be read: {error}")

    def _send(self, now: float) -> float:
        """Write what may be written; returns when to look again."""
        for _ in range(FRAMES_PER_TURN):
            frame = self.feed.next_frame(now)
            if not frame:
                return self.feed.deadline()
            self.transport.write(frame)
        return now

    def _on_time(self) -> None:
        try:
            self.feed.on_time(self._clock.seconds())
        except ReplicationError as error:
            self._timer = self._last_turn.again(self._clock, self._on_time)
            if self._timer is None:
                self.close(str(error), error)
        else:
            self._last_turn.reset()
            self.push()

    def pauseProducing(self) -> None:
        """The transport holds more than it likes."""
        self.feed.pause()

    def resumeProducing(self) -> None:
        """The transport is empty."""
        self.feed.resume()
        self.push()

    def stopProducing(self) -> None:
        """The connection is being lost; connectionLost follows."""

    def close(self, why: str, error: ReplicationError | None = None) -> None:
        """Leave; what was written may still go out for a moment."""
        if not self._is_open:
            return
        self._leave(why, error)
        self.transport.unregisterProducer()
        self.transport.loseConnection()
        self._timer = self._clock.callLater(CLOSE_SECONDS, self.transport.abortConnection)

    def _leave(self, why: str, error: ReplicationError | None) -> None:
        self._is_open = False
        self._timer = rearm(self._clock, self._timer, None, self._on_time)
        self._owner.left(self, error, why)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Whatever the reason, the owner hears of it once."""
        if self._is_open:
            self._leave(reason_text(reason), None)
        self._timer = rearm(self._clock, self._timer, None, self._on_time)
        self._owner.gone(self)


class ReplicaOwner(Interface):
    """What a ReplicaProtocol tells the link to the master."""

    def followed(self, connection: "ReplicaProtocol") -> None:
        """What the master sends continues our log."""

    def lost(self, connection: "ReplicaProtocol", error: Exception | None, why: str) -> None:
        """The connection is closed; `error`: we closed it because of that."""


class ReplicaProtocol(Protocol):
    """The slave's end of a replication connection, around a `Replica`."""

    transport: ITransport

    def __init__(self, replica: Replica, owner: ReplicaOwner, clock: IReactorTime) -> None:
        self.replica = replica
        self._owner = owner
        self._clock = clock
        self._timer: IDelayedCall | None = None
        self._last_turn = LastTurn()
        self._error: Exception | None = None
        self.is_lost = False
        self._is_open = True
        self._follows = False

    def connectionMade(self) -> None:
        """Report at once: a Java master answers at once."""
        prepare(self.transport)
        below: Any = self.transport
        if isinstance(below, TlsTransport):
            below = below.raw
        if isinstance(below, Connection):
            below.bufferSize = READ_SIZE
        self._step(self.replica.connected)

    def dataReceived(self, data: bytes) -> None:
        """Transfer frames."""
        self._step(self.replica.receive_data, data)
        is_following = self.replica.stage is ReplicaStage.FOLLOWING
        if not self._follows and is_following and self._is_open:
            self._follows = True
            self._owner.followed(self)

    def look(self) -> None:
        """Leave if our log cannot be vouched for any more."""
        self._step(self.replica.look)

    def _on_time(self) -> None:
        if not self.replica.is_overdue(self._clock.seconds()):
            self._last_turn.reset()
        else:
            self._timer = self._last_turn.again(self._clock, self._on_time)
            if self._timer is not None:
                return
        self._step(self.replica.on_time)

    def _step(self, step: Callable[..., bytes], *args: bytes) -> None:
        """Run one step of the core, send its answer, wake it again when it asks for that."""
        if not self._is_open:
            return
        try:
            answer = step(*args, self._clock.seconds())
        except (ReplicationError, StoreError) as error:
            self._error = error
            self.close()
            return
        if answer:
            self.transport.write(answer)
        if self._is_open:
            self._timer = rearm(self._clock, self._timer, self.replica.deadline(), self._on_time)

    def close(self) -> None:
        """Leave; our last report may still go out for a moment."""
        if self._is_open:
            self._is_open = False
            self.transport.loseConnection()
            self._timer = rearm(self._clock, self._timer, None, self._on_time)
            self._timer = self._clock.callLater(CLOSE_SECONDS, self.transport.abortConnection)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The link decides when to come back."""
        self.is_lost = True
        self._is_open = False
        self._timer = rearm(self._clock, self._timer, None, self._on_time)
        self._owner.lost(self, self._error, str(self._error or reason_text(reason)))
