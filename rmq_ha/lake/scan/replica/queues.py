"""
Compares queue entries with the records that they point to.

Every record says in which queue it is and where there, so its entry is looked up and compared. If
every record of a queue has its entry, and there are no more entries than records, no entry is
wrong. A queue is read entry by entry only if the numbers differ.

Spec: store.md, sections 3.1 to 3.3, 3.6 and 6.2.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from rmq_ha.base.model.topics import TIMER_TOPIC
from rmq_ha.base.store_format.consumequeue import FILLER_SIZE, UNIT_SIZE
from rmq_ha.lake.scan.log.pieces import text_values
from rmq_ha.lake.scan.log.records import Records
from rmq_ha.lake.scan.log.shape import Flags, Ints
from rmq_ha.lake.scan.replica.codes import finding
from rmq_ha.lake.scan.replica.facts import NO_LEVEL, Facts, QueueRows
from rmq_ha.lake.scan.store.directory import StoreDirectory
from rmq_ha.lake.scan.store.queues import NATIVE_UNITS, Queue
from rmq_ha.ops.offsets.findings import Finding

MOST_RUNS = 10
"""How many findings of one kind are reported for one queue in one stretch of the log."""
_CHUNK = 1 << 16
_SPARSE = 8
_EXTENSION = -2147483649
_PICKED = 1000
_BEYOND = 1 << 62
_SEVERAL = b"INNER_MULTI_DISPATCH"
_ELSEWHERE = -1


class Tally(NamedTuple):
    """
    The records of one queue in one stretch of the log, counted by the state of their entries.

    :ivar wrong: the entry points elsewhere.
    :ivar missing: no entry exists, although the queues were built beyond the record.
    :ivar pending: no entry exists, because the queues were not built that far.
    :ivar old: the record is older than the queue's first entry.
    """

    topic: str
    queue_id: int
    matched: int
    wrong: int
    missing: int
    pending: int
    old: int


class Delay(NamedTuple):
    """Delayed messages of one level with the same delay in ms, and the first and last of them."""

    level: int
    delay: int
    messages: int
    first: int
    last: int
    queue_id: int
    queue_offset: int


class QueueCheck(NamedTuple):
    tally: Tally
    findings: list[Finding]
    delays: list[Delay]


def bounds(queue: Queue) -> tuple[int, int]:
    """Return the first offset of the queue's first file, and the one after its last file."""
    if not queue.row:
        return 0, 0
    last = queue.row[-1]
    return queue.row[0].base // UNIT_SIZE, (last.base + last.size) // UNIT_SIZE


def first_entry(queue: Queue) -> tuple[int, int]:
    """
    Return queue offset and physical offset of the queue's first message; without one, offsets
    beyond all others.
    """
    low, high = bounds(queue)
    for start in range(low, high, _CHUNK):
        units = queue.units(start, min(start + _CHUNK, high))
        real = (units["size"] > 0) & (units["size"] != FILLER_SIZE)
        if real.any():
            at = int(real.argmax())
            return start + at, int(units["offset"][at])
    return high, _BEYOND


def check_queue(
    facts: Facts, mine: QueueRows, queue: Queue, dispatched: int, side: str
) -> QueueCheck:
    """
    Check the entries of the records of one queue in a stretch of the log.

    :param dispatched: the queues were built at least up to this physical offset.
    :param side: name of the store.
    """
    rows = mine.rows
    offsets, queue_offsets = facts.offsets[rows], facts.queue_offsets[rows]
    units, inside = _units_at(queue, queue_offsets)
    written = inside & (units["size"] > 0) & (units["size"] != FILLER_SIZE)
    home = written & (units["offset"] == offsets)
    wrong, absent = written & ~home, ~written
    old = np.zeros(len(rows), np.bool_)
    if wrong.any() or absent.any():
        first, begin = first_entry(queue)
        # An entry that was erased at the queue's start did exist; one that the queue never had left
        # no trace.
        wiped = inside & (queue_offsets < first) & (units["size"] == 0) & (begin < _BEYOND)
        old = (offsets < begin) & ~wiped
        wrong, absent = wrong & ~old, absent & ~old
    pending = absent & (offsets >= dispatched)
    missing = absent & ~pending
    sizes = home & (units["size"] != facts.sizes[rows])
    codes = units["tagsCode"]
    if (codes <= _EXTENSION).any():
        codes = queue.tags_codes(units)
    levels = facts.levels[rows]
    plain = home & (levels == NO_LEVEL) & (codes > _EXTENSION)
    tags = plain & (codes != facts.tag_codes[rows])
    expected = facts.tag_codes[rows]
    if mine.topic == TIMER_TOPIC:
        times = facts.timer_codes[rows]
        tags &= codes != times
        expected = np.where(times >= 0, times, expected)
    view = _View(facts, mine, units, side)
    findings = [
        *view.runs("CQ_OFFSET", wrong, "offset", offsets),
        *view.runs("CQ_MISSING", missing, None, offsets),
        *view.runs("CQ_SIZE", sizes, "size", facts.sizes[rows]),
        *view.runs("CQ_TAGS", tags, "tagsCode", expected),
    ]
    delayed = np.flatnonzero(home & (levels > NO_LEVEL))
    delays = _delays(
        levels, codes - facts.store_timestamps[rows], delayed, offsets, queue_offsets, mine
    )
    tally = Tally(
        mine.topic,
        mine.queue_id,
        int(home.sum()),
        int(wrong.sum()),
        int(missing.sum()),
        int(pending.sum()),
        int(old.sum()),
    )
    return QueueCheck(tally, findings, delays)


