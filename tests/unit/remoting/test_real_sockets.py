"""Remoting over loopback sockets: eager writes, TLS on the same port. Spec: section 1.10."""

import shutil
import socket
import tempfile
from pathlib import Path
from random import Random

import trustme
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol
from twisted.trial.unittest import TestCase

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


def make_host():
    return Host(
        clock=reactor,
        now_ms=lambda: 1_700_000_000_000,
        network=RealNetwork(reactor),
        disk=Files(),
        worker=None,
        random=Random(1),
    )


class SocketCase(TestCase):
    timeout = 20

    def setUp(self):
        self.host = make_host()

    async def serve(self, tls=None):
        dispatcher = RequestDispatcher()
        dispatcher.routes[1] = lambda channel, request: request.response(body=request.body)
        server = RemotingServer(self.host, NettyServerConfig(), dispatcher, tls)
        port = await server.listen(0, "127.0.0.1")
        self.addCleanup(server.stop)
        return port.getHost().port

    def client(self, tls=None):
        client = RemotingClient(self.host, NettyClientConfig(), tls)
        self.addCleanup(client.stop)
        return client

    async def echo(self, client, address, body=b"hi"):
        response = await client.invoke(address, RemotingCommand(1, body=body), 5000)
        self.assertEqual(response.body, body)


class PlainTests(SocketCase):
    def test_calls_and_bodies_larger_than_the_socket_buffer(self):
        async def run():
            port = await self.serve()
            client = self.client()
            for body in (b"hi", BIG, b"x"):
                await self.echo(client, f"127.0.0.1:{port}", body)
            await self.echo(client, f"localhost:{port}")

        return Deferred.fromCoroutine(run())

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

        return Deferred.fromCoroutine(run())


class EagerTests(SocketCase):
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
            self.addCleanup(port.stopListening)
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
            peer.settimeout(None)
            received = await self.read_all(peer)
            self.assertEqual(received, data + b"then")

        return Deferred.fromCoroutine(run())

    async def read_all(self, peer):
        from twisted.internet.threads import deferToThread

        def read():
            pieces = []
            while piece := peer.recv(65536):
                pieces.append(piece)
            return b"".join(pieces)

        return await deferToThread(read)

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
            self.addCleanup(port.stopListening)
            peer = socket.create_connection(("127.0.0.1", port.getHost().port))
            server = await accepted
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            peer.close()
            for _ in range(3):
                server.transport.write(b"into the void")
            await lost
            server.transport.write(b"later still")

        return Deferred.fromCoroutine(run())

    def test_connecting_end_is_eager_too(self):
        async def run():
            port = await self.serve()
            protocol = await self.host.network.client("127.0.0.1", port).connect(
                Factory.forProtocol(Protocol)
            )
            self.assertIsInstance(protocol.transport, EagerClient)
            self.assertTrue(protocol.transport.getTcpNoDelay())
            protocol.transport.loseConnection()

        return Deferred.fromCoroutine(run())


class TlsTests(SocketCase):
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
            for tls in (None, {"tls.enable": "true"}):
                client = self.client(tls)
                await self.echo(client, address)
                await self.echo(client, address, BIG)

        return Deferred.fromCoroutine(run())

    def test_enforcing_refuses_plain(self):
        async def run():
            address = f"127.0.0.1:{await self.serve({'tls.server.mode': 'enforcing'})}"
            await self.echo(self.client({"tls.enable": "true"}), address)
            await self.assertFailure(
                self.client().invoke(address, RemotingCommand(1), 3000), RemotingConnectError
            )

        return Deferred.fromCoroutine(run())

    def test_disabled_and_missing_certificate_refuse_tls(self):
        async def run():
            for tls in ({"tls.server.mode": "disabled"}, {"tls.test.mode.enable": "false"}, None):
                address = f"127.0.0.1:{await self.serve(tls)}"
                await self.echo(self.client(), address)
                await self.assertFailure(
                    self.client({"tls.enable": "true"}).invoke(address, RemotingCommand(1), 3000),
                    RemotingConnectError,
                )

        return Deferred.fromCoroutine(run())

    def test_client_verifies_the_server_it_wants(self):
        async def run():
            server, client, _ = self.material()
            port = await self.serve(server)
            await self.echo(self.client(client), f"localhost:{port}")
            await self.echo(self.client(client), f"127.0.0.1:{port}")
            _, stranger, _ = self.material()
            await self.assertFailure(
                self.client(stranger).invoke(f"localhost:{port}", RemotingCommand(1), 3000),
                RemotingConnectError,
            )

        return Deferred.fromCoroutine(run())

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
            await self.assertFailure(
                self.client(client).invoke(f"localhost:{port}", RemotingCommand(1), 3000),
                RemotingConnectError,
            )

        return Deferred.fromCoroutine(run())

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
                "key and certificate",
            ),
        ]
        for tls, message in cases:
            error = self.assertRaises(
                ConfigurationError,
                RemotingServer,
                self.host,
                NettyServerConfig(),
                RequestDispatcher(),
                tls,
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
