"""`df.write.format("rocketmq")` and `df.writeStream...`: rows become messages, at least once.

A message that was sent cannot be called back, so what a failed task sent stays, and the task that
is tried again sends it again. For readers to tell, every message has a property `SPARK_ROW_ID` that
says which row of which query it is: a repeated one has the same.
"""

from collections.abc import Iterator, Mapping
from contextlib import closing
from random import SystemRandom
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from rmq_ha.client.blocking import BlockingClient
from rmq_ha.errors import ConfigurationError, WrongUsage
from rmq_ha.spark.host.clock import seconds
from rmq_ha.spark.host.waiting import pause
from rmq_ha.spark.source.sink_options import SinkOptions, check_columns, parse_sink_options
from rmq_ha.spark.source.sink_rows import Place, messages_of
from rmq_ha.spark.source.sink_sending import Outbox, Pace

_BATCH_ID = "streaming.sql.batchId"
_QUERY_ID = "sql.streaming.queryId"


class Sent(WriterCommitMessage):
    """What one task sent."""

    def __init__(self, partition: int, rows: int) -> None:
        self.partition = partition
        self.rows = rows


def make_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> "RocketmqWriter":
    """
    A writer of what the options of `df.write` say.

    :raises WrongUsage: they or the columns do not fit.
    """
    parsed = _checked(options, schema, overwrite)
    return RocketmqWriter(parsed, f"{SystemRandom().getrandbits(96):024x}")


def make_stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> "RocketmqStreamWriter":
    """As `make_writer`, for `df.writeStream`."""
    return RocketmqStreamWriter(_checked(options, schema, overwrite))


def _checked(options: Mapping[str, str], schema: StructType, overwrite: bool) -> SinkOptions:
    if overwrite:
        raise WrongUsage(
            "messages cannot be overwritten: write with mode('append') or outputMode('append')"
        )
    parsed = parse_sink_options(options)
    check_columns(schema, parsed)
    return parsed


class RocketmqWriter(DataSourceArrowWriter):
    """
    One batch write. `commit` and `abort` have nothing to do: messages are out when they are sent.

    :param job: tells this write from all others; retried tasks share it.
    """

    def __init__(self, options: SinkOptions, job: str) -> None:
        self._options = options
        self._job = job

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """
        Send the rows of one task.

        :raises NotSent: a row cannot be sent; says which and why.
        """
        return send_rows(self._options, iterator, self._job, "0", _partition())


class RocketmqStreamWriter(DataSourceStreamArrowWriter):
    """The batches of a stream; as `RocketmqWriter`."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Send the rows of one task of one batch; raises as `RocketmqWriter.write`."""
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY_ID) if context else None
        batch = context.getLocalProperty(_BATCH_ID) if context else None
        return send_rows(self._options, iterator, query or "", batch or "", _partition())


def send_rows(
    options: SinkOptions, batches: Iterator[Any], query: str, batch: str, partition: int
) -> Sent:
    """
    Send the rows of a task.

    :param batches: `pyarrow.RecordBatch`.
    :raises NotSent: a row cannot be sent.
    """
    try:
        client = BlockingClient(options.client, options.producer)
    except ConfigurationError as error:
        raise WrongUsage(f"brokers cannot be asked: {error}") from None
    place = Place(query, batch, partition)
    rows = sent = 0
    rate = options.rows_per_second
    pace = None if rate is None else Pace(rate, seconds())
    with closing(client):
        outbox = Outbox(client, options, place)
        for each in batches:
            for message, queue in messages_of(each, options.topic, place, rows, options.subscribed):
                outbox.put(message, queue)
                sent += 1
                if pace is not None and pace.is_due(sent):
                    outbox.flush()
                    pause(pace.wait_ms(sent, seconds()))
            rows += each.num_rows
        outbox.flush()
    return Sent(partition, rows)


def _partition() -> int:
    context = TaskContext.get()
    return context.partitionId() if context else 0
