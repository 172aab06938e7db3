"""Delayed messages, ordered consumption, retries and dead letters: real clients and processes."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections import Counter
from typing import Any

import pytest

from rmq_ha.base.model.properties import DELAY, ORIGIN_MESSAGE_ID, REAL_TOPIC, RETRY_TOPIC
from rmq_ha.base.store_format.commitlog import Record
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.requests import send_request
from tests.interop.rig import ALL_JAVA, PEER, Rig, Server
from tests.interop.wire import STORED, Refused, Wire

# Retries, from level 3 on, come at once.
SETTINGS = {
    "messageDelayLevel": " ".join(["1s", "2s", *["0s"] * 16]),
    "haSendHeartbeatInterval": 1000,
    "registerNameServerPeriod": 10000,
    "waitTimeMillsInSendQueue": 10000,
    "lockMaxLiveTimeWithoutConnection": 0,
}
PERM_RW = 6


class Brokers:
    """A master and its slave."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.namesrv = rig.namesrv()
        self.master = self.start("master-sync.conf", "m")
        self.slave = self.start("slave.conf", "s")
        rig.wait_sync(self.master)

    def start(self, conf: str, name: str, port: int | None = None) -> Server:
        return self.rig.broker(conf, name, namesrv=self.namesrv, port=port, **SETTINGS)

    def peer(self, command: str, topic: str, *more: Any, check: bool = True) -> list[Any]:
        arguments = (command, "--namesrv", self.namesrv, "--topic", topic, *more)
        return self.rig.peer(*arguments, check=check)

    def records(self, topic: str, queues: int = 4) -> list[Record]:
        """All messages of a topic; none while it is unknown."""
        found: list[Record] = []
        with contextlib.suppress(Refused), Wire(self.master.address) as wire:
            for queue_id in range(queues):
                found += wire.pull_all(topic, queue_id)
        return found

    def members(self, group: str) -> int:
        """Clients of a consumer group."""
        code = RequestCode.GET_CONSUMER_LIST_BY_GROUP
        with Wire(self.master.address) as wire:
            (answer,) = wire.exchange([RemotingCommand(code, {"consumerGroup": group})])
        return len(json.loads(answer.body or b"{}").get("consumerIdList", []))

    def until(self, condition: Any, seconds: float, what: str) -> None:
        self.rig.until(condition, seconds, what, self.master)


@pytest.fixture(scope="module")
def brokers(shared_rig: Rig) -> Brokers:
    """Ours, or Java's."""
    return Brokers(shared_rig)


def test_levels(brokers: Brokers) -> None:
    """Delivered after their delay and soon; a level beyond the last is the last."""
    delays = {1: 1000, 2: 2000, 99: 0}
    with Wire(brokers.master.address) as wire:
        for level in (2, 99):
            wire.create_topic(f"Level-{level}", 4)
            wire.delay(f"Level-{level}", level)
    brokers.peer("produce", "Level-1", "--count", 4, "--delay", 1)
    for level, least_ms in delays.items():
        topic, count = f"Level-{level}", 4 if level == 1 else 1
        brokers.until(lambda of=topic, n=count: len(brokers.records(of)) == n, 30, topic)
        for record in brokers.records(topic):
            assert record.properties[DELAY] == str(min(level, 18))
            assert record.properties[REAL_TOPIC] == topic
            took = record.store_timestamp - record.born_timestamp
            assert least_ms - 20 <= took < least_ms + 2500


def test_reconsumed(brokers: Brokers) -> None:
    """A message that fails twice is consumed at the third attempt."""
    brokers.peer("produce", "Again", "--count", 5)
    brokers.peer("consume", "Again", "--group", "g-again", "--count", 5, "--reconsume", 2)
    retries = brokers.records("%RETRY%g-again", 1)
    assert sorted(record.reconsume_times for record in retries) == [1] * 5 + [2] * 5
    for record in retries:
        properties = record.properties
        assert properties[RETRY_TOPIC] == "Again"
        assert properties[DELAY] == str(2 + record.reconsume_times)
        assert len(properties[ORIGIN_MESSAGE_ID]) == 32


