"""The `tls.*` keys of a properties file reach every port of a broker and of a name server."""

import shutil
import tempfile

from rmq_ha.base.config.load import load_broker, load_namesrv
from rmq_ha.base.config.netty import NettyClientConfig
from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.base.errors import RemotingConnectError
from rmq_ha.base.host.real import make_host
from rmq_ha.base.remoting.client import RemotingClient
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.client.lookup.requests import pull_request, route_request, send_request
from rmq_ha.ops.app.broker_server import BrokerServer
from rmq_ha.ops.app.namesrv_server import NamesrvServer
from tests.unit.base.remoting.socket_case import SocketCase

BROKER, FAST, NAMESRV, LONE_NAMESRV = 20621, 20619, 20630, 20631
TLS = {"tls.enable": "true"}
TOPIC = "TBW102"


class TlsServers(SocketCase):
    def setUp(self):
        super().setUp()
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.host = make_host(self.reactor)
        self.addCleanup(self.host.worker.stop)

    def surroundings(self):
        return Surroundings({}, self.folder, "here", "127.0.0.1", self.folder)

    def client(self, options=None):
        client = RemotingClient(self.host, NettyClientConfig(), options)
        self.addCleanup(self.spin, client.stop)
        return client

    def broker(self, *settings):
        text = "\n".join(
            (
                f"listenPort={BROKER}",
                f"embeddedNamesrvPort={NAMESRV}",
                "bindAddress=127.0.0.1",
                f"storePathRootDir={self.folder}/store",
                "mappedFileSizeCommitLog=1048576",
                *settings,
            )
        )
        configuration = load_broker(text, self.surroundings()).configuration
        server = BrokerServer(self.host, configuration)
        self.spin(server.start)
        self.addCleanup(self.spin, server.stop)

    def codes(self, client, *ports):
        """What the broker's or name server's own request gets at each port."""
        requests = {
            BROKER: send_request("p", TOPIC, 0, b"x", "", 1),
            FAST: send_request("p", TOPIC, 0, b"x", "", 1),
            NAMESRV: route_request(TOPIC),
            LONE_NAMESRV: route_request("nobody's"),
        }

        async def ask(port):
            try:
                answer = await client.invoke(f"127.0.0.1:{port}", requests[port], 5000)
            except RemotingConnectError:
                return "refused"
            return answer.code

        return [self.spin(ask, port) for port in ports]

    def test_by_default_both_kinds_share_each_port(self):
        """And what one sent the other reads."""
        self.broker()
        for options in (None, TLS):
            client = self.client(options)
            self.assertEqual(self.codes(client, BROKER, FAST, NAMESRV), [0, 0, 0])
            pulled = self.spin(
                client.invoke, f"127.0.0.1:{BROKER}", pull_request("c", TOPIC, 0, 0), 5000
            )
            self.assertEqual(pulled.code, ResponseCode.SUCCESS)

    def test_enforcing_refuses_plain_clients_everywhere(self):
        """The broker itself registers with its name server, over TLS since `tls.enable` says so."""
        self.broker("tls.server.mode=enforcing", "tls.enable=true")
        self.assertEqual(self.codes(self.client(TLS), BROKER, FAST, NAMESRV), [0, 0, 0])
        self.assertEqual(self.codes(self.client(), BROKER, FAST, NAMESRV), ["refused"] * 3)

    def test_use_tls_is_the_clients_other_name(self):
        self.broker("tls.server.mode=enforcing", "useTLS=true")
        self.assertEqual(self.codes(self.client(TLS), NAMESRV), [0])

    def test_a_name_server_of_its_own(self):
        text = f"listenPort={LONE_NAMESRV}\nbindAddress=127.0.0.1\ntls.server.mode=enforcing\n"
        configuration = load_namesrv(text, self.surroundings()).configuration
        server = NamesrvServer(self.host, configuration)
        self.spin(server.start)
        self.addCleanup(self.spin, server.stop)
        unknown = ResponseCode.TOPIC_NOT_EXIST
        self.assertEqual(self.codes(self.client(TLS), LONE_NAMESRV), [unknown])
        self.assertEqual(self.codes(self.client(), LONE_NAMESRV), ["refused"])
