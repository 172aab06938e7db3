"""Our consumers against our broker and Java's, alone and in groups with Java's consumers."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.base.model.message import offset_msg_id
from rmq_ha.base.wire import fastjson
from rmq_ha.client.lookup.requests import send_request
from tests.interop.conversation import Conversation, compiled_java
from tests.interop.rig import Rig, Server
from tests.interop.wire import Refused, Wire

OURS, JAVA = "broker-ours", "broker-java"
SETTINGS = {
    "messageDelayLevel": " ".join(["1s"] * 18),
    "waitTimeMillsInSendQueue": 10000,
    "waitTimeMillsInPullQueue": 20000,
    "enablePropertyFilter": "true",
}
QUEUES = 4
COUNT = 24
TOPICS = ("plain", "order", "cast", "chosen", "retry", "old", "mixed", "lanes")


class Story:
    """Both brokers behind one name server, a program of our consumers and one of Java's."""

    def __init__(self, rig: Rig, program: list[str], folder: Path) -> None:
        namesrv = rig.namesrv()
        self.servers: dict[str, Server] = {
            name: rig.broker(
                "master-async.conf",
                name,
                java=name == JAVA,
                namesrv=namesrv,
                brokerName=name,
                **SETTINGS,
            )
            for name in (OURS, JAVA)
        }
        self.sent: dict[str, list[str]] = {}
        self.wires = {name: Wire(server.address) for name, server in self.servers.items()}
        for name, wire in self.wires.items():
            for topic in TOPICS:
                wire.create_topic(f"{topic}-{name}", QUEUES)
            self.send(name, "old", 8)
        self.java = Conversation([*program, namesrv], folder / "java.err")
        script = str(Path(__file__).with_name("consumer_program.py"))
        offsets = str(folder / "offsets")
        self.ours = Conversation([sys.executable, script, namesrv, offsets], folder / "ours.err")
        for client in (self.java, self.ours):
            assert client.until(partial(client.count, "ready"), 40, "ready")

    def send(self, broker: str, feature: str, count: int, **properties: str) -> list[str]:
        """Send messages to the queues of a feature's topic in turn."""
        topic = f"{feature}-{broker}"
        sent = self.sent.setdefault(topic, [])
        requests, bodies = [], []
        for number in range(len(sent), len(sent) + count):
            text = {name: value.format(n=number) for name, value in properties.items()}
            joined = "\x02".join(f"{name}\x01{value}" for name, value in text.items())
            body = f"{topic}-{number}"
            requests.append(send_request("p", topic, number % QUEUES, body.encode(), joined, 1))
            bodies.append(body)
        for answer in self.wires[broker].exchange(requests):
            if answer.code:
                raise Refused(answer)
        sent.extend(bodies)
        return bodies

    def tell(self, word: str, name: str, **more: Any) -> None:
        self.ours.tell(f"{word} {name} {json.dumps(more)}")

    def started(self) -> None:
        assert self.ours.done("start", 30), [
            event for event in self.ours.events if event["event"] == "failed"
        ]

    def arrived(self, by: str, wanted: list[str], seconds: float = 30) -> list[str]:
        """All that a consumer got, once everything wanted is among it as often as wanted."""
        found = self.ours.until(
            lambda: not Counter(wanted) - Counter(self.ours.bodies("got", by)),
            seconds,
            f"messages for {by}",
        )
        got = self.ours.bodies("got", by)
        assert found, f"{by} misses {sorted(set(wanted) - set(got))}"
        return got

    def lane(self, broker: str, topic: str, queue_id: int) -> list[str]:
        """A queue as it is stored: Java's broker stores what comes at once in any order."""
        return [record.body.decode() for record in self.wires[broker].pull_all(topic, queue_id)]

    def committed(self, broker: str, group: str, topic: str) -> dict[int, int]:
        table = self.wires[broker].table(43)["offsetTable"]
        return {int(key): value for key, value in table.get(f"{topic}@{group}", {}).items()}

    def close(self) -> None:
        self.ours.close()
        self.java.close()
        for wire in self.wires.values():
            wire.__exit__()


