"""A host that is nobody of ours, beside a name server, a master and a slave that have accounts."""

from collections.abc import Callable
from typing import Any

from twisted.internet.protocol import Factory, Protocol

from rmq_ha.base.config.netty import NettyClientConfig
from rmq_ha.base.model.broker_identity import BrokerIdentity
from rmq_ha.base.model.status import BrokerRole, FlushDiskType
from rmq_ha.base.remoting.client import RemotingClient
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.testing.brokers import BrokerNode, NamesrvNode
from rmq_ha.testing.cluster import HA_PORT, LISTEN_PORT, small_configuration
from rmq_ha.testing.findings import Findings
from rmq_ha.testing.host import SimHost, World


class Ear(Protocol):
    """Takes what comes, says nothing."""

    def __init__(self, heard: bytearray) -> None:
        self._heard = heard

    def dataReceived(self, data: bytes) -> None:
        self._heard += data


class Site:
    """
    :param change: gets the configuration of each broker before its start.
    :param allowed: of the name server, `namesrvAllowedBrokers`.
    :ivar heard: what came to the stranger's ports.
    """

    def __init__(
        self, change: Callable[[Any], None] = lambda configuration: None, allowed: str = ""
    ) -> None:
        self.world = World(31, subnet="10.0.0")
        self.findings = Findings()
        self.name_server = NamesrvNode(self.world.add("namesrv"))
        self.name_server.configuration.namesrv_allowed_brokers = allowed
        self.master = self._broker("m", BrokerRole.ASYNC_MASTER, 0, change)
        self.slave = self._broker("s", BrokerRole.SLAVE, 1, change)
        self.stranger = self.world.add("stranger")
        self.client = RemotingClient(self.stranger.seams, NettyClientConfig())
        self.heard = bytearray()
        factory: Any = Factory()
        factory.buildProtocol = lambda address: Ear(self.heard)
        for port in (LISTEN_PORT - 2, LISTEN_PORT, HA_PORT):
            self.stranger.network.server(port).listen(factory)

    def _broker(
        self, name: str, role: BrokerRole, number: int, change: Callable[[Any], None]
    ) -> BrokerNode:
        host = self.world.add(name)
        configuration = small_configuration(host.ip, role, FlushDiskType.ASYNC_FLUSH, number)
        configuration.ours.acl_access_key = "the-broker"
        configuration.ours.acl_secret_key = "12345678"
        change(configuration)
        return BrokerNode(host, configuration, self.findings, self.name_server.address)

    def start(self) -> "Site":
        self.name_server.start()
        for broker in (self.master, self.slave):
            broker.load()
            broker.start()
        self.run(15)
        return self

    def run(self, seconds: float) -> None:
        self.world.clock.run_until(self.world.clock.seconds() + seconds)

    def ask(self, code: int, ext: dict[str, str], host: SimHost | None = None) -> RemotingCommand:
        """As the stranger, or from another machine."""
        client = self.client
        if host is not None:
            client = RemotingClient(host.seams, NettyClientConfig())
        answers: list[Any] = []
        address = self.name_server.address
        client.invoke(address, RemotingCommand(code, ext=ext), 3000).addBoth(answers.append)
        self.run(1)
        assert isinstance(answers[0], RemotingCommand), answers
        return answers[0]

    def follow(self) -> bytearray:
        """The stranger as a slave with an empty store; what the master sends, as it comes."""
        got = bytearray()
        factory: Any = Factory()
        factory.buildProtocol = lambda address: Ear(got)
        seen: list[Any] = []
        endpoint = self.stranger.network.client(self.master.host.ip, HA_PORT)
        endpoint.connect(factory).addBoth(seen.append)
        self.run(1)
        (ear,) = seen
        ear.transport.write(bytes(8))
        return got

    def register_as_master(self) -> RemotingCommand:
        ip = self.stranger.ip
        evil = BrokerIdentity(
            "DefaultCluster", "broker-a", 0, f"{ip}:{LISTEN_PORT}", f"{ip}:{HA_PORT}"
        )
        return self.ask(RequestCode.REGISTER_BROKER, evil.to_ext())

    @property
    def masters(self) -> dict[int, str]:
        routes = self.name_server.namesrv.routes
        return dict(routes._brokers["broker-a"].addresses)


