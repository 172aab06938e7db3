"""What could not be looked at is said, with the reason, and nothing else stops for it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol

from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.client.rules.listening import ConsumeConcurrentlyStatus
from rmq_ha.ops.admin.doctor import gather as gather_module
from rmq_ha.ops.admin.doctor.brokers import clock_ahead, samples_in
from rmq_ha.ops.admin.doctor.facts import BrokerFacts, ClusterFacts, NotLooked
from rmq_ha.ops.admin.doctor.gather import DoctorScope, gather
from rmq_ha.ops.admin.doctor.groups import first_that_answer
from rmq_ha.ops.admin.doctor.machine import look_at_store
from rmq_ha.ops.admin.doctor.probe import certificate_at, page_at, port_at
from rmq_ha.ops.admin.options import Options
from rmq_ha.ops.admin.output import Output
from rmq_ha.ops.admin.session import NOT_FOUND, Session
from rmq_ha.testing.host import World
from tests.unit.ops.admin.admin_kit import say
from tests.unit.ops.admin.doctor.authority import put_certificate
from tests.unit.ops.admin.doctor.fleet import STATUS_PORT, Fleet, whole_pair

NOT_TODAY = "not today"


def refuse(routes: dict[int, Any], code: int) -> None:
    """From now on."""

    def answer(*_: object) -> None:
        raise RequestRejected(1, NOT_TODAY)

    routes[code] = answer


def consumed(messages: Any, context: Any) -> ConsumeConcurrentlyStatus:
    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS


@pytest.fixture
def busy() -> Fleet:
    """A pair, and a group of two members, one queue of which is behind."""
    fleet = whole_pair()
    fleet.make_topic()
    for name in ("m1", "m2"):
        fleet.member(name, consumed)
    fleet.send("Work", 4)
    fleet.run(12)
    return fleet


NOT_TOLD = {
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: "all groups of pair",
    RequestCode.GET_ALL_CONSUMER_OFFSET: "all groups of pair",
    RequestCode.GET_TOPIC_STATS_INFO: "all groups of pair",
    RequestCode.GET_ALL_TOPIC_CONFIG: "parts of pair",
    RequestCode.GET_BROKER_RUNTIME_INFO: "parts of pair",
}


def test_what_a_broker_refuses_to_tell(busy: Fleet) -> None:
    routes = busy.brokers["a"].dispatcher.routes
    for code, what in NOT_TOLD.items():
        handler = routes[code]
        refuse(routes, code)
        visit = busy.visit(scope=DoctorScope(again_s=0))
        routes[code] = handler
        assert NOT_TODAY in visit.not_looked[f"{what} {busy.address('a')}"], code
        assert visit.said.json["brokers"] == 2


def test_a_broker_that_tells_nothing(busy: Fleet) -> None:
    refuse(busy.brokers["b"].dispatcher.routes, RequestCode.GET_BROKER_CONFIG)
    visit = busy.visit()
    assert NOT_TODAY in visit.not_looked[f"how pair {busy.address('b')} is"]


def test_a_member_that_does_not_say_what_it_subscribes(busy: Fleet) -> None:
    refuse(busy.brokers["a"].dispatcher.routes, RequestCode.GET_CONSUMER_RUNNING_INFO)
    found = busy.visit().not_looked
    asked = [what for what in found if what.endswith(" of workers subscribes")]
    assert len(asked) == 2
    assert all(NOT_TODAY in found[what] for what in asked)


def left_behind(fleet: Fleet) -> None:
    """The group has a member that takes nothing any more."""
    member = fleet.member("m3", lambda *_: Deferred())
    fleet.run(25)
    fleet.send("Work", 4)
    fleet.run(5)
    assert member.is_running


def test_whether_a_group_moves_takes_a_second_look(busy: Fleet) -> None:
    assert "what happens now" not in busy.visit(scope=DoctorScope(again_s=0)).not_looked
    left_behind(busy)
    assert (
        busy.visit(scope=DoctorScope(again_s=0)).not_looked["what happens now"] == "--look-again 0"
    )
    began = busy.clock.seconds()
    visit = busy.visit(scope=DoctorScope(again_s=3))
    assert 3 <= busy.clock.seconds() - began < 6
    assert "what happens now" not in visit.not_looked
    routes = busy.brokers["a"].dispatcher.routes
    offsets = routes[RequestCode.GET_ALL_CONSUMER_OFFSET]
    left = [1]

    def once(channel: Any, command: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise RequestRejected(1, NOT_TODAY)
        return offsets(channel, command)

    routes[RequestCode.GET_ALL_CONSUMER_OFFSET] = once
    why = busy.visit(scope=DoctorScope(again_s=3)).not_looked
    assert NOT_TODAY in why[f"offsets of pair {busy.address('a')} again"]


def test_offsets_are_looked_at_again_at_each_broker() -> None:
    """Also where only an address is known, and the broker says its name itself."""
    fleet = Fleet("a")
    fleet.add("c", broker={"broker_name": "alone"})
    fleet.run(5)
    fleet.make_topic(queues=1)
    fleet.member("m", consumed)
    fleet.send("Work", 4)
    fleet.run(12)
    for name in ("a", "c"):
        fleet.brokers[name].consumer_offsets.commit("workers", "Work", 0, 0)
    for which, names in (("", ["alone", "pair"]), (fleet.address("a"), ["pair"])):
        (group,) = facts_of(fleet, DoctorScope(which, again_s=0.5)).groups
        queues = [queue for queue in group.queues if queue.topic == "Work"]
        assert sorted(queue.broker for queue in queues) == names
        assert all(queue.later is not None for queue in queues), which


def test_a_name_server_that_does_not_tell(busy: Fleet) -> None:
    """Who may not know the topics sees the brokers; who tells no brokers is no name server."""
    routes = busy.namesrv.namesrv._server.dispatcher.routes
    refuse(routes, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    busy.is_well()
    refuse(routes, RequestCode.GET_BROKER_CLUSTER_INFO)
    visit = busy.visit()
    assert "no-name-server" in visit.codes("error"), str(visit)
    assert NOT_TODAY in "".join(visit.texts("no-name-server"))


def facts_of(fleet: Fleet, scope: DoctorScope, **options: Any) -> ClusterFacts:
    chosen = Options(namesrv=fleet.namesrv.address, timeout_ms=2000, **options)
    host = fleet.world.hosts.get("admin") or fleet.world.add("admin")
    session = Session(host.seams, chosen, Output(True))
    found: ClusterFacts = fleet.wait(gather(session, scope))
    return found


def test_what_is_gathered_of_a_healthy_pair(busy: Fleet) -> None:
    facts = facts_of(busy, DoctorScope(again_s=1))
    slave, master = facts.brokers
    assert (slave.broker_id, master.broker_id) == (1, 0), "slaves come first"
    assert master.ha is not None
    assert (master.ha.address, master.ha.problem) == (f"{master.host}:10912", None)
    assert slave.ha is None
    assert (slave.fast, master.fast) == tuple(
        type(master.ha)(f"{one.host}:10909") for one in (slave, master)
    )
    assert 0 < master.took_ms < 1000
    assert master.clock_ahead_ms is not None
    assert abs(master.clock_ahead_ms) < 1000
    assert "Work" in (master.topics or ())
    assert master.topics_changed_ms > 0
    (server,) = facts.name_servers
    assert "Work" in (server.topics or ())
    assert server.brokers == {"pair": {0: master.address, 1: slave.address}}
    (group,) = facts.groups
    assert (group.name, group.model, len(group.members)) == ("workers", "CLUSTERING", 2)
    assert len(group.subscriptions) == 2
    assert {subscribed["Work"] for subscribed in group.subscriptions.values()} == {"*"}
    assert group.enabled == {"pair": True}
    assert [(q.topic, q.queue, q.begin, q.end, q.offset) for q in group.queues] == [
        ("%RETRY%workers", 0, 0, 0, 0),
        *[("Work", number, 0, 1, 1) for number in range(4)],
    ]
    assert facts.controllers == []


def test_one_broker_or_cluster_is_picked_out(busy: Fleet) -> None:
    busy.add("c", broker={"broker_name": "alone", "broker_cluster_name": "Other"})
    busy.run(5)
    for which, names in (
        ("pair", ["pair", "pair"]),
        ("DefaultCluster", ["pair", "pair"]),
        ("Other", ["alone"]),
        ("", ["alone", "pair", "pair"]),
    ):
        assert [item.name for item in facts_of(busy, DoctorScope(which)).brokers] == names, which
    said = say(busy, lambda s: gather(s, DoctorScope("nobody")))
    assert (said.code, "(brokers: alone, pair)" in said.err) == (NOT_FOUND, True)


def test_a_status_port_that_only_its_machine_reaches() -> None:
    fleet = Fleet(watched=True)
    fleet.add("a").configuration.ours.metrics_address = "127.0.0.1"
    fleet.run(3)
    about = f"/healthz and /metrics of pair {fleet.address('a')}"
    why = fleet.visit(scope=DoctorScope(here="10.0.0.99")).not_looked[about]
    assert why == "it listens on 127.0.0.1 of its own machine only: run doctor there"
    there = fleet.visit(scope=DoctorScope(here=fleet.hosts["a"].ip), host=fleet.hosts["a"].seams)
    assert about not in there.not_looked


def test_a_status_port_that_does_not_answer_is_a_problem() -> None:
    fleet = Fleet(watched=True)
    fleet.add("a", BrokerRole.ASYNC_MASTER)
    fleet.run(3)
    (found,) = facts_of(fleet, DoctorScope(again_s=1)).brokers
    assert found.status is not None
    assert (found.status.problem, found.status.is_ready) == (None, True)
    assert found.status.address == f"{fleet.hosts['a'].ip}:{STATUS_PORT}"
    assert found.status.health.startswith("ready")
    assert found.status.metrics
    assert found.status.later
    found.status.later = {}
    fleet.world.network.block("a", STATUS_PORT, "admin")
    (found,) = facts_of(fleet, DoctorScope(again_s=1)).brokers
    assert found.status is not None
    assert found.status.problem


def test_a_certificate_that_is_not_shown() -> None:
    fleet = Fleet()
    fleet.add("a", options={"tls.server.mode": "disabled"})
    fleet.run(3)
    about = f"the certificate of pair {fleet.address('a')}"
    assert about not in fleet.visit().not_looked, "nobody relies on it"
    fleet.brokers["a"].configuration.plugin_options["tls.server.certPath"] = "/cert.pem"
    why = fleet.visit().not_looked[about]
    assert (
        why
        == "it shows no certificate: it speaks no TLS, or refuses the certificate of this command"
    )


def test_a_certificate_is_seen_at_once() -> None:
    fleet = Fleet("a")
    host = fleet.world.add("here").seams
    began = fleet.clock.seconds()
    found = fleet.wait(certificate_at(host, fleet.address("a"), 5.0))
    assert found.not_valid_after_utc
    assert fleet.clock.seconds() - began < 1


class Listener(Protocol):
    """Says something, and goes or stays."""

    def __init__(self, text: bytes, stays: bool) -> None:
        self._text, self._stays = text, stays

    def connectionMade(self) -> None:
        assert self.transport is not None
        self.transport.write(self._text)
        if not self._stays:
            self.transport.loseConnection()


def listening(world: World, text: bytes, *, stays: bool) -> str:
    host = world.add(f"server {len(world.hosts)}")
    factory = Factory.forProtocol(lambda: Listener(text, stays))
    host.seams.network.server(80, host.ip).listen(factory)
    return f"{host.ip}:80"


def outcome(world: World, work: Any) -> Any:
    """What it came to, and when."""
    results: list[Any] = []
    began = world.clock.seconds()
    Deferred.fromCoroutine(work).addBoth(results.append)
    world.clock.run_while(lambda: not results, 30)
    return getattr(results[0], "value", results[0]), world.clock.seconds() - began


def test_a_page_comes_whole_or_in_time() -> None:
    world = World(1)
    here = world.add("here").seams
    page = b"HTTP/1.0 200 OK\r\nDate:  x \r\n\r\nbody"
    found, _ = outcome(world, page_at(here, listening(world, page, stays=False), "/", 2.0))
    assert (found.code, found.headers, found.text) == (200, {"date": "x"}, "body")
    error, took = outcome(world, page_at(here, listening(world, page, stays=True), "/", 2.0))
    assert (str(error), 2 <= took < 2.5) == ("no whole answer within 2 s", True)
    error, _ = outcome(world, page_at(here, listening(world, b"", stays=False), "/", 2.0))
    assert str(error) == "the connection ended early"
    endless = b"HTTP/1.0 200 OK\r\n\r\n" + bytes((16 << 20) + 1)
    found, took = outcome(world, page_at(here, listening(world, endless, stays=True), "/", 9.0))
    assert (found.code, took < 9) == (200, True), "more than 16 MiB nobody needs"


def test_a_port_takes_connections_or_it_is_said_why() -> None:
    world = World(1)
    here = world.add("here").seams
    address = listening(world, b"", stays=True)
    found, _ = outcome(world, port_at(here, address, 2.0))
    assert found == (address, None)
    nobody = address.replace(":80", ":81")
    found, _ = outcome(world, port_at(here, nobody, 2.0))
    assert found.address == nobody
    assert found.problem
    found, _ = outcome(world, port_at(here, "10.0.0.1:x", 2.0))
    assert found.problem


def test_who_speaks_no_tls_shows_no_certificate() -> None:
    world = World(1)
    here = world.add("here").seams
    for text, stays in ((b"hello\r\n", True), (b"", False), (b"", True)):
        address = listening(world, text, stays=stays)
        error, took = outcome(world, certificate_at(here, address, 2.0))
        assert "shows no certificate" in str(error)
        assert (took >= 2) is (stays and not text)


def test_a_clock_is_read_off_a_page() -> None:
    """Which tells whole seconds: half of one is added."""
    now_ms = 1_700_000_000_000
    moment = datetime.fromtimestamp(now_ms / 1000 + 7, UTC)
    for date in (f"{moment:%a, %d %b %Y %H:%M:%S} GMT", f"{moment:%a, %d %b %Y %H:%M:%S} -0000"):
        assert clock_ahead(date, now_ms) == 7500
    assert clock_ahead("", now_ms) is None
    assert clock_ahead("yesterday", now_ms) is None


def test_what_is_no_metric_is_said() -> None:
    assert samples_in('a{b="c"} 2\na{b="d"} 3\n') == {"a": [({"b": "c"}, 2), ({"b": "d"}, 3)]}
    for text in ("a b c", "{", 'a{b="c} 2'):
        with pytest.raises(ValueError, match="/metrics cannot be read"):
            samples_in(text)


def test_a_store_is_looked_at_without_its_file() -> None:
    """Where the log is elsewhere only the file says; names of one that is not there stay empty."""
    disk = World(1).add("a").disk
    facts = ClusterFacts(now_ms=0)
    look_at_store(facts, disk, "/nowhere")
    assert facts.local is not None
    assert (facts.local.store, facts.local.is_there) == ("/nowhere", False)
    for name in ("commitlog/1", "commitlog/2", "consumequeue/T/0", "setaside/x"):
        disk.replace(f"/store/{name}", b"")
    disk.replace("/store/abort", b"")
    disk.replace("/store/config/topics.json", b"{")
    disk.replace("/store/config/delayOffset.json", b"{}")
    facts = ClusterFacts(now_ms=0)
    look_at_store(facts, disk, "/store")
    local = facts.local
    assert local is not None
    assert (local.log_files, local.queue_topics, local.has_abort) == (2, 1, True)
    assert local.set_aside == ["x"]
    assert local.damaged_tables == ["/store/config/topics.json"]
    assert local.free
    assert facts.not_looked == []


def test_whether_somebody_runs_on_a_store_says_only_its_file() -> None:
    fleet = Fleet("a")
    fleet.run(3)
    host = fleet.hosts["a"]
    about = "whether a broker runs on /store"
    visit = fleet.visit(scope=DoctorScope(store="/store"), host=host.seams)
    assert visit.not_looked[about] == "only --config says where"
    file = fleet.with_file("a", fleet.file_of("a"))
    assert about not in fleet.visit(**file).not_looked


def test_a_file_that_cannot_be_read_or_names_no_certificate() -> None:
    fleet = Fleet("a")
    file = fleet.with_file("a", fleet.file_of("a"))
    file["scope"] = file["scope"]._replace(config="/etc/nothing.properties")
    visit = fleet.visit(**file)
    assert "No such file or directory" in "".join(visit.texts("file-wrong"))
    lines = ("tls.test.mode.enable=false", "tls.server.certPath=/none", "tls.server.keyPath=/none")
    visit = fleet.visit(**fleet.with_file("a", fleet.file_of("a", *lines)))
    assert "/none" in visit.not_looked["certificates of tls.server"]
    put_certificate(fleet.hosts["a"], -1, 400)
    trusted = ("tls.test.mode.enable=false", "tls.client.trustCertPath=/cert.pem")
    host = fleet.hosts["a"]
    scope = fleet.with_file("a", fleet.file_of("a", *trusted))["scope"]
    session = Session(host.seams, Options(), Output(True))
    facts: ClusterFacts = fleet.wait(gather(session, scope))
    assert [item.where for item in facts.certificates] == ["tls.client.trustCertPath"]


def test_masters_that_only_their_slaves_know(monkeypatch: pytest.MonkeyPatch) -> None:
    """One port below the one that slaves follow, unless it was changed; of the same name only."""
    asked: list[str] = []
    names = {"10.0.0.1:10911": "a", "10.0.0.2:10911": "other", "10.0.0.3:10911": "c"}

    async def look(
        asker: Any, session: Any, facts: ClusterFacts, broker: BrokerFacts, here: str
    ) -> Any:
        asked.append(broker.address)
        if name := names.get(broker.address):
            broker.config = {"brokerName": name}
        return [NotLooked(broker.address, here)]

    monkeypatch.setattr(gather_module, "look_at_broker", look)

    def slave(name: str, address: str | None) -> BrokerFacts:
        link = {"master": {"address": address}}
        return BrokerFacts(address=f"{name}-slave", name=name, cluster="C", replication=link)

    facts = ClusterFacts(now_ms=0)
    facts.brokers = [
        slave("a", "10.0.0.1:10912"),
        slave("a", "10.0.0.1:10912"),
        slave("b", "10.0.0.2:10912"),
        slave("c", "10.0.0.3:10912"),
        slave("d", "10.0.0.4:10912"),
        slave("e", "10.0.0.9:10912"),
        slave("f", None),
        slave("g", "nowhere"),
        slave("", "10.0.0.7:10912"),
        BrokerFacts(address="10.0.0.9:10911", name="e"),
    ]
    whole = list(facts.brokers)
    work = gather_module._look_at_hidden_masters(None, None, facts, "here")  # type: ignore[arg-type]
    with pytest.raises(StopIteration):
        work.send(None)
    assert asked == [f"10.0.0.{number}:10911" for number in (1, 2, 3, 4)]
    new = facts.brokers[len(whole) :]
    assert [(item.address, item.name, item.cluster, item.broker_id) for item in new] == [
        ("10.0.0.1:10911", "a", "C", None),
        ("10.0.0.3:10911", "c", "C", None),
    ]
    assert [item.what for item in facts.not_looked] == ["10.0.0.1:10911", "10.0.0.3:10911"]


def test_who_speaks_for_a_name() -> None:
    """A master before a slave; of a group that elects, whom name servers call the master."""

    def one(address: str, role: str, broker_id: int, **config: str) -> BrokerFacts:
        known = {"brokerRole": role, "brokerName": "n", **config}
        return BrokerFacts(address=address, name="n", broker_id=broker_id, config=known)

    def first(*brokers: BrokerFacts) -> list[str]:
        facts = ClusterFacts(now_ms=0, brokers=list(brokers))
        return [item.address for item in first_that_answer(facts)]

    slave, master = one("s", "SLAVE", 1), one("m", "SYNC_MASTER", 0)
    assert first(slave, master) == first(master, slave) == ["m"]
    assert first(slave, one("t", "SLAVE", 2)) == ["s"]
    assert first(master, one("o", "ASYNC_MASTER", 0)) == ["m"]
    assert first(BrokerFacts(address="x", name="n"), slave) == ["s"]
    elects = {"enableDLegerCommitLog": "true"}
    members = [one(f"d{number}", "SLAVE", number, **elects) for number in (2, 0, 1)]
    assert first(*members) == ["d0"]
    nameless = BrokerFacts(address="y", config={"brokerName": "z"})
    assert first(master, nameless) == ["m", "y"]


def test_names_in_a_file_that_stand_for_nothing_are_said() -> None:
    fleet = Fleet("a")
    fleet.run(3)
    lines = ("haMasterAddress=nosuchname:10912", f"namesrvAddr={fleet.namesrv.address};gone:9876")
    visit = fleet.visit(**fleet.with_file("a", fleet.file_of("a", *lines)), namesrv="")
    said = "".join(visit.texts("name-unresolved"))
    assert "nosuchname" in said
    assert "gone" in said
