"""Remoting over loopback sockets: eager writes, TLS on the same port. Spec: section 1.10."""

import shutil
import socket
import tempfile
import time
from pathlib import Path
from random import Random

import trustme
from socket_case import SocketCase
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol

from rmq_ha.config.netty import NettyClientConfig, NettyServerConfig
from rmq_ha.errors import ConfigurationError, RemotingConnectError
from rmq_ha.host.network import EagerClient, EagerServer, RealNetwork
from rmq_ha.remoting.client import RemotingClient
from rmq_ha.remoting.dispatcher import RequestDispatcher
from rmq_ha.remoting.server import RemotingServer
from rmq_ha.seams import Host
from rmq_ha.wire.command import RemotingCommand

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

    async def serve(self, options=None):
        dispatcher = RequestDispatcher()
        dispatcher.routes[1] = lambda channel, request: request.response(body=request.body)
        server = RemotingServer(self.host, NettyServerConfig(), dispatcher, options)
        port = await server.listen(0, "127.0.0.1")
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
