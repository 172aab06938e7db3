"""Writes that do not wait for the reactor: no byte is lost, doubled or early."""

import errno
import warnings
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet import tcp
from twisted.internet.address import IPv4Address
from twisted.internet.epollreactor import EPollReactor
from zope.interface import implementedBy

from rmq_ha.base.host import network
from rmq_ha.base.host.admission import Admission


class Stock:
    """Twisted's transport, as far as it is asked: what it gets it sends later, in order."""

    def __init__(self, takes: int | None) -> None:
        self.connected, self.TLS = True, False
        self.disconnecting = self._writeDisconnecting = self._aborting = False
        self.dataBuffer, self._tempDataBuffer = b"", list[bytes]()
        self.producer, self.streamingProducer = None, False
        self.sent, self.later, self.asked = b"", b"", 0
        self._takes = takes
        self.socket = SimpleNamespace(send=self.send)

    def send(self, data: bytes) -> int:
        if self._takes is None:
            raise BlockingIOError(errno.EAGAIN, "would block")
        self.sent += data[: self._takes]
        return min(self._takes, len(data))

    def write(self, data: bytes) -> None:
        self.later += data

    def startWriting(self) -> None:
        self.asked += 1


class Eager(network._EagerWrites, Stock):
    """The one over the other."""


@pytest.mark.parametrize("takes", [None, 0, 1, 4, 5, 9])
def test_what_the_socket_does_not_take_goes_later(takes: int | None) -> None:
    transport = Eager(takes)
    transport.writeSequence([b"he", b"llo"])
    assert transport.sent == b"hello"[: takes or 0]
    assert transport.sent + transport.later == b"hello"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dataBuffer", b"x"),
        ("_tempDataBuffer", [b"x"]),
        ("TLS", True),
        ("disconnecting", True),
        ("_writeDisconnecting", True),
        ("_aborting", True),
        ("connected", False),
    ],
)
def test_what_has_to_wait_waits(name: str, value: Any) -> None:
    """Behind other data, for TLS, or where a connection ends: Twisted knows what to do."""
    transport = Eager(9)
    setattr(transport, name, value)
    transport.write(b"hello")
    assert (transport.sent, transport.later) == (b"", b"hello")


@pytest.mark.parametrize("streaming", [True, False])
def test_a_pull_producer_is_asked_for_more(streaming: bool) -> None:
    transport = Eager(9)
    transport.producer, transport.streamingProducer = object(), streaming  # type: ignore[assignment]
    transport.write(b"hello")
    assert transport.asked == (not streaming)


def test_small_frames_wait_for_no_acknowledgement(monkeypatch: pytest.MonkeyPatch) -> None:
    """On both ends."""
    said: list[bool] = []

    def made(self: Any, *_: Any) -> None:
        self.server = SimpleNamespace(admission=None)

    monkeypatch.setattr(tcp.Server, "__init__", made)
    monkeypatch.setattr(tcp.Server, "setTcpNoDelay", lambda self, is_on: said.append(is_on))
    monkeypatch.setattr(tcp.Client, "setTcpNoDelay", lambda self, is_on: said.append(is_on))
    monkeypatch.setattr(tcp.Client, "_connectDone", lambda self: None)
    network.EagerServer(None, None, ("10.0.0.1", 40000), None, 1, None)
    network.EagerClient.__new__(network.EagerClient)._connectDone()
    assert said == [True, True]


def test_who_may_not_come_gets_no_protocol() -> None:
    built: list[object] = []
    factory: Any = SimpleNamespace(buildProtocol=lambda addr: built.append(addr) or "protocol")
    limits: Any = SimpleNamespace(max_connections=0, max_connections_per_ip=1)
    gate = Admission(limits, 1024)
    refusals: Any = SimpleNamespace(admit=lambda host, key: None)
    admitting = network._Admitting(factory, gate, refusals)
    peer = IPv4Address("TCP", "10.0.0.1", 7)
    assert admitting.buildProtocol(peer) == "protocol"
    gate.connection_made("10.0.0.1")
    assert admitting.buildProtocol(peer) is None
    assert built == [peer]


def test_names_are_resolved_as_the_reactor_does_it() -> None:
    """Twisted warns of one that says it cannot, and goes another way."""
    implementedBy(network._EagerReactor)  # from then on zope does not ask `__getattr__` any more
    reactor = EPollReactor()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        network.RealNetwork(reactor).client("localhost", 1)
    for reader in reactor._internalReaders:
        reader.connectionLost(None)
    reactor._poller.close()
