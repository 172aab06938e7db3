"""
Sends rows as messages, at least once, for `df.write.format("rocketmq")` and `df.writeStream...`.

A message that was sent cannot be revoked. So the messages of a failed task stay, and its retry
sends them again. Every message has a property `SPARK_ROW_ID` that names its row and query. A
repeated message has the same one, so readers can recognise it.
"""

from collections.abc import Iterator, Mapping
from contextlib import closing
from random import SystemRandom
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from rmq_ha.base.errors import ConfigurationError, WrongUsage
from rmq_ha.base.host.blocking import pause, seconds
from rmq_ha.client.blocking import BlockingClient
from rmq_ha.lake.spark.compat import DataSourceStreamArrowWriter, batches_of_rows
from rmq_ha.lake.spark.host.telling import InSentences
from rmq_ha.lake.spark.source.sink_options import SinkOptions, check_columns, parse_sink_options
from rmq_ha.lake.spark.source.sink_rows import SinkTask, messages_of
from rmq_ha.lake.spark.source.sink_sending import Outbox

_BATCH_ID = "streaming.sql.batchId"
_QUERY_ID = "sql.streaming.queryId"


def make_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> "RocketmqWriter":
    """
    Return a writer for the options of `df.write`.

    :raises WrongUsage: the options or the columns do not fit.
    """
    parsed = _check_options(options, schema, overwrite)
    return RocketmqWriter(parsed, f"{SystemRandom().getrandbits(96):024x}")


def make_stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> "RocketmqStreamWriter":
    """Return a writer for `df.writeStream`; raises like `make_writer`."""
    return RocketmqStreamWriter(_check_options(options, schema, overwrite), schema)


def _check_options(options: Mapping[str, str], schema: StructType, overwrite: bool) -> SinkOptions:
    """Parse the options of a write, and check the columns."""
    if overwrite:
        raise WrongUsage(
            "messages cannot be overwritten: write with mode('append') or outputMode('append')"
        )
    parsed = parse_sink_options(options)
    check_columns(schema, parsed)
    return parsed


class RocketmqWriter(InSentences, DataSourceArrowWriter):
    """
    One batch write. `commit` and `abort` do nothing, because messages that were sent cannot be
    revoked.

    :param job: id of this write; retried tasks have the same one.
    """

    def __init__(self, options: SinkOptions, job: str) -> None:
        self._options = options
        self._job = job

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """
        Send the rows of one task.

        :raises NotSent: a row cannot be sent; the text says which and why.
        """
        return send_rows(self._options, iterator, self._job, "0", _partition())


class RocketmqStreamWriter(InSentences, DataSourceStreamArrowWriter):
    """Writes the batches of a stream; see `RocketmqWriter`."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Send the rows of one task of one batch; raises as `RocketmqWriter.write`."""
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY_ID) if context else None
        batch = context.getLocalProperty(_BATCH_ID) if context else None
        batches = batches_of_rows(iterator, self._schema)
        return send_rows(self._options, batches, query or "", batch or "", _partition())


def send_rows(
    options: SinkOptions, batches: Iterator[Any], query: str, batch: str, partition: int
) -> WriterCommitMessage:
    """
    Send the rows of a task.

    :raises NotSent: a row cannot be sent.
    """
    try:
        client = BlockingClient(options.client, options.producer)
    except ConfigurationError as error:
        raise WrongUsage(f"brokers cannot be asked: {error}") from None
    place = SinkTask(query, batch, partition)
    done = sent = 0
    rate, began = options.rows_per_second, seconds()
    step = max(1, (rate or 0) // 10)  # a tenth of a second's rows, so that requests stay large
    with closing(client):
        outbox = Outbox(client, options, place)
        for rows in batches:
            for message, queue in messages_of(rows, options.topic, place, done, options.subscribed):
                outbox.put(message, queue)
                sent += 1
                if rate is not None and sent % step == 0:
                    outbox.flush()
                    pause(max(0, round((began + sent / rate - seconds()) * 1000)))
            done += rows.num_rows
        outbox.flush()
    return WriterCommitMessage()


def _partition() -> int:
    context = TaskContext.get()
    return context.partitionId() if context else 0
