"""
A broker that is not sure to lead corrects no consumer's offset.

Spec: remoting.md, section 6.3; controller.md, chapter 14, hazard 2.
"""

from __future__ import annotations

from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.requests import pull_request
from rmq_ha.testing.brokers import BrokerNode
from tests.sim_kit.controlled import TOPIC, ControlledBrokers
from tests.sim_kit.group import BrokerGroup

BEYOND = 50


def told(answer: RemotingCommand) -> tuple[int, str]:
    """The code, and the offset that the consumer goes on from."""
    return answer.code, (answer.ext or {})["nextBeginOffset"]


STAYS = (ResponseCode.PULL_RETRY_IMMEDIATELY, str(BEYOND))


def ask(brokers: ControlledBrokers, node: BrokerNode) -> RemotingCommand:
    """A pull that may be held for 15 s."""
    return brokers.ask(node, pull_request("readers", TOPIC, 0, BEYOND, hold_ms=15_000))


def test_a_master_without_a_lease_moves_no_consumer() -> None:
    """And does not let clients ask it without a pause, as it cannot name another broker."""
    brokers = ControlledBrokers()
    first = brokers.in_sync()
    assert brokers.send(first, b"kept") == 0
    assert told(ask(brokers, first)) == (ResponseCode.PULL_OFFSET_MOVED, "1")
    brokers.desk.crash(0)
    brokers.until(lambda: not first.replication.may_append, 9.0)
    began = brokers.world.clock.seconds()
    assert told(ask(brokers, first)) == STAYS
    assert 0.9 < brokers.world.clock.seconds() - began < 1.5
    first.configuration.store.offset_check_in_slave = True
    assert told(ask(brokers, first)) == (ResponseCode.PULL_OFFSET_MOVED, "1"), "Java's way"
    first.configuration.store.offset_check_in_slave = False
    brokers.desk.restart(0)
    brokers.leader()
    assert told(ask(brokers, first)) == (ResponseCode.PULL_OFFSET_MOVED, "1")
    assert not brokers.findings.violations


def test_a_start_that_stands_back_moves_no_consumer() -> None:
    """Messages that were confirmed just before the power failed may be in no queue of it yet."""
    brokers = ControlledBrokers()
    first = brokers.in_sync()
    assert brokers.send(first, b"kept") == 0
    assert brokers.ask(first, pull_request("readers", TOPIC, 0, 0)).code == 0  # makes the group
    for node in (first, brokers.other(first)):
        node.crash(power=True)
    brokers.boot(first)
    brokers.run(0.5)
    assert brokers.send(first, b"by the connection before the crash") == -1
    assert "was the master when it crashed" in first.replication.why_no_puts()
    assert told(ask(brokers, first)) == STAYS
    assert not brokers.findings.violations


def test_a_member_without_a_leader_moves_no_consumer() -> None:
    """One that has just begun, and a leader whose quorum is gone."""
    group = BrokerGroup(3).start()
    assert group.send(b"kept") == 0
    leader = group.wait_for_master()
    assert told(group.pull(leader, BEYOND)) == (ResponseCode.PULL_OFFSET_MOVED, "1")
    slaves = group.slaves()
    for member in slaves:
        group.kill(member)
    group.run(4)
    assert group.master() is leader
    assert told(group.pull(leader, BEYOND)) == STAYS
    group.kill(leader)
    group.boot(slaves[0])
    assert told(group.pull(slaves[0], BEYOND)) == STAYS
