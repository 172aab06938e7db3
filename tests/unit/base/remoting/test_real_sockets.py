"""Remoting over loopback sockets: eager writes, TLS on the same port.

Spec: remoting.md, section 1.10.
"""

import shutil
import socket
import tempfile
import time
from pathlib import Path
from random import Random

import trustme
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import globalLogPublisher
from twisted.python.failure import Failure

from rmq_ha.base.config.netty import NettyClientConfig, NettyServerConfig
from rmq_ha.base.errors import ConfigurationError, RemotingConnectError
from rmq_ha.base.host.network import EagerClient, EagerServer, RealNetwork
from rmq_ha.base.remoting.client import RemotingClient
from rmq_ha.base.remoting.dispatcher import RequestDispatcher
from rmq_ha.base.remoting.protocol import PeerLimits, ServerProtocol
from rmq_ha.base.remoting.server import RemotingServer
from rmq_ha.base.seams import Host
from rmq_ha.base.tls.refusals import Refusals
from rmq_ha.base.tls.server import ServerTls
from rmq_ha.base.wire.command import RemotingCommand
from tests.unit.base.remoting.socket_case import SocketCase

BIG = bytes(range(256)) * 16384


class Files:
    """The part of a disk that TLS needs."""

    def read_bytes(self, path):
        return Path(path).read_bytes()


def make_host(reactor):
    return Host(
        clock=reactor,
        now_ms=lambda: 1_700_000_000_000,
        network=RealNetwork(reactor),
        disk=Files(),
        worker=None,
        random=Random(1),
    )


class RemotingCase(SocketCase):
    def setUp(self):
        super().setUp()
        self.host = make_host(self.reactor)

    async def refused(self, client, address):
        """A call that gets no connection, or one that is closed."""
        try:
            await client.invoke(address, RemotingCommand(1), 3000)
        except RemotingConnectError:
            return
        self.fail("it was answered")

    async def serve(self, options=None, interface="127.0.0.1"):
        dispatcher = RequestDispatcher()
        dispatcher.routes[1] = lambda channel, request: request.response(body=request.body)
        server = RemotingServer(self.host, NettyServerConfig(), dispatcher, options)
        port = await server.listen(0, interface)
        self.addCleanup(self.spin, server.stop)
        return port.getHost().port

    def client(self, options=None):
        client = RemotingClient(self.host, NettyClientConfig(), options)
        self.addCleanup(self.spin, client.stop)
        return client

    async def echo(self, client, address, body=b"hi"):
        response = await client.invoke(address, RemotingCommand(1, body=body), 5000)
        self.assertEqual(response.body, body)


class PlainTests(RemotingCase):
    def test_calls_and_bodies_larger_than_the_socket_buffer(self):
        async def run():
            port = await self.serve()
            client = self.client()
            for body in (b"hi", BIG, b"x"):
                await self.echo(client, f"127.0.0.1:{port}", body)
            await self.echo(client, f"localhost:{port}")

        self.spin(run)

    def test_http_is_closed(self):
        async def run():
            port = await self.serve()
            closed = Deferred()

            class Http(Protocol):
                def connectionMade(self):
                    self.transport.write(b"GET / HTTP/1.1\r\n\r\n")

                def connectionLost(self, reason):
                    closed.callback(None)

            await self.host.network.client("127.0.0.1", port).connect(Factory.forProtocol(Http))
            await closed

        self.spin(run)


