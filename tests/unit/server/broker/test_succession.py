"""Two masters of one name in a classic pair: one of them stands aside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from twisted.logger import capturedLogs, formatEvent

from rmq_ha.base.config.netty import NettyClientConfig
from rmq_ha.base.errors import RemotingConnectError
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.remoting.client import RemotingClient
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.requests import send_request
from rmq_ha.ops.app.status.broker import BrokerStatus
from rmq_ha.testing.brokers import NAMESRV_PORT, NamesrvNode
from tests.unit.client.sim_cluster import SimCluster
from tests.unit.server.broker.test_standing import lock

MASTER = BrokerRole.SYNC_MASTER
TOPIC = "TBW102"


class TwoMasters(SimCluster):
    """A master on machine `a`; `b` is its slave, or takes its place."""

    def __init__(self, *, java: bool = False) -> None:
        """:param java: the name server gives an id to whoever registered last, as 4.9's."""
        super().__init__()
        self.namesrv.configuration.namesrv_last_registration_wins = java
        host = self.world.add("asker")
        self.asker = RemotingClient(host.seams, NettyClientConfig())
        self.now_ms = host.now_ms
        self.asker_clock = host.seams.clock

    def add(self, name: str, role: BrokerRole = MASTER, **changes: dict[str, Any]) -> Any:
        number = 1 if role is BrokerRole.SLAVE else 0
        changes["broker"] = {
            "broker_name": "pair",
            "broker_id": number,
            **changes.get("broker", {}),
        }
        return super().add(name, role, **changes)

    def named(self, namesrv: NamesrvNode | None = None) -> str | None:
        """Where a name server sends producers."""
        routes = (namesrv or self.namesrv).namesrv.routes
        pair = routes.cluster_info().brokers.get("pair")
        return None if pair is None else pair.addresses.get(0)

    def ask(self, name: str, request: RemotingCommand) -> RemotingCommand:
        answer = self.wait(self.asker.invoke(self.address(name), request, 5000))
        assert isinstance(answer, RemotingCommand)
        return answer

    def send(self, name: str) -> RemotingCommand:
        return self.ask(name, send_request("p", TOPIC, 0, b"body", "", self.now_ms()))

    def accepts(self, name: str) -> bool:
        try:
            return self.send(name).code in (0, 11)
        except RemotingConnectError:  # of the connection before a crash
            return self.send(name).code in (0, 11)

    def is_aside(self, name: str, other: str) -> None:
        """It takes nothing, says why, and goes on saying so; the other one is found."""
        address = self.address(other)
        for _ in range(3):
            answer = self.send(name)
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert f"{address} is the master of this brokerName now" in (answer.remark or "")
            assert self.ask(name, lock("c")).code == ResponseCode.SERVICE_NOT_AVAILABLE
            health = BrokerStatus(self.brokers[name]).health()
            assert not health.is_ready
            assert address in health.reason
            assert self.named() == address
            assert self.accepts(other)
            self.run(31)

    def stop(self, name: str) -> None:
        """In an orderly way; its machine stays."""
        self.wait(self.brokers.pop(name).stop())

    def run(self, seconds: float) -> None:
        self.clock.run_for(seconds)


def lines(act: Callable[[], object]) -> list[str]:
    """What the log said meanwhile."""
    with capturedLogs() as events:
        act()
    return [formatEvent(event) for event in events]


def died_and_promoted(cluster: TwoMasters) -> None:
    """`a` was killed, and its slave `b` was started as the master."""
    cluster.add("a")
    cluster.add("b", BrokerRole.SLAVE)
    cluster.run(12)
    cluster.crash("a")
    cluster.stop("b")
    cluster.add("b")
    assert cluster.accepts("b")


