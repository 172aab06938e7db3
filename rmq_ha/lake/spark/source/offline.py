"""Reads messages from a store's directory, queue by queue or file by file."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import chain
from typing import Any

import numpy as np
import pyarrow.compute as pc

from rmq_ha.base.errors import CannotDecide
from rmq_ha.base.model.flags import TRANSACTION_PREPARED
from rmq_ha.base.model.topics import LMQ_PREFIX
from rmq_ha.base.store_format.consumequeue import UNIT_SIZE
from rmq_ha.lake.scan.log.records import Records
from rmq_ha.lake.scan.store.directory import StoreDirectory, open_store, scan
from rmq_ha.lake.scan.store.parts import Queue
from rmq_ha.lake.scan.store.picking import pick_records
from rmq_ha.lake.scan.store.scanning import splits_of
from rmq_ha.lake.spark.source.options import SourceOptions
from rmq_ha.lake.spark.source.reading import (
    QueueId,
    QueueRange,
    Subscription,
    first_names,
)
from rmq_ha.lake.spark.source.tables_rows import offsets_of_group

_SAMPLE = 64
_TAIL = 1 << 20
_INT = 0xFFFFFFFF
END_OF_LOG = (1 << 63) - 1
"""Greater than every offset of any log or queue."""
_ALL = (0, END_OF_LOG)
_NONE = (0, 0)
READ_BYTES = 16 << 20
"""About how many bytes of records a queue's read holds at once."""
Spans = Mapping[tuple[str, int], tuple[int, int]]
"""The wanted offsets, [from, to), by topic and queue."""


