"""Brokers with a name server on simulated machines, and a client on another."""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rmq_ha.base.model.process import Process
from rmq_ha.base.model.status import BrokerRole, FlushDiskType
from rmq_ha.client.connection.instance import ClientInstance
from rmq_ha.client.rules.settings import ClientConfig
from rmq_ha.server.broker.broker import Broker
from rmq_ha.testing.brokers import NamesrvNode
from rmq_ha.testing.cluster import LISTEN_PORT, small_configuration
from rmq_ha.testing.host import SimHost, World

LIMIT_S = 60.0


class SimCluster:
    """
    A name server and brokers; `client()` makes a client on a machine of its own.

    :ivar brokers: machine name to running `Broker`.
    """

    def __init__(
        self, *names: str, seed: int = 1, subnet: str = "127.0.0", **settings: Any
    ) -> None:
        """:param settings: of `ClientConfig`, for all clients."""
        self.world = World(seed, subnet=subnet)
        self.clock = self.world.clock
        self.namesrv = NamesrvNode(self.world.add("ns"))
        self.namesrv.start()
        self.settings = settings
        self.hosts: dict[str, SimHost] = {}
        self.brokers: dict[str, Any] = {}
        for name in names:
            self.add(name)

    def add(
        self, name: str, role: BrokerRole = BrokerRole.ASYNC_MASTER, **changes: dict[str, Any]
    ) -> Any:
        """
        Start a broker.

        :param changes: sections of the configuration with values to set in them.
        """
        return self.wait(self.add_later(name, role, **changes))

    def add_later(
        self, name: str, role: BrokerRole = BrokerRole.ASYNC_MASTER, **changes: dict[str, Any]
    ) -> "Deferred[Any]":
        """As `add`, while the clock runs already: fires with the broker."""
        host = self.hosts.get(name) or self.world.add(name)
        if not host.is_running:
            host.restart()
        self.hosts[name] = host
        configuration = small_configuration(host.ip, role, FlushDiskType.ASYNC_FLUSH)
        configuration.broker.namesrv_addr = self.namesrv.address
        configuration.broker.broker_name = name
        configuration.plugin_options.update(changes.pop("plugin_options", {}))
        for section, values in changes.items():
            for key, value in values.items():
                setattr(getattr(configuration, section), key, value)
        broker = self.brokers[name] = Broker(host.seams, configuration)
        return broker.start().addCallback(lambda _: broker)

    def add_guarded(self, name: str, accounts: str) -> Any:
        """
        Start a broker that asks who it is.

        :param accounts: its `plain_acl.yml`.
        """
        host = self.hosts[name] = self.world.add(name)
        host.disk.replace("/conf/plain_acl.yml", accounts.encode())
        ours = {"acl_plug_in": "plain", "acl_directory": "/conf"}
        return self.add(name, broker={"acl_enable": True}, ours=ours)

    def address(self, name: str) -> str:
        """Of a broker."""
        return f"{self.hosts[name].ip}:{LISTEN_PORT}"

    def crash(self, name: str, *, power: bool = False) -> None:
        """End a broker's process, or (`power`) make its machine vanish in silence."""
        self.hosts[name].crash(power=power)
        del self.brokers[name]

    def client(self, name: str = "client", **settings: Any) -> ClientInstance:
        """A client on its own machine; not started."""
        host = self.hosts[name] = self.hosts.get(name) or self.world.add(name)
        known = {"namesrv_addr": self.namesrv.address, "process": Process(4711, host.ip)}
        return ClientInstance(host.seams, ClientConfig(**(known | self.settings | settings)))

    def wait(self, later: Any, limit: float = LIMIT_S) -> Any:
        """Run until a Deferred or coroutine has an outcome; its result, or its error raised."""
        results: list[Any] = []
        started = later if isinstance(later, Deferred) else Deferred.fromCoroutine(later)
        started.addBoth(results.append)
        self.clock.run_while(lambda: not results, limit)
        assert results, f"nothing within {limit} s"
        if isinstance(results[0], Failure):
            results[0].raiseException()
        return results[0]

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.run_for(seconds)
        assert not self.clock.failures, self.clock.failures
