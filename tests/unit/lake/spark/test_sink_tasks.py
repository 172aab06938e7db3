"""What a task of a write does around its requests: pace, numbers of rows, names, and the end."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from rmq_ha.base.errors import ConfigurationError, WrongUsage
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.rules.messages import Message
from rmq_ha.lake.spark.source import sink
from rmq_ha.lake.spark.source.sink import make_stream_writer, make_writer
from rmq_ha.lake.spark.source.sink_options import parse_sink_options
from rmq_ha.lake.spark.source.sink_rows import ROW_ID, BadRow
from tests.unit.lake.spark.test_sink_sending import FakeClient


class Remembering(FakeClient):
    """Whole messages."""

    def __init__(self, close: Callable[[], None]) -> None:
        super().__init__()
        self.messages: list[Message] = []
        self.close = close

    def send_batch(self, messages: list[Message], *, queue: MessageQueue | None = None) -> Any:
        self.messages += messages
        return super().send_batch(messages, queue=queue)


class Paced:
    """A client and a clock: what a task sends, and how long it rests."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.client = Remembering(self.close)
        self.closed = 0
        self.rests: list[tuple[int, int]] = []
        self.now = 50.0
        monkeypatch.setattr(sink, "BlockingClient", lambda *_: self.client)
        monkeypatch.setattr(sink, "seconds", lambda: self.now)
        monkeypatch.setattr(sink, "pause", self.pause)

    def close(self) -> None:
        self.closed += 1

    def pause(self, ms: int) -> None:
        """Nothing waits while it rests: all that came so far is out."""
        self.rests.append((self.count, ms))
        self.now += ms / 1000

    @property
    def count(self) -> int:
        return len(self.client.messages)


def batch_of(count: int, first: int = 0) -> Any:
    return pa.RecordBatch.from_pydict({"body": [b"%d" % number for number in range(first, count)]})


OPTIONS = {"namesrv": "n:1", "topic": "t", "batchRows": "100"}


@pytest.mark.parametrize(
    ("rate", "rests"),
    [
        ("5", [(at, 200) for at in range(1, 26)]),  # after each one
        ("20", [(at, 100) for at in range(2, 25, 2)]),  # a tenth of a second each
        ("1000", []),  # they are out before the first one would come
        (None, []),
    ],
)
def test_a_task_sends_no_more_than_it_may_in_a_second(
    monkeypatch: pytest.MonkeyPatch, rate: str | None, rests: list[tuple[int, int]]
) -> None:
    paced = Paced(monkeypatch)
    options = parse_sink_options(OPTIONS if rate is None else {**OPTIONS, "rowsPerSecond": rate})
    sink.send_rows(options, iter([batch_of(10), batch_of(25, 10)]), "query", "3", 1)
    assert (paced.rests, paced.count, paced.closed) == (rests, 25, 1)


def test_a_task_that_is_late_does_not_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    paced = Paced(monkeypatch)

    def batches() -> Any:
        yield batch_of(2)
        paced.now += 10  # Spark took its time
        yield batch_of(4)

    sink.send_rows(
        parse_sink_options({**OPTIONS, "rowsPerSecond": "20"}), batches(), "query", "3", 1
    )
    assert paced.rests == [(2, 100), (4, 0), (6, 0)]


def test_rows_are_numbered_through_all_batches_of_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """By which a reader tells a repeated one; and the client is closed whatever happens."""
    seen: list[str] = []
    for batches in ([batch_of(3)], [batch_of(1), batch_of(2, 1), batch_of(3, 2)]):
        paced = Paced(monkeypatch)
        sink.send_rows(parse_sink_options(OPTIONS), iter(batches), "query", "3", 1)
        seen += [message.properties[ROW_ID] for message in paced.client.messages]
    assert seen[:3] == seen[3:]
    assert len(set(seen)) == 3
    paced = Paced(monkeypatch)
    bad = pa.RecordBatch.from_pydict({"body": pa.array([b"x", None], pa.binary())})
    with pytest.raises(BadRow, match="row 4 of partition 1"):
        sink.send_rows(parse_sink_options(OPTIONS), iter([batch_of(3), bad]), "query", "3", 1)
    assert paced.closed == 1


def test_a_writer_of_a_stream_names_query_batch_and_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Outside of Spark there is none."""
    given: list[tuple[Any, ...]] = []
    monkeypatch.setattr(sink, "send_rows", lambda _, rows, *place: given.append(place))
    schema = StructType([StructField("body", BinaryType())])

    class Context:
        def getLocalProperty(self, name: str) -> str:
            return {"sql.streaming.queryId": "Q", "streaming.sql.batchId": "7"}[name]

        def partitionId(self) -> int:
            return 3

    for context in (None, Context()):
        monkeypatch.setattr(sink.TaskContext, "get", lambda it=context: it)
        make_stream_writer(OPTIONS, schema, False).write(iter([]))
        make_writer(OPTIONS, schema, False).write(iter([]))
    assert given[0] == ("", "", 0)
    assert given[2] == ("Q", "7", 3)
    (job, *rest), (other, *more) = given[1], given[3]
    assert (rest, more) == (["0", 0], ["0", 3])
    assert len(job) == len(other) == 24
    assert job != other


def test_a_client_that_cannot_be_made_is_said_to_be_that(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ConfigurationError("no such file")

    monkeypatch.setattr(sink, "BlockingClient", refuse)
    with pytest.raises(WrongUsage, match="brokers cannot be asked: no such file"):
        sink.send_rows(parse_sink_options(OPTIONS), iter([]), "query", "3", 1)
