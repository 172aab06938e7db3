"""grpcio, the stack of the Python SDK, over loopback sockets: in plain text and by TLS."""

import time
from random import Random

import pytest
from twisted.internet.threads import deferToThreadPool

from rmq_ha.base.config.grpc_keys import GrpcConfig
from rmq_ha.base.host.network import RealNetwork
from rmq_ha.base.seams import Host
from rmq_ha.base.tls.server import ServerTls
from rmq_ha.server.grpc.face import CallEnd
from rmq_ha.server.grpc.server import GrpcServer
from rmq_ha.server.grpc.wire import messages
from tests.kits.grpc_client import SERVICE
from tests.unit.base.remoting.socket_case import SocketCase
from tests.unit.base.tls.material import Files, now_ms
from tests.unit.server.grpc.pairs import Front, request_of

grpc = pytest.importorskip("grpc", reason="pip install 'rmq-ha[connect]'")


class GrpcioTests(SocketCase):
    def setUp(self):
        super().setUp()
        self.files = Files()
        self.front = Front()
        self.host = Host(
            clock=self.reactor,
            now_ms=now_ms,
            network=RealNetwork(self.reactor),
            disk=None,
            worker=None,
            random=Random(1),
        )

    def serve(self, tls=None):
        config = GrpcConfig()
        config.grpc_shutdown_time_seconds = 1
        self.server = GrpcServer(self.host, config, self.front.methods, tls)
        port = self.spin(self.server.listen, 0, "127.0.0.1")
        self.addCleanup(self.spin, self.server.stop)
        return port.getHost().port

    def in_thread(self, function, *args):
        return self.spin(
            lambda: deferToThreadPool(self.reactor, self.reactor.getThreadPool(), function, *args)
        )

    def talk(self, channel):
        """All kinds of calls; what came."""

        def method(kind, name, request, answer):
            return getattr(channel, kind)(
                f"/{SERVICE}/{name}",
                request_serializer=request.SerializeToString,
                response_deserializer=answer.FromString,
            )

        send = method(
            "unary_unary", "SendMessage", messages.SendMessageRequest, messages.SendMessageResponse
        )
        many = [send.future(request_of(str(number)), timeout=10) for number in range(50)]
        ids = [future.result().entries[0].message_id for future in many]
        large = send(request_of("large", body=bytes(5 << 20)), timeout=10)
        telemetry = method(
            "stream_stream", "Telemetry", messages.TelemetryCommand, messages.TelemetryCommand
        )
        commands = [messages.TelemetryCommand() for _ in range(3)]
        for number, command in enumerate(commands):
            command.verify_message_result.nonce = str(number)
        nonces = [
            item.verify_message_result.nonce for item in telemetry(iter(commands), timeout=10)
        ]
        receive = method(
            "unary_stream",
            "ReceiveMessage",
            messages.ReceiveMessageRequest,
            messages.ReceiveMessageResponse,
        )
        poll = receive(messages.ReceiveMessageRequest(), timeout=10)
        while not self.front.polls:
            time.sleep(0.001)
        poll.cancel()
        late = receive(messages.ReceiveMessageRequest(), timeout=0.1)
        codes = [poll.code(), late.code()]
        try:
            send(request_of("too large", body=bytes(20 << 20)), timeout=10)
        except grpc.RpcError as error:
            codes.append(error.code())
        unknown = method(
            "unary_unary", "PullMessage", messages.SendMessageRequest, messages.SendMessageResponse
        )
        try:
            unknown(request_of("A"), timeout=10)
        except grpc.RpcError as error:
            codes.append(error.code())
        return ids, large.entries[0].message_id, nonces, codes

    def check(self, result):
        ids, large, nonces, codes = result
        self.assertEqual(ids, [str(number) for number in range(50)])
        self.assertEqual((large, nonces), ("large", ["0", "1", "2"]))
        wanted = [
            grpc.StatusCode.CANCELLED,
            grpc.StatusCode.DEADLINE_EXCEEDED,
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            grpc.StatusCode.UNIMPLEMENTED,
        ]
        self.assertEqual(codes, wanted)
        self.assertIn(CallEnd.CANCELLED, self.front.ends)
        (peer,) = self.server.peers
        self.assertEqual(self.server.counters.violations, 0)
        return peer

    def test_plain_text(self):
        port = self.serve()
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            peer = self.check(self.in_thread(self.talk, channel))
        self.assertFalse(peer.security.is_tls)

    def test_tls(self):
        options = self.files.put_pair("tls.server", "localhost")
        options |= {"tls.test.mode.enable": "false"}
        rules = ServerTls(options, self.files.read_bytes, now_ms)
        port = self.serve(rules)
        root = self.files[self.files.put_root("tls.client")["tls.client.trustCertPath"]]
        credentials = grpc.ssl_channel_credentials(root)
        name = [("grpc.ssl_target_name_override", "localhost")]
        with grpc.secure_channel(f"127.0.0.1:{port}", credentials, name) as channel:
            peer = self.check(self.in_thread(self.talk, channel))
        self.assertTrue(peer.security.is_tls)

    def test_a_stop_lets_the_open_call_end(self):
        self.front.waits = True
        port = self.serve()
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            send = channel.unary_unary(
                f"/{SERVICE}/SendMessage",
                request_serializer=messages.SendMessageRequest.SerializeToString,
                response_deserializer=messages.SendMessageResponse.FromString,
            )
            future = send.future(request_of("A"), timeout=10)
            give_up = time.monotonic() + 10
            while not self.front.answers and time.monotonic() < give_up:
                self.reactor.iterate(0.01)
            stopped = self.server.stop()
            for _ in range(5):
                self.reactor.iterate(0.01)
            self.front.answers[0].callback(messages.SendMessageResponse())
            self.spin(lambda: stopped)
            self.assertEqual(future.result(5), messages.SendMessageResponse())
