"""What is said when a broker or a name server is silent, refuses, or does not do what it said."""

from __future__ import annotations

import json

import pytest

from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.ops.admin.session import FAILED, NO_ANSWER, NOT_FOUND
from rmq_ha.testing.brokers import NamesrvNode
from tests.unit.client.sim_cluster import SimCluster
from tests.unit.ops.admin.typing_kit import Answer, Typist, of

DONE = RemotingCommand(0, {})


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Typist:
    """Masters `one` and `two`, and a slave of `one`; a topic; a group that has read half of it."""
    cluster = SimCluster("one", "two")
    cluster.add("slave", BrokerRole.SLAVE, broker={"broker_name": "one", "broker_id": 1})
    cluster.run(12)
    typed = Typist(cluster, monkeypatch)
    typed.does("topic create Orders --queues 2")
    typed.does("produce Orders x --quiet --count 4")
    typed.does("consume Orders -g g --until-end")
    typed.does("produce Orders x --quiet --count 4")
    cluster.run(3)
    return typed


@pytest.fixture
def silent(typed: Typist) -> Typist:
    """`two` has lost its power, and nobody knows it yet."""
    typed.cluster.crash("two", power=True)
    return typed


def complaints(told: Answer) -> list[str]:
    """Warnings and errors."""
    found = [json.loads(line) for line in told.err.splitlines()]
    return [line.get("warning") or line["error"] for line in found]


def test_who_is_silent_is_listed_without_what_only_it_knows(silent: Typist) -> None:
    address = silent.cluster.address("two")
    told = silent("broker list")
    assert told.code == NO_ANSWER
    assert of(told.rows, "broker", "id", "role") == [
        ("one", 0, "ASYNC_MASTER"),
        ("one", 1, "SLAVE"),
        ("two", 0, None),
    ]
    assert told.rows[2] == {
        "cluster": "DefaultCluster",
        "broker": "two",
        "id": 0,
        "address": address,
        **dict.fromkeys(("role", "version", "in_tps", "out_tps", "disk", "log_end")),
    }
    (complaint,) = complaints(told)
    assert complaint.startswith(f"two {address}: ")
    told = silent("ha status")
    assert told.code == NO_ANSWER
    assert of(told.rows, "broker", "id", "role", "state") == [
        ("one", 0, "ASYNC_MASTER", "1 slaves"),
        ("one", 1, "SLAVE", "following"),
        ("two", 0, None, "does not answer"),
    ]
    assert [text.startswith(f"{address}: ") for text in told.lines[0]["problems"]] == [True]
    told = silent("cluster list")
    assert told.code == NO_ANSWER
    (row,) = told.rows
    assert (row["names"], row["masters"], row["slaves"], row["silent"]) == (2, 1, 1, 1)
    assert complaints(told)[0].startswith(f"two {address}: ")


def test_an_export_leaves_out_who_is_silent_and_says_so(silent: Typist) -> None:
    told = silent("cluster export --offsets")
    assert told.code == NO_ANSWER
    (document,) = told.lines
    assert [(item["broker"], item["id"]) for item in document["brokers"]] == [
        ("one", 0),
        ("one", 1),
    ]
    (complaint,) = complaints(told)
    assert complaint.startswith(f"two {silent.cluster.address('two')} is left out: ")
    one = document["brokers"][0]
    assert one["offsets"]["Orders@g"].keys() == {"0", "1"}
    assert set(one["rates"]) == {"in_s", "out_s"}
    assert one["version"] == "V4_9_7"
    assert list(one["config"]) == sorted(one["config"])
    names = [item["topicName"] for item in one["topics"]]
    assert names == sorted(names)


NEEDS_ALL = [
    "topic status Orders",
    "topic list",
    "topic delete Orders --yes",
    "topic update Orders --queues 4 --yes",
    "group list",
    "group create h",
    "group update g --retries 2 --yes",
    "group clone g h --yes",
    "group clients g",
    "stats",
    "connections",
    "dlq list",
    "broker config get DefaultCluster",
    "broker config set DefaultCluster fileReservedTime=9 --yes",
    "broker clean DefaultCluster topics --yes",
    "broker status DefaultCluster",
]


def test_what_needs_all_of_them_ends_where_one_is_silent(silent: Typist) -> None:
    silent.asked.clear()
    for line in NEEDS_ALL:
        told = silent(line, "--timeout", "0.5")
        assert told.code == NO_ANSWER, line
        assert silent.cluster.address("two") in told.err
    assert not {15, 17, 25, 200, 207, 215, 306} & set(silent.asked), "nothing is done by halves"


