"""The layer between a transport and a protocol, on a clock: time-outs, order, the door."""

import os

import pytest
from OpenSSL import SSL
from twisted.internet.address import IPv4Address, UNIXAddress
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IConsumer, ITCPTransport
from twisted.internet.protocol import Protocol
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import globalLogPublisher
from twisted.python.failure import Failure
from zope.interface.verify import verifyObject

from rmq_ha.base.errors import TlsRefused
from rmq_ha.base.tls.client import ClientTls
from rmq_ha.base.tls.context import client_context
from rmq_ha.base.tls.ends import TlsCall, TlsDoor
from rmq_ha.base.tls.ha import HaTls
from rmq_ha.base.tls.peer import PeerCheck
from rmq_ha.base.tls.refusals import Refusals
from rmq_ha.base.tls.session import TlsSession
from rmq_ha.base.tls.transport import TlsTransport
from tests.unit.base.tls.material import Files, now_ms

HOST = "10.0.0.1"


class Echo(Protocol):
    """Sends back; remembers."""

    def __init__(self) -> None:
        self.got = b""
        self.pieces: list[bytes] = []
        self.lost: Failure | None = None

    def dataReceived(self, data: bytes) -> None:
        self.got += data
        self.pieces.append(data)
        if data.startswith(b"say "):
            self.transport.write(data[4:])

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        self.lost = reason


class Raw(StringTransport):
    def __init__(self, host: str) -> None:
        super().__init__(peerAddress=IPv4Address("TCP", host, 5000))
        self.aborted = False
        self.closes = 0

    def abortConnection(self) -> None:
        self.aborted = True

    def setTcpNoDelay(self, enabled: bool) -> None:
        self.no_delay = enabled

    def getTcpNoDelay(self) -> bool:
        return self.no_delay

    def setTcpKeepAlive(self, enabled: bool) -> None:
        self.keep_alive = enabled

    def getTcpKeepAlive(self) -> bool:
        return self.keep_alive

    def loseConnection(self) -> None:
        super().loseConnection()
        self.closes += 1


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
        if event["log_namespace"].startswith("rmq_ha.base.tls"):
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
    transport.setTcpKeepAlive(True)
    assert call_raw.no_delay
    assert transport.getTcpNoDelay()
    assert call_raw.keep_alive
    assert transport.getTcpKeepAlive()
    assert transport.getHost() == call_raw.getHost()
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
    transport.resumeProducing()
    assert door_raw.producerState == "producing"
    end(world, door, call)


@pytest.mark.parametrize("how", ["loseConnection", "loseWriteConnection", "stopProducing"])
def test_every_way_to_close_says_good_bye(world: World, how: str) -> None:
    door, door_raw, call, call_raw = world.connect()
    transport = inner_of(call).transport
    getattr(transport, how)()
    getattr(transport, how)()
    assert call_raw.closes == 1
    world.carry(door, door_raw, call, call_raw)
    assert door_raw.disconnecting
    end(world, door, call)


def test_a_connection_that_was_made_in_time_has_all_the_time(world: World) -> None:
    door, door_raw, call, call_raw = world.connect()
    world.clock.advance(100)
    assert (door_raw.disconnecting, call_raw.disconnecting) == (False, False)
    assert (door_raw.aborted, call_raw.aborted) == (False, False)
    end(world, door, call)


@pytest.mark.parametrize("how", ["loseConnection", "abortConnection"])
def test_what_is_said_after_the_end_is_heard_by_nobody(world: World, how: str) -> None:
    door, door_raw, call, call_raw = world.connect()
    client, (server,) = inner_of(call), world.inside
    client.transport.write(b"late")
    getattr(server.transport, how)()
    world.carry(door, door_raw, call, call_raw)
    assert server.pieces == []
    assert client.pieces == []
    end(world, door, call)


def test_what_is_written_when_it_is_gone_goes_nowhere(world: World) -> None:
    door, _, call, call_raw = world.connect()
    client = inner_of(call)
    call_raw.clear()
    end(world, door, call)
    client.transport.write(b"into the dark")
    assert call_raw.value() == b""


def test_nothing_empty_is_delivered(world: World) -> None:
    """A protocol may ask for the first byte of what it is given."""
    door, door_raw, call, call_raw = world.connect()
    client, (server,) = inner_of(call), world.inside
    client.transport.write(b"say hello")
    world.carry(door, door_raw, call, call_raw)
    assert server.pieces == [b"say hello"]
    assert client.pieces == [b"hello"]
    end(world, door, call)


def test_what_is_written_before_the_handshake_leaves_after_it(world: World) -> None:
    """In its order."""
    door, door_raw, call, call_raw = *world.door(), *world.call()
    for piece in (b"one ", b"two ", b"three"):
        call._tls.write(piece)
    world.carry(door, door_raw, call, call_raw)
    assert world.inside[0].got == b"one two three"
    end(world, door, call)