class EagerTests(RemotingCase):
    def test_write_reaches_the_socket_within_the_call_and_keeps_the_order(self):
        async def run():
            accepted = Deferred()
            data = BIG * 2

            class Accepting(Protocol):
                def connectionMade(self):
                    accepted.callback(self)

            port = await self.host.network.server(0, "127.0.0.1").listen(
                Factory.forProtocol(Accepting)
            )
            self.addCleanup(self.spin, port.stopListening)
            peer = socket.create_connection(("127.0.0.1", port.getHost().port))
            self.addCleanup(peer.close)
            server = await accepted
            self.assertIsInstance(server.transport, EagerServer)
            self.assertTrue(server.transport.getTcpNoDelay())
            server.transport.write(b"now")
            peer.settimeout(1)
            self.assertEqual(peer.recv(10), b"now")  # no turn of the reactor in between
            server.transport.write(data)
            server.transport.writeSequence([b"th", b"en"])
            server.transport.loseConnection()
            return peer, data + b"then"

        peer, expected = self.spin(run)
        self.assertEqual(self.read_all(peer), expected)

    def read_all(self, peer):
        """Turn the reactor and read in turns, until the end."""
        received = bytearray()
        peer.setblocking(False)
        give_up = time.monotonic() + 20
        while time.monotonic() < give_up:
            self.reactor.iterate(0)
            try:
                piece = peer.recv(1 << 20)
            except BlockingIOError:
                continue
            if not piece:
                return bytes(received)
            received += piece
        raise AssertionError("no end")

    def test_broken_connection_is_noticed_by_twisted_not_by_the_writer(self):
        async def run():
            accepted = Deferred()
            lost = Deferred()

            class Accepting(Protocol):
                def connectionMade(self):
                    accepted.callback(self)

                def connectionLost(self, reason):
                    lost.callback(None)

            port = await self.host.network.server(0, "127.0.0.1").listen(
                Factory.forProtocol(Accepting)
            )
            self.addCleanup(self.spin, port.stopListening)
            peer = socket.create_connection(("127.0.0.1", port.getHost().port))
            server = await accepted
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            peer.close()
            for _ in range(3):
                server.transport.write(b"into the void")
            await lost
            server.transport.write(b"later still")

        self.spin(run)

    def test_connecting_end_is_eager_too(self):
        async def run():
            port = await self.serve()
            protocol = await self.host.network.client("127.0.0.1", port).connect(
                Factory.forProtocol(Protocol)
            )
            self.assertIsInstance(protocol.transport, EagerClient)
            self.assertTrue(protocol.transport.getTcpNoDelay())
            protocol.transport.loseConnection()

        self.spin(run)


