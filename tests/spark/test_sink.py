"""DataFrames and streams into brokers, and streams out of them, in one session."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from live_brokers import Cluster, cluster_in

from rmq_ha.client.messages import Message
from rmq_ha.spark.source.sink_rows import ROW_ID


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_in(tmp_path_factory.mktemp("sink"), slave=False) as made:
        yield made


def read(spark: Any, cluster: Cluster, topic: str) -> Any:
    options = {"namesrv": cluster.namesrv, "subscribe": topic, "includeProperties": "true"}
    return spark.read.format("rocketmq").options(**options).load()


def test_rows_become_messages(spark: Any, cluster: Cluster) -> None:
    """All columns arrive; each row has an id of its own; the task says why a row cannot be sent."""
    rows = [(f"body {n}", f"k{n}", "A", {"own": str(n), "DELAY": "9"}, n % 4) for n in range(200)]
    schema = "value string, key string, tags string, properties map<string,string>, queueId int"
    frame = spark.createDataFrame(rows, schema)
    target = {"namesrv": cluster.namesrv, "topic": "Rows"}
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


def test_a_batch_that_is_done_again_has_the_same_ids(
    spark: Any, cluster: Cluster, tmp_path: Path
) -> None:
    """
    A stream from topic to topic, which begins at the end.

    Its last batch is forgotten, as by a crash before Spark noted that it was done: it is sent
    again, and readers can tell. What comes while no query runs is read by the next one.
    """
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
    found = read(spark, cluster, "To").collect()
    times = Counter(bytes(row.body) for row in found)
    ids = {(bytes(row.body), row.properties[ROW_ID]) for row in found}
    assert set(times) == {b"%d" % n for n in range(31)}
    assert sum(times.values()) > 31, "nothing was sent again: the test shows nothing"
    assert len(ids) == 31
    queries = {row_id.rsplit("-", 4)[0] for _, row_id in ids}
    assert len(queries) == 1, "the id of the query is its checkpoint's"
    assert len(queries.pop()) == 36


def test_a_stream_out_of_the_store_of_a_running_broker(
    spark: Any, cluster: Cluster, tmp_path: Path
) -> None:
    """Two runs see what was stored before each; every message once."""
    with cluster.client() as client:
        client.send_batch([Message("Grows", b"%d" % n) for n in range(20)])
        archive(spark, cluster, tmp_path)
        client.send_batch([Message("Grows", b"%d" % n) for n in range(20, 50)])
        archive(spark, cluster, tmp_path)
    rows = spark.read.parquet(str(tmp_path / "table")).collect()
    assert sorted(int(row.body) for row in rows) == list(range(50))


def archive(spark: Any, cluster: Cluster, directory: Path) -> None:
    """All that the store has now, fifteen messages a batch."""
    source = spark.readStream.format("rocketmq").option("path", str(cluster.master.store))
    source = source.option("subscribe", "Grows").option("startingOffsets", "earliest")
    rows = source.option("maxOffsetsPerTrigger", "15").load().select("body")
    sink = rows.writeStream.format("parquet").option("path", str(directory / "table"))
    sink = sink.option("checkpointLocation", str(directory / "checkpoint"))
    sink.trigger(availableNow=True).start().awaitTermination()


def relay(spark: Any, cluster: Cluster, checkpoint: Path) -> None:
    """All that is there now, twelve messages a batch."""
    source = spark.readStream.format("rocketmq").option("namesrv", cluster.namesrv)
    rows = source.option("subscribe", "From").option("maxOffsetsPerTrigger", "12").load()
    sink = rows.select("body", "tags").writeStream.format("rocketmq")
    sink = sink.option("namesrv", cluster.namesrv).option("topic", "To")
    sink = sink.option("checkpointLocation", str(checkpoint))
    sink.trigger(availableNow=True).start().awaitTermination()