@pytest.mark.parametrize("java", [False, True])
def test_an_old_master_that_starts_with_its_unchanged_file_stands_aside(*, java: bool) -> None:
    """What an enabled unit does after a reboot; five of six messages ended in `setaside`."""
    cluster = TwoMasters(java=java)
    died_and_promoted(cluster)
    told = lines(lambda: cluster.add("a"))
    begin = f"{cluster.address('b')} leads pair, and this broker was started as its master"
    assert [line for line in told if begin in line and "rmqha-admin demote" in line]
    cluster.is_aside("a", "b")
    rivals = cluster.namesrv.namesrv.routes.rivals(cluster.clock.seconds())
    assert [rival.address for rival in rivals] == [cluster.address("a")]
    cluster.stop("a")
    assert cluster.named() == cluster.address("b"), "its good-bye takes nobody out"


def test_it_does_not_go_on_by_itself_when_the_other_one_restarts() -> None:
    """It may lack what the other one has acknowledged: a person says who is the master."""
    cluster = TwoMasters()
    died_and_promoted(cluster)
    cluster.add("a")
    cluster.stop("b")
    cluster.run(40)
    assert cluster.named() is None
    assert not cluster.accepts("a")
    cluster.add("b")
    assert cluster.accepts("b")
    cluster.stop("b")
    cluster.stop("a")
    cluster.add("a")
    assert cluster.accepts("a"), "by hand: the new one is stopped, the old one started"
    assert cluster.named() == cluster.address("a")


def test_a_key_asks_nobody() -> None:
    cluster = TwoMasters()
    died_and_promoted(cluster)
    cluster.add("a", ours={"start_beside_another_master": True})
    assert cluster.accepts("a")
    assert cluster.named() == cluster.address("b"), "the name server remembers"


def frozen_and_promoted(cluster: TwoMasters) -> None:
    """`a` hears and says nothing for 40 s, and `b` is started as the master meanwhile."""
    cluster.add("a")
    cluster.add("b", BrokerRole.SLAVE)
    cluster.run(12)
    for host in ("ns", "b", "asker"):
        cluster.world.network.partition("a", host)
    cluster.run(40)
    cluster.stop("b")
    cluster.add("b")
    cluster.world.network.heal()


@pytest.mark.parametrize("java", [False, True])
def test_a_master_that_was_frozen_stands_aside(*, java: bool) -> None:
    """9,686 SEND_OK of such a master were set aside."""
    cluster = TwoMasters(java=java)
    told = lines(lambda: (frozen_and_promoted(cluster), cluster.run(35)))
    (line,) = [line for line in told if line.startswith("TWO MASTERS") and "no messages" in line]
    both = f"TWO MASTERS: {cluster.address('a')} and {cluster.address('b')} both register as pair/0"
    assert line.startswith(f"{both}; clients are sent to {cluster.address('b')}. ")
    cluster.is_aside("a", "b")


def test_the_newer_one_goes_on_beside_a_java_master_that_asks_nobody() -> None:
    """And says so once; the name server is one of 4.9, and the older one comes back to it."""
    cluster = TwoMasters(java=True)
    old = cluster.add("a", ours={"start_beside_another_master": True})
    cluster.run(5)
    cluster.add("b", ours={"start_beside_another_master": True})
    cluster.brokers["b"].configuration.ours.start_beside_another_master = False
    told = []
    for _ in range(2):
        cluster.wait(old.registration.register_all())
        assert cluster.named() == cluster.address("a")
        told += lines(lambda: cluster.run(31))
    goes_on = f"this broker, {cluster.address('b')}, started later and goes on. Stop "
    assert len([line for line in told if goes_on in line]) == 1
    assert cluster.accepts("b")


def test_a_name_server_that_knows_more_is_believed() -> None:
    """It refuses the registration, although no name server that was asked named another one."""
    cluster = TwoMasters()
    died_and_promoted(cluster)
    other = NamesrvNode(cluster.world.add("ns2"))
    other.start()
    names = f"{cluster.namesrv.address};{cluster.world.hosts['ns2'].ip}:{NAMESRV_PORT}"
    cluster.world.network.partition("a", "ns")
    cluster.add("a", broker={"namesrv_addr": names})
    assert cluster.named(other) == cluster.address("a"), "nobody else is there"
    cluster.world.network.heal()
    cluster.run(31)
    cluster.is_aside("a", "b")


