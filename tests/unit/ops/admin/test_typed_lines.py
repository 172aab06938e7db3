"""Lines as operators type them: each option does what it says, each exit code is as documented."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.base.wire import fastjson
from rmq_ha.ops.admin.session import FAILED, NO_ANSWER, NOT_FOUND, USAGE
from tests.unit.client.sim_cluster import SimCluster
from tests.unit.ops.admin.typing_kit import Typist


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Typist:
    return Typist(SimCluster("one", "two"), monkeypatch)


@pytest.fixture
def orders(typed: Typist) -> Typist:
    """With a topic of two queues on each broker, and six messages."""
    typed.does("topic create Orders --queues 2")
    typed.does("produce Orders --quiet --key k1 --tags red", given="a\nb\nc\nd\n")
    typed.does("produce Orders e --quiet --count 2 --tags blue")
    return typed


def names(rows: list[Any], column: str) -> set[Any]:
    return {row[column] for row in rows}


def test_a_topic_comes_changes_and_goes(typed: Typist) -> None:
    tables = [typed.cluster.brokers[name].topics.table for name in ("one", "two")]
    typed.does("topic create Orders --queues 2 --dry-run")
    assert not any("Orders" in table for table in tables)
    typed.does("topic create Orders --queues 2")
    typed.does("topic update Orders --queues 6 --yes")
    assert [table["Orders"].write_queue_nums for table in tables] == [6, 6]
    typed.does("topic update Orders --queues 8 --dry-run")
    assert [table["Orders"].write_queue_nums for table in tables] == [6, 6]
    typed.does("topic create Single --queues 1 --on one")
    assert ["Single" in table for table in tables] == [True, False]
    few, every = (
        names(typed.does(line).rows, "topic") for line in ("topic list", "topic list --all")
    )
    assert {"Orders", "Single"} <= few < every
    typed.does("topic delete Orders --dry-run")
    assert all("Orders" in table for table in tables)
    typed.does("topic delete Orders --yes")
    assert not any("Orders" in table for table in tables)
    assert typed("route Orders").code == NOT_FOUND


def test_what_is_sent_is_there(orders: Typist) -> None:
    rows = orders.does("topic status Orders").rows
    assert {row["broker"] for row in rows} == {"one", "two"}
    on_one = orders.does("topic status Orders --on one").rows
    assert {row["broker"] for row in on_one} == {"one"}
    seen = orders.does("tail Orders --since earliest --no-follow").lines
    assert sorted(line["body"] for line in seen) == ["a", "b", "c", "d", "e", "e"]
    assert len(orders.does("tail Orders --since earliest --no-follow --count 2").lines) == 2
    red = orders.does("tail Orders --since earliest --no-follow --tags red").lines
    assert sorted(line["body"] for line in red) == ["a", "b", "c", "d"]
    assert orders("tail Orders --no-follow") == (0, "", "")
    assert len(orders.does("tail Orders --since earliest --count 2").lines) == 2, "it ends then"
    assert len(orders.does("tail Orders --since earliest --no-follow --queue one:0").lines) < 6


def test_sends_with_all_their_options(orders: Typist, tmp_path: Path) -> None:
    file = tmp_path / "body"
    file.write_bytes(b"of a file")
    orders.does(f"produce Orders --file {file} --property colour=green --shard s --group makers")
    orders.does("produce Orders late --delay-level 3")
    (found,) = [
        line
        for line in orders.does("tail Orders --since earliest --no-follow").lines
        if line["body"] == "of a file"
    ]
    assert found["properties"]["colour"] == "green"
    for wrong in (
        f"produce Orders x --file {file}",
        "produce Orders --count 2",
        "produce Orders x --property colour",
        "produce Orders x --delay-level 19",
    ):
        assert orders(wrong).code == USAGE, wrong
    orders.cluster.run(12)
    bodies = [
        line["body"] for line in orders.does("tail Orders --since earliest --no-follow").lines
    ]
    assert "late" in bodies


def test_a_group_consumes_and_is_asked_how_far_it_is(orders: Typist) -> None:
    taken = orders.does("consume Orders -g g --count 4")
    assert len(taken.lines) >= 4
    orders.does("consume Orders -g g --until-end")
    assert orders.does("lag g").code == 0
    assert orders.does("lag g --fail-above 0").code == 0
    orders.does("produce Orders more --quiet --count 3")
    assert orders("lag g --fail-above 2").code == FAILED
    assert orders("lag g --fail-above 3").code == 0
    assert orders("lag g -t Nothing").code == NOT_FOUND
    assert orders("lag nobody").code == NOT_FOUND
    assert orders("consume Orders -g g --until-end --broadcast").code == USAGE
    assert orders("consume Orders -g g --tags a --sql", "a > 1").code == USAGE


def test_how_far_a_group_is_behind_is_told_by_queue_and_in_all(orders: Typist) -> None:
    orders.does("consume Orders -g g --until-end")
    orders.does("produce Orders more --quiet --count 3")
    (told,) = orders.does("lag g").lines
    assert (told["group"], told["lag"]) == ("g", 3)
    rows = [row for row in told["rows"] if row["topic"] == "Orders"]
    assert sum(row["lag"] for row in rows) == 3
    assert sorted((row["broker"], row["queue"]) for row in rows) == [
        (name, queue) for name in ("one", "two") for queue in (0, 1)
    ]
    (row,) = (row for row in orders.does("stats -t Orders").rows if row["group"] == "g")
    assert row["waiting"] == 3


def test_when_the_last_message_came_is_told_where_one_came(typed: Typist) -> None:
    typed.does("topic create Orders --queues 2 --on one")
    typed.does("produce Orders x --quiet")
    rows = {row["messages"]: row for row in typed.does("topic status Orders").rows}
    assert rows[0]["last"] is None
    assert rows[1]["last"].startswith("20")


def test_a_group_goes_elsewhere(orders: Typist) -> None:
    orders.does("consume Orders -g g --until-end")
    orders.does("reset-offset Orders -g g --to earliest --dry-run")
    assert orders("lag g --fail-above 0").code == 0
    orders.does("reset-offset Orders -g g --to earliest --yes")
    orders.cluster.run(6)
    assert orders("lag g --fail-above 5").code == FAILED
    assert orders("reset-offset Orders -g g --to never --yes").code == USAGE
    typed = orders.does("group clone g other --dry-run")
    assert orders("lag other").code == NOT_FOUND, typed
    orders.does("group clone g other --topic Orders --yes")
    orders.cluster.run(6)
    assert orders.does("lag other").code == 0


def test_groups_come_change_and_go(typed: Typist) -> None:
    tables = [typed.cluster.brokers[name].groups.table for name in ("one", "two")]
    typed.does("group create g --dry-run")
    assert not any("g" in table for table in tables)
    typed.does("group create g")
    assert all("g" in table for table in tables)
    typed.does("group create h --on two")
    rows = {row["group"]: row for row in typed.does("group list").rows}
    assert {"g", "h"} <= rows.keys()
    assert names(typed.does("group list one").rows, "group") & {"g", "h"} == {"g"}
    assert typed.does("group show g").out
    assert typed("group show nobody").code == NOT_FOUND
    assert typed("group clients g").code == NOT_FOUND
    typed.does("group delete g --dry-run")
    assert all("g" in table for table in tables)
    typed.does("group delete g --yes")
    assert not any("g" in table for table in tables)


def test_a_group_is_on_where_one_broker_lets_it_consume(typed: Typist) -> None:
    """And how many brokers have it is counted for each."""
    for name, where, enabled in (
        ("all", "", ""),
        ("first", "", "one"),
        ("second", "", "two"),
        ("lone", "two", ""),
        ("off", "two", "two"),
    ):
        typed.does(f"group create {name}" + (f" --on {where}" if where else ""))
        if enabled:
            typed.does(f"group update {name} --no-consume --on {enabled} --yes")
    found = {row["group"]: row for row in typed.does("group list").rows}
    assert {name: (row["brokers"], row["consume"]) for name, row in found.items()} == {
        "all": (2, True),
        "first": (2, True),
        "second": (2, True),
        "lone": (1, True),
        "off": (1, False),
    }


def test_brokers_are_looked_at_and_changed(typed: Typist) -> None:
    assert names(typed.does("broker list").rows, "broker") == {"one", "two"}
    assert names(typed.does("broker list one").rows, "broker") == {"one"}
    (status,) = typed.does("broker status one").lines
    assert (status["broker"], status["id"]) == ("one", 0)
    (shown,) = typed.does("broker config get one fileReservedTime").lines
    assert shown == {"address": typed.cluster.address("one"), "fileReservedTime": "72"}
    every = typed.does("broker config get DefaultCluster fileReservedTime brokerName").lines
    assert [line["brokerName"] for line in every] == ["one", "two"]
    assert typed("broker config get one noSuchKey").code == NOT_FOUND
    typed.does("broker config set one fileReservedTime=12 --dry-run")
    typed.does("broker config set two fileReservedTime=12 --yes")
    kept = [typed.cluster.brokers[name].configuration.store for name in ("one", "two")]
    assert [store.file_reserved_time for store in kept] == [72, 12]
    assert typed("broker config set one fileReservedTime --yes").code == USAGE
    typed.does("broker clean one files --yes")
    brokers = typed.cluster.brokers
    typed.does("broker writes one off --dry-run")
    assert brokers["one"].configuration.broker.broker_permission == 6
    typed.does("broker writes one off --yes")
    typed.does("topic create Orders --queues 1")
    assert names(typed.does("route Orders").rows, "perm") == {"R-", "RW"}
    typed.does("broker writes one on --yes")
    assert names(typed.does("route Orders").rows, "perm") == {"RW"}


def test_the_cluster_in_a_line_and_as_a_document(orders: Typist, tmp_path: Path) -> None:
    (row,) = orders.does("cluster list").rows
    assert (row["names"], row["masters"], row["slaves"], row["silent"]) == (2, 2, 0, 0)
    assert orders("cluster list Nowhere").code == NOT_FOUND
    assert orders.does("cluster ping --count 2").rows
    assert orders.does("cluster ping one --count 2 --send Orders --size 64").rows
    file = tmp_path / "cluster.json"
    orders.does("consume Orders -g g --count 1")
    (told,) = orders.does(f"cluster export {file}").lines
    assert told == {"brokers": 2, "file": str(file)}
    data = orders.host.disk.read_bytes(str(file))
    file.write_bytes(data)
    assert orders(f"cluster export {file}").code == USAGE
    (with_offsets,) = orders.does("cluster export --offsets").lines
    (of_one,) = orders.does("cluster export --on one").lines
    whole = fastjson.parse(data)
    assert len(whole["brokers"]) == len(with_offsets["brokers"]) == 2
    assert len(of_one["brokers"]) == 1
    assert whole != with_offsets
    assert orders.does("ha status").rows
    assert orders.does("stats --all").rows
    assert orders.does("stats -t Orders").rows is not None
    assert orders.does("top --count 1").lines
    assert orders.does("connections").rows == []
    assert orders.does("connections one -g nobody").rows == []


def test_keys_and_settings_of_name_servers(typed: Typist) -> None:
    typed.does("kv set colour green --dry-run")
    assert "green" not in typed("kv list").out
    typed.does("kv set colour green --yes")
    assert "green" in typed.does("kv list").out
    typed.does("kv delete colour --yes")
    assert "green" not in typed("kv list").out
    assert "orderMessageEnable" in typed.does("namesrv config get orderMessageEnable").out
    typed.does("namesrv config set orderMessageEnable=true --dry-run")
    assert "true" not in typed.does("namesrv config get orderMessageEnable").out
    typed.does("namesrv config set orderMessageEnable=true --yes")
    assert "true" in typed.does("namesrv config get orderMessageEnable").out


def test_a_message_is_found_and_queues_are_shared_out(orders: Typist) -> None:
    first = orders.does("tail Orders --since earliest --no-follow --count 1").lines[0]
    found = orders.does(f"message show {first['msg_id']} --topic Orders").lines
    assert found[0]["body"] == first["body"]
    by_key = orders.does("message show --key k1 --topic Orders").lines
    assert sorted(line["body"] for line in by_key) == ["a", "b", "c", "d"]
    assert orders("message show --key nothing --topic Orders").code == NOT_FOUND
    assert orders(f"message show {first['msg_id']}").code == USAGE
    host, port = orders.cluster.address("one").split(":")
    nowhere = bytes(map(int, host.split("."))) + int(port).to_bytes(4) + (1 << 20).to_bytes(8)
    told = orders(f"message show {nowhere.hex()}")
    assert (told.code, "has no message there" in told.err) == (NOT_FOUND, True)
    assert orders(f"message trace {first['msg_id']}").code == NOT_FOUND
    shares = orders.does("topic allocate Orders m1 m2").rows
    assert [(row["member"], row["queues"]) for row in shares] == [("m1", 2), ("m2", 2)]
    assert orders.does("topic allocate Orders m1 m2 --by AVG_BY_CIRCLE").rows != shares


def test_dead_letters_are_none_or_named(orders: Typist) -> None:
    assert orders.does("dlq list").code == 0
    assert orders.does("dlq list --fail-above 0").code == 0
    assert orders("dlq show g").code == NOT_FOUND
    assert orders("dlq resend g --yes").code == NOT_FOUND


def test_lines_of_stdin_are_sent_whether_the_last_one_ends_or_not(
    typed: Typist, logged: list[Any]
) -> None:
    typed.does("topic create Orders --queues 1 --on one")
    told = typed.does("produce Orders --quiet", given="a\r\n\nb")
    assert told.lines[-1] == {"sent": 2, "failed": 0}
    seen = typed.does("tail Orders --since earliest --no-follow").lines
    assert [line["body"] for line in seen] == ["a", "b"]
    for name in ("one", "two"):
        typed.cluster.crash(name)
    told = typed("produce Orders --quiet", given="c\nd\n")
    assert (told.code, told.lines[-1]) == (FAILED, {"sent": 0, "failed": 2})
    gc.collect()
    assert not [event for event in logged if event.get("isError")], "they were told already"


def test_a_context_has_what_was_given_and_nothing_else(typed: Typist, tmp_path: Path) -> None:
    at = ["--context-file", str(tmp_path / "contexts.json")]
    typed.does("context add near --use", *at)
    (shown,) = typed.does("context show near", *at).lines
    assert shown["namesrv"] == typed.cluster.namesrv.address
    kept = json.loads((tmp_path / "contexts.json").read_text())
    assert kept["used"] == "near"
    assert kept["contexts"] == {"near": {"namesrv": typed.cluster.namesrv.address}}
    (row,) = typed.does("context list", *at).rows
    assert (row["context"], row["used"]) == ("near", True)
    typed.does("context use --none", *at)
    assert not typed.does("context list", *at).rows[0]["used"]
    assert typed("context use", *at).code == USAGE
    typed.does("context delete near --dry-run", *at)
    typed.does("context delete near --yes", *at)
    assert typed.does("context list", *at).rows == []


def test_who_does_not_answer_is_another_exit_code_than_what_is_not_there(typed: Typist) -> None:
    assert typed("topic list", namesrv="10.9.9.9:9876").code == NO_ANSWER
    assert typed("topic list", namesrv="").code == USAGE
    assert typed("topic status Nothing").code == NOT_FOUND
    assert typed("broker status three").code == NOT_FOUND
    assert typed("no such command").code == USAGE
