"""What a reactor's descriptors see is the same in lean turns as in Twisted's own.

Lean turns use private names of Twisted: this runs with each version that CI has.
"""

import cProfile

import pytest
from twisted.internet.epollreactor import EPollReactor
from twisted.internet.interfaces import IHalfCloseableProtocol
from twisted.internet.pollreactor import PollReactor
from twisted.internet.protocol import Factory, Protocol
from twisted.python import log
from zope.interface import implementer

from rmq_ha.base.host.turns import make_lean, soon_of


class Told(Protocol):
    """Writes down what happens to it."""

    def __init__(self, name, events):
        self.name, self.events = name, events
        self.others = []
        self.on_data = lambda: None

    def dataReceived(self, data):
        self.events.append((self.name, data))
        self.on_data()
        if data == b"raise":
            raise ValueError("a mistake of the protocol")
        if data == b"pause":
            self.transport.pauseProducing()
        if data == b"end the others":
            for other in self.others:
                other.transport.abortConnection()
        if data == b"answer":
            self.transport.write(b"x" * 4_000_000)  # more than a socket takes at once
            self.transport.loseConnection()

    def connectionLost(self, reason):
        self.events.append((self.name, reason.type.__name__))


@implementer(IHalfCloseableProtocol)
class HalfTold(Told):
    """Goes on writing after the other end has written its last byte."""

    def readConnectionLost(self):
        self.events.append((self.name, "reads no more"))
        self.transport.write(b"answer to the end")
        self.transport.loseConnection()

    def writeConnectionLost(self):
        self.events.append((self.name, "writes no more"))


class Conversation:
    """A reactor that nothing else uses, and connections on it."""

    accepting = Told

    def __init__(self, is_lean):
        self.reactor = EPollReactor()
        assert not is_lean or make_lean(self.reactor)
        self.is_lean = is_lean
        self.events = []
        self.accepted = []

    def close(self):
        self.reactor.removeAll()
        for reader in self.reactor._internalReaders:
            reader.connectionLost(None)

    def until(self, condition):
        for _ in range(10_000):
            if condition():
                return
            self.reactor.iterate(0.01)
        raise AssertionError(f"it did not happen; events: {self.events}")

    def connect(self, count):
        """So many connections; returns their connecting ends."""
        factory = Factory()

        def build(_):
            protocol = self.accepting(f"server {len(self.accepted)}", self.events)
            self.accepted.append(protocol)
            return protocol

        factory.buildProtocol = build
        port = self.reactor.listenTCP(0, factory, interface="127.0.0.1")
        ends = []
        for number in range(count):
            client = Factory()
            ends.append(Told(f"client {number}", self.events))
            client.buildProtocol = lambda _, number=number: ends[number]
            client.startedConnecting = lambda connector: None
            client.clientConnectionLost = lambda connector, reason: None
            self.reactor.connectTCP("127.0.0.1", port.getHost().port, client)
            self.until(lambda n=number: len(self.accepted) == n + 1 and ends[n].transport)
        port.stopListening()
        for protocol in self.accepted:
            protocol.others = [other for other in self.accepted if other is not protocol]
        return ends


@pytest.fixture
def logged():
    """Failures that were told."""
    found = []

    def observe(event):
        if event["isError"]:
            found.append(event["failure"].type)

    log.addObserver(observe)
    yield found
    log.removeObserver(observe)


@pytest.fixture(params=["stock", "lean"])
def talk(request):
    conversation = Conversation(request.param == "lean")
    yield conversation
    conversation.close()


def test_bytes_come_in_order_and_a_close_is_told_once(talk):
    (client,) = talk.connect(1)
    for number in range(5):
        client.transport.write(b"%d" % number)
        talk.until(lambda n=number: ("server 0", b"%d" % n) in talk.events)
    client.transport.loseConnection()
    talk.until(lambda: len(talk.events) == 7)
    assert talk.events[:5] == [("server 0", b"%d" % number) for number in range(5)]
    ended = {("server 0", "ConnectionDone"), ("client 0", "ConnectionDone")}
    assert set(talk.events[5:]) == ended


def test_a_protocol_that_raises_is_logged_and_loses_its_connection_alone(talk, logged):
    first, second = talk.connect(2)
    first.transport.write(b"raise")
    talk.until(lambda: ("server 0", "ValueError") in talk.events)
    assert logged == [ValueError]
    second.transport.write(b"still here")
    talk.until(lambda: ("server 1", b"still here") in talk.events)


def test_who_is_closed_in_the_turn_in_which_he_could_read_reads_nothing(talk):
    clients = talk.connect(4)
    for client in clients:
        client.transport.write(b"end the others")
    talk.until(lambda: sum(name.startswith("server") for name, _ in talk.events) >= 4)
    read = [name for name, what in talk.events if what == b"end the others"]
    assert len(read) == 1


