"""`doctor` over simulated brokers: what it says of a healthy pair, and of what happens to it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import click
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from twisted.internet.defer import Deferred

from rmq_ha.admin import topic
from rmq_ha.admin.doctor.before import CODES
from rmq_ha.admin.doctor.brokers import metrics_at
from rmq_ha.admin.doctor.command import doctor, examine
from rmq_ha.admin.doctor.gather import Wanted
from rmq_ha.admin.doctor.rules import RULES
from rmq_ha.admin.options import Options
from rmq_ha.admin.output import Output
from rmq_ha.admin.session import FAILED, NO_ANSWER, NOT_FOUND, Session
from rmq_ha.app.live_check import examine_before_start
from rmq_ha.app.status.broker import BrokerStatus
from rmq_ha.app.status.health import Health
from rmq_ha.app.status.server import StatusServer
from rmq_ha.client.consume.push_consumer import PushConsumer
from rmq_ha.client.rules.consumer_settings import PushConsumerConfig
from rmq_ha.client.rules.messages import Message
from rmq_ha.client.rules.settings import ProducerConfig
from rmq_ha.client.send.producer import Producer
from rmq_ha.config.surroundings import Surroundings
from rmq_ha.model.status import BrokerRole
from rmq_ha.testing.brokers import NamesrvNode
from rmq_ha.testing.group import BrokerGroup
from tests.unit.admin.admin_kit import Said, say
from tests.unit.client.sim_cluster import SimCluster

NAMED = {"broker_name": "pair"}


@pytest.fixture
def pair() -> SimCluster:
    cluster = SimCluster()
    cluster.add("a", BrokerRole.SYNC_MASTER, broker=NAMED)
    cluster.add("b", BrokerRole.SLAVE, broker=NAMED | {"broker_id": 1})
    cluster.run(12)
    return cluster


def visit(cluster: Any, which: str = "", **more: Any) -> Said:
    return say(cluster, lambda s: examine(s, Wanted(which)), **more)


def codes(said: Said) -> set[str]:
    return {item["code"] for item in said.json["findings"] if item["severity"] != "note"}


def test_a_healthy_pair_and_what_could_not_be_looked_at(pair: SimCluster) -> None:
    said = visit(pair)
    assert said.code == 0, said.out
    assert said.json["healthy"]
    assert said.json["brokers"] == 2
    whys = {item["what"]: item["why"] for item in said.json["not_looked_at"]}
    address = pair.address("a")
    assert whys[f"/healthz and /metrics of pair {address}"] == "metricsPort is not set there"
    text = visit(pair, as_json=False).out
    assert "one-name-server: run a second one" in text
    assert "not looked at, because" in text
    assert "nothing to do" in text


def test_a_master_that_dies_and_a_slave_of_another_name(pair: SimCluster) -> None:
    pair.crash("a")
    pair.run(1)
    said = visit(pair)
    assert said.code == FAILED
    assert "no-master" in codes(said)


def test_a_replication_port_that_is_blocked(pair: SimCluster) -> None:
    """Clients reach the master; nobody follows. While somebody does, it is no fault."""
    pair.brokers["a"].configuration.store.ha_listen_port = 10999
    assert "ha-port-blocked" not in codes(visit(pair))
    pair.crash("b")
    pair.run(1)
    found = [i for i in visit(pair).json["findings"] if i["code"] == "ha-port-blocked"]
    assert pair.hosts["a"].ip + ":10999" in found[0]["text"]
    assert "haListenPort" in found[0]["fix"]


def test_a_slave_of_another_name_is_found_beside_the_master_that_misses_it() -> None:
    cluster = SimCluster()
    cluster.add("a", BrokerRole.SYNC_MASTER, broker=NAMED)
    cluster.add("b", BrokerRole.SLAVE, broker={"broker_name": "Pair", "broker_id": 1})
    cluster.run(12)
    said = visit(cluster)
    assert {"no-slave", "wrong-broker-name", "no-master"} <= codes(said)


def test_nobody_answers(pair: SimCluster) -> None:
    said = visit(pair, namesrv="10.9.9.9:1;nosuchname:1")
    assert said.code == NO_ANSWER
    assert codes(said) == {"name-server-silent", "name-unresolved"}


def test_one_broker_by_its_address(pair: SimCluster) -> None:
    """Without name servers, which is said; an address that is none is a finding."""
    said = visit(pair, pair.address("b"), namesrv="")
    assert said.code == 0, said.out
    assert "name servers" in {item["what"] for item in said.json["not_looked_at"]}
    said = visit(pair, pair.namesrv.address)
    assert (said.code, codes(said)) == (NO_ANSWER, {"not-allowed"})
    said = visit(pair, "other")
    assert said.code == NOT_FOUND
    assert "brokers: pair" in said.err


def member(cluster: SimCluster, name: str, expression: str, listen: Any) -> PushConsumer:
    consumer = PushConsumer(cluster.client(name), "workers", PushConsumerConfig())
    consumer.subscribe("Work", expression)
    consumer.register_message_listener(listen)
    cluster.wait(consumer.start())
    return consumer


def send(cluster: SimCluster, count: int) -> None:
    async def work() -> None:
        producer = Producer(cluster.client("maker"), ProducerConfig(producer_group="makers"))
        await producer.start()
        for number in range(count):
            await producer.send(Message("Work", b"m%d" % number, tags="a"))
        await producer.stop()

    cluster.wait(work())


def findings(said: Said) -> dict[str, str]:
    return {item["code"]: item["text"] for item in said.json["findings"]}


def test_groups_whose_members_differ_hang_or_are_gone(logged: list[Any]) -> None:
    """Two subscriptions; then one member whose listener never ends; then nobody."""
    cluster = SimCluster("one")
    create = topic.change_topic
    shape = {"queues": 2, "read_queues": None, "write_queues": None, "perm": None}
    say(cluster, lambda s: create(s, "Work", "", shape, is_new=True, yes=True, dry_run=False))
    member(cluster, "m1", "*", lambda messages, context: Deferred())
    second = member(cluster, "m2", "a", lambda messages, context: Deferred())
    cluster.run(3)
    told = findings(visit(cluster))["two-subscriptions"]
    assert "Work [*]" in told
    assert "Work [a]" in told
    cluster.wait(second.stop())
    send(cluster, 4)
    cluster.run(10)
    found = findings(visit(cluster))
    assert "two-subscriptions" not in found
    assert found["not-committing"].startswith("1 members, 4 messages wait")
    cluster.hosts["m1"].crash()
    cluster.run(1)
    assert "4 messages wait, and it has no member" in findings(visit(cluster))["no-members"]


async def scrape(cluster: SimCluster) -> dict[str, Any]:
    host = cluster.world.hosts["admin"].seams
    session = Session(host, Options(timeout_ms=2000), Output(True))
    return await metrics_at(session, f"{cluster.hosts['a'].ip}:5557")


def test_what_the_status_port_says(pair: SimCluster) -> None:
    """Its clock, its health and its counters."""
    controller = pair.brokers["a"]
    own = controller.configuration.ours
    own.metrics_port, own.metrics_address = 5557, ""
    assert "status-silent" in codes(visit(pair))
    server = StatusServer(pair.hosts["a"].seams, "rmqha", 5557, "")
    pair.wait(server.start())
    server.add(BrokerStatus(controller))
    metrics = pair.wait(Deferred.fromCoroutine(scrape(pair)))
    assert metrics["rmqha_replication_slaves"][0][1] == 1
    assert "rmqha_forced_deletions_total" in metrics
    server.health = lambda: Health(False, "no puts: the disk is full")
    found = findings(visit(pair))
    assert found["not-ready"] == "/healthz: not ready: no puts: the disk is full"
    assert "status-silent" not in found
    # the page's date is the real one, the simulated machines live in another year
    assert "clocks-apart" in found
    pair.wait(server.stop())


def test_two_masters_of_one_name_at_two_name_servers(pair: SimCluster) -> None:
    """Whoever asks one of them sees half of it; the doctor asks both."""
    other = NamesrvNode(pair.world.add("ns2"))
    other.start()
    named = NAMED | {"namesrv_addr": other.address}
    pair.add("c", BrokerRole.ASYNC_MASTER, broker=named)
    pair.run(12)
    assert codes(visit(pair)) == set()
    said = visit(pair, namesrv=f"{pair.namesrv.address};{other.address}")
    assert {"name-servers-differ", "two-masters", "id-taken"} <= codes(said)


def test_a_slave_that_stays_out(logged: list[Any]) -> None:
    """Its master has another log."""
    cluster = SimCluster()
    cluster.add("b", BrokerRole.ASYNC_MASTER, broker=NAMED)
    send_to_pair(cluster)
    cluster.crash("b")
    cluster.add("a", BrokerRole.SYNC_MASTER, broker=NAMED)
    send_to_pair(cluster)
    send_to_pair(cluster)
    out = {"ha_set_aside_diverged_tail": False}
    cluster.add("b", BrokerRole.SLAVE, broker=NAMED | {"broker_id": 1}, ours=out)
    cluster.run(20)
    said = visit(cluster)
    assert "diverged" in codes(said), said.out
    assert "Logs that part" in next(
        item["fix"] for item in said.json["findings"] if item["code"] == "diverged"
    )


class Group:
    """A DLedger group, as `say` wants it."""

    def __init__(self) -> None:
        self.group = BrokerGroup().start()
        self.world, self.namesrv = self.group.world, self.group.name_server

    def wait(self, later: Any, limit: float = 0.0) -> Any:
        return self.group.wait(Deferred.fromCoroutine(later))


def test_a_dledger_group_is_judged_as_one() -> None:
    """Its members have no port for slaves, and roles of their own; then its leader dies."""
    cluster = Group()
    cluster.group.run(40)
    said = visit(cluster)
    assert codes(said) == set(), said.out
    assert said.json["brokers"] == 3
    master = cluster.group.master()
    assert master is not None
    for member in cluster.group.members:
        if member is not master:
            cluster.group.kill(member)
    cluster.group.run(5)
    told = findings(visit(cluster))["members-missing"]
    assert told == "1 of its 3 members answer, which is no quorum: no puts"
    cluster.group.run(60)
    assert "no-leader" in codes(visit(cluster)), visit(cluster).out


def test_what_may_be_left_out() -> None:
    """And what is given is looked for."""
    given = doctor.make_context("doctor", []).params
    assert (given["which"], given["config"], given["store"]) == ("", None, None)
    with pytest.raises(click.UsageError, match="does not exist"):
        doctor.make_context("doctor", ["--config", "/no/such.properties"])


PATH = "/etc/broker.properties"


def with_file(cluster: SimCluster, text: str, host: str = "a", **more: Any) -> Said:
    """Run on the broker's machine, with its file."""
    machine = cluster.hosts[host]
    machine.disk.replace(PATH, text.encode())
    around = Surroundings({}, "/root", host, machine.ip, "/")
    wanted = Wanted(config=PATH, surroundings=around)
    return say(cluster, lambda s: examine(s, wanted), machine.seams, **more)


