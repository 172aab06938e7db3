"""The port of gRPC clients: bytes of a connection, headers and messages."""

from twisted.internet.task import Clock

from rmq_ha.base.config.grpc_keys import GrpcConfig
from rmq_ha.base.remoting.protocol import PeerLimits
from rmq_ha.server.grpc.calls import GrpcConnection
from rmq_ha.server.grpc.limits import CallLimits, GrpcCounters
from rmq_ha.server.grpc.protocol import GrpcProtocol, Timing
from rmq_ha.server.grpc.wire.headers import parse_timeout, read_headers
from rmq_ha.server.grpc.wire.length_prefix import PrefixReader
from rmq_ha.server.grpc.wire.status import GrpcRefusal
from rmq_ha.server.grpc.wire.table import SERVICE
from tests.fuzz.of_links import Owner, deliver
from tests.fuzz.target import target
from tests.kits.grpc_client import GrpcClient, framed
from tests.unit.server.grpc.pairs import Front, request_of
from tests.unit.server.grpc.raw_frames import BEGIN, data, frame, headers, setting, word


class Port(Owner):
    """Counts, and hears the rest."""

    def __init__(self) -> None:
        self.counters = GrpcCounters()


def conversation() -> bytes:
    """What h2 says for two calls."""
    client = GrpcClient()
    client.call("SendMessage", request_of("A"), [("grpc-timeout", "10S")])
    stream = client.begin("SendMessage", [("grpc-encoding", "gzip")])
    client.send(stream, framed(request_of("B").SerializeToString(), packed=True), ends=True)
    client.h2.reset_stream(stream, 8)
    client.h2.ping(bytes(8))
    return client.take()


CONVERSATIONS = [
    conversation(),
    BEGIN + headers(1, 5) + data(1, b"\0\0\0\0\1x"),
    BEGIN + setting(4, 5) + headers(1) + frame(8, 0, 1, word(9)) + frame(9, 4, 1),
    BEGIN + headers(1, 0) + frame(9, 4, 1) + frame(6, 0, 0, bytes(8)) + frame(7, 0, 0, bytes(8)),
    BEGIN + headers(1, 12, b"\2" + bytes(2)) + data(1, b"\1x\0", 9) + frame(2, 0, 1, bytes(5)),
]


@target("grpc.port", CONVERSATIONS, ())
def read_conversation(data: bytes) -> None:
    """A connection that nothing breaks but its own end."""
    clock, port, front = Clock(), Port(), Front()
    methods = {method.name: method for method in front.methods}
    for begin in (b"", BEGIN):
        connection = GrpcConnection(SERVICE, methods, CallLimits(65536, 1 << 20), port.counters)
        timing = Timing(clock, lambda function: clock.callLater(0, function), GrpcConfig())
        protocol = GrpcProtocol(connection, timing, port, PeerLimits())
        deliver(protocol, data, *([begin] if begin else []))
        assert (connection.unfinished, connection.missing, connection.calls) == (0, 0, [])
    assert not port.counters.ended[2]


@target("grpc.messages", [framed(b"abc") * 2, framed(b"x" * 500, packed=True)], (GrpcRefusal,))
def read_messages(data: bytes) -> None:
    """Messages and their packing; none is larger than allowed."""
    reader = PrefixReader(4096, "gzip")
    at = data[0] if data else 0
    for piece in (data[:at], data[at:]):
        assert all(len(message) <= 4096 for message in reader.receive(piece))


@target("grpc.headers", [b"10S", b"9998613u", b"31535999M", b"1\n2"], (GrpcRefusal,))
def read_call_headers(data: bytes) -> None:
    text = data.decode("latin-1")
    read_headers([(":path", text), (":method", "POST"), (text, text)])
    assert 0 <= parse_timeout(text) < 4e11
