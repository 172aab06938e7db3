"""Protocols that start replication only after both ends have proven that they know a secret."""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IProtocol, IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure

from rmq_ha.base.errors import ReplicationError
from rmq_ha.base.timing.timer import rearm
from rmq_ha.server.replication.secret import MasterProof, SlaveProof

WAIT_SECONDS = 1.0
"""
How long a slave waits for a challenge, in seconds. A master that wants a proof asks at once; a Java
master says nothing before it is asked.
"""
PATIENCE_SECONDS = 5.0

Build = Callable[[], IProtocol]


class _Guard(Protocol):
    """
    A protocol that builds its inner protocol when the checks are passed, and then passes all bytes
    to it.
    """

    transport: Any

    def __init__(self, clock: IReactorTime, build: Build) -> None:
        self._clock = clock
        self._build = build
        self._timer: IDelayedCall | None = None
        self._is_over = False
        self.inner: IProtocol | None = None

    def _wait(self, seconds: float) -> None:
        """
        Call `_on_time` after so many seconds. An earlier wait is cancelled.
        """
        end = self._clock.seconds() + seconds
        self._timer = rearm(self._clock, self._timer, None, self._on_time)
        self._timer = rearm(self._clock, self._timer, end, self._on_time)

    def _on_time(self) -> None:
        """Act on a wait that has ended without an answer."""

    def _stop_waiting(self) -> None:
        self._is_over = True
        self._timer = rearm(self._clock, self._timer, None, self._on_time)

    def _hand_over(self) -> None:
        self._stop_waiting()
        inner = self.inner = self._build()
        self.dataReceived = inner.dataReceived  # type: ignore[method-assign]
        inner.makeConnection(self.transport)

    def _leave(self) -> None:
        self._stop_waiting()
        self.transport.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Tell the inner protocol, if there is one, that the connection is lost."""
        self._stop_waiting()
        if self.inner is not None:
            self.inner.connectionLost(reason)


class SecretDoor(_Guard):
    """
    The master's end of the exchange of proofs.

    :param refused: called with the peer's host and the reason why it was not let in.
    :param pending: holds this door until its peer is let in or the connection is lost.
    """

    def __init__(
        self,
        clock: IReactorTime,
        build: Build,
        proof: MasterProof,
        refused: Callable[[str, str], None],
        pending: "dict[Any, None]",
    ) -> None:
        super().__init__(clock, build)
        self._proof = proof
        self._refused = refused
        self._pending = pending

    def connectionMade(self) -> None:
        """Send the challenge, and wait PATIENCE_SECONDS for the slave's proof."""
        self._pending[self] = None
        self._wait(PATIENCE_SECONDS)
        self.transport.write(self._proof.hello)

    def dataReceived(self, data: bytes) -> None:
        """Check the slave's proof; then the dialect takes the connection over."""
        if self._is_over:
            return
        try:
            answer = self._proof.receive_data(data)
        except ReplicationError as error:
            self._refuse(str(error))
            return
        if answer:
            self.transport.write(answer)
            del self._pending[self]
            self._hand_over()

    def abort(self) -> None:
        """Close the connection, since nobody is let in any more."""
        self._leave()

    def _on_time(self) -> None:
        self._refuse(f"it did not answer the challenge within {PATIENCE_SECONDS:.0f} s")

    def _refuse(self, reason: str) -> None:
        peer = self.transport.getPeer()
        self._refused(str(getattr(peer, "host", peer)), reason)
        self._leave()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Tell the inner protocol, if there is one, that the connection is lost."""
        self._pending.pop(self, None)
        super().connectionLost(reason)


class SecretCall(_Guard):
    """
    The slave's end of the exchange of proofs.

    :param is_required: whether a master that asks for no proof is left; otherwise it is followed
        without.
    :ivar opened: fires with the inner protocol, connected; fails with `ReplicationError`.
    """

    def __init__(
        self, clock: IReactorTime, build: Build, proof: SlaveProof, *, is_required: bool
    ) -> None:
        super().__init__(clock, build)
        self._proof = proof
        self._is_required = is_required
        self.opened: Deferred[IProtocol] = Deferred(lambda _: self._leave())

    def connectionMade(self) -> None:
        """Wait WAIT_SECONDS for the challenge: a master that needs no secret sends none."""
        self._wait(WAIT_SECONDS)

    def dataReceived(self, data: bytes) -> None:
        """Answer the challenge, then check the master's proof."""
        if self._is_over:
            return
        self._wait(PATIENCE_SECONDS)
        try:
            answer = self._proof.receive_data(data)
        except ReplicationError as error:
            self._fail(str(error))
            return
        if answer:
            self.transport.write(answer)
        if self._proof.is_done:
            self._open()

    def _open(self) -> None:
        self._hand_over()
        assert self.inner is not None
        self.opened.callback(self.inner)

    def _on_time(self) -> None:
        if self._proof.has_begun:
            self._fail("the master did not prove in time that it knows haSecret")
        elif self._is_required:
            self._fail("the master does not ask for haSecret, and haSecretRequired=true here")
        else:
            self._open()

    def _fail(self, reason: str) -> None:
        self._stop_waiting()
        self.opened.errback(ReplicationError(reason))
        self.transport.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Tell the inner protocol or, if it does not exist yet, the caller that waits for it."""
        super().connectionLost(reason)
        if not self.opened.called:
            self.opened.errback(reason)
