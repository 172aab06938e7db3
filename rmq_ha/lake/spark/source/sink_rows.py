"""Makes the messages of `df.write` from the rows of a task, and refuses rows that make none."""

from collections.abc import Iterator
from typing import Any, NamedTuple
from zlib import crc32

from rmq_ha.base.errors import RmqHaError
from rmq_ha.base.model import properties as names
from rmq_ha.client.rules.messages import Message
from rmq_ha.lake.spark.source.sink_options import OTHER_NAMES, SINK_COLUMNS

ROW_ID = "SPARK_ROW_ID"
"""
Name of a property of every message. Its value stays the same when a row is sent again, and differs
from row to row.
"""
_OF_BROKERS = {
    names.TAGS, names.KEYS, names.WAIT, names.DELAY, names.RETRY_TOPIC, names.REAL_TOPIC,
    names.REAL_QID, names.TRAN_MSG, names.PGROUP, names.ORIGIN_MESSAGE_ID, names.RECONSUME_TIME,
    names.MAX_RECONSUME_TIMES, names.CLUSTER, names.TRANSACTION_CHECK_TIMES,
    names.CHECK_IMMUNITY_TIME_IN_SECONDS, names.TRAN_PREPARED_QUEUE_OFFSET,
    "MSG_REGION", "TRACE_ON", "INSTANCE_ID", ROW_ID,
}  # fmt: skip
_LEVELS = 18
_FLAGS = 1 << 31


class SinkTask(NamedTuple):
    """
    The task and the query that send.

    :ivar query: id of the query, which stays the same after a restart from a checkpoint.
    """

    query: str
    batch: str
    partition: int

    def row_id(self, row: int, message: Message) -> str:
        """
        Return the id of a row.

        It includes a checksum of the content. The order of rows may change from one attempt to the
        next, as after a shuffle; then another row in the same place must not look like a repeated
        one.
        """
        check = crc32(message.body)
        for text in (message.topic, message.keys, message.tags):
            check = crc32(text.encode("utf-8", "replace") + b"\0", check)
        return f"{self.query}-{self.batch}-{self.partition}-{row}-{check:08x}"


class QueueTarget(NamedTuple):
    """A queue that a row asked for; an empty broker means any."""

    broker: str
    queue_id: int


class BadRow(RmqHaError):
    """A row that makes no message; the text says which."""


def messages_of(
    batch: Any, topic: str, place: SinkTask, first_row: int, subscribed: str = ""
) -> Iterator[tuple[Message, QueueTarget | None]]:
    """
    Yield the messages of a `pyarrow.RecordBatch`, and the queue that each asks for, if any.

    :param first_row: how many rows of the task came before.
    :raises BadRow: body or topic is null, or brokers do not allow one of the numbers.
    """
    columns: dict[str, list[Any]] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        known = OTHER_NAMES.get(name, name)
        if known in SINK_COLUMNS:
            columns[known] = column.to_pylist()
    nothing = [None] * batch.num_rows
    rows = zip(*(columns.get(name, nothing) for name in SINK_COLUMNS), strict=True)
    for row, values in enumerate(rows, first_row):
        own_topic, body, keys, tags, more, flag, queue_id, broker, delay = values
        to = topic or own_topic or subscribed
        if body is None or not to:
            what = "body" if body is None else "topic"
            raise BadRow(f"row {row} of partition {place.partition} has no {what}")
        fault = _fault(flag or 0, delay or 0)
        if fault:
            raise BadRow(f"row {row} of partition {place.partition} has the {fault}")
        message = Message(
            to,
            body.encode() if isinstance(body, str) else body,
            tags or "",
            _text(keys, row, place) or "",
            properties=_without_system_properties(more),
            delay_time_level=delay or 0,
            flag=flag or 0,
        )
        message.properties[ROW_ID] = place.row_id(row, message)
        yield message, None if queue_id is None else QueueTarget(broker or "", queue_id)


def _text(value: str | bytes | None, row: int, place: SinkTask) -> str | None:
    """Return a key as text; raise BadRow if it is not UTF-8."""
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        raise BadRow(
            f"row {row} of partition {place.partition} has a key that is no text: RocketMQ's keys"
            " are; send hex(key) or base64(key)"
        ) from None


def _fault(flag: int, delay: int) -> str:
    """Return what is wrong with the numbers of a row; empty: nothing."""
    if not 0 <= delay <= _LEVELS:
        return f"delayLevel {delay}: it goes from 1 to {_LEVELS}"
    return "" if -_FLAGS <= flag < _FLAGS else f"flag {flag}: it has 32 bits"


def _without_system_properties(pairs: Any) -> dict[str, str]:
    """Return entries of a map, or headers, without those that brokers act on but UNIQ_KEY."""
    own: dict[str, str] = {}
    for pair in pairs or ():
        name, value = pair.values() if isinstance(pair, dict) else pair
        if name and value and name not in _OF_BROKERS:
            own[name] = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return own