def _units_at(queue: Queue, offsets: Ints) -> tuple[Any, Flags]:
    """Return the units at these offsets, and which of them lie in the queue's files."""
    units = np.zeros(len(offsets), NATIVE_UNITS)
    low, high = bounds(queue)
    inside: Flags = (offsets >= low) & (offsets < high)
    rows = np.flatnonzero(inside)
    if len(rows):
        first, last = int(offsets[rows].min()), int(offsets[rows].max())
        if last - first < _SPARSE * len(rows) + _CHUNK:
            units[rows] = queue.units(first, last + 1)[offsets[rows] - first]
        else:  # records with places far apart, as damaged ones may have
            for row in rows.tolist():
                units[row] = queue.units(int(offsets[row]), int(offsets[row]) + 1)[0]
    return units, inside


class _View:
    """Makes findings of flags, one for each run of adjacent records."""

    def __init__(self, facts: Facts, mine: QueueRows, units: Any, side: str) -> None:
        self._facts = facts
        self._mine = mine
        self._units = units
        self._side = side

    def runs(self, code: str, bad: Flags, field: str | None, expected: Ints) -> Iterator[Finding]:
        """
        Yield a finding for each run of wrong entries.

        :param field: the field of the entry that is wrong; None: the entry is missing.
        :param expected: the right value; for a missing entry the offset of its record.
        """
        for start, end in _runs(bad)[:MOST_RUNS]:
            row = int(self._mine.rows[start])
            record = self._facts.records.select(slice(row, row + 1))
            name = field or "offset"
            more = (
                f", as are the {end - start - 1} behind it in the queue" if end - start > 1 else ""
            )
            yield finding(
                code,
                f"Entry {self._facts.queue_offsets[row]} is wrong{more}.",
                broker=self._side,
                topic=self._mine.topic,
                queue_id=self._mine.queue_id,
                queue_offset=int(self._facts.queue_offsets[row]),
                physical_offset=int(self._facts.offsets[row]),
                msg_id=record.msg_id[0].as_py(),
                expected=f"{name} {expected[start]}",
                actual=f"{name} {self._units[name][start]}" if field else "no entry",
            )


def _runs(flags: Flags) -> list[tuple[int, int]]:
    """Return the runs of flags that are set: first index, and the index after the last."""
    if not flags.any():
        return []
    edges = np.flatnonzero(np.diff(np.concatenate(([0], flags.astype(np.int8), [0]))))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _delays(
    levels: Ints, delays: Ints, delayed: Ints, offsets: Ints, queue_offsets: Ints, mine: QueueRows
) -> list[Delay]:
    by_delay: list[Delay] = []
    if not len(delayed):
        return by_delay
    pairs = np.stack((levels[delayed], delays[delayed]), axis=1)
    for level, delay in np.unique(pairs, axis=0).tolist():
        rows = delayed[(pairs == (level, delay)).all(axis=1)]
        first, last = int(rows[0]), int(rows[-1])
        by_delay.append(
            Delay(
                level,
                delay,
                len(rows),
                int(offsets[first]),
                int(offsets[last]),
                mine.queue_id,
                int(queue_offsets[first]),
            )
        )
    return by_delay


class Scan(NamedTuple):
    """
    The entries of a queue, read by itself.

    :ivar entries: how many entries point into `[low, high)` of the log.
    :ivar end: physical offset of the end of the last record that the queue has an entry for.
    :ivar last: queue offset of that record.
    :ivar first: queue offset of the first entry that points into the part; -1: there are none.
    """

    topic: str
    queue_id: int
    entries: int
    end: int
    last: int
    first: int
    findings: list[Finding]


