"""
What Spark's tasks do, and the rows that they answer with.

A row is `(task, kind, side, name, numbers, finding)`: findings have the last one filled, all
others numbers and perhaps a topic. So one table carries everything, and Spark adds it up.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from rmq_ha.errors import CannotDecide
from rmq_ha.offline.log_files import Hole
from rmq_ha.offsets.findings import Finding
from rmq_ha.spark.replica.auditing import Side, audit
from rmq_ha.spark.replica.comparing import Sides, compare
from rmq_ha.spark.replica.indexes import check_structure
from rmq_ha.spark.replica.queues import check_files, dangling, scan_queue

FINDING, TALLY, DELAY, SHIFT, COUNT, KEYS, QUEUE, FAILED = (
    "finding",
    "tally",
    "delay",
    "shift",
    "count",
    "keys",
    "queue",
    "failed",
)
MASTER, SLAVE = 0, 1
BOTH = -1
COMMON = -2
"""Instead of a side: both, and of records those that were compared."""

Row = tuple[int, str, int, str, list[int], Finding | None]


class Stretch(NamedTuple):
    """
    A part of the log to look at.

    :ivar number: of the task.
    :ivar sides: those that have it.
    :ivar compares: its bytes are compared.
    """

    number: int
    low: int
    high: int
    sides: tuple[int, ...]
    compares: bool


class Work(NamedTuple):
    """
    What all tasks share.

    :ivar checks: some of `auditing.CHECKS`.
    :ivar window: bytes that are read at once.
    """

    sides: tuple[Side, ...]
    checks: frozenset[str]
    window: int

    @property
    def pair(self) -> Sides:
        """The two logs."""
        master, slave = self.sides[MASTER], self.sides[SLAVE]
        return Sides(master.log, slave.log, master.name, slave.name, self.window)


def run_stretch(work: Work, stretch: Stretch) -> Iterator[Row]:
    """Compare and audit one stretch; a store that vanishes is a row, no error."""
    try:
        yield from _stretch(work, stretch)
    except CannotDecide as error:
        yield stretch.number, FAILED, BOTH, str(error), [], None


def _stretch(work: Work, stretch: Stretch) -> Iterator[Row]:
    number, low, high, sides, compares = stretch
    alike = False
    if compares:
        result = compare(work.pair, low, high)
        alike = not result.findings and result.shift < 0 and result.end >= high
        if result.shift >= 0:
            yield number, SHIFT, BOTH, "", [result.shift, high], None
        for one in result.findings:
            yield number, FINDING, BOTH, "", [], one
        compared = [high - low, result.blank, int(alike)]
        yield number, COUNT, BOTH, "", compared, None
    if not work.checks:
        return
    groups = [sides] if alike else [(side,) for side in sides]
    for group in groups:
        yield from _audited(work, stretch, group)


def _audited(work: Work, stretch: Stretch, group: Sequence[int]) -> Iterator[Row]:
    number = stretch.number
    records = size = 0
    tallies: Counter[tuple[int, str, int, int]] = Counter()
    keys: Counter[tuple[int, int]] = Counter()
    sides = [work.sides[side] for side in group]
    for seen in audit(sides, stretch.low, stretch.high, work.checks):
        records += seen.records
        size += seen.size
        for one in seen.findings:
            yield number, FINDING, BOTH, "", [], one
        for at, checked in seen.checked:
            tally = checked.tally
            for column, value in enumerate(tally[2:]):
                tallies[group[at], tally.topic, tally.queue_id, column] += value
            for delay in checked.delays:
                yield number, DELAY, group[at], tally.topic, list(delay), None
        for at, counts in seen.counts:
            for column, value in enumerate(counts):
                keys[group[at], column] += value
    if stretch.compares and MASTER in group:
        yield number, COUNT, COMMON, "", [records, size], None
    for side in group:
        yield number, COUNT, side, "", [records, size], None
        found = [keys[side, column] for column in range(3)]
        if any(found):
            yield number, KEYS, side, "", found, None
    for side, topic, queue_id in {key[:3] for key in tallies}:
        found = [queue_id, *(tallies[side, topic, queue_id, column] for column in range(5))]
        yield number, TALLY, side, topic, found, None


class Doubt(NamedTuple):
    """A queue that has more entries than records point to."""

    number: int
    side: int
    topic: str
    queue_id: int


def run_doubt(work: Work, doubt: Doubt) -> Iterator[Row]:
    """Find the entries that no record stands behind."""
    side = work.sides[doubt.side]
    try:
        queue = side.queue(doubt.topic, doubt.queue_id)
        for one in dangling(side.store, queue, side.log.stop, side.name):
            yield doubt.number, FINDING, doubt.side, "", [], one
    except CannotDecide as error:
        yield doubt.number, FAILED, doubt.side, str(error), [], None


class Survey(NamedTuple):
    """
    What to read of one side before its log: some queues, or one index file.

    :ivar low: of the log, as `high`.
    """

    number: int
    side: int
    queues: Sequence[tuple[str, int]]
    index_file: int
    low: int
    high: int


def run_survey(work: Work, survey: Survey) -> Iterator[Row]:
    """Read queues entry by entry, or an index file by itself."""
    side = work.sides[survey.side]
    try:
        queues = [side.queue(*name) for name in survey.queues]
        sizes = Counter(file.size for queue in queues for file in queue.row)
        usual = sizes.most_common(1)[0][0] if sizes else 0
        for topic, queue_id in survey.queues:
            queue = side.queue(topic, queue_id)
            for one in check_files(queue, usual, side.name):
                yield survey.number, FINDING, survey.side, "", [], one
            found = scan_queue(queue, survey.low, survey.high, side.name)
            numbers = [queue_id, found.entries, found.end, found.last, found.first]
            yield survey.number, QUEUE, survey.side, topic, numbers, None
            for one in found.findings:
                yield survey.number, FINDING, survey.side, "", [], one
        if survey.index_file >= 0:
            files = side.store.index_parts()[0]
            if survey.index_file < len(files):
                for one in check_structure(files[survey.index_file], side.name):
                    yield survey.number, FINDING, survey.side, "", [], one
    except CannotDecide as error:
        yield survey.number, FAILED, survey.side, str(error), [], None


def plan(
    ranges: Sequence[tuple[int, int]],
    common: tuple[int, int],
    step: int,
    bases: Sequence[int],
    holes: Sequence[Sequence[Hole]] = ((), ()),
) -> list[Stretch]:
    """
    The stretches of both logs.

    :param ranges: of each side's log: where it begins and ends.
    :param common: what both have, and is compared.
    :param step: most bytes of one stretch.
    :param bases: where files begin; no stretch reaches over such a place.
    :param holes: of each side: bytes that it should have, and has not.
    """
    edges = {edge for mine in holes for hole in mine for edge in hole[:2]}
    cuts = sorted({*bases, *common, *edges, *(end for pair in ranges for end in pair)})
    found: list[Stretch] = []
    for low, end in pairwise(cuts):
        sides = tuple(
            side
            for side, (begin, stop) in enumerate(ranges)
            if begin <= low
            and end <= stop
            and not any(hole.start <= low and end <= hole.end for hole in holes[side])
        )
        compares = common[0] <= low and end <= common[1] and len(sides) > 1
        if not sides:
            continue
        for at in range(low, end, step):
            high = min(at + step, end)
            if compares or len(sides) == 1:
                found.append(Stretch(len(found), at, high, sides, compares))
            else:  # both have it, but it is not to be compared (--from)
                found += [
                    Stretch(len(found) + extra, at, high, (side,), False)
                    for extra, side in enumerate(sides)
                ]
    return found
