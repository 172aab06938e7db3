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
from rmq_ha.base.remoting.protocol import PeerLimits, ServerProtocol
from rmq_ha.base.remoting.unfinished_frames import FREE_BYTES, LOOK_S, UnfinishedFrames
from rmq_ha.base.tls.refusals import Refusals
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.frame import encode_frame

FRAME = encode_frame(RemotingCommand(1, {}, bytes(100_000)))


class Server:
    """Connections that share their limits."""

    def __init__(self, idle=120.0, **limits):
        self.clock = Clock()
        self.config = NettyServerConfig(**limits)
        self.frames = UnfinishedFrames(self.config, self.clock)
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
            limits=PeerLimits(Refusals(self.clock), self.frames),
        )
        transport = StringTransport(peerAddress=IPv4Address("TCP", host, port))
        protocol.makeConnection(transport)
        return protocol


def is_closed(protocol):
    return protocol.transport.disconnected


def reads(protocol):
    return protocol.transport.producerState == "producing"


def test_the_newest_frames_of_an_address_wait_until_there_is_room():
    """Before, the oldest connection was reset: the one whose frame was nearly whole."""
    server = Server(max_unfinished_bytes_per_ip=290_000)
    others = server.connect("10.0.0.2")
    protocols = [server.connect(port=port) for port in range(4)]
    first, second, third, fourth = protocols
    for protocol in (others, *protocols):
        protocol.dataReceived(FRAME[:10_000])
    assert [reads(one) for one in (others, *protocols)] == [1, 1, 1, 0, 0]
    assert server.frames.kept == 50_000
    assert server.frames.waits == 2
    second.dataReceived(FRAME[10_000:])
    assert [reads(one) for one in protocols] == [1, 1, 1, 0]
    second.dataReceived(FRAME[:10_000])  # its next one is the newest of all
    assert [reads(one) for one in protocols] == [1, 0, 1, 0]
    for protocol in (first, third, fourth, second, others):
        assert reads(protocol)
        protocol.dataReceived(FRAME[10_000:])
    assert server.bodies == [100_000] * 6
    assert not any(map(is_closed, (others, *protocols)))
    assert server.frames.kept == 0
    assert server.dispatcher.violations == 0


def test_a_small_frame_for_which_there_is_room_does_not_wait_for_large_ones():
    """Usual messages of an address pass while large ones wait."""
    server = Server(max_unfinished_bytes_per_ip=640_000)
    large = encode_frame(RemotingCommand(1, {}, bytes(500_000)))
    small = encode_frame(RemotingCommand(1, {}, bytes(9_000)))
    first, second, third, fourth = (server.connect(port=port) for port in range(4))
    for protocol in (first, second):
        protocol.dataReceived(large[:20_000])
    third.dataReceived(small[:5_000])
    assert [reads(first), reads(second), reads(third)] == [1, 0, 1]
    fourth.dataReceived(FRAME[:5_000])  # it is not small: it waits behind the second
    assert not reads(fourth)
    third.dataReceived(small[5_000:])
    assert server.bodies == [9_000]


def test_many_large_frames_of_one_address_all_get_whole():
    """40 connections that send in turns a chunk each: 409 resets, 7 messages were stored."""
    server = Server(max_unfinished_bytes_per_ip=1_600_000)
    sent = {server.connect(port=port): 0 for port in range(40)}
    most = 0
    while reading := [one for one in sent if reads(one)]:
        for protocol in reading:
            end = sent[protocol] + 10_000
            protocol.dataReceived(FRAME[sent[protocol] : end])
            sent[protocol] = end
            most = max(most, server.frames.kept)
            if end >= len(FRAME):
                del sent[protocol]
    assert server.bodies == [100_000] * 40
    assert server.dispatcher.violations == 0
    assert 700_000 < most <= 1_600_000


def test_a_connection_that_ends_gives_its_room_to_those_that_wait():
    server = Server(max_unfinished_bytes_per_ip=130_000)
    first, second, third = (server.connect(port=port) for port in range(3))
    for protocol in (first, second, third):
        protocol.dataReceived(FRAME[:10_000])
    second.connectionLost(Failure(ConnectionDone()))
    assert [reads(first), reads(third)] == [1, 0]
    first.connectionLost(Failure(ConnectionDone()))
    assert reads(third)


