"""What all rules together say of each fault and at both sides of each edge, as agreed to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from rmq_ha.ops.admin.doctor.facts import (
    BrokerFacts,
    ClusterFacts,
    Controller,
    DeadLetterFacts,
    Port,
)
from rmq_ha.ops.admin.doctor.findings import judge
from rmq_ha.ops.admin.doctor.rules import RULES
from tests.kits.agreed import must_be_agreed
from tests.unit.ops.admin.doctor_facts import (
    HOUR,
    MASTER,
    NOW,
    SECOND,
    Spoil,
    broker,
    having,
    healthy,
    master,
    setting,
    slave,
    told,
)
from tests.unit.ops.admin.test_doctor_rules import (
    CASES,
    NEARLY,
    both,
    controllers,
    group,
    link,
    local,
    members,
    metric,
    queue,
    server,
    shown,
    stand_in,
    starting,
)

Who = Callable[[ClusterFacts], BrokerFacts]
MANY = frozenset(f"T{number}" for number in range(7))
JAVA = both(having(master, replication={}), having(slave, replication={}))
DLEDGER = both(
    setting(master, enableDLegerCommitLog="true", dLegerPeers="n0-a:1;n1-b:1;n2-c:1; "),
    setting(slave, enableDLegerCommitLog="true", dLegerPeers="n0-a:1;n1-b:1;n2-c:1; "),
)


def lone(facts: ClusterFacts) -> None:
    facts.brokers.pop(0)


def without_slave(facts: ClusterFacts) -> None:
    master(facts).replication["slaves"].clear()


def refusals(facts: ClusterFacts) -> None:
    metric("rmqha_refused_puts_total", 2, 5)(facts)
    status = master(facts).status
    assert status is not None
    for values, counts in ((status.metrics, "b1 a1 c4"), (status.later, "b2 a3 c4 d1")):
        samples = [({"reason": each[0]}, float(each[1])) for each in counts.split()]
        values["rmqha_refused_puts_total"] = [*samples, ({}, 1.0)]


SET_UP: dict[str, Spoil] = {
    "of Java": JAVA,
    "of a group": DLEDGER,
    "of controllers": both(
        setting(master, enableControllerMode="true"), setting(slave, enableControllerMode="true")
    ),
    "with the slave alone": lambda facts: facts.brokers.pop(),
    "with the master alone": lone,
    "with a slave more": lambda facts: stand_in(facts, broker_id=2),
    "with another pair": lambda facts: facts.brokers.extend(
        [broker("10.0.9.1:10911", "other"), broker("10.0.9.2:10911", "other", 1)]
    ),
    "with one that nobody registered": both(
        stand_in, lambda facts: vars(facts.brokers[-1]).update(name="", broker_id=None)
    ),
    "without what was asked": both(
        having(master, config={}, problem="refused"), having(slave, config={}, refused="no")
    ),
}


def at(name: str, spoil: Callable[[Any], Spoil], *values: Any) -> dict[str, Spoil]:
    """The same with each of some values."""
    return {f"{name} {value}": spoil(value) for value in values}


def text(who: Who, key: str) -> Callable[[Any], Spoil]:
    return lambda value: told(who, **{key: str(value)})


def key(who: Who, name: str) -> Callable[[Any], Spoil]:
    return lambda value: setting(who, **{name: str(value)})


def look(name: str) -> Callable[[Any], Spoil]:
    return lambda value: metric(name, value)


def grown(hours: float, gib: float, **info: str) -> Spoil:
    """A log that is so old and so long."""
    return told(
        master,
        earliestMessageTimeStamp=str(round(NOW - hours * HOUR)),
        commitLogMaxOffset=str(round(gib * (1 << 30))),
        **info,
    )


def behind(value: int) -> Spoil:
    return group(members=members(1), queues=[queue(end=value)])


EDGES: dict[str, Spoil] = {
    **at("clock", lambda v: having(master, clock_ahead_ms=v), -2701, -2700, 3300, 3301, -90_000),
    **at(
        "all clocks",
        lambda v: both(*(having(w, clock_ahead_ms=v) for w in (master, slave))),
        -3001,
        -3000,
        3000,
        3001,
    ),
    "a lone clock": both(lone, lambda f: setattr(f.brokers[0], "clock_ahead_ms", 4000)),
    "no clock": both(*(having(w, clock_ahead_ms=None) for w in (master, slave))),
    **at("log disk", text(master, "commitLogDiskRatio"), 0.84, 0.85, 0.899, 0.9, "none"),
    **at("queue disk", text(slave, "consumeQueueDiskRatio"), 0.84, 0.85, 0.9),
    "own levels": both(
        setting(master, diskSpaceCleanForciblyRatio="50", diskSpaceWarningLevelRatio="60"),
        told(master, commitLogDiskRatio="0.55"),
    ),
    "own level reached": both(
        setting(master, diskSpaceWarningLevelRatio="60"), told(master, commitLogDiskRatio="0.6")
    ),
    **at("age of a log", lambda v: grown(v, 40), 0.99, 1, 36, 71.9, 72, 80),
    **at("length of a log", lambda v: grown(10, v), 0.1, 7, 7.2, 7.4, 12, 55),
    "a log that begins later": grown(10, 60, commitLogMinOffset=str(50 << 30)),
    "a log that begins nowhere": grown(10, 60, commitLogMinOffset=""),
    "a disk of unknown size": grown(10, 60, commitLogDirCapacity=""),
    "no room at all": grown(10, 60, commitLogDirCapacity="Total : 100.0 GiB, Free : 5.0 GiB."),
    "a log on a full disk": grown(10, 60, commitLogDiskRatio="0.85"),
    "a log that is kept for less": both(grown(10, 60), setting(master, fileReservedTime="11")),
    **at("dispatch", text(master, "dispatchBehindBytes"), 10_000_000, 10_000_001, "none"),
    **at(
        "unflushed",
        text(master, "remainHowManyDataToFlush"),
        "256.0 MiB",
        "256.1 MiB",
        "9 TiB",
        "300000 KiB",
        "some",
    ),
    **at("put", text(slave, "putLatency99"), "500.0", "500.6", "none"),
    **at("failed puts", text(master, "putMessageFailedTimes"), 0, 1, "none"),
    **at("role", key(master, "brokerRole"), "ASYNC_MASTER", "SYNC_MASTER", "SLAVE"),
    "from memory": setting(master, brokerRole="ASYNC_MASTER", flushDiskType="SYNC_FLUSH"),
    **at(
        "bound to",
        lambda v: setting(master, aclEnable="false", bindAddress=v),
        "::1",
        "10.0.0.1",
        "127.0.0.9",
        "0.0.0.0",
    ),
    **at(
        "TLS",
        lambda v: setting(slave, aclEnable="false", **{"tls.server.mode": v}),
        "enforcing",
        "permissive",
    ),
    **at(
        "runs",
        text(master, "runtime"),
        "[ 0 days, 0 hours, 4 minutes, 59 seconds ]",
        "[ 0 days, 0 hours, 5 minutes, 0 seconds ]",
        "[ 0 days, 1 hours, 0 minutes, 1 seconds ]",
        "[ 1 days, 0 hours, 0 minutes, 1 seconds ]",
        "for long",
    ),
    **at(
        "state",
        lambda v: link(state=v, fault="why"),
        "diverged",
        "unreadable",
        "stranded",
        "unreachable",
    ),
    **at("state without a reason", lambda v: link(state=v, fault=None), "diverged", "connecting"),
    **at("silent", lambda v: link(silent_ms=v), 11_000, 11_001),
    "silent with its own heartbeat": both(
        setting(slave, haSendHeartbeatInterval="1000"), link(silent_ms=2201)
    ),
    "silent, but not following": link(state="connecting", silent_ms=60_000),
    **at("lag", lambda v: lambda f: master(f).slaves[0].update(lag=9, lag_seconds=v), 5.0, 5.1),
    **at(
        "Java's lag",
        lambda v: both(JAVA, told(master, commitLogMaxOffset=str(v))),
        5000 + (256 << 20),
        5001 + (256 << 20),
    ),
    "Java's own lag": both(
        JAVA, setting(master, haSlaveFallbehindMax="100"), told(slave, commitLogMaxOffset="4899")
    ),
    **at("end", text(slave, "commitLogMaxOffset"), 4999, 5000, 5001),
    **at(
        "tables",
        lambda v: lambda f: slave(f).replication.update(tables_seconds=v),
        60.0,
        61.0,
        None,
    ),
    **at(
        "a young slave",
        lambda v: both(
            told(slave, runtime=f"[ 0 days, 0 hours, 0 minutes, {v} seconds ]"),
            lambda f: slave(f).replication.update(tables_seconds=None),
        ),
        59,
        60,
    ),
    **at(
        "topics that a slave lacks",
        lambda v: both(
            having(master, topics=MANY | {"Orders"}),
            lambda f: slave(f).replication.update(tables_seconds=v),
        ),
        20.0,
        20.1,
    ),
    **at(
        "topics that Java's slave lacks",
        lambda v: both(
            JAVA, having(master, topics=frozenset({"New", "Orders"}), topics_changed_ms=v)
        ),
        NOW - 19_000,
        NOW - 19_700,
        NOW - 19_701,
        NOW - 21_000,
    ),
    "five topics": both(
        having(master, topics=frozenset(sorted(MANY)[:5])),
        having(slave, topics=frozenset()),
        lambda f: slave(f).replication.update(tables_seconds=30.0),
    ),
    "topics nobody asked for": having(slave, topics=None),
    **at("begin", text(slave, "commitLogMinOffset"), 2 << 30, (2 << 30) + 1, ""),
    "begin with small files": both(
        setting(master, mappedFileSizeCommitLog="100"), told(slave, commitLogMinOffset="201")
    ),
    **at("set aside", lambda v: link(set_aside=v), 0, 1, 3, None),
    **at(
        "follows",
        lambda v: link(address=v),
        "10.0.0.1:10912",
        MASTER,
        "10.0.0.1:10913",
        "[::1]:10912",
        "master:10912",
        None,
    ),
    "follows at another network": both(
        setting(master, brokerIP2="10.7.0.1"), link(address="10.7.0.1:10912")
    ),
    **at(
        "members",
        lambda v: both(
            DLEDGER,
            lambda f: [
                stand_in(f, broker_id=i + 2, enableDLegerCommitLog="true") for i in range(v)
            ],
        ),
        0,
        1,
        2,
    ),
    "one of three": both(DLEDGER, lone),
    "no leader": both(DLEDGER, having(master, broker_id=3)),
    **at(
        "controller",
        lambda v: controllers(*v),
        [Controller("c:1")],
        [Controller("c:1"), Controller("d:1", leader="d:1")],
        [Controller("c:1", "refused"), Controller("d:1", leader="d:1"), Controller("e:1", "late")],
        [Controller("c:1", "refused")],
    ),
    **at("took", lambda v: having(master, took_ms=v), 1000, 1001, 2500),
    **at("fast port", lambda v: having(slave, fast=v), None, Port("f:1"), Port("f:1", "refused")),
    "port for slaves that one comes by": having(master, ha=Port("h:1", "refused")),
    "port for slaves": both(having(master, ha=Port("h:1", "refused")), without_slave),
    **at(
        "host",
        lambda v: having(master, address=f"{v}:10911"),
        "localhost",
        "[::1]",
        "127.0.0.1",
        "172.17.0.4",
        "a.example",
    ),
    **at(
        "silent host",
        lambda v: having(master, address=f"{v}:10911", config={}, problem="late", plain=None),
        "172.16.255.255",
        "172.17.0.0",
        "172.17.255.255",
        "172.18.0.0",
        "127.0.0.1",
        "a.example",
    ),
    "silent without a name": having(slave, name="", config={}, problem="late", plain=None),
    "loopback everywhere": both(
        having(master, address="127.0.0.1:10911"),
        lambda f: [setattr(s, "address", "127.0.0.1:9876") for s in f.name_servers],
    ),
    "no topics at a name server": having(server, topics=None),
    "seven topics without a route": both(having(master, topics=MANY), having(slave, topics=MANY)),
    "a name server without brokers": having(server, brokers={}),
    "a name server with another master": lambda f: server(f).brokers.update(pair={0: SECOND}),
    "both silent": lambda f: [setattr(s, "problem", "late") for s in f.name_servers],
    "names in a file": local(unresolved=["a.example", "b.example"]),
    **at("permission", key(master, "brokerPermission"), 2, 4, 6, 7, "none"),
    **at("permission of a slave", key(slave, "brokerPermission"), 4),
    **at("sends from", key(master, "startAcceptSendRequestTimeStamp"), NOW, NOW + 1, NOW + 90_000),
    **at("sends from, of a slave", key(slave, "startAcceptSendRequestTimeStamp"), NOW + 90_000),
    **at("id", key(slave, "brokerId"), 0, 1, 2, "x"),
    **at("id of the master", key(master, "brokerId"), 1),
    **at("registered id", lambda v: having(slave, broker_id=v), None, 0, 2),
    "another cluster": having(master, cluster="Other"),
    "no cluster": having(master, cluster=""),
    "a slave of IPv6": lambda f: master(f).replication["slaves"].append({"address": "[fd::9]:4"}),
    "a slave of a second network": both(
        setting(slave, brokerIP2="10.7.0.2"),
        lambda f: master(f).replication["slaves"].append({"address": "10.7.0.2:4"}),
    ),
    "two masters": both(stand_in, told(master, commitLogMaxOffset="77")),
    "a second master of another name": lambda f: f.brokers.append(
        broker(SECOND, brokerName="else")
    ),
    "two of one id": lambda f: [
        stand_in(f, broker_id=1),
        f.brokers.append(broker("s:1", broker_id=1)),
    ],
    "a release of one": lambda f: [b.replication.update(release=b.address) for b in f.brokers],
    "three settings": setting(
        slave, deleteWhen="05", aclEnable="false", flushDiskType="SYNC_FLUSH"
    ),
    "auto-create": both(
        lambda f: f.brokers.append(broker(SECOND, "b")),
        setting(master, autoCreateTopicEnable="true"),
    ),
    "no copy": both(without_slave, setting(master, brokerRole="ASYNC_MASTER")),
    "alone and controlled": both(without_slave, setting(master, enableControllerMode="true")),
    "alone in a group": both(without_slave, setting(master, enableDLegerCommitLog="true")),
    **at("lag of a group", behind, 99_999, 100_010, 100_011, 9),
    **at("offset", lambda v: group(queues=[queue(begin=5, offset=v)]), -1, 0, 4, 5, 10, 11),
    **at(
        "old",
        lambda v: group(queues=[queue(begin=3, offset=5, old_end=v), queue(offset=9)]),
        None,
        4,
        5,
        6,
        9,
    ),
    **at("old, and gone", lambda v: group(queues=[queue(begin=7, offset=5, old_end=v)]), 7, 8),
    "three queues beyond": group(queues=[queue(queue=n, offset=20 + n) for n in range(3)]),
    "two queues lost": group(queues=[queue(queue=n, begin=9, offset=n) for n in range(2)]),
    **at(
        "moves",
        lambda v: group(
            members=members(2),
            queues=[queue(offset=4, later=4), queue(queue=1, offset=2, later=v), queue(queue=2)],
        ),
        2,
        3,
        None,
    ),
    **at(
        "one queue",
        lambda v: group(
            members=members(1),
            queues=[*(queue(queue=n, end=10 + v) for n in range(3)), queue(queue=3, end=1010)],
        ),
        0,
        37,
        38,
        40,
    ),
    **at(
        "one queue of four",
        lambda v: group(
            members=members(1), queues=[*(queue(queue=n) for n in range(3)), queue(queue=3, end=v)]
        ),
        1009,
        1010,
    ),
    "one queue of three": group(queues=[queue(), queue(queue=1), queue(queue=2, end=9000)]),
    "one queue beside another topic": group(
        queues=[
            *(queue(queue=n) for n in range(3)),
            queue(queue=3, end=9000),
            queue(topic="Other", end=8000),
        ]
    ),
    **at(
        "idle",
        lambda v: group(members=members(v), queues=[queue(), queue(queue=1), queue(topic="B")]),
        2,
        3,
    ),
    "idle with a retry topic": group(
        members=members(2),
        queues=[queue(), *(queue(topic="%RETRY%workers", queue=n) for n in range(3))],
    ),
    "idle of nothing": group(members=members(2)),
    **at(
        "disabled",
        lambda v: group(**v),
        {"enabled": {"a": False, "b": True, "c": False}},
        {"enabled": {"a": False, "b": True, "c": False}, "members": members(1)},
        {"enabled": {"a": False}, "queues": [queue(offset=9)]},
    ),
    "subscriptions": group(
        members=members(3),
        subscriptions={
            "c1": {"Work": "*", "A": "x"},
            "c0": {},
            "c2": {"A": "x", "Work": "*", "%RETRY%workers": "*"},
        },
    ),
    **at(
        "dead letters",
        lambda v: lambda f: f.dead_letters.append(DeadLetterFacts("w", "pair", 3, v)),
        0,
        NOW,
        NOW - 1,
        NOW - HOUR + 1,
        NOW - HOUR,
        NOW + 5,
    ),
    **at("lag of the reactor", look("rmqha_reactor_lag_max_seconds"), 1.0, 1.01),
    **at("files", look("process_max_fds"), 0, 1, 4095, 4096),
    **at("files here", lambda v: local(most_files=v), 0, 1, 4095, 4096),
    **at(
        "open files",
        lambda v: both(metric("process_max_fds", 10_000), metric("process_open_fds", v)),
        8000,
        8001,
    ),
    **at(
        "connections",
        lambda v: both(metric("rmqha_connection_places", 10), metric("rmqha_open_connections", v)),
        8,
        9,
    ),
    "connections of none": metric("rmqha_open_connections", 9),
    **at("leader", look("rmqha_dledger_has_leader"), 0, 1),
    **at("damaged", look("rmqha_damaged_messages_total"), 0, 1),
    "two reasons": refusals,
    "a counter that shrank": metric("rmqha_refused_puts_total", 5, 2, reason="a"),
    "a status port that is silent": both(
        metric("rmqha_damaged_messages_total", 3),
        lambda f: setattr(master(f).status, "problem", "late"),
    ),
    **at("room", lambda v: local(free=v), None, (1 << 30) + 420_000_039, (1 << 30) + 420_000_040),
    **at("folders", lambda v: local(set_aside=[f"d{n}" for n in range(v)]), 0, 1, 5, 6),
    **at(
        "certificate", lambda v: shown(*v), (-9, 0), (-9, 1), (-9, 30), (-9, 31), (0, 99), (1, 99)
    ),
    "certificate of seven": shown(-1, 99, names=tuple("abcdefg"), host="h"),
    "certificate of none": shown(-1, 99, host="h"),
    "certificate in a file": shown(-1, 99, names=("rmq-ha",)),
    **at(
        "address",
        lambda v: local(settings={v: "broker-a"}),
        "brokerIP1",
        "brokerIP2",
        "bindAddress",
        "metricsAddress",
        "listenPort",
    ),
    "address, rendered": local(settings={"brokerIP1": "name"}, rendered={"brokerIP1": "10.0.0.1"}),
    **at("name servers", lambda v: local(settings={"namesrvAddr": v}), "a:1;b:1", "http://a:1"),
    "a wrong file": local(error="b:6: brokerIP1=x: no", address="", settings={"brokerIP1": "x"}),
    "a wrong file of names": local(
        error="b:6: namesrvAddr=a,b: no", settings={"namesrvAddr": "a,b"}
    ),
    "a file of another": local(address="10.9.9.9:1", has_abort=True, rendered={"brokerId": "9"}),
    "a file that differs": local(
        rendered={
            "fileReservedTime": "1",
            "flushDiskType": "SYNC_FLUSH",
            "aclEnable": "***",
            "startAcceptSendRequestTimeStamp": "9",
            "nobody": "knows",
        }
    ),
    **at(
        "queues",
        lambda v: local(**v),
        {"log_files": 0, "queue_topics": 1},
        {"log_files": 0, "queue_topics": 1, "is_there": False},
        {"is_there": False, "store": ""},
    ),
    "unclean, and runs": local(has_abort=True),
    "not registered at one": both(local(), lambda f: server(f).brokers["pair"].pop(0)),
    "two damaged tables": local(damaged_tables=["a", "b"], unknown=["x", "y"], file="f"),
    **at(
        "starts",
        lambda v: starting(**v),
        {"broker_id": 1},
        {"broker_id": 2},
        {"broker_name": "x"},
        {"taken_ports": ["1: a", "2: b"], "broker_id": 9},
        {"is_open": True, "is_writable": False},
        {"role": "SLAVE", "broker_name": "x"},
        {"not_here": ["a=1", "b=2"], "elsewhere": ["c=3"]},
    ),
    **at(
        "does not start",
        lambda v: local(**v),
        {"taken_ports": ["1: a"]},
        {"is_open": True},
        {"is_writable": False},
        {"role": "SLAVE"},
        {"master_problem": "refused"},
    ),
}


def found_with(spoil: Spoil, *more: Spoil) -> list[str]:
    """By all rules, in their order."""
    facts = healthy()
    for each in (spoil, *more):
        each(facts)
    return [f"{i.severity} {i.code}, {i.about}: {i.text}" for i in judge(facts, RULES)]


def test_what_is_found_was_agreed_to() -> None:
    found: dict[str, object] = {}
    cases = Counter[str]()  # counted by rule: a case more gives no other one another name
    for code, spoil in NEARLY:
        cases[code] += 1
        found[f"nearly {code} {cases[code]}"] = found_with(spoil)
    for name, spoil in {**CASES, **EDGES, **SET_UP}.items():
        found[name] = found_with(spoil)
    must_be_agreed("findings", found)
