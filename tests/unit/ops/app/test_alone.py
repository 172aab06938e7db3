"""Who follows nobody says for how long, and is ready as long as `slaveAloneSeconds` says."""

from __future__ import annotations

from typing import Any

from twisted.logger import capturedLogs, formatEvent

from rmq_ha.ops.app.status.broker import BrokerStatus
from tests.sim_kit.controlled import ControlledBrokers
from tests.sim_kit.group import BrokerGroup


def patient(configuration: Any) -> None:
    configuration.ours.slave_alone_seconds = 90


def test_a_member_without_a_leader_serves_reads_and_says_for_how_long() -> None:
    """Its consumers have no other one; the leader that comes back is followed at once."""
    group = BrokerGroup(1, change=patient).start()
    assert group.send(b"a") == 0
    group.run(5)
    left, *gone = [*group.slaves(), group.wait_for_master()]
    status = BrokerStatus(left.broker)
    assert left.replication.statistics().alone_seconds is None
    assert group.master().replication.statistics().alone_seconds is None
    for member in gone:
        group.kill(member)
    began = group.now
    with capturedLogs() as events:
        group.wait_until(lambda: "no leader" in status.health().reason, 10.0)
        group.run(began + 80 - group.now)
    assert status.health().is_ready
    assert 70 < left.replication.statistics().alone_seconds <= 80
    assert group.bodies(left) == [b"a"]
    (said,) = [line for line in map(str, map(formatEvent, events)) if "knows no leader" in line]
    assert "has no quorum" in said
    group.run(20)
    assert not status.health().is_ready
    assert status.health().reason.endswith("slaveAloneSeconds=90")
    for member in gone:
        group.boot(member)
    group.wait_for_master()
    assert status.health().is_ready
    assert left.replication.statistics().alone_seconds is None


def test_a_slave_whose_master_cannot_be_reached_says_for_how_long() -> None:
    """In controller mode; the controllers still see the master, so nobody else is elected."""
    brokers = ControlledBrokers(change=patient)
    master = brokers.in_sync()
    slave = brokers.other(master)
    status = BrokerStatus(slave.broker)
    assert slave.replication.statistics().master.alone_seconds is None
    brokers.world.network.partition(master.host.name, slave.host.name)
    with capturedLogs() as events:
        brokers.run(80.0)
    assert status.health().is_ready
    assert "does not follow a master for" in status.health().reason
    lines = [str(formatEvent(event)) for event in events]
    assert len([line for line in lines if "does not follow" in line and "gets old" in line]) == 1
    brokers.run(60.0)
    assert not status.health().is_ready
    assert status.health().reason.endswith("slaveAloneSeconds=90")
    brokers.world.network.heal()
    brokers.until(lambda: status.health().is_ready, 10.0)
    assert slave.replication.statistics().master.alone_seconds is None