def test_one_that_breaks_off_later_is_cut_and_its_protocol_hears_why(world: World) -> None:
    door, door_raw, call, _ = world.connect()
    door.dataReceived(b"\x17\x03\x03\x00\x20" + bytes(32))
    assert door_raw.aborted
    assert not door_raw.disconnecting
    door.dataReceived(b"\x17\x03\x03\x00\x20" + bytes(32))
    end(world, door, call)
    (server,) = world.inside
    assert server.lost is not None
    server.lost.trap(TlsRefused)
    assert world.lines == ["10.0.0.2:5000 is in: TLSv1.3, slave.example"]


@pytest.mark.parametrize("how", ["loseConnection", "abortConnection"])
def test_one_that_we_close_in_the_handshake_is_not_too_slow_as_well(world: World, how: str) -> None:
    door, raw = world.door()
    door.dataReceived(b"\x16\x03\x01")
    getattr(door._tls, how)()
    world.clock.advance(30)
    assert world.lines == []
    assert raw.aborted is (how == "abortConnection")
    door.connectionLost(Failure(ConnectionDone()))


def test_one_that_was_too_slow_is_not_let_in_when_it_goes_on(world: World) -> None:
    link = world.client_rules.link_session(HOST)
    door, raw = world.door()
    link.start()
    door.dataReceived(link.data_to_send())
    world.clock.advance(10.1)
    assert raw.disconnecting
    link.receive_data(raw.value())
    door.dataReceived(link.data_to_send())
    assert link.is_secured
    assert world.inside == []
    end(world, door)


def test_a_first_byte_that_was_not_read_during_a_long_turn_is_in_time(world: World) -> None:
    call, call_raw = world.call()
    door, raw = world.door()
    world.clock.callLater(20, door.dataReceived, call_raw.value())
    world.clock.advance(30)
    assert not raw.disconnecting
    assert raw.value()
    call_raw.clear()
    end(world, door, call)
    refused(call.opened)


def test_one_that_was_refused_does_not_begin_anew(world: World) -> None:
    call, call_raw = world.call()
    door, raw = world.door()
    door.dataReceived(b"\0\0\0\x16")
    assert "it does not speak TLS" in world.lines[0]
    door.dataReceived(call_raw.value())
    assert raw.value() == b""
    assert len(world.lines) == 1
    end(world, door, call)
    refused(call.opened)


def test_what_has_no_version_to_offer_is_not_connected(world: World) -> None:
    context = client_context(None, None)
    context.set_max_proto_version(SSL.TLS1_1_VERSION)
    call = TlsCall(world.clock, Echo, TlsSession(context, PeerCheck(), connects=True))
    raw = Raw(HOST)
    call.makeConnection(raw)
    assert raw.disconnecting
    end(world, call)
    assert "no protocols available" in refused(call.opened)


def test_strangers_at_a_local_socket_are_named(world: World) -> None:
    door, raw = world.door()
    raw.peerAddr = UNIXAddress("/run/ha")
    door.dataReceived(bytes(8))
    assert world.lines[0].startswith("UNIXAddress('/run/ha') refused by tls.ha.mode: ")
    end(world, door)


def test_one_without_a_certificate_is_in_without_a_name() -> None:
    world = make_world(mode="permissive")
    globalLogPublisher.addObserver(world.log)
    client = TlsSession(client_context(None, None), PeerCheck(), connects=True)
    call = TlsCall(world.clock, Echo, client)
    raw = Raw(HOST)
    call.makeConnection(raw)
    door, door_raw = world.door()
    world.carry(door, door_raw, call, raw)
    globalLogPublisher.removeObserver(world.log)
    assert world.lines == ["10.0.0.2:5000 is in: TLSv1.3, no certificate"]
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
    assert "is signed by no root that this side trusts" in world.lines[0]
    end(world, door)
    # TLS 1.3: the caller was done before it was judged; its protocol hears why.
    client = inner_of(call)
    call.connectionLost(Failure(ConnectionDone()))
    assert client.lost is not None
    assert "does not trust the root of this side's certificate" in client.lost.getErrorMessage()
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


def test_nobody_is_let_in_any_more(world: World) -> None:
    """The service stops while somebody stands at the door."""
    door, raw = world.door()
    door.abort()
    assert raw.aborted
    end(world, door)


def test_a_connection_that_can_send_nothing_more_is_given_up(world: World) -> None:
    """Whatever broke OpenSSL's state: what is written is not lost in silence."""
    session = world.client_rules.link_session(HOST)
    failed: list[str] = []
    raw = Raw(HOST)
    nothing = [].append
    transport = TlsTransport(
        raw, session, world.clock, secured=list, deliver=nothing, failed=failed.append
    )
    door, door_raw = world.door()
    transport.start()
    for _ in range(3):
        door.dataReceived(raw.value())
        raw.clear()
        if door_raw.value():
            transport.receive_data(door_raw.value())
            door_raw.clear()
        if transport.is_secured:
            break
    session.close()
    transport.write(b"lost")
    transport.write(b"lost")
    assert len(failed) == 1
    assert transport.has_failed
    end(world, door)


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
    clock.advance(59.5)
    assert refusals.admit("a", "w") is None
    clock.advance(0.5)
    assert refusals.admit("a", "z") == " (72 others were refused without a line)"
    assert refusals.admit("b", "z") == ""


def test_client_rules_without_tls_have_no_context() -> None:
    assert not ClientTls({}, Files().read_bytes, now_ms).enabled
