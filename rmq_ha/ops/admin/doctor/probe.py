"""
Probes: whether a port takes connections, what a status port answers, which certificate a TLS port
shows.
"""

from typing import NamedTuple, TypeVar

from cryptography import x509
from OpenSSL import SSL
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectError, ConnectionClosed, DNSLookupError
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure

from rmq_ha.base.model.host_port import parse_host_port
from rmq_ha.base.seams import Host
from rmq_ha.base.tls.context import client_context
from rmq_ha.base.tls.files import KeyPair
from rmq_ha.ops.admin.doctor.facts import Port

P = TypeVar("P", bound=Protocol)
_MOST = 16 << 20
_PIECE = 16384
_GONE = "the connection ended early"


class Exchange(Protocol):
    """Sends a request, and gathers the answer until the other end closes."""

    def __init__(self, request: bytes) -> None:
        self.done: Deferred[bytes] = Deferred()
        self._request = request
        self._got = bytearray()

    def connectionMade(self) -> None:
        """Send the request; if it is empty, the connection itself is the answer."""
        assert self.transport is not None
        if self._request:
            self.transport.write(self._request)
        else:
            self.transport.loseConnection()

    def dataReceived(self, data: bytes) -> None:
        """Gather more of the answer, up to a limit."""
        self._got += data
        if len(self._got) > _MOST and self.transport is not None:
            self.transport.loseConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.done.callback(bytes(self._got))


async def exchange(host: Host, address: str, request: bytes, timeout_s: float) -> bytes:
    """
    Send a request and return all bytes that come back until the other end closes.

    :param request: empty: only connect.
    :raises OSError: the connection fails, or the answer is not complete in time.
    """
    protocol = await _connect(host, address, Exchange(request), timeout_s)
    timer = host.clock.callLater(timeout_s, _cut, protocol)
    got = await protocol.done
    if timer.active():
        timer.cancel()
    elif request:
        raise OSError(f"no whole answer within {timeout_s:g} s")
    return got


async def _connect(host: Host, address: str, protocol: P, timeout_s: float) -> P:
    name, port = parse_host_port(address)
    factory = Factory.forProtocol(lambda: protocol)
    try:
        await host.network.client(name, port, timeout_s).connect(factory)
    except (ConnectError, ConnectionClosed, DNSLookupError) as error:
        raise OSError(str(error).rstrip(".") or type(error).__name__) from None
    return protocol


def _cut(protocol: Protocol) -> None:
    transport = protocol.transport
    if transport is not None:
        transport.abortConnection()  # type: ignore[attr-defined]


async def port_at(host: Host, address: str, timeout_s: float) -> Port:
    """Return whether a port takes connections."""
    try:
        await exchange(host, address, b"", timeout_s)
    except (OSError, ValueError) as error:
        return Port(address, str(error))
    return Port(address)


class Page(NamedTuple):
    """
    An HTTP answer.

    :ivar headers: header values by name, in lower case.
    """

    code: int
    headers: dict[str, str]
    text: str


async def page_at(host: Host, address: str, path: str, timeout_s: float) -> Page:
    """
    Fetch a page of a status port.

    :raises OSError: the page cannot be fetched.
    """
    request = f"GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n".encode()
    return page_in(await exchange(host, address, request, timeout_s))


def page_in(data: bytes) -> Page:
    """
    Parse a server's HTTP answer.

    :raises OSError: the data are not an HTTP answer.
    """
    head, separator, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    code = words[1] if len(words) > 1 else ""
    if not (separator and code.isascii() and code.isdecimal() and len(code) == 3):
        raise OSError("it does not speak HTTP" if head else _GONE)
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return Page(int(code), headers, body.decode("utf-8", "replace"))


class Handshake(Protocol):
    """
    Shakes hands until the server has shown its certificate. It verifies nothing and sends no data.
    """

    def __init__(self, pair: KeyPair | None = None) -> None:
        """
        :param pair: the certificate to show: a server that requires one counts those who have none.
        """
        self.done: Deferred[x509.Certificate | None] = Deferred()
        self._certificate: x509.Certificate | None = None
        self._tls = SSL.Connection(client_context(pair, None), None)
        self._tls.set_connect_state()

    def connectionMade(self) -> None:
        """Begin the handshake, in which the client speaks first."""
        self._go_on()

    def dataReceived(self, data: bytes) -> None:
        if data:  # of none OpenSSL says that it wants some
            self._tls.bio_write(data)
            self._go_on()

    def _go_on(self) -> None:
        assert self.transport is not None
        try:
            self._tls.do_handshake()
        except SSL.WantReadError:
            pass
        except SSL.Error:
            self.transport.loseConnection()
            return
        try:
            while True:
                self.transport.write(self._tls.bio_read(_PIECE))
        except SSL.WantReadError:
            pass
        shown = self._tls.get_peer_certificate()
        if shown is not None:
            self._certificate = shown.to_cryptography()
            self.transport.loseConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.done.callback(self._certificate)


async def certificate_at(
    host: Host, address: str, timeout_s: float, pair: KeyPair | None = None
) -> x509.Certificate:
    """
    Return the certificate that a server shows.

    :param pair: the certificate of this client.
    :raises OSError: the connection fails, or the server speaks no TLS.
    """
    protocol = await _connect(host, address, Handshake(pair), timeout_s)
    timer = host.clock.callLater(timeout_s, _cut, protocol)
    shown = await protocol.done
    if timer.active():
        timer.cancel()
    if shown is None:
        raise OSError(
            "it shows no certificate: it speaks no TLS, or refuses the certificate of this command"
        )
    return shown
