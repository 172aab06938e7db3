"""Real TCP whose writes leave at once.

Twisted's `write` waits for the next turn of the reactor, and a response or a replication frame
should not wait. The transports here try `send` first when nothing is buffered, and give the rest to
Twisted. Bytes of TLS go Twisted's way.
"""

import errno
import socket
from typing import Any

from twisted.internet import tcp
from twisted.internet.abstract import isIPAddress, isIPv6Address
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred, execute
from twisted.internet.endpoints import HostnameEndpoint, TCP4ClientEndpoint, TCP6ClientEndpoint
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import (
    IAddress,
    IListeningPort,
    ILoggingContext,
    IProtocol,
    IProtocolFactory,
    IReactorTime,
    IResolutionReceiver,
    IStreamClientEndpoint,
    IStreamServerEndpoint,
)
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import directlyProvides, implementer, providedBy

from rmq_ha.base.host.admission import Admission
from rmq_ha.base.tls.refusals import Refusals

BACKLOG = 1024
BOTH_FAMILIES = "::"
_MAPPED = "::ffff:"
_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, socket.EAI_ADDRFAMILY)


class _EagerWrites:
    """Makes the writes of a Twisted TCP transport leave at once; mixed into its class."""

    def write(self: Any, data: bytes) -> None:
        """Send now as much as the socket takes, and buffer the rest."""
        if (
            self.connected
            and not (self.dataBuffer or self._tempDataBuffer)
            and not (self.TLS or self.disconnecting or self._writeDisconnecting or self._aborting)
        ):
            try:
                sent = self.socket.send(data)
            except OSError:
                # Full, or broken: Twisted's own attempt will wait, or report the loss.
                sent = 0
            if sent == len(data):
                if self.producer is not None and not self.streamingProducer:
                    self.startWriting()  # a pull producer is asked again when all is written
                return
            if sent:
                data = data[sent:]
        super().write(data)  # type: ignore[misc]

    def writeSequence(self: Any, iovec: Any) -> None:
        self.write(b"".join(iovec))


class EagerServer(_EagerWrites, tcp.Server):
    """
    The transport of an accepted connection. Its addresses have the form that `_plain` gives them.
    """

    def __init__(
        self, sock: Any, protocol: Any, client: Any, server: Any, sessionno: int, reactor: Any
    ) -> None:
        super().__init__(sock, protocol, _plain(client), server, sessionno, reactor)
        self.setTcpNoDelay(True)
        port: Any = self.server
        self._admission: Admission | None = port.admission
        if self._admission is not None:
            self._admission.connection_made(str(self.hostname))

    def getHost(self) -> IAddress:
        address: IAddress = _address(_plain(self.socket.getsockname()))
        return address

    def connectionLost(self, reason: Failure) -> None:
        """Stop counting the connection. Twisted may call this twice."""
        if self._admission is not None and hasattr(self, "socket"):
            self._admission.connection_lost(str(self.hostname))
        super().connectionLost(reason)


def _plain(address: tuple[Any, ...]) -> tuple[Any, ...]:
    """
    Return the address of a socket, with an IPv4 address in its own form.

    A socket for both families shows 10.0.0.1 as ::ffff:10.0.0.1. Access lists, limits for each
    address, message ids and the addresses of members know the first form only.
    """
    host = address[0]
    if host.startswith(_MAPPED) and isIPAddress(host.removeprefix(_MAPPED)):
        return host.removeprefix(_MAPPED), address[1]
    return address


def _address(address: tuple[Any, ...]) -> IPv4Address | IPv6Address:
    kind = IPv4Address if len(address) == 2 else IPv6Address
    return kind("TCP", *address)


class EagerPort(tcp.Port):
    """
    Accepts connections whose writes leave at once. On `::` it accepts both IPv4 and IPv6.

    :ivar admission: decides who may connect; None: everybody may.
    """

    transport = EagerServer
    admission: Admission | None = None

    def createInternetSocket(self) -> socket.socket:
        """
        Make the socket as Twisted does, with both families on `::` whatever net.ipv6.bindv6only
        says.
        """
        made: socket.socket = super().createInternetSocket()  # type: ignore[no-untyped-call]
        if made.family == socket.AF_INET6:
            is_alone = self.interface != BOTH_FAMILIES
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, is_alone)
        return made

    def _buildAddr(self, address: tuple[Any, ...]) -> IPv4Address | IPv6Address:
        return _address(_plain(address))


@implementer(IProtocolFactory, ILoggingContext)
class _Admitting:
    """
    Builds no protocol for connections that the admission refuses: Twisted closes these at once.
    """

    log = Logger()

    def __init__(self, factory: IProtocolFactory, admission: Admission, refusals: Refusals) -> None:
        self._factory = factory
        self._admission = admission
        self._refusals = refusals

    def logPrefix(self) -> str:
        """Return how Twisted's log calls a port of this factory."""
        return "listener"

    def doStart(self) -> None:
        self._factory.doStart()

    def doStop(self) -> None:
        self._factory.doStop()

    def buildProtocol(self, addr: IAddress) -> IProtocol | None:
        host = str(getattr(addr, "host", addr))
        key = self._admission.why_not(host)
        if key is None:
            return self._factory.buildProtocol(addr)
        more, places = self._refusals.admit(host, key), self._admission.places
        if more is not None:
            self.log.warn(
                "a connection of {peer} is refused by {key}: {taken} are open{limit}{more}",
                peer=host,
                key=key,
                taken=self._admission.taken,
                limit="" if places is None else f" of at most {places}",
                more=more,
            )
        return None


