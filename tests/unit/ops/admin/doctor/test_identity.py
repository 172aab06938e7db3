"""Who is who: names, ids and roles that do not fit, as they come about."""

from __future__ import annotations

import pytest

from rmq_ha.base.model.status import BrokerRole
from tests.unit.ops.admin.doctor.fleet import Fleet, whole_pair

MASTER, SLAVE = BrokerRole.SYNC_MASTER, BrokerRole.SLAVE


def test_two_brokers_of_different_names_at_one_address() -> None:
    """`brokerIP1` of the second is the first one's."""
    fleet = Fleet("a")
    fleet.add("b", broker={"broker_name": "other", "broker_ip1": fleet.hosts["a"].ip})
    fleet.run(5)
    told = fleet.finds("name-differs")
    assert "registered as other, but it answers as pair" in told
    fleet.stop("b")
    fleet.add("b", broker={"broker_name": "other"})
    fleet.run(31)
    fleet.is_well()


def test_two_brokers_of_one_name_at_one_address() -> None:
    """`brokerIP1` of the slave is its master's: who asks for the slave gets the master."""
    fleet = Fleet()
    fleet.add("a", MASTER)
    fleet.add("b", SLAVE, broker={"broker_id": 1, "broker_ip1": fleet.hosts["a"].ip})
    fleet.run(12)
    told = fleet.finds("id-differs", "no-slave")
    assert "registered with id 1, but it has 0" in told
    fleet.stop("b")
    fleet.add("b", SLAVE, broker={"broker_id": 1})
    fleet.run(45)
    fleet.is_well()


def test_a_slave_of_another_cluster() -> None:
    """Whoever registers last says which cluster a name belongs to."""
    fleet = whole_pair()
    fleet.stop("b")
    other = {"broker_id": 1, "broker_cluster_name": "Other"}
    fleet.add("b", SLAVE, broker=other)
    fleet.run(12)
    assert "DefaultCluster" in fleet.finds("cluster-differs")
    fleet.finds("settings-differ")
    fleet.stop("b")
    fleet.add("b", SLAVE, broker={"broker_id": 1})
    fleet.run(31)
    fleet.is_well()


def test_a_master_with_the_id_of_a_slave() -> None:
    """As a broker of Java that changes its role while it runs keeps its id."""
    fleet = Fleet()
    fleet.add("a", MASTER)
    fleet.add("b", SLAVE, broker={"broker_id": 1})
    fleet.run(12)
    fleet.stop("b")
    fleet.add("b", MASTER, broker={"broker_id": 1})
    fleet.run(12)
    told = fleet.finds("role-and-id", "two-masters", "no-slave")
    assert "registered as slave 1, but it runs as SYNC_MASTER" in told


def test_two_slaves_of_one_id() -> None:
    """Name servers know whoever came last; the master knows both."""
    fleet = whole_pair()
    fleet.add("c", SLAVE, broker={"broker_id": 1})
    fleet.run(12)
    told = fleet.finds("slave-unregistered")
    assert f"{fleet.hosts['b'].ip} copies the log" in told
    fleet.stop("c")
    fleet.add("c", SLAVE, broker={"broker_id": 2})
    fleet.run(31)
    fleet.is_well()


def test_two_slaves_of_one_id_at_two_name_servers() -> None:
    """Each of them knows one."""
    fleet = whole_pair(name_servers=2)
    first, both = fleet.namesrv.address, fleet.every_name_server
    second = both.partition(";")[2]
    fleet.stop("b")
    for name, where in (("b", first), ("c", second)):
        fleet.add(name, SLAVE, broker={"broker_id": 1, "namesrv_addr": where})
    fleet.run(12)
    told = fleet.finds("id-taken", "name-servers-differ", namesrv=both)
    assert fleet.address("b") in told
    assert fleet.address("c") in told
    fleet.stop("c")
    fleet.stop("b")
    fleet.add("b", SLAVE, broker={"broker_id": 1, "namesrv_addr": both})
    fleet.run(12)
    fleet.is_well(namesrv=both)


def test_two_masters() -> None:
    """The second was started at another name server, as somebody thought the first one dead."""
    fleet = whole_pair(name_servers=2)
    both = fleet.every_name_server
    second = both.partition(";")[2]
    anyway = {"start_beside_another_master": True}
    fleet.add("c", BrokerRole.ASYNC_MASTER, broker={"namesrv_addr": second}, ours=anyway)
    fleet.run(12)
    told = fleet.finds("two-masters", "name-servers-differ", namesrv=both)
    assert told.startswith("pair: 2 brokers of it run as master")
    fleet.stop("c")
    fleet.run(31)
    fleet.is_well(namesrv=both)


def test_two_masters_at_one_name_server() -> None:
    """It tells who claims the id in vain, and each of the two says that it is a master."""
    fleet = whole_pair(ours={"start_beside_another_master": True})
    fleet.add("c", BrokerRole.ASYNC_MASTER, ours={"start_beside_another_master": True})
    fleet.run(40)
    told = fleet.finds("two-masters")
    assert fleet.address("a") in told
    assert fleet.address("c") in told
    fleet.stop("c")
    fleet.run(45)
    fleet.is_well()


