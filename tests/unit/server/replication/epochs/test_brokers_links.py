"""How a slave's link goes on after what passes and what does not; what is on its disk, and when."""

from __future__ import annotations

from errno import ENOSPC

import pytest
from twisted.logger import capturedLogs, formatEvent

from rmq_ha.client.lookup.requests import send_request
from rmq_ha.server.replication.epochs.commit_log import ConfirmedTail
from rmq_ha.server.replication.epochs.roles.actions import StepDown
from rmq_ha.server.replication.statistics import MasterStatistics
from rmq_ha.testing.brokers import BrokerNode
from rmq_ha.testing.cluster import LISTEN_PORT
from tests.sim_kit.controlled import TOPIC, ControlledBrokers


def master_of(slave: BrokerNode) -> MasterStatistics:
    found = slave.replication.statistics().master
    assert isinstance(found, MasterStatistics)
    return found


def test_a_lost_connection_comes_back_at_once_and_is_no_fault() -> None:
    """Again and again: what passes by itself is nothing that an operator has to mend."""
    brokers = ControlledBrokers()
    master = brokers.in_sync()
    slave = brokers.other(master)
    for number in range(5):
        for end in brokers.world.network.connections_between(master.host.name, slave.host.name):
            brokers.world.network.drop(end)
        brokers.until(lambda: master_of(slave).state != "following", 1.0)
        assert master_of(slave).fault is None
        brokers.until(lambda: master_of(slave).state == "following", 1.0)
        assert brokers.send(master, b"%d" % number) == 0
    assert slave.store.log.max_offset == master.store.log.max_offset
    assert not brokers.findings.violations


def test_a_disk_that_refuses_is_a_fault_until_it_takes_the_log_again() -> None:
    """It is said once an attempt, every five seconds, and is over when the slave has gone on."""
    brokers = ControlledBrokers()
    master = brokers.in_sync()
    slave = brokers.other(master)
    disk = slave.host.disk
    disk.fault = lambda call, path: ENOSPC if call == "pwrite" and "/commitlog/" in path else None
    with capturedLogs() as events:
        brokers.send(master, b"kept")
        brokers.until(lambda: master_of(slave).fault is not None, 5.0)
        brokers.run(11.0)
    said = [str(formatEvent(event)) for event in events]
    assert 2 <= len([line for line in said if "does not follow the master" in line]) <= 4
    disk.fault = lambda call, path: None
    brokers.until(lambda: master_of(slave).fault is None, 6.0)
    brokers.in_sync()
    assert brokers.send(master, b"and this") == 0
    assert slave.store.log.max_offset == master.store.log.max_offset


@pytest.mark.parametrize("seed", [5, 6, 7])
def test_a_tail_is_cut_before_the_epochs_say_that_what_is_left_is_the_masters(seed: int) -> None:
    """
    A crash in between would leave bytes of one master under the number of another.

    On a disk whose calls may overtake each other if nobody waits for them; which do, the seed says.
    """
    brokers = ControlledBrokers(seed=seed)
    first = brokers.in_sync()
    second = brokers.other(first)
    assert brokers.send(first, b"kept") == 0
    common = first.store.log.max_offset
    brokers.world.network.partition(first.host.name, second.host.name)
    assert brokers.send(first, b"nobody has it") == 12
    first.crash(power=False)
    brokers.until(lambda: brokers.master() is second)
    brokers.world.network.heal()
    path = f"{first.configuration.store.store_path_root_dir}/epochFileCheckpoint"
    before = first.host.disk.read_bytes(path)
    first.load()
    first.start()
    first.host.worker.delay = (0.05, 0.5)
    end = first.store.log.max_offset
    assert end > common
    assert brokers.world.clock.run_while(lambda: first.host.disk.read_bytes(path) == before, 30.0)
    assert first.store.log.max_offset == common
    (log,) = first.host.disk.paths(first.configuration.store.store_path_commit_log)
    assert not any(first.host.disk.content(log)[common:end])
    assert first.host.disk.is_safe(log, common, end)
    first.host.worker.delay = first.host.worker.usual_delay
    brokers.in_sync()
    assert not brokers.findings.violations


def test_a_record_is_read_when_all_of_it_is_confirmed() -> None:
    """What is confirmed may end anywhere: slaves acknowledge bytes."""
    brokers = ControlledBrokers(1)
    (node,) = brokers.nodes
    for number in range(4):
        assert brokers.send(node, b"%d" % number * (number + 1)) == 0
    brokers.run(1.0)
    node.crash(power=False)
    brokers.desk.crash(0)
    node.load()
    log = node.store.log
    tail = ConfirmedTail(log)
    log.confirm_offset = log.max_offset
    whole = tail.next_slice(0, False)
    assert whole is not None
    ends = [row[2] + row[3] for row in whole.rows]
    assert len(ends) == 4
    assert ends[-1] == log.max_offset
    for confirmed in sorted({place for end in ends for place in (end - 1, end, end + 1)}):
        log.confirm_offset = confirmed
        found = tail.next_slice(0, False)
        readable = [end for end in ends if end <= confirmed]
        rows = [] if found is None else found.rows
        assert [row[2] + row[3] for row in rows] == readable
        assert found is None or found.end == readable[-1]


def test_who_is_told_that_it_leads_no_more_says_so_of_nothing_that_waits() -> None:
    """At once, and to its slaves, too: what they acknowledge from now on is another master's."""
    brokers = ControlledBrokers()
    master = brokers.in_sync()
    slave = brokers.other(master)
    brokers.world.network.partition(master.host.name, slave.host.name)
    request = send_request("producers", TOPIC, 0, b"nobody has it", "", brokers.now_ms())
    told: list[int] = []
    asked = brokers.client.invoke(f"{master.host.ip}:{LISTEN_PORT}", request, 5000)
    asked.addCallback(lambda answer: told.append(answer.code))
    brokers.run(0.2)
    assert told == []
    master.replication.decided(StepDown("a test"))
    assert not master.replication.may_append
    assert not master.store.log.admits
    assert master.replication.statistics().slaves == []
    brokers.run(0.1)
    assert told == [14], "12 would pass for stored, and the tail is cut"
