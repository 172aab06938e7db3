"""A broker's files and what it answers over the wire are the same table: ours, and Java's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rmq_ha.base.model.flags import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from rmq_ha.base.model.properties import encode_properties
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import FLAG_ONEWAY, RemotingCommand
from rmq_ha.base.wire.frame import encode_frame
from rmq_ha.client.blocking import BlockingClient
from rmq_ha.client.lookup.requests import send_request
from rmq_ha.client.rules.messages import Message
from rmq_ha.client.rules.settings import ClientConfig
from tests.interop.rig import missing, rig_in
from tests.interop.wire import Wire
from tests.spark.live_brokers import cluster_in, until
from tests.spark.tables_read import BOTH_WAYS, read_table

GROUP = "g-again"
SYSTEM = ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC")
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
WAIT = 40
NAME = "broker-a"


class Written(NamedTuple):
    """A running broker that has messages of all kinds."""

    store: Path
    namesrv: str
    name: str
    topics: tuple[str, ...]
    stop: Callable[[], object]


@pytest.fixture(scope="module")
def brokers(
    tmp_path_factory: pytest.TempPathFactory, quick_java: None
) -> Iterator[dict[str, Callable[[], Written]]]:
    """Both are made ready at once, as most of that is waiting."""
    directory = tmp_path_factory.mktemp("equal")
    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        makers = {"ours": ours} | ({} if missing() else {"java": java})
        yield {name: pool.submit(make, stack, directory).result for name, make in makers.items()}


def ours(stack: ExitStack, directory: Path) -> Written:
    cluster = stack.enter_context(cluster_in(directory, slave=False))
    return written(cluster.master, cluster.namesrv, NAME)


def java(stack: ExitStack, directory: Path) -> Written:
    rig = stack.enter_context(rig_in(directory / "rig"))
    namesrv = rig.namesrv()
    return written(rig.broker("master-async.conf", "j", java=True, namesrv=namesrv), namesrv, NAME)


def written(server: Any, namesrv: str, name: str) -> Written:
    sender = Sender(server.address, namesrv, name)
    sender.send_all()
    return Written(server.store, namesrv, name, sender.topics, server.stop)


class Sender:
    """Writes messages of all kinds to one broker."""

    def __init__(self, address: str, namesrv: str, name: str) -> None:
        self.wire = Wire(address)
        self.client = BlockingClient(ClientConfig(namesrv_addr=namesrv))
        self.name = name
        self.plain, self.later, self.parted = f"{name}-plain", f"{name}-later", f"{name}-parted"
        self.retry = f"%RETRY%{GROUP}"
        for topic in (self.plain, self.later, self.parted):
            self.wire.create_topic(topic, 2)
        self.wire.create_group(GROUP)
        known = MessageQueue(self.plain, name, 0)
        until(lambda: self._is_routed(known), WAIT, "the topic's route")

    def _is_routed(self, queue: MessageQueue) -> bool:
        try:
            return queue in BlockingClient.queues(self.client, queue.topic)
        except Exception:
            return False

    @property
    def topics(self) -> tuple[str, ...]:
        return (self.plain, self.later, self.parted, self.retry, *SYSTEM)

    def send_all(self) -> None:
        self._plain()
        self._delayed()
        self._in_transactions()
        self._given_back()
        place = {"topic": self.plain, "queueId": 0, "consumerGroup": GROUP}
        self.wire.call(RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset=2, **place)

    def _plain(self) -> None:
        queue = MessageQueue(self.plain, self.name, 0)
        other = MessageQueue(self.plain, self.name, 1)
        send = self.client.send
        send(Message(self.plain, b"x"), queue=queue)
        send(Message(self.plain, b"x", "T", ["k1", "k2"], flag=-5), queue=queue)
        odd = {"näme": "wért 象", "empty-ish": " ", "long": "v" * 3000}
        send(Message(self.plain, "bödy 象".encode(), "täg", "kéy", properties=odd), queue=other)
        send(Message(self.plain, b"compress me " * 2000, "C"), queue=other)
        send(Message(self.plain, bytes(range(256)) * 9), queue=other)
        batch = [Message(self.plain, b"b%d" % n, "B", f"kb{n}") for n in range(40)]
        self.client.send_batch(batch, queue=queue)
        self._raw(self.plain, b"", {})
        self._raw(self.plain, b"two tags", {"TAGS": "a b", "KEYS": " k  l "})

    def _delayed(self) -> None:
        queue = MessageQueue(self.later, self.name, 1)
        self.client.send(Message(self.later, b"later", "D", "kd", delay_time_level=1), queue=queue)
        until(lambda: self.wire.max_offset(self.later, 1), WAIT, "the delayed message")

    def _in_transactions(self) -> None:
        ends = {"kept": TRANSACTION_COMMIT, "dropped": TRANSACTION_ROLLBACK}
        for serial, end in ends.items():
            half = {"TRAN_MSG": "true", "PGROUP": "g-parted", "UNIQ_KEY": serial, "TAGS": "tx"}
            place = self._raw(self.parted, serial.encode(), half)
            ext = {
                "tranStateTableOffset": place["queueOffset"],
                "commitLogOffset": str(int(place["msgId"][-16:], 16)),
                "producerGroup": "g-parted",
                "commitOrRollback": str(end),
            }
            request = RemotingCommand(RequestCode.END_TRANSACTION, ext, flag=FLAG_ONEWAY)
            self.wire._socket.sendall(encode_frame(request))
        until(lambda: self.wire.max_offset(self.parted, 0), WAIT, "the committed message")
        until(lambda: self.wire.max_offset(OP_TOPIC, 0) == 2, WAIT, "both op messages")

    def _given_back(self) -> None:
        message = self.wire.pull_all(self.plain, 0)[1]
        self.wire.call(
            RequestCode.CONSUMER_SEND_MSG_BACK,
            group=GROUP,
            offset=message.physical_offset,
            delayLevel=1,
            originMsgId=message.msg_id,
            originTopic=self.plain,
            unitMode="false",
            maxReconsumeTimes=16,
        )
        until(lambda: self.wire.max_offset(self.retry, 0), WAIT, "the retried message")

    def _raw(self, topic: str, body: bytes, properties: dict[str, str]) -> dict[str, str]:
        text = encode_properties(properties)
        request = send_request("g-parted", topic, 0, body, text, int(time.time() * 1000))
        (answer,) = self.wire.exchange([request])
        assert answer.code == 0, answer
        return answer.ext or {}


def table(spark: Any, made: Written, **where: str) -> Any:
    """All columns that there are, in a form that can be compared."""
    from pyspark.sql.functions import array_sort, col, map_entries

    from rmq_ha.lake.spark.source.schema import COLUMNS, struct_of

    columns = struct_of(COLUMNS)
    options = {"brokerName": made.name, "subscribe": ",".join(made.topics), **where}
    read = spark.read.format("rocketmq").schema(columns).options(**options).load()
    return read.withColumn("properties", array_sort(map_entries(col("properties"))))


@pytest.mark.parametrize("side", ["ours", "java"])
def test_file_and_wire_are_the_same_table(
    spark: Any, brokers: dict[str, Callable[[], Written]], side: str
) -> None:
    """
    Read live and from the directory while the broker runs, and again when it was stopped; the
    broker's tables, too.
    """
    if side not in brokers:
        pytest.skip(str(missing()))
    made = brokers[side]()
    rows = table(spark, made, namesrv=made.namesrv).collect()
    assert {row.topic for row in rows} == set(made.topics)
    assert {row.reconsumeTimes for row in rows} == {0, 1}
    assert {len(row.body) for row in rows} >= {0, 24000}
    running = table(spark, made, path=str(made.store), scan="files").collect()
    assert ordered(running) == ordered(rows)
    told = {name: settled(name, namesrv=made.namesrv) for name in BOTH_WAYS}
    assert all(told.values()), {name: len(found) for name, found in told.items()}
    made.stop()
    stopped = table(spark, made, path=str(made.store), scan="queues").collect()
    assert ordered(stopped) == ordered(rows)
    for name, found in told.items():
        assert settled(name, path=str(made.store), brokerName=made.name) == found, name


def settled(table: str, **where: str) -> list[tuple[Any, ...]]:
    """A table without what the broker itself does to it whenever it looks at transactions."""
    return [row for row in read_table(table, **where) if "CID_RMQ_SYS_TRANS" not in row]


def ordered(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=lambda row: (row.topic, row.queueId, row.queueOffset))
