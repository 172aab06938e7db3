"""How a turn of the reactor is divided."""

import cProfile
import itertools

import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from rmq_ha.base.config.netty import NettyServerConfig
from rmq_ha.base.remoting.dispatcher import RequestDispatcher
from rmq_ha.base.remoting.protocol import PeerLimits, ServerProtocol
from rmq_ha.base.remoting.turns import Turns
from rmq_ha.base.remoting.unfinished_frames import UnfinishedFrames
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.frame import FrameReader, decode_frame, encode_frame


class Reactor:
    """Time passes in handlers only; a turn runs what was asked for before it."""

    def __init__(self):
        self.now = 1000.0
        self.later = []

    def seconds(self):
        return self.now

    def callLater(self, delay, function, *args):
        if not delay:
            self.later.append(lambda: function(*args))
        return Timer()

    def turn(self):
        """How long it took."""
        began, (due, self.later) = self.now, (self.later, [])
        for function in due:
            function()
        return self.now - began


class Timer:
    def active(self):
        return False

    def cancel(self):
        pass


class Server:
    def __init__(self, **limits):
        self.clock = Reactor()
        self.config = NettyServerConfig(**limits)
        self.turns = Turns(self.clock, self.config)
        self.frames = UnfinishedFrames(self.config, self.clock)
        self.dispatcher = RequestDispatcher()
        self.dispatcher.routes[1] = self.serve
        self.dispatcher.routes[2] = self.serve_slowly
        self.served = []

    def serve(self, channel, request):
        """It takes a millisecond."""
        self.clock.now += 0.001
        self.served.append((channel.remote.port, request.opaque))
        return request.response()

    def serve_for_an_eighth(self, channel, request):
        """Of a second, which sums up without rounding."""
        self.clock.now += 0.125
        self.served.append((channel.remote.port, request.opaque))
        return request.response()

    def serve_slowly(self, channel, request):
        """The largest legal frames take so long."""
        self.clock.now += 0.059
        return self.serve(channel, request)

    def connect(self, port, host="10.0.0.1"):
        protocol = ServerProtocol(
            self.clock,
            self.dispatcher,
            120.0,
            {},
            limits=PeerLimits(frames=self.frames, turns=self.turns),
        )
        protocol.makeConnection(StringTransport(peerAddress=IPv4Address("TCP", host, port)))
        return protocol


def requests(count):
    return b"".join(encode_frame(RemotingCommand(1, opaque=n)) for n in range(count))


def answers(protocol):
    data = protocol.transport.value()
    return [decode_frame(*frame).opaque for frame in FrameReader().receive_data(data)]


def test_a_pipeline_takes_its_share_of_each_turn():
    """650 requests of one chunk, a millisecond each: nobody waits for all of them."""
    server = Server()
    greedy, honest = server.connect(1), server.connect(2, "10.0.0.2")
    before = server.clock.now
    greedy.dataReceived(requests(650))
    assert server.clock.now - before < 0.0061
    longest = 0.0
    while server.clock.later:
        honest.dataReceived(requests(1))
        longest = max(longest, server.clock.turn())
    assert longest < 0.0061
    assert answers(greedy) == list(range(650))
    assert greedy.transport.producerState == "producing"
    assert len(answers(honest)) >= 100
    assert server.turns.put_off >= 100


def test_of_one_that_waits_for_its_turn_a_chunk_more_is_read_and_then_nothing():
    """A crowd of a request each is not stopped and started again, each with two system calls."""
    server = Server()
    protocol = server.connect(1)
    protocol.dataReceived(requests(20))
    assert server.turns.put_off == 1
    assert protocol.transport.producerState == "producing"
    half_a_request = requests(1)[:10]
    protocol.dataReceived(half_a_request)
    assert protocol.transport.producerState == "paused"
    while server.clock.later:
        server.clock.turn()
    assert answers(protocol) == list(range(20))
    assert protocol.transport.producerState == "producing"


def test_what_many_turns_took_together_is_no_turn():
    """A crowd that sends all the time: 40 turns of 3 ms each, and a share of 5 ms of one."""
    server = Server()
    protocols = [server.connect(port) for port in range(120)]
    for first in range(0, 120, 3):
        server.clock.turn()
        for protocol in protocols[first : first + 3]:
            protocol.dataReceived(requests(1))
    assert len(server.served) == 120
    assert server.turns.put_off == 0


def test_the_connections_of_an_address_share_and_take_turns():
    """None starves, though all of them together get no more than one of an address may."""
    server = Server(turn_millis_per_ip=25)
    greedy = [server.connect(port) for port in range(1, 31)]
    began = server.clock.now
    for protocol in greedy:
        protocol.dataReceived(requests(40))
    assert server.clock.now - began < 0.027
    turns = []
    while server.clock.later:
        turns.append(server.clock.turn())
        if len(turns) == 7:
            assert len({port for port, _ in server.served}) == 30
    assert max(turns) < 0.027
    for protocol in greedy:
        assert answers(protocol) == list(range(40))


def calls_a_connection(count):
    """Python's and C's, while all connections of an address are served a request each."""
    server = Server()
    with cProfile.Profile() as profile:
        for protocol in [server.connect(port) for port in range(count)]:
            protocol.dataReceived(requests(1))
        while server.clock.later:
            server.clock.turn()
    assert len(server.served) == count
    return sum(entry.callcount for entry in profile.getstats()) / count


def test_who_waits_costs_the_same_however_many_others_wait():
    assert calls_a_connection(2000) < 1.03 * calls_a_connection(200)


