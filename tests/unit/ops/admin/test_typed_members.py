"""Groups that have members, dead letters and traces, as they are typed."""

from __future__ import annotations

import json

import pytest

from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.stat_bodies import Connection
from rmq_ha.client.consume.push_consumer import PushConsumer
from rmq_ha.client.lookup.running_info import HeldQueue, RunningInfo, TopicPace
from rmq_ha.client.rules.consumer_settings import PushConsumerConfig
from rmq_ha.client.rules.messages import Message
from rmq_ha.client.rules.settings import ProducerConfig
from rmq_ha.client.send.producer import Producer
from rmq_ha.ops.admin.group import _rows
from rmq_ha.ops.admin.session import FAILED, NO_ANSWER, NOT_FOUND
from tests.unit.client.sim_cluster import SimCluster
from tests.unit.ops.admin.typing_kit import Typist, of


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Typist:
    """A topic of two queues on each broker; a group of two members that has read it; a producer."""
    typed = Typist(SimCluster("one", "two"), monkeypatch)
    typed.does("topic create Orders --queues 2")
    typed.does("produce Orders x --quiet --count 8")
    cluster = typed.cluster
    for name in ("m1", "m2"):
        consumer = PushConsumer(cluster.client(name), "readers", PushConsumerConfig())
        consumer.subscribe("Orders", "red || blue" if name == "m1" else "*")
        consumer.register_message_listener(lambda found, _: None)
        cluster.wait(consumer.start())
    producer = Producer(cluster.client("p"), ProducerConfig(producer_group="makers"))
    cluster.wait(producer.start())
    cluster.wait(producer.send(Message("Orders", b"x")))
    cluster.run(31)
    return typed


def test_who_is_connected_is_told_broker_by_broker(typed: Typist) -> None:
    addresses = [typed.cluster.address(name) for name in ("one", "two")]
    rows = typed.does("connections").rows
    assert sorted(of(rows, "kind", "group", "broker")) == [
        *[("consumer", "readers", address) for address in sorted(addresses * 2)],
        *[("producer", "makers", address) for address in addresses],
    ]
    hosts = {typed.cluster.hosts[name].ip for name in ("m1", "m2", "p")}
    assert {row["address"].partition(":")[0] for row in rows} == hosts
    assert {(row["language"], row["version"]) for row in rows} == {("PYTHON", "V4_9_7")}
    only = typed.does("connections one --group makers").rows
    assert of(only, "kind", "group", "broker") == [("producer", "makers", addresses[0])]
    only = typed.does("connections --group readers").rows
    assert {row["kind"] for row in only} == {"consumer"}
    assert len(only) == 4
    assert typed.does("connections --group nobody").rows == []


def test_members_are_shown_with_their_subscriptions(typed: Typist) -> None:
    (told,) = typed.does("group show readers").lines
    assert told["group"] == "readers"
    assert (told["consumeType"], told["messageModel"]) == ("CONSUME_PASSIVELY", "CLUSTERING")
    ids = [member["client_id"] for member in told["members"]]
    assert ids == sorted(set(ids))
    assert len(ids) == 2
    assert set(told["subscriptions"]) == {"Orders", "%RETRY%readers"}
    assert told["lag"]["Orders"] == 0
    addresses = {typed.cluster.address(name) for name in ("one", "two")}
    assert set(told["settings"]) == addresses
    people = typed.as_typed("group show readers").out
    for text in [*ids, *addresses, "retryMaxTimes", "CLUSTERING", "Orders", "%RETRY%readers"]:
        assert text in people, text
    assert "groupName" not in people
    (row,) = typed.does("group list").rows
    assert of([row], "group", "brokers", "members", "lag") == [("readers", 2, 2, 0)]


def test_what_each_member_has_is_asked_through_its_broker(typed: Typist) -> None:
    rows = typed.does("group clients readers").rows
    assert len({row["client_id"] for row in rows}) == 2
    queues = sorted(
        queue for row in rows if row["topic"] == "Orders" for queue in row["queues"].split()
    )
    assert queues == ["one:0", "one:1", "two:0", "two:1"]
    assert {row["cached"] for row in rows} == {0}
    assert "stacks" not in typed.does("group clients readers").lines[0]
    told = typed.does("group clients readers --stacks").lines[0]
    assert set(told["stacks"]) == {row["client_id"] for row in rows}
    people = typed.as_typed("group clients readers --stacks").out
    assert people.count("no threads") == 2
    assert typed.as_typed("group clients readers").out.count("no threads") == 0


def test_a_member_that_does_not_answer_is_listed_without_numbers(typed: Typist) -> None:
    for name in ("one", "two"):
        typed.refuses(name, RequestCode.GET_CONSUMER_RUNNING_INFO)
    told = typed("group clients readers")
    assert told.code == NO_ANSWER
    assert len(told.rows) == 2
    for row in told.rows:
        assert row["address"]
        assert {row[key] for key in ("topic", "queues", "cached", "consumed_s", "takes_ms")} == {
            None
        }
    warnings = [json.loads(line)["warning"] for line in told.err.splitlines()]
    assert [text.partition(": ")[0] for text in warnings] == [row["client_id"] for row in told.rows]