def test_an_old_master_that_comes_back_by_itself() -> None:
    """A machine that reboots, with its unchanged file: six times doctor said: start the slave."""
    fleet = whole_pair(name_servers=2)
    both = fleet.every_name_server
    fleet.crash("a")
    fleet.stop("b")
    fleet.add("b", MASTER, broker={"namesrv_addr": both})
    fleet.add("a", MASTER, broker={"namesrv_addr": both})
    fleet.run(31)
    told = fleet.finds("master-aside", namesrv=both)
    assert f"stands aside for {fleet.address('b')}, which is the master" in told
    assert "no-slave" not in fleet.visit(namesrv=both).codes()
    assert fleet.fix("master-aside", namesrv=both).startswith("type `rmqha-admin demote`")
    fleet.stop("a")
    fleet.add("a", BrokerRole.SLAVE, broker={"namesrv_addr": both, "broker_id": 1})
    fleet.run(31)
    fleet.is_well(namesrv=both)


def test_a_master_dies_and_comes_back() -> None:
    fleet = whole_pair()
    fleet.crash("a")
    fleet.run(1)
    assert fleet.address("b") in fleet.finds("no-master", "not-following")
    fleet.add("a", MASTER)
    fleet.run(31)
    fleet.is_well()


def test_a_master_that_cannot_register() -> None:
    """It lives, and its slave follows it: whoever promoted that would have two masters."""
    fleet = whole_pair()
    fleet.world.network.partition("ns", "a")
    fleet.run(150)
    told = fleet.finds("master-unregistered")
    assert f"follows one at {fleet.hosts['a'].ip}:10912" in told
    assert "do not promote" in fleet.fix("master-unregistered")
    fleet.world.network.heal()
    fleet.run(45)
    fleet.is_well()


def test_a_slave_whose_name_is_spelt_otherwise() -> None:
    """Nobody is told to promote it: it has nothing of its master's."""
    fleet = Fleet()
    fleet.add("a", MASTER)
    fleet.add("b", SLAVE, broker={"broker_name": "Pair", "broker_id": 1})
    fleet.run(12)
    told = fleet.finds("wrong-broker-name", "no-slave", "not-following")
    assert "while pair of the same cluster waits for a slave" in told
    fleet.stop("b")
    fleet.add("b", SLAVE, broker={"broker_id": 1})
    fleet.run(31)
    fleet.is_well()


def test_a_slave_is_stopped() -> None:
    """A SYNC_MASTER misses it; an ASYNC_MASTER is one copy only."""
    fleet = whole_pair()
    fleet.stop("b")
    fleet.run(1)
    fleet.finds("no-slave")
    fleet.add("b", SLAVE, broker={"broker_id": 1})
    fleet.run(12)
    fleet.is_well()
    alone = Fleet("a")
    alone.run(5)
    alone.finds("no-copy")


def test_settings_of_a_pair_that_differ() -> None:
    """What holds now does not after a fail-over; the advice mends it while both run."""
    fleet = whole_pair()
    fleet.config_set(fleet.address("b"), fileReservedTime="48")
    assert "fileReservedTime is 48 at" in fleet.finds("settings-differ")
    fleet.config_set("pair", fileReservedTime="48")
    fleet.is_well()


def test_a_pair_in_the_middle_of_an_upgrade(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slave is of the next release already; then the master is, too."""
    fleet = whole_pair()
    monkeypatch.setattr("rmq_ha.__version__", "99.1.0")
    fleet.stop("b")
    fleet.add("b", SLAVE, broker={"broker_id": 1})
    fleet.run(12)
    assert f"{fleet.address('b')}: 99.1.0" in fleet.finds("versions-differ")
    fleet.stop("a")
    fleet.add("a", MASTER)
    fleet.run(31)
    fleet.is_well()


def test_a_master_whose_permission_was_taken_away() -> None:
    """And one that somebody told to wait."""
    fleet = whole_pair()
    fleet.config_set("pair", brokerPermission="4")
    assert "brokerPermission is 4" in fleet.finds("not-writable")
    fleet.config_set("pair", brokerPermission="6")
    fleet.is_well()
    later = fleet.hosts["a"].now_ms() + 60_000
    fleet.config_set("pair", startAcceptSendRequestTimeStamp=str(later))
    assert "s more" in fleet.finds("sends-refused-until")
    fleet.config_set("pair", startAcceptSendRequestTimeStamp="0")
    fleet.is_well()


def test_topics_that_come_by_themselves_with_two_masters() -> None:
    fleet = Fleet("a")
    fleet.add("c", broker={"broker_name": "second"})
    fleet.run(5)
    fleet.finds("auto-create")
    for which in ("pair", "second"):
        fleet.config_set(which, autoCreateTopicEnable="false")
    assert "auto-create" not in fleet.is_well().codes()
