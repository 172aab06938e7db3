"""Frames that are not whole: what they may take, in bytes and in time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import formatEvent
from twisted.python.failure import Failure

from rmq_ha.base.config.netty import NettyServerConfig
from rmq_ha.base.remoting.dispatcher import RequestDispatcher
from rmq_ha.base.remoting.protocol import ServerProtocol
from rmq_ha.base.remoting.unfinished import FREE_BYTES, UnfinishedFrames
from rmq_ha.base.tls.refusals import Refusals
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.frame import encode_frame

FRAME = encode_frame(RemotingCommand(1, {}, bytes(100_000)))


class Server:
    """Connections that share their limits."""

    def __init__(self, idle=120.0, **limits):
        self.clock = Clock()
        self.config = NettyServerConfig(**limits)
        self.frames = UnfinishedFrames(self.config)
        self.dispatcher = RequestDispatcher()
        self.bodies = []
        self.dispatcher.routes[1] = self.serve
        self.idle = idle
        self.connected = {}

    def serve(self, channel, request):
        self.bodies.append(len(request.body or b""))
        return request.response()

    def connect(self, host="10.0.0.1", port=5):
        protocol = ServerProtocol(
            self.clock,
            self.dispatcher,
            self.idle,
            self.connected,
            refusals=Refusals(self.clock),
            frames=self.frames,
        )
        transport = StringTransport(peerAddress=IPv4Address("TCP", host, port))
        protocol.makeConnection(transport)
        return protocol


def is_closed(protocol):
    return protocol.transport.disconnected


def test_the_oldest_frame_of_an_address_goes_first():
    server = Server(max_unfinished_bytes_per_ip=250_000)
    others = server.connect("10.0.0.2")
    others.dataReceived(FRAME[:90_000])
    first, second, third = (server.connect(port=port) for port in range(3))
    first.dataReceived(FRAME[:90_000])
    second.dataReceived(FRAME[:90_000])
    first.dataReceived(FRAME[90_000:95_000])
    assert server.frames.kept == 90_000 + 95_000 + 90_000
    third.dataReceived(FRAME[:90_000])
    assert [is_closed(one) for one in (others, first, second, third)] == [0, 1, 0, 0]
    assert server.frames.kept == 3 * 90_000
    assert server.frames.dropped["maxUnfinishedBytesPerIp"] == 1
    assert server.dispatcher.violations == 1
    first.dataReceived(FRAME[95_000:])
    for protocol in (others, second, third):
        protocol.dataReceived(FRAME[90_000:])
    assert server.bodies == [100_000] * 3
    assert server.frames.kept == 0


def test_the_oldest_of_all_goes_when_it_is_too_much_in_all():
    server = Server(max_unfinished_bytes=250_000)
    protocols = [server.connect(f"10.0.0.{n}") for n in range(4)]
    for protocol in protocols:
        protocol.dataReceived(FRAME[:90_000])
    assert [is_closed(one) for one in protocols] == [1, 1, 0, 0]
    assert server.frames.dropped["maxUnfinishedBytes"] == 2


def test_a_connection_that_goes_takes_its_bytes_along():
    server = Server()
    protocol = server.connect()
    protocol.dataReceived(FRAME[:50_000])
    assert server.frames.kept == 50_000
    protocol.connectionLost(Failure(ConnectionDone()))
    assert server.frames.kept == 0
    assert server.frames._of_host == {}


def test_what_was_dropped_is_freed_at_once_and_says_why(monkeypatch):
    said = []
    monkeypatch.setattr(ServerProtocol, "_tell", lambda self, violation: said.append(violation))
    server = Server(max_unfinished_bytes_per_ip=50_000)
    protocol = server.connect()
    protocol.dataReceived(FRAME[:60_000])
    assert is_closed(protocol)
    assert protocol._reader.unfinished == 0
    protocol.dataReceived(FRAME[60_000:])
    assert server.bodies == []
    (violation,) = said
    assert "(maxUnfinishedBytesPerIp)" in str(violation)


@pytest.mark.parametrize(
    ("key", "whose"),
    [("max_unfinished_bytes_per_ip", "of 10.0.0.1"), ("max_unfinished_bytes", "in all")],
)
def test_as_much_as_is_allowed_is_allowed_and_the_log_says_whose_it_was(key, whose, logged):
    server = Server(**{key: 50_000})
    protocol = server.connect()
    protocol.dataReceived(FRAME[:50_000])
    assert not is_closed(protocol)
    protocol.dataReceived(FRAME[50_000:50_001])
    assert is_closed(protocol)
    (line,) = [formatEvent(event) for event in logged]
    assert f"there are more than 50000 bytes of such {whose} (" in line


def test_what_waits_behind_a_long_request_is_counted_with_it():
    server = Server()
    server.dispatcher.routes[3] = lambda channel, request: channel.hold(50_000, Deferred())
    server.connect().dataReceived(encode_frame(RemotingCommand(3)) + FRAME[:20_000])
    assert server.frames.kept == 70_000


def test_small_ends_of_chunks_are_not_counted():
    server = Server(max_unfinished_bytes=FREE_BYTES)
    for port in range(100):
        server.connect(port=port).dataReceived(FRAME[:FREE_BYTES])
    assert server.frames.kept == 0


def test_what_waits_until_the_peer_reads_is_counted():
    """It has its answers unread; the largest frame that it sent in one chunk with others waits."""
    server = Server()
    protocol = server.connect()
    server.dispatcher.routes[2] = lambda channel, request: protocol.pauseProducing()
    protocol.dataReceived(encode_frame(RemotingCommand(2)) + FRAME)
    assert server.bodies == []
    assert server.frames.kept > 100_000
    protocol.resumeProducing()
    assert server.bodies == [100_000]
    assert server.frames.kept == 0


def test_a_frame_has_to_be_whole_in_time():
    """A byte each 119 s kept it for ever."""
    server = Server(frame_timeout_seconds=30)
    protocol, honest = server.connect(), server.connect(port=6)
    honest.dataReceived(FRAME)
    protocol.dataReceived(FRAME)
    server.clock.advance(29)
    for at in range(29):
        protocol.dataReceived(FRAME[at : at + 1])
        server.clock.advance(1)
        assert not is_closed(protocol)
    protocol.dataReceived(FRAME[29:30])
    server.clock.advance(1.001)
    assert is_closed(protocol)
    assert not is_closed(honest)
    assert server.frames.dropped["frameTimeoutSeconds"] == 1


@pytest.mark.parametrize("size", [1, 50_000])
def test_a_frame_of_which_nothing_more_comes_is_given_up(size):
    """And what it took is free at once for others."""
    server = Server(frame_timeout_seconds=30)
    protocol = server.connect()
    protocol.dataReceived(FRAME[:size])
    server.clock.advance(29.9)
    assert not is_closed(protocol)
    server.clock.advance(0.1)
    assert is_closed(protocol)
    assert server.frames.kept == 0


def test_each_frame_has_its_own_time():
    server = Server(frame_timeout_seconds=30)
    protocol = server.connect()
    protocol.dataReceived(FRAME[:-1])
    for _ in range(10):
        server.clock.advance(20)
        protocol.dataReceived(FRAME[-1:] + FRAME[:-1])
    assert not is_closed(protocol)
    assert len(server.bodies) == 10


@pytest.mark.parametrize(("idle", "timeout"), [(120.0, 0), (0.0, 0)])
def test_without_a_limit_it_may_take_any_time(idle, timeout):
    server = Server(idle, frame_timeout_seconds=timeout)
    protocol = server.connect()
    for at in range(20):
        protocol.dataReceived(FRAME[at : at + 1])
        server.clock.advance(119)
    assert not is_closed(protocol)
    assert bool(server.clock.getDelayedCalls()) == bool(idle)


def test_while_we_do_not_read_its_time_stands_still():
    server = Server(0.0, frame_timeout_seconds=30)
    protocol = server.connect()
    protocol.dataReceived(FRAME[:50_000])
    protocol.pauseProducing()
    for _ in range(10):
        server.clock.advance(14)
    protocol.resumeProducing()
    assert not is_closed(protocol)
    server.clock.advance(29)
    assert not is_closed(protocol)
    server.clock.advance(30)
    assert is_closed(protocol)


def test_a_long_header_is_not_waited_for():
    server = Server()
    protocol = server.connect()
    protocol.dataReceived(b"\x00\xff\xff\xf0\x00\x04\x00\x01")
    assert protocol.transport.disconnecting
    assert server.dispatcher.violations == 1
    protocol = server.connect()
    protocol.dataReceived(b"\x00\xff\xff\xf0\x00\x04\x00\x00")
    assert not protocol.transport.disconnecting
    protocol = Server(max_header_size=1 << 24).connect()
    protocol.dataReceived(b"\x00\xff\xff\xf0\x00\x04\x00\x01")
    assert not protocol.transport.disconnecting


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["part", "rest", "lose"]), st.integers(0, 7), st.integers(1, 90_000)
        ),
        max_size=60,
    )
)
def test_the_sums_are_right_and_the_limits_hold(steps):
    server = Server(max_unfinished_bytes=200_000, max_unfinished_bytes_per_ip=120_000)
    protocols = {}
    for what, number, size in steps:
        protocol = protocols.get(number)
        if protocol is None or is_closed(protocol):
            protocol = protocols[number] = server.connect(f"10.0.0.{number % 3}", number)
        sent = protocol._reader.unfinished
        if what == "part":
            protocol.dataReceived(FRAME[sent : min(sent + size, len(FRAME) - 1)])
        elif what == "rest":
            protocol.dataReceived(FRAME[sent:])
        else:
            protocol.connectionLost(Failure(ConnectionDone()))
            del protocols[number]
        waiting = [one._reader.unfinished for one in protocols.values()]
        counted = sum(size for size in waiting if size > FREE_BYTES)
        assert server.frames.kept == counted <= 200_000
        assert all(size <= 120_000 for size in server.frames._of_host.values())
        assert sum(server.frames._of_host.values()) == counted
