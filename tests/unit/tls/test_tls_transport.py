"""The layer between a transport and a protocol, on a clock: time-outs, order, the door."""

import os

import pytest
from material import Files, now_ms
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IConsumer, ITCPTransport
from twisted.internet.protocol import Protocol
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import globalLogPublisher
from twisted.python.failure import Failure
from zope.interface.verify import verifyObject

from rmq_ha.errors import TlsRefused
from rmq_ha.tls.client import ClientTls
from rmq_ha.tls.ends import TlsCall, TlsDoor
from rmq_ha.tls.ha import HaTls
from rmq_ha.tls.refusals import Refusals

HOST = "10.0.0.1"


class Echo(Protocol):
    """Sends back; remembers."""

    def __init__(self) -> None:
        self.got = b""
        self.lost: Failure | None = None

    def dataReceived(self, data: bytes) -> None:
        self.got += data
        if data.startswith(b"say "):
            self.transport.write(data[4:])

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        self.lost = reason


class Raw(StringTransport):
    def __init__(self, host: str) -> None:
        super().__init__(peerAddress=IPv4Address("TCP", host, 5000))
        self.aborted = False

    def abortConnection(self) -> None:
        self.aborted = True

    def setTcpNoDelay(self, enabled: bool) -> None:
        self.no_delay = enabled


class World:
    """A door and a caller, with the test as the wire."""

    def __init__(self, server: dict[str, str], files: Files, client: HaTls) -> None:
        self.clock = Clock()
        self.pending: dict[TlsDoor, None] = {}
        self.inside: list[Echo] = []
        self.lines: list[str] = []
        self.rules = HaTls(server, files.read_bytes, now_ms)
        self.client_rules = client
        self.refusals = Refusals(self.clock)

    def log(self, event) -> None:
        if event["log_namespace"].startswith("rmq_ha.tls"):
            self.lines.append(event["log_format"].format(**event))

    def build(self) -> Echo:
        self.inside.append(Echo())
        return self.inside[-1]

    def door(self, host: str = "10.0.0.2") -> tuple[TlsDoor, Raw]:
        door = TlsDoor(self.clock, self.build, self.rules, self.refusals, 20.0, self.pending)
        raw = Raw(host)
        door.makeConnection(raw)
        return door, raw

    def call(self) -> tuple[TlsCall, Raw]:
        call = TlsCall(self.clock, Echo, self.client_rules.link_session(HOST))
        raw = Raw(HOST)
        call.makeConnection(raw)
        return call, raw

    def connect(self) -> "tuple[TlsDoor, Raw, TlsCall, Raw]":
        ends = (*self.door(), *self.call())
        self.carry(*ends)
        return ends

    def carry(self, door: TlsDoor, door_raw: Raw, call: TlsCall, call_raw: Raw) -> None:
        for _ in range(6):
            for raw, other in ((call_raw, door), (door_raw, call)):
                data = raw.value()
                raw.clear()
                if data:
                    other.dataReceived(data)


@pytest.fixture
def world():
    made = make_world()
    globalLogPublisher.addObserver(made.log)
    yield made
    globalLogPublisher.removeObserver(made.log)
    assert made.clock.getDelayedCalls() == []


def make_world(mode: str = "enforcing", slave_root: str = "ours", **changes: str) -> World:
    files = Files()
    both = {"tls.ha.mode": mode, "tls.ha.enable": "true"}
    server = both | files.put_pair("tls.ha", HOST)
    if mode == "enforcing":
        server |= files.put_root("tls.ha") | {"tls.ha.allowedNames": "*"}
    mine = Files()
    client = {"tls.ha.mode": "enforcing", "tls.ha.enable": "true", "tls.ha.allowedNames": "*"}
    client |= mine.put_pair("tls.ha", "slave.example", root=slave_root) | mine.put_root("tls.ha")
    return World(server | changes, files, HaTls(client, mine.read_bytes, now_ms))


def inner_of(call: TlsCall) -> Echo:
    found: list[Echo] = []
    call.opened.addCallback(found.append)
    return found[0]


def refused(deferred: "Deferred[object]") -> str:
    found: list[Failure] = []
    deferred.addErrback(found.append)
    found[0].trap(TlsRefused)
    return found[0].getErrorMessage()


def end(world: World, door: TlsDoor, call: TlsCall | None = None) -> None:
    for each in (door, call):
        if each is not None:
            each.connectionLost(Failure(ConnectionDone()))


def test_both_ends_meet_after_the_handshake(world: World) -> None:
    door, door_raw, call, call_raw = world.connect()
    client, (server,) = inner_of(call), world.inside
    assert world.pending == {}
    assert world.lines == ["10.0.0.2:5000 is in: TLSv1.3, slave.example"]
    client.transport.write(b"say hello")
    assert call_raw.value()  # within the call, without a turn of a reactor
    world.carry(door, door_raw, call, call_raw)
    assert server.got == b"say hello"
    assert client.got == b"hello"
    end(world, door, call)
    assert server.lost is not None
    server.lost.trap(ConnectionDone)


def test_it_is_a_transport(world: World) -> None:
    door, _, call, call_raw = world.connect()
    transport = inner_of(call).transport
    verifyObject(ITCPTransport, transport)
    verifyObject(IConsumer, transport)
    transport.setTcpNoDelay(True)
    assert call_raw.no_delay
    assert transport.getPeer().host == HOST
    end(world, door, call)


def test_much_at_once_arrives_in_one_piece_or_more(world: World) -> None:
    door, door_raw, call, call_raw = world.connect()
    data = os.urandom(1 << 20)
    inner_of(call).transport.writeSequence([data[:7], data[7:]])
    world.carry(door, door_raw, call, call_raw)
    assert world.inside[0].got == data
    end(world, door, call)


