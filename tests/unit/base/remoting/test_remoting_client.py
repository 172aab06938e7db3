"""Client and server on a simulated network. Spec: remoting.md, sections 1.6 and 1.11."""

from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.trial.unittest import SynchronousTestCase

from rmq_ha.base.config.netty import NettyClientConfig, NettyServerConfig
from rmq_ha.base.errors import RemotingConnectError, RemotingTimeout
from rmq_ha.base.remoting.client import RemotingClient
from rmq_ha.base.remoting.dispatcher import RequestDispatcher
from rmq_ha.base.remoting.server import RemotingServer
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.testing.host import World


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
        self.result(self.client.oneway(self.address, RemotingCommand(1)))
        self.assertEqual((len(self.server.channels), self.server.accepted), (1, 1))
        self.result(self.client.stop(), 0.5)
        self.assertEqual(self.near.clock.getDelayedCalls(), [])

    def test_who_is_connected_waits_for_no_timer_any_more(self):
        """Ten thousand calls with a limit of a minute would keep as many of them for a minute."""
        calls = [self.client.invoke(self.address, RemotingCommand(1), 60_000) for _ in range(5)]
        self.advance(1)
        for call in calls:
            self.successResultOf(call)
        left = self.near.clock.getDelayedCalls()
        self.assertEqual(len(left), 2)  # whether it is idle, and which answers are late

    def test_nobody_listens(self):
        call = self.client.invoke(f"{self.far.ip}:1", RemotingCommand(1), 3000)
        self.advance(4)
        error = self.failureResultOf(call, RemotingConnectError).value
        self.assertIn(f"cannot connect to {self.far.ip}:1: ", str(error))

    def test_whoever_waits_for_the_same_connection_hears_that_there_is_none(self):
        calls = [self.client.invoke(f"{self.far.ip}:1", RemotingCommand(1), 3000) for _ in "abc"]
        self.advance(4)
        for call in calls:
            self.failureResultOf(call, RemotingConnectError)

    def test_an_answer_has_what_connecting_left_of_the_time(self):
        self.advance(5)
        call = self.client.invoke(self.address, RemotingCommand(2), 500)
        self.advance(0.6)
        self.failureResultOf(call, RemotingTimeout)

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
        for address in ("", "host", "host:", ":1", "host:x", "host:65536", "host:²"):
            call = self.client.invoke(address, RemotingCommand(1), 10)
            error = self.failureResultOf(call, RemotingConnectError).value
            self.assertRegex(str(error), "is not host:port|there is no such port")

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

    def test_a_caller_may_have_a_connection_closed(self):
        call = self.client.invoke(self.address, RemotingCommand(2), 9000)
        self.advance(1)
        self.client.close("nobody:1")
        self.client.close(self.address)
        self.advance(1)
        self.failureResultOf(call, RemotingConnectError)
        self.assertEqual(self.server.channels, [])
        self.result(self.client.invoke(self.address, RemotingCommand(1), 3000))
        self.assertEqual(self.server.accepted, 2)

    def test_a_connection_that_closes_slowly_does_not_take_the_next_one_with_it(self):
        self.result(self.client.invoke(self.address, RemotingCommand(1), 3000))
        (slow,) = self.world.network.connections_between("far", "near")
        slow.pauseProducing()
        self.client.oneway(self.address, RemotingCommand(1, body=bytes(1 << 20)))
        self.client.close(self.address)
        self.result(self.client.invoke(self.address, RemotingCommand(1), 3000))
        slow.resumeProducing()
        self.advance(1)
        self.assertEqual(self.server.connections, 1)
        self.result(self.client.invoke(self.address, RemotingCommand(1), 3000))
        self.assertEqual(self.server.accepted, 2)

    def test_what_a_peer_sends_is_read_although_it_reads_nothing(self):
        pushed = []
        self.client.routes[40] = lambda channel, request: pushed.append(request)
        self.result(self.client.invoke(self.address, RemotingCommand(1), 3000))
        (slow,) = self.world.network.connections_between("far", "near")
        slow.pauseProducing()
        self.client.oneway(self.address, RemotingCommand(1, body=bytes(1 << 20)))
        self.advance(1)
        self.server.channels[0].send(RemotingCommand(40))
        self.advance(1)
        self.assertEqual(len(pushed), 1)

    def test_who_waits_no_more_takes_the_connection_from_nobody(self):
        self.world.network.partition("near", "far")
        late = self.client.invoke(self.address, RemotingCommand(1), 500)
        cancelled = self.client.invoke(self.address, RemotingCommand(1), 3000)
        patient = self.client.invoke(self.address, RemotingCommand(1), 3000)
        self.advance(0.6)
        self.failureResultOf(late, RemotingConnectError)
        cancelled.cancel()
        self.failureResultOf(cancelled)
        self.world.network.heal()
        self.result(patient, 2)
        self.assertEqual(len(self.requests), 1)

    def test_an_open_channel_is_one_that_is_there_already(self):
        self.assertIsNone(self.client.open_channel(self.address))
        call = self.client.invoke(self.address, RemotingCommand(1), 3000)
        self.assertIsNone(self.client.open_channel(self.address))
        self.result(call)
        channel = self.client.open_channel(self.address)
        self.assertEqual(channel.remote_text, self.address)
        channel.close()
        self.assertIsNone(self.client.open_channel(self.address))

    def test_addresses_that_are_gone_take_no_memory(self):
        """Machines in a cloud have a new one each time."""
        self.result(self.client.invoke(self.address, RemotingCommand(1), 3000))
        self.server.channels[0].abort()
        call = self.client.invoke(f"{self.far.ip}:1", RemotingCommand(1), 3000)
        self.advance(4)
        self.failureResultOf(call, RemotingConnectError)
        self.assertEqual(self.client._peers, {})

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
        self.result(stopping, 0.5)
        self.failureResultOf(waiting, RemotingConnectError)
        later = self.client.invoke(self.address, RemotingCommand(1), 3000)
        self.assertIn("stopped", str(self.failureResultOf(later, RemotingConnectError).value))

    def test_stop_ends_a_connection_that_is_being_made(self):
        call = self.client.invoke(self.address, RemotingCommand(1), 3000)
        self.result(self.client.stop(), 0)
        error = self.failureResultOf(call, RemotingConnectError).value
        self.assertIn("this client is stopped", str(error))
        self.advance(1)
        self.assertEqual((self.server.channels, self.requests), ([], []))

    def test_stop_does_not_wait_for_peers_that_read_nothing(self):
        self.successResultOf(self.server.listen(9877))
        addresses = self.address, f"{self.far.ip}:9877"
        for address in addresses:
            self.result(self.client.invoke(address, RemotingCommand(1), 3000))
        self.world.network.partition("near", "far")
        for address in addresses:
            self.client.oneway(address, RemotingCommand(1, body=bytes(1 << 20)))
        stopping = self.client.stop()
        self.advance(0.9)
        self.assertNoResult(stopping)
        self.result(stopping, 0.2)

    def test_idle_connections_are_closed(self):
        self.result(self.client.invoke(self.address, RemotingCommand(1), 3000))
        self.advance(121)
        self.assertEqual(self.server.channels, [])


