"""What is counted and shown over several brokers: each figure, and whose it is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.ops.admin.session import FAILED, NOT_FOUND, USAGE
from tests.unit.client.sim_cluster import SimCluster
from tests.unit.ops.admin.typing_kit import Typist, of


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Typist:
    """A topic of two queues on each broker; a group that has 12 of 20 messages."""
    typed = Typist(SimCluster("one", "two"), monkeypatch)
    typed.does("topic create Orders --queues 2")
    typed.does("produce Orders x --quiet --count 12")
    typed.does("consume Orders -g g --until-end")
    typed.does("produce Orders x --quiet --count 8")
    typed.cluster.run(6)
    return typed


def tells(typed: Typist, broker: str, **values: str) -> None:
    """It says something else of itself."""
    routes = typed.cluster.brokers[broker].dispatcher.routes
    handler = routes[RequestCode.GET_BROKER_RUNTIME_INFO]

    def answer(channel: Any, command: Any) -> Any:
        told = handler(channel, command)
        body = json.loads(told.body)
        body["table"].update(values)
        told.body = json.dumps(body).encode()
        return told

    routes[RequestCode.GET_BROKER_RUNTIME_INFO] = answer


def test_rates_are_of_the_last_ten_seconds_and_add_up(typed: Typist) -> None:
    """Brokers tell three, of which the first is meant."""
    tells(typed, "one", putTps="10.26 20 30", getTransferedTps="4 5 6", commitLogDiskRatio="0.456")
    tells(typed, "two", putTps="0.5 20 30", getTransferedTps="", commitLogDiskRatio="-1")
    (row,) = typed.does("cluster list").rows
    assert (row["in_tps"], row["out_tps"]) == (10.8, 4.0)
    assert of(typed.does("broker list").rows, "in_tps", "out_tps", "disk") == [
        (10.3, 4.0, "46 %"),
        (0.5, None, None),
    ]
    seen = typed.does("top --count 1").lines[0]["brokers"]
    assert of(seen, "in_s", "out_s", "disk") == [(10.3, 4.0, "46 %"), (0.5, None, None)]


def test_a_cluster_is_well_when_each_name_has_a_master(typed: Typist) -> None:
    typed.cluster.add("slave", BrokerRole.SLAVE, broker={"broker_name": "one", "broker_id": 1})
    typed.cluster.add("far", broker={"broker_cluster_name": "Other"})
    typed.cluster.run(6)
    told = typed.does("cluster list")
    assert of(told.rows, "cluster", "names", "masters", "slaves", "silent") == [
        ("DefaultCluster", 2, 2, 1, 0),
        ("Other", 1, 1, 0, 0),
    ]
    assert [row["topics"] for row in told.rows] == sorted(
        (row["topics"] for row in told.rows), reverse=True
    )
    assert of(typed.does("cluster list Other").rows, "cluster", "names") == [("Other", 1)]
    typed.cluster.crash("one")
    typed.cluster.run(1)
    told = typed("cluster list")
    assert (told.code, of(told.rows, "masters")) == (FAILED, [(1,), (1,)])


def day(second: float, *sums: int) -> RemotingCommand:
    spans = ("statsMinute", "statsHour", "statsDay")
    value = {
        span: {"sum": count, "tps": second, "avgpt": 0.0}
        for span, count in zip(spans, sums, strict=True)
    }
    return RemotingCommand(0, {}, json.dumps(value).encode())


def test_what_came_and_went_is_added_over_brokers(typed: Typist) -> None:
    figures = {
        ("one", "TOPIC_PUT_NUMS", "Orders"): day(1.26, 7, 70, 60),
        ("two", "TOPIC_PUT_NUMS", "Orders"): day(2.5, 9, 0, 30),
        ("one", "GROUP_GET_NUMS", "Orders@g"): day(0.5, 4, 0, 0),
        ("two", "GROUP_GET_NUMS", "Orders@g"): day(0.25, 3, 5, 4),
    }
    for name in ("one", "two"):

        def answer(command: RemotingCommand, name: str = name) -> Any:
            ext = command.ext or {}
            key = (name, ext["statsName"], ext["statsKey"])
            return figures.get(key) or RemotingCommand(1, {}, b"", remark="nobody")

        typed.answers(name, RequestCode.VIEW_BROKER_STATS_DATA, answer)
    (row,) = (row for row in typed.does("stats").rows if row["topic"] == "Orders")
    assert row == {
        "topic": "Orders",
        "group": "g",
        "in_s": 3.8,
        "in_day": 100,
        "out_s": 0.8,
        "out_day": 9,
        "waiting": 8,
    }
    (row,) = typed.does("stats two --topic Orders").rows
    assert (row["in_s"], row["in_day"], row["out_day"]) == (2.5, 30, 5)
    assert row["waiting"] == 4
    typed.does("topic create Idle --queues 1")
    assert "Idle" not in {row["topic"] for row in typed.does("stats").rows}
    (row,) = typed.does("stats --topic Idle").rows
    assert row == {"topic": "Idle", "in_s": 0.0, "in_day": 0} | dict.fromkeys(
        ("group", "out_s", "out_day", "waiting")
    )
    every = {row["topic"] for row in typed.does("stats --all").rows}
    assert {"Idle", "Orders", "TBW102"} <= every
    assert typed("stats --topic Nothing").code == NOT_FOUND


def test_topics_are_listed_with_their_shape(typed: Typist) -> None:
    typed.does("topic create New --read-queues 3 --perm W")
    typed.does("topic update New --write-queues 5 --on two --yes")

    def listed(line: str, *columns: str) -> list[tuple[Any, ...]]:
        rows = [row for row in typed.does(line).rows if row["topic"] in ("New", "Orders")]
        return of(rows, "topic", "broker", *columns)

    assert listed("topic list", "read_queues", "write_queues", "perm") == [
        ("New", "one", 3, 8, "-W"),
        ("New", "two", 3, 5, "-W"),
        ("Orders", "one", 2, 2, "RW"),
        ("Orders", "two", 2, 2, "RW"),
    ]
    assert listed("topic list two") == [("New", "two"), ("Orders", "two")]
    rows = typed.does("topic update New --queues 5 --dry-run").rows
    assert of(rows, "broker", "read_queues", "write_queues", "perm", "before") == [
        ("one", 5, 5, "-W", "3/8 -W"),
        ("two", 5, 5, "-W", "3/5 -W"),
    ]
    rows = typed.does("topic update New --write-queues 5 --yes").rows
    assert of(rows, "before") == [("3/8 -W",), ("the same",)]
    people = typed.as_typed("topic update New --write-queues 6 --dry-run").out
    assert people.splitlines()[0].strip() == "dry run"
    told = typed("topic create New")
    assert (told.code, "one has New already: use topic update" in told.err) == (FAILED, True)
    told = typed(f"topic create New --on {typed.cluster.address('one')}")
    assert f"{typed.cluster.address('one')} has New already" in told.err
    told = typed("topic update Nothing --queues 3 --yes")
    assert (told.code, "no broker has Nothing: use topic create" in told.err) == (NOT_FOUND, True)
    for name in ("A B", "x" * 200):
        assert typed("topic create", "--", name).code != 0
    for queues in ("0", "65537"):
        assert typed(f"topic create Other --queues {queues}").code == USAGE


def test_where_a_topic_is(typed: Typist) -> None:
    typed.cluster.add("slave", BrokerRole.SLAVE, broker={"broker_name": "one", "broker_id": 1})
    typed.cluster.run(12)
    typed.does("topic update Orders --perm R --on two --yes")
    address = typed.cluster.address
    told = typed.does("route Orders").lines[0]
    assert told["topic"] == "Orders"
    assert told["rows"] == [
        {
            "cluster": "DefaultCluster",
            "broker": "one",
            "read_queues": 2,
            "write_queues": 2,
            "perm": "RW",
            "addresses": f"0={address('one')} 1={address('slave')}",
        },
        {
            "cluster": "DefaultCluster",
            "broker": "two",
            "read_queues": 2,
            "write_queues": 2,
            "perm": "R-",
            "addresses": f"0={address('two')}",
        },
    ]


def test_each_queue_has_its_ends(typed: Typist) -> None:
    told = typed.does("topic status Orders").lines[0]
    assert told["messages"] == 20
    assert of(told["rows"], "broker", "queue", "min", "max", "messages") == [
        (name, queue, 0, 5, 5) for name in ("one", "two") for queue in (0, 1)
    ]
    assert typed.does("topic status Orders --on two").lines[0]["messages"] == 10
    rows = typed.does("topic delete Orders --dry-run").rows
    assert of(rows, "broker", "messages") == [("one", 10), ("two", 10)]
    typed.does("topic create Lone --queues 1 --on two")
    assert of(typed.does("topic delete Lone --dry-run").rows, "broker", "messages") == [("two", 0)]
    told = typed("topic delete Nothing --yes")
    assert (told.code, "no broker has Nothing" in told.err) == (NOT_FOUND, True)


def test_groups_are_counted_and_changed_where_they_are(typed: Typist) -> None:
    (row,) = typed.does("group list").rows
    assert row == {"group": "g", "brokers": 2, "members": 0, "lag": 8, "consume": True}
    assert of(typed.does("group list one").rows, "group", "brokers", "lag") == [("g", 1, 4)]
    assert len(typed.does("group list --all").rows) > 1
    rows = typed.does("group create h --retries 4 --on two").rows
    assert of(rows, "group", "broker", "key", "before", "after") == [
        ("h", "two", "retry_max_times", None, 4)
    ]
    rows = typed.does("group update h --retries 4 --no-broadcast --yes").rows
    assert of(rows, "broker", "key", "before", "after") == [
        ("two", "retry_max_times", 4, 4),
        ("two", "consume_broadcast_enable", True, False),
    ]
    made = typed.cluster.brokers["two"].groups.get("h")
    assert (made.retry_max_times, made.consume_broadcast_enable) == (4, False)
    told = typed("group create h")
    assert (told.code, "two has h already: use group update" in told.err) == (FAILED, True)
    told = typed("group update nobody --retries 4 --yes")
    assert (told.code, "no broker has the group nobody" in told.err) == (NOT_FOUND, True)
    told = typed("group delete nobody --yes")
    assert told.code == NOT_FOUND
    for wrong in ("--retries -2", "--retry-queues 0"):
        assert typed(f"group update g {wrong} --yes").code == USAGE


def test_a_deleted_group_loses_its_topics_and_if_wanted_its_offsets(typed: Typist) -> None:
    typed.does("topic create %DLQ%g --queues 1 --on one")
    typed.does("produce %DLQ%g dead --quiet --count 3")
    told = typed.does("group delete g --keep-offsets --yes")
    assert of(told.rows, "topic", "messages") == [("%RETRY%g", 0), ("%DLQ%g", 3)]
    assert not any("%" in row["topic"] for row in typed.does("topic list --all").rows)
    offsets = typed.cluster.brokers["one"].consumer_offsets
    assert offsets.query("g", "Orders", 0) >= 0
    typed.does("group create g")
    typed.does("group delete g --yes", is_silent=True)
    assert offsets.query("g", "Orders", 0) < 0


def test_queues_are_shared_out_in_the_order_of_the_members(typed: Typist) -> None:
    rows = typed.does("topic allocate Orders c a b a").rows
    assert of(rows, "member", "queues", "which") == [
        ("a", 2, "one:0 one:1"),
        ("b", 1, "two:0"),
        ("c", 1, "two:1"),
    ]
    typed.does("topic update Orders --perm W --yes")
    typed.cluster.run(31)
    told = typed("topic allocate Orders a")
    assert (told.code, "Orders has no queue that may be read" in told.err) == (NOT_FOUND, True)
    assert typed("topic allocate Nothing a").code == NOT_FOUND


def test_how_far_a_group_is_has_its_parts(typed: Typist) -> None:
    told = typed.does("lag g --topic Orders").lines[0]
    assert (told["group"], told["lag"], told["consume_tps"] >= 0) == ("g", 8, True)
    assert of(
        told["rows"], "topic", "broker", "queue", "broker_offset", "consumer_offset", "lag"
    ) == [("Orders", name, queue, 5, 3, 2) for name in ("one", "two") for queue in (0, 1)]
    assert all(row["last"].startswith("20") for row in told["rows"])
    told = typed("lag g --fail-above 7")
    assert (told.code, "g is 8 messages behind" in told.err) == (FAILED, True)


def test_settings_are_shown_by_key_and_changed_with_what_was_before(typed: Typist) -> None:
    address = typed.cluster.address
    lines = typed.does("broker config get DefaultCluster deleteWhen fileReservedTime").lines
    assert lines == [
        {"address": address(name), "deleteWhen": "04", "fileReservedTime": "72"}
        for name in ("one", "two")
    ]
    assert len(typed.does("broker config get one").lines[0]) > 50
    told = typed("broker config get one a b")
    assert (told.code, "(one) have no a, b" in told.err) == (NOT_FOUND, True)
    told = typed.does("broker config set DefaultCluster fileReservedTime=9 deleteWhen=05 --dry-run")
    assert told.lines[0]["done"] is False
    assert of(told.rows, "broker", "address", "key", "before", "after") == [
        (name, address(name), key, before, after)
        for name in ("one", "two")
        for key, before, after in (("fileReservedTime", "72", "9"), ("deleteWhen", "04", "05"))
    ]
    for wrong in ("fileReservedTime", "=9", "brokerRole=SLAVE"):
        assert typed(f"broker config set one {wrong} --yes").code == USAGE, wrong
    (status,) = typed.does(f"broker status {address('two')}").lines
    assert (status["broker"], status["id"], status["address"]) == ("", None, address("two"))
    keys = list(status)[3:]
    assert keys == sorted(keys)
    rows = typed.does("broker clean two files --dry-run").rows
    assert of(rows, "broker", "log_begin", "hours") == [("two", 0, "72")]
    assert rows[0]["log_end"] == typed.cluster.brokers["two"].store.log.max_offset
    people = typed.as_typed("broker clean two files --dry-run").out
    assert "older than fileReservedTime" in people
    assert "not done yet" in people


def test_who_is_asked_by_an_address_needs_no_name_server(typed: Typist) -> None:
    address = typed.cluster.address("two")
    for line in (f"broker list {address}", f"ha status {address}", f"top {address} --count 1"):
        assert typed(line, namesrv="").code == 0, line
    (row,) = typed.does(f"broker list {address}").rows
    assert (row["cluster"], row["broker"], row["id"]) == ("", "two", 0)
    told = typed("broker list three")
    assert (told.code, "no broker is called three (known: one, two)" in told.err) == (
        NOT_FOUND,
        True,
    )


def test_groups_grow_and_shrink_by_the_second(typed: Typist) -> None:
    typed.meanwhile(
        1.0, lambda: typed.cluster.brokers["one"].consumer_offsets.commit("g", "Orders", 0, 5)
    )
    first, second = typed.does("top --count 2 --seconds 2").lines
    assert of(first["groups"], "group", "lag", "per_s") == [("g", 8, None)]
    assert of(second["groups"], "group", "lag", "per_s") == [("g", 6, -1.0)]
    assert typed.does("top --count 1 --groups 0").lines[0]["groups"] == []
    assert typed("top --seconds 0.1").code == USAGE


def test_groups_of_rocketmq_itself_are_shown_when_they_are_behind(typed: Typist) -> None:
    """Those of users also where they have everything."""
    typed.does("consume Orders -g g --until-end")
    groups = typed.does("top --count 1").lines[0]["groups"]
    assert of(groups, "group", "lag") == [("g", 0)]
    typed.cluster.brokers["two"].consumer_offsets.commit("TOOLS_CONSUMER", "Orders", 0, 1)
    groups = typed.does("top --count 1").lines[0]["groups"]
    assert of(groups, "group", "lag") == [("TOOLS_CONSUMER", 4 + 5), ("g", 0)], "of both queues"


def test_consuming_nothing_ends_at_once(typed: Typist) -> None:
    typed.does("topic create Empty --queues 2")
    began = typed.cluster.clock.seconds()
    typed.does("consume Empty -g h --until-end", is_silent=True)
    assert typed.cluster.clock.seconds() - began < 1


def test_tail_shows_no_more_than_was_wanted_of_one_queue(typed: Typist) -> None:
    assert len(typed.does("tail Orders --since earliest --queue one:0 --count 3").lines) == 3
    assert (
        len(typed.does("tail Orders --since earliest --queue 0 --count 7 --no-follow").lines) == 7
    )
