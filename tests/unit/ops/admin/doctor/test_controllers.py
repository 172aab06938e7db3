"""A pair in controller mode: its controllers die one by one, and its slave is shut out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.client.lookup.requests import send_request
from rmq_ha.testing.cluster import HA_PORT, LISTEN_PORT
from tests.sim_kit.controlled import TOPIC, ControlledBrokers, wait
from tests.unit.ops.admin.doctor.fleet import Fleet


class Controlled(Fleet):
    """Two brokers and three controllers, visited as any fleet."""

    def __init__(
        self, change: Callable[[BrokerConfiguration], None] = lambda configuration: None
    ) -> None:
        self.set = ControlledBrokers(2, 3, change)
        self.world, self.namesrv = self.set.world, self.set.name_server
        self.clock = self.world.clock
        self.set.in_sync()
        self.run(40)
        self.is_well()

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
    for end in network.between(slave.name, leader.host.name):
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
