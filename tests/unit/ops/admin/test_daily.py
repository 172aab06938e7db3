"""Daily commands against simulated brokers: what operators did with mqadmin."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from rmq_ha.base.model.status import BrokerRole
from rmq_ha.client.consume.push_consumer import PushConsumer
from rmq_ha.client.rules.consumer_settings import PushConsumerConfig
from rmq_ha.client.rules.messages import Message, MessageExt
from rmq_ha.client.rules.settings import ProducerConfig
from rmq_ha.client.send.producer import Producer
from rmq_ha.ops.admin import broker, connections, consume, dlq, group, ha, topic
from rmq_ha.ops.admin.main import main
from rmq_ha.ops.admin.retry_policy import RetryBackoff, RetryPauses
from rmq_ha.ops.admin.session import FAILED, NO_ANSWER, NOT_FOUND, USAGE
from tests.unit.client.sim_cluster import SimCluster
from tests.unit.ops.admin.admin_kit import say

DOCS = Path(__file__).parents[4] / "docs"
SHAPE = {"queues": None, "read_queues": None, "write_queues": None, "perm": None}
YES = {"yes": True, "dry_run": False}
DRY = {"yes": False, "dry_run": True}


@pytest.fixture
def cluster() -> SimCluster:
    return SimCluster("one", "two")


def make(cluster: SimCluster, name: str, which: str = "", **shape: Any) -> Any:
    work = topic.change_topic
    return say(
        cluster, lambda s: work(s, name, which, SHAPE | shape, is_new=True, yes=True, dry_run=False)
    )


def send(cluster: SimCluster, name: str, count: int) -> None:
    async def work() -> None:
        client = cluster.client()
        producer = Producer(client, ProducerConfig(producer_group="makers"))
        await producer.start()
        for number in range(count):
            await producer.send(Message(name, b"m%d" % number))
        await producer.stop()

    cluster.wait(work())


def test_brokers_and_their_rates(cluster: SimCluster) -> None:
    """One that does not answer is in the list, and the exit code says so."""
    said = say(cluster, lambda s: broker.show_brokers(s, ""))
    assert said.code == 0
    one, two = said.json["rows"]
    assert (one["broker"], one["role"], one["version"]) == ("one", "ASYNC_MASTER", "V4_9_7")
    assert one["disk"] == "1 %", "a start makes and locks the log's folder; Java says -1 until then"
    assert two["address"] == cluster.address("two")
    cluster.crash("two", power=True)
    said = say(cluster, lambda s: broker.show_brokers(s, ""))
    assert said.code == NO_ANSWER
    assert [row["role"] for row in said.json["rows"]] == ["ASYNC_MASTER", None]
    assert say(cluster, lambda s: broker.show_brokers(s, "three")).code == NOT_FOUND


def test_settings_are_changed_and_checked(cluster: SimCluster) -> None:
    """A dry run changes nothing; what needs a restart is refused with its reason."""
    change = {"fileReservedTime": "12"}
    told = say(cluster, lambda s: broker.set_config(s, "one", change, **DRY))
    assert told.json["rows"][0]["before"] == "72"
    config = cluster.brokers["one"].configuration
    assert config.store.file_reserved_time == 72
    assert say(cluster, lambda s: broker.set_config(s, "one", change, **YES)).last == {"done": True}
    assert config.store.file_reserved_time == 12
    shown = say(cluster, lambda s: broker.show_config(s, "one", ["fileReservedTime"]))
    assert shown.json["fileReservedTime"] == "12"
    said = say(
        cluster, lambda s: broker.set_config(s, "one", {"flushDiskType": "SYNC_FLUSH"}, **YES)
    )
    assert said.code == FAILED
    assert "read at the start" in said.err
    said = say(cluster, lambda s: broker.set_config(s, "one", {"noSuchKey": "1"}, **YES))
    assert said.code == FAILED  # brokers ignore it in silence, as Java's do
    assert say(cluster, lambda s: broker.show_config(s, "one", ["noSuchKey"])).code == NOT_FOUND


def test_settings_that_no_peer_may_change_are_refused_at_once() -> None:
    done = CliRunner().invoke(main, ["broker", "config", "set", "a:1", "brokerRole=SLAVE", "--yes"])
    assert done.exit_code == USAGE
    assert "says who this broker is" in done.output


def test_topics_come_change_and_go(cluster: SimCluster) -> None:
    assert make(cluster, "Orders", queues=3).code == 0
    said = say(cluster, lambda s: topic.show_topics(s, ""))
    rows = [row for row in said.json["rows"] if row["topic"] == "Orders"]
    assert [(row["broker"], row["read_queues"], row["perm"]) for row in rows] == [
        ("one", 3, "RW"),
        ("two", 3, "RW"),
    ]
    assert make(cluster, "Orders").code == FAILED
    assert make(cluster, "Or ders").code == FAILED

    def update(**sure: bool) -> Any:
        shape = SHAPE | {"perm": "R"}
        work = topic.change_topic
        return say(cluster, lambda s: work(s, "Orders", "two", shape, is_new=False, **sure))

    assert update(**DRY).json["rows"][0]["before"] == "3/3 RW"
    assert cluster.brokers["two"].topics.get("Orders").perm == 6
    update(**YES)
    found = [cluster.brokers[name].topics.get("Orders") for name in ("one", "two")]
    assert [(item.perm, item.write_queue_nums) for item in found] == [(6, 3), (4, 3)]
    send(cluster, "Orders", 4)
    cluster.run(1)
    said = say(cluster, lambda s: topic.show_topic(s, "Orders"))
    assert (len(said.json["rows"]), said.json["messages"]) == (6, 4)
    assert say(cluster, lambda s: topic.delete_everywhere(s, "Orders", **DRY)).code == 0
    assert "Orders" in cluster.namesrv.namesrv.routes.topics()
    assert say(cluster, lambda s: topic.delete_everywhere(s, "Orders", **YES)).last["deleted"]
    assert "Orders" not in cluster.namesrv.namesrv.routes.topics()
    assert cluster.brokers["one"].topics.get("Orders") is None
    assert say(cluster, lambda s: topic.show_topic(s, "Orders")).code == NOT_FOUND


def test_groups_are_made_and_changed(cluster: SimCluster) -> None:
    """What is not given stays; none is made by an update, none changed by a creation."""

    def change(name: str, given: dict[str, Any], *, is_new: bool) -> Any:
        work = group.change_group
        return say(cluster, lambda s: work(s, name, "one", given, is_new=is_new, **YES))

    assert change("buyers", {"retry_max_times": 3}, is_new=False).code == NOT_FOUND
    assert change("buyers", {"retry_max_times": 3}, is_new=True).code == 0
    assert change("buyers", {"retry_max_times": 4}, is_new=True).code == FAILED
    assert change("buy@ers", {}, is_new=True).code == FAILED
    said = change("buyers", {"consume_enable": False}, is_new=False)
    assert [(row["key"], row["before"], row["after"]) for row in said.json["rows"]] == [
        ("consume_enable", True, False)
    ]
    made = cluster.brokers["one"].groups.get("buyers")
    assert (made.retry_max_times, made.consume_enable) == (3, False)
    assert cluster.brokers["two"].groups.get("buyers") is None


def test_a_group_gets_a_retry_policy_which_clients_of_grpc_are_told(cluster: SimCluster) -> None:
    pauses = RetryPauses().convert("1s 10s 1m", None, None)
    backoff = RetryBackoff().convert("5s 2h 2", None, None)
    work = group.change_group

    def change(given: dict[str, Any], *, is_new: bool) -> Any:
        return say(cluster, lambda s: work(s, "buyers", "one", given, is_new=is_new, **YES))

    def stored() -> Any:
        return cluster.brokers["one"].groups.get("buyers").foreign["groupRetryPolicy"]

    assert change({"retry_pauses": pauses}, is_new=True).code == 0
    assert stored() == {
        "type": "CUSTOMIZED",
        "customizedRetryPolicy": {"next": [1000, 10_000, 60_000]},
    }
    said = change({"retry_backoff": backoff}, is_new=False)
    assert [row["before"]["type"] for row in said.json["rows"]] == ["CUSTOMIZED"]
    assert stored() == {
        "type": "EXPONENTIAL",
        "exponentialRetryPolicy": {"initial": 5000, "max": 7_200_000, "multiplier": 2},
    }
    assert "EXPONENTIAL" in say(cluster, lambda s: group.show_group(s, "buyers")).out


@pytest.mark.parametrize("text", ["", "1", "1s x", "9h -1s"])
def test_pauses_that_are_no_times_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        RetryPauses().convert(text, None, None)


@pytest.mark.parametrize("text", ["", "5s 2h", "2h 5s 2", "5s 2h 0", "5s 2h x", "x 2h 2"])
def test_a_backoff_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        RetryBackoff().convert(text, None, None)


class Members:
    """Consumers of a group that fails with every message, or takes it."""

    def __init__(self, cluster: SimCluster, name: str, fails: bool) -> None:
        self.got: list[MessageExt] = []
        self._cluster = cluster
        self._fails = fails
        config = PushConsumerConfig(max_reconsume_times=0)
        self.consumer = PushConsumer(cluster.client(f"member {fails}"), name, config)
        self.consumer.subscribe("Work")
        self.consumer.register_message_listener(self._listen)
        cluster.wait(self.consumer.start())

    def _listen(self, messages: Any, context: object) -> None:
        self.got += messages
        if self._fails:
            raise ValueError("no")

    def until(self, count: int) -> None:
        self._cluster.clock.run_while(lambda: len(self.got) < count, 120)
        assert len(self.got) >= count

    def stop(self) -> None:
        self._cluster.wait(self.consumer.stop())


@pytest.fixture
def dead(logged: list[Any]) -> SimCluster:
    """A group `workers` that gave up 3 messages."""
    cluster = SimCluster("one")
    make(cluster, "Work", queues=1)
    members = Members(cluster, "workers", fails=True)
    send(cluster, "Work", 3)
    members.until(3)
    cluster.run(16)
    assert say(cluster, lambda s: group.show_groups(s)).json["rows"][0]["members"] == 1
    said = say(cluster, lambda s: connections.show_connections(s))
    assert [(row["kind"], row["group"]) for row in said.json["rows"]] == [("consumer", "workers")]
    said = say(cluster, lambda s: group.show_group(s, "workers"))
    assert said.json["subscriptions"]["Work"] == "*"
    assert said.json["lag"]["Work"] == 0
    said = say(cluster, lambda s: group.delete_everywhere(s, "workers", keep_offsets=False, **YES))
    assert (said.code, "stop them first" in said.err) == (FAILED, True)
    members.stop()
    return cluster


def test_dead_letters_go_back_to_their_group_once(dead: SimCluster) -> None:
    """Only that group gets them, under their own topic; the next call sends none twice."""
    said = say(dead, lambda s: dlq.show_groups(s))
    assert [(row["group"], row["messages"]) for row in said.json["rows"]] == [("workers", 3)]
    said = say(dead, lambda s: dlq.resend_to(s, "workers", **DRY))
    assert said.last == {"would_send": 3, "sent": 0}
    assert say(dead, lambda s: dlq.resend_to(s, "workers", most=2, **YES)).last["sent"] == 2
    assert say(dead, lambda s: dlq.resend_to(s, "workers", **YES)).last["sent"] == 1
    assert say(dead, lambda s: dlq.resend_to(s, "workers", **YES)).code == NOT_FOUND
    members = Members(dead, "workers", fails=False)
    members.until(3)
    dead.run(3)
    assert sorted(item.body for item in members.got) == [b"m0", b"m1", b"m2"]
    assert {item.topic for item in members.got} == {"Work"}
    members.stop()
    assert (
        say(dead, lambda s: dlq.resend_to(s, "workers", every=True, **DRY)).last["would_send"] == 3
    )


def test_a_group_goes_with_its_retries_and_dead_letters(dead: SimCluster) -> None:
    said = say(dead, lambda s: group.delete_everywhere(s, "workers", keep_offsets=False, **YES))
    assert said.last["deleted"]
    assert say(dead, lambda s: group.show_group(s, "workers")).code == NOT_FOUND
    left = dead.brokers["one"].topics.table
    assert not [name for name in left if "workers" in name]
    assert say(dead, lambda s: group.show_groups(s)).json["rows"] == []


def test_the_pair_at_a_glance() -> None:
    """Its exit code is for monitoring: 1 without a slave, 0 with one that follows."""
    cluster = SimCluster()
    named = {"broker_name": "pair"}
    cluster.add("a", BrokerRole.SYNC_MASTER, broker=named)
    said = say(cluster, lambda s: ha.show_pairs(s, ""))
    assert said.code == FAILED
    assert "SYNC_MASTER without a slave" in said.json["problems"][0]
    cluster.add("b", BrokerRole.SLAVE, broker=named | {"broker_id": 1})
    cluster.run(12)
    said = say(cluster, lambda s: ha.show_pairs(s, "pair"))
    assert said.code == 0, said.out
    master, slave = said.json["rows"]
    assert (master["role"], master["state"]) == ("SYNC_MASTER", "1 slaves")
    assert (slave["state"], slave["behind"], slave["id"]) == ("following", 0, 1)
    assert slave["tables_s"] < 11
    cluster.crash("a")
    cluster.run(1)
    said = say(cluster, lambda s: ha.show_pairs(s, "pair"))
    assert said.code == FAILED
    assert "pair has no master: docs/failover.md" in said.json["problems"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_and_version(shell: str) -> None:
    done = CliRunner().invoke(main, ["completion", shell])
    assert "_RMQHA_ADMIN_COMPLETE" in done.output
    assert CliRunner().invoke(main, ["--version"]).output.startswith("rmqha-admin, version ")
    environ = {"COMP_WORDS": "rmqha-admin topic cr", "COMP_CWORD": "2"}
    found = CliRunner().invoke(
        main, env={**environ, "_RMQHA_ADMIN_COMPLETE": "bash_complete"}, prog_name="rmqha-admin"
    )
    assert "create" in found.output


def test_consuming_ends_where_the_queues_ended_whoever_consumed_them(cluster: SimCluster) -> None:
    """What comes later is left; a second run has nothing to do."""
    make(cluster, "Orders", queues=2)
    send(cluster, "Orders", 10)
    cluster.run(1)
    given = {"where": "first", "broadcast": False, "orderly": False, "count": None}

    def consumed(tags: str = "*") -> Any:
        selector = consume.selector_of(tags, None)
        more = given | {"until_end": True}
        work = consume.consume_as
        return say(cluster, lambda s: work(s, "Orders", "readers", selector, **more))

    said = consumed()
    assert (said.code, len(said.out.splitlines())) == (0, 10)
    assert consumed().out == ""
    send(cluster, "Orders", 3)
    cluster.run(1)
    assert len(consumed().out.splitlines()) == 3
    send(cluster, "Orders", 3)
    cluster.run(1)
    assert consumed("nobody").out == ""  # what a filter leaves out counts as consumed
    done = CliRunner().invoke(main, ["consume", "T", "-g", "g", "--until-end", "--broadcast"])
    assert done.exit_code == USAGE


def test_a_group_that_no_broker_makes_is_said_at_once() -> None:
    """The consumer of the command would wait for ever."""
    cluster = SimCluster()
    cluster.add("one", broker={"auto_create_subscription_group": False})
    make(cluster, "Orders", queues=2)
    send(cluster, "Orders", 3)
    cluster.run(1)
    given = {"where": "first", "broadcast": False, "orderly": False, "count": None}
    given["until_end"] = True
    selector = consume.selector_of("*", None)

    def consumed() -> Any:
        work = consume.consume_as
        return say(cluster, lambda s: work(s, "Orders", "readers", selector, **given))

    began = cluster.world.clock.seconds()
    said = consumed()
    assert said.code == FAILED
    assert "does not have the group readers" in said.err
    assert "rmqha-admin group create readers" in said.err
    assert cluster.world.clock.seconds() - began < 1
    change = group.change_group
    assert say(cluster, lambda s: change(s, "readers", "", {}, is_new=True, **YES)).code == 0
    said = consumed()
    assert (said.code, len(said.out.splitlines())) == (0, 3)


def test_a_group_that_never_gave_up_a_message_has_no_dead_letters(cluster: SimCluster) -> None:
    """Its topic of dead letters is made with the first one."""
    for work in (
        lambda s: dlq.resend_to(s, "workers", **DRY),
        lambda s: dlq.DeadLetters(s, "workers").count(every=True),
    ):
        said = say(cluster, work)
        assert said.code == NOT_FOUND
        assert "no dead letters of workers: it never gave up a message here" in said.err
        assert "create" not in said.err


def commands_of(text: str) -> list[list[str]]:
    """What the documents have in backticks or on lines of their own, word by word."""
    found = re.findall(r"rmqha-admin ([a-z][^`\n]*)", text)
    table = text[text.find("| mqadmin |") :] if "| mqadmin |" in text else ""
    for row in table.splitlines()[2:]:
        if not row.startswith("|"):
            break
        found += re.findall(r"`([^`]*)`", row.split("|")[2])
    lines = [re.sub(r"[\[\]']", " ", item.split("  ")[0]).split() for item in found]
    return [[name, *words] for first, *words in lines for name in first.split("|")]


@pytest.mark.parametrize(
    "document", ["operations", "reference/commands", "dledger", "failover", "client", "doctor"]
)
def test_documents_name_commands_and_options_that_exist(document: str) -> None:
    """Who follows a line at night finds that it is understood."""
    lines = commands_of((DOCS / f"{document}.md").read_text())
    assert len(lines) > 2
    for words in lines:
        command: click.Command = main
        context = click.Context(main)
        for word in words:
            if isinstance(command, click.Group) and re.fullmatch("[a-z-]+", word):
                found = command.get_command(context, word)
                assert found is not None, (document, words)
                command = found
        options = {name for item in command.params for name in item.opts}
        wanted = {word for word in words if re.fullmatch("--[a-z-]+", word)}
        assert wanted <= options, (document, words)
