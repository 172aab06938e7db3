"""Does every slave follow: links, logs and tables of a pair that part, each for its reason."""

from __future__ import annotations

from random import Random
from typing import Any

from twisted.logger import capturedLogs, formatEvent

from rmq_ha.base.model.status import BrokerRole
from rmq_ha.testing.cluster import HA_PORT, LISTEN_PORT
from tests.unit.ops.admin.doctor.fleet import Fleet, whole_pair

MASTER, SLAVE = BrokerRole.SYNC_MASTER, BrokerRole.SLAVE
LOG = "/store/commitlog/00000000000000000000"
STAYS_OUT = {"ha_set_aside_diverged_tail": False}


def old_master_returns(**ours: bool) -> Fleet:
    """The old master wrote on alone before it died, and is the slave of the other one now."""
    fleet = whole_pair()
    fleet.make_topic()
    fleet.send("Work")
    fleet.stop("b")
    fleet.send("Work", 3)
    fleet.crash("a")
    fleet.add("b", MASTER)
    fleet.run(12)
    fleet.send("Work", 5, 40)
    fleet.add("a", SLAVE, broker={"broker_id": 1}, ours=dict(ours))
    fleet.run(30)
    return fleet


def test_an_old_master_returns_with_messages_of_its_own() -> None:
    """They are set aside."""
    fleet = old_master_returns()
    told = fleet.finds("tail-set-aside")
    assert "set the end of its log aside 1 times" in told
    assert fleet.hosts["a"].disk.list_dir("/store/setaside")
    fleet.stop("a")
    fleet.hosts["a"].disk.remove_tree("/store/setaside")
    fleet.add("a", SLAVE, broker={"broker_id": 1})
    fleet.run(12)
    fleet.is_well()


def test_an_old_master_that_stays_out() -> None:
    """As it was told to; with an empty store it follows."""
    fleet = old_master_returns(**STAYS_OUT)
    fleet.finds("diverged", "no-slave")
    assert "empty the store" in fleet.fix("diverged")
    fleet.stop("a")
    fleet.hosts["a"].disk.remove_tree("/store")
    fleet.add("a", SLAVE, broker={"broker_id": 1}, ours=STAYS_OUT)
    fleet.run(31)
    fleet.is_well()


def test_a_log_that_is_damaged_at_its_master() -> None:
    """A new slave copies what is no record, and so does each further try."""
    fleet = Fleet()
    fleet.add("a", MASTER)
    fleet.run(5)
    fleet.make_topic(queues=1)
    fleet.send("Work", 5)
    damaged = fleet.hosts["a"].disk.open(LOG, 32768)
    place = fleet.brokers["a"].store.log.max_offset // 5 * 2
    damaged.pwrite(b"\xee" * 8, place)
    fleet.add("b", SLAVE, broker={"broker_id": 1})
    fleet.run(30)
    told = fleet.finds("log-unreadable", "no-slave")
    assert "the master has the same bytes" in told


def test_a_way_that_is_cut() -> None:
    """First nothing comes, then the connection is given up, then the way is mended."""
    fleet = whole_pair()
    fleet.world.network.cut("a", "b")
    fleet.run(14)
    assert "heard nothing of its master" in fleet.finds("master-silent")
    fleet.run(20)
    fleet.finds("not-following", "no-slave")
    fleet.world.network.heal()
    fleet.run(31)
    fleet.is_well()


def test_a_slave_that_does_not_keep_up() -> None:
    """What it has comes back late: the master waits for it."""
    fleet = whole_pair()
    fleet.make_topic()
    fleet.world.network.cut("b", "a")
    fleet.send_anyway("Work", 3)
    fleet.run(6)
    assert "bytes, for" in fleet.finds("slave-behind")
    fleet.world.network.heal()
    fleet.run(20)
    assert fleet.visit().codes("error", "warning") <= {"puts-slow"}  # they were, a minute ago


class _Forgetful(Random):
    """Of a disk that keeps nothing of what was not synced."""

    def choice(self, seq: Any) -> Any:
        return min(seq)


def test_a_master_that_lost_the_end_of_its_log() -> None:
    """Its power failed before its disk had it all; its slave has more, and cannot reach it."""
    fleet = whole_pair()
    fleet.make_topic()
    fleet.run(5)
    fleet.hosts["a"].disk._random = _Forgetful(1)
    fleet.send("Work", 8)
    fleet.crash("a", power=True)
    fleet.world.network.block("a", HA_PORT)
    fleet.add("a", MASTER)
    fleet.run(30)
    told = fleet.finds("slave-ahead", "not-following", "no-slave", "ha-port-blocked")
    assert "behind the end of its master's" in told


