"""The two ends of every replication connection: a socket and one timer around a pure core.

The cores are the feed and the replica of a dialect. The protocols here only carry their bytes and
wake them; what a dialect makes of a report or a step is decided by the owner of the connection.
"""

from collections.abc import Callable
from math import inf
from typing import Any, Generic, TypeVar
from typing import Protocol as Interface

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import (
    IAddress,
    IConsumer,
    IDelayedCall,
    IPushProducer,
    IReactorTime,
    ITCPTransport,
)
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.tcp import Connection
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from rmq_ha.base.errors import ReplicationError, StoreError
from rmq_ha.base.model.host_port import HostPort, host_of
from rmq_ha.base.timing.timer import LastTurn, rearm
from rmq_ha.base.tls.transport import TlsTransport

TLS_HELLO = b"\x16\x03"
SPEAKS_TLS = "it speaks TLS, and tls.ha.mode=disabled"

FRAMES_PER_TURN = 4
"""After these the feed lets others have their turn."""

CLOSE_SECONDS = 1.0
"""How long a connection that we leave may take to send what it still holds."""


class ITransport(ITCPTransport, IConsumer, IPushProducer):
    """What the connections need of their transport; the TCP methods only where there is TCP."""


def prepare(transport: object) -> None:
    """Small frames leave at once; the kernel, too, looks for a peer that is gone."""
    if ITCPTransport.providedBy(transport):
        transport.setTcpNoDelay(True)
        transport.setTcpKeepAlive(True)


def address_text(address: IAddress) -> str:
    """`host:port`, or whatever the address says of itself."""
    host, port = getattr(address, "host", None), getattr(address, "port", None)
    return str(address) if host is None or port is None else str(HostPort(host, port))


def reason_text(reason: Failure) -> str:
    """Why the other end is gone."""
    if isinstance(reason.value, ConnectionDone):
        return "it closed the connection"
    return reason.getErrorMessage()


class FeedCore(Interface):
    """
    The master's half of a connection; times are seconds of the clock.

    :ivar is_introduced: the slave has said what it is or has; it never does so twice.
    """

    is_introduced: bool

    def receive_data(self, data: bytes, now: float) -> Any:
        """
        Take what the slave says.

        :returns: reports that may be believed; something false: there is none.
        :raises ReplicationError: it cannot be true.
        :raises StoreError: the log cannot be read, nor on `OSError`.
        """

    def next_frame(self, now: float) -> bytes:
        """
        What to send next; empty: nothing now.

        :raises StoreError: the log cannot be read, nor on `OSError`.
        :raises ReplicationError: there is nothing that this slave can be sent.
        """

    def deadline(self) -> float:
        """When to look again."""

    def on_time(self, now: float) -> None:
        """
        That time has come.

        :raises ReplicationError: the slave was silent for too long.
        """

    def pause(self) -> None:
        """The transport holds more than it likes."""

    def resume(self) -> None:
        """It is empty."""


F = TypeVar("F", bound=FeedCore)


class _Timed(Protocol):
    """
    A connection with one timer.

    Each frame and each report moves the deadline away. That takes no call: when the timer comes, it
    is set anew.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._timer: IDelayedCall | None = None
        self._due = inf
        self._last_turn = LastTurn()

    def _see_to_timer(self, deadline: float | None) -> None:
        """It comes at the deadline, or earlier; for whoever found that it is not `_due` by then."""
        self._timer = rearm(self._clock, self._timer, deadline, self._on_time)
        self._due = inf if deadline is None else deadline

    def _on_time(self) -> None:
        raise NotImplementedError


class FeedOwner(Interface):
    """Hears of a master's connections; each method is called with the connection that changed."""

    def slave_connected(self, connection: Any) -> None:
        """A socket is there; nothing was said yet."""

    def slave_introduced(self, connection: Any) -> None:
        """The slave said what it is or has."""

    def slave_reported(self, connection: Any, reports: Any, now: float) -> None:
        """Reports came and may be believed; what they free for sending has left already."""

    def slave_left(self, connection: Any, error: ReplicationError | None, why: str) -> None:
        """
        The connection counts no more; this is called once.

        :param error: this end closed the connection because of it.
        """


