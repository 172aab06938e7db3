"""Sets in controller mode whose replication port asks for TLS, certificates and the secret."""

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.testing.brokers import BrokerNode
from tests.sim_kit.controlled import ControlledBrokers, ControllerDesk
from tests.unit.base.tls.material import Files

ENFORCING = {
    "tls.ha.mode": "enforcing",
    "tls.ha.enable": "true",
    "tls.ha.allowedNames": "b0.x,b1.x",
}
SECRET = "a secret of the set"


def guarded(
    *roots: str, secrets: tuple[str, str] = (SECRET, SECRET), speaks_tls: tuple[bool, bool]
) -> ControlledBrokers:
    """
    Two brokers, the first of which leads.

    :param roots: who signed the certificate of each.
    """
    desk = ControllerDesk()
    hosts = [desk.world.add(f"b{number}") for number in range(2)]

    def change(configuration: BrokerConfiguration) -> None:
        number = [host.ip for host in hosts].index(configuration.broker.broker_ip1)
        configuration.ours.ha_secret = secrets[number]
        configuration.ours.ha_secret_required = bool(secrets[number])
        if not speaks_tls[number]:
            return
        files = Files()
        options = ENFORCING | files.put_root("tls.ha")
        options |= files.put_pair("tls.ha", hosts[number].ip, f"b{number}.x", root=roots[number])
        for path, data in files.items():
            hosts[number].seams.disk.replace(path, data)
        configuration.plugin_options.update(options)

    return ControlledBrokers(change=change, desk=desk, hosts=hosts)


def members(brokers: ControlledBrokers) -> list[int]:
    return list(brokers.desk.info()[1].members)


def state(node: BrokerNode) -> str:
    return str(node.store.journal.info()["master"]["state"])


def test_a_set_fails_over_by_tls_with_a_secret() -> None:
    brokers = guarded("ours", "ours", speaks_tls=(True, True))
    master = brokers.in_sync()
    slave = brokers.other(master)
    sent = [b"%d" % number for number in range(10)]
    assert [brokers.send(master, body) for body in sent] == [0] * 10
    master.crash(power=True)
    brokers.until(lambda: brokers.master() is slave)
    assert brokers.send(slave, b"after") == 0
    brokers.boot(master)
    brokers.in_sync()
    brokers.holds(master, [*sent, b"after"])
    assert state(master) == "following"
    assert not brokers.findings.violations


def test_a_broker_that_speaks_plain_is_no_slave() -> None:
    brokers = guarded("ours", "ours", speaks_tls=(True, False))
    brokers.run(20)
    assert len(members(brokers)) == 1
    assert state(brokers.nodes[1]) != "following"
    assert brokers.nodes[1].store.log.max_offset == 0
    assert brokers.send(brokers.leader(), b"one") == 0


def test_a_broker_with_a_certificate_of_another_root_is_no_slave() -> None:
    brokers = guarded("ours", "theirs", speaks_tls=(True, True))
    brokers.run(20)
    assert len(members(brokers)) == 1
    assert state(brokers.nodes[1]) != "following"


def test_a_broker_that_does_not_know_the_secret_is_no_slave() -> None:
    brokers = guarded(secrets=(SECRET, "another secret, longer"), speaks_tls=(False, False))
    brokers.run(20)
    assert len(members(brokers)) == 1
    assert state(brokers.nodes[1]) != "following"
    leader = brokers.nodes[0].replication
    assert leader.statistics().refused > 1


def test_a_door_that_is_open_when_the_lead_ends_is_closed() -> None:
    """A slave that proves the secret later meets no feed of a master that leads no more."""
    brokers = guarded(secrets=(SECRET, SECRET), speaks_tls=(False, False))
    master = brokers.in_sync()
    came = master.replication.master.listener.entrance.meet(None)
    assert came is not None
    aborted: list[bool] = []

    class Transport:
        def write(self, data: bytes) -> None:
            """The challenge."""

        def abortConnection(self) -> None:
            aborted.append(True)

    came.makeConnection(Transport())  # type: ignore[arg-type]
    master.replication.master.end("a test")
    assert aborted == [True]
    assert master.replication.master.listener.entrance.meet(None) is None
