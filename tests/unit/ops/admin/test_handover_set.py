"""`rmqha-admin handover`, `promote` and `demote` of a pair with a controller, simulated."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import Deferred

from rmq_ha.base.config.controller_mode import is_controlled
from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.ops.admin import handover
from rmq_ha.ops.admin.handover_set import step_back, take_over
from rmq_ha.ops.admin.role_file import RoleFile
from rmq_ha.testing.brokers import BrokerNode
from rmq_ha.testing.cluster import LISTEN_PORT
from tests.sim_kit.controlled import ControlledBrokers, wait
from tests.unit.ops.admin.admin_kit import say

PATH = "/etc/broker.properties"
YES = {"yes": True, "dry_run": False}
DRY = {"yes": False, "dry_run": True}


def order(brokers: ControlledBrokers, to: str | None = None, **sure: bool) -> Any:
    """Have it handed over, said from a machine of its own."""
    return ordered(brokers, lambda session: handover.give_over_of(session, "b", to, **sure))


def of_its_file(brokers: ControlledBrokers, node: BrokerNode, do: Any, **sure: bool) -> Any:
    """Say `promote` or `demote` where the broker's file is."""
    text = (
        f"brokerName=b\nbrokerIP1={node.host.ip}\nlistenPort={LISTEN_PORT}\nnamesrvAddr=10.0.0.9:9876\n"
        "enableControllerMode=true\ncontrollerAddr=10.0.0.9:9878\n"
    )
    node.host.disk.replace(PATH, text.encode())
    around = Surroundings({}, "/root", "host", node.host.ip, "/")
    file = RoleFile(node.host.disk, PATH, around)
    assert is_controlled(file.configuration)
    said = ordered(brokers, lambda session: do(session, file, **sure))
    assert node.host.disk.read_bytes(PATH) == text.encode()
    return said


def ordered(brokers: ControlledBrokers, work: Any) -> Any:
    cluster = SimpleNamespace(
        world=brokers.world,
        namesrv=brokers.name_server,
        wait=lambda later, limit: wait(brokers.world, Deferred.fromCoroutine(later), 60.0),
    )
    return say(
        cluster,
        work,
        brokers.world.hosts["tool"].seams,
    )


def test_the_master_hands_over_and_no_message_is_lost() -> None:
    brokers = ControlledBrokers()
    first = brokers.in_sync()
    second = brokers.other(first)
    assert brokers.send(first, b"before") == 0
    dry = order(brokers, **DRY)
    assert (dry.code, dry.last) == (0, {"leader": 1, "to": 2}), dry.err
    assert brokers.leader() is first
    said = order(brokers, **YES)
    assert (said.code, said.last) == (0, {"leader": 2, "epoch": 2, "changed": True}), said.err
    took = brokers.until(lambda: brokers.master() is second)
    assert took < 2.0
    assert not first.replication.may_append
    assert brokers.in_sync() is second
    assert brokers.send(second, b"after") == 0
    brokers.holds(second, [b"before", b"after"])
    brokers.run(1.0)
    brokers.holds(first, [b"before", b"after"])
    back = order(brokers, "1", **YES)
    assert back.last == {"leader": 1, "epoch": 3, "changed": True}
    assert order(brokers, "1", **YES).last == {"leader": 1, "changed": False}
    assert not brokers.findings.violations


def test_who_is_not_in_sync_is_not_elected() -> None:
    brokers = ControlledBrokers(1)
    brokers.leader()
    for to, why in ((None, "no other broker is in sync"), ("7", "broker 7 is not in sync")):
        said = order(brokers, to, **YES)
        assert said.code == 1
        assert why in said.err


def test_promote_has_this_broker_elected_and_demote_another_one() -> None:
    """The file is not touched: its roles say nothing in this mode."""
    brokers = ControlledBrokers()
    first = brokers.in_sync()
    second = brokers.other(first)
    assert brokers.send(first, b"before") == 0
    assert of_its_file(brokers, first, take_over, **YES).last == {"changed": False}
    assert of_its_file(brokers, second, step_back, **YES).last == {"changed": False}
    dry = of_its_file(brokers, second, take_over, **DRY)
    assert dry.last == {"leader": 1, "to": 2}, dry.err
    said = of_its_file(brokers, second, take_over, **YES)
    assert said.last == {"leader": 2, "epoch": 2, "changed": True}, said.err
    assert brokers.until(lambda: brokers.master() is second) < 2.0
    assert brokers.in_sync() is second
    said = of_its_file(brokers, second, step_back, **YES)
    assert said.last == {"leader": 1, "epoch": 3, "changed": True}, said.err
    brokers.until(lambda: brokers.master() is first)
    brokers.holds(first, [b"before"])
    assert not brokers.findings.violations


def test_promote_of_a_broker_that_is_down_says_that_it_has_to_be_started() -> None:
    brokers = ControlledBrokers()
    second = brokers.other(brokers.in_sync())
    second.host.crash(power=False)
    said = of_its_file(brokers, second, take_over, **YES)
    assert said.code == 1
    assert "Start the broker of /etc/broker.properties" in said.err


def test_a_set_whose_master_acknowledges_alone_is_warned_of_lost_messages() -> None:
    brokers = ControlledBrokers()
    first = brokers.in_sync()
    assert "allAckInSyncStateSet" not in order(brokers, **DRY).err
    first.broker.configuration.controlled.all_ack_in_sync_state_set = False
    assert "allAckInSyncStateSet=false: the master acknowledges" in order(brokers, **DRY).err