class EagerClient(_EagerWrites, tcp.Client):
    """The transport of a connection that this process made."""

    def _connectDone(self) -> None:
        self.setTcpNoDelay(True)
        super()._connectDone()  # type: ignore[no-untyped-call]


class EagerConnector(tcp.Connector):
    """
    Connects with an eager transport.

    :ivar sockets: the reactor itself, which the transport needs. The connector's own reactor has
        the clock.
    """

    sockets: Any

    def _makeTransport(self) -> EagerClient:
        return EagerClient(  # type: ignore[no-untyped-call]
            self.host, self.port, self.bindAddress, self, self.sockets
        )


class _EagerReactor:
    """The reactor as Twisted's endpoints see it, with another `connectTCP` and a steady clock."""

    def __init__(self, reactor: Any, clock: IReactorTime) -> None:
        self.seconds = clock.seconds
        self.callLater = clock.callLater
        self._reactor = reactor
        directlyProvides(self, providedBy(reactor))  # a resolver of names, among others

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reactor, name)

    def connectTCP(
        self, host: str, port: int, factory: Any, timeout: float = 30, bindAddress: Any = None
    ) -> EagerConnector:
        connector = EagerConnector(host, port, factory, timeout, bindAddress, self)
        connector.sockets = self._reactor
        connector.connect()
        return connector


@implementer(IStreamServerEndpoint)
class _ServerEndpoint:
    def __init__(
        self,
        reactor: Any,
        port: int,
        interface: str,
        admission: Admission | None,
        refusals: Refusals,
    ) -> None:
        self._reactor = reactor
        self._port = port
        self._interface = interface
        self._admission = admission
        self._refusals = refusals

    def listen(self, protocolFactory: IProtocolFactory) -> "Deferred[IListeningPort]":
        """Bind with SO_REUSEADDR, and listen."""
        return execute(self._listen, protocolFactory)

    def _listen(self, factory: IProtocolFactory) -> IListeningPort:
        if self._admission is not None:
            factory = _Admitting(factory, self._admission, self._refusals)
        if self._interface:
            return self._listening(factory, self._interface)
        try:
            return self._listening(factory, BOTH_FAMILIES)
        except CannotListenError as error:
            if getattr(error.socketError, "errno", None) not in _NO_IPV6:
                raise
        return self._listening(factory, "0.0.0.0")

    def _listening(self, factory: IProtocolFactory, interface: str) -> IListeningPort:
        port = EagerPort(self._port, factory, BACKLOG, interface, self._reactor)
        port.admission = self._admission
        port.startListening()
        listening: IListeningPort = port
        return listening


class RealNetwork:
    """`rmq_ha.base.seams.Network` over TCP."""

    def __init__(
        self,
        reactor: Any,
        clock: IReactorTime | None = None,
        admission: Admission | None = None,
    ) -> None:
        """
        :param clock: for timeouts; None: the reactor's own clock.
        :param admission: limits the connections to listening ports; None: nobody is refused.
        """
        self._reactor = reactor
        self._admission = admission
        self._refusals = Refusals(clock or reactor)
        self._eager_reactor: Any = _EagerReactor(reactor, clock or reactor)

    def client(self, host: str, port: int, timeout: float = 3.0) -> IStreamClientEndpoint:
        """
        Return an endpoint that connects to a peer; a name is resolved at each connect.

        :param timeout: most seconds for a connect.
        """
        endpoint: IStreamClientEndpoint
        if isIPAddress(host):
            endpoint = TCP4ClientEndpoint(self._eager_reactor, host, port, timeout)
        elif isIPv6Address(host):
            endpoint = TCP6ClientEndpoint(  # type: ignore[no-untyped-call]
                self._eager_reactor, host, port, timeout
            )
        else:
            endpoint = HostnameEndpoint(self._eager_reactor, host, port, timeout)
        return endpoint

    def server(self, port: int, interface: str = "") -> IStreamServerEndpoint:
        """
        Return an endpoint that listens; with port 0 on a free port.

        :param interface: an address of this machine. Empty: all of IPv4 and IPv6, or all of IPv4
            where the machine has no IPv6; `0.0.0.0`: all of IPv4.
        """
        return _ServerEndpoint(self._reactor, port, interface, self._admission, self._refusals)

    def look_up(self, name: str) -> "Deferred[list[str]]":
        """
        Look up the addresses of a name. Fires with an empty list if the name is not known; never
        fails.
        """
        addresses = _Addresses()
        self._reactor.nameResolver.resolveHostName(addresses, name)
        return addresses.complete


@implementer(IResolutionReceiver)
class _Addresses:
    def __init__(self) -> None:
        self.complete: Deferred[list[str]] = Deferred()
        self._found: list[str] = []

    def resolutionBegan(self, resolutionInProgress: Any) -> None:
        """See `IResolutionReceiver`. Nobody cancels a resolution."""

    def addressResolved(self, address: Any) -> None:
        self._found.append(address.host)

    def resolutionComplete(self) -> None:
        self.complete.callback(self._found)
