"""A master whose disk is full or fails: who leads then, and that nothing is lost.

Spec: controller.md, section 10.4.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any

from twisted.logger import capturedLogs, formatEvent

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.model.status import FlushDiskType
from rmq_ha.base.store_flags import Flag
from rmq_ha.testing.brokers import BrokerNode
from tests.sim_kit.controlled import ControlledBrokers

SENT = [b"%d" % number for number in range(10)]


def fill(node: BrokerNode, share: float) -> None:
    """Others use so much of this machine's disk."""
    disk = node.host.disk
    disk.capacity = int(disk.usage("/store").used / share)


def pair(change: Any = lambda _: None) -> tuple[ControlledBrokers, BrokerNode, BrokerNode]:
    """Two brokers in sync with ten messages, the master first."""
    brokers = ControlledBrokers(2, change=change)
    master = brokers.in_sync()
    for body in SENT:
        assert brokers.send(master, body) == 0
    return brokers, master, brokers.other(master)


def lines(events: list[Any], words: str) -> Iterator[str]:
    return (text for text in (formatEvent(event) or "" for event in events) if words in text)


def test_a_master_whose_disk_is_full_hands_over_to_a_slave_that_has_room() -> None:
    brokers, master, slave = pair()
    fill(slave, 0.3)
    fill(master, 0.95)
    took = brokers.until(lambda: brokers.master() is slave)
    assert took < 15.0
    assert brokers.send(slave, b"after") == 0
    brokers.holds(slave, [*SENT, b"after"])
    brokers.run(30.0)
    assert brokers.master() is slave
    assert not brokers.findings.violations


def test_a_master_whose_disk_fails_hands_over() -> None:
    def sync(configuration: BrokerConfiguration) -> None:
        configuration.store.flush_disk_type = FlushDiskType.SYNC_FLUSH

    brokers, master, slave = pair(sync)
    fill(slave, 0.3)
    master.host.disk.fault = lambda operation, path: (
        errno.EIO if operation == "sync" and "/commitlog/" in path else None
    )
    assert brokers.send(master, b"nobody has it") != 0
    brokers.until(lambda: brokers.master() is slave, 15.0)
    assert brokers.send(slave, b"after") == 0


def test_nobody_is_handed_over_to_who_has_no_room() -> None:
    brokers, master, slave = pair()
    fill(slave, 0.9)
    with capturedLogs() as events:
        fill(master, 0.95)
        brokers.run(60.0)
    assert brokers.desk.info()[0]["masterEpoch"] == "1"
    (line,) = lines(events, "cannot hand over")
    assert f"no slave in sync has room ({slave.host.ip}:10911 is " in line


def test_nobody_is_handed_over_to_who_lacks_messages() -> None:
    brokers, master, slave = pair()
    fill(slave, 0.3)
    brokers.world.network.partition(master.host.name, slave.host.name)
    assert brokers.send(master, b"the slave has it not") != 0
    fill(master, 0.95)
    brokers.run(10.0)
    assert brokers.desk.info()[0]["masterEpoch"] == "1"


def test_two_full_brokers_do_not_hand_over_to_each_other_all_the_time() -> None:
    """Each says that it has room, as a quota does that nobody sees, and takes nothing."""
    brokers, master, slave = pair()
    for node in (master, slave):
        fill(node, 0.3)
        node.store.flags.hoist(Flag.COMMIT_LOG, "a quota")
    brokers.run(600.0)
    assert int(brokers.desk.info()[0]["masterEpoch"]) <= 9


def test_with_rocketmqs_way_it_keeps_its_place() -> None:
    def java(configuration: BrokerConfiguration) -> None:
        configuration.ours.ha_hand_over_when_full = False

    brokers, master, slave = pair(java)
    fill(slave, 0.3)
    fill(master, 0.95)
    brokers.run(30.0)
    assert brokers.desk.info()[0]["masterEpoch"] == "1"
