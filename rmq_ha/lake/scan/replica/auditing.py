"""
Compares a store with itself: every record of a stretch, its body's CRC, its queue and its keys.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from rmq_ha.lake.scan.log.records import Records
from rmq_ha.lake.scan.replica.codes import finding
from rmq_ha.lake.scan.replica.facts import Facts
from rmq_ha.lake.scan.replica.indexes import Counts, Index, check_index
from rmq_ha.lake.scan.replica.logs import Log
from rmq_ha.lake.scan.replica.queues import QueueCheck, check_queue
from rmq_ha.lake.scan.store.directory import StoreDirectory
from rmq_ha.lake.scan.store.queues import Queue
from rmq_ha.lake.scan.store.scanning import Gap
from rmq_ha.ops.offsets.findings import Finding

MOST = 64
CRC, QUEUES, INDEX = "crc", "queues", "index"
CHECKS = (CRC, QUEUES, INDEX)


class Side:
    """
    One store of the pair, in one task.

    :param name: name of the store in findings.
    :param dispatched: a physical offset; the queues of the store were built at least up to it.
    """

    def __init__(self, name: str, store: StoreDirectory, log: Log, dispatched: int) -> None:
        self.name = name
        self.store = store
        self.log = log
        self.dispatched = dispatched
        self._queues: dict[tuple[str, int], Queue] = {}
        self._index: Index | None = None

    def __reduce__(self) -> tuple[type["Side"], tuple[str, StoreDirectory, Log, int]]:
        return Side, (self.name, self.store, self.log, self.dispatched)

    def queue(self, topic: str, queue_id: int) -> Queue:
        """Return a queue, which is kept for the next stretch."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            queue = self._queues[topic, queue_id] = self.store.queue(topic, queue_id)
        return queue

    @property
    def index(self) -> Index:
        if self._index is None:
            self._index = Index(self.store.index_parts()[0])
        return self._index


class AuditResult(NamedTuple):
    """
    The results for some records.

    :ivar size: bytes of these records, or of a gap in the log.
    :ivar checked: results for queues, each with the number of its side.
    :ivar counts: numbers of keys in the index, each with the number of its side.
    """

    records: int
    size: int
    findings: list[Finding]
    checked: list[tuple[int, QueueCheck]]
    counts: list[tuple[int, Counts]]


def audit(
    sides: Sequence[Side], low: int, high: int, checks: frozenset[str]
) -> Iterator[AuditResult]:
    """
    Check the records that start in `[low, high)`.

    :param sides: one or more stores whose logs are equal there; the first one's log is read.
    :param checks: some of `CHECKS`.
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
    facts = Facts(piece)
    findings = list(bodies(piece, facts, names)) if CRC in checks else []
    checked: list[tuple[int, QueueCheck]] = []
    if QUEUES in checks:
        for number, side in enumerate(sides):
            for mine in facts.queues:
                queue = side.queue(mine.topic, mine.queue_id)
                of_queue = check_queue(facts, mine, queue, side.dispatched, side.name)
                findings += of_queue.findings
                checked.append((number, of_queue))
    counts: list[tuple[int, Counts]] = []
    if INDEX in checks:
        more, _, counts = _index(sides, facts, low, high)
        findings += more
    return AuditResult(len(piece), int(piece.sizes.sum()), findings, checked, counts)


def _index(
    sides: Sequence[Side], facts: Facts, low: int, high: int
) -> tuple[list[Finding], list[tuple[int, QueueCheck]], list[tuple[int, Counts]]]:
    findings: list[Finding] = []
    counts = []
    for number, side in enumerate(sides):
        if side.index.files:
            counted, more = check_index(facts, side.index, low, high, side.name)
            counts.append((number, counted))
            findings += more
    return findings, [], counts


def bodies(piece: Records, facts: Facts, name: str) -> Iterator[Finding]:
    """Yield a finding for each body that does not fit its CRC."""
    bad = np.flatnonzero(~piece.crc_ok())
    for row in bad[:MOST].tolist():
        record = piece.select(slice(row, row + 1))
        yield finding(
            "BODY_CRC",
            broker=name,
            topic=facts.topics[row].as_py(),
            queue_id=int(record.queue_id[0]),
            queue_offset=int(facts.queue_offsets[row]),
            physical_offset=int(facts.offsets[row]),
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
