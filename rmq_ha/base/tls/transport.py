"""TLS between any transport and a protocol.

Twisted's own TLS waits with small writes for a turn of the global reactor; responses and
replication frames are batches already and should leave at once. The transport of this module works
with any clock and any transport below it.
"""

from collections.abc import Callable, Iterable
from typing import Any

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.interfaces import (
    IConsumer,
    IDelayedCall,
    IPushProducer,
    IReactorTime,
    ITCPTransport,
)
from twisted.python.failure import Failure
from zope.interface import implementer

from rmq_ha.base.errors import TlsRefused
from rmq_ha.base.tls.any_session import AnySession

HANDSHAKE_SECONDS = 10.0


@implementer(ITCPTransport, IConsumer, IPushProducer)
class TlsTransport:
    """
    A TLS layer that a protocol gets as its transport. Received bytes are given to `receive_data`.

    :ivar raw: the transport below. Producers are registered there, as it knows its write buffer.
    :ivar is_secured: whether the handshake is done.
    """

    disconnecting = False

    def __init__(
        self,
        raw: Any,
        session: AnySession,
        clock: IReactorTime,
        *,
        secured: Callable[[], object],
        deliver: Callable[[bytes], object],
        failed: Callable[[str], object],
    ) -> None:
        """
        :param secured: called once, after the handshake.
        :param deliver: called with decrypted data.
        :param failed: called at most once, with the reason; the connection is then to be closed,
            which tells the other end why.
        """
        self.raw = raw
        self.is_secured = False
        self._session = session
        self._clock = clock
        self._secured = secured
        self._deliver = deliver
        self._failed = failed
        self._failure: TlsRefused | None = None
        self._has_heard = False
        self._early: list[bytes] = []
        self._timer: IDelayedCall | None = clock.callLater(HANDSHAKE_SECONDS, self._too_slow)

    @property
    def has_failed(self) -> bool:
        """Whether TLS failed, so that the connection is closed or about to be."""
        return self._failure is not None

    @property
    def identity(self) -> str:
        """The names in the other end's verified certificate; empty without one."""
        return self._session.check.identity

    @property
    def names(self) -> tuple[str, ...]:
        return self._session.check.names

    @property
    def description(self) -> str:
        """TLS version and identity, for the log."""
        return f"{self._session.version}, {self.identity or 'no certificate'}"

    def start(self) -> None:
        """Begin the handshake; only for the connecting end."""
        try:
            self._session.start()
        except TlsRefused as error:
            self._fail(error)
            return
        self._flush()

    def receive_data(self, data: bytes) -> None:
        """Decrypt received bytes and deliver the data."""
        if self._failure is not None:
            return
        try:
            plain = self._session.receive_data(data)
        except TlsRefused as error:
            self._fail(error)
            return
        if not self.is_secured:
            # After the handshake only `write` makes bytes to send, and it flushes them.
            self._flush()
            if self._session.is_secured:
                self._begin()
        if plain and not self.disconnecting:
            self._has_heard = True
            self._deliver(plain)
        if self._session.is_closed:
            self.loseConnection()

    def connection_lost(self, reason: Failure) -> Failure:
        """
        Note that the transport below is gone.

        :returns: the reason for the protocol: the TLS failure, if one came before.
        """
        self._stop_timer()
        self.disconnecting = True
        if self._failure is not None:
            return Failure(self._failure)  # type: ignore[no-untyped-call]
        if not self.is_secured:
            why = reason.getErrorMessage()
            closed = TlsRefused(
                f"it closed the connection in the TLS handshake: {why}", retriable=True
            )
            return Failure(closed)  # type: ignore[no-untyped-call]
        return reason

    def deliver_to(self, deliver: Callable[[bytes], object]) -> None:
        """Have another function called with decrypted data from now on."""
        self._deliver = deliver

    # ITransport

    def write(self, data: bytes) -> None:
        """Encrypt and send data now; before the end of the handshake, keep it until then."""
        if self.disconnecting or self._failure is not None or not data:
            return
        if not self.is_secured:
            self._early.append(data)
            return
        try:
            self._session.send(data)
        except TlsRefused as error:
            self._fail(error)
            return
        self._flush()

    def writeSequence(self, data: Iterable[bytes]) -> None:
        self.write(b"".join(data))

    def loseConnection(self) -> None:
        """Close the connection once all written data is sent."""
        if self.disconnecting:
            return
        self.disconnecting = True
        self._stop_timer()
        if self._failure is None:
            self._session.close()
        self._flush()
        self.raw.loseConnection()

    def abortConnection(self) -> None:
        self.disconnecting = True
        self._stop_timer()
        self.raw.abortConnection()

    def loseWriteConnection(self) -> None:
        """Close the whole connection: TLS has no half-closed connections."""
        self.loseConnection()

    def getPeer(self) -> IPv4Address | IPv6Address:
        peer: IPv4Address | IPv6Address = self.raw.getPeer()
        return peer

    def getHost(self) -> IPv4Address | IPv6Address:
        host: IPv4Address | IPv6Address = self.raw.getHost()
        return host

    def getTcpNoDelay(self) -> bool:
        return bool(self.raw.getTcpNoDelay())

    def setTcpNoDelay(self, enabled: bool) -> None:
        self.raw.setTcpNoDelay(enabled)

    def getTcpKeepAlive(self) -> bool:
        return bool(self.raw.getTcpKeepAlive())

    def setTcpKeepAlive(self, enabled: bool) -> None:
        self.raw.setTcpKeepAlive(enabled)

    # IConsumer and IPushProducer

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """Register a producer that is paused while the transport below buffers too much."""
        self.raw.registerProducer(producer, streaming)

    def unregisterProducer(self) -> None:
        self.raw.unregisterProducer()

    def pauseProducing(self) -> None:
        self.raw.pauseProducing()

    def resumeProducing(self) -> None:
        self.raw.resumeProducing()

    def stopProducing(self) -> None:
        self.loseConnection()

    def _begin(self) -> None:
        self.is_secured = True
        self._stop_timer()
        self._secured()
        early, self._early = self._early, []
        for data in early:
            self.write(data)

    def _flush(self) -> None:
        data = self._session.data_to_send()
        if data:
            self.raw.write(data)

    def _too_slow(self) -> None:
        self._timer = None
        reason = f"no TLS handshake within {HANDSHAKE_SECONDS:.0f} s"
        self._fail(TlsRefused(reason, retriable=True))

    def _fail(self, error: TlsRefused) -> None:
        if self._failure is None:
            self._failure = error
            # A peer that has sent data has accepted certificate and version, so the fault may pass.
            error.retriable |= self._has_heard
            self._failed(str(error))

    def _stop_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
