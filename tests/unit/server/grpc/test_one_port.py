"""One port for remoting and gRPC, with TLS and without."""

from random import Random

import pytest
from OpenSSL import SSL
from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Factory
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

pytest.importorskip("google.protobuf")
pytest.importorskip("hpack")

from rmq_ha.base.config.grpc_keys import GrpcConfig
from rmq_ha.base.remoting.dispatcher import RequestDispatcher
from rmq_ha.base.remoting.protocol import ServerProtocol
from rmq_ha.base.seams import Host
from rmq_ha.base.tls.peer import PeerCheck
from rmq_ha.base.tls.server import ServerTls
from rmq_ha.base.tls.session import TlsSession
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.frame import encode_frame
from rmq_ha.server.grpc.server import GrpcServer
from rmq_ha.testing.cluster import LISTEN_PORT
from tests.kits.grpc_client import GrpcClient
from tests.unit.base.tls.material import Files, now_ms, talk
from tests.unit.server.grpc.front.door_kit import METADATA, DoorBroker
from tests.unit.server.grpc.pairs import Front, request_of
from tests.unit.server.grpc.raw_frames import BEGIN
from tests.unit.server.grpc.test_grpc_server import Visitor


class OnePort:
    """A whole broker whose `grpcServerPort` is its `listenPort`."""

    def __init__(self) -> None:
        self.broker = DoorBroker()
        self.broker.configuration.ours.grpc_server_port = LISTEN_PORT
        self.broker.start()
        self.sends = 0

    def visit(self) -> Visitor:
        visitor = Visitor()
        network = self.broker.client_host.seams.network
        network.client(self.broker.host.ip, LISTEN_PORT).connect(
            Factory.forProtocol(lambda: visitor)
        )
        self.broker.run(0.1)
        visitor.flush()
        self.broker.run(0.1)
        return visitor

    def send(self, visitor: Visitor) -> int | None:
        message = self.broker.message_for()
        request = request_of("A")
        request.messages[0].CopyFrom(message)
        stream = visitor.call("SendMessage", request, METADATA.items())
        self.broker.run(1)
        return visitor.status(stream)


def test_a_broker_serves_both_kinds_of_clients_on_its_listen_port() -> None:
    place = OnePort()
    visitor = place.visit()
    assert place.send(visitor) == 0
    answer = place.broker.call(RemotingCommand(30, {"topic": "Normal", "queueId": "0"}))
    assert answer.code == 0
    assert place.send(visitor) == 0
    inner = place.broker.broker
    (peer,) = inner.grpc.server.peers
    assert peer.local_text.endswith(f":{LISTEN_PORT}")
    assert peer.remote_text not in [channel.remote_text for channel in inner.main_server.channels]
    place.broker.stop()
    assert visitor.is_lost
    assert inner.grpc.server.peers == []


def test_http2_is_closed_on_the_fast_port_and_where_grpc_is_not_served() -> None:
    broker = DoorBroker()
    broker.start()
    for port in (LISTEN_PORT, LISTEN_PORT - 2):
        visitor = Visitor()
        network = broker.client_host.seams.network
        network.client(broker.host.ip, port).connect(Factory.forProtocol(lambda item=visitor: item))
        broker.run(0.1)
        visitor.flush()
        broker.run(1)
        assert visitor.is_lost
    broker.stop()


def test_an_idle_client_of_grpc_is_closed_by_its_own_rules() -> None:
    """Not by remoting's, which would end it without a GOAWAY frame."""
    place = OnePort()
    visitor = place.visit()
    place.broker.run(119)
    assert not visitor.is_lost
    place.broker.run(10)
    assert visitor.is_lost
    assert visitor.client.goaway is not None
    place.broker.stop()


class TlsPort:
    """The accepting end of one connection of a shared port, as `talk` knows ends."""

    def __init__(self, **options: str) -> None:
        self.clock = Clock()
        files = Files()
        pair = files.put_pair("tls.server", "localhost")
        rules = ServerTls(
            pair | {"tls.test.mode.enable": "false"} | options, files.read_bytes, now_ms
        )
        dispatcher = RequestDispatcher([])
        dispatcher.routes[1] = lambda channel, request: request.response(17)
        host = Host(
            clock=self.clock, now_ms=now_ms, network=None, disk=None, worker=None, random=Random(1)
        )
        self.front = Front()
        self.grpc = GrpcServer(host, GrpcConfig(), self.front.methods)
        self.connected: dict[ServerProtocol, None] = {}
        self.protocol = ServerProtocol(
            self.clock, dispatcher, 120.0, self.connected, rules, build_http2=self.grpc.build_plain
        )
        self.transport = StringTransport(peerAddress=IPv4Address("TCP", "10.0.0.7", 5))
        self.transport.abortConnection = self.transport.loseConnection
        self.protocol.makeConnection(self.transport)

    def data_to_send(self) -> bytes:
        data: bytes = self.transport.value()
        self.transport.clear()
        return data

    def receive_data(self, data: bytes) -> None:
        self.protocol.dataReceived(data)

    @property
    def is_secured(self) -> bool:
        return self.protocol.channel.security.is_tls


def session(*protocols: bytes) -> TlsSession:
    context = SSL.Context(SSL.TLS_METHOD)
    if protocols:
        context.set_alpn_protos(list(protocols))
    return TlsSession(context, PeerCheck(), connects=True)


@pytest.mark.parametrize("protocols", [(b"h2",), (b"http/1.1", b"h2"), ()])
def test_http2_within_tls(protocols: tuple[bytes, ...]) -> None:
    port, client = TlsPort(), session(*protocols)
    talk(client, port)
    visitor = GrpcClient()
    stream = visitor.call("SendMessage", request_of("A"))
    for _ in range(4):
        if words := visitor.take():
            client.send(words)
            port.receive_data(client.data_to_send())
        port.clock.advance(0)
        if said := port.data_to_send():
            visitor.receive(client.receive_data(said))
    assert visitor.answers[stream].status == 0
    assert client._connection.get_alpn_proto_negotiated() == (b"h2" if protocols else b"")
    assert port.front.calls[0].peer.security.is_tls
    assert port.connected == {}
    port.protocol.connectionLost(Failure(ConnectionDone()))
    assert port.grpc.peers == []


def test_remoting_within_tls_on_a_shared_port() -> None:
    port, client = TlsPort(), session()
    talk(client, port)
    for _ in range(2):
        client.send(encode_frame(RemotingCommand(1)))
        port.receive_data(client.data_to_send())
        assert b'"code":17' in client.receive_data(port.data_to_send())
    assert len(port.connected) == 1
    assert port.grpc.peers == []


def test_broken_tls_ends_a_connection_of_http2() -> None:
    port, client = TlsPort(), session(b"h2")
    talk(client, port)
    client.send(BEGIN)
    port.receive_data(client.data_to_send())
    assert len(port.grpc.peers) == 1
    port.receive_data(b"\x17\x03\x03\x00\x10" + bytes(16))
    assert port.transport.disconnecting


def test_http2_without_tls_is_refused_where_tls_is_asked_for() -> None:
    port = TlsPort(**{"tls.server.mode": "enforcing"})
    port.receive_data(BEGIN)
    assert port.transport.disconnecting
    assert port.transport.value() == b""


def test_http2_in_pieces_of_one_byte() -> None:
    port = TlsPort()
    visitor = GrpcClient()
    stream = visitor.call("SendMessage", request_of("A"))
    for byte in visitor.take():
        port.receive_data(bytes([byte]))
    port.clock.advance(0)
    visitor.receive(port.data_to_send())
    assert visitor.answers[stream].status == 0