@pytest.fixture(scope="module")
def story(shared_rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("consumers")
    made = Story(shared_rig, compiled_java("MixedConsumer", folder), folder)
    try:
        begin_everything(made)
        yield made
    finally:
        made.close()


def begin_everything(story: Story) -> None:
    """All consumers start together, then everything is sent: one wait for all."""
    for broker in (OURS, JAVA):
        at = partial("{}-{}".format)

        def start(name: str, feature: str, broker: str = broker, at: Any = at, **more: Any) -> None:
            group = more.pop("group", f"g-{name}")
            story.tell(
                "start",
                at(name, broker),
                group=at(group, broker),
                topic=at(feature, broker),
                **more,
            )

        start("plain", "plain")
        start("order", "order", orderly=True, fail=1)
        start("cast1", "cast", group="g-cast", broadcast=True)
        start("cast2", "cast", group="g-cast", broadcast=True)
        start("tags", "chosen", tags="A || B")
        start("sql", "chosen", sql="n > 11 AND kind = 'odd'")
        start("retry", "retry", fail=1)
        start("dead", "retry", fail=99, most=1)
        start("first", "old", broadcast=True, begin="FIRST_OFFSET")
        start("last", "old", broadcast=True, begin="LAST_OFFSET")
        start("early", "old", broadcast=True, begin="TIMESTAMP", time="20200101000000")
        start("new", "old", begin="LAST_OFFSET")
    story.started()
    for broker in (OURS, JAVA):
        for feature in ("plain", "order", "cast", "retry", "old"):
            story.send(broker, feature, COUNT)
        for kind, tag in (("odd", "A"), ("even", "B"), ("odd", "C")):
            story.send(broker, "chosen", 8, TAGS=tag, kind=kind, n="{n}")


BROKERS = pytest.mark.parametrize("broker", [OURS, JAVA])


@BROKERS
def test_a_group_of_one_gets_everything_once(story: Story, broker: str) -> None:
    topic = f"plain-{broker}"
    assert Counter(story.arrived(topic, story.sent[topic])) == Counter(story.sent[topic])


@BROKERS
def test_each_queue_comes_in_order_though_every_message_fails_once(
    story: Story, broker: str
) -> None:
    topic = f"order-{broker}"
    got = story.arrived(topic, story.sent[topic] * 2)
    for number in range(QUEUES):
        lane = story.lane(broker, topic, number)
        assert [body for body in got if body in lane] == [body for body in lane for _ in range(2)]


@BROKERS
def test_everybody_gets_everything_when_broadcasting(story: Story, broker: str) -> None:
    wanted = story.sent[f"cast-{broker}"]
    for name in ("cast1", "cast2"):
        assert Counter(story.arrived(f"{name}-{broker}", wanted)) == Counter(wanted)


@BROKERS
def test_tags_and_sql92_choose(story: Story, broker: str) -> None:
    sent = story.sent[f"chosen-{broker}"]
    assert sorted(story.arrived(f"tags-{broker}", sent[:16])) == sorted(sent[:16])
    assert sorted(story.arrived(f"sql-{broker}", sent[16:])) == sorted(sent[16:])


@BROKERS
def test_what_fails_comes_again_and_then_goes_to_the_dead_letter_queue(
    story: Story, broker: str
) -> None:
    sent = story.sent[f"retry-{broker}"]
    name = f"retry-{broker}"

    def again(by: str) -> set[str]:
        return {
            event["body"]
            for event in list(story.ours.events)
            if event["event"] == "got"
            and event["by"] == by
            and event["times"] == 1
            and event["topic"] == f"retry-{broker}"
        }

    for by in (name, f"dead-{broker}"):
        assert story.ours.until(lambda by=by: again(by) == set(sent), 30, by), again(by)
    wire = story.wires[broker]
    group = f"g-dead-{broker}"
    assert story.ours.until(
        lambda: (
            any(f"%DLQ%{group}" == topic for topic in wire.table(21)["topicConfigTable"])
            and wire.max_offset(f"%DLQ%{group}", 0) == len(sent)
        ),
        30,
        "dead letters",
    )
    dead = {record.body.decode() for record in wire.pull_all(f"%DLQ%{group}", 0)}
    assert dead == set(sent)


@BROKERS
def test_where_a_consumer_without_offset_begins(story: Story, broker: str) -> None:
    sent = story.sent[f"old-{broker}"]
    for name, wanted in (("first", sent), ("early", sent), ("last", sent[8:]), ("new", sent)):
        assert sorted(story.arrived(f"{name}-{broker}", wanted)) == sorted(wanted), name


@BROKERS
def test_pull_and_lite_pull(story: Story, broker: str) -> None:
    topic = f"plain-{broker}"
    sent = list(story.sent[topic])
    story.tell("pull", f"pull-{broker}", group=f"g-pull-{broker}", topic=topic, broker=broker)
    story.tell("lite", f"lite-{broker}", group=f"g-lite-{broker}", topic=topic, count=len(sent))
    story.tell("assign", f"assign-{broker}", group=f"g-assign-{broker}", topic=topic, broker=broker)
    by = f"pull-{broker}"
    assert story.ours.until(
        lambda: any(e["event"] == "waiting" and e["by"] == by for e in list(story.ours.events)),
        30,
        "the pull consumer waits",
    )
    assert story.ours.done("lite", 30)
    assert story.ours.done("assign", 30)
    lane = story.lane(broker, topic, 1)
    assert story.ours.bodies("got", f"assign-{broker}-3")[-len(lane[3:]) :] == lane[3:]
    assert story.ours.bodies("got", f"assign-{broker}-None") == lane
    assert sorted(story.ours.bodies("got", f"lite-{broker}")) == sorted(sent)
    (late, *_) = story.send(broker, "plain", QUEUES)
    assert story.ours.done("pull", 30)
    assert story.ours.bodies("got", by) == story.lane(broker, topic, 0)[2:]
    assert late in story.ours.bodies("got", by)
    per_queue = len(sent) // QUEUES
    assert story.committed(broker, f"g-lite-{broker}", topic) == dict.fromkeys(
        range(QUEUES), per_queue
    )
    assert story.committed(broker, f"g-pull-{broker}", topic) == {0: per_queue + 1}


@BROKERS
def test_operators_see_it_have_it_consume_one_and_set_it_back(story: Story, broker: str) -> None:
    """Codes 203, 307, 309, 223 and 222, by way of the broker."""
    wire, topic, by = story.wires[broker], f"cast-{broker}", f"watched-{broker}"
    group = f"g-{by}"
    story.tell("start", by, group=group, topic=topic)
    story.started()
    sent = story.sent[topic]
    story.arrived(by, sent)
    connections = fastjson.parse(wire.call(203, consumerGroup=group).body or b"")
    (client,) = connections["connectionSet"]
    assert client["language"] == "PYTHON"
    assert connections["consumeType"] == "CONSUME_PASSIVELY"
    whom = {"consumerGroup": group, "clientId": client["clientId"]}
    info = fastjson.parse(wire.call(307, jstackEnable="false", **whom).body or b"")
    assert info["properties"]["PROP_CONSUMEORDERLY"] == "false"
    assert info["statusTable"][topic]["consumeOKTPS"] > 0
    assert len([queue for queue in info["mqTable"] if dict(queue)["topic"] == topic]) == QUEUES
    (first, *_) = wire.pull_all(topic, 0)
    where = offset_msg_id(first.store_host, first.physical_offset)
    result = fastjson.parse(wire.call(309, msgId=where, topic=topic, **whom).body or b"")
    assert result["consumeResult"] == "CR_SUCCESS"
    assert story.arrived(by, [first.body.decode()] * 2)
    for number in range(QUEUES):
        lane = story.lane(broker, topic, number)
        assert story.ours.until(
            lambda number=number, lane=lane: (
                story.committed(broker, group, topic).get(number) == len(lane)
            ),
            10,
            "the offsets",
        )
    status = fastjson.parse(wire.call(223, topic=topic, group=group, clientAddr="").body or b"")
    (table,) = status["consumerTable"].values()
    assert sum(table.values()) == len(sent)
    wire.call(222, topic=topic, group=group, timestamp=0, isForce="true")
    story.arrived(by, sent * 2)


class Mixed:
    """A group of our members and Java's."""

    def __init__(self, story: Story, broker: str, feature: str, *, orderly: bool) -> None:
        self.story = story
        self.broker = broker
        self.feature = feature
        self.topic = f"{feature}-{broker}"
        self.group = f"g-{self.topic}"
        self.orderly = orderly
        self.members: list[str] = []

    def start(self, *members: str) -> None:
        for member in members:
            name = f"{member}-{self.topic}"
            if member.startswith("j"):
                tail = " orderly" if self.orderly else ""
                self.story.java.tell(f"start {name} {self.group} {self.topic}{tail}")
            else:
                more = {"group": self.group, "topic": self.topic, "orderly": self.orderly}
                self.story.tell("start", name, **more)
            self.members.append(name)

    def stop(self, member: str) -> None:
        name = f"{member}-{self.topic}"
        self.client(name).tell(f"stop {name}")
        self.members.remove(name)

    def client(self, name: str) -> Conversation:
        return self.story.java if name.startswith("j") else self.story.ours

    def owned(self, name: str) -> list[int]:
        client = self.client(name)
        if client is self.story.java:
            client.tell(f"owned {name} {self.topic}")
        else:
            self.story.tell("owned", name, topic=self.topic)
        assert client.done("owned", 10)
        return [e["queues"] for e in list(client.events) if e["event"] == "owned"][-1]

    def is_shared_out(self) -> bool:
        """Each queue has one owner, and shares differ by at most one."""
        shares = [self.owned(name) for name in self.members]
        sizes = sorted(map(len, shares))
        queues = sorted(queue for share in shares for queue in share)
        return queues == list(range(QUEUES)) and sizes[-1] - sizes[0] <= 1

    def got(self) -> list[str]:
        prefix = f"{self.topic}-"
        both = self.story.ours.bodies("got") + self.story.java.bodies("got")
        return [body for body in both if body.startswith(prefix)]

    def step(self, what: str) -> None:
        """Send while the group is changing and after; everything arrives."""
        client = self.story.ours
        self.story.send(self.broker, self.feature, COUNT)
        assert client.until(self.is_shared_out, 30, what), [
            (name, self.owned(name)) for name in self.members
        ]
        self.story.send(self.broker, self.feature, COUNT)
        wanted = set(self.story.sent[self.topic])
        assert client.until(lambda: wanted <= set(self.got()), 30, what), (
            f"{what}: lost {sorted(wanted - set(self.got()))}"
        )


@BROKERS
@pytest.mark.parametrize("orderly", [False, True])
def test_java_s_consumers_and_ours_share_a_topic(story: Story, broker: str, orderly: bool) -> None:
    """Members come and go: each queue is owned once, nothing is lost."""
    group = Mixed(story, broker, "lanes" if orderly else "mixed", orderly=orderly)
    group.start("p1", "j1")
    group.step("two members")
    group.start("j2", "p2")
    group.step("four members")
    group.stop("p1")
    group.step("ours left")
    group.stop("j1")
    group.step("Java's left")
    # At least once: what was under way when a queue changed hands may come again.
    twice = sum(count - 1 for count in Counter(group.got()).values())
    assert twice <= len(story.sent[group.topic]) // 2
    if orderly:
        first = list(dict.fromkeys(group.got()))
        assert set(first) == set(story.sent[group.topic])
