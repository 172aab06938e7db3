"""
A healthy pair under load raises no alarm, whatever it is doing.

RMQ_HA_SPARK_MINUTES=30 looks at it for so long, with a fail-over every few minutes.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.base.errors import CannotDecide, RemotingError
from rmq_ha.base.host.blocking import now_ms, pause
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.rules.errors import MQClientError
from rmq_ha.client.rules.messages import Message
from rmq_ha.lake.scan.replica.settings import Settings, StoreAt
from rmq_ha.lake.spark.offsets import history
from rmq_ha.lake.spark.offsets.job import verify
from rmq_ha.lake.spark.replica.job import verify as verify_replica
from rmq_ha.lake.spark.result import JobResult
from rmq_ha.ops.offsets.findings import Outcome
from rmq_ha.ops.offsets.opening import opened
from rmq_ha.ops.offsets.places import NamesrvPlace, Place, StorePlace
from rmq_ha.ops.offsets.sampling import Patience, sample
from rmq_ha.ops.offsets.snapshot_history import append
from rmq_ha.ops.offsets.verdict import Limits
from tests.spark.jobs import FakeJob
from tests.spark.offset_pairs import BROKER, Pair, no_java, pair_in, until

MINUTES = float(os.environ.get("RMQ_HA_SPARK_MINUTES", "0"))
JAVA = bool(os.environ.get("RMQ_HA_SPARK_JAVA"))
RATE = float(os.environ.get("RMQ_HA_SPARK_RATE", "50"))
FAIL_OVER_SECONDS = 150
QUEUES = 4


class Load:
    """Sends, and consumes in three groups that commit as they go; survives fail-overs."""

    def __init__(self, pair: Pair) -> None:
        self.sent = 0
        self.troubles: Counter[str] = Counter()
        self.topics = ["orders", "payments"]
        self._pair = pair
        self._stopping = threading.Event()
        self._sending = threading.Event()
        self._sending.set()
        self._threads = [threading.Thread(target=self._run, args=(self._send,), daemon=True)]
        self._threads += [
            threading.Thread(target=self._run, args=(self._consumer(f"group{index}", index),))
            for index in range(3)
        ]

    def __enter__(self) -> Load:
        for topic in self.topics:
            self.create(topic)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._sending.set()
        for thread in self._threads:
            thread.join(30)

    def create(self, topic: str) -> None:
        ext = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": str(QUEUES),
            "writeQueueNums": str(QUEUES),
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        with self._pair.client() as client:
            command = RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, ext)
            client.call(self._pair.master.address, command)
            until(lambda: self._routed(client, topic), 20, "a route")

    def _routed(self, client: Any, topic: str) -> bool:
        try:
            return bool(client.publish_queues(topic))
        except MQClientError:
            return False

    def hold(self) -> None:
        """No more sends, until `go_on`."""
        self._sending.clear()
        time.sleep(0.5)

    def go_on(self) -> None:
        self._sending.set()

    def _run(self, step: Any) -> None:
        with self._pair.client(mq_client_api_timeout_ms=3000) as client:
            while not self._stopping.is_set():
                try:
                    step(client)
                except (MQClientError, RemotingError) as error:
                    self.troubles[type(error).__name__] += 1
                    self._stopping.wait(0.5)

    def _send(self, client: Any) -> None:
        self._sending.wait()
        topic = self.topics[self.sent % len(self.topics)]
        level = 1 if self.sent % 20 == 0 else 0
        client.send(Message(topic, b"x" * 200, delay_time_level=level))
        self.sent += 1
        self._stopping.wait(1 / RATE)

    def _consumer(self, group: str, index: int) -> Any:
        positions: dict[MessageQueue, int] = {}

        def step(client: Any) -> None:
            for topic in list(self.topics):
                for queue_id in range(QUEUES):
                    queue = MessageQueue(topic, "broker-a", queue_id)
                    if queue not in positions:
                        positions[queue] = client.committed(group, queue) or 0
                    result = client.pull(queue, positions[queue], group=group)
                    if result.next_begin_offset > positions[queue]:
                        positions[queue] = result.next_begin_offset
                        client.commit(group, queue, positions[queue])
            self._stopping.wait(0.2 * (index + 1))

        return step


def fail_over(pair: Pair, load: Load, *, crash: bool) -> None:
    """As an operator does it: sends are held, both logs are equal, the slave takes over."""
    load.hold()
    pair.wait_same()
    if crash:
        pair.master.kill()
        pair.slave.kill()
    else:
        pair.master.stop()
        pair.slave.stop()
    pair.swap()
    load.go_on()


class Watch:
    """Looks again and again, in three ways, and remembers alarms."""

    def __init__(self, pair: Pair, engine: Any, past: str) -> None:
        self.alarms: list[str] = []
        self.codes: Counter[str] = Counter()
        self.looks: Counter[str] = Counter()
        self.longest: Counter[str] = Counter()
        self._pair = pair
        self._engine = engine
        self._past = past

    def look(self) -> None:
        """Mostly over the wire, sometimes at the files of the running brokers."""
        count = sum(self.looks.values())
        if count % 5 == 3:
            self._timed("offsets of stores", self._stores)
        elif count % 5 == 4:
            self._timed("replica", self._replica)
        else:
            self._timed("offsets", self._live)

    def _timed(self, what: str, work: Callable[[], JobResult]) -> None:
        began = time.monotonic()
        try:
            result = work()
        except CannotDecide as undecided:
            self._alarm(f"{what}: {undecided}")
            return
        codes = Counter(row.code for row in result.findings.select("code").collect())
        took = time.monotonic() - began
        self.looks[what] += 1
        self.longest[what] = max(self.longest[what], round(took))
        self.codes += codes
        print(f"{what}: {took:.1f} s: {result.verdict} {dict(codes)}", flush=True)
        if result.outcome is not Outcome.HOLDS:
            rows = result.findings.filter("severity <> 'INFO'").limit(20).collect()
            self._alarm(f"{what}: {result.verdict}: {rows}")

    def _alarm(self, text: str) -> None:
        self.alarms.append(text)
        print(f"ALARM {text}", flush=True)

    def _live(self) -> JobResult:
        """The master is who the name server says."""
        names = [NamesrvPlace(self._pair.namesrv, "broker-a", number) for number in (0, 1)]
        return self._offsets(names, record=True)

    def _stores(self) -> JobResult:
        stores = [StorePlace(str(item.store)) for item in (self._pair.master, self._pair.slave)]
        return self._offsets(stores, record=False)

    def _offsets(self, places: Sequence[Place], *, record: bool) -> JobResult:
        with self._pair.client() as client, opened(client.settings, now_ms) as source:
            sources = [source(place, is_slave=index > 0) for index, place in enumerate(places)]
            pairings = sample(sources[0], sources[1:], Patience(), now_ms, pause)
        if record:
            for item in (pairings[0].masters[-1], pairings[0].slave):
                append(item, self._past)
        return verify(lambda: self._engine, pairings, Limits())

    def _replica(self) -> JobResult:
        places = [StoreAt(str(item.store)) for item in (self._pair.master, self._pair.slave)]
        sizes = (int(BROKER["maxHashSlotNum"]), int(BROKER["maxIndexNum"]))
        return verify_replica(FakeJob(self._engine), Settings(*places, index_sizes=sizes))


@pytest.mark.skipif(not MINUTES, reason="RMQ_HA_SPARK_MINUTES=30 looks for so long")
def test_a_healthy_pair_raises_no_alarm(engine: Any, tmp_path: Path) -> None:
    if JAVA and no_java():
        pytest.skip(no_java())
    past = str(tmp_path / "history")
    fail_overs = turns = 0
    with pair_in(tmp_path, java=JAVA) as pair, Load(pair) as load:
        watch = Watch(pair, engine, past)
        end = time.monotonic() + MINUTES * 60
        changed = time.monotonic()
        while time.monotonic() < end:
            if time.monotonic() - changed > FAIL_OVER_SECONDS:
                fail_over(pair, load, crash=bool(fail_overs % 2))
                fail_overs += 1
                print(f"fail-over {fail_overs}; {load.sent} sent", flush=True)
                changed = time.monotonic()
            if turns % 10 == 5:
                topic = f"more{turns}"
                load.create(topic)
                load.topics = [*load.topics[:2], topic]
            watch.look()
            turns += 1
            time.sleep(1)
    print(
        f"looks {dict(watch.looks)}, longest {dict(watch.longest)} s, {fail_overs} fail-overs,"
        f" {load.sent} messages, findings {dict(watch.codes)}, alarms {len(watch.alarms)};"
        f" troubles of clients {dict(load.troubles)}"
    )
    offsets = history.offsets_over_time(history.read(engine, past))
    print(history.findings(offsets).groupBy("code", "severity").count().collect())
    assert not watch.alarms
