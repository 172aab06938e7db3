"""Addresses and accounts that ask for more than their quota of a second."""

import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import formatEvent
from twisted.python.failure import Failure

from rmq_ha.base.config.netty import NettyServerConfig
from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.remoting.dispatcher import RequestDispatcher
from rmq_ha.base.remoting.protocol import PeerLimits, ServerProtocol
from rmq_ha.base.remoting.quotas import LONGEST_S, REQUESTS_PER_IP, Quotas
from rmq_ha.base.remoting.turns import Turns
from rmq_ha.base.tls.refusals import Refusals
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.frame import FrameReader, decode_frame, encode_frame

BODY = 10_000


class Signed:
    """As access control does: the field `account` is whose request it is."""

    def __init__(self, account):
        self.account = account


class Server:
    def __init__(self, **quotas):
        self.clock = Clock()
        self.config = NettyServerConfig(**quotas)
        self.turns = Turns(self.clock, self.config)
        self.refusals = Refusals(self.clock)
        self.dispatcher = RequestDispatcher([self])
        self.dispatcher.routes[1] = lambda channel, request: request.response()
        self.dispatcher.routes[2] = lambda channel, request: request.response(body=bytes(BODY))

    def validate(self, request, remote_address):
        account = (request.ext or {}).get("account")
        if account == "wrong":
            raise RequestRejected(1, "no")
        request.grant = Signed(account) if account else None

    def connect(self, port, host="10.0.0.1"):
        protocol = ServerProtocol(
            self.clock,
            self.dispatcher,
            0,
            {},
            limits=PeerLimits(self.refusals, turns=self.turns),
        )
        protocol.makeConnection(StringTransport(peerAddress=IPv4Address("TCP", host, port)))
        return protocol


def send(protocol, count, code=1, account="", body=b""):
    """One chunk of requests, if it is read; whether it was."""
    if protocol.transport.producerState == "paused":
        return False
    ext = {"account": account} if account else {}
    protocol.dataReceived(
        b"".join(encode_frame(RemotingCommand(code, dict(ext), body, n)) for n in range(count))
    )
    return True


def answers(protocol):
    data = protocol.transport.value()
    return [decode_frame(*frame).opaque for frame in FrameReader().receive_data(data)]


def held_back(server):
    return {key: count for key, count in server.turns.quotas.held_back.items() if count}


def test_without_a_quota_nobody_waits():
    server = Server()
    protocol = server.connect(1)
    assert all(send(protocol, 100, account="a", body=bytes(BODY)) for _ in range(20))
    assert held_back(server) == {}


@pytest.mark.parametrize(
    "quota",
    [
        "max_requests_per_second_per_ip",
        "max_bytes_per_second_per_ip",
        "max_requests_per_second_per_account",
        "max_bytes_per_second_per_account",
    ],
)
def test_the_least_quota_is_one(quota):
    """Each is a quota without the others."""
    server = Server(**{quota: 1})
    protocol = server.connect(1)
    send(protocol, 5, account="a")
    assert not send(protocol, 1)


def test_requests_of_an_address():
    """A burst of a second passes; what is above it makes all connections of the address wait."""
    server = Server(max_requests_per_second_per_ip=10)
    first, second, other = server.connect(1), server.connect(2), server.connect(3, "10.0.0.2")
    assert send(first, 10)
    assert send(first, 10)
    assert len(answers(first)) == 20  # nothing is refused
    assert not send(first, 1)
    assert send(second, 5)
    assert not send(second, 1)
    assert send(other, 10)
    assert send(other, 0)
    server.clock.advance(0.9)
    assert not send(first, 1)
    server.clock.advance(0.2)
    assert send(first, 1)
    assert not send(second, 1)
    server.clock.advance(0.7)
    assert send(second, 1)
    assert held_back(server) == {"maxRequestsPerSecondPerIp": 3}


def test_over_a_time_an_address_gets_its_quota():
    server = Server(max_requests_per_second_per_ip=50)
    protocols = [server.connect(port) for port in range(1, 6)]
    for _ in range(1000):
        for protocol in protocols:
            send(protocol, 3)
        server.clock.advance(0.02)
    served = sum(len(answers(protocol)) for protocol in protocols)
    assert 20 * 50 <= served <= 22 * 50
    assert min(len(answers(protocol)) for protocol in protocols) >= 100


def test_bytes_of_requests_and_answers():
    server = Server(max_bytes_per_second_per_ip=BODY)
    sender, reader = server.connect(1, "10.0.0.1"), server.connect(2, "10.0.0.2")
    assert send(sender, 3, body=bytes(BODY))
    assert send(reader, 3, code=2)
    server.clock.advance(1.9)
    assert not send(sender, 1)
    assert not send(reader, 1)
    server.clock.advance(0.3)
    assert send(sender, 1)
    assert send(reader, 1)
    assert held_back(server) == {"maxBytesPerSecondPerIp": 2}


