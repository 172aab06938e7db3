"""Brokers that come back at another address, as pods do: they lead or follow from there.

Spec: controller.md, chapters 3 and 10.
"""

from __future__ import annotations

import pytest

from rmq_ha.testing.brokers import BrokerNode
from tests.sim_kit.controlled import ControlledBrokers, ControllerDesk


def moved(brokers: ControlledBrokers, node: BrokerNode, ip: str, how: str) -> None:
    """End a broker, and begin a life of its store at another address."""
    if how == "stop":
        node.stop()
        brokers.until(lambda: node.state == "down")
        node.host.crash(power=False)
    else:
        node.crash(power=False)
    node.host.ip = ip
    broker = node.configuration.broker
    broker.broker_ip1 = broker.broker_ip2 = ip
    brokers.boot(node)


@pytest.mark.parametrize(("how", "role"), [("stop", "master"), ("kill", "slave")])
def test_a_broker_at_another_address_is_in_sync_again(how: str, role: str) -> None:
    desk = ControllerDesk(controller_allowed_brokers="10.0.0.0/24")
    brokers = ControlledBrokers(desk=desk)
    master = brokers.in_sync()
    node = master if role == "master" else brokers.other(master)
    sent = [b"%d" % number for number in range(10)]
    for body in sent:
        assert brokers.send(master, body) == 0
    moved(brokers, node, "10.0.0.77", how)
    brokers.run(1.0)
    leader = brokers.leader()
    assert brokers.send(leader, b"after") == 0
    assert brokers.in_sync() is leader
    brokers.run(6.0)
    assert node.replication.is_following is (node is not leader)
    brokers.holds(brokers.other(leader), [*sent, b"after"])
    if node is not leader:
        moved(brokers, leader, "10.0.0.78", "stop")
        assert brokers.leader() is node
        assert brokers.in_sync() is node
    assert not brokers.findings.violations
