"""
Compares a store with itself: every record of a stretch, its body's CRC, its queue and its keys.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from rmq_ha.base.errors import CannotDecide
from rmq_ha.base.model.topics import TIMER_TOPIC
from rmq_ha.base.store_format.index import MAX_TIME_DIFFERENCE
from rmq_ha.lake.scan.log.records import Records
from rmq_ha.lake.scan.replica.facts import NO_LEVEL, Facts, QueueRows
from rmq_ha.lake.scan.replica.logs import Log
from rmq_ha.lake.scan.store.directory import StoreDirectory
from rmq_ha.lake.scan.store.parts import ITEMS, UNITS, Queue
from rmq_ha.lake.scan.store.scanning import Gap
from rmq_ha.ops.checks.codes import finding
from rmq_ha.ops.checks.index_items import ORIGIN_MS, Counts, Index, check_items
from rmq_ha.ops.checks.store_rules import queue_beginnings
from rmq_ha.ops.checks.sums import DelaySum
from rmq_ha.ops.checks.units import UnitCheck
from rmq_ha.ops.offsets.findings import Finding

MOST = 64
"""How many bodies of one piece get a finding."""
CRC, QUEUES, INDEX = "crc", "queues", "index"
CHECKS = (CRC, QUEUES, INDEX)


class Side:
    """
    One store of the pair, in one task.

    :param dispatched: a physical offset; the queues of the store were built at least up to it.
    """

    def __init__(self, name: str, store: StoreDirectory, log: Log, dispatched: int) -> None:
        self.name = name
        self.store = store
        self.log = log
        self.dispatched = dispatched
        self._queues: dict[tuple[str, int], Queue] = {}
        self._index: Index | None = None
        self._beginnings: Mapping[tuple[str, int], int] | None = None

    def __reduce__(self) -> tuple[type["Side"], tuple[str, StoreDirectory, Log, int]]:
        return Side, (self.name, self.store, self.log, self.dispatched)

    def queue(self, topic: str, queue_id: int) -> Queue:
        """Return a queue of the store. It is kept, because the next stretch asks for it again."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            queue = self._queues[topic, queue_id] = self.store.queue(topic, queue_id)
        return queue

    @property
    def index(self) -> Index:
        if self._index is None:
            self._index = Index(self.store.index_parts()[0])
        return self._index

    def beginning_of(self, topic: str, queue_id: int) -> int:
        """Return the physical offset where a queue's present life begins; 0: not known."""
        if self._beginnings is None:
            try:
                self._beginnings = queue_beginnings(self.store)
            except CannotDecide:
                self._beginnings = {}
        return self._beginnings.get((topic, queue_id), 0)


class QueueResult(NamedTuple):
    """The results for the records of one queue, counted as by `UnitCheck.counts`."""

    side: int
    topic: str
    queue_id: int
    counts: Sequence[int]
    delays: Sequence[DelaySum]


class AuditResult(NamedTuple):
    """
    The results for some records.

    :ivar size: bytes of these records, or of a gap in the log.
    :ivar counts: numbers of keys in the index, each with the number of its side.
    """

    records: int
    size: int
    findings: list[Finding]
    checked: list[QueueResult]
    counts: list[tuple[int, Counts]]


def audit(
    sides: Sequence[Side], low: int, high: int, checks: frozenset[str]
) -> Iterator[AuditResult]:
    """
    Check the records that start in `[low, high)`.

    :param sides: one or more stores whose logs are equal there; the first one's log is read.
    :raises CannotDecide: a file vanished, or cannot be read.
    """
    names = sides[0].name if len(sides) == 1 else "both"
    at = low
    for piece in sides[0].log.pieces(low, high):
        if isinstance(piece, Gap):
            yield AuditResult(0, piece.end - piece.start, [gap_finding(piece, names)], [], [])
            at = piece.end
            continue
        if not len(piece):
            continue
        end = int(piece.positions[-1] + piece.sizes[-1]) + piece.base
        yield _audit(sides, piece, at, end, checks, names)
        at = end
    if at < high and INDEX in checks:
        nothing = Facts(Records(b"", 0, np.zeros(0, np.int64)))
        yield AuditResult(0, 0, *_index(sides, nothing, at, high))


