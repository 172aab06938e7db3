"""Whole brokers in controller mode, their controllers and a client on simulated machines."""

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.controller import ControllerConfig
from rmq_ha.base.config.netty import NettyClientConfig, NettyServerConfig
from rmq_ha.base.errors import RemotingConnectError, RemotingError
from rmq_ha.base.model.status import BrokerRole, FlushDiskType
from rmq_ha.base.remoting.client import RemotingClient
from rmq_ha.base.store_format.commitlog import decode_record, store_timestamp_of
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.requests import send_request
from rmq_ha.server.controller.codec import decode_set
from rmq_ha.server.controller.codes import ControllerResponseCode
from rmq_ha.server.controller.messages import SyncStateSet
from rmq_ha.server.controller.service import ControllerService
from rmq_ha.testing.brokers import BrokerNode, NamesrvNode
from rmq_ha.testing.cluster import LISTEN_PORT, small_configuration
from rmq_ha.testing.findings import Findings
from rmq_ha.testing.host import SimHost, World

PORT = 9878
TOPIC = "TBW102"
Ext = dict[str, str]


class NotInTime(AssertionError):
    """A condition was not met in time."""


def until(world: World, is_so: Callable[[], bool], seconds: float) -> float:
    """
    Let simulated time pass until a condition is true.

    :returns: how many seconds passed.
    :raises NotInTime: the condition was not true in time.
    """
    start = world.clock.seconds()
    while not is_so():
        if world.clock.seconds() - start >= seconds:
            raise NotInTime(f"not within {seconds} s")
        world.clock.run_for(0.05)
    return world.clock.seconds() - start


def wait(world: World, waiting: "Deferred[Any]", seconds: float = 5.0) -> Any:
    """
    Run until a Deferred fires; return its result or raise its failure.

    :raises NotInTime: the Deferred did not fire in time.
    """
    outcomes: list[Any] = []
    waiting.addBoth(outcomes.append)
    until(world, lambda: bool(outcomes), seconds)
    if isinstance(outcomes[0], Failure):
        outcomes[0].raiseException()
    return outcomes[0]


class Asker:
    """A client with a machine of its own, which sends requests over one connection."""

    def __init__(self, world: World, host: SimHost) -> None:
        self.world, self.host = world, host
        self.client = RemotingClient(host.seams, NettyClientConfig())

    def ask(
        self, address: str, code: int, ext: Ext | None = None, body: bytes | None = None
    ) -> RemotingCommand:
        """Send a request and return the answer, which has to come within 5 s of simulated time."""
        request = RemotingCommand(code, ext=ext, body=body)
        try:
            answer = wait(self.world, self.client.invoke(address, request, 4900))
        except RemotingConnectError:  # of a life before
            answer = wait(self.world, self.client.invoke(address, request, 4900))
        assert isinstance(answer, RemotingCommand)
        return answer


class ControllerDesk:
    """
    One group of controllers `n0`, `n1` ..., and the machine of their operator, `tool`.

    :param config: settings of each controller, beside its id and the addresses of the group.
    """

    def __init__(self, size: int = 1, seed: int = 5, **config: Any) -> None:
        self.world = World(seed, subnet="10.0.0")
        self.config = config
        self.hosts = [self.world.add(f"n{number}") for number in range(size)]
        self.addresses = [f"{host.ip}:{PORT}" for host in self.hosts]
        self.tool = Asker(self.world, self.world.add("tool"))
        self.config.setdefault("controller_operator_hosts", self.tool.host.ip)
        self.services = [self.make(number) for number in range(size)]
        for service in self.services:
            wait(self.world, service.start())
        self.leader()

    def make(self, number: int) -> ControllerService:
        """Return a controller for a machine, with the files that the machine has now."""
        peers = ";".join(f"n{i}-{address}" for i, address in enumerate(self.addresses))
        config = ControllerConfig(
            controller_dleger_peers=peers,
            controller_dleger_self_id=f"n{number}",
            controller_store_path="/controller",
            mapped_file_size=1 << 16,
            config_store_path="/controller.conf",
            **self.config,
        )
        return ControllerService(self.hosts[number].seams, config, NettyServerConfig())

    def crash(self, number: int, *, power: bool = True) -> None:
        """End a controller at once."""
        self.hosts[number].crash(power=power)

    def restart(self, number: int) -> None:
        """Start a controller that crashed."""
        self.hosts[number].restart()
        self.services[number] = self.make(number)
        wait(self.world, self.services[number].start())

    def leader(self, seconds: float = 30.0) -> int:
        """Run until a controller leads and serves, and return its number."""
        until(self.world, lambda: self._leading() is not None, seconds)
        leader = self._leading()
        assert leader is not None
        return leader

    def _leading(self) -> int | None:
        for number, service in enumerate(self.services):
            if self.hosts[number].is_running and service.group.is_ready:
                return number
        return None

    def ask(self, code: int, ext: Ext | None = None, body: bytes | None = None) -> RemotingCommand:
        """
        Send a request to the leader and return its answer. If the leader has just lost its lead,
        the request is sent to the next one.
        """
        for _ in range(10):
            answer = self.tool.ask(self.addresses[self.leader()], code, ext, body)
            if answer.code != ControllerResponseCode.NOT_LEADER:
                break
            self.world.clock.run_for(0.1)
        return answer

    def info(self) -> tuple[Ext, SyncStateSet]:
        """
        Return the master (as header fields) and the SyncStateSet of the brokers, by request 1004.
        """
        answer = self.ask(1004, {"brokerName": "b"})
        assert answer.code == 0, answer.remark
        return answer.ext or {}, decode_set(answer.body or b"")


