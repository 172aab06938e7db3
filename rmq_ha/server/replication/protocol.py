"""The two ends of every replication connection: a socket and one timer around a pure core.

The cores are the feed and the replica of a dialect. The protocols here only carry their bytes and
wake them. The owner of the connection decides how to act on a report or a step.
"""

from collections.abc import Callable
from math import inf
from typing import Any, Generic, TypeVar
from typing import Protocol as Interface

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import (
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
from rmq_ha.base.model.host_port import host_of
from rmq_ha.base.timing.timer import LastTurn, rearm
from rmq_ha.base.tls.ends import address_text
from rmq_ha.base.tls.transport import TlsTransport

TLS_HELLO = b"\x16\x03"
SPEAKS_TLS = "it speaks TLS, and tls.ha.mode=disabled"

FRAMES_PER_TURN = 4
"""
Number of frames that a feed sends in one turn of the reactor, so that other connections are served.
"""

CLOSE_SECONDS = 1.0
"""How long a closed connection may take to send its last bytes, in seconds."""


class ITransport(ITCPTransport, IConsumer, IPushProducer):
    """The transport that these connections need; the TCP methods exist only on TCP."""


def prepare(transport: object) -> None:
    """
    Set the socket's options: small frames are sent at once, and the kernel detects a lost peer,
    too.
    """
    if ITCPTransport.providedBy(transport):
        transport.setTcpNoDelay(True)
        transport.setTcpKeepAlive(True)


def reason_text(reason: Failure) -> str:
    """Return why the other end is gone."""
    if isinstance(reason.value, ConnectionDone):
        return "it closed the connection"
    return reason.getErrorMessage()


class FeedCore(Interface):
    """
    The master's half of a connection. Times are seconds of the clock.

    :ivar has_sent_all: whether another call of `next_frame` at the same time would return nothing,
        and `deadline` is not before the last one. False also stands for not known.
    :ivar is_introduced: whether the slave has said which broker it is, or sent a checksum of its
        log. This turns true at most once.
    """

    has_sent_all: bool
    is_introduced: bool

    def receive_data(self, data: bytes, now: float) -> Any:
        """
        Take bytes that the slave sent.

        :returns: reports that may be believed; a false value: none.
        :raises ReplicationError: the bytes say something that cannot be true.
        :raises StoreError: the log cannot be read.
        :raises OSError: the disk refuses.
        """

    def next_frame(self, now: float) -> bytes:
        """
        Return the next bytes to send; empty: none now.

        :raises StoreError: the log cannot be read.
        :raises OSError: the disk refuses.
        :raises ReplicationError: this slave can be sent nothing.
        """

    def deadline(self) -> float:
        """Return when to call `on_time`, in seconds."""

    def on_time(self, now: float) -> None:
        """
        Act on the time of `deadline`.

        :raises ReplicationError: the slave was silent for too long.
        """

    def pause(self) -> None:
        """Return no frames, since the transport is full."""

    def resume(self) -> None:
        """Return frames again, since the transport is empty."""


F = TypeVar("F", bound=FeedCore)


class _TimedConnection(Protocol):
    """
    A connection with one timer.

    Each frame and each report moves the deadline away. That needs no call of the clock: when the
    timer fires too early, it is set anew.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._timer: IDelayedCall | None = None
        self._due = inf
        self._last_turn = LastTurn()

    def _see_to_timer(self, deadline: float | None) -> None:
        """
        Have the timer fire at a deadline, or earlier; None: not at all. A later deadline than
        `_due` needs no call of this method, since the timer fires before and looks again.
        """
        self._timer = rearm(self._clock, self._timer, deadline, self._on_time)
        self._due = inf if deadline is None else deadline

    def _on_time(self) -> None:
        raise NotImplementedError


class FeedOwner(Interface):
    """Hears of a master's connections; each method is called with the connection that changed."""

    def slave_connected(self, connection: Any) -> None:
        """A socket was opened; no byte has come yet."""

    def slave_introduced(self, connection: Any) -> None:
        """The slave has said which broker it is, or told a checksum of its log."""

    def slave_reported(self, connection: Any, reports: Any, now: float) -> None:
        """
        Reports came that may be believed; the bytes that may follow on them have already been sent.
        """

    def slave_left(self, connection: Any, error: ReplicationError | None, why: str) -> None:
        """
        The connection was closed or lost; this is called once for each connection.

        :param error: the error for which this end closed the connection; None: no error of the
            slave.
        """


@implementer(IPushProducer)
class FeedProtocol(_TimedConnection, Generic[F]):
    """
    The master's end of a connection, around its core.

    It is a push producer: the transport asks for a pause as soon as it cannot send a frame at once.
    So a slow slave does not make this broker keep bytes for it.

    :param closed: called when the socket is closed, which may be after the owner was told.
    :ivar peer: `host:port` of the slave.
    :ivar is_open: whether neither end has closed the connection.
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
        self._is_introduced = False

    @property
    def peer_host(self) -> str:
        """Return the slave's host, without its port; it stands for the slave's machine."""
        return host_of(self.peer)

    def connectionMade(self) -> None:
        """Start the timer, which drops a silent peer, and tell the owner."""
        self.peer = address_text(self.transport.getPeer())
        prepare(self.transport)
        self.transport.registerProducer(self, True)
        self._owner.slave_connected(self)
        self.push()

    def dataReceived(self, data: bytes) -> None:
        """Take reports. Bytes that may follow on them are sent before the owner hears of them."""
        if not self.is_open:
            return
        if not self._has_heard and data.startswith(TLS_HELLO):  # as a report: 1.5 million TB
            self.close(SPEAKS_TLS, ReplicationError(SPEAKS_TLS))
            return
        self._has_heard = True
        feed, now = self.feed, self._clock.seconds()
        try:
            reports = feed.receive_data(data, now)
        except ReplicationError as error:
            self.close(str(error), error)
            return
        except (OSError, StoreError) as error:
            self.cannot_read(error)
            return
        if not self._is_introduced and feed.is_introduced:
            self._is_introduced = True
            self._owner.slave_introduced(self)
        if not feed.has_sent_all:
            self.push(now)
        if reports:
            self._owner.slave_reported(self, reports, now)

    def push(self, now: float | None = None) -> None:
        """Send all frames that may be sent now, and set the timer."""
        if not self.is_open:
            return
        if now is None:
            now = self._clock.seconds()
        feed, deadline = self.feed, now  # more may follow than is sent in one turn
        try:
            for _ in range(FRAMES_PER_TURN):
                frame = feed.next_frame(now)
                if frame:
                    self.transport.write(frame)
                if feed.has_sent_all and self._due < inf:
                    deadline = self._due
                    break
                if not frame or feed.has_sent_all:
                    deadline = feed.deadline()
                    break
        except (OSError, StoreError) as error:
            self.cannot_read(error)
        except ReplicationError as error:
            self.close(str(error), error)
        else:
            if deadline < self._due and self.is_open:
                self._see_to_timer(deadline)

    def cannot_read(self, error: Exception) -> None:
        """
        Close the connection and log the fault in full, since this broker's own disk is at fault.
        """
        self.log.failure("cannot read the log for slave {peer}", peer=self.peer)
        self.close(f"this broker's log cannot be read: {error}")

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
        """Pause the feed, since the transport is full."""
        self.feed.pause()

    def resumeProducing(self) -> None:
        """Go on with the feed, since the transport is empty."""
        self.feed.resume()
        self.push()

    def stopProducing(self) -> None:
        """Do nothing: the connection is being lost, and connectionLost follows."""

    def close(self, why: str, error: ReplicationError | None = None) -> None:
        """Close the connection; bytes that were written may still be sent for a moment."""
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
        """Tell the owner, unless it was told before."""
        if self.is_open:
            self._leave(reason_text(reason), None)
        self._see_to_timer(None)
        self._closed()


class ReplicaCore(Interface):
    """
    The slave's half of a connection; each step returns the bytes to send.

    :ivar read_size: size of the socket's reads in bytes; 0: Twisted's default.
    """

    read_size: int

    def connected(self, now: float) -> bytes:
        """Take note that the connection is open."""

    def receive_data(self, data: bytes, now: float) -> bytes:
        """
        Take bytes that the master sent.

        :raises ReplicationError: the master cannot be followed.
        :raises StoreError: this slave's log refuses.
        """

    def on_time(self, now: float) -> bytes:
        """Act on the time of `deadline`; raises the same as `receive_data`."""

    def deadline(self) -> float | None:
        """Return when to call `on_time`, in seconds; None: not before bytes come."""

    def is_overdue(self, now: float) -> bool:
        """Whether the master was silent for too long."""


R = TypeVar("R", bound=ReplicaCore)


class ReplicaFactory(Factory):
    """The factory of a slave's connections. It logs nothing, since the link logs more."""

    noisy = False


class ReplicaOwner(Interface):
    """Hears of a slave's connection to its master."""

    def stepped(self, connection: Any) -> None:
        """The core took a step, and its answer was written."""

    def lost(self, connection: Any, error: Exception | None, why: str) -> None:
        """
        The connection is over.

        :param error: the error for which this end closed the connection; None: no error.
        """


class ReplicaProtocol(_TimedConnection, Generic[R]):
    """
    The slave's end of a connection, around its core.

    :ivar is_lost: whether the owner was told that the connection is over.
    :ivar is_held: whether reading is paused until something is on the disk.
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
        """Send the first report at once; a Java master answers at once."""
        below: Any = self.transport
        if isinstance(below, TlsTransport):
            below = below.raw
        if self.replica.read_size and isinstance(below, Connection):
            below.bufferSize = self.replica.read_size
        prepare(self.transport)
        self.step(self.replica.connected)

    def dataReceived(self, data: bytes) -> None:
        """Pass the master's bytes to the core."""
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
        """Run one step of the core, send its answer, and set the timer as the core asks."""
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
        """Close the connection because of an error."""
        if self._is_open:
            self._error = error
            self.close()

    def hold(self, begin: Callable[[], "Deferred[None]"], then: Callable[..., bytes]) -> None:
        """
        Read nothing until a task is done.

        :param begin: starts the task; its failure ends the connection.
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
        """Close the connection; the last report may still be sent for a moment."""
        if self._is_open:
            if self.is_held:  # a transport that reads nothing would not see the end
                self.transport.resumeProducing()
            self._is_open = False
            self.transport.loseConnection()
            self._see_to_timer(None)
            self._timer = self._clock.callLater(CLOSE_SECONDS, self.transport.abortConnection)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Tell the owner, which decides when to connect again."""
        self.is_lost = True
        self._is_open = False
        self._see_to_timer(None)
        self._owner.lost(self, self._error, str(self._error or reason_text(reason)))