def file_of(cluster: SimCluster, name: str, role: BrokerRole, number: int, *more: str) -> str:
    lines = [
        "brokerName=pair",
        f"brokerIP1={cluster.hosts[name].ip}",
        f"namesrvAddr={cluster.namesrv.address}",
        f"brokerRole={role.value}",
        f"brokerId={number}",
        "storePathRootDir=/store",
        "mappedFileSizeCommitLog=32768",
        *more,
    ]
    return "\n".join(lines) + "\n"


def test_the_file_and_the_store_of_a_broker(pair: SimCluster) -> None:
    """Name servers are those of the file; what differs from the running broker is said."""
    text = file_of(pair, "a", BrokerRole.SYNC_MASTER, 0)
    said = with_file(pair, text, namesrv="")
    assert codes(said) <= {"no-room"}, said.out  # a simulated disk is a small one
    whats = [item["what"] for item in said.json["not_looked_at"]]
    assert "files of this machine" not in whats
    found = findings(with_file(pair, text + "fileReservedTime=24\nflushDiscType=SYNC_FLUSH\n"))
    assert found["file-differs"] == "it says fileReservedTime=24, the broker runs with 72"
    assert "did you mean flushDiskType?" in found["key-unknown"]
    assert "must be" in findings(with_file(pair, text + "brokerId=x\n"))["file-wrong"]
    found = findings(with_file(pair, text.replace("namesrvAddr=", "namesrvAddr=nowhere:1;")))
    assert "name-unresolved" in found


