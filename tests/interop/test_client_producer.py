"""Our producer beside Java's: one history through both, to our broker and to Java's."""

from __future__ import annotations

import sys
import time
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.base.model.properties import CLUSTER, UNIQ_KEY
from rmq_ha.base.store_format.commitlog import Record
from rmq_ha.client import BlockingClient, DuplicatesPossible, Message, ProducerConfig
from tests.interop.conversation import Conversation, compiled_java
from tests.interop.rig import Rig, Server
from tests.interop.wire import Refused, Wire

OURS, JAVA = "broker-ours", "broker-java"
SETTINGS = {
    "messageDelayLevel": " ".join(["1s"] * 18),
    "transactionTimeOut": 1000,
    "transactionCheckInterval": 1000,
    "transactionCheckMax": 100,
    "traceTopicEnable": "true",
    "waitTimeMillsInSendQueue": 10000,
}
QUEUES = 4


class Story:
    """Both brokers behind one name server, both clients, and the history sent by each to each."""

    def __init__(self, rig: Rig, program: list[str], folder: Path) -> None:
        namesrv = self.namesrv = rig.namesrv()
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
        for name, server in self.servers.items():
            with Wire(server.address) as wire:
                for topic in ("H-ours", "H-java", "X-ours", "X-java", "B", "R", "T"):
                    wire.create_topic(f"{topic}-{name}", QUEUES)
        self.java = Conversation([*program, namesrv, OURS, JAVA], folder / "java.err")
        script = str(Path(__file__).with_name("producer_history.py"))
        self.ours = Conversation([sys.executable, script, namesrv], folder / "ours.err")
        for client in (self.java, self.ours):
            assert client.until(partial(client.count, "ready"), 40, "ready")
        for name in (OURS, JAVA):
            for client in (self.java, self.ours):
                client.tell(f"history {name}")
            self.ours.tell(f"request {name}")
            self.ours.tell(f"traced {name}")
        for client in (self.java, self.ours):
            assert client.done("history", 60), "the histories are not over"
        assert self.ours.done("request", 40), "no reply"

    def records(self, topic: str, queue_id: int) -> list[Record]:
        (server,) = (item for name, item in self.servers.items() if topic.endswith(name))
        with Wire(server.address) as wire:
            return wire.pull_all(topic, queue_id)

    def until(self, topic: str, bodies: set[bytes], seconds: float = 30) -> list[Record]:
        """All records of a topic, once these bodies are among them."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                found = [record for n in range(QUEUES) for record in self.records(topic, n)]
            except Refused:
                found = []
            if bodies <= {record.body for record in found}:
                return found
            assert time.monotonic() < deadline, f"{topic}: {bodies} not within {seconds} s"
            time.sleep(0.2)

    def close(self) -> None:
        self.ours.close()
        self.java.close()


@pytest.fixture(scope="module")
def story(shared_rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("producer-history")
    made = Story(shared_rig, compiled_java("ProducerHistory", folder), folder)
    yield made
    made.close()


def stored(record: Record, topic: str) -> tuple[Any, ...]:
    """Everything that does not depend on time, place or chance."""
    shown = [
        piece
        for piece in record.properties_string.split("\x02")
        if piece.partition("\x01")[0] != UNIQ_KEY
    ]
    pieces = [piece.replace(topic, "TOPIC") for piece in shown]
    return record.queue_id, record.flag, record.sys_flag, record.body, pieces


@pytest.mark.parametrize("broker", [OURS, JAVA])
@pytest.mark.parametrize("queue_id", range(QUEUES))
def test_the_same_history_stores_the_same_bytes(story: Story, broker: str, queue_id: int) -> None:
    """Bodies (compressed too), flags, properties and their order, queue by hash; all but ids."""
    by_client = {}
    for client in ("ours", "java"):
        topic = f"H-{client}-{broker}"
        story.until(topic, {b"delayed", b"oneway"})
        records = [item for item in story.records(topic, queue_id) if item.body != b"turn"]
        by_client[client] = [stored(item, topic) for item in records]
        for item in records:
            assert CLUSTER in item.properties
            assert len(item.properties[UNIQ_KEY]) in (32, 56)
            assert item.properties_string.count(UNIQ_KEY) == 1
    # One-way and delayed messages may come between the others.
    assert sorted(map(repr, by_client["ours"])) == sorted(map(repr, by_client["java"]))
    if queue_id == 0:
        assert by_client["ours"] == by_client["java"]
        assert zlib.decompress(by_client["ours"][2][3]).endswith(b"number 2999, ")


@pytest.mark.parametrize("broker", [OURS, JAVA])
def test_queues_take_turns_as_javas_do(story: Story, broker: str) -> None:
    """One after the other, from a random one."""
    for client in (story.ours, story.java):
        (text,) = client.bodies("turns", broker)
        turns = [int(piece) for piece in text.split(",")]
        assert turns == [(turns[0] + step) % QUEUES for step in range(8)]


@pytest.mark.parametrize("broker", [OURS, JAVA])
def test_a_java_consumer_gets_all(story: Story, broker: str) -> None:
    """Each message once, decompressed, with tag and unique id; committed transactions too."""
    topic = f"H-ours-{broker}"
    story.until(topic, {b"delayed", b"oneway"})
    wanted = {
        record.properties[UNIQ_KEY] for n in range(QUEUES) for record in story.records(topic, n)
    }

    def got() -> list[str]:
        return [
            item["id"]
            for item in list(story.java.events)
            if item.get("by") == topic and item["event"] == "got"
        ]

    assert story.java.until(lambda: set(got()) >= wanted, 30, topic)
    assert sorted(got()) == sorted(wanted)
    bodies = story.java.bodies("got", topic)
    assert "4096 characters" in bodies
    committed = f"X-ours-{broker}"
    assert story.java.until(
        lambda: set(story.java.bodies("got", committed)) == {"commit", "ask-commit"}, 30, committed
    )


@pytest.mark.parametrize("broker", [OURS, JAVA])
def test_transactions_end_as_javas_do(story: Story, broker: str) -> None:
    """Committed, rolled back, asked about: what is visible, and its bytes, are the same."""
    found = {}
    for client in ("ours", "java"):
        topic = f"X-{client}-{broker}"
        records = story.until(topic, {b"commit", b"ask-commit"})
        found[client] = sorted(
            (record.body, record.sys_flag, sorted(names(record))) for record in records
        )
    assert found["ours"] == found["java"]
    assert [body for body, _, _ in found["ours"]] == [b"ask-commit", b"commit"]
    asked = story.ours.bodies("asked", f"X-ours-{broker}")
    assert set(asked) <= {"ask-commit", "ask-rollback"}
    assert "ask-commit" in asked


def names(record: Record) -> set[str]:
    """Of properties; how often was asked depends on time."""
    return set(record.properties) - {"TRANSACTION_CHECK_TIMES"}


@pytest.mark.parametrize("broker", [OURS, JAVA])
def test_a_large_batch_arrives_in_order(story: Story, broker: str) -> None:
    """1000 messages of 1000 bytes in requests of 256 KiB."""
    assert story.ours.bodies("split", broker) == ["5"]
    records = story.records(f"B-{broker}", 0)
    assert [record.body for record in records] == [b"%04d" % i * 250 for i in range(1000)]


@pytest.mark.parametrize("broker", [OURS, JAVA])
def test_a_java_consumer_replies(story: Story, broker: str) -> None:
    """Request and reply, over the broker."""
    assert story.ours.bodies("reply", broker) == ["re: question"]


def test_javas_tools_read_our_traces(story: Story, shared_rig: Rig) -> None:
    """`mqadmin queryMsgTraceById` finds the trace of a message, and what it says is right."""
    (msg_id,) = story.ours.bodies("traced", OURS)
    deadline = time.monotonic() + 20
    while True:
        found = shared_rig.mqadmin("queryMsgTraceById", "-n", story.namesrv, "-i", msg_id)
        if "Pub" in found or time.monotonic() > deadline:
            break
    (line,) = [line for line in found.splitlines() if line.startswith("Pub")]
    assert line.split()[1] == "p-ours-traced"
    assert "success" in line


def test_an_idempotent_producer_of_ours_sends_nothing_to_java_s_broker(story: Story) -> None:
    """It answers the question, and says nothing of ids: docs/client.md, "Stored once"."""
    topic = f"X-ours-{JAVA}"
    before = [len(story.records(topic, number)) for number in range(QUEUES)]
    client = BlockingClient(story.namesrv, ProducerConfig(idempotent=True))
    with client, pytest.raises(DuplicatesPossible, match="one of RocketMQ never"):
        client.send(Message(topic, b"once"))
    assert [len(story.records(topic, number)) for number in range(QUEUES)] == before
