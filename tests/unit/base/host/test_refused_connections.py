"""Listening with limits, over real sockets: who is refused, and who may come after him."""

import resource
import socket
import time
from types import SimpleNamespace

import pytest
from twisted.internet.epollreactor import EPollReactor
from twisted.internet.protocol import Factory, Protocol
from twisted.logger import globalLogPublisher

from rmq_ha.base.host.admission import BY_ADDRESS, Admission
from rmq_ha.base.host.network import RealNetwork


class Greeting(Protocol):
    """Says something to whoever was let in."""

    def connectionMade(self):
        self.transport.write(b"hello")


class Service(Factory):
    """Notes what its port tells it."""

    protocol = Greeting
    noisy = False

    def __init__(self):
        self.told = []

    def startFactory(self):
        self.told.append("start")

    def stopFactory(self):
        self.told.append("stop")


class Gate:
    """A port that takes one connection of an address, and clients of it that do not wait."""

    def __init__(self):
        self.reactor, self.service = EPollReactor(), Service()
        limits = SimpleNamespace(max_connections=0, max_connections_per_ip=1)
        self.admission = Admission(limits, resource.RLIM_INFINITY)
        endpoint = RealNetwork(self.reactor, admission=self.admission).server(0, "127.0.0.1")
        endpoint.listen(self.service).addCallback(setattr_of(self, "port"))
        self.clients = []

    def connect(self):
        client = socket.create_connection(("127.0.0.1", self.port.getHost().port))
        client.setblocking(False)
        self.clients.append(client)
        return client

    def run_until(self, condition):
        end = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < end, "never happened"
            self.reactor.iterate(0.01)

    def hears(self, client):
        """What it is told first; nothing: its connection was closed."""
        heard = []

        def read():
            try:
                heard.append(client.recv(100))
            except BlockingIOError:
                return False
            except ConnectionResetError:
                heard.append(b"")
            return True

        self.run_until(read)
        return heard[0]

    def close(self):
        for client in self.clients:
            client.close()
        self.run_until(lambda: self.admission.taken == 0)
        stopped = []
        self.port.stopListening().addBoth(stopped.append)
        self.run_until(lambda: stopped)
        self.reactor._poller.close()
        for reader in self.reactor._internalReaders:
            reader.connectionLost(None)


def setattr_of(thing, name):
    return lambda value: setattr(thing, name, value)


@pytest.fixture
def gate():
    made = Gate()
    yield made
    made.close()


def test_who_is_refused_may_come_when_somebody_has_left(gate):
    first = gate.connect()
    assert gate.hears(first) == b"hello"
    assert gate.hears(gate.connect()) == b""
    assert (gate.admission.taken, gate.admission.refused[BY_ADDRESS]) == (1, 1)
    first.close()
    gate.run_until(lambda: gate.admission.taken == 0)
    assert gate.hears(gate.connect()) == b"hello"
    assert gate.admission.taken == 1


def test_the_log_says_once_a_minute_who_is_refused(gate):
    """And by which key: an operator may raise it."""
    lines = []
    globalLogPublisher.addObserver(lines.append)
    try:
        assert gate.hears(gate.connect()) == b"hello"
        for _ in range(3):
            assert gate.hears(gate.connect()) == b""
    finally:
        globalLogPublisher.removeObserver(lines.append)
    (line,) = [line for line in lines if "is refused" in (line.get("log_format") or "")]
    told = line["log_format"].format(**line)
    assert told == "a connection of 127.0.0.1 is refused by maxConnectionsPerIp: 1 are open"


def test_a_service_hears_when_its_port_begins_and_ends():
    gate = Gate()
    assert gate.service.told == ["start"]
    gate.close()
    assert gate.service.told == ["start", "stop"]
