"""Who cannot be reached, and why: each fault made in a pair that was well."""

from __future__ import annotations

from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.remoting.signing import Credentials
from rmq_ha.ops.admin.doctor.command import examine
from rmq_ha.ops.admin.doctor.gather import DoctorScope
from rmq_ha.testing.brokers import NamesrvNode
from rmq_ha.testing.cluster import HA_PORT, LISTEN_PORT
from tests.unit.ops.admin.admin_kit import say
from tests.unit.ops.admin.doctor.authority import OPTIONS, put_certificate
from tests.unit.ops.admin.doctor.fleet import STATUS_PORT, Fleet, whole_pair

ADMIN = Credentials("adminadmin", "adminsecret")


def test_one_of_two_name_servers_dies() -> None:
    fleet = whole_pair(name_servers=2)
    both = fleet.every_name_server
    assert "one-name-server" not in fleet.is_well(namesrv=both).codes()
    fleet.finds("one-name-server", namesrv=fleet.namesrv.address)
    dead = fleet.world.hosts["ns2"]
    dead.crash()
    fleet.run(1)
    assert dead.ip in fleet.finds("name-server-silent", namesrv=both)
    dead.restart()
    node = NamesrvNode(dead)
    node.start()
    fleet.run(31)
    fleet.is_well(namesrv=both)


def test_without_a_name_server_or_an_address_there_is_nobody_to_ask() -> None:
    said = say(whole_pair(), lambda session: examine(session, DoctorScope()), namesrv="")
    assert said.code
    assert "no name server: give --namesrv" in said.out + said.err


def test_a_name_server_that_nobody_knows_and_one_that_is_a_broker() -> None:
    """The first name is misspelt, then it has the port of a broker."""
    fleet = whole_pair()
    fleet.finds("name-unresolved", namesrv=f"{fleet.namesrv.address};nosuchname:9876")
    broker = fleet.address("a")
    assert "answered REQUEST_CODE_NOT_SUPPORTED" in fleet.finds(
        "no-name-server", namesrv=f"{fleet.namesrv.address};{broker}"
    )
    assert "one-name-server" in fleet.is_well().codes()


def test_a_name_server_of_others() -> None:
    """It is empty, until the brokers register there, too; one of them alone does not do."""
    fleet = whole_pair()
    other = fleet.second_name_server()
    assert other.address in fleet.finds("no-broker", namesrv=other.address)
    fleet.stop("b")
    both = fleet.every_name_server
    broker = {"broker_id": 1, "namesrv_addr": both}
    fleet.add("b", BrokerRole.SLAVE, broker=broker)
    fleet.run(12)
    fleet.is_well()
    told = fleet.finds("name-servers-differ", namesrv=both)
    assert f"{other.address}: none" in told
    fleet.stop("a")
    fleet.add("a", BrokerRole.SYNC_MASTER, broker={"namesrv_addr": both})
    fleet.run(12)
    fleet.is_well(namesrv=both)


def test_a_name_server_that_takes_no_more_topics() -> None:
    fleet = whole_pair()
    fleet.namesrv.configuration.max_topic_routes = 12
    for number in range(6):
        fleet.make_topic(f"Work{number}", 1)
    told = fleet.finds("topics-unrouted")
    assert "Work" in told
    fleet.namesrv.configuration.max_topic_routes = 1000
    fleet.run(31)
    fleet.is_well()


def test_a_slave_whose_machine_is_gone() -> None:
    """At once; the master believes in it for a while, then it says that it has none."""
    fleet = whole_pair()
    fleet.crash("b", power=True)
    assert fleet.address("b") in fleet.finds("broker-silent")
    fleet.run(25)
    fleet.finds("broker-silent", "no-slave")
    fleet.add("b", BrokerRole.SLAVE, broker={"broker_id": 1})
    fleet.run(12)
    fleet.is_well()


def test_a_broker_that_wants_tls() -> None:
    """And is asked without it."""
    fleet = Fleet(watched=True)
    fleet.add("a", options={"tls.server.mode": "enforcing"})
    fleet.run(5)
    one = {"which": fleet.address("a"), "namesrv": ""}
    assert fleet.address("a") in fleet.finds("speaks-otherwise", **one)
    fleet.finds("certificate-made-up", use_tls=True, **one)
    assert "TLS" in fleet.fix("registration-fails", use_tls=True, **one)