class ControlledBrokers:
    """
    Brokers of one name, controllers, a name server and a client.

    :param change: changes each broker's configuration before it starts.
    :param desk: controllers that exist already.
    :param names: addresses of name servers that exist already.
    :param hosts: machines that exist already.
    """

    def __init__(
        self,
        brokers: int = 2,
        size: int = 1,
        change: Callable[[BrokerConfiguration], None] = lambda configuration: None,
        seed: int = 5,
        *,
        desk: ControllerDesk | None = None,
        names: str = "",
        hosts: Sequence[SimHost] = (),
    ) -> None:
        self.desk = desk or ControllerDesk(size, seed)
        self.world = self.desk.world
        self.findings = Findings()
        self.name_server = NamesrvNode(self.world.add("namesrv"))
        self.name_server.start()
        self.nodes: list[BrokerNode] = []
        self._names = names or self.name_server.address
        for number in range(brokers):
            self.add(hosts[number] if hosts else self.world.add(f"b{number}"), change)
            if not number:
                self.until(lambda: bool(self.nodes[0].store.log.admits))
        client_host = self.world.add("client")
        self.now_ms = client_host.now_ms
        self.client = RemotingClient(client_host.seams, NettyClientConfig())

    def add(self, host: SimHost, change: Callable[[BrokerConfiguration], None]) -> None:
        """Add a broker, and wait until it serves."""
        configuration = self._configuration(host)
        change(configuration)
        node = BrokerNode(host, configuration, self.findings, self._names)
        self.nodes.append(node)
        self.boot(node)

    def _configuration(self, host: SimHost) -> BrokerConfiguration:
        configuration = small_configuration(
            host.ip, BrokerRole.ASYNC_MASTER, FlushDiskType.ASYNC_FLUSH, -1
        )
        configuration.broker.broker_cluster_name = "c"
        configuration.broker.broker_name = "b"
        mode = configuration.controlled
        mode.enable_controller_mode = True
        mode.controller_addr = ";".join(self.desk.addresses)
        mode.all_ack_in_sync_state_set = True
        configuration.store.file_reserved_time = 72
        return configuration

    def boot(self, node: BrokerNode) -> None:
        """Begin a life, and wait until it serves."""
        node.load()
        node.start()
        self.until(lambda: node.state != "starting")
        assert node.state == "running", self.findings.violations

    def until(self, is_so: Callable[[], bool], seconds: float = 30.0) -> float:
        """Let simulated time pass until a condition is true, as the function `until` does."""
        return until(self.world, is_so, seconds)

    def run(self, seconds: float) -> None:
        """Let a number of seconds pass."""
        self.world.clock.run_for(seconds)

    def master(self) -> BrokerNode | None:
        """Return the broker that takes messages; None: there is none."""
        return next((node for node in self.nodes if accepts(node)), None)

    def electable(self, master: BrokerNode) -> set[int]:
        """
        Return the ids of brokers that the controllers may elect soon, although puts at the master
        do not wait for them.
        """
        proposed = master.replication.controllers.manager._altering
        members = () if proposed is None else decode_set(proposed.body).members
        return {*members} - {*master.replication.master.state.union}

    def is_overstated(self, node: BrokerNode) -> bool:
        """
        Return whether a broker's checkpoint covers a message that its queues do not have. Then a
        loss of power would lose the queue entry.
        """
        store = node.store
        last = store.queues.last_record()
        record = None if last is None else store.record_at(*last)
        if last is not None and record is None:
            return False  # a damaged entry, which is for others to find
        return bool(store.checkpoint.logics > (store_timestamp_of(record) if record else 0))

    def leader(self) -> BrokerNode:
        """Run until there is a master, and return it."""
        self.until(lambda: self.master() is not None)
        master = self.master()
        assert master is not None
        return master

    def other(self, node: BrokerNode) -> BrokerNode:
        """Return another broker than this one."""
        return next(other for other in self.nodes if other is not node)

    def in_sync(self, count: int = 2) -> BrokerNode:
        """Wait until a number of brokers are in sync, and return the master."""
        self.until(lambda: len(self.desk.info()[1].members) == count)
        return self.leader()

    def send(self, node: BrokerNode, body: bytes, **properties: str) -> int:
        """Send a message and return the code of the answer; -1: there was none."""
        text = "\x02".join([f"{key}\x01{value}" for key, value in properties.items()])
        request = send_request("producers", TOPIC, 0, body, text, self.now_ms())
        try:
            return int(self.ask(node, request).code)
        except RemotingError:
            return -1

    def ask(self, node: BrokerNode, request: RemotingCommand) -> RemotingCommand:
        """Send a request to a broker and return its answer."""
        asked = self.client.invoke(f"{node.host.ip}:{LISTEN_PORT}", request, 5000)
        answer = wait(self.world, asked, 6.0)
        assert isinstance(answer, RemotingCommand)
        return answer

    def bodies(self, node: BrokerNode, queue: int = 0) -> list[bytes]:
        """Return the bodies of all messages that consumers can read from a queue of a broker."""
        bodies: list[bytes] = []
        offset = 0
        while True:
            result = node.store.get_message("readers", TOPIC, queue, offset, 32, None)
            if result is None or not result.messages:
                return bodies
            bodies += [decode_record(record).body for record in result.messages]
            offset = result.next_begin_offset

    def holds(self, node: BrokerNode, bodies: list[bytes]) -> None:
        """Wait until consumers can read exactly these bodies."""
        self.until(lambda: self.bodies(node) == bodies)


def accepts(node: BrokerNode) -> bool:
    """Return whether a broker takes messages."""
    return bool(node.state == "running" and node.store.log.admits and node.replication.may_append)
