"""What a reactor's descriptors see is the same in lean turns as in Twisted's own.

Lean turns use private names of Twisted: this runs with each version that CI has.
"""

import cProfile

import pytest
from twisted.internet.epollreactor import EPollReactor
from twisted.internet.pollreactor import PollReactor
from twisted.internet.protocol import Factory, Protocol
from twisted.python import log

from rmq_ha.base.host.turns import make_lean


class Told(Protocol):
    """Writes down what happens to it."""

    def __init__(self, name, events):
        self.name, self.events = name, events
        self.others = []

    def dataReceived(self, data):
        self.events.append((self.name, data))
        if data == b"raise":
            raise ValueError("a mistake of the protocol")
        if data == b"end the others":
            for other in self.others:
                other.transport.abortConnection()
        if data == b"answer":
            self.transport.write(b"x" * 4_000_000)  # more than a socket takes at once
            self.transport.loseConnection()

    def connectionLost(self, reason):
        self.events.append((self.name, reason.type.__name__))


class Conversation:
    """A reactor that nothing else uses, and connections on it."""

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
            protocol = Told(f"server {len(self.accepted)}", self.events)
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


def test_a_lean_turn_calls_nothing_but_the_descriptor(talk):
    (client,) = talk.connect(1)
    counts = []
    for _ in range(2):
        client.transport.socket.send(b"1")
        profile = cProfile.Profile()
        seen = len(talk.events)
        profile.runcall(talk.reactor.doIteration, 1)
        talk.until(lambda n=seen: len(talk.events) > n)
        names = {getattr(entry.code, "co_name", "") for entry in profile.getstats()}
        counts.append(names & {"callWithLogger", "callWithContext", "_doReadOrWrite"})
    assert bool(counts[-1]) is not talk.is_lean


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
