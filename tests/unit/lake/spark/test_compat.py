"""What differs between the versions of Spark."""

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql import types as T

from rmq_ha.base.errors import CannotDecide, WrongUsage
from rmq_ha.lake.spark import compat
from rmq_ha.lake.spark.source import streaming
from rmq_ha.lake.spark.source.columns import WantedColumns
from rmq_ha.lake.spark.source.forms import ROCKETMQ
from rmq_ha.lake.spark.source.options import parse_options
from rmq_ha.lake.spark.source.reading import QueueId
from rmq_ha.lake.spark.source.schema import struct_of

A, B = QueueId("t", "b", 0), QueueId("t", "b", 1)
STARTS = {"subscribe": "t", "path": "/s", "brokerName": "b"}


class Growing:
    """
    Queues by their first and next offsets.

    :ivar away: queues whose broker does not answer.
    """

    def __init__(self, **ends: tuple[int, int]) -> None:
        self.ends = {QueueId("t", "b", int(name[1:])): span for name, span in ends.items()}
        self.away: set[QueueId] = set()

    def queues(self, topics: Any) -> list[QueueId]:
        return sorted(self.ends)

    def bounds(self, queue: QueueId) -> tuple[int, int]:
        return self.ends[queue]


@pytest.fixture
def old(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Spark that does not say where a query stands."""
    monkeypatch.setattr(compat, "HAS_LIMITS", False)
    monkeypatch.setattr(streaming, "HAS_LIMITS", False)
    monkeypatch.setattr(streaming, "pause", lambda ms: None)
    monkeypatch.setattr(
        streaming,
        "look",
        lambda queues, topics: {
            queue: streaming.Ends(*span)
            for queue, span in queues.ends.items()
            if queue not in queues.away
        },
    )


def reader_of(queues: Growing, **options: str) -> Any:
    given: Any = queues
    wanted = WantedColumns(struct_of({"queueId": T.IntegerType()}), ROCKETMQ)
    parsed = parse_options(STARTS | options, streaming=True)
    return streaming.RocketmqStreamReader(given, parsed, wanted)


def ranges(reader: Any, start: Any, end: Any) -> list[tuple[int, int, int]]:
    parts = reader.partitions(start, end)
    return [(span.queue.queue_id, *span[1:]) for part in parts for span in part.ranges]


@pytest.mark.usefixtures("old")
def test_limits_are_refused_by_a_spark_that_does_not_ask_for_them() -> None:
    given = STARTS | {"maxOffsetsPerTrigger": "5"}
    refused = streaming.make_stream_reader(given, struct_of({"queueId": T.IntegerType()}))
    with pytest.raises(WrongUsage, match=r"maxOffsetsPerTrigger: Spark .* take Spark 4.2 or newer"):
        refused.initialOffset()


@pytest.mark.usefixtures("old")
def test_an_older_spark_reads_each_message_once_in_the_order_of_its_calls() -> None:
    """It asks for the end first, then where the query began; a new queue begins at its first."""
    queues = Growing(q0=(2, 5))
    reader = reader_of(queues, startingOffsets="earliest")
    end = reader.latestOffset()
    assert ranges(reader, reader.initialOffset(), end) == [(0, 2, 5)]
    queues.ends = {A: (2, 9), B: (0, 4)}
    assert ranges(reader, end, following := reader.latestOffset()) == [(0, 5, 9)]
    assert ranges(reader, following, reader.latestOffset()) == [(1, 0, 4)]


@pytest.mark.usefixtures("old")
def test_a_query_that_begins_at_the_end_reads_what_comes_after_its_first_batch() -> None:
    queues = Growing(q0=(0, 5))
    reader = reader_of(queues, startingOffsets="latest")
    end = reader.latestOffset()
    queues.ends = {A: (0, 7)}
    assert ranges(reader, reader.initialOffset(), end) == []
    assert ranges(reader, end, reader.latestOffset()) == [(0, 5, 7)]


@pytest.mark.usefixtures("old")
def test_a_queue_that_appeared_while_the_query_was_off_is_read_from_its_first_message() -> None:
    queues = Growing(q0=(0, 5), q1=(3, 8))
    reader = reader_of(queues, startingOffsets="latest")
    checkpoint = {"t": {"b": {"0": 5}}}
    assert ranges(reader, checkpoint, reader.latestOffset()) == [(1, 3, 8)]


@pytest.mark.usefixtures("old")
def test_a_restarted_query_waits_for_all_brokers() -> None:
    """Without the queues of one they would look new later, and be read a second time."""
    queues = Growing(q0=(0, 5), q1=(0, 5))
    queues.away = {B}
    reader = reader_of(queues)
    with pytest.raises(CannotDecide, match=r"t/b/1: no answer\. Spark before 4.2"):
        reader.latestOffset()
    queues.away = set()
    reader.latestOffset()
    queues.away = {B}
    assert reader.latestOffset() == {"t": {"b": {"0": 5, "1": 5}}}


def test_rows_of_an_older_spark_become_batches() -> None:
    kinds = [
        T.StructField("body", T.BinaryType()),
        T.StructField("properties", T.MapType(T.StringType(), T.StringType())),
    ]
    rows = [Row(body=b"1", properties={"a": "b"}), Row(body=None, properties=None)]
    (batch,) = compat.batches_of_rows(iter(rows), T.StructType(kinds))
    assert batch.to_pylist() == [
        {"body": b"1", "properties": [("a", "b")]},
        {"body": None, "properties": None},
    ]
    given = pa.RecordBatch.from_pylist([{"body": b"2"}])
    assert list(compat.batches_of_rows(iter([given]), T.StructType(kinds))) == [given]