def only_ours(configuration: Any) -> None:
    configuration.ours.ha_trusted_masters = "10.0.0.2, 10.1.0.0/16"


def test_a_slave_neither_follows_nor_asks_a_master_that_it_does_not_trust() -> None:
    """It asked the evil address for all tables, with signed requests."""
    site = Site(only_ours).start()
    asked = site.slave.broker.slave_synchronize
    assert asked.statistics().master == f"{site.master.host.ip}:{LISTEN_PORT}"
    link = site.slave.replication.statistics().master
    assert (link.address, link.state) == (f"{site.master.host.ip}:{HA_PORT}", "following")
    site.register_as_master()
    site.world.network.partition("m", "namesrv")  # so that it stays so
    site.run(100)
    assert bytes(site.heard) == b""
    assert asked.statistics().master is None
    assert site.slave.broker.masters.refused > 0
    link = site.slave.replication.statistics().master
    assert (link.address, link.state) == (f"{site.master.host.ip}:{HA_PORT}", "following")


def test_a_stranger_gets_nothing_of_the_log_while_the_slave_does() -> None:
    """It read the whole log, and its acknowledgements were SEND_OK without a replica."""

    def change(configuration: Any) -> None:
        configuration.ours.ha_allowed_slaves = "10.0.0.3"

    site = Site(change).start()
    got = site.follow()
    site.run(5)
    assert bytes(got) == b""
    statistics = site.master.replication.statistics()
    assert statistics.refused == 1
    assert [slave.address.partition(":")[0] for slave in statistics.slaves] == ["10.0.0.3"]


def test_a_stranger_registers_nothing_and_removes_nobody() -> None:
    """Clients and the slave followed it, with one request."""
    site = Site(allowed="10.0.0.2, 10.0.0.3").start()
    before = site.masters
    assert sorted(before) == [0, 1]
    answer = site.register_as_master()
    assert answer.code == 16
    assert "namesrvAllowedBrokers" in str(answer.remark)
    address = f"{site.master.host.ip}:{LISTEN_PORT}"
    honest = BrokerIdentity("DefaultCluster", "broker-a", 0, address)
    assert site.ask(RequestCode.UNREGISTER_BROKER, honest.to_ext()).code == 16
    site.run(100)
    assert site.masters == before
    assert bytes(site.heard) == b""
    assert site.name_server.namesrv.addresses.refused == 2


def test_a_pair_that_shares_a_secret_and_a_stranger_that_does_not() -> None:
    def change(configuration: Any) -> None:
        configuration.ours.ha_secret = "correct horse battery"
        configuration.ours.ha_secret_required = True

    site = Site(change).start()
    link = site.slave.replication.statistics().master
    assert link.state == "following"
    got = site.follow()
    site.run(10)
    assert len(got) == 44  # the challenge
    assert site.master.replication.statistics().refused == 1


def test_a_name_server_with_accounts_takes_brokers_that_sign() -> None:
    """All of a broker's calls are signed with aclAccessKey; nobody else registers, or changes."""
    site = Site()
    rules = b'accounts:\n- {accessKey: the-broker, secretKey: "12345678", admin: true}\n'
    site.name_server.host.disk.replace("/conf/plain_acl.yml", rules)
    site.name_server.configuration.acl_enable = True
    site.name_server.configuration.acl_directory = "/conf"
    site.start()
    before = site.masters
    assert sorted(before) == [0, 1]
    assert site.register_as_master().code == 1
    wiped = site.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"})
    assert (wiped.code, "No accessKey" in str(wiped.remark)) == (1, True)
    assert site.ask(RequestCode.GET_BROKER_CLUSTER_INFO, {}).code == 0
    site.run(200)
    assert site.masters == before
