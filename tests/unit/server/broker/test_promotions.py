"""Of two masters of one name, the one that was promoted last goes on, whatever started when."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from rmq_ha.base.model.status import BrokerRole
from rmq_ha.testing.cluster import ROOT
from tests.unit.server.broker.test_succession import TwoMasters, died_and_promoted, lines

SLAVE = BrokerRole.SLAVE


class AmnesicCluster(TwoMasters):
    """`TwoMasters` whose name server may lose its memory."""

    def restart_namesrv(self) -> None:
        """The name server is killed and comes back; it keeps nothing."""
        self.namesrv.host.crash(power=False)
        self.namesrv.start()

    def two_rounds(self) -> None:
        """Let each broker register twice, and so look for the other one twice."""
        self.run(62)

    def count(self, name: str) -> int:
        return int(self.brokers[name].promotions.count)


def started_without_name_server(cluster: AmnesicCluster) -> None:
    """`a` starts while no name server answers, and the name server forgets who had the id."""
    died_and_promoted(cluster)
    cluster.world.network.partition("a", "ns")
    cluster.add("a")
    assert cluster.accepts("a"), "it cannot know better"
    cluster.restart_namesrv()
    cluster.world.network.heal()
    cluster.two_rounds()


def all_lost_power(cluster: AmnesicCluster) -> None:
    """The old master boots before the promoted one, and the name server knows neither of them."""
    died_and_promoted(cluster)
    cluster.crash("b", power=True)
    cluster.restart_namesrv()
    cluster.add("a")
    assert cluster.accepts("a"), "it is alone"
    cluster.add("b")
    cluster.two_rounds()


def booted_while_the_promoted_one_was_down(cluster: AmnesicCluster) -> None:
    """The name server saw that the id went back to the old master, and keeps it for the old one."""
    died_and_promoted(cluster)
    cluster.crash("b")
    cluster.add("a")
    cluster.run(31)
    cluster.add("b")
    cluster.two_rounds()


@pytest.mark.parametrize("java", [False, True])
@pytest.mark.parametrize(
    "happens", [started_without_name_server, all_lost_power, booted_while_the_promoted_one_was_down]
)
def test_the_promoted_broker_goes_on(
    happens: Callable[[AmnesicCluster], None], *, java: bool
) -> None:
    """It stood aside for the old master, which had started later, with all that it had taken."""
    cluster = AmnesicCluster(java=java)
    told = lines(lambda: happens(cluster))
    goes_on = f"this broker, {cluster.address('b')}, was promoted later and goes on. Stop "
    assert [line for line in told if goes_on in line]
    cluster.is_aside("a", "b")


def test_the_count_goes_with_the_master_to_and_fro() -> None:
    """The last of three promotions counts, and each broker has it on its disk."""
    cluster = AmnesicCluster()
    died_and_promoted(cluster)
    cluster.add("a", SLAVE)
    cluster.run(12)
    assert (cluster.count("a"), cluster.count("b")) == (1, 1)
    cluster.crash("b")
    cluster.stop("a")
    cluster.add("a")
    assert cluster.count("a") == 2
    cluster.world.network.partition("b", "ns")
    cluster.add("b")
    cluster.restart_namesrv()
    cluster.world.network.heal()
    cluster.two_rounds()
    cluster.is_aside("b", "a")


def test_an_operator_who_starts_a_broker_that_stood_aside_is_obeyed() -> None:
    """As its log line says: the other one is stopped, and this one is started again."""
    cluster = AmnesicCluster()
    died_and_promoted(cluster)
    cluster.add("a")
    cluster.stop("b")
    cluster.stop("a")
    cluster.add("a")
    cluster.restart_namesrv()
    cluster.add("b")
    cluster.two_rounds()
    cluster.is_aside("b", "a")


def test_a_slave_whose_file_is_changed_while_its_master_leads_stands_aside_at_each_start() -> None:
    """It never led, so its start is no promotion, even if it is started twice."""
    cluster = AmnesicCluster()
    cluster.add("a")
    cluster.add("b", SLAVE)
    cluster.run(12)
    for _ in range(2):
        cluster.stop("b")
        cluster.add("b")
        cluster.is_aside("b", "a")
    assert cluster.count("b") == 0


def test_a_count_that_was_copied_proves_no_promotion() -> None:
    """The master has lost its file; its slave, started as a master by hand, must not replace it."""
    cluster = AmnesicCluster()
    died_and_promoted(cluster)
    cluster.add("a", SLAVE)
    cluster.run(12)
    cluster.stop("b")
    for end in ("", ".bak"):
        cluster.hosts["b"].disk.damage(f"{ROOT}/config/promotions.json{end}", None)
    cluster.add("b")
    assert (cluster.count("a"), cluster.count("b")) == (1, 0)
    cluster.stop("a")
    cluster.add("a")
    cluster.is_aside("a", "b")


@pytest.mark.parametrize("java", [False, True])
def test_the_id_is_taken_back_once_from_a_master_that_tells_no_count(*, java: bool) -> None:
    """
    It may be a broker of Java that asks nobody. A name server of rmq-ha refuses it from then on; at
    one of Java (`java`) two masters would take messages for good.
    """
    cluster = AmnesicCluster(java=java)
    died_and_promoted(cluster)
    cluster.world.network.partition("a", "ns")
    accounts = "accounts:\n- accessKey: administrator\n  secretKey: '12345678'\n  admin: true\n"
    cluster.hosts["a"].disk.replace("/conf/plain_acl.yml", accounts.encode())
    ours = {"acl_plug_in": "plain", "acl_directory": "/conf", "start_beside_another_master": True}
    cluster.add("a", broker={"acl_enable": True}, ours=ours)
    cluster.restart_namesrv()
    cluster.world.network.heal()
    told = lines(lambda: [cluster.two_rounds() for _ in range(3)])
    goes_on = f"this broker, {cluster.address('b')}, was promoted and goes on. Stop "
    assert len([line for line in told if goes_on in line]) == 1
    assert (cluster.brokers["b"].standing.successor == cluster.address("a")) is java
    assert cluster.named() == cluster.address("a" if java else "b")
    assert cluster.accepts("b") is not java


def test_a_damaged_file_is_read_from_its_backup() -> None:
    """The backup says that the broker was a slave, so that its start counts as the promotion."""
    cluster = AmnesicCluster()
    died_and_promoted(cluster)
    cluster.stop("b")
    path, disk = f"{ROOT}/config/promotions.json", cluster.hosts["b"].disk
    assert json.loads(disk.read_bytes(path)) == {"promotions": 1, "isOwn": True}
    disk.damage(path, b"{")
    cluster.add("b")
    assert json.loads(disk.read_bytes(path)) == {"promotions": 1, "isOwn": True}