def test_what_the_socket_did_not_take_is_written_later(talk):
    (client,) = talk.connect(1)
    client.transport.write(b"answer")
    talk.until(lambda: ("client 0", "ConnectionDone") in talk.events)
    size = sum(len(what) for name, what in talk.events if name == "client 0" and what[:1] == b"x")
    assert size == 4_000_000


def test_timers_go_on(talk):
    fired = []
    talk.reactor.callLater(0.01, fired.append, 1)
    talk.until(lambda: fired == [1])


def test_a_reset_is_told_once(talk):
    (client,) = talk.connect(1)
    client.transport.abortConnection()
    talk.until(lambda: len(talk.events) == 2)
    assert set(talk.events) == {("server 0", "ConnectionLost"), ("client 0", "ConnectionAborted")}


def test_a_protocol_may_answer_the_end_of_what_it_reads(talk):
    talk.accepting = HalfTold
    (client,) = talk.connect(1)
    client.transport.loseWriteConnection()
    talk.until(lambda: ("client 0", "ConnectionDone") in talk.events)
    assert talk.events[0] == ("server 0", "reads no more")
    assert talk.events.count(("client 0", b"answer to the end")) == 1


def test_a_paused_producer_reads_nothing(talk):
    (client,) = talk.connect(1)
    client.transport.write(b"pause")
    talk.until(lambda: ("server 0", b"pause") in talk.events)
    client.transport.write(b"later")
    for _ in range(5):
        talk.reactor.iterate(0.001)
    assert talk.events == [("server 0", b"pause")]
    talk.accepted[0].transport.resumeProducing()
    talk.until(lambda: ("server 0", b"later") in talk.events)


READS = {"callWithLogger", "callWithContext", "_doReadOrWrite", "doRead", "_dataReceived"}


def called_in_a_read(talk, client):
    """Names of the functions in `READS` that a turn calls in which the server reads a byte."""
    counts = []
    for _ in range(2):
        client.transport.socket.send(b"1")
        profile = cProfile.Profile()
        seen = len(talk.events)
        profile.runcall(talk.reactor.doIteration, 1)
        talk.until(lambda n=seen: len(talk.events) > n)
        names = {getattr(entry.code, "co_name", "") for entry in profile.getstats()}
        counts.append(names & READS)
    return counts[-1]


def test_a_lean_turn_calls_nothing_but_the_protocol(talk):
    (client,) = talk.connect(1)
    assert called_in_a_read(talk, client) == (set() if talk.is_lean else READS)


def test_a_transport_that_twisted_encrypts_is_read_by_twisted(talk):
    (client,) = talk.connect(1)
    talk.accepted[0].transport.TLS = True
    assert called_in_a_read(talk, client) >= {"doRead", "_dataReceived"}


@pytest.fixture
def lean():
    conversation = Conversation(is_lean=True)
    yield conversation
    conversation.close()


def test_a_function_for_soon_is_called_when_all_that_came_is_read(lean):
    clients = lean.connect(3)
    soon = soon_of(lean.reactor, lean.reactor)
    for protocol in lean.accepted:
        protocol.on_data = lambda: soon(lambda: lean.events.append("soon"))
    for client in clients:
        client.transport.write(b"1")
    lean.reactor.doIteration(1)
    lean.until(lambda: lean.events.count("soon") == 3)
    came = [what == "soon" for what in lean.events]
    assert came == sorted(came)


def test_a_function_for_soon_may_end_connections_that_have_something_to_read(lean):
    first, second = lean.connect(2)
    soon = soon_of(lean.reactor, lean.reactor)

    def end_both():
        second.transport.socket.send(b"too late")
        for protocol in lean.accepted:
            protocol.transport.abortConnection()

    lean.accepted[0].on_data = lambda: soon(end_both)
    first.transport.write(b"1")
    lean.until(lambda: len(lean.events) == 5)
    assert lean.events[0] == ("server 0", b"1")
    assert lean.events[1:3] == [
        ("server 0", "ConnectionAborted"),
        ("server 1", "ConnectionAborted"),
    ]


def test_any_other_reactor_is_left_as_it_is():
    class OfAnApplication(EPollReactor):
        pass

    for kind in (PollReactor, OfAnApplication):
        reactor = kind()
        try:
            assert not make_lean(reactor)
            assert not vars(reactor).keys() & {"doPoll", "doIteration"}
        finally:
            for reader in reactor._internalReaders:
                reader.connectionLost(None)


def test_an_epoll_reactor_without_the_parts_that_we_know_is_left_as_it_is():
    assert not make_lean(object.__new__(EPollReactor))