def _audit(
    sides: Sequence[Side], piece: Records, low: int, high: int, checks: frozenset[str], names: str
) -> AuditResult:
    """Check the records of one piece, and the index for the log from `low` to `high`."""
    facts = Facts(piece)
    findings = list(bodies(piece, names)) if CRC in checks else []
    checked: list[QueueResult] = []
    if QUEUES in checks:
        for number, side in enumerate(sides):
            for mine in facts.queues:
                queue = side.queue(mine.topic, mine.queue_id)
                check = UnitCheck(side.store, queue, side.dispatched, side.name)
                look_up(facts, mine, check, side.beginning_of(mine.topic, mine.queue_id))
                findings += check.findings
                checked.append(
                    QueueResult(number, mine.topic, mine.queue_id, check.counts, check.delays)
                )
    counts: list[tuple[int, Counts]] = []
    if INDEX in checks:
        more, _, counts = _index(sides, facts, low, high)
        findings += more
    return AuditResult(len(piece), int(piece.sizes.sum()), findings, checked, counts)


def _index(
    sides: Sequence[Side], facts: Facts, low: int, high: int
) -> tuple[list[Finding], list[QueueResult], list[tuple[int, Counts]]]:
    """
    Compare the items of each side's index with those that the records require.

    :returns: the last three fields of an `AuditResult`; the one for queues is empty.
    """
    findings: list[Finding] = []
    counts = []
    items = required_items(facts) if any(side.index.files for side in sides) else b""
    for number, side in enumerate(sides):
        if side.index.files:
            counted, more = check_items(side.store, side.index, items, low, high, side.name)
            counts.append((number, counted))
            findings += more
    return findings, [], counts


def look_up(facts: Facts, mine: QueueRows, check: UnitCheck, beginning: int) -> None:
    """
    Look in a queue for the entries that records require; `check` collects the faults.

    :param beginning: physical offset; records before it belong to a topic that was deleted.
    """
    rows = mine.rows[facts.offsets[mine.rows] >= beginning]
    units = np.zeros(len(rows), UNITS)
    units["offset"], units["size"] = facts.offsets[rows], facts.records.sizes[rows]
    units["tagsCode"] = facts.tag_codes[rows]
    numbers, levels = facts.queue_offsets[rows], facts.levels[rows]
    for at in np.flatnonzero(levels > NO_LEVEL).tolist():
        unit = int(numbers[at]), int(units["offset"][at]), int(units["size"][at]), 0
        check.look_delayed(unit, int(levels[at]), int(facts.store_timestamps[rows[at]]))
    is_plain = levels == NO_LEVEL
    if mine.topic == TIMER_TOPIC:
        times = facts.timer_codes[rows]
        for at in np.flatnonzero(times >= 0).tolist():
            place, size, tags = units[at].item()
            check.look_one((int(numbers[at]), place, size, int(times[at])), tags)
        is_plain &= times < 0
    units, numbers = units[is_plain], numbers[is_plain]
    cuts = np.flatnonzero(np.diff(numbers) != 1) + 1
    for start, stop in pairwise((0, *cuts.tolist(), len(numbers))):
        if start < stop:
            check.look(int(numbers[start]), units[start:stop].tobytes())


def required_items(facts: Facts) -> bytes:
    """Return the index items that records require, as `check_items` takes them."""
    rows, hashes = facts.keys
    order = np.argsort(rows, kind="stable")
    items = np.zeros(len(rows), ITEMS)
    items["hash"], items["phyOffset"] = hashes[order], facts.offsets[rows][order]
    seconds = (facts.store_timestamps[rows][order] - ORIGIN_MS) // 1000
    items["timeDiff"] = np.clip(seconds, 0, MAX_TIME_DIFFERENCE)
    return items.tobytes()


def bodies(piece: Records, name: str) -> Iterator[Finding]:
    """Yield a finding for each body that does not fit its CRC, for the first `MOST` of a piece."""
    bad = np.flatnonzero(~piece.crc_ok())
    for row in bad[:MOST].tolist():
        record = piece.select(slice(row, row + 1))
        yield finding(
            "BODY_CRC",
            broker=name,
            topic=record.topics()[0].as_py(),
            queue_id=int(record.queue_id[0]),
            queue_offset=int(record.queue_offset[0]),
            physical_offset=int(record.positions[0]) + record.base,
            msg_id=record.msg_id[0].as_py(),
            expected=f"bodyCRC {record.body_crc[0]}",
            actual="another one",
        )


def gap_finding(gap: Gap, name: str) -> Finding:
    """Return the finding for bytes that are no record."""
    return finding(
        "RECORD_UNREADABLE",
        f"{gap.end - gap.start} bytes: {gap.reason}.",
        broker=name,
        physical_offset=gap.start,
        expected="a record",
        actual=gap.reason,
    )