@implementer(IPushProducer)
class FeedProtocol(_Timed, Generic[F]):
    """
    The master's end of a connection, around its core.

    A push producer, since the transport's writes are eager: it asks for a pause as soon as a
    frame does not go out at once, so a slow slave slows only itself.

    :param closed: is called when the socket is closed, which may be after the owner was told.
    :ivar peer: `host:port` of the slave.
    :ivar is_open: the connection counts still.
    """

    log = Logger()
    transport: ITransport

    def __init__(
        self, feed: F, owner: FeedOwner, clock: IReactorTime, closed: Callable[[], None]
    ) -> None:
        super().__init__(clock)
        self.feed = feed
        self.peer = ""
        self.is_open = True
        self._owner = owner
        self._closed = closed
        self._has_heard = False

    @property
    def peer_host(self) -> str:
        """The slave's machine."""
        return host_of(self.peer)

    def connectionMade(self) -> None:
        """The timer starts: a peer that says nothing is dropped."""
        self.peer = address_text(self.transport.getPeer())
        prepare(self.transport)
        self.transport.registerProducer(self, True)
        self._owner.slave_connected(self)
        self.push()

    def dataReceived(self, data: bytes) -> None:
        """Reports; what they free for sending leaves before the owner hears of them."""
        if not self.is_open:
            return
        if not self._has_heard and data.startswith(TLS_HELLO):  # as an offset: 1.5 million TB
            self.close(SPEAKS_TLS, ReplicationError(SPEAKS_TLS))
            return
        self._has_heard = True
        feed, now = self.feed, self._clock.seconds()
        was_introduced = feed.is_introduced
        try:
            reports = feed.receive_data(data, now)
        except ReplicationError as error:
            self.close(str(error), error)
            return
        except (OSError, StoreError) as error:
            self.cannot_read(error)
            return
        if feed.is_introduced and not was_introduced:
            self._owner.slave_introduced(self)
        self.push(now)
        if reports:
            self._owner.slave_reported(self, reports, now)

    def push(self, now: float | None = None) -> None:
        """Send what there is to send, and see to the timer."""
        if not self.is_open:
            return
        try:
            deadline = self._send(self._clock.seconds() if now is None else now)
        except (OSError, StoreError) as error:
            self.cannot_read(error)
        except ReplicationError as error:
            self.close(str(error), error)
        else:
            if deadline < self._due and self.is_open:
                self._see_to_timer(deadline)

    def cannot_read(self, error: Exception) -> None:
        """Our own disk is at fault: leave, and say so in full."""
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
        self._due = inf
        try:
            self.feed.on_time(self._clock.seconds())
        except ReplicationError as error:
            self._timer = self._last_turn.look_again(self._clock, self._on_time)
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
        if not self.is_open:
            return
        self._leave(why, error)
        self.transport.unregisterProducer()
        self.transport.loseConnection()
        self._timer = self._clock.callLater(CLOSE_SECONDS, self.transport.abortConnection)

    def _leave(self, why: str, error: ReplicationError | None) -> None:
        self.is_open = False
        self._see_to_timer(None)
        self._owner.slave_left(self, error, why)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Whatever the reason, it is told once."""
        if self.is_open:
            self._leave(reason_text(reason), None)
        self._see_to_timer(None)
        self._closed()


class ReplicaCore(Interface):
    """
    The slave's half of a connection; each step answers with the bytes to be sent.

    :ivar read_size: bytes that the socket is read by; 0: as many as Twisted likes.
    """

    read_size: int

    def connected(self, now: float) -> bytes:
        """The connection stands."""

    def receive_data(self, data: bytes, now: float) -> bytes:
        """
        What the master says.

        :raises ReplicationError: it cannot be followed.
        :raises StoreError: our log refuses.
        """

    def on_time(self, now: float) -> bytes:
        """The time of `deadline` has come; raises as `receive_data`."""

    def deadline(self) -> float | None:
        """When to look again; None: not before something comes."""

    def is_overdue(self, now: float) -> bool:
        """The master was silent for too long."""


R = TypeVar("R", bound=ReplicaCore)


class ReplicaFactory(Factory):
    """Of a slave's connections; each comes and goes without a line, as its link says more."""

    noisy = False


