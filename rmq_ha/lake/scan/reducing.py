"""
Reduces records to what an audit without ledgers needs: counts, runs, and a number of 8 bytes for
each id.

So only a few rows for each window reach Spark, in place of thousands.

Spec: store.md, section 2.1.
"""

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rmq_ha.base.model.flags import TRANSACTION_PREPARED
from rmq_ha.base.model.topics import (
    DLQ_PREFIX,
    HALF_TOPIC,
    OFFSET_MOVED_EVENT,
    OP_HALF_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_PROGRESS_TOPIC,
    TIMER_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
)
from rmq_ha.lake.scan.arrays import filled, schema, text_hashes
from rmq_ha.lake.scan.log.records import Records

INTERNAL = (
    SCHEDULE_TOPIC, TIMER_TOPIC, TIMER_PROGRESS_TOPIC, HALF_TOPIC, OP_HALF_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC, OFFSET_MOVED_EVENT,
)  # fmt: skip
"""
Topics in which brokers keep messages on their way; the same message may lie there several times.
"""

STEPS = ((64, 1), (512, 4), (4_096, 32), (32_768, 256), (262_144, 2_048), (2_097_152, 16_384))
WIDEST = 131_072
"""
Classes of latency: pairs of an upper limit and the width of the classes below that limit, in ms.
Above the last limit each class has the width `WIDEST`.
"""


def is_ordinary(topic: str) -> bool:
    """Return whether producers send to a topic, so that each message belongs there once."""
    return topic not in INTERNAL and not topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def are_ordinary(topics: Any) -> Any:
    """Return `is_ordinary` for each text of an Arrow array."""
    encoded = topics.dictionary_encode()
    known = np.array([is_ordinary(name) for name in encoded.dictionary.to_pylist()], np.bool_)
    return known[np.asarray(encoded.indices)]


def are_in_queue(sys_flags: Any) -> Any:
    """
    Return which records have a place in their queue, by their flags. Those of the types prepared
    and rollback have none, and their offset is 0.
    """
    return sys_flags & TRANSACTION_PREPARED == 0


SUMS, RUN, IDS, PACKED, UNREADABLE = range(5)
"""
Kinds of rows: SUMS: counts of a queue, a window and a class of latency; RUN: records with
consecutive offsets; IDS: ids; PACKED: the records themselves as one value, if single messages are
needed; UNREADABLE: a record that no consumer can read.
"""

ROW = (
    "topic", "queueId", "sysFlag", "queueOffset", "commitLogOffset", "bornMs", "storedMs",
    "storeSize", "crcOk",
)  # fmt: skip
"""The columns that `Reduction.rows` reads."""
SCHEMA = schema(
    "kind:int brokerName:string topic:string queueId:int inQueue:boolean ordinary:boolean"
    " window:long latency:long n:long bytes:long bad:long leastOffset:long mostOffset:long"
    " leastPlace:long mostPlace:long leastMs:long mostMs:long hashes:longs places:longs data:binary"
)
"""
A run has its first offset, place and time in the `least` columns, and its last offset in the `most`
column.
"""

LATEST_MS = 253_402_300_799_999
"""
The end of the year 9999, in ms. A later time, or one before 1970, cannot come from a clock. The
nearer limit replaces it, because Python's calendar would fail, and with it the whole job.
"""
_INT = 0xFFFFFFFF


def id_column_of(key: str) -> str:
    """
    Return the column that identifies a message. Without UNIQ_KEY, `msgId` is the message's address,
    which is unique and which its producer was told.

    :param key: `uniqKey` or `keys`.
    """
    return "keys" if key == "keys" else "msgId"


