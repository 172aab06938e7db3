"""`doctor --config` on a broker's machine: its properties file, store and certificates."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from rmq_ha.base.model.status import BrokerRole
from tests.unit.ops.admin.doctor.authority import LINES, OPTIONS, put_certificate
from tests.unit.ops.admin.doctor.fleet import Fleet, whole_pair


def one(**changes: dict[str, str]) -> Fleet:
    """A broker whose file says what it runs with; nothing is wrong."""
    fleet = Fleet()
    fleet.add("a", **changes)
    fleet.make_topic(queues=1)
    fleet.run(5)
    fleet.is_well(**fleet.with_file("a", fleet.file_of("a")))
    return fleet


def test_a_file_that_somebody_edited() -> None:
    """Since its broker was started; nobody has restarted it."""
    fleet = one()

    def edited(*lines: str) -> dict[str, object]:
        return fleet.with_file("a", fleet.file_of("a", *lines))

    told = fleet.finds("file-differs", **edited("fileReservedTime=24"))
    assert "it says fileReservedTime=24, the broker runs with 72" in told
    assert "did you mean" in fleet.finds("key-unknown", **edited("flushDiscType=SYNC_FLUSH"))
    doubted = fleet.finds("value-doubtful", **edited("storePathCommitLog=~/commitlog"))
    assert "nobody replaces ~" in doubted
    assert "must be" in fleet.finds("file-wrong", **edited("brokerId=x"))
    assert "brokerIP1=broker-a" in fleet.finds("address-is-name", **edited("brokerIP1=broker-a"))
    commas = edited("namesrvAddr=10.0.0.1:9876,10.0.0.9:9876")
    assert "namesrvAddr=" in fleet.finds("name-servers-misspelt", **commas)
    lost = edited(f"namesrvAddr={fleet.namesrv.address};nowhere:9876")
    assert "nowhere" in fleet.finds("name-unresolved", namesrv="", **lost)


def test_a_broker_that_does_not_run() -> None:
    """It was stopped; then it is killed, which leaves its mark."""
    fleet = whole_pair()
    file = fleet.with_file("a", fleet.file_of("a"))
    fleet.stop("a")
    fleet.finds("not-running", "no-master", "not-following", **file)
    assert "stopped-unclean" not in fleet.visit(**file).codes()
    fleet.add("a", BrokerRole.SYNC_MASTER)
    fleet.run(31)
    fleet.is_well(**file)
    fleet.crash("a")
    fleet.run(1)
    fleet.hosts["a"].restart()
    file["host"] = fleet.hosts["a"].seams
    fleet.finds("stopped-unclean", "not-running", "no-master", "not-following", **file)
    fleet.add("a", BrokerRole.SYNC_MASTER)
    fleet.run(31)
    fleet.is_well(**file)


def test_a_broker_that_registers_elsewhere() -> None:
    """Its file names another name server than it was started with."""
    fleet = one()
    other = fleet.second_name_server()
    second = Fleet.add(fleet, "c", broker={"broker_name": "other", "namesrv_addr": other.address})
    assert second
    fleet.run(5)
    file = fleet.with_file("a", fleet.file_of("a", f"namesrvAddr={other.address}"))
    told = fleet.finds("not-registered", namesrv="", **file)
    assert f"{other.address} has it not" in told


def test_a_store_that_is_not_mounted() -> None:
    """Its log lies on a disk that is missing."""
    fleet = one()
    text = fleet.file_of("a")
    fleet.send("Work")
    fleet.stop("a")
    disk = fleet.hosts["a"].disk
    log = {path: disk.content(path) for path in disk.paths("/store/commitlog")}
    disk.remove_tree("/store/commitlog")
    file = fleet.with_file("a", text)
    told = fleet.finds("log-missing", "not-running", "no-broker", **file)
    assert "but no commit log" in told
    for path, content in log.items():
        disk.replace(path, content)
    fleet.add("a")
    fleet.run(5)
    fleet.is_well(**file)


def test_a_store_whose_directory_is_missing_or_another() -> None:
    fleet = one()
    elsewhere = fleet.with_file("a", fleet.file_of("a", "storePathRootDir=/mnt/store"))
    fleet.finds("store-new", **elsewhere)


def test_a_table_that_cannot_be_read() -> None:
    """Half of it was written by somebody's editor; its copy is put in its place."""
    fleet = one()
    text = fleet.file_of("a")
    fleet.run(15)
    fleet.stop("a")
    disk, path = fleet.hosts["a"].disk, "/store/config/topics.json"
    kept = disk.content(path)
    disk.replace(path, kept[: len(kept) // 2])
    file = fleet.with_file("a", text)
    assert path in fleet.finds("table-damaged", "not-running", "no-broker", **file)
    disk.replace(path, disk.read_bytes(f"{path}.bak"))
    fleet.add("a")
    fleet.run(5)
    fleet.is_well(**file)


def test_a_store_that_cannot_be_read_is_not_called_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """What of it was not looked at is said, and why."""
    fleet = Fleet("a")

    def fail(path: str) -> Any:
        raise OSError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(fleet.hosts["a"].disk, "usage", fail)
    visit = fleet.visit(**fleet.with_file("a", fleet.file_of("a")))
    assert visit.not_looked["all of /store"] == "Permission denied"


def test_a_disk_with_little_room() -> None:
    fleet = one()
    disk = fleet.hosts["a"].disk
    disk.capacity = 400 << 20
    file = fleet.with_file("a", fleet.file_of("a"))
    assert "MiB are free" in fleet.finds("no-room", **file)
    disk.capacity = 1 << 40
    fleet.is_well(**file)


def test_messages_that_were_given_up() -> None:
    """A slave that came with an end of its own set it aside, restarted since."""
    fleet = whole_pair()
    fleet.make_topic()
    fleet.send("Work")
    fleet.stop("b")
    fleet.send("Work", 3)
    fleet.crash("a")
    fleet.add("b", BrokerRole.SYNC_MASTER)
    fleet.run(12)
    fleet.send("Work", 5, 40)
    fleet.add("a", BrokerRole.SLAVE, broker={"broker_id": 1})
    fleet.run(30)
    file = fleet.with_file("a", fleet.file_of("a"))
    assert "setaside has 1 folders: diverged" in fleet.finds("set-aside-left", **file)
    fleet.hosts["a"].disk.remove_tree("/store/setaside")
    assert "set-aside-left" not in fleet.visit(**file).codes()


def certified(begins: int, ends: int, address: str = "") -> tuple[Fleet, dict[str, object]]:
    """A broker with a certificate in its file, which it shows; and the visit on its machine."""
    fleet = Fleet()
    host = fleet.hosts["a"] = fleet.world.add("a")
    put_certificate(host, begins, ends, address)
    fleet.add("a", options=OPTIONS)
    fleet.run(5)
    return fleet, fleet.with_file("a", fleet.file_of("a", *LINES))


def test_a_certificate_that_is_well() -> None:
    fleet, file = certified(-100, 300)
    visit = fleet.is_well(**file)
    assert "certificate-made-up" not in visit.codes()


@pytest.mark.parametrize("days", [2, 40])
def test_a_certificate_that_ends(days: int) -> None:
    """In two days; then it is over; a new one and SIGHUP mend it."""
    fleet, file = certified(-100, days)
    host = fleet.hosts["a"]
    if days < 30:
        told = fleet.finds("certificate-ends", **file)
        assert fleet.address("a") in told
        assert "tls.server.certPath" in told
    for machine in fleet.world.hosts.values():
        machine.step_clock((days + 1) * 86_400_000)
    assert fleet.address("a") in fleet.finds("certificate-ended", **file)
    put_certificate(host, -1, 300)
    fleet.servers["a"].reload()
    fleet.run(1)
    visit = fleet.visit(**file)
    assert not {code for code in visit.codes() if code.startswith("certificate-")}, str(visit)


def test_a_certificate_of_tomorrow_and_one_of_another_machine() -> None:
    fleet, file = certified(1, 300)
    fleet.finds("certificate-not-yet", **file)
    fleet, file = certified(-1, 300, "10.9.9.9")
    assert "its certificate is for" in fleet.finds("certificate-of-another", **file)
    put_certificate(fleet.hosts["a"], -1, 300)
    fleet.servers["a"].reload()
    fleet.run(1)
    fleet.is_well(**file)
