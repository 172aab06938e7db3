"""Ends of TLS connections, which make their inner protocol only after the handshake."""

from collections.abc import Callable
from typing import Any
from typing import Protocol as TypingProtocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import (
    IAddress,
    IDelayedCall,
    IProtocol,
    IReactorTime,
    IStreamClientEndpoint,
)
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmq_ha.base.model.host_port import HostPort
from rmq_ha.base.timing.timer import LastTurn, rearm
from rmq_ha.base.tls.any_session import AnySession
from rmq_ha.base.tls.first_byte import FirstByte
from rmq_ha.base.tls.refusals import Refusals
from rmq_ha.base.tls.transport import TlsTransport

Build = Callable[[], IProtocol]


class DoorRules(TypingProtocol):
    """The TLS settings of a port, such as `ServerTls`."""

    title: str

    def judge(self, first: int) -> FirstByte:
        """Decide by the first byte whether a connection goes on, and how."""

    def refusal(self, first: int) -> str:
        """Return why a connection that begins with this byte is closed."""

    def session(self) -> AnySession:
        """Make the session of an accepted connection."""


class _TlsEnd(Protocol):
    """One end of a connection, which makes its inner protocol after the handshake."""

    transport: Any

    def __init__(self, clock: IReactorTime, build: Build) -> None:
        self._clock = clock
        self._build = build
        self._inner: IProtocol | None = None
        self._tls: TlsTransport | None = None

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Tell the inner protocol, if it was made, why the connection was lost."""
        if self._tls is not None:
            reason = self._tls.connection_lost(reason)
        if self._inner is not None:
            self._inner.connectionLost(reason)
        else:
            self._gave_up(reason)

    def _start(self, session: AnySession) -> TlsTransport:
        tls = self._tls = TlsTransport(
            self.transport,
            session,
            self._clock,
            secured=self._secured,
            deliver=self._deliver,
            failed=self._failed,
        )
        self.dataReceived = tls.receive_data  # type: ignore[method-assign]
        return tls

    def _hand_over(self, transport: Any) -> None:
        inner = self._inner = self._build()
        inner.makeConnection(transport)

    def _secured(self) -> None:
        self._hand_over(self._tls)

    def _deliver(self, data: bytes) -> None:
        if self._inner is not None:
            self._inner.dataReceived(data)

    def _failed(self, reason: str) -> None:
        assert self._tls is not None
        if self._inner is None:
            self._tls.loseConnection()
        else:
            self._tls.abortConnection()

    def _gave_up(self, reason: Failure) -> None:
        """Called if the connection ended before the inner protocol was made."""


class TlsCall(_TlsEnd):
    """
    The connecting end.

    :ivar opened: fires with the inner protocol, connected; fails with `TlsRefused`.
    """

    def __init__(self, clock: IReactorTime, build: Build, session: AnySession) -> None:
        super().__init__(clock, build)
        self._session = session
        self.opened: Deferred[IProtocol] = Deferred(lambda _: self.transport.abortConnection())

    def connectionMade(self) -> None:
        self._start(self._session).start()

    def _secured(self) -> None:
        super()._secured()
        assert self._inner is not None
        self.opened.callback(self._inner)

    def _gave_up(self, reason: Failure) -> None:
        if not self.opened.called:  # it was not cancelled
            self.opened.errback(reason)


class _CallFactory(Factory):
    noisy = False

    def __init__(self, call: TlsCall) -> None:
        self._call = call

    def buildProtocol(self, addr: IAddress | None) -> TlsCall:
        return self._call


def connect_tls(
    endpoint: IStreamClientEndpoint, clock: IReactorTime, build: Build, session: AnySession
) -> "Deferred[IProtocol]":
    """
    Connect, and make the protocol when the other end was verified.

    :param build: makes the protocol.
    :returns: fires with the protocol, connected; fails as the endpoint does, or with `TlsRefused`.
    """
    call = TlsCall(clock, build, session)
    connected: Deferred[Any] = endpoint.connect(_CallFactory(call))
    return connected.addCallback(lambda _: call.opened)


class TlsDoor(_TlsEnd):
    """
    The accepting end. The first byte tells plain connections from TLS; the rules refuse or accept
    them.

    :param patience: seconds to wait for the first byte.
    :param pending: contains this object until the peer is accepted or the connection is gone.
    """

    log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        build: Build,
        tls: DoorRules,
        refusals: Refusals,
        patience: float,
        pending: "dict[Any, None]",
    ) -> None:
        super().__init__(clock, build)
        self._rules = tls
        self._refusals = refusals
        self._patience = patience
        self._pending = pending
        self._timer: IDelayedCall | None = None
        self._last_turn = LastTurn()

    def connectionMade(self) -> None:
        """Wait for the first byte."""
        self._pending[self] = None
        self._timer = self._clock.callLater(self._patience, self._silent)

    def dataReceived(self, data: bytes) -> None:
        """Decide by the first byte: plain, TLS, or refused."""
        self._stop_timer()
        verdict = self._rules.judge(data[0])
        if verdict is FirstByte.PLAIN:
            del self._pending[self]
            self._hand_over(self.transport)
            self.dataReceived = self._deliver  # type: ignore[method-assign]
            self._deliver(data)
        elif verdict is FirstByte.START_TLS:
            self._start(self._rules.session()).receive_data(data)
        else:
            self._refuse(self._rules.refusal(data[0]))

    def abort(self) -> None:
        """Close the connection, as no peer is accepted any more."""
        self.transport.abortConnection()

    def _secured(self) -> None:
        del self._pending[self]
        self._tell_entry()
        super()._secured()

    def _tell_entry(self) -> None:
        assert self._tls is not None
        self.log.info(
            "{peer} is in: {description}",
            peer=address_text(self.transport.getPeer()),
            description=self._tls.description,
        )

    def _failed(self, reason: str) -> None:
        if self._inner is None:
            self._tell(reason)
        super()._failed(reason)

    def _gave_up(self, reason: Failure) -> None:
        self._stop_timer()
        self._pending.pop(self, None)
        if self._tls is not None and not self._tls.has_failed:
            self._tell(reason.getErrorMessage())

    def _refuse(self, reason: str) -> None:
        self._tell(reason)
        self.transport.loseConnection()
        self.dataReceived = _ignore  # type: ignore[method-assign]

    def _silent(self) -> None:
        self._timer = self._last_turn.look_again(self._clock, self._silent)
        if self._timer is not None:
            return
        self._refuse(f"it said nothing for {self._patience:.0f} s")

    def _tell(self, reason: str) -> None:
        peer = self.transport.getPeer()
        more = self._refusals.admit(str(getattr(peer, "host", peer)), reason)
        if more is not None:
            self.log.warn(
                "{peer} refused by {what}: {reason}{more}",
                peer=address_text(peer),
                what=self._rules.title,
                reason=reason,
                more=more,
            )

    def _stop_timer(self) -> None:
        self._timer = rearm(self._clock, self._timer, None, self._silent)


def _ignore(data: bytes) -> None:
    pass


def address_text(address: IAddress) -> str:
    """Return an address as `host:port`, or as its own text if it has no host or port."""
    host, port = getattr(address, "host", None), getattr(address, "port", None)
    return str(address) if host is None or port is None else str(HostPort(host, port))