class Reduction(NamedTuple):
    """
    How records are reduced.

    :ivar label: value of `brokerName`.
    :ivar key: `uniqKey` or `keys`, which identifies a message.
    :ivar from_ms: only messages stored at this time or later; None: all. `to_ms` is the end,
        exclusive.
    """

    label: str
    key: str
    window_ms: int
    from_ms: int | None = None
    to_ms: int | None = None

    def batches(self, records: Records) -> Iterator[Any]:
        """Yield the rows for some records, in the order of the log."""
        records = self.inside_time(records)
        if len(records):
            seen = _of_records(records)
            yield self._sums(seen)
            yield from self._runs(seen)
            yield from self._ids(seen, records.batch([id_column_of(self.key)]).column(0))

    def unreadable(self, records: Records) -> Iterator[Any]:
        """Yield a row for each body that zlib did not compress, though its flag says so."""
        rows = records.unreadable_rows()
        if rows:
            some = records.select(np.array(rows))
            columns = {
                "topic": some.topics(),
                "queueId": pa.array(some.queue_id.astype(np.int32)),
                "leastOffset": pa.array(some.queue_offset.astype(np.int64)),
                "leastPlace": pa.array(some.physical_offset.astype(np.int64)),
                "leastMs": pa.array(some.store_timestamp.astype(np.int64)),
            }
            yield filled({"kind": UNREADABLE, "brokerName": self.label} | columns, SCHEMA)

    def rows(self, rows: Any) -> Iterator[Any]:
        """
        Yield counts and runs of messages that are rows already.

        :param rows: an Arrow batch with the columns `ROW`, of one broker; not empty.
        """
        columns = [rows[name].to_numpy(zero_copy_only=False) for name in ROW[1:]]
        seen = _MessageColumns(rows["topic"], columns)
        yield self._sums(seen)
        yield from self._runs(seen)

    def inside_time(self, records: Records) -> Records:
        """Return the records of the wanted time."""
        if (self.from_ms is None and self.to_ms is None) or not len(records):
            return records
        at = records.store_timestamp
        mask = np.ones(len(records), np.bool_)
        if self.from_ms is not None:
            mask &= at >= self.from_ms
        if self.to_ms is not None:
            mask &= at < self.to_ms
        return records.select(mask)

    def _sums(self, seen: "_MessageColumns") -> Any:
        """Return the rows of the kind SUMS, one for each queue, window and class of latency."""
        born, stored = seen.born, seen.stored
        windows, window = np.unique(windows_of(born, self.window_ms), return_inverse=True)
        latencies, latency = np.unique(latency_floors(stored - born), return_inverse=True)
        # One number for each combination of queue, in_queue, window and latency: sorted by it, the
        # messages of a row stand side by side, from each edge to the next.
        mixed = ((seen.queue * 2 + seen.in_queue) * len(windows) + window) * len(latencies)
        order = np.argsort(mixed + latency, kind="stable")
        edges = _starts((mixed + latency)[order])
        first = order[edges]
        offsets, places, times = (column[order] for column in (seen.offsets, seen.places, stored))
        return self._batch(
            SUMS,
            seen,
            first,
            inQueue=seen.in_queue[first],
            ordinary=seen.ordinary[first],
            window=windows[window[first]],
            latency=latencies[latency[first]],
            n=np.diff(np.append(edges, len(order))),
            bytes=np.add.reduceat(seen.sizes[order], edges),
            bad=np.add.reduceat((~seen.sound[order]).astype(np.int64), edges),
            leastOffset=np.minimum.reduceat(offsets, edges),
            mostOffset=np.maximum.reduceat(offsets, edges),
            leastPlace=np.minimum.reduceat(places, edges),
            mostPlace=np.maximum.reduceat(places, edges),
            leastMs=np.minimum.reduceat(times, edges),
            mostMs=np.maximum.reduceat(times, edges),
        )

    def _runs(self, seen: "_MessageColumns") -> Iterator[Any]:
        """Yield the rows RUN, one for each stretch of consecutive offsets in a queue."""
        rows = np.flatnonzero(seen.in_queue)
        if not len(rows):
            return
        rows = rows[np.argsort(seen.queue[rows], kind="stable")]
        queue, offsets = seen.queue[rows], seen.offsets[rows]
        follows = (queue[1:] == queue[:-1]) & (offsets[1:] == offsets[:-1] + 1)
        edges = np.append(0, np.flatnonzero(~follows) + 1)
        first, last = rows[edges], rows[np.append(edges[1:], len(rows)) - 1]
        yield self._batch(
            RUN,
            seen,
            first,
            inQueue=np.ones(len(first), np.bool_),
            leastOffset=seen.offsets[first],
            mostOffset=seen.offsets[last],
            leastPlace=seen.places[first],
            leastMs=seen.stored[first],
        )

    def _ids(self, seen: "_MessageColumns", ids: Any) -> Iterator[Any]:
        """Yield one row IDS for all messages that belong into their topic once."""
        belong_once = seen.in_queue & seen.ordinary
        if ids.null_count:
            belong_once &= np.asarray(ids.is_valid())
        if not belong_once.any():
            return
        hashes = text_hashes(ids, seen.seeds)[belong_once].view(np.int64)
        lists = [
            pa.array([column], pa.list_(pa.int64()))
            for column in (hashes, seen.places[belong_once])
        ]
        row = {"kind": IDS, "brokerName": self.label}
        yield filled(row | dict(zip(("hashes", "places"), lists, strict=True)), SCHEMA)

    def _batch(self, kind: int, seen: "_MessageColumns", first: Any, **columns: Any) -> Any:
        """Return rows of one kind; `first` are messages whose queue is that of each row."""
        names = pa.array(seen.names, pa.string())
        row = {
            "kind": kind,
            "brokerName": self.label,
            "topic": names.take(pa.array(seen.codes[first])),
            "queueId": pa.array(seen.queue_id[first].astype(np.int32)),
        }
        return filled(row | {name: pa.array(column) for name, column in columns.items()}, SCHEMA)