def test_tables_that_are_not_copied() -> None:
    """The way to the master's listenPort is closed: the log follows, topics do not."""
    fleet = whole_pair()
    network = fleet.world.network
    for port in (LISTEN_PORT - 2, LISTEN_PORT):
        network.block("a", port, "b")
    for end in network.connections_between("b", "a"):
        if end.getPeer().port != HA_PORT:
            network.drop(end)
    fleet.make_topic("Late")
    fleet.run(75)
    assert "are " in fleet.finds("tables-old")
    assert "Late" in fleet.finds("slave-lacks-topics")
    network.heal()
    fleet.run(20)
    fleet.is_well()


def test_a_slave_that_deleted_what_its_master_keeps() -> None:
    """Its own disk was too full."""
    fleet = whole_pair()
    fleet.make_topic(queues=1)
    fleet.send("Work", 60, 3000)
    fleet.run(5)
    disk = fleet.hosts["b"].disk
    used = disk.usage("/store").used
    disk.capacity = round(used / 0.87)
    fleet.run(70)
    disk.capacity = 1 << 40
    told = fleet.finds("slave-lacks-history")
    assert "its master's at 0" in told


def test_a_slave_that_is_given_the_port_for_clients() -> None:
    """The master closes the connection; it is known before the start, too."""
    fleet = Fleet()
    fleet.add("a", MASTER)
    wrong = fleet.address("a")
    fleet.add("b", SLAVE, broker={"broker_id": 1}, store={"ha_master_address": wrong})
    fleet.run(12)
    assert f"it does not follow {wrong}" in fleet.finds("not-following", "no-slave")
    assert "haListenPort" in fleet.fix("not-following")
    lines = ("brokerId=2", f"haMasterAddress={wrong}", "storePathRootDir=/other")
    before = fleet.before("b", fleet.file_of("b", *lines))
    assert "that is a port for clients" in fleet.finds("master-unreachable", "port-taken", **before)


def test_a_master_that_tells_slaves_an_address_of_its_own() -> None:
    """`brokerIP2` is one of a network that the slave is not in."""
    fleet = Fleet()
    fleet.add("a", MASTER, broker={"broker_ip2": "172.18.0.2"})
    fleet.add("b", SLAVE, broker={"broker_id": 1})
    fleet.run(12)
    told = fleet.finds("ha-port-blocked", "not-following", "no-slave")
    assert "172.18.0.2:10912" in told
    assert "brokerIP2" in fleet.fix("ha-port-blocked")
    fleet.stop("a")
    fleet.add("a", MASTER)
    fleet.run(45)
    fleet.is_well()


def test_a_slave_that_is_given_another_master() -> None:
    """`haMasterAddress` names the master of another name; without it all is well."""
    fleet = Fleet()
    fleet.add("a", MASTER)
    fleet.add("c", broker={"broker_name": "other"})
    wrong = f"{fleet.hosts['c'].ip}:{HA_PORT}"
    fleet.add("b", SLAVE, broker={"broker_id": 1}, store={"ha_master_address": wrong})
    fleet.run(12)
    told = fleet.finds("follows-another", "no-slave")
    assert f"it follows {wrong}" in told
    assert "haMasterAddress" in fleet.fix("follows-another")
    fleet.stop("b")
    fleet.add("b", SLAVE, broker={"broker_id": 1})
    fleet.run(12)
    fleet.is_well()


def test_a_slave_that_was_away_for_longer_than_its_master_keeps_messages() -> None:
    """It leaves its store alone until it is told that it may give it up."""
    fleet = whole_pair()
    fleet.make_topic()
    fleet.send("Work", 20)
    fleet.run(1)
    fleet.stop("b")
    fleet.send("Work", 10, 9000)
    master = fleet.servers["a"]._broker
    master.store.log.drop_oldest(1)
    master.store.renumber()
    fleet.add("b", SLAVE, broker={"broker_id": 1})
    with capturedLogs() as events:
        fleet.run(30)
    lines = [formatEvent(event) or "" for event in events]
    assert sum("needs the log from" in line for line in lines) == 1, "at the master, once"
    told = fleet.finds("slave-stranded", "no-slave")
    assert "the master's first file begins at 32768" in told
    assert "set haRefetchStrandedPair=true" in told
    fleet.servers["b"]._broker.configuration.ours.ha_refetch_stranded_pair = True
    fleet.run(31)
    fleet.is_well()
    slave = fleet.servers["b"]._broker
    assert slave.store.log.min_offset == 32768
    assert slave.store.log.max_offset == master.store.log.max_offset
    (folder,) = fleet.hosts["b"].disk.list_dir("/store/setaside")
    assert folder.startswith("all-0-")