class ReplicaOwner(Interface):
    """Hears of a slave's connection to its master."""

    def stepped(self, connection: Any) -> None:
        """The core took a step, and its answer was written."""

    def lost(self, connection: Any, error: Exception | None, why: str) -> None:
        """
        The connection is over.

        :param error: this end closed the connection because of it.
        """


class ReplicaProtocol(_Timed, Generic[R]):
    """
    The slave's end of a connection, around its core.

    :ivar is_lost: the owner was told that the connection is over.
    :ivar is_held: nothing is read, as something has to be on the disk first.
    """

    transport: ITransport

    def __init__(self, replica: R, owner: ReplicaOwner, clock: IReactorTime) -> None:
        super().__init__(clock)
        self.replica = replica
        self.is_lost = False
        self.is_held = False
        self._owner = owner
        self._error: Exception | None = None
        self._is_open = True

    def connectionMade(self) -> None:
        """Say at once what this slave has: a Java master answers at once."""
        below: Any = self.transport
        if isinstance(below, TlsTransport):
            below = below.raw
        if self.replica.read_size and isinstance(below, Connection):
            below.bufferSize = self.replica.read_size
        prepare(self.transport)
        self.step(self.replica.connected)

    def dataReceived(self, data: bytes) -> None:
        """What the master says."""
        self.step(self.replica.receive_data, data)

    def _on_time(self) -> None:
        self._due = inf
        if self.replica.is_overdue(self._clock.seconds()):
            self._timer = self._last_turn.look_again(self._clock, self._on_time)
            if self._timer is not None:
                return
        else:
            self._last_turn.reset()
        self.step(self.replica.on_time)

    def step(self, step: Callable[..., bytes], *args: bytes) -> None:
        """Run one step of the core, send its answer, wake it again when it asks for that."""
        if not self._is_open:
            return
        try:
            answer = step(*args, self._clock.seconds())
        except (ReplicationError, StoreError) as error:
            self.fail(error)
            return
        if answer:
            self.transport.write(answer)
        self._owner.stepped(self)
        if self._is_open:
            deadline = self.replica.deadline()
            if deadline is None or deadline < self._due:
                self._see_to_timer(deadline)

    def fail(self, error: Exception) -> None:
        """Leave because of it."""
        if self._is_open:
            self._error = error
            self.close()

    def hold(self, begin: Callable[[], "Deferred[None]"], then: Callable[..., bytes]) -> None:
        """
        Read nothing until something is done.

        :param begin: starts it; fails with what ends the connection.
        :param then: the step of the core that follows.
        """
        self.is_held = True
        self.transport.pauseProducing()
        begin().addCallbacks(self._release, self._fail_held, (then,))

    def _release(self, _: None, then: Callable[..., bytes]) -> None:
        self.is_held = False
        if self._is_open:
            self.transport.resumeProducing()
            self.step(then)

    def _fail_held(self, failure: Failure) -> None:
        self.fail(StoreError(failure.getErrorMessage()))

    def close(self) -> None:
        """Leave; the last report may still go out for a moment."""
        if self._is_open:
            if self.is_held:  # a transport that reads nothing would not see the end
                self.transport.resumeProducing()
            self._is_open = False
            self.transport.loseConnection()
            self._see_to_timer(None)
            self._timer = self._clock.callLater(CLOSE_SECONDS, self.transport.abortConnection)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Whoever follows decides when to come back."""
        self.is_lost = True
        self._is_open = False
        self._see_to_timer(None)
        self._owner.lost(self, self._error, str(self._error or reason_text(reason)))
