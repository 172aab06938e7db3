"""
DataFrames and streams into brokers, and streams out of them: one is killed again and again.

RMQ_HA_SPARK_KILLS says how often (CI: once), RMQ_HA_SPARK_SEED at which moments. Over Spark Connect
everything runs with RMQ_HA_SPARK_CONNECT=1, which takes minutes; CI runs a job of each kind.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from rmq_ha.base.errors import RmqHaError
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.rules.messages import Message
from rmq_ha.lake.spark.compat import HAS_LIMITS
from rmq_ha.lake.spark.source.sink_rows import ROW_ID
from rmq_ha.lake.spark.source.streaming import make_stream_reader
from tests.spark import connect_client, connect_server, lakes, streaming_query
from tests.spark.live_brokers import Cluster, cluster_in
from tests.spark.streaming_query import TOPIC
from tests.unit.lake.spark.golden_stores import java_store

KILLS = int(os.environ.get("RMQ_HA_SPARK_KILLS", "1"))
SEED = int(os.environ.get("RMQ_HA_SPARK_SEED", "7"))
BODIES = StructType([StructField("body", BinaryType())])
OVER_CONNECT = {"verify-replica": "replica identical", "archive": "HOLDS: "}
ALL_OVER_CONNECT = OVER_CONNECT | {
    "verify-offsets": "safe to fail over: yes",
    "audit-messages": "HOLDS: 189 messages",
    "replay": "HOLDS: 41 messages of TopicC sent to Connect; 0 were there",
    "verify-fleet": "1 brokers, 2 stores: logs differ in 0",
}
WHAT = ("query", "query", "broker")


class Query:
    """A process that has Spark ready, and runs the query when it is told to."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.begun = False
        self._output = directory / "output.log"
        self._process = subprocess.Popen(
            [sys.executable, "-m", streaming_query.__name__, cluster.namesrv, str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._output.open("ab"),
            start_new_session=True,
        )

    @property
    def said(self) -> str:
        return self._output.read_text()[-5000:]

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def go(self) -> None:
        self.begun = True
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"warm\n", self.said
        process.stdin.write(b"go\n")
        process.stdin.flush()

    def kill(self) -> None:
        """With its JVM and the workers."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(20)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("killed")


@pytest.fixture(scope="module")
def queries(directory: Path) -> Iterator[list[Query]]:
    """Processes that get warm while other tests run."""
    made: list[Query] = []
    try:
        yield made
    finally:
        for query in made:
            query.kill()


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, directory: Path, queries: list[Query]
) -> Iterator[Cluster]:
    with cluster_in(tmp_path_factory.mktemp("sink"), slave=False) as made:
        queries += [Query(made, directory) for _ in range(min(2, KILLS))]
        yield made


@contextmanager
def producing(cluster: Cluster) -> Iterator[set[int]]:
    """Somebody sends all the time, also to a broker that is away; what was sent for certain."""
    sent: set[int] = set()
    is_over = threading.Event()

    def produce() -> None:
        with cluster.client() as client:
            number = 0
            while not is_over.wait(0.02):
                numbers = range(number, number + 4)
                bodies = [b'{"n": %d}' % each for each in numbers]
                queue = MessageQueue(TOPIC, "broker-a", number // 4 % 4)
                with suppress(RmqHaError):
                    client.send_batch([Message(TOPIC, body) for body in bodies], queue=queue)
                    sent.update(numbers)
                number += 4

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield sent
    finally:
        is_over.set()
        thread.join()


def read(spark: Any, cluster: Cluster, topic: str) -> Any:
    options = {"namesrv": cluster.namesrv, "subscribe": topic, "includeProperties": "true"}
    return spark.read.format("rocketmq").options(**options).load()


def test_rows_become_messages(spark: Any, cluster: Cluster) -> None:
    """All columns arrive; each row has an id of its own; the task says why a row cannot be sent."""
    rows = [(f"body {n}", f"k{n}", "A", {"own": str(n), "DELAY": "9"}, n % 4) for n in range(200)]
    schema = "value string, key string, tags string, properties map<string,string>, queueId int"
    frame = spark.createDataFrame(rows, schema)
    target = {"namesrv": cluster.namesrv, "topic": "Rows"}
    cluster.create("Rows")
    first = frame.limit(1).drop("queueId")
    first.write.format("rocketmq").options(**target).mode("append").save()
    frame.where("queueId < 3").write.format("rocketmq").options(**target).mode("append").save()
    found = read(spark, cluster, "Rows").collect()
    assert len(found) == 151
    by_key = {row["keys"]: row for row in found}
    one = by_key["k5"]
    assert (bytes(one.body), one.tags, one.queueId) == (b"body 5", "A", 1)
    assert one.properties["own"] == "5"
    assert "DELAY" not in one.properties
    assert len({row.properties[ROW_ID] for row in found}) == 151
    other = frame.where("key = 'k3'").selectExpr("value", "77 AS queueId")
    with pytest.raises(Exception, match=r"no queue 77; there are broker-a/0"):
        other.write.format("rocketmq").options(**target).mode("append").save()


def test_sql_makes_tables_reads_them_and_inserts_with_fewer_columns(
    spark: Any, cluster: Cluster, tmp_path: Path
) -> None:
    """A table in Spark's catalog, over brokers and over a store, which outlives it; a view."""
    cluster.create("Sql")
    where = f"namesrv '{cluster.namesrv}', subscribe 'Sql'"
    spark.sql(f"CREATE TEMPORARY VIEW sql_view USING rocketmq OPTIONS ({where})")
    spark.sql("INSERT INTO sql_view (body, keys) VALUES (X'31', 'k1'), (X'32', 'k2')")
    spark.sql(f"CREATE TABLE sql_live USING rocketmq OPTIONS ({where}, columns 'kafka')")
    with_ = f"WITH ('namesrv' = '{cluster.namesrv}', 'topic' = 'Sql')"
    spark.sql(f"INSERT INTO sql_live {with_} (key, value) SELECT binary('k1'), X'33'")
    with pytest.raises(Exception, match="INSERT INTO t WITH"):
        spark.sql("INSERT INTO sql_live (value) SELECT X'34'")
    found = spark.sql("SELECT string(key), string(value), `partition` FROM sql_live").collect()
    assert {(row.key, row.value) for row in found} == {("k1", "1"), ("k2", "2"), ("k1", "3")}
    assert len({row.partition for row in found if row.key == "k1"}) == 1, "one key, one queue"
    store = shutil.copytree(cluster.master.store, tmp_path / "store")
    spark.sql(f"CREATE TABLE sql_store USING rocketmq OPTIONS (subscribe 'Sql') LOCATION '{store}'")
    assert spark.table("sql_store").count() == 3
    for name in ("sql_store", "sql_live"):
        spark.sql(f"DROP TABLE {name}")
    assert list((store / "commitlog").iterdir()), "a dropped table took the store with it"


def test_a_batch_that_is_done_again_has_the_same_ids(
    spark: Any, cluster: Cluster, tmp_path: Path
) -> None:
    """
    A stream from topic to topic, which begins at the end.

    Its last batch is forgotten, as by a crash before Spark noted that it was done: it is sent
    again, and readers can tell. What comes while no query runs is read by the next one.
    """
    for topic in ("From", "To"):
        cluster.create(topic)
    with cluster.client() as client:
        client.send(Message("From", b"before the query"))
        relay(spark, cluster, tmp_path)
        client.send_batch([Message("From", b"%d" % n) for n in range(30)])
        relay(spark, cluster, tmp_path)
        last = max((tmp_path / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
        client.send(Message("From", b"30"))
        relay(spark, cluster, tmp_path)
        if not HAS_LIMITS:  # before 4.2 a run that repeats a batch ends with it
            relay(spark, cluster, tmp_path)
    found = read(spark, cluster, "To").collect()
    times = Counter(bytes(row.body) for row in found)
    ids = {(bytes(row.body), row.properties[ROW_ID]) for row in found}
    assert set(times) == {b"%d" % n for n in range(31)}
    assert sum(times.values()) > 31, "nothing was sent again: the test shows nothing"
    assert len(ids) == 31
    queries = {row_id.rsplit("-", 4)[0] for _, row_id in ids}
    assert len(queries) == 1, "the id of the query is its checkpoint's"
    assert len(queries.pop()) == 36


def test_a_stream_out_of_the_store_of_a_running_broker(cluster: Cluster) -> None:
    """As Spark would ask for it: each look sees what is stored by then; every message once."""
    cluster.create("Grows")
    given = {"path": str(cluster.master.store), "subscribe": "Grows"}
    if HAS_LIMITS:
        given["maxOffsetsPerTrigger"] = "15"
    reader = make_stream_reader({**given, "startingOffsets": "earliest"}, BODIES)
    found: list[int] = []
    with cluster.client() as client:
        client.send_batch([Message("Grows", b"%d" % n) for n in range(20)])
        now = follow_up_to(20, reader, reader.initialOffset(), found)
        client.send_batch([Message("Grows", b"%d" % n) for n in range(20, 50)])
        follow_up_to(50, reader, now, found)


def follow_up_to(count: int, reader: Any, now: Any, found: list[int]) -> Any:
    """Queues follow the log a little later: until all messages are there, each once."""
    deadline = time.monotonic() + 30
    while len(found) < count and time.monotonic() < deadline:
        now = follow(reader, now, found)
    assert sorted(found) == list(range(count))
    return now


def follow(reader: Any, now: Any, found: list[int]) -> Any:
    """Batch by batch until there is nothing new."""
    while (end := reader.latestOffset(now, reader.getDefaultReadLimit())) != now:
        before = len(found)
        for task in reader.partitions(now, end):
            for batch in reader.read(task):
                found += map(int, batch.column(0).to_pylist())
        assert len(found) - before <= 15 or not HAS_LIMITS
        now = end
    return now


def relay(spark: Any, cluster: Cluster, checkpoint: Path) -> None:
    """All that is there now, twelve messages a batch."""
    source = spark.readStream.format("rocketmq").option("namesrv", cluster.namesrv)
    limits = {"maxOffsetsPerTrigger": "12"} if HAS_LIMITS else {}
    rows = source.option("subscribe", "From").options(**limits).load()
    sink = rows.select("body", "tags").writeStream.format("rocketmq")
    sink = sink.option("namesrv", cluster.namesrv).option("topic", "To")
    sink = sink.option("checkpointLocation", str(checkpoint))
    sink.trigger(availableNow=True).start().awaitTermination()


def test_everything_runs_over_spark_connect_in_a_process_without_java(
    spark: Any, cluster: Cluster, tmp_path: Path
) -> None:
    """Batch, stream and sink, a listener, and jobs by their commands."""
    pytest.importorskip("grpc", reason="pip install 'rmq-ha[connect]'")
    wanted = ALL_OVER_CONNECT if os.environ.get("RMQ_HA_SPARK_CONNECT") else OVER_CONNECT
    cluster.create(connect_client.TOPIC)
    port = connect_server.serve(spark)
    store = java_store("clean", tmp_path)
    other = shutil.copytree(store, tmp_path / "other")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.spark.connect_client", str(port), cluster.namesrv),
            *(store, other, tmp_path / "out", *wanted),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "RMQ_HA_JAVA_HOME": "/nowhere"},
        check=False,
    )
    told = {name: answer for name, *answer in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 0, done.stderr[-5000:] + done.stdout
    assert told.pop("stream") == [41, ["0", "1", "2", "3"]]
    for name, (code, verdict) in told.items():
        assert code == 0, verdict
        assert verdict.startswith(wanted[name])
    assert told.keys() == wanted.keys()
    assert (tmp_path / "out" / "replica" / "findings" / "part-0.parquet").exists()


def test_a_table_has_every_message_once_whatever_is_killed(
    spark: Any, cluster: Cluster, directory: Path, queries: list[Query]
) -> None:
    """The query with its JVM, while it starts, plans, reads, writes or commits; or the broker."""
    cluster.create(TOPIC)
    with producing(cluster) as sent:
        killed = run_and_kill(cluster, directory, queries, Random(SEED))
    last = streaming_query.start(spark, cluster.namesrv, str(directory), 2000, availableNow=True)
    last.awaitTermination()
    print(f"{dict(killed)} in {batches(directory)} batches, {len(sent)} messages acknowledged")
    table = spark.read.format(lakes.FORMAT).load(str(directory / "table"))
    stored = read(spark, cluster, TOPIC).selectExpr(
        "from_json(string(body), 'n bigint').n AS n", "queueId", "queueOffset"
    )
    found = Counter(tuple(row) for row in table.select(stored.columns).collect())
    assert found == Counter(tuple(row) for row in stored.collect())
    assert {n for n, *_ in found} >= sent
    assert killed.total() - killed["ended"] == KILLS


def run_and_kill(
    cluster: Cluster, directory: Path, queries: list[Query], random: Random
) -> Counter[str]:
    """
    So many times as `KILLS` says; a query that ends by itself, as the broker was away or its
    Python did not come up in the ten seconds that Spark gives it, is begun again.

    :return: what was killed, and as `ended` how many queries ended by themselves.
    """
    killed: Counter[str] = Counter()
    query = next_of(queries, cluster, directory)
    for turn in range(KILLS):
        what = random.choice(WHAT) if turn else WHAT[0]
        wanted = batches(directory) + (random.randrange(4) if turn else 1)
        deadline = time.monotonic() + 600
        while batches(directory) < wanted:
            assert time.monotonic() < deadline, query.said
            if not query.is_alive:
                killed["ended"] += 1
                query = next_of(queries, cluster, directory)
            time.sleep(0.05)
        time.sleep(random.uniform(0, 1.5))
        killed[what] += 1
        if what == "broker":
            cluster.master.kill()
            time.sleep(random.uniform(0, 1))
            cluster.master.start()
        else:
            query.kill()
            if turn + 1 < KILLS:
                query = next_of(queries, cluster, directory)
    query.kill()
    return killed


def next_of(queries: list[Query], cluster: Cluster, directory: Path) -> Query:
    """The query runs in a process that was warm already; the one after it gets warm meanwhile."""
    ready = next((each for each in queries if not each.begun), None)
    if ready is None:
        ready = Query(cluster, directory)
        queries.append(ready)
    if KILLS > 1:
        queries.append(Query(cluster, directory))
    ready.go()
    return ready


def batches(directory: Path) -> int:
    """How many are committed."""
    folder = directory / "checkpoint" / "commits"
    return len([path for path in folder.glob("*") if path.name.isdecimal()])
