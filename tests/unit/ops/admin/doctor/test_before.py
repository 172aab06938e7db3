"""`twistd rmqha --check --live`: what would go wrong is known before anything is started."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.protocol import Factory

from rmq_ha.base.model.status import BrokerRole
from rmq_ha.testing.cluster import HA_PORT
from tests.unit.ops.admin.doctor.authority import LINES, put_certificate
from tests.unit.ops.admin.doctor.fleet import Fleet, whole_pair


class Start:
    """A broker that shall start on the machine `new`, beside a pair that runs."""

    def __init__(self, fleet: Fleet | None = None) -> None:
        self.fleet = fleet or whole_pair()
        self.fleet.hosts["new"] = self.fleet.world.add("new")

    def file(self, *lines: str, on: str = "new", **wanted: Any) -> dict[str, Any]:
        """Of a slave that may join; what is said last holds."""
        usual = [
            "brokerName=pair",
            "brokerRole=SLAVE",
            "brokerId=2",
            f"brokerIP1={self.fleet.hosts[on].ip}",
            f"namesrvAddr={self.fleet.namesrv.address}",
            "storePathRootDir=/store",
            "mappedFileSizeCommitLog=32768",
        ]
        text = "\n".join([*usual, *lines]) + "\n"
        return self.fleet.before(on, text, **wanted)


def test_a_slave_that_may_start() -> None:
    start = Start()
    visit = start.fleet.is_well(**start.file())
    assert visit.said.code == 0
    assert visit.codes() == {"one-name-server", "store-new"}
    assert "store-new" in visit.codes()
    start.fleet.hosts["new"].disk.make_dirs("/store")
    assert "store-new" not in start.fleet.is_well(**start.file()).codes()


def test_somebody_else_is_it_already() -> None:
    """A slave with the id of one that runs; a second master of the name."""
    start = Start()
    told = start.fleet.finds("id-in-use", **start.file("brokerId=1"))
    assert f"{start.fleet.address('b')} runs, and is pair with id 1 already" in told
    start.fleet.finds("id-in-use", **start.file("brokerRole=SYNC_MASTER", "brokerId=0"))
    start.fleet.is_well(**start.file("brokerName=new", "brokerRole=ASYNC_MASTER", "brokerId=0"))


def test_its_ports_and_its_store_are_taken() -> None:
    """By the broker that runs there; stopped, it may start."""
    start = Start()
    fleet = start.fleet
    lines = ("brokerId=1", f"bindAddress={fleet.hosts['b'].ip}")
    here = start.file(*lines, on="b")
    told = fleet.finds("port-taken", "store-open", **here)
    assert "10911" in told
    fleet.finds("store-open", "port-taken", **here)
    fleet.stop("b")
    fleet.is_well(**here)


def test_a_store_that_cannot_be() -> None:
    """A file is in its way; its disk has no room; its log is not mounted; a table is damaged."""
    start = Start()
    fleet, disk = start.fleet, start.fleet.hosts["new"].disk
    disk.replace("/data", b"no directory")
    fleet.finds("store-unusable", **start.file("storePathRootDir=/data"))
    disk.make_dirs("/store/commitlog")
    disk.capacity = 400 << 20
    fleet.finds("no-room", **start.file())
    disk.capacity = 1 << 40
    disk.make_dirs("/store/consumequeue/Work")
    disk.replace("/store/config/topics.json", b"{")
    fleet.finds("log-missing", "table-damaged", **start.file())
    disk.remove_tree("/store")
    fleet.is_well(**start.file())


def test_name_servers_that_are_wrong() -> None:
    """Nobody there, no such name, a broker's port."""
    start = Start()
    fleet, known = start.fleet, start.fleet.namesrv.address
    for wrong, code in (
        (f"{fleet.hosts['new'].ip}:9876", "name-server-silent"),
        ("nosuchname:9876", "name-unresolved"),
        (fleet.address("a"), "no-name-server"),
    ):
        visit = fleet.visit(**start.file(f"namesrvAddr={known};{wrong}"))
        assert visit.codes("error") == {code}, str(visit)


def test_a_slave_without_a_master() -> None:
    """Its name is misspelt; then its master is not up yet."""
    start = Start()
    told = start.fleet.finds("slave-without-master", **start.file("brokerName=Pair"))
    assert "no name server knows a master called Pair" in told
    start.fleet.is_well(**start.file())
    start.fleet.stop("a")
    start.fleet.finds("slave-without-master", **start.file())