class OfflineQueues:
    """The queues of a store (`Queues`), with the bounds of the last call of `queues()`."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._store: StoreDirectory | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return OfflineQueues, (self._options,)

    @property
    def store(self) -> StoreDirectory:
        """
        The store as it was when it was last opened.

        :raises CannotDecide: there is no store.
        """
        if self._store is None:
            self._store = store_of(self._options)
        return self._store

    def queues(self, topics: Subscription) -> list[QueueId]:
        self._store = None
        broker = self._options.broker_name or ""
        queues = [QueueId(topic, broker, number) for topic, number in self.store.topics_on_disk()]
        self._check_named(topics, {queue.topic for queue in queues})
        known = set(queues)
        for queue in topics.assigned or ():
            if queue._replace(broker=queue.broker or broker) not in known:
                raise CannotDecide(f"{self.store.uri} has no queue {queue}; is its number right?")
        return sorted(queue for queue in queues if topics.wants(queue))

    def bounds(self, queue: QueueId) -> tuple[int, int]:
        stored = self.store.queue(queue.topic, queue.queue_id)
        return stored.min_offset, stored.max_offset

    def offset_at(self, queue: QueueId, ms: int) -> int | None:
        stored = self.store.queue(queue.topic, queue.queue_id)

        def stored_at(offset: int) -> int:
            return self.store.store_time_of(int(stored.units(offset, offset + 1)["offset"][0]))

        offsets = range(stored.min_offset, stored.max_offset)
        at = bisect_left(offsets, ms, key=stored_at)
        return offsets[at] if at < len(offsets) else None

    def reach_the_end(self) -> bool:
        """Return whether the log's last message is in its queue; after a crash it may not be."""
        store = self.store
        row, end = store.log_files(), store.max_offset()
        parts = (splits_of([file], _TAIL, file.base, end) for file in reversed(row))
        for split in chain.from_iterable(map(reversed, parts)):
            last = [records for records in scan(store, split) if len(records)]
            if last:
                record = last[-1].select(slice(-1, None))
                queue_id = int(record.queue_id[0])
                queue = store.queue(record.topics()[0].as_py(), queue_id)
                is_hidden = bool(record.stored_sys_flag[0] & TRANSACTION_PREPARED)
                return is_hidden or int(record.queue_offset[0]) < queue.max_offset
        return True

    def log_range(self, ranges: Sequence[QueueRange]) -> tuple[int, int]:
        """
        Return where in the log the records of the ranges start, [from, to), computed from the first
        and the last record of each queue. If one of these is not where its queue says, the whole
        log is returned.
        """
        units: list[tuple[int, int]] = []
        edges: list[tuple[int, int]] = []
        for queue_id, start, stop in ranges:
            queue = self.store.queue_alone(queue_id.topic, queue_id.queue_id)
            for at in (start, stop - 1):
                pointers = queue.units(at, at + 1)
                units += [(int(unit["offset"]), int(unit["size"])) for unit in pointers]
                edges.append((queue_id.queue_id, at))
        if not units or len(units) != len(edges):
            return _ALL if edges else _NONE
        offsets, sizes = np.array(units, np.int64).T
        row = self.store.log_files()
        records = pick_records(self.store.files, row, offsets, sizes, row[-1].end)
        ids, places = records.queue_id.tolist(), records.queue_offset.tolist()
        if list(zip(ids, places, strict=True)) != edges:
            return _ALL
        return int(offsets.min()), int(offsets.max()) + 1

    def mean_size(self, span: QueueRange) -> float:
        """Return the mean size in bytes of some of a range's records; 0 if there are none."""
        queue = self.store.queue_alone(span.queue.topic, span.queue.queue_id)
        sizes = queue.units(span.start, min(span.stop, span.start + _SAMPLE))["size"]
        return float(sizes.mean()) if len(sizes) else 0.0

    def group_offsets(self, group: str, queues: Sequence[QueueId]) -> dict[QueueId, int]:
        name = "consumerOffset.json"
        text = self.store.config(name)
        where = f"{self.store.uri}/config/{name}"
        return offsets_of_group(text, group, queues, where) if text is not None else {}

    def read(self, span: QueueRange, columns: Sequence[str]) -> Iterator[Any]:
        options, name = self._options, self._options.broker_name
        for records in self._records(span):
            yield from records.tagged(options.tags).batches(columns, name, rows=options.batch_rows)

    def _records(self, span: QueueRange) -> Iterator[Records]:
        """Yield the records of a range, some at a time, or raise CannotDecide for a missing one."""
        store = self.store
        queue = store.queue_alone(span.queue.topic, span.queue.queue_id)
        row = store.log_files()
        at = max(span.start, first_unit(queue))
        if at > span.start and self._options.fail_on_data_loss:
            raise self._store_changed_error(span, span.start)
        while at < span.stop:
            units = queue.units(at, min(span.stop, at + self._options.batch_rows))
            sizes = units["size"].astype(np.int64)
            together = np.cumsum(np.maximum(sizes, 0))
            units = units[: max(1, int(np.searchsorted(together, READ_BYTES, "right")))]
            offsets, sizes = units["offset"], sizes[: len(units)]
            if not len(units):
                if self._options.fail_on_data_loss:
                    raise self._store_changed_error(span, at)
                return
            # An entry says where its record is, so the end of the log need not be found.
            records = pick_records(store.files, row, offsets, sizes, row[-1].end)
            records = _of_queue(records, span.queue, at, len(units))
            if len(records) < len(units) and self._options.fail_on_data_loss:
                raise self._not_there(span, at, offsets, records)
            yield records
            at += len(units)

    def _store_changed_error(self, span: QueueRange, at: int) -> CannotDecide:
        return CannotDecide(
            f"{span.queue} of {self.store.uri} has no message {at} any more: the store changes"
            " while it is read (its broker deletes what is older than fileReservedTime). Read"
            " again, or pass over what is gone with failOnDataLoss=false"
        )

    def _not_there(self, span: QueueRange, at: int, offsets: Any, records: Records) -> CannotDecide:
        """Return the error for records from `at` on that are not where their queue says."""
        if span.queue.topic.startswith(LMQ_PREFIX):
            is_there = np.isin(offsets, records.physical_offset)
        else:
            is_there = np.isin(np.arange(at, at + len(offsets)), records.queue_offset)
        index, missing = int(is_there.argmin()), int((~is_there).sum())
        return CannotDecide(
            f"{span.queue} of {self.store.uri}: message {at + index} is not at {offsets[index]}"
            f" of the log, where its queue says ({missing} such in this part): deleted meanwhile,"
            " or damaged. rmqha-spark verify-replica says which; failOnDataLoss=false leaves them"
            " out"
        )

    def _check_named(self, topics: Subscription, stored: set[str]) -> None:
        """Check that the named topics are on the disk, or in the store's table of topics."""
        missing = [name for name in topics.named or () if name not in stored]
        if not missing:
            return
        table = self.store.topics()
        known = stored | (set(table.topics) if table else set())
        for name in missing:
            if name not in known:
                near = get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"it has {first_names(stored)}"
                raise CannotDecide(f"{self.store.uri} has no topic {name!r}; {hint}")


