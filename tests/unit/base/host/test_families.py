"""Ports of both families: IPv4 and IPv6 reach them, and a peer of IPv4 shows its own address."""

import errno
import socket
import time
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet import tcp
from twisted.internet.epollreactor import EPollReactor
from twisted.internet.protocol import Factory, Protocol

from rmq_ha.base.host.admission import Admission
from rmq_ha.base.host.network import RealNetwork
from rmq_ha.base.host.surroundings import has_ipv6

needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


class Peers(Protocol):
    """Notes who connects, and from where."""

    factory: Any

    def connectionMade(self) -> None:
        peer, here = self.transport.getPeer(), self.transport.getHost()
        self.factory.peers.append((type(peer).__name__, peer.host, here.host, here.port))


class Service(Factory):
    protocol = Peers

    def __init__(self) -> None:
        self.peers: list[tuple[str, str, str, int]] = []
        self.built: list[Any] = []

    def buildProtocol(self, addr: Any) -> Any:
        self.built.append(addr.host)
        return super().buildProtocol(addr)


class Station:
    """A port, and connections to it."""

    def __init__(self, interface: str, most_per_address: int = 0) -> None:
        self.reactor, self.service = EPollReactor(), Service()
        limits = SimpleNamespace(max_connections=0, max_connections_per_ip=most_per_address)
        network = RealNetwork(self.reactor, admission=Admission(limits, 1 << 20))
        network.server(0, interface).listen(self.service).addCallback(
            lambda port: setattr(self, "port", port)
        )
        self.number: int = self.port.getHost().port

    port: Any = None

    def connect(self, host: str) -> socket.socket:
        client = socket.create_connection((host, self.number), timeout=5)
        before, end = len(self.service.built), time.monotonic() + 20
        while len(self.service.built) == before and not self._is_closed(client):
            assert time.monotonic() < end, "nobody was asked"
            self.reactor.iterate(0.01)
        return client

    def _is_closed(self, client: socket.socket) -> bool:
        client.setblocking(False)
        try:
            return client.recv(1) == b""
        except BlockingIOError:
            return False


@needs_ipv6
@pytest.mark.parametrize("interface", ["", "::"])
def test_both_families_reach_a_port(interface: str) -> None:
    """One of IPv4 is told as such: to the factory, to the protocol and to who counts."""
    station = Station(interface)
    clients = [station.connect(host) for host in ("127.0.0.1", "::1")]
    assert station.service.built == ["127.0.0.1", "::1"]
    assert station.service.peers == [
        ("IPv4Address", "127.0.0.1", "127.0.0.1", station.number),
        ("IPv6Address", "::1", "::1", station.number),
    ]
    for client in clients:
        client.close()


@needs_ipv6
def test_an_address_of_ipv4_is_counted_as_itself() -> None:
    """maxConnectionsPerIp: one of 127.0.0.1, and one of ::1."""
    station = Station("", most_per_address=1)
    clients = [station.connect(host) for host in ("127.0.0.1", "::1", "127.0.0.1")]
    assert station.service.built == ["127.0.0.1", "::1"]
    for client in clients:
        client.close()


@needs_ipv6
@pytest.mark.parametrize(
    ("interface", "there", "other"),
    [
        ("0.0.0.0", "127.0.0.1", "::1"),
        ("127.0.0.1", "127.0.0.1", "::1"),
        ("::1", "::1", "127.0.0.1"),
    ],
)
def test_an_address_is_of_one_family(interface: str, there: str, other: str) -> None:
    station = Station(interface)
    station.connect(there).close()
    assert station.service.built == [there]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((other, station.number), timeout=5)


def test_a_machine_without_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernel has no such sockets: all of IPv4 it is then."""
    make = tcp.Port.createInternetSocket

    def without(port: Any) -> Any:
        if port.addressFamily == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "no IPv6")
        return make(port)

    monkeypatch.setattr(tcp.Port, "createInternetSocket", without)
    station = Station("")
    station.connect("127.0.0.1").close()
    assert station.service.built == ["127.0.0.1"]


def test_a_taken_port_is_said() -> None:
    """And not answered by a port of the other family."""
    station = Station("")
    failed: list[Any] = []
    endpoint = RealNetwork(station.reactor).server(station.number, "")
    endpoint.listen(Service()).addErrback(failed.append)
    assert failed[0].value.socketError.errno == errno.EADDRINUSE
