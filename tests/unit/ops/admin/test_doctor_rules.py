"""Each rule of `doctor` finds the fault that it is for, and has nothing to say without it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.tls.files import certificate_names, self_signed
from rmq_ha.base.wire.door_facts import DOOR
from rmq_ha.base.wire.pop_reports import InFlightReport, QueueOut
from rmq_ha.base.wire.stat_bodies import Connection
from rmq_ha.ops.admin.doctor.facts import (
    CertificateFacts,
    ClusterFacts,
    Controller,
    DeadLetterFacts,
    GroupFacts,
    LeaderlessSet,
    NameServer,
    PopFacts,
    Port,
    QueueFacts,
    SetMember,
    UnreadableQueues,
)
from rmq_ha.ops.admin.doctor.files import MADE_UP
from rmq_ha.ops.admin.doctor.findings import Rule, judge
from rmq_ha.ops.admin.doctor.local import LocalFacts
from rmq_ha.ops.admin.doctor.rules import RULES
from rmq_ha.ops.app.status.catalogue import CATALOGUE
from tests.unit.ops.admin.doctor_facts import (
    HOUR,
    MASTER,
    NOW,
    SECOND,
    SLAVE,
    Spoil,
    broker,
    having,
    healthy,
    master,
    setting,
    slave,
    told,
)


def server(facts: ClusterFacts) -> NameServer:
    return facts.name_servers[0]


def stand_in(facts: ClusterFacts, **more: Any) -> None:
    facts.brokers.append(broker(SECOND, **more))


def stands_aside(facts: ClusterFacts) -> None:
    stand_in(facts)
    facts.brokers[-1].replication["stands_aside_for"] = MASTER


def wrong_name(facts: ClusterFacts) -> None:
    master(facts).replication["slaves"] = []
    facts.brokers[0] = broker(SLAVE, "Pair", 1)


REACH: dict[str, Spoil] = {
    "name-server-silent": having(server, problem="refused", brokers={}),
    "name-unresolved": having(server, resolves=False, problem="unknown name", brokers={}),
    "no-name-server": having(server, refused="it answered REQUEST_CODE_NOT_SUPPORTED", brokers={}),
    "one-name-server": lambda facts: facts.name_servers.pop(),
    "no-broker": lambda facts: [item.brokers.clear() for item in facts.name_servers],
    "name-servers-differ": lambda facts: server(facts).brokers["pair"].pop(1),
    "topics-unrouted": having(server, topics=frozenset({"Other"})),
    "broker-silent": having(
        slave, config={}, problem="timed out", plain=Port(SLAVE, "refused"), replication={}
    ),
    "speaks-otherwise": having(slave, config={}, problem="timed out", replication={}),
    "loopback-registered": having(master, address="127.0.0.1:10911"),
    "container-address": having(master, address="172.17.0.4:10911", config={}, problem="timed out"),
    "broker-slow": having(master, took_ms=1800),
    "ha-port-blocked": lambda facts: (
        having(master, ha=Port("10.0.0.1:10912", "timed out"))(facts),
        master(facts).replication["slaves"].clear(),
    ),
    "not-allowed": having(slave, config={}, refused="no permission", replication={}),
    "fast-port-blocked": having(slave, fast=Port("10.0.0.2:10909", "refused")),
    "status-silent": lambda facts: having(lambda f: master(f).status, problem="refused")(facts),
    "not-ready": lambda facts: having(
        lambda f: master(f).status, is_ready=False, health="not ready: no puts"
    )(facts),
}
IDENTITY: dict[str, Spoil] = {
    "name-differs": setting(master, brokerName="other"),
    "cluster-differs": setting(master, brokerClusterName="Other"),
    "id-differs": setting(slave, brokerId="2"),
    "role-and-id": setting(slave, brokerRole="ASYNC_MASTER"),
    "id-taken": lambda facts: stand_in(facts, broker_id=1),
    "slave-unregistered": lambda facts: (
        master(facts).replication["slaves"].append({"address": "10.0.0.9:40001"})
    ),
    "two-masters": stand_in,
    "master-aside": stands_aside,
    "no-master": lambda facts: (
        facts.brokers.pop(),
        slave(facts).replication["master"].update(state="unreachable"),
    ),
    "master-unregistered": lambda facts: facts.brokers.pop(),
    "wrong-broker-name": wrong_name,
    "no-slave": lambda facts: master(facts).replication["slaves"].clear(),
    "no-copy": lambda facts: (
        master(facts).replication["slaves"].clear(),
        setting(master, brokerRole="ASYNC_MASTER")(facts),
    ),
    "alone-in-set": lambda facts: (
        master(facts).replication["slaves"].clear(),
        setting(master, enableControllerMode="true")(facts),
    ),
    "settings-differ": setting(slave, fileReservedTime="48"),
    "versions-differ": told(slave, brokerVersionDesc="V4_9_8"),
    "two-kinds": having(slave, replication={}),
    "not-writable": setting(master, brokerPermission="4"),
    "sends-refused-until": setting(master, startAcceptSendRequestTimeStamp=str(NOW + 60_000)),
    "auto-create": lambda facts: (
        stand_in(facts, autoCreateTopicEnable="true"),
        setting(master, autoCreateTopicEnable="true")(facts),
    ),
}


def link(**values: object) -> Spoil:
    """Have the slave say something else of its link."""
    return lambda facts: slave(facts).replication["master"].update(values)


def metric(name: str, value: float, later: float | None = None, **labels: str) -> Spoil:
    """Of the master, at the first look and at the second."""

    def spoil(facts: ClusterFacts) -> None:
        status = master(facts).status
        assert status is not None
        status.metrics[name] = [(labels, value)]
        if later is not None:
            facts.again_s = 6.0
            status.later[name] = [(labels, later)]

    return spoil


def group(**more: Any) -> Spoil:
    def spoil(facts: ClusterFacts) -> None:
        change_group(facts, **more)

    return spoil


def change_group(facts: ClusterFacts, **more: Any) -> None:
    """Another group than that of the healthy cluster."""
    facts.again_s = 6.0
    facts.groups.append(GroupFacts(name="workers", **more))


def queue(**more: Any) -> QueueFacts:
    values = {"broker": "pair", "topic": "Work", "queue": 0, "begin": 0, "end": 10, "offset": 10}
    return QueueFacts(**(values | more))


def members(count: int) -> dict[str, Connection]:
    return {f"c{n}": Connection(f"c{n}", f"10.0.2.{n}:50000", "JAVA", 401) for n in range(count)}


def ledger(**values: Any) -> Spoil:
    """The master leads a DLedger group, and says this of its ledger."""
    usual = {"refuses": "", "stalled_seconds": 0.0, "lacks": {}}
    return lambda facts: master(facts).replication.update(ledger={**usual, **values})


def lacks(seconds: float) -> Spoil:
    return ledger(lacks={"n1": {"entries": 7, "seconds": seconds}})


def lone(facts: ClusterFacts) -> None:
    for item in facts.brokers:
        item.config["enableDLegerCommitLog"] = "true"
        item.broker_id = 2


REPLICATION: dict[str, Spoil] = {
    "diverged": link(state="diverged", fault="nothing in common: empty the store"),
    "slave-stranded": link(state="stranded", fault="this slave's log ends at 109"),
    "log-unreadable": link(state="unreadable", fault="no record at 4390"),
    "not-following": link(state="unreachable", address=None),
    "master-silent": link(silent_ms=12_000),
    "slave-behind": lambda facts: master(facts).slaves[0].update(lag=9000, lag_seconds=8.0),
    "slave-ahead": told(slave, commitLogMaxOffset="5001"),
    "tables-old": lambda facts: slave(facts).replication.update(tables_seconds=90.0),
    "slave-lacks-topics": lambda facts: (
        slave(facts).replication.update(tables_seconds=50.0),
        having(slave, topics=frozenset())(facts),
    ),
    "slave-lacks-history": told(slave, commitLogMinOffset=str(3 << 30)),
    "tail-set-aside": link(set_aside=1),
    "follows-another": link(address="10.0.0.9:10912"),
    "no-leader": lone,
    "member-refuses": ledger(refuses="its disk is 93% full"),
    "member-behind": lacks(10.0),
    "nothing-committed": ledger(stalled_seconds=10.0),
    "members-missing": setting(
        master, enableDLegerCommitLog="true", dLegerSelfId="n0", dLegerPeers="n0-a:1;n1-b:1;n2-c:1"
    ),
}


def controllers(*found: Controller) -> Spoil:
    return lambda facts: facts.controllers.extend(found)


DEAD = Controller("10.0.3.1:9878", "refused")
ALIVE = Controller("10.0.3.2:9878", leader="10.0.3.2:9878")
ONE = SetMember(1, "10.0.0.1:10911", alive=False)
TWO = SetMember(2, "10.0.0.2:10911", alive=True)


def leaderless(*in_sync: SetMember, others: tuple[SetMember, ...] = ()) -> Spoil:
    return lambda facts: (
        facts.controllers.append(ALIVE),
        facts.leaderless.append(LeaderlessSet("pair", in_sync, others)),
    )


def unregistered(facts: ClusterFacts) -> None:
    for item in facts.name_servers:
        item.brokers.clear()


CONTROLLERS: dict[str, Spoil] = {
    "nobody-leads": leaderless(ONE, others=(TWO,)),
    "no-controller": controllers(DEAD, Controller("10.0.3.2:9878")),
    "controller-silent": controllers(DEAD, ALIVE),
}
RESOURCES: dict[str, Spoil] = {
    "clocks-apart": having(master, clock_ahead_ms=3_600_000),
    "disk-full": told(master, commitLogDiskRatio="0.93"),
    "disk-cleans": told(slave, consumeQueueDiskRatio="0.87"),
    "disk-forecast": told(
        master, earliestMessageTimeStamp=str(NOW - 10 * HOUR), commitLogMaxOffset=str(20 << 30)
    ),
    "dispatch-behind": told(master, dispatchBehindBytes="20000000"),
    "flush-behind": told(master, remainHowManyDataToFlush="1.5 GiB"),
    "puts-slow": told(master, putLatency99="800.00"),
    "puts-failed": told(master, putMessageFailedTimes="3"),
    "acks-from-memory": setting(master, brokerRole="ASYNC_MASTER"),
    "open-to-all": setting(master, aclEnable="false"),
    "just-started": told(master, runtime="[ 0 days, 0 hours, 1 minutes, 2 seconds ]"),
}
CONSUMERS: dict[str, Spoil] = {
    "two-subscriptions": group(
        members=members(2), subscriptions={"c0": {"Work": "*"}, "c1": {"Work": "urgent"}}
    ),
    "not-committing": group(members=members(1), queues=[queue(offset=4, later=4)]),
    "no-members": group(queues=[queue(offset=4)]),
    "unread-deleted": group(queues=[queue(begin=5, offset=4)]),
    "unread-soon-deleted": group(queues=[queue(offset=4, old_end=6)]),
    "offset-beyond-end": group(queues=[queue(offset=11)]),
    "topic-read-only": lambda facts: master(facts).topic_configs.update(
        Work=TopicConfig("Work", 4, 4, 4)
    ),
    "group-missing": lambda facts: master(facts).replication.update(missing_groups=["workers"]),
    "group-disabled": group(members=members(1), enabled={"pair": False}),
    "idle-members": group(members=members(2), queues=[queue()], model="CLUSTERING"),
    "far-behind": group(members=members(1), queues=[queue(end=200_000)]),
    "one-queue-behind": group(
        members=members(1), queues=[*(queue(queue=n) for n in range(3)), queue(queue=3, end=5000)]
    ),
    "unreadable-queues": lambda facts: facts.unreadable_queues.append(
        UnreadableQueues("pair", "%RETRY%workers", 1, 4, 30)
    ),
    "dlq-growing": lambda facts: facts.dead_letters.append(
        DeadLetterFacts("workers", "pair", 3, NOW - HOUR // 2)
    ),
    "dlq-waiting": lambda facts: facts.dead_letters.append(
        DeadLetterFacts("workers", "pair", 3, NOW - 5 * HOUR)
    ),
}
EVER = {
    "messages-damaged": "rmqha_damaged_messages_total",
    "queues-mended": "rmqha_mended_units_total",
    "deleted-early": "rmqha_forced_deletions_total",
    "slave-diverged-once": "rmqha_replication_diverged_total",
    "slave-doubtful": "rmqha_replication_within_record_total",
    "slave-refused-ahead": "rmqha_replication_refused_ahead",
    "member-diverged": "rmqha_dledger_diverged",
    "series-left-out": "rmqha_series_left_out",
}
GROWING = {
    "acks-degraded": "rmqha_degraded_acks_total",
    "puts-refused": "rmqha_refused_puts_total",
    "registration-fails": "rmqha_registration_failures_total",
    "access-refused": "rmqha_acl_refused_total",
    "odd-times": "rmqha_acl_odd_times_total",
    "slave-refused": "rmqha_replication_refused_total",
    "connections-refused": "rmqha_refused_connections_total",
    "offsets-refused": "rmqha_refused_offsets_total",
    "properties-refused": "rmqha_refused_properties_total",
    "topics-not-made": "rmqha_not_created_total",
    "frames-dropped": "rmqha_dropped_frames_total",
    "grpc-refused": "rmqha_grpc_closed_total",
    "strangers": "rmqha_protocol_violations_total",
}
COUNTERS: dict[str, Spoil] = {
    **{code: metric(name, 2) for code, name in EVER.items()},
    **{code: metric(name, 2, 5, reason="why") for code, name in GROWING.items()},
    "no-leader-known": metric("rmqha_dledger_has_leader", 0),
    "reactor-late": metric("rmqha_reactor_lag_max_seconds", 1.5),
    "few-files": metric("process_max_fds", 1024),
    "running-out": lambda facts: (
        metric("process_max_fds", 65536)(facts),
        metric("process_open_fds", 60000)(facts),
    ),
}


def local(**values: Any) -> Spoil:
    """A properties file and a store beside the cluster, all well but for that."""

    def spoil(facts: ClusterFacts) -> None:
        usual = {"file": "b.properties", "store": "/store", "is_there": True, "log_files": 1}
        facts.local = LocalFacts(**{**usual, "address": MASTER, **values})

    return spoil


def shown(begins: int, ends: int, **more: Any) -> Spoil:
    """A certificate, valid from and to so many days from now."""
    now = datetime.fromtimestamp(NOW / 1000, UTC)
    moments = [now + timedelta(days=days) for days in (begins, ends)]
    made = CertificateFacts(MASTER, "a.example", *moments, **more)
    return lambda facts: facts.certificates.append(made)


def both(*spoils: Spoil) -> Spoil:
    return lambda facts: [spoil(facts) for spoil in spoils]


def starting(**values: Any) -> Spoil:
    """A broker of a file that shall start, beside the cluster."""
    usual = {"broker_name": "pair", "broker_id": 0, "role": "SYNC_MASTER", "is_starting": True}
    return local(**{**usual, "address": SECOND, **values})


def without_registered_master(facts: ClusterFacts) -> None:
    for item in facts.name_servers:
        del item.brokers["pair"][0]


FILES: dict[str, Spoil] = {
    "id-in-use": starting(),
    "port-taken": starting(broker_name="new", taken_ports=["10911: clients (listenPort)"]),
    "store-open": starting(broker_name="new", is_open=True),
    "store-unusable": starting(broker_name="new", is_writable=False),
    "slave-without-master": both(starting(role="SLAVE", broker_id=2), without_registered_master),
    "bind-elsewhere": local(not_here=["bindAddress=10.9.9.9"]),
    "address-elsewhere": local(elsewhere=["brokerIP1=10.9.9.9"]),
    "master-unreachable": starting(
        role="SLAVE", broker_id=2, master_address="10.0.0.1:10912", master_problem="refused"
    ),
    "file-wrong": local(error="b.properties:6: brokerId=x: must be a whole number", address=""),
    "key-unknown": local(unknown=["b.properties:6: unknown key flushDiscType"]),
    "value-doubtful": local(doubtful=['b.properties:6: brokerName="b": the quotes']),
    "address-is-name": local(settings={"brokerIP1": "broker-a"}),
    "name-servers-misspelt": local(settings={"namesrvAddr": "a:1,b:2"}),
    "not-running": both(local(), having(master, config={}, problem="refused")),
    "not-registered": both(local(), lambda facts: server(facts).brokers.clear()),
    "file-differs": local(rendered={"fileReservedTime": "48"}),
    "log-missing": local(log_files=0, queue_topics=3),
    "stopped-unclean": both(local(has_abort=True), having(master, config={}, problem="refused")),
    "table-damaged": local(damaged_tables=["/store/config/topics.json"]),
    "no-room": local(free=1 << 20),
    "set-aside-left": local(set_aside=["diverged-0-100-1"]),
    "store-new": local(is_there=False),
    "certificate-ended": shown(-400, -1),
    "certificate-ends": shown(-400, 29),
    "certificate-not-yet": shown(1, 400),
    "certificate-of-another": shown(-1, 400, names=("a.example",), host="10.0.0.1"),
    "certificate-made-up": shown(-1, 400, names=MADE_UP, host="10.0.0.1"),
}


def timers(**told: object) -> Spoil:
    """Have the master say something else of its timer messages."""
    said = {"work": "delivering", "waiting": 3, "next_due_ms": NOW - 11_000, "recalled": 0, **told}
    return lambda facts: master(facts).replication.update(timers=said)


def halves(**told: object) -> Spoil:
    """Have the master tell of half messages that nobody ends."""
    said = {"number": 2, "born_ms": NOW - 301_000, "group": "makers", "topic": "T", **told}
    return lambda facts: master(facts).replication.update(oldest_half=said)


TIMERS: dict[str, Spoil] = {
    "timers-late": timers(),
    "timers-off": timers(work="off"),
    "clock-stepped": timers(next_due_ms=None, clock_step_ms=-5000, clock_step_at_ms=NOW - 60_000),
    "half-messages-old": halves(),
}


def popped(most: int = 10_000, **told: Any) -> Spoil:
    """A group with messages out, and its offset at two looks."""
    usual = {"topic": "T", "queue_id": 0, "in_flight": 1, "committed": 3, "next": 9, "end": 9}
    usual |= {"oldest_ms": NOW - 60_000, "due_ms": NOW + 1, "waits_since_ms": NOW - 700_000}
    usual |= {"client": "10.0.0.9:7", **told}
    report = InFlightReport("leading", NOW, [QueueOut(**usual)])

    def spoil(facts: ClusterFacts) -> None:
        facts.pops.append(PopFacts("workers", "pair", most, report))
        group(queues=[queue(topic="T", offset=3, later=3)])(facts)

    return spoil


def door(protobuf: str = "upb", refused: int = 0, **settings: str) -> Spoil:
    """Give the master a port for gRPC."""
    said = {"protobuf": protobuf, "refused_consumers": refused}
    return both(
        setting(master, grpcServerPort="8081", **settings),
        lambda facts: master(facts).replication.update({DOOR: said}),
    )


def clients_of(*clients: Connection) -> Spoil:
    return group(members={item.client_id: item for item in clients})


def modes(**settings: str) -> Spoil:
    """Have the group workers pop the topic T."""
    return both(
        having(master, topics=frozenset({"T"})),
        having(slave, topics=frozenset({"T"})),
        setting(slave, popEnable="true"),
        setting(master, **settings),
        lambda facts: slave(facts).replication.update(popping=[["T", "workers"]]),
    )


PYTHON = Connection("p", "10.0.0.8:1", "PYTHON", 499, "5.1.2")
JAVA = Connection("j", "10.0.0.8:2", "JAVA", 407)
POPS: dict[str, Spoil] = {
    "pop-out-long": popped(oldest_ms=NOW - HOUR - 1),
    "pop-pinned": popped(),
    "pop-near-limit": popped(most=10, in_flight=8),
    "pops-off": modes(popEnable="false"),
    "pop-set-mixed": both(
        setting(master, popEnable="true"), having(slave, replication={}, config={"brokerId": "1"})
    ),
    "grpc-slow": door("python"),
    "grpc-open": both(door(), having(master, address="8.8.4.4:10911")),
    "topics-untyped": both(
        door(grpcDefaultMessageType="NORMAL"),
        having(master, topic_configs={"T": TopicConfig("T", 4, 4)}),
    ),
    "grpc-no-consumers": door(refused=3),
    "two-protocols": clients_of(PYTHON, JAVA),
    "clients-differ": clients_of(PYTHON, replace(PYTHON, client_id="q", sdk="5.1.1")),
}
CASES: dict[str, Spoil] = {
    **POPS,
    **REACH,
    **IDENTITY,
    **REPLICATION,
    **CONTROLLERS,
    **RESOURCES,
    **TIMERS,
    **CONSUMERS,
    **COUNTERS,
    **FILES,
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_a_rule_finds_its_fault_and_only_that(rule: Rule) -> None:
    facts = healthy()
    assert not list(rule.look(facts))
    CASES[rule.code](facts)
    found = judge(facts, [rule])
    assert found
    assert all(item.text and item.about for item in found)
    assert not list(rule.look(ClusterFacts(now_ms=NOW))), "there is nothing to see"


NEARLY: list[tuple[str, Spoil]] = [
    ("broker-slow", having(master, took_ms=900)),
    ("loopback-registered", lambda facts: facts.name_servers.clear()),
    ("name-differs", having(master, name="")),
    ("id-differs", having(slave, broker_id=None)),
    ("sends-refused-until", setting(master, startAcceptSendRequestTimeStamp=str(NOW - 1))),
    ("auto-create", setting(master, autoCreateTopicEnable="true")),
    ("two-kinds", both(having(slave, replication={}), having(master, replication={}))),
    ("no-slave", setting(master, brokerRole="ASYNC_MASTER")),
    ("alone-in-set", setting(master, enableControllerMode="true")),
    ("member-refuses", ledger()),
    ("member-behind", lacks(9.9)),
    ("nothing-committed", ledger(stalled_seconds=9.9)),
    ("master-silent", link(silent_ms=10_000)),
    ("master-silent", link(silent_ms=None)),
    ("slave-behind", lambda facts: master(facts).slaves[0].update(lag=9000, lag_seconds=4.0)),
    ("slave-ahead", told(slave, commitLogMaxOffset="5000")),
    ("slave-ahead", both(told(slave, commitLogMaxOffset="9"), told(master))),
    ("tables-old", lambda facts: slave(facts).replication.update(tables_seconds=55.0)),
    (
        "tables-old",
        both(
            lambda facts: slave(facts).replication.update(tables_seconds=None),
            told(slave, runtime="[ 0 days, 0 hours, 0 minutes, 30 seconds ]"),
        ),
    ),
    ("slave-lacks-topics", having(slave, topics=frozenset())),  # it may get them any moment
    (
        "slave-lacks-topics",  # of Java's, which do not say when they copied them last
        both(
            having(slave, topics=frozenset(), replication={}),
            having(master, topics_changed_ms=NOW - 9_000),
        ),
    ),
    ("slave-lacks-history", told(slave, commitLogMinOffset=str(1 << 30))),
    ("nobody-leads", controllers(ALIVE)),
    ("no-broker", both(unregistered, leaderless(ONE))),  # that is nobody-leads
    ("no-broker", both(unregistered, controllers(DEAD))),  # that is no-controller
    ("no-master", both(IDENTITY["no-master"], leaderless(ONE, others=(TWO,)))),
    ("not-following", both(link(state="no address", address=None), leaderless(ONE))),
    ("no-controller", controllers(ALIVE)),
    ("controller-silent", controllers(DEAD)),  # that is no-controller
    ("clocks-apart", having(master, clock_ahead_ms=2_500)),
    ("clocks-apart", having(master, clock_ahead_ms=None)),
    ("disk-full", told(master, commitLogDiskRatio="0.89")),
    ("disk-cleans", told(master, commitLogDiskRatio="0.84")),
    ("disk-cleans", told(master, commitLogDiskRatio="0.93")),  # that is disk-full
    (
        "disk-forecast",  # minutes say nothing about days
        told(
            master,
            earliestMessageTimeStamp=str(NOW - HOUR // 2),
            commitLogMaxOffset=str(20 << 30),
        ),
    ),
    ("disk-forecast", told(master, earliestMessageTimeStamp="-1", commitLogMaxOffset="0")),
    ("dispatch-behind", told(master, dispatchBehindBytes="9000000")),
    ("flush-behind", told(master, remainHowManyDataToFlush="200.0 MiB")),
    ("puts-slow", told(master, putLatency99="499.00")),
    ("open-to-all", setting(master, aclEnable="false", bindAddress="127.0.0.1")),
    ("open-to-all", setting(master, **{"aclEnable": "false", "tls.server.mode": "enforcing"})),
    ("just-started", told(master, runtime="[ 0 days, 0 hours, 6 minutes, 0 seconds ]")),
    ("timers-late", timers(next_due_ms=NOW - 9_000)),
    ("timers-late", timers(next_due_ms=None)),
    ("timers-late", timers(work="off")),  # that is timers-off
    ("timers-late", timers(work="slave")),
    ("timers-late", both(timers(next_due_ms="x"), told(master, timerReadBehind="99"))),
    ("timers-off", timers(work="off", waiting=0)),
    (
        "clock-stepped",
        timers(next_due_ms=None, clock_step_ms=-5000, clock_step_at_ms=NOW - 25 * HOUR),
    ),
    ("half-messages-old", halves(born_ms=NOW - 300_000)),
    ("half-messages-old", halves(number=0, born_ms=0)),
    ("half-messages-old", halves(number="x")),
    ("pop-out-long", popped(oldest_ms=NOW - HOUR + 1)),
    ("pop-out-long", popped(in_flight=0, oldest_ms=0)),
    ("pop-pinned", popped(next=4)),  # nothing behind it is acknowledged
    ("pop-pinned", popped(committed=4)),  # it moved between the looks
    ("pop-pinned", popped(waits_since_ms=NOW - 500_000)),
    ("pop-pinned", popped(waits_since_ms=0)),
    ("pop-near-limit", popped(most=10, in_flight=7)),
    ("pop-near-limit", popped(most=0, in_flight=70)),
    ("pops-off", modes(popEnable="true")),
    ("pop-set-mixed", having(slave, replication={}, config={"brokerId": "1"})),
    ("grpc-slow", door("upb")),
    ("grpc-slow", door("")),
    ("grpc-open", door()),  # a private address
    (
        "grpc-open",
        both(door(**{"tls.server.mode": "enforcing"}), having(master, address="8.8.4.4:10911")),
    ),
    ("topics-untyped", both(door(), having(master, topic_configs={"T": TopicConfig("T", 4, 4)}))),
    ("grpc-no-consumers", door(refused=3, popEnable="true")),
    ("two-protocols", clients_of(PYTHON, replace(PYTHON, client_id="q"))),
    ("clients-differ", clients_of(JAVA, replace(JAVA, client_id="k"))),
    ("not-committing", group(members=members(1), queues=[queue(offset=4)])),  # one look only
    ("not-committing", group(queues=[queue(offset=4, later=4)])),
    ("no-members", group(queues=[queue()])),
    ("unread-deleted", group(queues=[queue(begin=5, offset=5), queue(begin=5, offset=-1)])),
    ("unread-soon-deleted", group(queues=[queue(offset=6, old_end=6)])),
    ("offset-beyond-end", group(queues=[queue(offset=10)])),
    ("group-disabled", group(enabled={"pair": False})),
    ("idle-members", group(members=members(2), queues=[queue()], model="BROADCASTING")),
    ("idle-members", group(members=members(1), queues=[queue(), queue(topic="%RETRY%workers")])),
    ("far-behind", group(queues=[queue(end=100_000)])),
    ("one-queue-behind", group(queues=[queue(end=5000)])),
    (
        "dlq-growing",
        lambda facts: facts.dead_letters.append(DeadLetterFacts("w", "pair", 0, NOW - 9)),
    ),
    ("dlq-waiting", lambda facts: facts.dead_letters.append(DeadLetterFacts("w", "pair", 0, 0))),
    ("reactor-late", metric("rmqha_reactor_lag_max_seconds", 0.9)),
    ("few-files", metric("process_max_fds", 4096)),
    ("running-out", both(metric("process_max_fds", 100), metric("process_open_fds", 79))),
    ("id-in-use", both(starting(), having(master, plain=Port(MASTER, "refused")))),
    ("id-in-use", starting(broker_id=2)),
    ("id-in-use", starting(is_starting=False)),
    ("slave-without-master", starting(role="SLAVE", broker_id=2)),
    (
        "slave-without-master",
        both(
            starting(role="SLAVE", settings={"haMasterAddress": "a:10912"}),
            without_registered_master,
        ),
    ),
    ("file-differs", local(rendered={"noSuchKey": "1", "aclSecretKey": "***"})),
    ("stopped-unclean", local(has_abort=True, address="")),
    ("log-missing", local(log_files=0)),
    ("certificate-ends", shown(-400, 31)),
    ("certificate-of-another", shown(-1, 400, names=("a.example",))),
]


@pytest.mark.parametrize(("code", "spoil"), NEARLY, ids=lambda value: str(value)[:20])
def test_a_rule_is_silent_where_nobody_has_to_do_anything(code: str, spoil: Spoil) -> None:
    facts = healthy()
    spoil(facts)
    (rule,) = [rule for rule in RULES if rule.code == code]
    assert judge(facts, [rule]) == []


def test_nothing_is_wrong_with_a_healthy_cluster() -> None:
    facts = healthy()
    assert judge(facts, RULES) == []
    rendered = {"fileReservedTime": "72"}
    settings = {"brokerIP1": "10.0.0.1", "namesrvAddr": "a:1;b:1", "bindAddress": ""}
    local(rendered=rendered, settings=settings, has_abort=True, free=10 << 30)(facts)
    shown(-400, 400, names=("10.0.0.1", "a.example"), host="10.0.0.1")(facts)
    assert judge(facts, RULES) == []


def test_the_worst_comes_first_and_codes_are_one_each() -> None:
    facts = healthy()
    for code in ("auto-create", "broker-slow", "not-ready"):
        CASES[code](facts)
    severities = [item.severity for item in judge(facts, RULES)]
    assert severities == sorted(severities, key=["error", "warning", "note"].index)
    assert len(set(severities)) == 3
    assert len({rule.code for rule in RULES}) == len(RULES)
    assert set(CASES) == {rule.code for rule in RULES}


def test_what_brokers_in_test_mode_show_is_known() -> None:
    made = self_signed(NOW).certificate
    assert certificate_names(made) == MADE_UP
    facts = healthy()
    shown(-1, 400, names=MADE_UP, host="10.0.0.1")(facts)
    assert [item.code for item in judge(facts, RULES)] == ["certificate-made-up"]


def test_addresses_are_named() -> None:
    """Whoever reads a line knows where to go."""
    facts = healthy()
    CASES["two-masters"](facts)
    (found,) = [item for item in judge(facts, RULES) if item.code == "two-masters"]
    assert MASTER in found.text
    assert SECOND in found.text


def test_metrics_that_are_looked_at_exist() -> None:
    assert set(EVER.values()) | set(GROWING.values()) <= set(CATALOGUE)


def test_a_counter_that_stands_still_is_no_news() -> None:
    facts = healthy()
    metric("rmqha_refused_puts_total", 7, 7)(facts)
    assert judge(facts, RULES) == []
    metric("rmqha_refused_puts_total", 7, 9, reason="disk")(facts)
    (found,) = judge(facts, RULES)
    assert found.text == "rmqha_refused_puts_total grew by 2 within 6 s (disk)"


def test_a_disk_that_will_be_full_and_one_that_will_not() -> None:
    """20 GiB in 10 h, 62 h to go, room for 45 GiB: full in 22.5 h; at a tenth of that, never."""
    facts = healthy()
    CASES["disk-forecast"](facts)
    (found,) = judge(facts, RULES)[:1]
    assert "85 % full in 22.5 h, before messages are 72 h old" in found.text
    told(master, commitLogMaxOffset=str(2 << 30))(facts)
    told(slave, commitLogMaxOffset=str(2 << 30))(facts)
    assert judge(facts, RULES) == []


def test_a_master_may_be_followed_by_its_name() -> None:
    """Who knows what it stands for there?"""
    facts = healthy()
    link(address="master.example:10912")(facts)
    assert judge(facts, RULES) == []


def test_of_three_brokers_of_a_name_the_last_may_be_the_one_that_differs() -> None:
    facts = healthy()
    facts.brokers.append(broker(SECOND, broker_id=2, fileReservedTime="48"))
    (rule,) = [rule for rule in RULES if rule.code == "settings-differ"]
    (said,) = judge(facts, [rule])
    assert SECOND in said.text


def test_the_master_that_nobody_registered_is_found_by_any_of_its_slaves() -> None:
    """The first one does not follow; where somebody leads under another id, it is another rule."""
    facts = healthy()
    stand_in(facts, broker_id=2)
    link(state="unreachable")(facts)
    facts.brokers.pop(1)
    (rule,) = [rule for rule in RULES if rule.code == "master-unregistered"]
    (found,) = judge(facts, [rule])
    assert f"{SECOND} follows one at 10.0.0.1:10912" in found.text
    facts.brokers.append(broker(MASTER))
    having(lambda f: f.brokers[-1], broker_id=3)(facts)
    assert judge(facts, [rule]) == []


@pytest.mark.parametrize(("ends", "is_behind"), [(5000, False), (5100, False), (5101, True)])
def test_a_slave_of_java_may_fall_behind_as_far_as_its_master_lets_it(
    ends: int, is_behind: bool
) -> None:
    facts = healthy()
    for who in (master, slave):
        having(who, replication={})(facts)
    setting(master, haSlaveFallbehindMax="100")(facts)
    told(master, commitLogMaxOffset=str(ends))(facts)
    (rule,) = [rule for rule in RULES if rule.code == "slave-behind"]
    assert len(judge(facts, [rule])) == is_behind


def test_whose_clock_is_wrong() -> None:
    """One of many; or ours, when all others agree."""
    facts = healthy()
    facts.brokers.append(broker(SECOND, broker_id=2))
    having(slave, clock_ahead_ms=-60_000)(facts)
    (found,) = judge(facts, RULES)
    assert (found.about, found.code) == (f"pair {SLAVE}", "clocks-apart")
    assert "60 s behind" in found.text
    for item in facts.brokers:
        item.clock_ahead_ms = 120_000
    (found,) = judge(facts, RULES)
    assert found.about == "this machine"


def test_members_that_agree_and_a_group_that_moves() -> None:
    """The group's own retries are no difference; one queue that moved is enough."""
    facts = healthy()
    own = {"%RETRY%workers": "*"}
    change_group(
        facts,
        members=members(2),
        subscriptions={"c0": {"Work": "*"}, "c1": {"Work": "*"} | own},
        queues=[queue(offset=4, later=4), queue(queue=1, offset=4, later=5)],
    )
    assert judge(facts, RULES) == []