class TlsTests(RemotingCase):
    def folder(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        return Path(folder)

    def material(self):
        """Key and certificate files of a server called localhost, and the CA's certificate."""
        authority = trustme.CA()
        issued = authority.issue_cert("localhost", "127.0.0.1")
        folder = self.folder()
        names = {"key": "key.pem", "cert": "cert.pem", "ca": "ca.pem"}
        paths = {name: str(folder / file) for name, file in names.items()}
        issued.private_key_pem.write_to_path(paths["key"])
        for pem in issued.cert_chain_pems:
            pem.write_to_path(paths["cert"], append=True)
        authority.cert_pem.write_to_path(paths["ca"])
        server = {
            "tls.test.mode.enable": "false",
            "tls.server.keyPath": paths["key"],
            "tls.server.certPath": paths["cert"],
        }
        client = {
            "tls.test.mode.enable": "false",
            "tls.enable": "true",
            "tls.client.authServer": "true",
            "tls.client.trustCertPath": paths["ca"],
        }
        return server, client, paths

    def test_permissive_takes_both_on_one_port_with_a_certificate_of_its_own(self):
        async def run():
            address = f"127.0.0.1:{await self.serve({})}"
            for options in (None, {"tls.enable": "true"}):
                client = self.client(options)
                await self.echo(client, address)
                await self.echo(client, address, BIG)

        self.spin(run)

    def test_enforcing_refuses_plain(self):
        async def run():
            address = f"127.0.0.1:{await self.serve({'tls.server.mode': 'enforcing'})}"
            await self.echo(self.client({"tls.enable": "true"}), address)
            await self.refused(self.client(), address)

        self.spin(run)

    def test_disabled_and_missing_certificate_refuse_tls(self):
        async def run():
            for options in (
                {"tls.server.mode": "disabled"},
                {"tls.test.mode.enable": "false"},
                None,
            ):
                address = f"127.0.0.1:{await self.serve(options)}"
                await self.echo(self.client(), address)
                await self.refused(self.client({"tls.enable": "true"}), address)

        self.spin(run)

    def test_client_verifies_the_server_it_wants(self):
        async def run():
            server, client, _ = self.material()
            port = await self.serve(server)
            await self.echo(self.client(client), f"localhost:{port}")
            await self.echo(self.client(client), f"127.0.0.1:{port}")
            _, stranger, _ = self.material()
            await self.refused(self.client(stranger), f"localhost:{port}")

        self.spin(run)

    def test_server_asks_for_a_certificate(self):
        async def run():
            server, client, paths = self.material()
            server |= {
                "tls.server.need.client.auth": "require",
                "tls.server.authClient": "true",
                "tls.server.trustCertPath": paths["ca"],
            }
            port = await self.serve(server)
            known = client | {
                "tls.client.keyPath": paths["key"],
                "tls.client.certPath": paths["cert"],
            }
            await self.echo(self.client(known), f"localhost:{port}")
            await self.refused(self.client(client), f"localhost:{port}")

        self.spin(run)

    def lines(self):
        """What the remoting server says from now on."""
        said = []

        def note(event):
            if event["log_namespace"].endswith(".ServerProtocol"):
                said.append(event["log_format"].format(**event))

        globalLogPublisher.addObserver(note)
        self.addCleanup(globalLogPublisher.removeObserver, note)
        return said

    def test_strangers_are_told_apart_in_one_line_each(self):
        """And those who are no strangers notice nothing."""
        server, client, paths = self.material()
        server |= {
            "tls.server.mode": "enforcing",
            "tls.server.need.client.auth": "require",
            "tls.server.authClient": "true",
            "tls.server.trustCertPath": paths["ca"],
        }
        known = client | {
            "tls.client.keyPath": paths["key"],
            "tls.client.certPath": paths["cert"],
        }

        async def run():
            address = f"127.0.0.1:{await self.serve(server)}"
            friend = self.client(known)
            await self.echo(friend, address)
            said = self.lines()
            for _ in range(3):
                await self.refused(self.client(), address)
                await self.refused(self.client(client), address)
            await self.echo(friend, address)
            return said

        said = self.spin(run)
        self.assertEqual(len(said), 2, said)
        self.assertIn("it does not speak TLS, and tls.server.mode=enforcing", said[0])
        self.assertIn("it showed no certificate, and one is required", said[1])

    def test_reload_while_a_connection_is_in_use(self):
        """It goes on; the next ones see the new certificate, and a broken one changes nothing."""
        server, client, paths = self.material()
        rules = ServerTls(server, self.host.disk.read_bytes, lambda: int(time.time() * 1000))

        async def run():
            address = f"localhost:{await self.serve(rules)}"
            early = self.client(client)
            await self.echo(early, address)
            _, new_client, new_paths = self.material()
            for name in ("key", "cert"):
                shutil.copy(new_paths[name], paths[name])
            rules.reload()
            await self.echo(early, address, BIG)
            await self.refused(self.client(client), address)
            late = self.client(new_client)
            await self.echo(late, address)
            Path(paths["cert"]).write_bytes(b"oops")
            self.assertRaises(ConfigurationError, rules.reload)
            for caller in (early, late, self.client(new_client)):
                await self.echo(caller, address)

        self.spin(run)

    def test_the_caller_is_told_what_is_wrong_with_the_server(self):
        async def run():
            server, client, _ = self.material()
            address = f"127.0.0.2:{await self.serve(server, '127.0.0.2')}"
            try:
                await self.client(client).invoke(address, RemotingCommand(1), 3000)
            except RemotingConnectError as error:
                return str(error)

        self.assertRegex(
            self.spin(run), r"certificate is for localhost, 127\.0\.0\.1, not for 127\.0\.0\.2"
        )

    def test_a_handshake_that_never_ends_is_ended(self):
        """On a clock: the connection that dawdles is closed after ten seconds."""
        clock = Clock()
        said = self.lines()
        rules = ServerTls({}, self.host.disk.read_bytes, lambda: 0)
        connected = {}
        protocol = ServerProtocol(
            clock, RequestDispatcher(), 120.0, connected, rules, PeerLimits(Refusals(clock))
        )
        transport = StringTransport(peerAddress=IPv4Address("TCP", "10.0.0.9", 5))
        protocol.makeConnection(transport)
        protocol.dataReceived(b"\x16\x03")
        clock.advance(9.9)
        self.assertFalse(transport.disconnecting)
        clock.advance(0.2)
        self.assertTrue(transport.disconnecting)
        self.assertEqual(said, ["closing 10.0.0.9:5: no TLS handshake within 10 s"])
        protocol.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(connected, {})
        self.assertEqual(clock.getDelayedCalls(), [])

    def test_settings_that_do_not_fit_name_their_key(self):
        broken = self.folder() / "broken.pem"
        broken.write_bytes(b"no key")
        cases = [
            ({"tls.server.mode": "maybe"}, "tls.server.mode=maybe"),
            (
                {
                    "tls.test.mode.enable": "false",
                    "tls.server.keyPath": "/nowhere",
                    "tls.server.certPath": "/nowhere",
                },
                "tls.server.keyPath=/nowhere",
            ),
            (
                {
                    "tls.test.mode.enable": "false",
                    "tls.server.keyPath": str(broken),
                    "tls.server.certPath": str(broken),
                },
                "not PEM",
            ),
        ]
        for options, message in cases:
            error = self.assertRaises(
                ConfigurationError,
                RemotingServer,
                self.host,
                NettyServerConfig(),
                RequestDispatcher(),
                options,
            )
            self.assertIn(message, str(error))
        error = self.assertRaises(
            ConfigurationError,
            RemotingClient,
            self.host,
            NettyClientConfig(),
            {
                "tls.enable": "true",
                "tls.test.mode.enable": "false",
                "tls.client.authServer": "true",
            },
        )
        self.assertIn("trustCertPath", str(error))
