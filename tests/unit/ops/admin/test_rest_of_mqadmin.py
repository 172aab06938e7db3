"""What mqadmin has beside the daily commands: clones, shares, members, places, traces, settings."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from rmq_ha.base.host.disk import RealDisk
from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.consume.consume_tracing import ConsumeTracer
from rmq_ha.client.consume.push_consumer import PushConsumer
from rmq_ha.client.lookup.groups import EARLIEST
from rmq_ha.client.lookup.lookups import PullTerms
from rmq_ha.client.rules.consumer_settings import PushConsumerConfig
from rmq_ha.client.rules.messages import Message
from rmq_ha.client.rules.settings import ProducerConfig
from rmq_ha.client.send.producer import Producer
from rmq_ha.client.send.tracing import Tracer
from rmq_ha.ops.admin import (
    broker,
    clone,
    cluster,
    demote,
    group,
    namesrv,
    offsets,
    promote,
    tail,
    topic,
)
from rmq_ha.ops.admin.main import main
from rmq_ha.ops.admin.message import show_trace
from rmq_ha.ops.admin.message_lookup import Spot, at_spot
from rmq_ha.ops.admin.options import Options
from rmq_ha.ops.admin.output import Output
from rmq_ha.ops.admin.points_in_time import PointInTime
from rmq_ha.ops.admin.session import FAILED, NO_ANSWER, NOT_FOUND, USAGE, Session, perform
from rmq_ha.testing.host import World
from tests.unit.client.sim_cluster import SimCluster
from tests.unit.ops.admin.admin_kit import Said, say

YES = {"yes": True, "dry_run": False}
DRY = {"yes": False, "dry_run": True}


@pytest.fixture
def cluster_of_two() -> SimCluster:
    """With the topic T on both."""
    known = SimCluster("one", "two")
    shape = {"queues": 4, "read_queues": None, "write_queues": None, "perm": None}
    make = topic.change_topic
    how = {"is_new": True, "yes": True, "dry_run": False}
    assert say(known, lambda s: make(s, "T", "", shape, **how)).code == 0
    known.run(1)
    return known


def send(known: SimCluster, count: int, topic: str = "T", tracer: bool = False) -> list[str]:
    """Unique ids of what was sent."""
    ids = []

    async def work() -> None:
        instance = known.client("sender")
        traces = Tracer(instance)
        hooks = [traces] if tracer else []
        producer = Producer(instance, ProducerConfig(producer_group="makers"), hooks=hooks)
        if tracer:
            await traces.start()
        await producer.start()
        for number in range(count):
            ids.append((await producer.send(Message(topic, b"m%d" % number))).msg_id)
        await producer.stop()
        if tracer:
            await traces.stop()

    known.wait(work())
    return ids


def reader(known: SimCluster, host: str = "reader", group: str = "readers") -> PushConsumer:
    consumer = PushConsumer(known.client(host), group, PushConsumerConfig())
    consumer.subscribe("T")
    consumer.register_message_listener(lambda found, _: None)
    known.wait(consumer.start())
    return consumer


def read_all(known: SimCluster) -> None:
    """The group `readers` has all that was sent, and is gone."""
    consumer = reader(known)
    known.run(25)
    known.wait(consumer.stop())


def cloned(known: SimCluster, source: str, group: str, **sure: bool) -> Said:
    return say(known, lambda s: clone.clone_offsets(s, source, group, **sure))


def test_a_group_goes_on_where_another_one_is(cluster_of_two: SimCluster) -> None:
    send(cluster_of_two, 24)
    read_all(cluster_of_two)
    dry = cloned(cluster_of_two, "readers", "next", **DRY)
    assert dry.code == 0
    assert {row["topic"] for row in dry.json["rows"]} == {"T"}
    assert sum(row["after"] for row in dry.json["rows"]) == 24
    assert say(cluster_of_two, lambda s: lag_of(s, "next")).json == {"queues": 0}
    assert cloned(cluster_of_two, "readers", "next", **YES).last == {"done": True}
    again = cloned(cluster_of_two, "readers", "next", **YES)
    assert all(
        row["before"] == row["after"] for row in json.loads(again.out.splitlines()[0])["rows"]
    )
    assert cloned(cluster_of_two, "nobody", "next", **YES).code == NOT_FOUND
    assert cloned(cluster_of_two, "readers", "readers", **YES).code == FAILED


async def lag_of(session: Session, group: str) -> None:
    found = await Asker(await session.client()).run(offsets.consume_stats(group))
    session.output.fields({"queues": len(found.queues)})


def test_a_group_that_runs_is_not_overwritten(cluster_of_two: SimCluster) -> None:
    send(cluster_of_two, 8)
    read_all(cluster_of_two)
    reader(cluster_of_two, "other", "busy")
    cluster_of_two.run(5)
    said = cloned(cluster_of_two, "readers", "busy", **YES)
    assert said.code == FAILED
    assert "busy has members" in said.err


def test_where_it_would_go_on_is_shown_before_anybody_says_yes(
    cluster_of_two: SimCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """reset-offset: the question comes behind the table, and nothing is done without a yes."""
    send(cluster_of_two, 12)
    read_all(cluster_of_two)
    asked: list[str] = []

    def ask(question: str, **_: Any) -> bool:
        asked.append(question)
        return False

    monkeypatch.setattr("click.confirm", ask)
    move = offsets.move_offsets
    sure = {"yes": False, "dry_run": False}
    said = say(cluster_of_two, lambda s: move(s, "T", "readers", EARLIEST, **sure))
    assert (said.code, asked) == (FAILED, ["Reset readers in T?"])
    assert said.json["done"] == "nothing was changed"
    assert sum(row["before"] for row in said.json["rows"]) == 12
    done = say(cluster_of_two, lambda s: move(s, "T", "readers", EARLIEST, **YES))
    assert sum(row["before"] for row in done.json["rows"]) == 12, "the refusal changed nothing"
    dry = say(cluster_of_two, lambda s: move(s, "T", "readers", EARLIEST, **DRY))
    assert {row["before"] for row in dry.json["rows"]} == {0}


@pytest.mark.parametrize("how", sorted(topic.STRATEGIES))
def test_queues_are_shared_out_to_imagined_members(cluster_of_two: SimCluster, how: str) -> None:
    send(cluster_of_two, 1)
    strategy = topic.STRATEGIES[how]
    said = say(cluster_of_two, lambda s: topic.show_shares(s, "T", ("b", "a", "c"), strategy))
    rows = said.json["rows"]
    assert [row["member"] for row in rows] == ["a", "b", "c"]
    queues = [queue for row in rows for queue in row["which"].split()]
    assert len(queues) == len(set(queues)) == sum(row["queues"] for row in rows)
    assert len(queues) >= 4


def test_members_say_what_they_have(cluster_of_two: SimCluster) -> None:
    send(cluster_of_two, 12)
    for host in ("a", "b"):
        reader(cluster_of_two, host)
    cluster_of_two.run(40)
    send(cluster_of_two, 12)
    cluster_of_two.run(5)
    said = say(cluster_of_two, lambda s: group.show_clients(s, "readers", stacks=True))
    assert said.code == 0, said.err
    rows = [row for row in said.json["rows"] if row["topic"] == "T"]
    assert len({row["client_id"] for row in rows}) == 2
    queues = [queue for row in rows for queue in row["queues"].split()]
    assert len(queues) == len(set(queues)) >= 4
    assert sum(row["consumed_s"] for row in rows) > 0
    assert all("no threads" in text for text in said.json["stacks"].values())
    assert say(cluster_of_two, lambda s: group.show_clients(s, "nobody")).code == NOT_FOUND


def test_a_message_is_found_at_the_place_that_tail_shows(cluster_of_two: SimCluster) -> None:
    (msg_id,) = send(cluster_of_two, 1)

    async def look(session: Session, spot: Spot) -> None:
        (found,) = await Asker(await session.client()).run(at_spot("T", spot))
        session.output.fields({"msg_id": found.msg_id})

    places = [Spot(name, queue, 0) for name in ("one", "two") for queue in range(4)]
    found = [say(cluster_of_two, lambda s, p=place: look(s, p)) for place in places]
    assert [said.json["msg_id"] for said in found if said.code == 0] == [msg_id]
    missing = [said for said in found if said.code]
    assert {said.code for said in missing} == {NOT_FOUND}
    assert all("it goes from" in said.err for said in missing)


def test_tail_shows_one_queue_only(cluster_of_two: SimCluster) -> None:
    send(cluster_of_two, 16)

    def shown(*only: tail.QueueFilter) -> Said:
        async def work(session: Session) -> None:
            asker = Asker(await session.client())
            reading = tail.TopicTail(session, asker, "T", PullTerms("TOOLS"), None)
            await reading.run(PointInTime(EARLIEST), only, follow=False)

        return say(cluster_of_two, work)

    places = {
        (row["broker_name"], row["queue_id"])
        for row in map(json.loads, shown(tail.QueueFilter("", 1)).out.splitlines())
    }
    assert places == {("one", 1), ("two", 1)}
    one = shown(tail.QueueFilter("one", 1), tail.QueueFilter("two", 2)).out.splitlines()
    assert {json.loads(line)["queue_id"] for line in one} == {1, 2}
    assert shown(tail.QueueFilter("one", 77)).code == NOT_FOUND


def test_a_trace_says_who_sent_and_who_consumed(cluster_of_two: SimCluster) -> None:
    (msg_id,) = send(cluster_of_two, 1, tracer=True)

    async def consume() -> None:
        instance = cluster_of_two.client("reader")
        traces = Tracer(instance)
        await traces.start()
        hooks = [ConsumeTracer(instance, traces)]
        consumer = PushConsumer(instance, "readers", PushConsumerConfig(), hooks=hooks)
        consumer.subscribe("T")
        consumer.register_message_listener(lambda found, _: None)
        await consumer.start()

    cluster_of_two.wait(consume())
    cluster_of_two.run(20)
    said = say(cluster_of_two, lambda s: show_trace(s, msg_id))
    assert said.code == 0, said.err
    rows = said.json["rows"]
    assert [(row["what"], row["group"]) for row in rows] == [
        ("sent", "makers"),
        ("consuming", "readers"),
        ("consumed", "readers"),
    ]
    assert [row["status"] for row in rows] == ["stored", "attempt 1", "success"]
    assert say(cluster_of_two, lambda s: show_trace(s, "0" * 32)).code == NOT_FOUND


def test_settings_of_name_servers_are_changed_and_checked(cluster_of_two: SimCluster) -> None:
    shown = say(cluster_of_two, lambda s: namesrv.show_settings(s, ["orderMessageEnable"]))
    assert shown.json["orderMessageEnable"] == "false"
    change = {"orderMessageEnable": "true"}
    dry = say(cluster_of_two, lambda s: namesrv.change_settings(s, change, **DRY))
    assert dry.json["rows"][0]["before"] == "false"
    done = say(cluster_of_two, lambda s: namesrv.change_settings(s, change, **YES))
    assert (done.code, done.last) == (0, {"done": True}), done.err
    assert say(cluster_of_two, lambda s: namesrv.show_settings(s, ["nope"])).code == NOT_FOUND
    both = f"{cluster_of_two.namesrv.address};10.9.9.9:9876"
    said = say(cluster_of_two, lambda s: namesrv.change_settings(s, change, **YES), namesrv=both)
    assert said.code == NO_ANSWER


@pytest.mark.parametrize("what", sorted(broker.CLEAN_KINDS))
def test_brokers_are_told_to_clean(cluster_of_two: SimCluster, what: str) -> None:
    send(cluster_of_two, 4)
    dry = say(cluster_of_two, lambda s: broker.clean_brokers(s, "one", what, **DRY))
    assert (dry.code, dry.json["rows"][0]["hours"]) == (0, "72")
    assert dry.json["rows"][0]["log_end"] >= 0
    done = say(cluster_of_two, lambda s: broker.clean_brokers(s, "one", what, **YES))
    assert (done.code, done.last) == (0, {"done": True})


def test_a_cluster_in_a_line(cluster_of_two: SimCluster) -> None:
    send(cluster_of_two, 1)
    (row,) = say(cluster_of_two, cluster.show_clusters).json["rows"]
    assert (row["names"], row["masters"], row["slaves"], row["silent"]) == (2, 2, 0, 0)
    assert row["topics"] > 0
    cluster_of_two.crash("two", power=True)
    said = say(cluster_of_two, cluster.show_clusters)
    assert said.code == NO_ANSWER
    assert said.json["rows"][0]["silent"] == 1


def test_round_trips_and_stored_messages_are_timed(cluster_of_two: SimCluster) -> None:
    send(cluster_of_two, 1)
    said = say(cluster_of_two, lambda s: cluster.show_times(s, "", 3, "T"))
    assert said.code == 0, said.err
    kinds = [row["kind"] for row in said.json["rows"]]
    assert kinds == ["name server", "master", "master", "send", "send"]
    assert {(row["asked"], row["failed"]) for row in said.json["rows"]} == {(3, 0)}
    assert all(
        0 <= row["least_ms"] <= row["mean_ms"] <= row["most_ms"] for row in said.json["rows"]
    )
    cluster_of_two.crash("two", power=True)
    said = say(cluster_of_two, lambda s: cluster.show_times(s, "", 3))
    assert said.code == NO_ANSWER
    assert [row["failed"] for row in said.json["rows"]] == [0, 0, 1]


def test_what_is_wrong_usage_to_a_command_at_work_is_said(cluster_of_two: SimCluster) -> None:
    async def work(session: Session) -> None:
        raise click.UsageError("not like that")

    said = say(cluster_of_two, work)
    assert (said.code, json.loads(said.err)["error"]) == (USAGE, "not like that")


def test_a_cluster_is_written_down(cluster_of_two: SimCluster) -> None:
    send(cluster_of_two, 4)
    read_all(cluster_of_two)

    async def work(session: Session) -> None:
        document, problems = await cluster.cluster_document(session, offsets=True)
        session.output.fields({**document, "problems": problems})

    found = say(cluster_of_two, work).json
    assert [item["broker"] for item in found["brokers"]] == ["one", "two"]
    assert not found["problems"]
    one = found["brokers"][0]
    assert "T" in {item["topicName"] for item in one["topics"]}
    assert "readers" in {item["groupName"] for item in one["groups"]}
    assert one["config"]["brokerName"] == "one"
    assert "T@readers" in one["offsets"]


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_text("mine")
    result = CliRunner().invoke(main, ["cluster", "export", str(path), "-n", "127.0.0.1:1"])
    assert (result.exit_code, path.read_text()) == (USAGE, "mine")


CONTROLLED = (
    "brokerName=b\nbrokerIP1=127.0.0.1\nlistenPort=10911\nnamesrvAddr=127.0.0.1:9876\n"
    "enableControllerMode=true\ncontrollerAddr=127.0.0.1:9878\n"
)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("promote --yes -c FILE --role ASYNC_MASTER", "--role"),
        ("promote --yes -c FILE --restart true", "--restart"),
        ("demote --yes -c FILE --wait 5", "--wait"),
        ("demote --yes -c FILE --id 3", "--id"),
        ("handover b --yes --group g", "--group"),
        ("message show --at b:1:2 -t T --since 1h", "--since"),
        ("message show X -t T --max 3", "--max"),
        ("produce T --count 3", "--count"),
    ],
)
def test_what_would_have_no_effect_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, named: str
) -> None:
    """It says which option, and what to do without it; nothing was asked, nothing is changed."""
    path = tmp_path / "broker.properties"
    path.write_text(CONTROLLED)
    for module in (promote, demote):
        monkeypatch.setattr(module, "run", without_a_reactor)
    words = [str(path) if word == "FILE" else word for word in line.split()]
    result = CliRunner().invoke(main, [*words, "-n", "127.0.0.1:1"])
    assert result.exit_code == USAGE, result.output
    assert f"{named}: " in result.output
    assert "eave " in result.output or "Give " in result.output
    assert path.read_text() == CONTROLLED


def without_a_reactor(work: Any) -> None:
    """Ends before anything has to be waited for."""
    host = replace(World(0).add("admin").seams, disk=RealDisk())
    session = Session(host, Options(), Output(as_json=False))
    with pytest.raises(StopIteration) as end:
        perform(session, work).send(None)
    click.get_current_context().exit(end.value.value)


def test_the_document_names_every_command_of_mqadmin() -> None:
    """Each with ours beside it, or the reason; `MQADMIN` is what 4.9.7 lists."""
    text = (Path(__file__).parents[4] / "docs" / "reference" / "commands.md").read_text()
    table = text[text.index("| mqadmin | rmqha-admin |") :].split("\n\n")[0]
    named = [line.split(" | ") for line in table.splitlines()[2:]]
    of_java = {word for cells in named for word in re.findall(r"`(\w+)", cells[0])}
    assert set(MQADMIN.split()) - of_java == set()
    for _, ours, *reason in named:
        assert "`" in ours or reason[0].strip(" |"), ours
    shown = {word for cells in named for word in re.findall(r"`([a-z-]+)", cells[1])}
    assert set(main.commands) - shown == set()


MQADMIN = """
updateTopic deleteTopic updateSubGroup deleteSubGroup updateBrokerConfig updateTopicPerm topicRoute
topicStatus topicClusterList brokerStatus queryMsgById queryMsgByKey queryMsgByUniqueKey
queryMsgByOffset queryMsgTraceById printMsg printMsgByQueue sendMsgStatus brokerConsumeStats
producerConnection consumerConnection consumerProgress consumerStatus cloneGroupOffset producer
clusterList topicList updateKvConfig deleteKvConfig wipeWritePerm addWritePerm resetOffsetByTime
skipAccumulatedMessage updateOrderConf cleanExpiredCQ deleteExpiredCommitLog cleanUnusedTopic
startMonitoring statsAll allocateMQ checkMsgSendRT clusterRT getNamesrvConfig updateNamesrvConfig
getBrokerConfig getConsumerConfig queryCq sendMessage consumeMessage updateAclConfig
deleteAclConfig clusterAclConfigVersion updateGlobalWhiteAddr getAclConfig exportMetadata
exportConfigs exportMetrics
"""