def test_slaves_take_no_changes(typed: Typist) -> None:
    typed.cluster.crash("one")
    typed.cluster.crash("two")
    typed.cluster.run(1)
    for line in ("topic create New", "group create new", "broker config set one a=b --yes"):
        told = typed(line)
        assert (told.code, "slaves take no changes" in told.err) == (NOT_FOUND, True), line
    told = typed("cluster list")
    assert told.code == FAILED, "a name has no master"
    assert of(told.rows, "masters", "slaves", "silent") == [(0, 1, 0)]
    told = typed("ha status")
    assert told.code == FAILED
    assert told.lines[0]["problems"][0] == "one has no master: docs/failover.md"
    address = typed.cluster.address("slave")
    assert any(text.startswith(f"{address} does not follow") for text in told.lines[0]["problems"])


def test_a_slave_is_measured_by_its_master(typed: Typist) -> None:
    typed.cluster.brokers["slave"].journal.service.stop()
    typed.does("produce Orders more --quiet --count 4")
    told = typed("ha status one")
    master, slave = told.rows
    assert told.code == FAILED
    assert master["behind"] is None
    assert slave["behind"] == master["log_end"] - slave["log_end"] > 0
    one, two = typed("top one --count 1").lines[0]["brokers"]
    assert (one["behind"], two["behind"]) == (None, slave["behind"])
    assert (one["log_end"], two["log_end"]) == (master["log_end"], slave["log_end"])


def test_two_masters_of_one_name_are_a_fault(typed: Typist) -> None:
    role = typed.cluster.brokers["slave"].configuration.store
    role.broker_role = BrokerRole.SYNC_MASTER
    told = typed("ha status")
    assert told.code == FAILED
    addresses = [typed.cluster.address(name) for name in ("one", "slave")]
    assert f"one has 2 masters: {', '.join(addresses)}" in told.lines[0]["problems"]


def test_a_broker_that_says_yes_and_does_nothing_is_named(typed: Typist) -> None:
    address = typed.cluster.address("two")
    for code in (RequestCode.UPDATE_BROKER_CONFIG, RequestCode.UPDATE_CONSUMER_OFFSET):
        typed.answers("two", code, lambda _: DONE)
    told = typed("broker config set DefaultCluster fileReservedTime=9 --yes")
    assert (told.code, told.lines[-1]) == (FAILED, {"done": False})
    assert complaints(told) == [f"{address} has fileReservedTime=72, not 9"]
    told = typed("group clone g other --topic Orders --yes")
    assert (told.code, told.lines[-1]) == (FAILED, {"done": False})
    assert complaints(told) == [
        f"two has no offset for queue {queue} of Orders, not 1: did other start meanwhile?"
        for queue in (0, 1)
    ]


def test_a_clone_is_of_one_topic_or_all_but_retries(typed: Typist) -> None:
    typed.does("topic create Others --queues 1 --on two")
    typed.does("produce Others x --quiet --count 3")
    typed.does("consume Others -g g --until-end")
    both = typed.does("group clone g other --dry-run").rows
    assert of(both, "topic", "broker", "queue", "before", "after") == [
        ("Orders", "one", 0, None, 1),
        ("Orders", "one", 1, None, 1),
        ("Orders", "two", 0, None, 1),
        ("Orders", "two", 1, None, 1),
        ("Others", "two", 0, None, 3),
    ]
    one = typed.does("group clone g other --topic Others --yes")
    assert of(one.rows, "topic", "after") == [("Others", 3)]
    assert one.lines[-1] == {"done": True}
    (row,) = typed.does("group clone g other --topic Others --dry-run").rows
    assert (row["before"], row["after"]) == (3, 3)
    told = typed("group clone g other --topic Nothing --yes")
    assert (told.code, "g has no offsets in Nothing" in told.err) == (NOT_FOUND, True)
    told = typed("group clone g g --yes")
    assert (told.code, "g is both" in told.err) == (FAILED, True)


@pytest.fixture
def second(typed: Typist) -> str:
    """Another name server that nobody registers at; where both are."""
    node = NamesrvNode(typed.cluster.world.add("ns2"))
    node.start()
    return f"{typed.cluster.namesrv.address};{node.address}"


