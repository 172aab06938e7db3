"""Batches from running brokers: name server, master and slave of ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.rules.messages import Message, SendStatus
from rmq_ha.lake.spark.source.live import LiveQueues
from rmq_ha.lake.spark.source.options import parse_options
from rmq_ha.lake.spark.source.reading import QueueId, QueueRange
from rmq_ha.lake.spark.source.schema import message_schema
from rmq_ha.lake.spark.source.streaming import make_stream_reader
from tests.spark.live_brokers import Cluster, cluster_in, until

COUNT = 400


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_in(tmp_path_factory.mktemp("live")) as made:
        yield made


@pytest.fixture(scope="module")
def times(cluster: Cluster) -> dict[int, int]:
    """`Live` has messages 0 to 399 in its four queues, in order; when each was stored."""
    found = {}
    cluster.create("Live")
    with cluster.client() as client:

        def is_replicated() -> bool:
            return client.send(Message("warm", b"x")).send_status is SendStatus.SEND_OK

        until(is_replicated, 30, "a first SEND_OK")
        for first in range(0, COUNT, 40):
            for queue_id in range(4):
                batch = [message(number) for number in range(first + queue_id, first + 40, 4)]
                client.send_batch(batch, queue=MessageQueue("Live", "broker-a", queue_id))
        for stored in client.messages(MessageQueue("Live", "broker-a", 1), 0, 50):
            found[stored.queue_offset] = stored.store_timestamp
    return found


def message(number: int) -> Message:
    tag = "even" if number % 2 == 0 else "odd"
    return Message("Live", b"%d" % number, tag, f"k{number}", properties={"n": "v"})


def read(spark: Any, cluster: Cluster, **options: Any) -> Any:
    made = spark.read.format("rocketmq").option("namesrv", cluster.namesrv)
    return made.options(**{"subscribe": "Live", **options}).load()


def test_what_brokers_have_is_a_table(spark: Any, cluster: Cluster, times: dict[int, int]) -> None:
    """Every message once, whatever the partitions; columns, tags and filters as offline."""
    table = read(spark, cluster, includeProperties="true", minPartitions="3")
    rows = table.select("topic", "body", "tags", "keys", "brokerName", "properties").collect()
    assert sorted(int(row.body) for row in rows) == list(range(COUNT))
    one = next(row for row in rows if row.body == b"7")
    assert (one.topic, one.tags, one["keys"], one.brokerName) == ("Live", "odd", "k7", "broker-a")
    assert one.properties["n"] == "v"
    odd = read(spark, cluster, tags="odd").where("queueOffset >= 50").select("body").collect()
    assert odd
    assert all(int(row.body) % 2 for row in odd)
    since = read(spark, cluster, startingTimestamp=str(times[40])).where("queueId = 1")
    assert min(row.queueOffset for row in since.select("queueOffset").collect()) == min(
        offset for offset, ms in times.items() if ms >= times[40]
    )


def test_one_broker_is_read_by_its_address(cluster: Cluster, times: dict[int, int]) -> None:
    """No name server is asked; so a slave can be looked at, too."""
    for server in (cluster.master, cluster.slave):
        options = parse_options({"brokerAddr": server.address, "subscribePattern": "Li.."})
        queues = LiveQueues(options)
        with closing(queues):
            found = queues.queues(options.subscription)
            assert found == [QueueId("Live", "broker-a", number) for number in range(4)]
            ends = [queues.ends(queue) for queue in found]
            assert {each.is_sure for each in ends} == {server is cluster.master}
            ranges = [QueueRange(queue, *each[:2]) for queue, each in zip(found, ends, strict=True)]
            batches = [batch for each in ranges for batch in queues.read(each, ["body"])]
            assert sum(batch.num_rows for batch in batches) == COUNT


def test_a_read_goes_on_at_the_slave_when_the_master_is_killed(
    spark: Any, cluster: Cluster, times: dict[int, int]
) -> None:
    """Planned while the master was there, read while it is not; and planned without it, too."""
    table = read(spark, cluster).select("body")
    assert sorted(int(row.body) for row in table.collect()) == list(range(COUNT))
    cluster.master.kill()
    assert sorted(int(row.body) for row in table.collect()) == list(range(COUNT))
    assert read(spark, cluster).count() == COUNT
    with pytest.warns(UserWarning, match="read from a slave"):
        assert streamed(cluster) == COUNT


def streamed(cluster: Cluster) -> int:
    """How many messages the first batch of a stream has, as Spark would ask for it."""
    given = {"namesrv": cluster.namesrv, "subscribe": "Live", "startingOffsets": "earliest"}
    reader = make_stream_reader(given, message_schema(False))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    tasks = reader.partitions(start, end)
    return sum(batch.num_rows for task in tasks for batch in reader.read(task))