def test_a_broker_that_wants_certificates_does_not_count_this_command() -> None:
    """The look at its certificate shows one, too; without one there is no such look."""
    fleet = Fleet(watched=True)
    server = fleet.hosts["a"] = fleet.world.add("a")
    admin = fleet.world.add("admin")
    put_certificate(server, -3650, 3650)
    for name in ("/cert.pem", "/key.pem"):
        admin.disk.replace(name, server.disk.read_bytes(name))
    required = {"tls.server.need.client.auth": "require", "tls.server.authClient": "true"}
    trust = {"tls.server.trustCertPath": "/cert.pem"}
    fleet.add("a", options={**OPTIONS, **required, **trust, "tls.server.mode": "permissive"})
    fleet.run(5)
    own = {name.replace("server", "client"): value for name, value in OPTIONS.items()}
    one = {"which": fleet.address("a"), "namesrv": ""}
    visit = fleet.visit(use_tls=True, tls=own, **one)
    assert f"the certificate of pair {fleet.address('a')}" not in visit.not_looked
    assert "strangers" not in visit.codes()
    visit = fleet.visit(**one)
    assert "strangers" not in visit.codes()
    assert "give --tls-cert" in visit.not_looked[f"the certificate of pair {fleet.address('a')}"]


def test_a_broker_that_tells_only_admins() -> None:
    """Everybody else may read and write, and is not told how it is."""
    fleet = Fleet()
    account = "{accessKey: adminadmin, secretKey: adminsecret, admin: true}"
    fleet.add_guarded("a", f"accounts:\n- {account}\n")
    fleet.run(5)
    assert "accessKey" in fleet.finds("not-allowed")
    fleet.is_well(credentials=ADMIN)


def test_an_address_that_means_another_machine() -> None:
    """`brokerIP1` is the loopback address; then it is right."""
    fleet = Fleet()
    fleet.add("a", broker={"broker_ip1": "127.0.0.1"})
    fleet.run(5)
    fleet.finds("loopback-registered")
    fleet.stop("a")
    fleet.add("a")
    fleet.run(5)
    fleet.is_well()


def test_a_broker_in_a_container() -> None:
    """It registered the address that it has in there, which nobody reaches from outside."""
    fleet = Fleet()
    fleet.world.subnet = "172.17.0"
    fleet.add("a")
    fleet.world.subnet = "10.0.0"
    fleet.world.add("admin")
    fleet.run(5)
    fleet.is_well()  # from within Docker's network
    fleet.world.network.partition("admin", "a")
    fleet.finds("container-address")


def test_a_broker_far_away() -> None:
    fleet = whole_pair()
    network = fleet.world.network
    usual, network.latency = network.latency, (0.35, 0.35)
    assert "its answer took 1." in fleet.finds("broker-slow")
    network.latency = usual
    fleet.is_well()


def test_a_port_for_slaves_behind_a_firewall() -> None:
    """While its slave is connected nobody notices; then it is, and its master, too."""
    fleet = whole_pair()
    network = fleet.world.network
    network.block("a", HA_PORT)
    fleet.is_well()
    for end in network.connections_between("b", "a"):
        network.drop(end)
    fleet.run(5)
    told = fleet.finds("ha-port-blocked", "not-following", "no-slave")
    assert f"{fleet.hosts['a'].ip}:{HA_PORT}" in told
    network.heal()
    fleet.run(10)
    fleet.is_well()


def test_other_ports_behind_a_firewall() -> None:
    fleet = whole_pair(watched=True)
    fleet.world.network.block("a", LISTEN_PORT - 2)
    fleet.finds("fast-port-blocked")
    fleet.world.network.heal()
    fleet.world.network.block("a", STATUS_PORT)
    fleet.finds("status-silent")
    fleet.world.network.heal()
    fleet.is_well()


def test_a_broker_that_cannot_serve() -> None:
    """Its disk is full, and /healthz says so."""
    fleet = Fleet("a", watched=True)
    fleet.make_topic(queues=1)
    fleet.run(5)
    fleet.is_well()
    fleet.hosts["a"].disk.is_full = True
    fleet.send_anyway("Work", 12, 4000)
    assert "no puts" in fleet.finds("not-ready", "disk-full")
    fleet.hosts["a"].disk.is_full = False
    fleet.run(15)
    fleet.is_well()