def test_a_master_that_the_slave_will_not_reach() -> None:
    """A firewall is before its port for slaves; an address of another is in the file."""
    start = Start()
    fleet = start.fleet
    fleet.world.network.block("a", HA_PORT, "new")
    told = fleet.finds("master-unreachable", **start.file())
    assert f"{fleet.hosts['a'].ip}:{HA_PORT}" in told
    fleet.world.network.heal()
    fleet.is_well(**start.file())
    wrong = f"haMasterAddress={fleet.hosts['new'].ip}:{HA_PORT}"
    assert "is this broker's own" in fleet.finds("file-wrong", **start.file(wrong))


def test_addresses_of_another_machine() -> None:
    """Nobody can listen there; whoever tells it to others may have a reason."""
    start = Start()
    fleet = start.fleet
    told = fleet.finds("bind-elsewhere", **start.file("bindAddress=10.9.9.9"))
    assert "bindAddress=10.9.9.9 is no address of this machine" in told
    told = fleet.finds("address-elsewhere", **start.file("brokerIP1=10.9.9.9"))
    assert "brokerIP1=10.9.9.9" in told
    assert fleet.visit(**start.file("brokerIP1=10.9.9.9")).said.code == 0
    visit = fleet.is_well(**start.file(f"bindAddress={fleet.hosts['new'].ip}"))
    assert not visit.codes() & {"bind-elsewhere", "address-elsewhere"}


@pytest.mark.parametrize(
    ("key", "code"),
    [
        ("bindAddress", "bind-elsewhere"),
        ("metricsAddress", "bind-elsewhere"),
        ("brokerIP1", "address-elsewhere"),
        ("brokerIP2", "address-elsewhere"),
    ],
)
def test_each_address_of_the_file_is_tried(key: str, code: str) -> None:
    """At a port that is free, whatever else listens there."""
    start = Start(Fleet("a"))
    fleet, host = start.fleet, start.fleet.hosts["new"]
    fleet.wait(host.seams.network.server(1, host.ip).listen(Factory()))
    lines = ("brokerName=new", "brokerRole=ASYNC_MASTER", "brokerId=0")
    told = fleet.visit(**start.file(*lines, f"{key}=10.9.9.9")).texts(code)
    assert [text.partition(": ")[2] for text in told] == [
        f"{key}=10.9.9.9 is no address of this machine"
    ]
    assert code not in fleet.is_well(**start.file(*lines, f"{key}={host.ip}")).codes()


def test_a_file_with_which_nothing_starts() -> None:
    start = Start()
    fleet = start.fleet
    for line, code in (
        ("brokerIP1=broker-a", "address-is-name"),
        ("namesrvAddr=a:1,b:2", "name-servers-misspelt"),
        ("brokerId=x", "file-wrong"),
    ):
        assert code in fleet.visit(**start.file(line)).codes("error"), code
    assert "key-unknown" in fleet.visit(**start.file("flushDiscType=x")).codes("warning")


def test_a_certificate_before_the_start() -> None:
    start = Start(Fleet("a"))
    fleet, host = start.fleet, start.fleet.hosts["new"]
    lines = ("brokerName=new", "brokerRole=ASYNC_MASTER", "brokerId=0", *LINES)
    for begins, ends, code in (
        (-9, -1, "certificate-ended"),
        (-9, 9, "certificate-ends"),
        (1, 9, "certificate-not-yet"),
    ):
        put_certificate(host, begins, ends)
        assert code in fleet.visit(**start.file(*lines)).codes(), code
    put_certificate(host, -9, 300)
    fleet.is_well(**start.file(*lines))


def test_too_few_open_files() -> None:
    """As `ulimit -n 1024` leaves; the process tells how many it may open."""
    start = Start()
    assert "may open 1024 files" in start.fleet.finds("few-files", **start.file(most_files=1024))
    start.fleet.is_well(**start.file(most_files=65536))


def test_a_slave_is_the_role_of_the_file() -> None:
    """What a master's file says needs no master."""
    start = Start(Fleet("a"))
    lines = ("brokerName=alone", f"brokerRole={BrokerRole.ASYNC_MASTER.value}", "brokerId=0")
    start.fleet.is_well(**start.file(*lines))
    nobody = f"haMasterAddress=10.9.9.9:{HA_PORT}"
    start.fleet.is_well(**start.file(*lines, nobody))
