"""Disks, clocks and speed of simulated machines."""

from __future__ import annotations

from rmq_ha.base.model.status import BrokerRole
from tests.unit.ops.admin.doctor.fleet import Fleet, whole_pair

HOUR_MS = 3_600_000


def test_a_clock_that_somebody_set() -> None:
    """The broker says its time itself, with a status port and without."""
    for watched in (False, True):
        fleet = whole_pair(watched=watched)
        fleet.hosts["b"].step_clock(HOUR_MS)
        told = fleet.finds("clocks-apart")
        assert told.startswith(f"pair {fleet.address('b')}: its clock is 3600 s ahead of")
        fleet.hosts["b"].step_clock(-HOUR_MS)
        fleet.is_well()


def test_the_clock_of_whoever_looks() -> None:
    fleet = whole_pair()
    fleet.world.hosts["admin"].step_clock(-HOUR_MS)
    assert "this machine: the brokers' clocks are" in fleet.finds("clocks-apart")


def filled(share: float) -> Fleet:
    """A broker whose disk is so full."""
    fleet = Fleet("a", watched=True)
    fleet.make_topic(queues=1)
    fleet.send("Work", 60, 3000)
    fleet.run(12)
    fleet.is_well()
    disk = fleet.hosts["a"].disk
    usage = disk.usage("/store")
    assert usage is not None
    disk.capacity = round(usage.used / share)
    return fleet


def test_a_disk_that_is_nearly_full() -> None:
    """Messages go before their time; with a larger disk that is over, and told still."""
    fleet = filled(0.87)
    assert "87 % full, and diskSpaceCleanForciblyRatio is 85 %" in fleet.finds("disk-cleans")
    fleet.hosts["a"].disk.capacity = 1 << 40
    fleet.is_well()


def test_a_disk_that_is_full() -> None:
    fleet = filled(0.93)
    fleet.run(1)
    fleet.finds("disk-full")
    fleet.run(70)
    assert "since its start" in fleet.finds("deleted-early")
    fleet.hosts["a"].disk.capacity = 1 << 40
    fleet.run(12)
    visit = fleet.visit()
    assert visit.codes("error") == set(), str(visit)


def test_a_disk_that_will_be_full() -> None:
    """So much in two hours, and room for half as much."""
    fleet = Fleet()
    fleet.add("a", store={"max_message_size": 8192})
    fleet.make_topic(queues=1)
    fleet.send("Work", 60, 3000)
    fleet.run(5)
    for host in fleet.world.hosts.values():
        host.step_clock(2 * HOUR_MS)
    fleet.is_well()
    disk = fleet.hosts["a"].disk
    usage = disk.usage("/store")
    assert usage is not None
    disk.capacity = usage.used * 2
    told = fleet.finds("disk-forecast")
    assert "before messages are 72 h old" in told
    fleet.config_set("pair", fileReservedTime="2")
    fleet.is_well()


def test_queues_that_stand_still() -> None:
    """Their disk takes nothing, that of the log does."""
    fleet = Fleet()
    fleet.add("a", store={"mapped_file_size_commit_log": 16 << 20})
    fleet.make_topic(queues=1)
    fleet.run(5)
    fleet.is_well()
    store = fleet.brokers["a"].store
    fleet.hosts["a"].disk.fault = lambda operation, path: (
        28 if "consumequeue" in path and operation in ("pwrite", "reserve", "open") else None
    )
    fleet.send_anyway("Work", 5, 3 << 20)
    assert store.log.max_offset > 10_000_000
    assert "not in its queues yet" in fleet.finds("dispatch-behind")
    fleet.hosts["a"].disk.fault = lambda operation, path: None
    fleet.run(10)
    fleet.is_well()


def test_puts_that_wait_for_a_far_slave() -> None:
    fleet = whole_pair()
    fleet.make_topic()
    fleet.world.network.slow("b", "a", 3.0)
    fleet.send_anyway("Work", 5)
    assert "one put in a hundred" in fleet.finds("puts-slow")


def test_puts_that_failed() -> None:
    fleet = Fleet("a")
    fleet.make_topic(queues=1)
    fleet.run(5)
    assert "puts-failed" not in fleet.is_well().codes()
    fleet.hosts["a"].disk.is_full = True
    fleet.send_anyway("Work", 12, 4000)
    fleet.hosts["a"].disk.is_full = False
    fleet.run(15)
    fleet.finds("puts-failed")


def test_how_safely_a_broker_works() -> None:
    """Notes, which change no exit code: in memory only, open to all, started just now."""
    fleet = Fleet("a")
    fleet.run(5)
    assert fleet.is_well().said.code == 0
    fleet.finds("acks-from-memory")
    fleet.finds("open-to-all")
    fleet.finds("just-started")
    pair = whole_pair()
    pair.run(300)
    assert not pair.is_well().codes() & {"acks-from-memory", "just-started"}
    lone = Fleet()
    lone.add("a", BrokerRole.ASYNC_MASTER, options={"tls.server.mode": "enforcing"})
    lone.run(5)
    visit = lone.visit(lone.address("a"), namesrv="", use_tls=True)
    assert "open-to-all" not in visit.codes()