def _of_queue(records: Records, queue: QueueId, start: int, count: int) -> Records:
    """Return the records that say they are of the queue; a light queue points at any records."""
    if queue.topic.startswith(LMQ_PREFIX) or not len(records):
        return records
    offsets = records.queue_offset
    right = (offsets >= start) & (offsets < start + count) & (records.queue_id == queue.queue_id)
    if len(records) == count:
        right &= offsets == np.arange(start, start + count)
    right &= np.asarray(pc.equal(records.topics(), queue.topic))
    return records if right.all() else records.select(right)


class FileWanted:
    """The wanted records of a file, at the offsets `spans`, or at all of the subscription."""

    def __init__(self, options: SourceOptions, spans: Spans | None) -> None:
        self._topics = options.subscription
        self._spans = spans
        self._broker = options.broker_name or ""
        self._only_queued = options.scan != "files"

    def select(self, records: Records) -> Records:
        """
        Return the records that are subscribed to, and whose offsets are wanted.

        Unless the user asked for files, prepared and rolled-back messages of producers that write
        these flags themselves are left out, because no queue has them.
        """
        if self._only_queued and len(records):
            hidden = records.stored_sys_flag & TRANSACTION_PREPARED != 0
            if hidden.any():
                records = records.select(~hidden)
        if (self._topics.is_everything and self._spans is None) or not len(records):
            return records
        topics = records.topics().dictionary_encode()
        names = topics.dictionary.to_pylist()
        codes = topics.indices.to_numpy()
        are_wanted = np.array([self._topics.wants_topic(name) for name in names], np.bool_)
        mask = are_wanted[codes]
        if self._topics.assigned is not None or self._spans is not None:
            mask &= self._in_spans(records, codes, names)
        return records if mask.all() else records.select(mask)

    def _in_spans(self, records: Records, codes: Any, names: list[str]) -> Any:
        """Return which records are in the spans, by queue: there are fewer than records."""
        ids, offsets = records.queue_id.astype(np.int64), records.queue_offset
        pairs, which = np.unique(codes.astype(np.int64) << 32 | ids & _INT, return_inverse=True)
        edges = [self._span(names[pair >> 32], pair & _INT) for pair in pairs.tolist()]
        low, high = np.array(edges, np.int64).T[:, which]
        return (offsets >= low) & (offsets < high)

    def _span(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return the wanted offsets of a queue, [from, to)."""
        if self._spans is not None:
            return self._spans.get((topic, queue_id), _NONE)
        is_wanted = self._topics.wants(QueueId(topic, self._broker, queue_id))
        return _ALL if is_wanted else _NONE


def store_of(options: SourceOptions) -> StoreDirectory:
    """
    Return the store that the options name.

    :raises CannotDecide: there is no store, or it may not be read.
    """
    assert options.path is not None
    return open_store(
        options.path,
        commit_log=options.commit_log,
        index_sizes=options.index_sizes,
        damaged=not options.fail_on_data_loss,
    )


def first_unit(queue: Queue) -> int:
    """Return the first offset in the files of a queue."""
    return queue.row[0].base // UNIT_SIZE if queue.row else 0
