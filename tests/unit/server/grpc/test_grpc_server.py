"""The port of gRPC clients, on a simulated machine: its times, its end, and hostile clients."""

from random import Random

import pytest
from OpenSSL import SSL
from twisted.internet.address import IPv4Address
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport

from rmq_ha.base.config.grpc_keys import GrpcConfig
from rmq_ha.base.config.netty import NettyServerConfig
from rmq_ha.base.remoting.protocol import PeerLimits
from rmq_ha.base.remoting.turns import Turns
from rmq_ha.base.remoting.unfinished_frames import UnfinishedFrames
from rmq_ha.base.seams import Host
from rmq_ha.base.tls.peer import PeerCheck
from rmq_ha.base.tls.refusals import Refusals
from rmq_ha.base.tls.server import ServerTls
from rmq_ha.base.tls.session import TlsSession
from rmq_ha.server.grpc.extra import missing_package
from rmq_ha.server.grpc.face import CallEnd
from rmq_ha.server.grpc.server import GrpcServer
from rmq_ha.server.grpc.wire import messages
from rmq_ha.testing.host import World
from tests.kits.grpc_client import GrpcClient
from tests.unit.base.tls.material import Files, now_ms
from tests.unit.server.grpc.pairs import Front, answer_to, request_of
from tests.unit.server.grpc.raw_frames import BEGIN, frame

PORT = 8081


class Visitor(Protocol):
    """The client's end of a simulated connection; `reads` False: it leaves its socket alone."""

    def __init__(self, window: int | None = None) -> None:
        self.client = GrpcClient(window)
        self.is_lost = False
        self.raw = b""
        self.is_raw = False

    def dataReceived(self, data: bytes) -> None:
        if self.is_raw:
            self.raw += data
            return
        self.client.receive(data)
        self.flush()

    def flush(self) -> None:
        data = self.client.take()
        if data:
            self.transport.write(data)

    def connectionLost(self, reason=None) -> None:
        self.is_lost = True

    def call(self, method, message, metadata=()) -> int:
        stream = self.client.call(method, message, metadata)
        self.flush()
        return stream

    def status(self, stream: int) -> int | None:
        return self.client.answers[stream].status


class Place:
    """A server on a machine, and another machine with clients."""

    def __init__(self, config: GrpcConfig | None = None, **limits) -> None:
        self.world = World(1)
        self.host = self.world.add("server")
        self.elsewhere = self.world.add("client")
        self.front = Front()
        seams = self.host.seams
        server_config = NettyServerConfig()
        self.limits = PeerLimits(
            Refusals(seams.clock),
            UnfinishedFrames(server_config, seams.clock),
            Turns(seams.clock, server_config, seams.soon),
        )
        self.server = GrpcServer(
            seams, config or GrpcConfig(), self.front.methods, None, self.limits
        )
        self.server.listen(PORT)

    def visit(self, window: int | None = None, *, is_raw: bool = False) -> Visitor:
        visitor = Visitor(window)
        visitor.is_raw = is_raw
        factory = Factory.forProtocol(lambda: visitor)
        self.elsewhere.seams.network.client(self.host.ip, PORT).connect(factory)
        self.run(0.1)
        if not is_raw:
            visitor.flush()
        self.run(0.1)
        return visitor

    def run(self, seconds: float) -> None:
        clock = self.world.clock
        clock.run_until(clock.seconds() + seconds)
        assert clock.failures == []


def test_calls_over_a_connection():
    place = Place()
    visitor = place.visit()
    streams = [visitor.call("SendMessage", request_of(str(number))) for number in range(50)]
    place.run(1)
    assert [visitor.status(stream) for stream in streams] == [0] * 50
    (peer,) = place.server.peers
    assert peer.host == place.elsewhere.ip
    assert peer.local_text == f"{place.host.ip}:{PORT}"
    assert not peer.security.is_tls
    assert place.front.calls[0].peer is peer
    assert place.server.counters.accepted == 1


def test_answers_of_one_turn_leave_in_one_write():
    place = Place()
    place.front.waits = True
    visitor = place.visit()
    for number in range(10):
        visitor.call("SendMessage", request_of(str(number)))
    place.run(1)
    (end,) = place.world.network.connections_between("server", "client")
    writes = []
    write = end.write
    end.write = lambda data: (writes.append(data), write(data))
    for answer, request in zip(place.front.answers, place.front.sent, strict=True):
        answer.callback(answer_to(request))
    assert writes == []
    place.run(1)
    assert len(writes) == 1
    assert all(answer.status == 0 for answer in visitor.client.answers.values())