@pytest.mark.parametrize("power", [False, True])
def test_a_slave_is_promoted_at_once_although_its_master_is_still_listed(*, power: bool) -> None:
    """`power`: the machine vanished, and the name server has not noticed."""
    cluster = TwoMasters()
    cluster.add("a")
    cluster.add("b", BrokerRole.SLAVE)
    cluster.run(12)
    cluster.crash("a", power=power)
    cluster.stop("b")
    assert (cluster.named() == cluster.address("a")) is power
    began = cluster.clock.seconds()
    cluster.add("b")
    assert cluster.clock.seconds() - began < (8 if power else 1)
    assert cluster.accepts("b")
    assert cluster.named() == cluster.address("b")


def test_a_pod_that_moves_there_and_back_serves_at_once() -> None:
    """Each time its old machine vanishes, and the name server still lists it for 120 s."""
    cluster = TwoMasters()
    for name in ("a", "b", "a"):
        cluster.add(name)
        assert cluster.accepts(name)
        assert cluster.named() == cluster.address(name)
        cluster.crash(name, power=True)


def test_a_restart_at_the_same_address_serves_at_once() -> None:
    cluster = TwoMasters()
    cluster.add("a")
    for _ in range(2):
        cluster.crash("a")
        cluster.add("a")
        assert cluster.accepts("a")
        assert cluster.named() == cluster.address("a")


def test_a_stranger_stops_no_master_of_trusted_ones() -> None:
    """haTrustedMasters says who may be the master of this name."""
    cluster = TwoMasters()
    cluster.add("a", ours={"ha_trusted_masters": "127.0.0.77"})
    cluster.add("b", ours={"start_beside_another_master": True})
    cluster.run(31)
    assert cluster.accepts("a")
    assert cluster.named() == cluster.address("a"), "it was found not to lead, as it may not"


def test_who_answers_nothing_of_itself_is_taken_for_a_master() -> None:
    """It lives, it registers as ours, and wants an account that this broker has not."""
    cluster = TwoMasters()
    accounts = "accounts:\n- accessKey: administrator\n  secretKey: '12345678'\n  admin: true\n"
    host = cluster.hosts["b"] = cluster.world.add("b")
    host.disk.replace("/conf/plain_acl.yml", accounts.encode())
    ours = {"acl_plug_in": "plain", "acl_directory": "/conf"}
    cluster.add("b", broker={"acl_enable": True}, ours=ours)
    cluster.add("a")
    assert cluster.send("a").code == ResponseCode.SERVICE_NOT_AVAILABLE


@pytest.mark.parametrize("power", [False, True])
def test_the_other_slaves_follow_a_promoted_one_within_2_s(*, power: bool) -> None:
    """
    They followed at their next registration, 18 to 25 s later, and sends were SLAVE_NOT_AVAILABLE.

    `power`: the name server lists the vanished master still, so registrations look well.
    """
    cluster = TwoMasters()
    cluster.add("a")
    cluster.add("b", BrokerRole.SLAVE)
    other = cluster.add("x", BrokerRole.SLAVE, broker={"broker_id": 2})
    cluster.run(12)
    cluster.crash("a", power=power)
    cluster.run(26 if power else 7)
    cluster.stop("b")
    cluster.add("b")
    began = cluster.clock.seconds()
    slaves = cluster.brokers["b"].journal.info
    cluster.clock.run_while(lambda: not slaves()["slaves"], 30)
    assert cluster.clock.seconds() - began < 2.5
    assert cluster.send("b").code == 0
    assert not other.standing.lacks_master