class _MessageColumns:
    """Columns of some messages of one broker."""

    def __init__(self, topics: Any, columns: Sequence[Any]) -> None:
        """Take Arrow topics, and numpy arrays of the other columns of `ROW`, in order."""
        queue_id, flags, offsets, places, born, stored, sizes, sound = columns
        self._topics = topics.dictionary_encode()
        self.names = self._topics.dictionary.to_pylist()
        self.codes = self._topics.indices.to_numpy().astype(np.int64)
        self.queue_id = queue_id
        mixed = self.codes << 32 | queue_id.astype(np.int64) & _INT
        _, self.queue = np.unique(mixed, return_inverse=True)
        self.in_queue = are_in_queue(flags)
        self.offsets, self.places = offsets.astype(np.int64), places.astype(np.int64)
        self.born = known_times(born.astype(np.int64))
        self.stored = known_times(stored.astype(np.int64))
        self.sizes, self.sound = sizes, sound

    @property
    def ordinary(self) -> Any:
        """Return for each message whether its topic is one that producers send to."""
        return are_ordinary(self._topics)

    @property
    def seeds(self) -> Any:
        """Return for each message a number that stands for its topic."""
        digests = b"".join(blake2b(name.encode(), digest_size=8).digest() for name in self.names)
        return np.frombuffer(digests, np.uint64)[self.codes]


def _of_records(records: Records) -> _MessageColumns:
    columns = [
        records.queue_id,
        records.stored_sys_flag,
        records.queue_offset,
        records.physical_offset,
        records.born_timestamp,
        records.store_timestamp,
        records.sizes,
        records.crc_ok(),
    ]
    return _MessageColumns(records.topics(), columns)


def _starts(ordered: Any) -> Any:
    """Return where in a sorted array each group of equal values starts."""
    return np.append(0, np.flatnonzero(ordered[1:] != ordered[:-1]) + 1)


def known_times(ms: Any) -> Any:
    """Return times limited to the range from 1970 to `LATEST_MS`."""
    return np.clip(ms, 0, LATEST_MS)


def windows_of(ms: Any, width: int) -> Any:
    """Return where the window of each time begins."""
    known = known_times(ms)
    return known - np.fmod(known, width)


def latency_floors(ms: Any) -> Any:
    """Return the lower limit of each latency's class, at most 6 % less; -1: clocks disagree."""
    steps = np.full(len(ms), WIDEST, np.int64)
    for below, step in reversed(STEPS):
        steps[ms < below] = step
    return np.where(ms < 0, -1, ms - np.fmod(ms, steps))
