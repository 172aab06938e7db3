"""Whole brokers of ours in controller mode, at controllers of ours, on simulated machines.

Spec: controller.md, chapters 3, 7 and 8.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from rmq_ha.app.status.broker import BrokerStatus
from rmq_ha.client.requests import pull_request, send_request
from rmq_ha.config.broker_configuration import BrokerConfiguration
from rmq_ha.config.netty import NettyClientConfig
from rmq_ha.errors import RemotingError
from rmq_ha.model.status import BrokerRole, FlushDiskType
from rmq_ha.remoting.client import RemotingClient
from rmq_ha.store.format.checkpoint import CheckpointTimes
from rmq_ha.store.format.commitlog import decode_record
from rmq_ha.testing.brokers import BrokerNode, NamesrvNode
from rmq_ha.testing.checkers import Findings
from rmq_ha.testing.cluster import LISTEN_PORT, small_configuration
from rmq_ha.testing.host import SimHost
from rmq_ha.wire.codes import RequestCode
from rmq_ha.wire.command import RemotingCommand
from tests.unit.broker.test_metrics_dledger import scrape
from tests.unit.controller.controllers import Controllers, until, wait

TOPIC = "TBW102"


class Set:
    """
    Brokers of one name, controllers, a name server and a client.

    :param desk: controllers that are there; `names`: name servers that are; `hosts`: machines.
    """

    def __init__(
        self,
        brokers: int = 2,
        size: int = 1,
        change: Callable[[BrokerConfiguration], None] = lambda configuration: None,
        seed: int = 5,
        *,
        desk: Controllers | None = None,
        names: str = "",
        hosts: Sequence[SimHost] = (),
    ) -> None:
        self.desk = desk or Controllers(size, 0, seed)
        self.world = self.desk.world
        self.findings = Findings()
        self.name_server = NamesrvNode(self.world.add("namesrv"))
        self.name_server.start()
        self.nodes = []
        for number in range(brokers):
            host = hosts[number] if hosts else self.world.add(f"b{number}")
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
            change(configuration)
            address = names or self.name_server.address
            node = BrokerNode(host, configuration, self.findings, address)
            self.nodes.append(node)
            self.boot(node)
            if not number:
                self.until(lambda: self.nodes[0].store.log.admits)
        client_host = self.world.add("client")
        self.now_ms = client_host.now_ms
        self.client = RemotingClient(client_host.seams, NettyClientConfig())

    def boot(self, node: BrokerNode) -> None:
        node.load()
        node.start()
        self.until(lambda: node.state != "starting")
        assert node.state == "running", self.findings.violations

    def until(self, is_so: Callable[[], bool], seconds: float = 30.0) -> float:
        return until(self.world, is_so, seconds)

    def run(self, seconds: float) -> None:
        self.world.clock.run_for(seconds)

    def master(self) -> BrokerNode | None:
        for node in self.nodes:
            takes = node.state == "running" and node.store.log.admits
            if takes and node.replication.may_append:
                return node
        return None

    def leader(self) -> BrokerNode:
        self.until(lambda: self.master() is not None)
        found = self.master()
        assert found is not None
        return found

    def other(self, node: BrokerNode) -> BrokerNode:
        return next(each for each in self.nodes if each is not node)

    def in_sync(self, count: int = 2) -> BrokerNode:
        """Wait until so many are."""
        self.until(lambda: len(self.desk.info()[1].members) == count)
        return self.leader()

    def send(self, node: BrokerNode, body: bytes, **properties: str) -> int:
        """The code of the answer; -1: none."""
        text = "\x02".join([f"{key}\x01{value}" for key, value in properties.items()])
        request = send_request("producers", TOPIC, 0, body, text, self.now_ms())
        try:
            return int(self.ask(node, request).code)
        except RemotingError:
            return -1

    def ask(self, node: BrokerNode, request: RemotingCommand) -> RemotingCommand:
        answer = wait(
            self.world,
            self.client.invoke(f"{node.host.ip}:{LISTEN_PORT}", request, 5000),
            6.0,
        )
        assert isinstance(answer, RemotingCommand)
        return answer

    def bodies(self, node: BrokerNode, queue_id: int = 0) -> list[bytes]:
        found: list[bytes] = []
        offset = 0
        while True:
            result = node.store.get_message("readers", TOPIC, queue_id, offset, 32, None)
            if result is None or not result.messages:
                return found
            found += [decode_record(record).body for record in result.messages]
            offset = result.next_begin_offset

    def holds(self, node: BrokerNode, bodies: list[bytes]) -> None:
        self.until(lambda: self.bodies(node) == bodies)


def test_the_first_one_leads_and_the_second_follows() -> None:
    brokers = Set()
    master = brokers.in_sync()
    slave = brokers.other(master)
    sent = [b"%d" % number for number in range(20)]
    assert [brokers.send(master, body) for body in sent] == [0] * 20
    assert slave.replication.statistics()["master"]["state"] == "following"
    assert slave.store.log.max_offset == master.store.log.max_offset
    brokers.holds(master, sent)
    brokers.run(6.0)
    brokers.holds(slave, sent)
    assert (master.configuration.broker.broker_id, slave.configuration.broker.broker_id) == (0, 2)
    assert brokers.send(slave, b"no") == 14
    assert not brokers.findings.violations


def test_the_slave_leads_after_a_kill_and_has_every_message() -> None:
    brokers = Set()
    first = brokers.in_sync()
    second = brokers.other(first)
    sent = [b"%d" % number for number in range(10)]
    for body in sent:
        assert brokers.send(first, body) == 0
    first.crash(power=False)
    took = brokers.until(lambda: brokers.master() is second)
    assert took < 3.0
    sent.append(b"after")
    assert brokers.send(second, b"after") == 0
    brokers.holds(second, sent)
    brokers.boot(first)
    assert brokers.in_sync() is second
    sent.append(b"both")
    assert brokers.send(second, b"both") == 0
    brokers.run(6.0)
    brokers.holds(first, sent)
    size = second.store.log.max_offset
    assert first.store.log.read(0, size) == second.store.log.read(0, size)
    assert not brokers.findings.violations


def test_a_diverged_tail_is_set_aside_when_its_master_comes_back() -> None:
    brokers = Set()
    first = brokers.in_sync()
    second = brokers.other(first)
    assert brokers.send(first, b"kept") == 0
    brokers.world.network.partition(first.host.name, second.host.name)
    assert brokers.send(first, b"nobody has it") == 12
    assert brokers.bodies(first) == [b"kept"], "what is not confirmed is not read"
    first.crash(power=False)
    brokers.until(lambda: brokers.master() is second)
    assert brokers.send(second, b"another") == 0
    brokers.world.network.heal()
    brokers.boot(first)
    brokers.in_sync()
    brokers.run(6.0)
    brokers.holds(first, [b"kept", b"another"])
    assert first.store.statistics.set_aside_messages == 1
    assert not brokers.findings.violations


def test_a_master_that_hears_of_no_controller_accepts_nothing() -> None:
    brokers = Set()
    first = brokers.in_sync()
    brokers.desk.crash(0)
    brokers.until(lambda: not first.replication.may_append, 9.0)
    assert brokers.send(first, b"no") == 14
    brokers.desk.restart(0)
    assert brokers.leader() is first
    assert brokers.send(first, b"yes") == 0
    assert not brokers.findings.violations


def test_too_few_in_sync_refuse_puts() -> None:
    def two(configuration: BrokerConfiguration) -> None:
        configuration.controlled.min_in_sync_replicas = 2

    brokers = Set(change=two)
    first = brokers.in_sync()
    assert brokers.send(first, b"kept") == 0
    brokers.other(first).crash(power=True)
    brokers.until(lambda: len(brokers.desk.info()[1].members) == 1)
    brokers.until(lambda: brokers.send(first, b"no") == 14)
    assert "minInSyncReplicas=2" in first.replication.why_no_puts()
    brokers.boot(brokers.other(first))
    assert brokers.in_sync() is first
    assert brokers.send(first, b"yes") == 0
    assert not brokers.findings.violations


def test_delayed_messages_go_on_at_the_next_master() -> None:
    brokers = Set()
    first = brokers.in_sync()
    second = brokers.other(first)
    assert brokers.send(first, b"later", DELAY="3") == 0
    first.crash(power=True)
    brokers.until(lambda: brokers.master() is second)
    brokers.holds(second, [b"later"])
    assert not brokers.findings.violations


def test_a_stop_leaves_nothing_behind() -> None:
    brokers = Set()
    first = brokers.in_sync()
    second = brokers.other(first)
    assert brokers.send(first, b"kept") == 0
    first.stop()
    brokers.until(lambda: first.state == "down")
    brokers.until(lambda: brokers.master() is second)
    second.stop()
    brokers.until(lambda: second.state == "down")
    brokers.boot(second)
    brokers.boot(first)
    brokers.in_sync()
    brokers.holds(brokers.leader(), [b"kept"])
    pulled = brokers.ask(brokers.leader(), pull_request("readers", TOPIC, 0, 0))
    assert pulled.code == 0
    assert not brokers.findings.violations


def test_what_operators_are_told() -> None:
    brokers = Set()
    first = brokers.in_sync()
    second = brokers.other(first)
    assert brokers.send(first, b"one") == 0
    leads, follows = (BrokerStatus(node.controller) for node in (first, second))
    assert leads.health().line().endswith("id 1, epoch 1: leads; in sync: 1, 2\n")
    assert leads.health().is_ready
    address = f"{first.host.ip}:{LISTEN_PORT}"
    assert follows.health().line().endswith(f"id 2, epoch 1: following {address}\n")
    told = scrape(leads)
    assert told["rmqha_controller_epoch", "0"] == told["rmqha_controller_is_master", "0"] == 1
    assert told["rmqha_controller_in_sync", "0"] == 2
    assert told["rmqha_controller_unconfirmed_bytes", "0"] == 0
    assert scrape(follows)["rmqha_controller_is_master", "2"] == 0
    brokers.desk.crash(0)
    brokers.until(lambda: not first.replication.may_append, 9.0)
    told_why = leads.health()
    assert not told_why.is_ready
    assert "the controllers (10.0.0.1:9878) do not answer" in told_why.line()


def test_tools_are_told_the_epochs_and_only_the_master_where_it_replicates() -> None:
    brokers = Set()
    first = brokers.in_sync()
    second = brokers.other(first)
    for node, where in ((first, f"{first.host.ip}:10912"), (second, None)):
        answer = brokers.ask(node, RemotingCommand(RequestCode.EXCHANGE_BROKER_HA_INFO))
        assert (answer.code, (answer.ext or {}).get("masterHaAddress")) == (0, where)
    answer = brokers.ask(first, RemotingCommand(RequestCode.GET_BROKER_EPOCH_CACHE))
    assert json.loads(answer.body or b"")["epochList"] == [
        {"endOffset": (1 << 63) - 1, "epoch": 1, "startOffset": 0}
    ]


def test_a_slave_that_stops_within_a_record_gets_it_anew() -> None:
    """Also where only the properties, which no checksum covers, are not all there."""
    brokers = Set()
    first = brokers.in_sync()
    second = brokers.other(first)
    assert brokers.send(first, b"one") == 0
    brokers.run(1.0)
    second.replication.confirmed = lambda offset: None  # type: ignore[method-assign]
    assert brokers.send(first, b"two") == 0
    end, store = second.store.log.max_offset, second.configuration.store
    name = f"{store.store_path_commit_log}/{0:020d}"
    file = second.host.seams.disk.open(name, store.mapped_file_size_commit_log)
    second.stop()
    brokers.until(lambda: second.state == "down")
    file.pwrite(bytes(3), end - 3)
    brokers.boot(second)
    brokers.in_sync()
    brokers.run(1.0)
    assert second.store.log.read(0, end) == first.store.log.read(0, end)
    assert not brokers.findings.violations


def test_what_was_confirmed_is_known_after_a_restart() -> None:
    """Java's `confirmPhyOffset` in `checkpoint`; a cut takes it back before anything is cut."""
    brokers = Set()
    first = brokers.in_sync()
    assert brokers.send(first, b"kept") == 0
    brokers.run(70.0)
    end = first.store.log.max_offset
    assert first.store.checkpoint.written.confirmed_offset == end
    brokers.world.network.partition(first.host.name, brokers.other(first).host.name)
    assert brokers.send(first, b"nobody has it") == 12
    first.crash(power=False)
    path = f"{first.configuration.store.store_path_root_dir}/checkpoint"
    assert CheckpointTimes.decode(first.host.disk.read_bytes(path)).confirmed_offset == end
    brokers.desk.crash(0)
    first.load()
    assert first.store.log.confirm_offset == end
    first.store.set_tail_aside(50, "a test")
    brokers.run(1.0)
    assert first.store.log.confirm_offset == 50
    assert CheckpointTimes.decode(first.host.disk.read_bytes(path)).confirmed_offset == 50