def test_an_idle_connection_is_closed_kindly():
    place = Place()
    visitor = place.visit()
    visitor.call("SendMessage", request_of("A"))
    place.run(100)
    visitor.call("SendMessage", request_of("B"))
    place.run(110)
    assert not visitor.is_lost
    place.run(20)
    assert visitor.is_lost
    assert visitor.client.goaway.error_code == 0
    assert place.server.peers == []


def test_an_open_call_keeps_its_connection():
    place = Place()
    visitor = place.visit()
    visitor.client.begin("Telemetry")
    visitor.flush()
    place.run(1000)
    assert not visitor.is_lost
    assert place.front.ends == []


def test_a_client_that_vanished_is_asked_and_dropped():
    place = Place()
    visitor = place.visit()
    visitor.client.begin("Telemetry")
    visitor.flush()
    place.run(1)
    place.world.network.partition("server", "client")
    place.run(130)
    assert place.front.ends == []
    place.run(20)
    assert place.front.ends == [CallEnd.LOST]
    assert place.server.peers == []


def test_a_deadline_needs_no_byte_of_the_client():
    place = Place()
    visitor = place.visit()
    stream = visitor.call(
        "ReceiveMessage", messages.ReceiveMessageRequest(), [("grpc-timeout", "5S")]
    )
    place.run(4)
    assert place.front.ends == []
    place.run(2)
    assert place.front.ends == [CallEnd.DEADLINE]
    assert visitor.status(stream) == 4


def test_a_stop_waits_for_open_calls():
    place = Place()
    place.front.waits = True
    visitor = place.visit()
    visitor.call("SendMessage", request_of("A"))
    idle = place.visit()
    place.run(1)
    stopped = place.server.stop()
    place.run(5)
    assert idle.is_lost
    assert not visitor.is_lost
    assert visitor.client.goaway is not None
    assert not stopped.called
    place.front.answers[0].callback(answer_to(place.front.sent[0]))
    place.run(1)
    assert stopped.called
    assert visitor.is_lost


def test_a_server_that_drains_ends_its_connections_and_accepts_new_ones():
    place = Place()
    place.front.waits = True
    visitor, idle = place.visit(), place.visit()
    visitor.call("SendMessage", request_of("A"))
    place.run(1)
    place.server.drain()
    place.run(1)
    assert idle.is_lost
    assert visitor.client.goaway is not None
    assert not visitor.is_lost
    place.front.answers[0].callback(answer_to(place.front.sent[0]))
    place.run(1)
    assert visitor.is_lost
    assert next(iter(visitor.client.answers.values())).status == 0
    later = place.visit()
    stream = later.call("SendMessage", request_of("B"))
    place.run(1)
    place.front.answers[1].callback(answer_to(place.front.sent[1]))
    place.run(1)
    assert later.status(stream) == 0


def test_a_stop_waits_no_longer_than_it_may():
    place = Place()
    place.front.waits = True
    visitor = place.visit()
    visitor.call("SendMessage", request_of("A"))
    place.run(1)
    stopped = place.server.stop()
    place.run(29)
    assert not stopped.called
    place.run(2)
    assert stopped.called
    assert place.front.ends == [CallEnd.LOST]


def test_a_stop_ends_streams_and_empty_polls_at_once():
    place = Place()
    visitor = place.visit()
    telemetry = visitor.client.begin("Telemetry")
    polls = [visitor.call("ReceiveMessage", messages.ReceiveMessageRequest()) for _ in range(2)]
    place.run(1)
    place.front.polls[1].send(messages.ReceiveMessageResponse())
    stopped = place.server.stop()
    place.run(1)
    assert [visitor.status(stream) for stream in (telemetry, *polls)] == [14, 14, None]
    assert place.front.ends == [CallEnd.STOPPED] * 2
    assert not stopped.called
    place.front.polls[1].finish()
    place.run(1)
    assert visitor.status(polls[1]) == 0
    assert stopped.called


def polled(place: Place, size: int) -> Visitor:
    """A client that gives no windows, for which so many bytes wait."""
    visitor = place.visit(window=0)
    visitor.call("ReceiveMessage", messages.ReceiveMessageRequest())
    place.run(0.5)
    answer = messages.ReceiveMessageResponse()
    answer.message.body = bytes(size)
    place.front.polls[-1].send(answer)
    place.run(0.5)
    return visitor


def test_who_reads_nothing_is_closed():
    place = Place()
    visitor = polled(place, 1000)
    assert place.server.queued > 1000
    place.run(58)
    assert not visitor.is_lost
    place.run(5)
    assert visitor.is_lost
    assert place.server.counters.closed["stalled"] == 1
    assert place.server.queued == 0
    assert place.front.ends == [CallEnd.LOST]