class RemotingServerTests(ClientCase):
    def test_stop_closes_connections_and_ports(self):
        clients = self.client, RemotingClient(self.near.seams, NettyClientConfig())
        calls = [client.invoke(self.address, RemotingCommand(2), 9000) for client in clients]
        self.advance(1)
        self.result(self.server.stop(), 0.5)
        self.assertEqual(self.far.clock.getDelayedCalls(), [])
        for call in calls:
            self.failureResultOf(call, RemotingConnectError)
        again = self.client.invoke(self.address, RemotingCommand(1), 500)
        self.advance(1)
        self.failureResultOf(again, RemotingConnectError)

    def test_stop_does_not_wait_for_an_unreachable_peer(self):
        self.result(self.client.invoke(self.address, RemotingCommand(1), 3000))
        self.world.network.partition("near", "far")
        self.result(self.server.stop(), 2)

    def test_stop_does_not_wait_for_peers_that_read_nothing(self):
        other = RemotingClient(self.near.seams, NettyClientConfig())
        for client in (self.client, other):
            self.result(client.invoke(self.address, RemotingCommand(1), 3000))
        self.world.network.partition("near", "far")
        for channel in self.server.channels:
            channel.send(RemotingCommand(1, body=bytes(1 << 20)))
        stopping = self.server.stop()
        self.advance(0.9)
        self.assertNoResult(stopping)
        self.result(stopping, 0.2)
        self.assertEqual(self.server.connections, 0)

    def test_servers_share_what_they_are_given_and_have_their_own_else(self):
        """Their limits hold for all ports of a broker together."""
        config, frames, turns = NettyServerConfig(), self.server.frames, self.server.turns
        seams = self.far.seams
        other = RemotingServer(seams, config, self.dispatcher, frames=frames, turns=turns)
        self.assertIs(other.frames, frames)
        self.assertIs(other.turns, turns)
        own = RemotingServer(seams, config, self.dispatcher)
        self.assertNotIn(own.frames, (None, frames))
        self.assertNotIn(own.turns, (None, turns))

    def test_several_ports_share_the_dispatcher(self):
        for port in (9877, 65535):
            self.successResultOf(self.server.listen(port))
            self.result(self.client.invoke(f"{self.far.ip}:{port}", RemotingCommand(1), 3000))

    def test_a_taken_port_fails(self):
        self.failureResultOf(self.server.listen(9876), CannotListenError)
