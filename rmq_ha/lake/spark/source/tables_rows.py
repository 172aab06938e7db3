"""Makes rows of tables from texts that are the same in files and in brokers' answers."""

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

import pyarrow as pa

from rmq_ha.base.errors import CannotDecide, ProtocolViolation
from rmq_ha.base.wire.bodies import (
    GroupTable,
    TopicTable,
    decode_delay_offsets,
    decode_offset_table,
)
from rmq_ha.lake.scan.log.columns import snake_case
from rmq_ha.lake.spark.source.forms import TABLES
from rmq_ha.lake.spark.source.reading import QueueId, Subscription

Row = tuple[Any, ...]


def batch_of(rows: Iterable[Row], schema: Any) -> Any:
    """
    Return rows as one Arrow batch.

    :raises CannotDecide: a number is larger than any broker's.
    """
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = []
    for column, field in zip(columns, schema, strict=True):
        try:
            arrays.append(pa.array(column, field.type))
        except (OverflowError, pa.ArrowException) as error:
            raise CannotDecide(
                f"the table is damaged: {field.name} has a value that is no {field.type} ({error})"
            ) from None
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def rows_of(
    table: str, text: bytes, broker: str | None, topics: Subscription, where: str
) -> list[Row]:
    """
    Return the rows of a table, sorted.

    :param where: the file or address that the text came from.
    :raises CannotDecide: the text is damaged.
    """
    try:
        rows = _ROWS[table](text)
    except ProtocolViolation as error:
        raise CannotDecide(f"{where} is damaged: {error}") from None
    at = _TOPIC_AT.get(table)
    return [(broker, *row) for row in sorted(rows) if at is None or topics.wants_topic(row[at])]


def offsets_of_group(
    text: bytes, group: str, queues: Iterable[QueueId], where: str
) -> dict[QueueId, int]:
    """
    Return a group's offsets in some queues of one broker, from the table of all offsets; queues
    without one are left out. Raises like `rows_of`.
    """
    table = "consumerOffsets"
    rows = rows_of(table, text, None, Subscription(), where)
    offsets = {tuple(place): offset for _, name, *place, offset in rows if name == group}
    kept = {queue: offsets.get((queue.topic, queue.queue_id), -1) for queue in queues}
    return {queue: offset for queue, offset in kept.items() if offset >= 0}


def _consumer_offsets(text: bytes) -> list[Row]:
    """Return the rows of the table of offsets: group, topic, queue id, offset."""
    rows: list[Row] = []
    for name, queues in decode_offset_table(text).items():
        topic, _, group = name.partition("@")
        rows += [(group, topic, queue_id, offset) for queue_id, offset in queues.items()]
    return rows


def _configurations(table: str, decode: Callable[[bytes], Any]) -> Callable[[bytes], list[Row]]:
    """
    Return a function that decodes a table and makes one row for each topic or group.

    The value of a column is the attribute of the same name in snake_case. The table's data version
    follows.
    """
    _, _, *named, _, _ = (word.partition(":")[0] for word in TABLES[table].split())
    of = attrgetter(*map(snake_case, named))

    def rows(text: bytes) -> list[Row]:
        decoded = decode(text)
        own = decoded.version.timestamp, decoded.version.counter
        return [(name, *of(config), *own) for name, config in getattr(decoded, table).items()]

    return rows


_ROWS: dict[str, Callable[[bytes], list[Row]]] = {
    "consumerOffsets": _consumer_offsets,
    "topics": _configurations("topics", TopicTable.decode),
    "groups": _configurations("groups", GroupTable.decode),
    "delayOffsets": lambda text: list(decode_delay_offsets(text).items()),
}
_TOPIC_AT = {"consumerOffsets": 1, "topics": 0}
