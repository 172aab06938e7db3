"""The accepting end of remoting over TLS: what handlers know of the peer, and what the log says."""

import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import formatEvent
from twisted.python.failure import Failure

from rmq_ha.base.errors import TlsRefused
from rmq_ha.base.model.security import Security
from rmq_ha.base.remoting.dispatcher import RequestDispatcher
from rmq_ha.base.remoting.protocol import PeerLimits, ServerProtocol
from rmq_ha.base.tls.client import ClientTls
from rmq_ha.base.tls.refusals import Refusals
from rmq_ha.base.tls.server import ServerTls
from rmq_ha.base.tls.session import TlsSession
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.frame import encode_frame
from tests.unit.base.tls.material import Files, now_ms, talk

REAL = {"tls.test.mode.enable": "false"}
ASKING = {
    "tls.server.mode": "enforcing",
    "tls.server.need.client.auth": "optional",
    "tls.server.authClient": "true",
}


class Peer:
    """A connection, as `talk` knows ends."""

    def __init__(self, place: "Place") -> None:
        self.protocol = ServerProtocol(
            place.clock,
            place.dispatcher,
            120.0,
            {},
            place.rules,
            PeerLimits(Refusals(place.clock)),
        )
        self.transport = StringTransport(peerAddress=IPv4Address("TCP", "10.0.0.7", 5))
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

    def lose(self) -> None:
        self.protocol.connectionLost(Failure(ConnectionDone()))


class Place:
    """A server that asks for certificates; what its validator saw of each request."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.files = Files()
        options = self.files.put_pair("tls.server", "localhost") | self.files.put_root("tls.server")
        self.rules = ServerTls(REAL | ASKING | options, self.files.read_bytes, now_ms)
        self.dispatcher = RequestDispatcher([self])
        self.dispatcher.routes[1] = lambda channel, request: request.response(17)
        self.seen: list[Security] = []

    def validate(self, request: RemotingCommand, remote_address: str) -> None:
        self.seen.append(request.security)

    def client(self, *names: str, root: str = "ours") -> TlsSession:
        options = REAL | {"tls.enable": "true"} | self.files.put_root("tls.client")
        if names:
            options |= self.files.put_pair("tls.client", *names, root=root)
        return ClientTls(options, self.files.read_bytes, now_ms).session("localhost")


@pytest.fixture
def place() -> Place:
    return Place()


def lines(logged) -> list[str]:
    ours = [event for event in logged if event["log_namespace"].startswith("rmq_ha.base.remoting")]
    return [formatEvent(event) for event in ours]


@pytest.mark.parametrize("names", [(), ("worker.example", "10.0.0.7")])
def test_handlers_know_whom_a_certificate_names(place: Place, logged, names) -> None:
    """Whoever has one is in the log; access control judges by it."""
    client, server = place.client(*names), Peer(place)
    talk(client, server)
    client.send(encode_frame(RemotingCommand(1)))
    server.receive_data(client.data_to_send())
    assert place.seen == [Security(is_tls=True, names=names)]
    assert b'"code":17' in client.receive_data(server.data_to_send())
    server.lose()
    told = ["10.0.0.7:5 is in: TLSv1.3, worker.example, 10.0.0.7"] if names else []
    assert lines(logged) == told


def test_who_leaves_in_the_handshake_is_told_and_who_was_put_out_is_told_once(
    place: Place, logged
) -> None:
    gone = Peer(place)
    gone.receive_data(b"\x16\x03\x01")
    gone.lose()
    (line,) = lines(logged)
    assert line.startswith("closing 10.0.0.7:5: it closed the connection in the TLS handshake")
    ended_by_us = Peer(place)
    ended_by_us.receive_data(b"\x16\x03\x01")
    ended_by_us.protocol.channel.close()
    ended_by_us.lose()
    assert len(lines(logged)) == 1
    stranger = Peer(place)
    with pytest.raises(TlsRefused):
        talk(place.client("worker", root="theirs"), stranger)
    stranger.lose()
    assert "is signed by no root that this side trusts" in lines(logged)[1]
    assert len(lines(logged)) == 2


def test_plain_at_a_port_that_enforces_tls_is_called_plain(place: Place, logged) -> None:
    """Whatever byte it ends with."""
    peer = Peer(place)
    peer.receive_data(b"\0\0\0\x16")
    assert peer.transport.disconnecting
    assert lines(logged) == [
        "closing 10.0.0.7:5: it does not speak TLS, and tls.server.mode=enforcing"
    ]