def check_files(queue: Queue, usual: int, side: str) -> Iterator[Finding]:
    """
    Yield findings for files that are missing, or shorter than those of the other queues.

    :param usual: size of such a file in bytes.
    """
    odd = [
        f"{file.path} has {file.size} bytes, those of other queues {usual}"
        for file in queue.row[-1:]
        if file.size != usual
    ]
    for fault in (*queue.faults, *odd):
        yield finding(
            "CQ_FILE", f"{fault}.", broker=side, topic=queue.topic, queue_id=queue.queue_id
        )


def scan_queue(queue: Queue, low: int, high: int, side: str) -> Scan:
    """
    Read all entries of a queue.

    :param low: where the part of the log begins; entries that point elsewhere are not counted.
    :param high: where that part ends.
    """
    start, stop = bounds(queue)
    entries, end, last, previous, first = 0, -1, -1, -1, -1
    findings: list[Finding] = []
    for at in range(start, stop, _CHUNK):
        units = queue.units(at, min(at + _CHUNK, stop))
        rows = np.flatnonzero((units["size"] > 0) & (units["size"] != FILLER_SIZE))
        if not len(rows):
            continue
        offsets, sizes = units["offset"][rows], units["size"][rows]
        mine = (offsets >= low) & (offsets + sizes <= high)
        entries += int(mine.sum())
        if first < 0 and mine.any():
            first = at + int(rows[int(mine.argmax())])
        ends = offsets + sizes
        if int(ends.max()) > end:
            end, last = int(ends.max()), at + int(rows[int(ends.argmax())])
        before = np.concatenate(([previous], offsets[:-1]))
        for row in np.flatnonzero(offsets <= before)[: MOST_RUNS - len(findings)].tolist():
            findings.append(
                finding(
                    "CQ_ORDER",
                    broker=side,
                    topic=queue.topic,
                    queue_id=queue.queue_id,
                    queue_offset=at + int(rows[row]),
                    physical_offset=int(offsets[row]),
                    expected=f"an offset above {before[row]}",
                    actual=f"offset {offsets[row]}",
                )
            )
        previous = int(offsets[-1])
    return Scan(queue.topic, queue.queue_id, entries, end, last, first, findings)


def dangling(store: StoreDirectory, queue: Queue, stop: int, side: str) -> Iterator[Finding]:
    """
    Yield findings for entries that do not point to a record of this queue.

    :param stop: end of the log; entries that point beyond it are ignored.
    """
    told = 0
    before = -2
    start, end = bounds(queue)
    for at in range(start, end, _PICKED):
        units = queue.units(at, min(at + _PICKED, end))
        rows = np.flatnonzero((units["size"] > 0) & (units["size"] != FILLER_SIZE))
        rows = rows[units["offset"][rows] + units["size"][rows] <= stop]
        for hole in store.holes:  # a hole is reported as a whole
            ends = units["offset"][rows] + units["size"][rows]
            rows = rows[(ends <= hole.start) | (units["offset"][rows] >= hole.end)]
        if not len(rows):
            continue
        homes = _homes(store.read_records(units["offset"][rows], units["size"][rows]), queue)
        for row in rows.tolist():
            offset = int(units["offset"][row])
            if homes.get(offset) in (at + row, _ELSEWHERE):
                continue
            follows, before = before == at + row - 1, at + row
            if follows:
                continue
            told += 1
            if told > MOST_RUNS:
                return
            yield finding(
                "CQ_DANGLING",
                "Perhaps also some behind it.",
                broker=side,
                topic=queue.topic,
                queue_id=queue.queue_id,
                queue_offset=at + row,
                physical_offset=offset,
                expected=f"message {at + row} of the queue",
                actual=f"message {homes[offset]} of it" if offset in homes else "no message of it",
            )


def _homes(records: Records, queue: Queue) -> dict[int, int]:
    """
    Return the queue offsets of the queue's own records by place; `_ELSEWHERE` for messages sent to
    several queues.
    """
    homes: dict[int, int] = {}
    several = text_values(records.pieces, _SEVERAL)
    for place, topic, queue_id, offset, names in zip(
        records.physical_offset.tolist(),
        records.topics().to_pylist(),
        records.queue_id.tolist(),
        records.queue_offset.tolist(),
        several.to_pylist(),
        strict=True,
    ):
        if (topic, queue_id) == (queue.topic, queue.queue_id):
            homes[place] = offset
        elif names is not None and queue.topic in names.split(","):
            homes[place] = _ELSEWHERE
    return homes
