"""Client and server on a simulated network. Spec: remoting.md, sections 1.6 and 1.11."""

from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.trial.unittest import SynchronousTestCase

from rmq_ha.config.netty import NettyClientConfig, NettyServerConfig
from rmq_ha.errors import RemotingConnectError, RemotingTimeout
from rmq_ha.remoting.client import RemotingClient
from rmq_ha.remoting.dispatcher import RequestDispatcher
from rmq_ha.remoting.server import RemotingServer
from rmq_ha.testing.host import World
from rmq_ha.wire.command import RemotingCommand


class ClientCase(SynchronousTestCase):
    def setUp(self):
        self.world = World(7)
        self.near = self.world.add("near")
        self.far = self.world.add("far")
        self.requests = []
        self.dispatcher = RequestDispatcher()
        self.dispatcher.routes[1] = self.handle
        self.dispatcher.routes[2] = lambda channel, request: Deferred()
        self.server = RemotingServer(self.far.seams, NettyServerConfig(), self.dispatcher)
        self.port = self.successResultOf(self.server.listen(9876))
        self.address = f"{self.far.ip}:9876"
        self.client = RemotingClient(self.near.seams, NettyClientConfig())

    def handle(self, channel, request):
        self.requests.append(request)
        return request.response(ext={"from": channel.remote_text.partition(":")[0]})

    def advance(self, seconds):
        self.world.clock.run_for(seconds)

    def result(self, call, seconds=1.0):
        self.advance(seconds)
        return self.successResultOf(call)


class RemotingClientTests(ClientCase):
    def test_call_connects_and_gets_its_response(self):
        response = self.result(self.client.invoke(self.address, RemotingCommand(1), 3000))
        self.assertEqual(response.ext, {"from": self.near.ip})

    def test_callers_share_one_connection(self):
        calls = [self.client.invoke(self.address, RemotingCommand(1), 3000) for _ in range(5)]
        self.advance(1)
        for call in calls:
            self.successResultOf(call)
        self.result(self.client.invoke(self.address, RemotingCommand(1), 3000))
        self.assertEqual(len(self.server.channels), 1)

    def test_nobody_listens(self):
        call = self.client.invoke(f"{self.far.ip}:1", RemotingCommand(1), 3000)
        self.advance(4)
        error = self.failureResultOf(call, RemotingConnectError).value
        self.assertIn(f"cannot connect to {self.far.ip}:1: ", str(error))

    def test_connecting_counts_for_the_timeout(self):
        self.world.network.partition("near", "far")
        call = self.client.invoke(self.address, RemotingCommand(1), 500)
        self.advance(0.6)
        self.failureResultOf(call, RemotingConnectError)

    def test_after_a_failed_connect_the_next_call_tries_again(self):
        self.world.network.partition("near", "far")
        call = self.client.invoke(self.address, RemotingCommand(1), 3000)
        self.advance(4)
        self.failureResultOf(call, RemotingConnectError)
        self.world.network.heal()
        self.result(self.client.invoke(self.address, RemotingCommand(1), 3000))

    def test_addresses_that_are_none(self):
        for address in ("", "host", "host:", ":1", "host:x", "host:99999", "host:²"):
            self.failureResultOf(
                self.client.invoke(address, RemotingCommand(1), 10), RemotingConnectError
            )

    def test_a_silent_peer_times_out_and_the_next_call_connects_anew(self):
        self.result(self.client.invoke(self.address, RemotingCommand(1), 3000))
        call = self.client.invoke(self.address, RemotingCommand(2), 500)
        self.advance(1)
        self.failureResultOf(call, RemotingTimeout)
        self.advance(1)
        self.assertEqual(self.server.channels, [])
        self.result(self.client.invoke(self.address, RemotingCommand(1), 3000))

    def test_a_lost_connection_fails_its_calls_and_the_next_call_connects_anew(self):
        call = self.client.invoke(self.address, RemotingCommand(2), 9000)
        self.advance(1)
        self.server.channels[0].abort()
        self.advance(1)
        self.failureResultOf(call, RemotingConnectError)
        self.result(self.client.invoke(self.address, RemotingCommand(1), 3000))

    def test_one_way(self):
        self.result(self.client.oneway(self.address, RemotingCommand(1)))
        self.assertTrue(self.requests[0].is_oneway)

    def test_server_pushes_to_the_client(self):
        self.client.routes[40] = lambda channel, request: request.response(remark="pushed")
        self.result(self.client.invoke(self.address, RemotingCommand(1), 3000))
        call = self.server.channels[0].invoke(RemotingCommand(40), 3000)
        self.assertEqual(self.result(call).remark, "pushed")

    def test_stop_fails_what_waits_and_what_comes_later(self):
        waiting = self.client.invoke(self.address, RemotingCommand(2), 9000)
        self.advance(1)
        elsewhere = self.client.invoke(f"{self.far.ip}:1", RemotingCommand(1), 9000)
        stopping = self.client.stop()
        self.failureResultOf(elsewhere, RemotingConnectError)
        self.result(stopping, 2)
        self.failureResultOf(waiting, RemotingConnectError)
        later = self.client.invoke(self.address, RemotingCommand(1), 3000)
        self.assertIn("stopped", str(self.failureResultOf(later, RemotingConnectError).value))

    def test_idle_connections_are_closed(self):
        self.result(self.client.invoke(self.address, RemotingCommand(1), 3000))
        self.advance(121)
        self.assertEqual(self.server.channels, [])


class RemotingServerTests(ClientCase):
    def test_stop_closes_connections_and_ports(self):
        call = self.client.invoke(self.address, RemotingCommand(2), 9000)
        self.advance(1)
        self.result(self.server.stop(), 2)
        self.failureResultOf(call, RemotingConnectError)
        again = self.client.invoke(self.address, RemotingCommand(1), 500)
        self.advance(1)
        self.failureResultOf(again, RemotingConnectError)

    def test_stop_does_not_wait_for_an_unreachable_peer(self):
        self.result(self.client.invoke(self.address, RemotingCommand(1), 3000))
        self.world.network.partition("near", "far")
        self.result(self.server.stop(), 2)

    def test_several_ports_share_the_dispatcher(self):
        self.successResultOf(self.server.listen(9877))
        self.result(self.client.invoke(f"{self.far.ip}:9877", RemotingCommand(1), 3000))

    def test_a_taken_port_fails(self):
        self.failureResultOf(self.server.listen(9876), CannotListenError)