def test_who_leaves_its_socket_full_is_closed():
    place = Place()
    visitor = place.visit(window=1 << 24)
    visitor.client.h2.increment_flow_control_window(1 << 24)
    visitor.call("ReceiveMessage", messages.ReceiveMessageRequest())
    place.run(0.5)
    visitor.transport.pauseProducing()
    answer = messages.ReceiveMessageResponse()
    answer.message.body = bytes(1 << 21)
    place.front.polls[-1].send(answer)
    place.run(55)
    assert place.server.queued > 1 << 20  # in our queue, not in the transport's
    place.run(15)
    assert place.server.peers == []
    assert place.server.counters.closed["stalled"] == 1


def test_the_slowest_is_closed_when_too_much_waits_in_all():
    config = GrpcConfig()
    config.grpc_max_queued_bytes = 10 << 20
    place = Place(config)
    first = polled(place, 4 << 20)
    second = polled(place, 3 << 20)
    third = polled(place, 4 << 20)
    place.run(1)
    assert (first.is_lost, second.is_lost, third.is_lost) == (True, False, False)
    assert place.server.counters.closed["queued bytes in all"] == 1
    assert 7 << 20 < place.server.queued < 8 << 20


def test_what_is_no_http2_is_closed():
    place = Place()
    for words in (b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x10\0\0\0\x0c{}"):
        visitor = place.visit(is_raw=True)
        visitor.transport.write(words)
        place.run(1)
        assert visitor.is_lost
    assert place.server.counters.violations == 2


def test_a_client_of_remoting_is_named_in_the_log(caught_lines):
    place = Place()
    visitor = place.visit(is_raw=True)
    visitor.transport.write(b"\0\0\0\x10\0\0\0\x0c{}")
    place.run(1)
    (line,) = caught_lines
    assert line.endswith(
        "speaks remoting, as clients of RocketMQ 4 do, which connect to listenPort"
    )


def test_many_strangers_get_one_line(caught_lines):
    """Whoever shares its limits with this server need not share what was logged."""
    place = Place()
    methods = place.front.methods
    server = GrpcServer(place.host.seams, GrpcConfig(), methods, None, PeerLimits())
    server.listen(PORT + 1)
    for _ in range(5):
        visitor = Visitor()
        visitor.is_raw = True
        factory = Factory.forProtocol(lambda one=visitor: one)
        place.elsewhere.seams.network.client(place.host.ip, PORT + 1).connect(factory)
        place.run(0.1)
        visitor.transport.write(b"GET / HTTP/1.1\r\n")
        place.run(0.5)
    assert server.counters.violations == 5
    assert len(caught_lines) == 1


def test_requests_above_a_quota_are_read_later():
    """`maxRequestsPerSecondPerIp` counts calls, whichever port they come by."""
    place = Place()
    place.limits.turns._config.max_requests_per_second_per_ip = 10
    visitor = place.visit()
    visitor.call("SendMessage", request_of("first"))  # notes that there is a quota
    place.run(1)
    for number in range(100):
        visitor.call("SendMessage", request_of(str(number)))
        place.run(0.01)
    place.run(3)
    assert 20 < len(place.front.sent) < 80
    place.run(20)
    assert len(place.front.sent) == 101
    assert place.limits.turns.quotas.held_back["maxRequestsPerSecondPerIp"] > 0


@pytest.mark.parametrize(
    ("flood", "limit"),
    [
        (frame(6, 0, 0, bytes(8)) * 200_000, "control frames"),
        (
            b"".join(
                b"\0\0\1\1\5" + (2 * n + 3).to_bytes(4, "big") + b"\x82" for n in range(50_000)
            ),
            "resets",
        ),
    ],
    ids=["ping", "malformed"],
)
def test_an_honest_client_beside_a_flood(flood, limit):
    place = Place()
    honest = place.visit()
    hostile = place.visit()
    hostile.is_raw = True
    hostile.transport.write(flood)
    stream = honest.call("SendMessage", request_of("A"))
    place.run(1)
    assert honest.status(stream) == 0
    assert hostile.is_lost
    assert place.server.counters.closed[limit] == 1


def test_unfinished_requests_of_one_address_are_limited():
    """Eight connections that each hold 3 MiB of a message would be 24 MiB."""
    place = Place()
    place.limits.frames._config.max_unfinished_bytes_per_ip = 16 << 20
    hostile = []
    part = (4 << 20).to_bytes(5, "big") + bytes(3 << 20)
    for _ in range(8):
        visitor = place.visit()
        stream = visitor.client.begin("SendMessage")
        visitor.client.send(stream, part)
        visitor.flush()
        place.run(0.2)
        hostile.append(visitor)
    assert place.limits.frames.waits > 0
    assert 5 << 20 < sum(peer.unfinished for peer in place.server.peers) <= 16 << 20
    assert not any(visitor.is_lost for visitor in hostile)
    place.run(30)  # who sends no more makes room for who waits
    assert 0 < sum(visitor.is_lost for visitor in hostile) < 8
    assert place.limits.frames.kept <= 16 << 20


def test_a_long_backlog_leaves_turns_to_others():
    """One connection has hundreds of requests in its buffer; another one is answered meanwhile."""
    clock = Clock()
    front = Front()
    turns = []
    order = []
    host = Host(
        clock=clock,
        now_ms=now_ms,
        network=None,
        disk=None,
        worker=None,
        random=Random(1),
        soon=turns.append,
    )
    server_config = NettyServerConfig()
    limits = PeerLimits(Refusals(clock), None, Turns(clock, server_config, turns.append))
    server = GrpcServer(host, GrpcConfig(), front.methods, None, limits)

    def slow(call, request):
        clock.advance(0.001)
        order.append(request.messages[0].system_properties.message_id)
        return answer_to(request)

    server._methods["SendMessage"] = server._methods["SendMessage"]._replace(serve=slow)
    ends = []
    for port in (5, 6):
        protocol = server.build()
        address = IPv4Address("TCP", f"10.0.0.{port}", port)
        protocol.makeConnection(StringTransport(peerAddress=address))
        ends.append((protocol, GrpcClient()))
    busy, other = ends
    for number in range(200):
        busy[1].call("SendMessage", request_of(f"busy {number}"))
    busy[0].dataReceived(busy[1].take())
    assert 3 < len(order) < 30
    other[1].call("SendMessage", request_of("other"))
    other[0].dataReceived(other[1].take())
    assert order[-1] == "other"
    while turns:
        turns.pop(0)()
    assert len(order) == 201
    assert order.index("other") < 40
    assert [name for name in order if name != "other"] == [f"busy {n}" for n in range(200)]
    busy[1].receive(busy[0].transport.value())
    assert all(answer.status == 0 for answer in busy[1].answers.values())


@pytest.mark.parametrize("protocols", [[b"h2"], [b"http/1.1", b"h2"], []])
def test_tls_offers_h2(protocols):
    clock = Clock()
    files = Files()
    options = files.put_pair("tls.server", "localhost") | {"tls.test.mode.enable": "false"}
    rules = ServerTls(options, files.read_bytes, now_ms)
    host = Host(clock=clock, now_ms=now_ms, network=None, disk=None, worker=None, random=Random(1))
    front = Front()
    server = GrpcServer(host, GrpcConfig(), front.methods, rules)
    door = server.build()
    transport = StringTransport(peerAddress=IPv4Address("TCP", "10.0.0.7", 5))
    transport.abortConnection = transport.loseConnection
    door.makeConnection(transport)
    context = SSL.Context(SSL.TLS_METHOD)
    if protocols:
        context.set_alpn_protos(protocols)
    session = TlsSession(context, PeerCheck(), connects=True)
    client = GrpcClient()
    session.start()
    stream = None
    for _ in range(10):
        sent = session.data_to_send()
        if sent:
            door.dataReceived(sent)
        clock.advance(0)
        said, _ = transport.value(), transport.clear()
        plain = session.receive_data(said) if said else b""
        if plain:
            client.receive(plain)
        if session.is_secured:
            if stream is None:
                stream = client.call("SendMessage", request_of("A"))
            words = client.take()
            if words:
                session.send(words)
    assert client.answers[stream].status == 0
    assert session._connection.get_alpn_proto_negotiated() == (b"h2" if protocols else b"")
    assert front.calls[0].peer.security.is_tls


def test_a_plain_client_where_tls_is_asked_for_is_refused():
    clock = Clock()
    files = Files()
    options = files.put_pair("tls.server", "localhost")
    options |= {"tls.test.mode.enable": "false", "tls.server.mode": "enforcing"}
    rules = ServerTls(options, files.read_bytes, now_ms)
    host = Host(clock=clock, now_ms=now_ms, network=None, disk=None, worker=None, random=Random(1))
    door = GrpcServer(host, GrpcConfig(), Front().methods, rules).build()
    transport = StringTransport(peerAddress=IPv4Address("TCP", "10.0.0.7", 5))
    door.makeConnection(transport)
    door.dataReceived(BEGIN)
    assert transport.disconnecting
    assert transport.value() == b""


def test_the_packages_are_looked_for_by_name(monkeypatch):
    assert missing_package() == ""
    monkeypatch.setattr("rmq_ha.server.grpc.extra._MODULES", {"protobuf": "no_such.module"})
    assert missing_package() == "gRPC clients need the package protobuf: pip install 'rmq-ha[grpc]'"
    monkeypatch.setattr("rmq_ha.server.grpc.extra._MODULES", {"hpack": "no_such_module"})
    assert "hpack" in missing_package()
