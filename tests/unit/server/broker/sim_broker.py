"""A whole broker on a simulated machine, and a client on another that asks it."""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.plugin import getPlugins
from twisted.python.failure import Failure

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.netty import NettyClientConfig
from rmq_ha.base.model.status import BrokerRole, FlushDiskType
from rmq_ha.base.remoting.client import RemotingClient
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.requests import pull_request, send_request
from rmq_ha.server.broker.broker import Broker
from rmq_ha.server.plugins import Find
from rmq_ha.testing.cluster import LISTEN_PORT, small_configuration
from rmq_ha.testing.host import World

TOPIC = "TBW102"
FAST_PORT = LISTEN_PORT - 2
LIMIT_S = 60.0


class SimBroker:
    """
    One broker without a name server, and its clients.

    :ivar broker: None until `start`.
    :ivar find: finds the plugins that its configuration names.
    """

    def __init__(self, seed: int = 1) -> None:
        self.world = World(seed)
        self.host = self.world.add("broker")
        self.client_host = self.world.add("client")
        self.client = RemotingClient(self.client_host.seams, NettyClientConfig())
        self.configuration: BrokerConfiguration = small_configuration(
            self.host.ip, BrokerRole.ASYNC_MASTER, FlushDiskType.ASYNC_FLUSH
        )
        self.broker: Any = None
        self.find: Find = getPlugins

    def start(self) -> "SimBroker":
        """Build and start the broker; raises what its start fails with."""
        self.broker = Broker(self.host.seams, self.configuration, self.find)
        self.wait(self.broker.start())
        return self

    def stop(self) -> None:
        """Stop it in an orderly way."""
        self.wait(self.broker.stop())

    def wait(self, later: "Deferred[Any]") -> Any:
        """Run the simulation until a Deferred has fired; its result, or its error raised."""
        results: list[Any] = []
        later.addBoth(results.append)
        self.world.clock.run_while(lambda: not results, LIMIT_S)
        assert results, f"nothing within {LIMIT_S} s"
        if isinstance(results[0], Failure):
            results[0].raiseException()
        return results[0]

    def call(self, request: RemotingCommand, port: int = LISTEN_PORT) -> RemotingCommand:
        """Ask the broker."""
        answer: RemotingCommand = self.wait(self.ask(request, port))
        return answer

    def ask(self, request: RemotingCommand, port: int = LISTEN_PORT) -> "Deferred[Any]":
        """Ask the broker, and go on."""
        return self.client.invoke(f"{self.host.ip}:{port}", request, 10_000)

    def message(self, body: bytes = b"hello", topic: str = TOPIC, **properties: str) -> Any:
        """A request that sends one message to queue 0."""
        text = "\x02".join([f"{key}\x01{value}" for key, value in properties.items()])
        return send_request("producers", topic, 0, body, text, self.host.now_ms())

    def send(self, body: bytes = b"hello", port: int = LISTEN_PORT) -> RemotingCommand:
        """Send one message to queue 0 of `TOPIC`."""
        return self.call(self.message(body), port)

    def pull(self, offset: int = 0, hold_ms: int = 0) -> RemotingCommand:
        """Pull queue 0 of `TOPIC`."""
        return self.call(pull_request("consumers", TOPIC, 0, offset, hold_ms=hold_ms))