def test_rows_of_a_member() -> None:
    """One for each topic of which it has queues or a pace; one without, for who has none."""
    member = Connection("id", "1.2.3.4:5", "JAVA", 0)
    held = [HeldQueue(MessageQueue("T", "b", n), 7, cached) for n, cached in ((0, 3), (1, 4))]
    pace = [TopicPace("T", 1.239, 0.0, 2.0), TopicPace("U", 0.5, 0.25, 1.0)]
    own = ["id", "1.2.3.4:5", "JAVA", "V3_0_0_SNAPSHOT", "remoting"]
    assert _rows(member, RunningInfo(held, pace, "")) == [
        [*own, "T", "b:0 b:1", 7, 1.24, 0.0, 2.0],
        [*own, "U", None, 0, 0.5, 0.25, 1.0],
    ]
    assert _rows(member, RunningInfo(held, [], "")) == [[*own, "T", "b:0 b:1", 7, *[None] * 3]]
    assert _rows(member, RunningInfo([], [], "")) == [[*own, *[None] * 6]]


def test_a_group_with_members_is_not_cloned_over_nor_deleted(typed: Typist) -> None:
    typed.does("group create other")
    typed.does("consume Orders -g other --until-end")
    told = typed("group clone other readers --yes")
    assert (told.code, "readers has members" in told.err) == (FAILED, True)
    told = typed("group delete readers --yes")
    assert (told.code, "stop them first" in told.err) == (FAILED, True)


def test_a_reset_tells_members_that_run(typed: Typist) -> None:
    told = typed.does("reset-offset Orders -g readers --to earliest --dry-run")
    assert told.lines[0]["done"] == "nothing was changed"
    told = typed.does("reset-offset Orders -g readers --to earliest --yes")
    assert told.lines[0]["done"] == "consumers were told"
    assert told.lines[0]["group"] == "readers"
    assert of(told.rows, "broker", "queue", "after") == [
        (name, queue, 0) for name in ("one", "two") for queue in (0, 1)
    ]
    told = typed.does("reset-offset Orders -g nobody --to latest --new --yes")
    assert told.lines[0]["done"] == "no consumer is there: offsets were set"
    assert sum(row["after"] for row in told.rows) == 9, "at the end of each"


@pytest.fixture
def dead(monkeypatch: pytest.MonkeyPatch) -> Typist:
    """Dead letters of two groups; those of `g` on both brokers."""
    typed = Typist(SimCluster("one", "two"), monkeypatch)
    typed.does("topic create %DLQ%g --queues 1")
    typed.does("topic create %DLQ%h --queues 1 --on two")
    typed.does("produce %DLQ%g dead --quiet --count 6 --tags red --key k")
    typed.does("produce %DLQ%h dead --quiet --count 1")
    return typed


def test_dead_letters_are_counted_by_group(dead: Typist) -> None:
    told = dead.does("dlq list")
    assert of(told.rows, "group", "messages") == [("g", 6), ("h", 1)]
    assert told.lines[0]["messages"] == 7
    assert all(row["last"].startswith("20") for row in told.rows)
    assert dead("dlq list --fail-above 6").code == FAILED
    assert dead("dlq list --fail-above 7").code == 0
    assert of(dead.does("dlq list one").rows, "group", "messages") == [("g", 3)]


def test_dead_letters_are_shown_until_they_were_sent_again(dead: Typist) -> None:
    assert len(dead.does("dlq show g").lines) == 6
    assert len(dead.does("dlq show g --max 2").lines) == 2
    told = dead.does("dlq resend g --max 4 --yes")
    assert told.lines[-1] == {"would_send": 4, "sent": 4}
    assert len(dead.does("dlq show g").lines) == 2
    assert len(dead.does("dlq show g --all").lines) == 6
    told = dead.does("dlq resend g --yes")
    assert told.lines[-1] == {"would_send": 2, "sent": 2}
    assert dead("dlq show g").code == dead("dlq resend g --yes").code == NOT_FOUND
    told = dead.does("dlq resend g --all --dry-run")
    assert told.lines[-1] == {"would_send": 6, "sent": 0}
    sent = dead.does("tail %RETRY%g --since earliest --no-follow").lines
    assert len(sent) == 6
    assert {line["tags"] for line in sent} == {"red"}
    assert {line["keys"] for line in sent} == {"k"}
    assert all("ORIGIN_MESSAGE_ID" in line["properties"] for line in sent)


def test_sending_again_stops_where_somebody_has_had_enough_or_one_fails(dead: Typist) -> None:
    dead.interrupts(0.0)
    told = dead("dlq resend g --yes")
    assert told.lines[-1]["would_send"] == 6
    assert told.lines[-1]["sent"] < 6
    for name in ("one", "two"):
        dead.cluster.brokers[name].dispatcher.handle_run = None
        dead.refuses(name, RequestCode.SEND_MESSAGE_V2)
    told = dead("dlq resend h --yes")
    assert (told.code, told.lines[-1]) == (FAILED, {"would_send": 1, "sent": 0})


def test_dead_letters_that_may_not_be_read_say_how_they_can(dead: Typist) -> None:
    for name in ("one", "two"):
        dead.does(f"topic update %DLQ%g --perm W --on {name} --yes")
    dead.cluster.run(31)
    told = dead("dlq show g")
    assert (told.code, "topic update '%DLQ%g' --perm RW" in told.err) == (FAILED, True)