def test_answers_that_come_later_are_paid_for_too():
    server = Server(max_bytes_per_second_per_ip=BODY)
    later = Deferred()
    server.dispatcher.routes[3] = lambda channel, request: later
    protocol = server.connect(1)
    assert send(protocol, 1, code=3)
    protocol.pauseProducing()
    later.callback(RemotingCommand(0, body=bytes(3 * BODY)))
    protocol.resumeProducing()
    assert not send(protocol, 1)
    server.clock.advance(1.9)
    assert not send(protocol, 1)
    server.clock.advance(0.3)
    assert send(protocol, 1)


def test_who_was_let_go_on_and_leaves_then_leaves_nothing():
    server = Server(max_requests_per_second_per_ip=10)
    protocol = server.connect(1)
    send(protocol, 30)
    server.clock.advance(3)
    assert send(protocol, 1)
    protocol.connectionLost(Failure(ConnectionDone()))


@pytest.mark.parametrize(
    ("quota", "key"),
    [
        ({"max_requests_per_second_per_account": 10}, "maxRequestsPerSecondPerAccount"),
        ({"max_bytes_per_second_per_account": 500}, "maxBytesPerSecondPerAccount"),
    ],
)
def test_an_account_from_wherever_it_signs(quota, key):
    server = Server(**quota)
    here, there = server.connect(1, "10.0.0.1"), server.connect(2, "10.0.0.2")
    assert send(here, 20, account="batch")
    assert not send(here, 1)
    assert send(there, 1, account="batch")
    assert not send(there, 1)
    assert held_back(server) == {key: 2}
    shop = server.connect(3)
    assert send(shop, 2, account="shop")
    assert send(shop, 0)


def test_what_is_refused_is_on_nobodys_account():
    """Who does not know its secret takes nothing from an account."""
    server = Server(max_requests_per_second_per_account=10)
    stranger, honest = server.connect(1), server.connect(2)
    assert send(stranger, 100, account="wrong")
    assert send(stranger, 100)
    assert send(honest, 10, account="shop")
    assert held_back(server) == {}


def test_a_large_request_waits_a_minute_at_most():
    """Nobody may take it for an idle connection."""
    server = Server(max_bytes_per_second_per_ip=10)
    protocol = server.connect(1)
    send(protocol, 1, body=bytes(BODY))
    server.clock.advance(LONGEST_S - 1)
    assert not send(protocol, 1)
    server.clock.advance(1.1)
    assert send(protocol, 1)


def test_one_that_is_gone_is_forgotten():
    server = Server(max_requests_per_second_per_ip=10)
    protocol = server.connect(1)
    send(protocol, 100)
    protocol.connectionLost(Failure(ConnectionDone()))
    assert server.clock.getDelayedCalls() == []


def test_a_quota_that_is_set_while_it_runs_begins_with_nothing_taken():
    server = Server()
    protocol = server.connect(1)
    for _ in range(2):
        assert send(protocol, 10_000)
        server.config.max_requests_per_second_per_ip = 10
        server.clock.advance(1)
        assert send(protocol, 5)
        assert send(protocol, 5)
        assert send(protocol, 20)
        assert not send(protocol, 1)
        server.config.max_requests_per_second_per_ip = 0
        server.clock.advance(100)


def test_the_log_names_who_is_held_back_once(logged):
    server = Server(max_requests_per_second_per_account=10)
    send(server.connect(9), 1, account="shop")
    for port in (1, 2, 3):
        send(server.connect(port), 100, account="batch")
    (line,) = [line for event in logged if "held back" in (line := formatEvent(event))]
    assert line.startswith("10.0.0.1:1 (account 'batch') is held back for 9.0 s by maxRequests")


def test_addresses_that_are_within_their_quota_again_are_forgotten():
    quotas = Quotas(NettyServerConfig(max_requests_per_second_per_ip=10))
    for number in range(5000):
        quotas.charge(f"10.0.{number // 256}.{number % 256}", "", 1, 1, number / 10)
    assert len(quotas._free_at) <= 1001


def test_one_that_has_taken_too_much_is_not_forgotten_in_a_crowd():
    """A thousand addresses of his free nobody of what he owes."""
    quotas = Quotas(NettyServerConfig(max_requests_per_second_per_ip=10))
    quotas.charge("10.9.9.9", "", 100, 1, 0.0)
    for number in range(999):
        quotas.charge(f"10.0.{number // 256}.{number % 256}", "", 1, 1, 0.0)
    assert len(quotas._free_at) == 1000
    quotas.charge("10.8.8.8", "", 0, 1, 0.1)
    assert quotas._free_at == {("maxRequestsPerSecondPerIp", "10.9.9.9"): 10.0}
    assert quotas.charge("10.9.9.9", "", 1, 1, 0.1) == (pytest.approx(9.0), REQUESTS_PER_IP)