def test_a_producer_watches_the_transport_below(world: World) -> None:
    door, door_raw, call, _ = world.connect()
    transport = world.inside[0].transport
    producer = object()
    transport.registerProducer(producer, True)
    assert door_raw.producer is producer
    transport.unregisterProducer()
    assert door_raw.producer is None
    transport.pauseProducing()
    assert door_raw.producerState == "paused"
    end(world, door, call)


def test_closing_tells_the_other_end(world: World) -> None:
    door, door_raw, call, call_raw = world.connect()
    client = inner_of(call)
    client.transport.loseConnection()
    client.transport.write(b"too late")
    assert call_raw.disconnecting
    world.carry(door, door_raw, call, call_raw)
    assert door_raw.disconnecting
    assert world.inside[0].got == b""
    end(world, door, call)


@pytest.mark.parametrize("first", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01"])
def test_a_stranger_that_dawdles_is_put_out(world: World, first: bytes) -> None:
    """One connection costs nothing but itself, and not for long."""
    door, raw = world.door()
    if first:
        door.dataReceived(first)
    world.clock.advance(9.9)
    assert not raw.disconnecting
    assert list(world.pending) == [door]
    world.clock.advance(10.2)
    assert raw.disconnecting
    assert world.inside == []
    assert raw.value() == b""
    waited = "no TLS handshake within 10 s" if first else "it said nothing for 20 s"
    assert world.lines == [f"10.0.0.2:5000 refused by tls.ha.mode: {waited}"]
    end(world, door)
    assert world.pending == {}


def test_a_plain_slave_gets_nothing(world: World) -> None:
    door, raw = world.door()
    door.dataReceived(bytes(8))
    door.dataReceived(bytes(8))
    assert raw.disconnecting
    assert raw.value() == b""
    assert world.inside == []
    assert world.lines == [
        "10.0.0.2:5000 refused by tls.ha.mode: it does not speak TLS, and tls.ha.mode=enforcing"
    ]
    end(world, door)


def test_garbage_after_a_good_first_byte(world: World) -> None:
    door, raw = world.door()
    door.dataReceived(b"\x16 and nothing sensible" * 40)
    assert raw.disconnecting
    assert world.inside == []
    assert len(world.lines) == 1
    end(world, door)


def test_a_caller_that_leaves_in_the_handshake(world: World) -> None:
    door, _ = world.door()
    door.dataReceived(b"\x16\x03\x01")
    door.connectionLost(Failure(ConnectionLost()))
    assert "it closed the connection in the TLS handshake" in world.lines[0]


def test_a_slave_of_another_root_meets_no_feed() -> None:
    world = make_world(slave_root="theirs")
    globalLogPublisher.addObserver(world.log)
    door, door_raw, call, _ = world.connect()
    globalLogPublisher.removeObserver(world.log)
    assert world.inside == []
    assert door_raw.disconnecting
    assert "slave.example" in world.lines[0]
    assert "is of another root than ours" in world.lines[0]
    end(world, door)
    # TLS 1.3: the caller was done before it was judged; its protocol hears why.
    client = inner_of(call)
    call.connectionLost(Failure(ConnectionDone()))
    assert client.lost is not None
    assert "does not believe our certificate" in client.lost.getErrorMessage()
    assert world.clock.getDelayedCalls() == []


def test_the_caller_leaves_a_wrong_master() -> None:
    world = make_world()
    call = TlsCall(world.clock, Echo, world.client_rules.link_session("10.0.0.77"))
    raw = Raw("10.0.0.77")
    call.makeConnection(raw)
    door, door_raw = world.door()
    world.carry(door, door_raw, call, raw)
    assert raw.disconnecting
    end(world, door, call)
    assert refused(call.opened) == "its certificate is for 10.0.0.1, not for 10.0.0.77"


def test_a_master_without_tls(world: World) -> None:
    call, raw = world.call()
    raw.clear()
    call.connectionLost(Failure(ConnectionDone()))
    assert "it closed the connection in the TLS handshake" in refused(call.opened)


def test_a_caller_that_is_told_to_stop(world: World) -> None:
    call, raw = world.call()
    call.opened.addErrback(lambda _: None)
    call.opened.cancel()
    assert raw.aborted
    call.connectionLost(Failure(ConnectionDone()))


def test_permissive_lets_plain_in() -> None:
    world = make_world(mode="permissive")
    door, raw = world.door()
    door.dataReceived(b"say plain")
    assert world.inside[0].got == b"say plain"
    assert raw.value() == b"plain"
    assert world.pending == {}
    door.dataReceived(b"more")
    assert world.inside[0].got == b"say plainmore"
    end(world, door)
    assert world.inside[0].lost is not None


def test_refusals_do_not_fill_the_log() -> None:
    clock = Clock()
    refusals = Refusals(clock)
    assert [refusals.admit("a", "x") for _ in range(5)] == ["", None, None, None, None]
    assert refusals.admit("b", "x") == ""
    assert refusals.admit("a", "y") == ""
    clock.advance(61)
    assert refusals.admit("a", "x") == " (4 times more in an earlier minute)"
    shown = [refusals.admit("a", str(n)) for n in range(100)]
    assert shown.count("") == 29
    clock.advance(61)
    assert refusals.admit("a", "z") == " (71 others were refused without a line)"


def test_client_rules_without_tls_have_no_context() -> None:
    assert not ClientTls({}, Files().read_bytes, now_ms).enabled