def test_addresses_that_wait_take_turns_one_connection_each():
    server = Server()
    protocols = [server.connect(n, f"10.0.0.{n % 2}") for n in range(120)]
    for protocol in protocols:
        protocol.dataReceived(requests(1))
    waited = len(server.served)
    protocols[-2].connectionLost(Failure(ConnectionDone()))
    while server.clock.later:
        server.clock.turn()
    ports = [port for port, _ in server.served[waited:]]
    assert [port % 2 for port in ports] == [0, 1] * (len(ports) // 2) + [1] * (len(ports) % 2)
    assert sorted(port for port, _ in server.served) == [n for n in range(120) if n != 118]


def test_what_comes_while_it_waits_comes_after():
    server = Server()
    protocol = server.connect(1)
    data = requests(60)
    protocol.dataReceived(data[:3000])
    protocol.dataReceived(data[3000:])
    while server.clock.later:
        server.clock.turn()
    assert answers(protocol) == list(range(60))


def test_one_that_does_not_read_either_waits_for_both():
    server = Server()
    protocol = server.connect(1)
    protocol.dataReceived(requests(20))
    protocol.pauseProducing()
    server.clock.turn()
    assert len(server.served) in (5, 6)
    assert protocol.transport.producerState == "paused"
    protocol.resumeProducing()
    while server.clock.later:
        server.clock.turn()
    assert answers(protocol) == list(range(20))
    assert protocol.transport.producerState == "producing"


def test_one_that_is_gone_does_not_go_on():
    server = Server()
    protocol = server.connect(1)
    protocol.dataReceived(requests(20))
    protocol.connectionLost(Failure(ConnectionDone()))
    while server.clock.later:
        server.clock.turn()
    assert len(server.served) in (5, 6)


EXACT = {"turn_millis": 125, "turn_millis_per_ip": 250}


def test_whose_share_is_used_up_to_the_last_bit_waits_and_who_is_done_does_not():
    """An eighth of a second each; shares of one and of two."""
    server = Server(**EXACT)
    server.dispatcher.routes[1] = server.serve_for_an_eighth
    one, two, three = (server.connect(port) for port in (1, 2, 3))
    one.dataReceived(requests(2))
    assert server.served == [(1, 0)]
    two.dataReceived(requests(1))
    assert server.turns.put_off == 1
    assert two.transport.producerState == "producing"
    three.dataReceived(requests(1))
    assert server.served == [(1, 0), (2, 0)]
    assert server.turns.put_off == 2
    server.clock.turn()
    assert server.served == [(1, 0), (2, 0), (1, 1), (3, 0)]
    server.clock.turn()
    assert not server.clock.later


def test_who_owes_all_of_a_share_is_passed_over_and_not_put_off_again():
    server = Server(turn_millis=0, turn_millis_per_ip=125)
    server.dispatcher.routes[1] = server.serve_for_an_eighth
    server.connect(1).dataReceived(requests(2))
    server.turns.note_turn("10.0.0.1", 0.125)
    for served, put_off in ((1, 1), (2, 1)):
        server.clock.turn()
        assert (len(server.served), server.turns.put_off) == (served, put_off)


class Waiting:
    """A connection that only says when its turn has come."""

    host = "10.0.0.1"

    def __init__(self):
        self.turns = 0

    def go_on(self):
        self.turns += 1


def test_who_is_gone_is_given_no_turn():
    clock = Clock()
    turns = Turns(clock, NettyServerConfig())
    for seconds in (0, 5):
        gone, there = Waiting(), Waiting()
        turns.wait(gone, seconds)
        turns.wait(there, seconds)
        turns.forget(gone)
        clock.pump([seconds, 0])
        assert (gone.turns, there.turns) == (0, 1)
        turns.forget(there)


def test_chunks_that_wait_are_no_unfinished_frames():
    """A thousand busy connections of one address hold a chunk each, as honest ones may."""
    server = Server(max_unfinished_bytes_per_ip=10_000)
    for port in range(1, 50):
        server.connect(port).dataReceived(requests(300))
    assert server.frames.dropped == dict.fromkeys(server.frames.dropped, 0)


@pytest.mark.parametrize("limits", [{"turn_millis": 0, "turn_millis_per_ip": 0}])
def test_without_limits_all_is_served_at_once(limits):
    server = Server(**limits)
    protocol = server.connect(1)
    protocol.dataReceived(requests(650))
    assert answers(protocol) == list(range(650))
    assert not server.clock.later


def test_the_limit_of_an_address_alone():
    server = Server(turn_millis=0, turn_millis_per_ip=25)
    protocol = server.connect(1)
    protocol.dataReceived(requests(60))
    assert len(server.served) in (25, 26)
    while server.clock.later:
        server.clock.turn()
    assert answers(protocol) == list(range(60))


def test_what_is_beyond_the_share_of_an_address_is_paid_back():
    """On a connection after the other: between two long requests others have many turns."""
    server = Server()
    honest = server.connect(2, "10.0.0.2")
    for port in range(100, 105):
        server.connect(port).dataReceived(encode_frame(RemotingCommand(2)))
    long, turns = [], 0
    while server.clock.later:
        honest.dataReceived(requests(1))
        turns += 1
        if server.clock.turn() > 0.05:
            long.append(turns)
    assert len(long) == 4
    assert all(after - before == 12 for before, after in itertools.pairwise(long))
    assert len(answers(honest)) == turns


def test_without_a_share_of_an_address_nothing_is_owed():
    server = Server(turn_millis_per_ip=0)
    for port in range(100, 105):
        server.connect(port).dataReceived(encode_frame(RemotingCommand(2)))
    assert len(server.served) == 5