def test_name_servers_that_differ_are_warned_of_and_made_equal(typed: Typist, second: str) -> None:
    typed.does("kv set colour green --yes")
    told = typed("kv list", namesrv=second)
    assert (told.code, len(told.rows)) == (0, 1)
    assert complaints(told) == [
        "name servers differ: set the key again; the command writes it to all of them"
    ]
    told = typed("kv set colour green --yes", namesrv=second)
    assert of(told.rows, "name_server", "before", "after") == [
        (second.split(";")[1], None, "green")
    ]
    told = typed("kv list", namesrv=second)
    assert (of(told.rows, "namespace", "key", "value", "name_server"), told.err) == (
        [("ORDER_TOPIC_CONFIG", "colour", "green", server) for server in second.split(";")],
        "",
    )
    told = typed("kv delete colour --yes", namesrv=second)
    assert (told.code, told.lines[-1]) == (0, {"done": True})
    assert typed("kv list", namesrv=second).code == NOT_FOUND


def test_a_name_server_that_is_silent_is_named(typed: Typist) -> None:
    both = f"{typed.cluster.namesrv.address};10.9.9.9:9876"
    for line, is_changing in (
        ("kv list", False),
        ("kv set colour green --yes", True),
        ("namesrv config get orderMessageEnable", False),
        ("namesrv config set orderMessageEnable=true --yes", True),
    ):
        told = typed(line, "--timeout", "1", namesrv=both)
        assert told.code == NO_ANSWER, line
        assert complaints(told)[0].startswith("10.9.9.9:9876: "), line
        assert ("nothing was changed" in told.err) is is_changing
    assert typed("kv list").code == NOT_FOUND
    told = typed("broker writes one off --yes", "--timeout", "1", namesrv=both)
    assert told.code == NO_ANSWER
    assert of(told.lines[-1]["rows"], "name_server", "writes") == [
        (typed.cluster.namesrv.address, "off")
    ]
    assert told.lines[-1]["done"] is False
    told = typed("topic delete Orders --yes", "--timeout", "1", namesrv=both)
    assert told.code == 0
    assert complaints(told)[0].startswith("the name server 10.9.9.9:9876 still knows Orders: ")


def test_a_name_server_that_says_yes_and_does_nothing_is_named(typed: Typist) -> None:
    typed.does("kv set size large --yes")
    server = typed.cluster.namesrv.address
    routes = typed.cluster.namesrv.namesrv._server.dispatcher.routes
    for code in (
        RequestCode.PUT_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG,
        RequestCode.UPDATE_NAMESRV_CONFIG,
    ):
        routes[code] = lambda *_: DONE
    for line, complaint in (
        ("kv set colour green --yes", f"{server} has no colour"),
        ("kv delete size --yes", f"{server} has size=large"),
        (
            "namesrv config set orderMessageEnable=true --yes",
            f"{server} has orderMessageEnable=false, not true: does it know this key?",
        ),
    ):
        told = typed(line)
        assert (told.code, told.lines[-1]) == (FAILED, {"done": False}), line
        assert complaints(told) == [complaint]
    told = typed.does("kv set size large --yes")
    assert told.lines == [{"done": False, "rows": []}], "it has it already"
    told = typed("kv delete nothing --yes")
    assert (told.code, "no name server has nothing in ORDER_TOPIC_CONFIG" in told.err) == (
        NOT_FOUND,
        True,
    )


def test_settings_of_name_servers_are_shown_one_by_one(typed: Typist, second: str) -> None:
    told = typed("namesrv config get orderMessageEnable listenPort", namesrv=second)
    assert told.code == 0
    assert told.lines == [
        {"name_server": server, "orderMessageEnable": "false", "listenPort": "9876"}
        for server in second.split(";")
    ]
    assert len(typed.does("namesrv config get").lines[0]) > 5
    told = typed("namesrv config get noSuchKey other")
    assert (told.code, "no name server has noSuchKey, other" in told.err) == (NOT_FOUND, True)
    told = typed("namesrv config set orderMessageEnable=true --yes", namesrv=second)
    assert of(told.rows, "broker", "address", "key", "before", "after") == [
        (None, server, "orderMessageEnable", "false", "true") for server in second.split(";")
    ]
    assert told.lines[-1] == {"done": True}


def test_producers_are_led_elsewhere(typed: Typist) -> None:
    told = typed("broker writes two off --dry-run")
    row = {"name_server": typed.cluster.namesrv.address, "broker": "two", "writes": "off"}
    assert (told.code, told.lines) == (0, [{"done": False, "rows": [row]}])
    assert told.err == ""
    told = typed("broker writes two off --yes")
    assert told.lines[-1]["done"] is True
    (row,) = told.lines[-1]["rows"]
    assert row["topics"] > 0
    assert of(typed.does("route Orders").rows, "broker", "perm") == [("one", "RW"), ("two", "R-")]
    told = typed("broker writes three off --yes")
    assert (told.code, "no broker is called three (known: one, two)" in told.err) == (
        NOT_FOUND,
        True,
    )
