"""
What an audit keeps of records when nobody's ledger asks for each of them: counts, runs, and a
number of 8 bytes for each id.

So a few rows a window reach Spark in place of thousands.

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
    TRANS_CHECK_MAX_TIME_TOPIC,
)
from rmq_ha.lake.scan.arrays import filled, text_hashes
from rmq_ha.lake.scan.log.records import Records

INTERNAL = (
    SCHEDULE_TOPIC,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    OFFSET_MOVED_EVENT,
)
"""Where brokers keep messages on their way: the same message may lie here several times."""

STEPS = ((64, 1), (512, 4), (4_096, 32), (32_768, 256), (262_144, 2_048), (2_097_152, 16_384))
WIDEST = 131_072
"""Classes of latency: below so many ms, so wide; and how wide above."""


def is_ordinary(topic: str) -> bool:
    """A topic that producers send to, in which a message belongs once."""
    return topic not in INTERNAL and not topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def are_ordinary(topics: Any) -> Any:
    """`is_ordinary` of each text of an Arrow array."""
    encoded = topics.dictionary_encode()
    known = np.array([is_ordinary(name) for name in encoded.dictionary.to_pylist()], np.bool_)
    return known[np.asarray(encoded.indices)]


def are_in_queue(sys_flags: Any) -> Any:
    """
    Which records have a place in their queue, by their flags; those of the types prepared and
    rollback have none, and 0 as their offset.
    """
    return sys_flags & TRANSACTION_PREPARED == 0


SUMS, RUN, IDS, PACKED = range(4)
"""Kinds of rows: counts of a queue, a window and a class of latency; records whose offsets follow
each other; ids; and the records themselves as one value, where somebody asks for each."""

ROW = (
    "topic", "queueId", "sysFlag", "queueOffset", "commitLogOffset", "bornMs", "storedMs",
    "storeSize", "crcOk",
)  # fmt: skip
"""What `Reduction.sums` looks at."""
_LONGS = (
    "window", "latency", "n", "bytes", "bad", "leastOffset", "mostOffset", "leastPlace",
    "mostPlace", "leastMs", "mostMs",
)  # fmt: skip
SCHEMA = pa.schema(
    [
        ("kind", pa.int32()),
        ("brokerName", pa.string()),
        ("topic", pa.string()),
        ("queueId", pa.int32()),
        ("inQueue", pa.bool_()),
        ("ordinary", pa.bool_()),
        *((name, pa.int64()) for name in _LONGS),
        ("hashes", pa.list_(pa.int64())),
        ("places", pa.list_(pa.int64())),
        ("data", pa.binary()),
    ]
)
"""A run has its first offset, place and time as the least ones, and its last offset as the most."""

LATEST_MS = 253_402_300_799_999
"""The end of the year 9999. A time behind it, or before 1970, is none that a clock has shown: the
nearer of the two stands for it, or Python's calendar would fail, and with it the whole job."""
_INT = 0xFFFFFFFF


def id_column_of(key: str) -> str:
    """
    The column that identifies a message. Without UNIQ_KEY its `msgId` is its address: unique, and
    what its producer was told.

    :param key: `uniqKey` or `keys`.
    """
    return "keys" if key == "keys" else "msgId"


class Reduction(NamedTuple):
    """
    How records are reduced.

    :ivar label: value of `brokerName`.
    :ivar key: `uniqKey` or `keys`: what identifies a message.
    :ivar window_ms: width of the windows of time.
    :ivar from_ms: only what was stored then or later; None: all. So is `to_ms`, exclusive.
    """

    label: str
    key: str
    window_ms: int
    from_ms: int | None = None
    to_ms: int | None = None

    def batches(self, records: Records) -> Iterator[Any]:
        """What is kept of some records, in the order of the log."""
        records = self.inside_time(records)
        if len(records):
            seen = _of_records(records)
            yield self._sums(seen)
            yield from self._runs(seen)
            yield from self._ids(seen, records.batch([id_column_of(self.key)]).column(0))

    def rows(self, rows: Any) -> Iterator[Any]:
        """
        The counts and runs of messages that are rows already.

        :param rows: an Arrow batch with the columns `ROW`, of one broker; not empty.
        """
        columns = [rows[name].to_numpy(zero_copy_only=False) for name in ROW[1:]]
        seen = _MessageColumns(rows["topic"], columns)
        yield self._sums(seen)
        yield from self._runs(seen)

    def inside_time(self, records: Records) -> Records:
        """Those of the time that is asked for."""
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
        born, stored = seen.born, seen.stored
        windows, window = np.unique(windows_of(born, self.window_ms), return_inverse=True)
        latencies, latency = np.unique(latency_floors(stored - born), return_inverse=True)
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
        """:param first: a record of each row, for its queue."""
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
        """
        :param topics: Arrow texts.
        :param columns: numpy's numbers: the other columns of `ROW`, in its order.
        """
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
        """Which are of topics that producers send to."""
        return are_ordinary(self._topics)

    @property
    def seeds(self) -> Any:
        """A number of each one's topic."""
        digests = b"".join(blake2b(name.encode(), digest_size=8).digest() for name in self.names)
        return np.frombuffer(digests, np.uint64)[self.codes]


def _of_records(records: Records) -> _MessageColumns:
    columns = (
        *(records.queue_id, records.stored_sys_flag, records.queue_offset),
        *(records.physical_offset, records.born_timestamp, records.store_timestamp),
        *(records.sizes, records.crc_ok()),
    )
    return _MessageColumns(records.topics(), columns)


def _starts(ordered: Any) -> Any:
    return np.append(0, np.flatnonzero(ordered[1:] != ordered[:-1]) + 1)


def known_times(ms: Any) -> Any:
    """Of any numbers those that stand for them, from 1970 to `LATEST_MS`."""
    return np.clip(ms, 0, LATEST_MS)


def windows_of(ms: Any, width: int) -> Any:
    """Where the window of each time begins."""
    known = known_times(ms)
    return known - np.fmod(known, width)


def latency_floors(ms: Any) -> Any:
    """What stands for each: exact below 64 ms, 6 % less at most above; -1: clocks disagree."""
    steps = np.full(len(ms), WIDEST, np.int64)
    for below, step in reversed(STEPS):
        steps[ms < below] = step
    return np.where(ms < 0, -1, ms - np.fmod(ms, steps))