def test_dead_letters(brokers: Brokers) -> None:
    """After 16 retries a message goes to the dead-letter queue; with a negative level at once."""
    brokers.peer("produce", "Dead", "--count", 1)
    command = [
        PEER, "consume", "--namesrv", brokers.namesrv, "--topic", "Dead", "--group", "g-dead",
        "--count", 1, "--reconsume", 99, "--timeout", 60,
    ]  # fmt: skip
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL) as consumer:
        try:
            brokers.until(lambda: brokers.records("%DLQ%g-dead", 1), 50, "a dead letter")
        finally:
            consumer.kill()
    (dead,) = brokers.records("%DLQ%g-dead", 1)
    assert dead.reconsume_times == 17
    assert dead.properties[RETRY_TOPIC] == "Dead"
    assert len(brokers.records("%RETRY%g-dead", 1)) == 16
    with Wire(brokers.master.address) as wire:
        (sent,) = wire.pull_all("Dead", dead_queue(wire))
        wire.call(
            RequestCode.CONSUMER_SEND_MSG_BACK,
            group="g-dead",
            offset=sent.physical_offset,
            delayLevel=-1,
            originMsgId=sent.msg_id,
            originTopic="Dead",
            unitMode="false",
        )
        topics = wire.table(RequestCode.GET_ALL_TOPIC_CONFIG)["topicConfigTable"]
        config = topics["%DLQ%g-dead"]
        assert (config["perm"], config["writeQueueNums"]) == (PERM_RW, 1)
    brokers.until(lambda: len(brokers.records("%DLQ%g-dead", 1)) == 2, 30, "the second one")
    assert brokers.records("%DLQ%g-dead", 1)[1].reconsume_times == 1


def dead_queue(wire: Wire) -> int:
    return next(number for number in range(4) if wire.max_offset("Dead", number))


@pytest.mark.skipif(ALL_JAVA, reason="a Java broker keeps a dead client's locks for 60 s")
def test_a_killed_orderly_consumer_is_taken_over(brokers: Brokers) -> None:
    """The other one gets its queues, and every shard in order."""
    with Wire(brokers.master.address) as wire:
        wire.create_topic("Taken", 4)
    common = [
        str(PEER), "orderly", "--namesrv", brokers.namesrv, "--topic", "Taken", "--group",
        "g-taken", "--poll-namesrv", "1000", "--timeout", "45", "--count", "0",
    ]  # fmt: skip
    # The victim takes 6 s for its share, and is killed after two: it must not have done all of it.
    slow, until_quiet = [*common, "--sleep", "200"], [*common, "--sleep", "20", "--idle", "4"]
    with (
        subprocess.Popen(slow, stdout=subprocess.PIPE, text=True) as victim,
        subprocess.Popen(until_quiet, stdout=subprocess.PIPE, text=True) as heir,
    ):
        try:
            assert victim.stdout is not None
            assert heir.stdout is not None
            brokers.until(lambda: brokers.members("g-taken") == 2, 30, "both have joined")
            time.sleep(2)  # and share the queues: they rebalance when they hear of each other
            brokers.peer("produce", "Taken", "--count", 120, "--ordered", 4)
            victims = []
            for line in victim.stdout:
                victims.append(json.loads(line))
                if len(victims) == 20:
                    break
            victim.kill()
            heirs = [json.loads(line) for line in heir.stdout]
        finally:
            victim.kill()
            heir.kill()
    by_queue: dict[int, list[int]] = {}
    for line in heirs:
        if "queueId" in line:
            by_queue.setdefault(line["queueId"], []).append(line["queueOffset"])
    assert len(by_queue) == 4, "all queues are the heir's in the end"
    for offsets in by_queue.values():
        assert offsets == sorted(offsets)
        assert offsets == list(range(offsets[0], offsets[-1] + 1))
    expected = Counter(record.queue_id for record in brokers.records("Taken"))
    assert {queue: offsets[-1] + 1 for queue, offsets in by_queue.items()} == expected


def test_delayed_messages_outlive_the_master(brokers: Brokers) -> None:
    """
    kill -9 with messages delivered, due and waiting: the slave, restarted as master, has delivered
    each of them once (Java: at least once) when the time has come.
    """
    with Wire(brokers.master.address) as wire:
        wire.create_topic("Outlive", 1)
    accepted: list[str] = []
    with Wire(brokers.master.address) as wire:
        began = time.monotonic()
        while time.monotonic() < began + 4:
            names = [f"{len(accepted) + number:032d}" for number in range(20)]
            requests = [
                send_request(
                    "g", "Outlive", 0, b"x",
                    f"UNIQ_KEY\x01{name}\x02DELAY\x01{1 + number % 2}\x02WAIT\x01true",
                    int(time.time() * 1000),
                )
                for number, name in enumerate(names)
            ]  # fmt: skip
            answers = wire.exchange(requests)
            assert {answer.code for answer in answers} <= set(STORED)
            accepted += names
            time.sleep(0.05)
    assert 100 < len(brokers.records("Outlive", 1)) < len(accepted)
    brokers.master.kill()
    brokers.slave.stop()
    port = int(brokers.slave.address.rpartition(":")[2])
    brokers.master = brokers.start("master-sync.conf", "s", port)
    brokers.until(
        lambda: set(accepted) <= {r.properties["UNIQ_KEY"] for r in brokers.records("Outlive", 1)},
        30,
        "every delayed message",
    )
    time.sleep(1)
    copies = Counter(r.properties["UNIQ_KEY"] for r in brokers.records("Outlive", 1))
    twice = sum(count > 1 for count in copies.values())
    if not brokers.master.java:
        assert twice == 0
