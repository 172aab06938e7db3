"""Reads tables from a store's directory."""

from collections.abc import Iterator
from typing import Any, NamedTuple
from warnings import warn

import numpy as np
import pyarrow as pa

from rmq_ha.lake.scan.log.columns import repeated, times
from rmq_ha.lake.spark.source.offline import OfflineQueues, first_unit, store_of
from rmq_ha.lake.spark.source.options import SourceOptions
from rmq_ha.lake.spark.source.planning import bundled, cut_at
from rmq_ha.lake.spark.source.reading import QueueRange
from rmq_ha.lake.spark.source.tables_rows import batch_of, rows_of

UNITS = 1 << 20
"""How many units of a consume queue, or items of an index file, one partition has."""
ROWS = 1 << 16
"""How many rows one batch has."""
_FILES = {
    "consumerOffsets": "consumerOffset.json",
    "topics": "topics.json",
    "groups": "subscriptionGroup.json",
    "delayOffsets": "delayOffset.json",
}


class IndexPart(NamedTuple):
    """Rows [start, stop) of an index file, which is given by its number in the list of files."""

    at: int
    start: int
    stop: int


class StoreTables:
    """The tables of a store. A part is the text of a file, some queues, or an `IndexPart`."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def parts(self) -> list[Any]:
        """
        Return the parts, each of which is read by itself.

        :raises CannotDecide: there is no store.
        """
        options = self._options
        if options.table in ("queues", "consumeQueue"):
            ranges = list(self._ranges())
            return (
                [tuple(ranges)]
                if options.table == "queues"
                else bundled(
                    cut_at((span for span in ranges if span.start < span.stop), UNITS), UNITS
                )
            )
        store = store_of(options)
        if options.table == "index":
            return [
                IndexPart(at, start, start + UNITS)
                for at, file in enumerate(store.index_files())
                for start in range(0, file.count, UNITS)
            ]
        text = store.config(_FILES[options.table])
        for note in store.notes:
            warn(note, stacklevel=2)
        if text is None:
            warn(
                f"{store.root}/config has no {_FILES[options.table]}: the table is empty",
                stacklevel=2,
            )
            return []
        return [text]

    def batches(self, part: Any, schema: Any) -> Iterator[Any]:
        """
        Yield the rows of a part as Arrow batches.

        :param part: one of the results of `parts`.
        :raises CannotDecide: the part is damaged, or vanished.
        """
        options = self._options
        table, broker = options.table, options.broker_name
        if isinstance(part, bytes):
            where = f"{options.path}/config/{_FILES[table]}"
            yield batch_of(rows_of(table, part, broker, options.subscription, where), schema)
        elif isinstance(part, IndexPart):
            yield from self._index(part, schema)
        elif table == "queues":
            yield batch_of(
                [(broker, queue.topic, queue.queue_id, start, stop) for queue, start, stop in part],
                schema,
            )
        else:
            for span in part:
                yield from self._units(span, schema)

    def _ranges(self) -> Iterator[QueueRange]:
        """Yield the range of each queue that has, or had, a message."""
        queues = OfflineQueues(self._options)
        for queue in queues.queues(self._options.subscription):
            first, end = queues.bounds(queue)
            if end > 0:
                yield QueueRange(queue, first, end)

    def _units(self, span: QueueRange, schema: Any) -> Iterator[Any]:
        topic, _, queue_id = span.queue
        queue = store_of(self._options).queue_alone(topic, queue_id)
        at = max(span.start, first_unit(queue))
        while at < span.stop:
            units = queue.units(at, min(at + ROWS, span.stop))
            count = len(units)
            if not count:
                return
            arrays = [
                repeated(self._options.broker_name, count),
                repeated(topic, count),
                pa.array(np.full(count, queue_id, np.int32)),
                pa.array(np.arange(at, at + count, dtype=np.int64)),
                pa.array(units["offset"].astype(np.int64)),
                pa.array(units["size"].astype(np.int32)),
                pa.array(units["tagsCode"].astype(np.int64)),
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
            at += count

    def _index(self, part: IndexPart, schema: Any) -> Iterator[Any]:
        file = store_of(self._options).index_files()[part.at]
        name = file.path.rsplit("/", 1)[-1]
        for start in range(part.start, min(part.stop, file.count), ROWS):
            entries = file.entries(start, min(start + ROWS, part.stop))
            count = len(entries.slot)
            stored = file.header.begin_timestamp + entries.time_diff * 1000
            arrays = [
                repeated(self._options.broker_name, count),
                repeated(name, count),
                pa.array(np.arange(start + 1, start + 1 + count, dtype=np.int32)),
                pa.array(entries.slot.astype(np.int32)),
                pa.array(entries.hash.astype(np.int32)),
                pa.array(entries.physical_offset),
                times(stored),
                pa.array(entries.previous.astype(np.int32)),
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