def test_a_store_whose_log_is_not_mounted(pair: SimCluster) -> None:
    """And whose topics cannot be read; its broker is dead."""
    host, text = pair.hosts["a"], file_of(pair, "a", BrokerRole.SYNC_MASTER, 0)
    send_to_pair(pair)
    pair.crash("a")
    pair.run(1)
    host.restart()
    host.disk.remove_tree("/store/commitlog")
    host.disk.replace("/store/config/topics.json", b"{")
    host.disk.replace("/store/setaside/diverged-0-9-1/about.json", b"{}")
    said = with_file(pair, text)
    assert {
        "not-running",
        "no-master",
        "log-missing",
        "stopped-unclean",
        "table-damaged",
    } <= codes(said)
    assert "diverged-0-9-1" in findings(said)["set-aside-left"]


def send_to_pair(cluster: SimCluster) -> None:
    async def work() -> None:
        producer = Producer(cluster.client("maker"), ProducerConfig(producer_group="makers"))
        await producer.start()
        await producer.send(Message("TBW102", b"one"))
        await producer.stop()

    cluster.wait(work())
    cluster.run(5)


def test_the_certificate_that_a_broker_shows() -> None:
    """One that ends soon, for another host: in its file, and at its port."""
    cluster = SimCluster()
    host = cluster.hosts["a"] = cluster.world.add("a")
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.fromtimestamp(host.seams.now_ms() / 1000, UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "elsewhere.example")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(now - timedelta(days=100))
        .not_valid_after(now + timedelta(days=3))
        .sign(key, hashes.SHA256())
    )
    options = {
        "tls.test.mode.enable": "false",
        "tls.server.certPath": "/cert.pem",
        "tls.server.keyPath": "/key.pem",
    }
    host.disk.replace("/cert.pem", made.public_bytes(Encoding.PEM))
    host.disk.replace(
        "/key.pem", key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    cluster.add("a", BrokerRole.ASYNC_MASTER, broker=NAMED, plugin_options=options)
    text = file_of(cluster, "a", BrokerRole.ASYNC_MASTER, 0, *map("=".join, options.items()))
    said = with_file(cluster, text)
    found = [item for item in said.json["findings"] if item["code"].startswith("certificate-")]
    where = {(item["code"], item["about"]) for item in found}
    address = cluster.address("a")
    assert ("certificate-of-another", address) in where, said.out
    assert {("certificate-ends", address), ("certificate-ends", "tls.server.certPath")} <= where


def before_start(cluster: SimCluster, host: Any, text: str) -> Said:
    """What `--check --live` says on a machine."""
    host.disk.replace("/b.properties", text.encode())
    around = Surroundings(
        environ={}, home="/", host_name="h", address=host.ip, directory="/", resolve=str
    )
    wanted = Wanted(config="/b.properties", surroundings=around)
    return say(cluster, lambda s: examine_before_start(s, wanted), host.seams, namesrv="")


def test_before_a_start_it_knows_whose_name_ports_and_store_are_taken(pair: SimCluster) -> None:
    master, other = pair.hosts["a"], pair.world.add("new")
    common = f"namesrvAddr={pair.namesrv.address}\nmappedFileSizeCommitLog=32768\n"
    root = pair.brokers["a"].store.root
    taken = f"{common}brokerName=pair\nbrokerIP1={master.ip}\nbindAddress={master.ip}\n"
    said = before_start(pair, master, f"{taken}storePathRootDir={root}\n")
    assert (said.code, {"port-taken", "store-open"} <= codes(said)) == (FAILED, True), said.out
    assert "id-in-use" not in codes(said)  # it is itself
    said = before_start(pair, other, f"{common}brokerName=pair\nstorePathRootDir=/s\n")
    assert (said.code, codes(said)) == (FAILED, {"id-in-use"})
    slave = "brokerRole=SLAVE\nbrokerId=2\nstorePathRootDir=/s\n"
    assert before_start(pair, other, f"{common}brokerName=pair\n{slave}").code == 0
    said = before_start(pair, other, f"{common}brokerName=none\n{slave}")
    assert codes(said) == {"slave-without-master"}
    said = before_start(pair, other, f"{common}brokerName=new\nstorePathRootDir=/s\n")
    assert (said.code, said.json["rules"]) == (0, len(CODES))
    assert {rule.code for rule in RULES} >= set(CODES)
