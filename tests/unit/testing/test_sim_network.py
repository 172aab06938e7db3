"""What the simulated network does to connections."""

from twisted.internet.error import (
    ConnectingCancelledError,
    ConnectionDone,
    ConnectionLost,
    ConnectionRefusedError,
    DNSLookupError,
    TimeoutError,
)
from twisted.internet.interfaces import (
    IConsumer,
    IListeningPort,
    IStreamClientEndpoint,
    IStreamServerEndpoint,
    ITCPTransport,
)
from twisted.internet.protocol import Factory
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from rmq_ha.testing.host import World
from tests.sim_kit.contracts import Recorder


class SimNetworkTests(SynchronousTestCase):
    def setUp(self):
        self.world = World(1)
        self.a = self.world.add("a")
        self.b = self.world.add("b")
        self.network = self.world.network
        self.accepted = []
        self.listening = self.successResultOf(self.a.network.server(80).listen(self.factory()))

    def factory(self):
        factory = Factory.forProtocol(Recorder)
        make = factory.buildProtocol

        def build(address):
            self.accepted.append(make(address))
            return self.accepted[-1]

        factory.buildProtocol = build
        return factory

    def connect(self):
        """A connection from b to a: both protocols."""
        done = self.b.network.client("a", 80).connect(Factory.forProtocol(Recorder))
        self.run_for(0.1)
        return self.successResultOf(done), self.accepted[-1]

    def run_for(self, seconds):
        self.world.clock.run_for(seconds)

    def test_interfaces(self):
        """Endpoints, ports and transports are what Twisted's services expect."""
        client, _ = self.connect()
        verifyObject(IStreamClientEndpoint, self.b.network.client("a", 80))
        verifyObject(IStreamServerEndpoint, self.b.network.server(80))
        verifyObject(IListeningPort, self.listening)
        verifyObject(ITCPTransport, client.transport)
        verifyObject(IConsumer, client.transport)

    def test_random_chunks(self):
        """Bytes arrive in order, in pieces of any size."""
        client, server = self.connect()
        sizes = []
        keep = server.dataReceived
        server.dataReceived = lambda data: (sizes.append(len(data)), keep(data))
        self.network.split = 0.9
        for number in range(100):
            client.transport.write(b"%05d" % number * 20)
        self.run_for(1)
        self.assertEqual(server.data, b"".join(b"%05d" % n * 20 for n in range(100)))
        self.assertGreater(len(set(sizes)), 3)

    def test_partition_and_heal(self):
        """Behind a cut nothing arrives and nobody notices; healed, all of it does."""
        client, server = self.connect()
        self.network.partition("a", "b")
        client.transport.write(b"hello")
        self.run_for(100)
        self.assertEqual((server.data, server.lost, client.lost), (b"", None, None))
        self.network.heal()
        self.run_for(1)
        self.assertEqual(server.data, b"hello")

    def test_one_way(self):
        """A one-way cut lets the other way through, until its window is full."""
        client, server = self.connect()
        self.network.cut("a", "b")
        server.transport.write(b"lost")
        client.transport.write(b"x" * 1_000_000)
        self.run_for(10)
        self.assertEqual(client.data, b"")
        self.assertEqual(len(server.data), self.network.window)
        self.network.heal()
        self.run_for(10)
        self.assertEqual((client.data, len(server.data)), (b"lost", 1_000_000))

    def test_close_behind_a_cut(self):
        """A close that the cut swallowed arrives after it."""
        client, server = self.connect()
        self.network.partition("a", "b")
        client.transport.loseConnection()
        self.run_for(10)
        self.assertTrue(client.lost)
        self.assertIsNone(server.lost)
        self.network.heal()
        self.run_for(1)
        self.assertTrue(server.lost.check(ConnectionDone))

    def test_drop(self):
        """A reset ends both sides uncleanly."""
        client, server = self.connect()
        self.network.drop(client.transport)
        self.run_for(1)
        self.assertTrue(client.lost.check(ConnectionLost))
        self.assertTrue(server.lost.check(ConnectionLost))

    def test_half_open(self):
        """The side that is left hears nothing until it writes; then it is reset."""
        client, server = self.connect()
        self.network.half_open(client.transport)
        self.run_for(100)
        self.assertTrue(client.lost)
        self.assertIsNone(server.lost)
        server.transport.write(b"anybody there?")
        self.run_for(1)
        self.assertTrue(server.lost.check(ConnectionLost))

    def test_refused(self):
        """A machine where nobody listens refuses at once."""
        done = self.b.network.client("a", 81).connect(Factory.forProtocol(Recorder))
        self.run_for(0.1)
        self.failureResultOf(done, ConnectionRefusedError)

    def test_unreachable(self):
        """A machine that is cut off or gone does not answer: the attempt times out."""
        self.network.partition("a", "b")
        done = self.b.network.client("a", 80, 3.0).connect(Factory.forProtocol(Recorder))
        self.run_for(2.9)
        self.assertNoResult(done)
        self.run_for(0.2)
        self.failureResultOf(done, TimeoutError)

    def test_healed_while_connecting(self):
        """An attempt goes on when the network heals in time."""
        self.network.partition("a", "b")
        done = self.b.network.client("a", 80, 3.0).connect(Factory.forProtocol(Recorder))
        self.run_for(1.5)
        self.network.heal()
        self.run_for(1)
        self.successResultOf(done)

    def test_unknown(self):
        """Nobody has heard of that machine."""
        done = self.b.network.client("c", 80).connect(Factory.forProtocol(Recorder))
        self.failureResultOf(done, DNSLookupError)

    def test_cancelled(self):
        """A cancelled attempt fails at once, and nothing comes of it later."""
        done = self.b.network.client("a", 80).connect(Factory.forProtocol(Recorder))
        done.cancel()
        self.failureResultOf(done, ConnectingCancelledError)
        self.run_for(5)
        self.assertEqual(self.network.ends(), [])

    def test_killed_process(self):
        """The peers of a process that dies hear of it at once; the machine refuses then."""
        client, _ = self.connect()
        self.a.crash()
        self.run_for(0.1)
        self.assertTrue(client.lost)
        done = self.b.network.client("a", 80).connect(Factory.forProtocol(Recorder))
        self.run_for(0.1)
        self.failureResultOf(done, ConnectionRefusedError)

    def test_power_loss(self):
        """A machine without power tells nobody; when it is back, it knows no old connection."""
        client, server = self.connect()
        self.a.crash(power=True)
        client.transport.write(b"hello")
        self.run_for(100)
        self.assertIsNone(client.lost)
        self.assertEqual((server.data, server.lost), (b"", None))
        self.a.restart()
        client.transport.write(b"hello")
        self.run_for(1)
        self.assertTrue(client.lost.check(ConnectionLost))

    def test_power_loss_behind_a_cut(self):
        """What a machine could not deliver before it lost its power is never sent again."""
        client, server = self.connect()
        self.network.partition("a", "b")
        server.transport.write(b"lost")
        self.run_for(1)
        self.a.crash(power=True)
        self.network.heal()
        self.run_for(10)
        self.assertEqual(client.data, b"")

    def test_raising_protocol(self):
        """A protocol that raises loses its connection, and the failure is kept."""
        client, server = self.connect()

        def broken(data):
            raise ValueError("broken")

        server.dataReceived = broken
        client.transport.write(b"x")
        self.run_for(1)
        self.assertTrue(server.lost.check(ValueError))
        self.assertTrue(client.lost)
        self.assertEqual(len(self.world.clock.failures), 1)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_slow(self):
        """A slow way takes longer."""
        client, server = self.connect()
        self.network.slow("b", "a", 100.0)
        client.transport.write(b"x")
        self.run_for(0.1)
        self.assertEqual(server.data, b"")
        self.run_for(100)
        self.assertEqual(server.data, b"x")

    def test_stopped_listening(self):
        """A port that is given up can be listened on again."""
        self.successResultOf(self.listening.stopListening())
        again = self.successResultOf(self.a.network.server(80).listen(self.factory()))
        self.assertEqual(again.getHost().port, 80)
