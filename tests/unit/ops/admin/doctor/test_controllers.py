"""A pair in controller mode: its controllers die one by one, and its slave is shut out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.client.lookup.requests import send_request
from rmq_ha.ops.admin.doctor.gather import DoctorScope
from rmq_ha.testing.cluster import HA_PORT, LISTEN_PORT
from tests.sim_kit.controlled import TOPIC, ControlledBrokers, wait
from tests.unit.ops.admin.doctor.fleet import PATH, Fleet
from tests.unit.server.replication.epochs.test_controllers_in_name_servers import InNameServers


class Controlled(Fleet):
    """Two brokers and three controllers, visited as any fleet."""

    def __init__(
        self,
        change: Callable[[BrokerConfiguration], None] = lambda configuration: None,
        **where: Any,
    ) -> None:
        self.set = ControlledBrokers(2, 3, change, **where)
        self.world, self.namesrv = self.set.world, self.set.name_server
        self.clock = self.world.clock
        self.names = where.get("names", self.namesrv.address)
        self.set.in_sync()
        self.run(40)
        self.is_well(namesrv=self.names)

    def wait(self, later: Any, limit: float = 0.0) -> Any:
        started = later if isinstance(later, Deferred) else Deferred.fromCoroutine(later)
        return wait(self.world, started)

    def run(self, seconds: float) -> None:
        self.set.run(seconds)


def test_controllers_die_one_by_one() -> None:
    """One is no harm yet; with two nobody can be elected; started again they lead."""
    fleet = Controlled()
    desk = fleet.set.desk
    first, second = [n for n in range(3) if n != desk.leader()]
    desk.crash(first, power=False)
    fleet.run(5)
    assert desk.addresses[first] in fleet.finds("controller-silent")
    desk.crash(second, power=False)
    fleet.run(60)
    told = fleet.finds("no-controller")
    assert "it knows no leader" in told
    desk.restart(first)
    desk.restart(second)
    fleet.run(40)
    fleet.is_well()


def test_a_slave_that_cannot_reach_its_master() -> None:
    """A firewall stands between the two; everybody else reaches both."""
    fleet = Controlled()
    leader = fleet.set.leader()
    slave = fleet.set.other(leader).host
    network = fleet.world.network
    network.block(leader.host.name, HA_PORT, slave.name)
    for end in network.connections_between(slave.name, leader.host.name):
        network.drop(end)
    fleet.run(30)
    told = fleet.finds("not-following")
    assert f"connecting: it does not follow {leader.host.ip}:" in told
    network.heal()
    fleet.run(30)
    fleet.is_well()


def test_a_slave_in_controller_mode_that_does_not_keep_up() -> None:
    """What it has comes back late; the master says of whom and for how long."""
    fleet = Controlled()
    leader = fleet.set.leader()
    slave = fleet.set.other(leader).host.name
    fleet.world.network.cut(slave, leader.host.name)
    fleet.set.client.invoke(
        f"{leader.host.ip}:{LISTEN_PORT}",
        send_request("producers", TOPIC, 0, b"late", "", fleet.set.now_ms()),
        5000,
    ).addErrback(lambda _: None)
    fleet.run(7)
    assert f"{fleet.set.other(leader).host.ip}:" in fleet.finds("slave-behind")
    fleet.world.network.heal()
    fleet.run(60)
    assert fleet.visit().codes("error", "warning") <= {"puts-slow", "acks-degraded"}


def test_a_master_in_controller_mode_dies() -> None:
    """The other one leads; nobody is told to promote it. The old one comes back as its slave."""
    fleet = Controlled()
    dead = fleet.set.leader()
    dead.crash(False)
    fleet.run(20)
    fleet.finds("alone-in-set")
    fleet.set.boot(dead)
    fleet.run(60)
    fleet.is_well()


def test_the_only_broker_in_sync_is_dead() -> None:
    """The other broker waits, and no name server knows a broker: the controllers know whom."""
    desk = InNameServers(3, 0)
    fleet = Controlled(desk=desk, names=";".join(desk.name_servers))
    names = {"namesrv": fleet.names}
    first = fleet.set.leader()
    second = fleet.set.other(first)
    second.crash(power=False)
    fleet.set.in_sync(1)
    assert fleet.set.send(first, b"one has it") == 0
    first.crash(power=False)
    fleet.set.boot(second)
    fleet.run(130)
    told = fleet.finds("nobody-leads", **names)
    assert f"at {first.host.ip}:{LISTEN_PORT}, which alone has all messages and does not" in told
    assert f"at {second.host.ip}:{LISTEN_PORT} runs, but may not lead" in told
    fleet.set.boot(first)
    fleet.set.in_sync()
    fleet.run(40)
    fleet.is_well(**names)


def test_no_broker_runs_and_none_is_registered() -> None:
    """Both had all messages; the controllers in the name servers still know both."""
    desk = InNameServers(3, 0)
    fleet = Controlled(desk=desk, names=";".join(desk.name_servers))
    names = {"namesrv": fleet.names}
    for node in fleet.set.nodes:
        node.crash(power=False)
    fleet.run(130)
    told = fleet.finds("nobody-leads", **names)
    assert "each of them has all messages, and none runs" in told
    assert all(node.host.ip in told for node in fleet.set.nodes)
    assert fleet.visit("b", **names).codes("error") == {"nobody-leads"}
    desk.crash(0, power=False)
    desk.crash(2, power=False)
    fleet.run(40)
    last = {"namesrv": desk.name_servers[1]}
    assert "no broker is registered, as no controller says" in fleet.finds("no-controller", **last)


def test_the_file_of_a_broker_names_its_controllers() -> None:
    """The name server knows no controller, as they run elsewhere; both brokers are dead."""
    fleet = Controlled()
    for node in fleet.set.nodes:
        node.crash(power=False)
    fleet.run(130)
    fleet.finds("no-broker")
    assert "--config" in fleet.fix("no-broker")
    machine = fleet.set.desk.tool.host
    lines = (
        "brokerName=b",
        f"brokerIP1={fleet.set.nodes[0].host.ip}",
        f"namesrvAddr={fleet.namesrv.address}",
        "enableControllerMode=true",
        f"controllerAddr={';'.join(fleet.set.desk.addresses)}",
    )
    machine.disk.replace(PATH, "\n".join(lines).encode())
    around = Surroundings({}, "/root", machine.name, machine.ip, "/")
    visit = fleet.visit(scope=DoctorScope(config=PATH, surroundings=around), host=machine.seams)
    (told,) = visit.texts("nobody-leads")
    assert told.startswith("b: no master leads this set: start broker ")
    assert "no-broker" not in visit.codes()


def test_a_slave_that_was_away_for_longer_than_its_master_keeps_messages() -> None:
    """It was told to leave its store alone; allowed to, it fetches all anew."""

    def change(configuration: BrokerConfiguration) -> None:
        configuration.store.mapped_file_size_commit_log = 1 << 14
        configuration.ours.ha_refetch_stranded_store = False

    fleet = Controlled(change)
    leader = fleet.set.leader()
    slave = fleet.set.other(leader)
    assert fleet.set.send(leader, b"old") == 0
    fleet.run(1)
    slave.stop()
    fleet.set.until(lambda: slave.state == "down")
    for _ in range(12):
        fleet.set.until(lambda: fleet.set.send(leader, bytes(1500)) == 0)
    leader.store.log.drop_oldest(1)
    leader.store.renumber()
    fleet.set.boot(slave)
    fleet.run(30)
    assert "Nothing is changed (haRefetchStrandedStore=false)" in fleet.finds("slave-stranded")
    assert "haRefetchStrandedStore=true" in fleet.fix("slave-stranded")
    slave.configuration.ours.ha_refetch_stranded_store = True
    fleet.set.in_sync()
    fleet.run(40)
    fleet.is_well()
