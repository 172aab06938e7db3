"""Whole brokers of one DLedger group on simulated machines, with a name server and a client."""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rmq_ha.base.config.netty import NettyClientConfig
from rmq_ha.base.errors import RemotingError
from rmq_ha.base.model.status import BrokerRole, FlushDiskType
from rmq_ha.base.remoting.client import RemotingClient
from rmq_ha.base.store_format.commitlog import decode_record
from rmq_ha.base.store_format.dledger_values import MemberRole
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.requests import pull_request, send_request
from rmq_ha.server.broker.broker import Broker
from rmq_ha.server.dledger.assembly import dledger_directory
from rmq_ha.server.dledger.ledger_files import LedgerFiles
from rmq_ha.testing.brokers import BrokerNode, NamesrvNode
from rmq_ha.testing.cluster import LISTEN_PORT, small_configuration
from rmq_ha.testing.findings import Findings
from rmq_ha.testing.host import World

PEER_PORT = 10921
GROUP = "raft"
LIMIT_S = 60.0
INDEX_FILE_SIZE = 32 * 1024
SEND_TIMEOUT_MS = 5000


class GroupNode(BrokerNode):
    """A member of a group; its index files are small, since a simulated disk is memory."""

    def _make(self) -> Broker:
        broker = super()._make()
        journal: Any = broker.journal
        ledger = journal.log.ledger
        ledger.files = LedgerFiles(
            self.host.seams.disk,
            dledger_directory(self.configuration),
            ledger.files.data.row.directories,
            ledger.file_size,
            INDEX_FILE_SIZE,
        )
        return broker


class BrokerGroup:
    """
    A group of the members n0, n1, ...; no member runs before `start`.

    :param change: gets each member's configuration before its first start.
    :ivar members: by number.
    """

    def __init__(
        self,
        seed: int = 1,
        size: int = 3,
        change: Callable[[Any], None] = lambda configuration: None,
    ) -> None:
        self.world = World(seed, subnet="10.0.0")
        self.findings = Findings()
        self.name_server = NamesrvNode(self.world.add("namesrv"))
        hosts = [self.world.add(f"n{number}") for number in range(size)]
        peers = ";".join(f"n{number}-{host.ip}:{PEER_PORT}" for number, host in enumerate(hosts))
        self.members: list[GroupNode] = []
        for number, host in enumerate(hosts):
            configuration = small_configuration(
                host.ip, BrokerRole.ASYNC_MASTER, FlushDiskType.ASYNC_FLUSH, -1
            )
            store = configuration.store
            store.enable_dleger_commit_log = True
            store.dleger_group = GROUP
            store.dleger_peers = peers
            store.dleger_self_id = f"n{number}"
            store.file_reserved_time = 72
            change(configuration)
            self.members.append(
                GroupNode(host, configuration, self.findings, self.name_server.address)
            )
        client_host = self.world.add("client")
        self.client_now_ms = client_host.now_ms
        self.client = RemotingClient(client_host.seams, NettyClientConfig())

    @property
    def now(self) -> float:
        """Return the simulated seconds."""
        return self.world.clock.seconds()

    def start(self) -> "BrokerGroup":
        """Start all members, and wait for a master."""
        self.name_server.start()
        for member in self.members:
            self.boot(member)
        self.wait_for_master()
        return self

    def boot(self, member: BrokerNode) -> None:
        """Begin a life of one member."""
        member.load()
        member.start()

    def kill(self, member: BrokerNode, *, power: bool = False) -> None:
        """End a member at once."""
        member.crash(power)

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.world.clock.run_until(self.now + seconds)

    def wait_until(self, condition: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
        """Run until a condition is true; raise AssertionError if it is not within the limit."""
        self.world.clock.run_while(lambda: not condition(), limit_s)
        assert condition(), f"not within {limit_s} s; {self.describe()}"

    def wait(self, later: "Deferred[Any]") -> Any:
        """Run until a Deferred has fired; return its result or raise its failure."""
        results: list[Any] = []
        later.addBoth(results.append)
        self.wait_until(lambda: bool(results))
        if isinstance(results[0], Failure):
            results[0].raiseException()
        return results[0]

    def describe(self) -> str:
        """Return role and log of each member as text."""
        return "; ".join(
            f"{member.host.name} {member.state} {member.replication.statistics()}"
            for member in self.members
            if member.state != "down"
        )

    # Roles

    def master(self) -> BrokerNode | None:
        """Return the member that takes puts; None: there is none."""
        for member in self.members:
            is_leader = (
                member.state == "running" and member.replication.node.role is MemberRole.LEADER
            )
            if is_leader and member.store.log.admits:
                return member
        return None

    def wait_for_master(self) -> BrokerNode:
        """Run until there is a master, and return it."""
        self.wait_until(lambda: self.master() is not None)
        master = self.master()
        assert master is not None
        return master

    def slaves(self) -> list[BrokerNode]:
        """Return the running members that take no puts."""
        return [
            member
            for member in self.members
            if member.state == "running" and member is not self.master()
        ]

    # Clients

    def ask(self, member: BrokerNode, request: RemotingCommand) -> "Deferred[RemotingCommand]":
        """Send a client's request to one member."""
        return self.client.invoke(f"{member.host.ip}:{LISTEN_PORT}", request, SEND_TIMEOUT_MS)

    def call(self, member: BrokerNode, request: RemotingCommand) -> RemotingCommand:
        """Send a request as `ask` does, and wait for the answer."""
        answer: RemotingCommand = self.wait(self.ask(member, request))
        return answer

    def message(self, body: bytes, topic: str = "TBW102", **properties: str) -> RemotingCommand:
        """Return a request that sends one message to queue 0."""
        text = "\x02".join([f"{key}\x01{value}" for key, value in properties.items()])
        return send_request("producers", topic, 0, body, text, self.client_now_ms())

    def send(self, body: bytes, **properties: str) -> int:
        """
        Send a message to the master until a member stores it, and return the response code of the
        last try.
        """
        deadline = self.now + LIMIT_S
        code = -1
        while self.now < deadline:
            master = self.wait_for_master()
            try:
                code = self.call(master, self.message(body, **properties)).code
            except RemotingError:
                code = -1
            if code == 0:
                break
            self.run(0.1)
        return code

    def bodies(self, member: BrokerNode, topic: str = "TBW102", queue_id: int = 0) -> list[bytes]:
        """Return the bodies that a consumer finds in a queue of one member."""
        bodies: list[bytes] = []
        offset = member.store.min_offset_in_queue(topic, queue_id)
        while True:
            result = member.store.get_message("readers", topic, queue_id, offset, 32, None)
            if result is None or not result.messages:
                return bodies
            bodies += [decode_record(record).body for record in result.messages]
            offset = result.next_begin_offset

    def pull(self, member: BrokerNode, offset: int) -> RemotingCommand:
        """Pull from queue 0 of a member, as a consumer does."""
        return self.call(member, pull_request("readers", "TBW102", 0, offset))

    def ledger_bytes(self, member: BrokerNode) -> bytes:
        """Return the bytes of a running member's ledger up to the committed index."""
        log = member.store.log
        data, position = b"", max(log.min_offset, 0)
        while position < log.max_offset:
            piece = log.read(position, log.max_offset - position)
            if not piece:
                break
            data += piece
            position += len(piece)
        return data