def test_the_newest_is_dropped_when_not_even_beginnings_find_room():
    """Or a thousand connections would keep more than the limit by their first chunks."""
    server = Server(max_unfinished_bytes_per_ip=150_000)
    protocols = [server.connect(port=port) for port in range(4)]
    for protocol in protocols:
        protocol.dataReceived(FRAME[:20_000])
    assert [is_closed(one) for one in protocols] == [0, 0, 0, 1]
    assert server.frames.dropped["maxUnfinishedBytesPerIp"] == 1
    assert server.frames.kept == 60_000
    protocols[0].dataReceived(FRAME[20_000:])
    assert server.bodies == [100_000]


def test_a_frame_that_hardly_grows_does_not_keep_others_waiting():
    """Neither one that gets nothing, nor one that gets a byte now and then."""
    server = Server(max_unfinished_bytes_per_ip=130_000)
    protocols = [server.connect(port=port) for port in range(3)]
    for protocol in protocols:
        protocol.dataReceived(FRAME[:10_000])
    hangs, drips, honest = protocols
    server.clock.advance(LOOK_S)
    assert not is_closed(hangs)
    server.clock.advance(LOOK_S)
    assert is_closed(hangs)
    assert reads(drips)
    assert not reads(honest)
    for at in range(10_000, 10_010):
        drips.dataReceived(FRAME[at : at + 1])
        server.clock.advance(1)
    assert is_closed(drips)
    honest.dataReceived(FRAME[10_000:])
    assert server.bodies == [100_000]
    server.clock.advance(LOOK_S)
    assert server.frames.dropped["maxUnfinishedBytesPerIp"] == 2


def test_a_frame_that_grows_is_waited_for():
    server = Server(max_unfinished_bytes_per_ip=1_100_000)
    large = encode_frame(RemotingCommand(1, {}, bytes(1_000_000)))
    slow, honest = server.connect(), server.connect(port=6)
    slow.dataReceived(large[:10_000])
    honest.dataReceived(large[:10_000])
    for at in range(10_000, len(large), 66_000):
        assert not reads(honest)
        slow.dataReceived(large[at : at + 66_000])
        server.clock.advance(LOOK_S)
    assert server.bodies == [1_000_000]
    assert reads(honest)
    honest.dataReceived(large[10_000:])
    assert not is_closed(slow)


def test_who_waits_for_its_turn_here_is_not_too_slow():
    """It is this side that does not read it."""
    server = Server(max_unfinished_bytes_per_ip=120_000)
    held = Deferred()
    server.dispatcher.routes[3] = lambda channel, request: channel.hold(10, held)
    busy, honest = server.connect(), server.connect(port=6)
    busy.dataReceived(encode_frame(RemotingCommand(3)) + FRAME[:20_000])
    honest.dataReceived(FRAME[:10_000])
    for _ in range(4):
        server.clock.advance(LOOK_S)
    assert not is_closed(busy)
    assert not reads(honest)


def test_a_frame_that_is_put_off_has_to_be_whole_in_time_too():
    server = Server(max_unfinished_bytes_per_ip=120_000, frame_timeout_seconds=3)
    first, second = server.connect(), server.connect(port=6)
    first.dataReceived(FRAME[:10_000])
    second.dataReceived(FRAME[:10_000])
    server.clock.advance(3)
    assert is_closed(first)
    assert is_closed(second)
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
    assert server.frames._addresses == {}


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
    assert f"no room for more than 50000 bytes of such {whose} (" in line


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
        addresses = server.frames._addresses.values()
        assert all(address.reading and address.size <= 120_000 for address in addresses)
        assert sum(address.size for address in addresses) == counted
        for address in addresses:
            assert address.due == sum(frame.missing for frame in address.reading.values())
            assert all(map(reads, address.reading))
            assert not any(map(reads, address.waiting))
