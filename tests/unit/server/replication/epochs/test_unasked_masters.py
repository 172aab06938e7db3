"""Masters that a broker of ours does not simply obey: strangers, and those that lack messages.

Spec: controller.md, sections 7.5 and 10.4; hazard 21 of chapter 14.
"""

from __future__ import annotations

import pytest

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.ops.app.status.broker import BrokerStatus
from rmq_ha.testing.brokers import BrokerNode
from tests.sim_kit.controlled import ControlledBrokers, ControllerDesk, wait

SENT = [b"%d" % number for number in range(5)]
LATER = [b"later %d" % number for number in range(5)]


def uncleanly(change: object = lambda _: None) -> ControlledBrokers:
    """
    Three brokers; the last one lacks five confirmed messages, and is elected all the same.

    :param change: of each broker's configuration.
    """
    desk = ControllerDesk(enable_elect_unclean_master=True)
    brokers = ControlledBrokers(3, desk=desk, change=change)  # type: ignore[arg-type]
    brokers.in_sync(3)
    first, _, third = brokers.nodes
    for body in SENT:
        assert brokers.send(first, body) == 0
    third.crash(power=False)
    brokers.until(lambda: len(desk.info()[1].members) == 2)
    for body in LATER:
        assert brokers.send(first, body) == 0
    for other in brokers.nodes[:2]:
        brokers.world.network.partition(other.host.name, third.host.name)
    brokers.boot(third)
    brokers.run(3.0)
    number = str(third.replication.slave_id)
    chosen = {"brokerName": "b", "brokerId": number, "designateElect": "true"}
    assert desk.ask(1002, chosen).code == 0
    brokers.until(lambda: brokers.master() is third)
    brokers.world.network.heal()
    brokers.run(10.0)
    return brokers


def health(node: BrokerNode) -> tuple[bool, str]:
    """What its status port answers."""
    told = BrokerStatus(node.broker).health()
    return told.is_ready, told.line()


def without_all_ack(configuration: BrokerConfiguration) -> None:
    configuration.controlled.all_ack_in_sync_state_set = False


@pytest.mark.parametrize("change", [lambda _: None, without_all_ack])
def test_no_slave_gives_up_confirmed_messages_before_an_operator_says_so(change: object) -> None:
    """RocketMQ's cuts its log: whoever was elected, both logs are gone."""
    brokers = uncleanly(change)
    for node in brokers.nodes[:2]:
        assert brokers.bodies(node) == SENT + LATER
        assert node.store.statistics.set_aside_messages == 0
        is_ready, text = health(node)
        assert not is_ready
        assert "lacks messages that were confirmed" in text
        assert "set haCutConfirmedTo=" in text
        place = int(text.partition("set haCutConfirmedTo=")[2].partition(" ")[0])
        wait(brokers.world, node.stop(), 30.0)
        node.configuration.ours.ha_cut_confirmed_to = place
        brokers.boot(node)
    brokers.in_sync(3)
    for node in brokers.nodes[:2]:
        brokers.holds(node, SENT)
        assert node.store.statistics.set_aside_messages == len(LATER)
    assert not brokers.findings.violations


def test_with_rocketmqs_way_a_slave_gives_up_what_the_master_lacks() -> None:
    def java(configuration: BrokerConfiguration) -> None:
        configuration.ours.ha_cut_confirmed_to = 0

    brokers = uncleanly(java)
    brokers.in_sync(3)
    for node in brokers.nodes[:2]:
        brokers.holds(node, SENT)


def test_a_master_that_is_not_trusted_is_not_followed() -> None:
    def trust(configuration: BrokerConfiguration) -> None:
        configuration.ours.ha_trusted_masters = "10.0.0.77"

    brokers = ControlledBrokers(2, change=trust)
    first, second = brokers.nodes
    brokers.run(5.0)
    assert second.replication.slave_id == 2
    assert second.store.log.max_offset <= 0
    assert brokers.desk.info()[1].members == (1,)
    is_ready, text = health(second)
    assert not is_ready
    assert f"name {first.host.ip}:10911 as the master" in text
    assert "not in haTrustedMasters=10.0.0.77" in text
    assert second.broker.masters.refused > 0


def test_a_trusted_master_is_followed_and_its_tables_are_copied() -> None:
    brokers = ControlledBrokers(1)

    def trust(configuration: BrokerConfiguration) -> None:
        configuration.ours.ha_trusted_masters = brokers.nodes[0].host.ip

    brokers.add(brokers.world.add("b1"), trust)
    brokers.in_sync(2)
