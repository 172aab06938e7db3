"""
The tasks of a comparison, which can run anywhere and in any order, and their results.

Each task adds to a `TaskResult`. The results of tasks that ran in different places can be added up.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

from rmq_ha.base.errors import CannotDecide
from rmq_ha.lake.scan.replica.anchors import anchors_in
from rmq_ha.lake.scan.replica.auditing import AuditResult, Side, audit
from rmq_ha.lake.scan.replica.comparing import (
    LogPart,
    ReportedDifference,
    Sides,
    align_part,
    compare,
)
from rmq_ha.ops.checks.index_items import check_structure
from rmq_ha.ops.checks.sums import DelaySum
from rmq_ha.ops.checks.units import QueueScan, dangling_units, scan_queues
from rmq_ha.ops.offline.log_files import Hole
from rmq_ha.ops.offsets.findings import Finding, Severity

MASTER, SLAVE = 0, 1
COMMON = -2
"""
The key of `TaskResult.records` for the records that were compared; the other keys are the numbers
of the sides.
"""
_MOST_DELAYS = 1000
"""How many different delays a result keeps; further ones are not counted."""


class TaskResult(msgspec.Struct):
    """
    The result of some tasks.

    :ivar compared: number of bytes that were compared.
    :ivar blank: how many of the compared bytes differ but mean nothing.
    :ivar records: number and bytes of the records of each side, and of those compared (`COMMON`).
    :ivar tallies: the numbers of `UnitCheck.counts` by side, topic and queue id.
    :ivar delays: by side, level and delay: number of messages, the first and last of them, queue
        and offset.
    :ivar keys: for each side the numbers of `index_items.Counts`.
    :ivar apart: stretches that differ: start, end, and the place from which on the logs are out of
        step; -1: they are in step.
    :ivar anchors: by side: hash of a run of records, and its place.
    :ivar ends: ends of queues by side, topic and queue id.
    """

    findings: list[Finding] = []
    failed: str = ""
    compared: int = 0
    blank: int = 0
    records: dict[int, list[int]] = {}
    tallies: dict[tuple[int, str, int], list[int]] = {}
    delays: dict[tuple[int, int, int], list[int]] = {}
    keys: dict[int, list[int]] = {}
    apart: list[tuple[int, int, int]] = []
    anchors: list[tuple[int, int, int]] = []
    changes: int = 0
    told: list[ReportedDifference] = []
    ends: dict[tuple[int, str, int], QueueScan] = {}

    @property
    def is_bad(self) -> bool:
        """Whether a finding is an ERROR, perhaps a false alarm of a store in use."""
        return any(shift >= 0 for *_, shift in self.apart) or any(
            finding.severity == Severity.ERROR for finding in self.findings
        )

    def add(self, other: "TaskResult") -> None:
        """Add another result to this one."""
        self.findings += other.findings
        self.failed = self.failed or other.failed
        self.compared += other.compared
        self.blank += other.blank
        _add(self.records, other.records.items())
        _add(self.tallies, other.tallies.items())
        _add(self.keys, other.keys.items())
        for key, row in other.delays.items():
            self._add_delay(key, row)
        self.apart += other.apart
        self.anchors += other.anchors
        self.changes += other.changes
        self.told += other.told
        self.ends |= other.ends

    def add_audited(self, seen: AuditResult, group: Sequence[int]) -> None:
        """Add the results for some records of the sides `group`."""
        self.findings += seen.findings
        for queue in seen.checked:
            key = group[queue.side], queue.topic, queue.queue_id
            _add(self.tallies, [(key, queue.counts)])
            for delay in queue.delays:
                self.add_delay(group[queue.side], delay)
        _add(self.keys, ((group[at], counts) for at, counts in seen.counts if any(counts)))

    def add_records(self, side: int, records: int, size: int) -> None:
        """:param side: a side, or `COMMON`."""
        _add(self.records, [(side, (records, size))])

    def add_delay(self, side: int, delay: DelaySum) -> None:
        self._add_delay((side, delay.level, delay.delay), [*delay[3:]])

    def _add_delay(self, key: tuple[int, int, int], row: Sequence[int]) -> None:
        """Add messages with one delay, if there are not too many different delays."""
        had = self.delays.get(key)
        if had is None:
            if len(self.delays) < _MOST_DELAYS:
                self.delays[key] = [*row]
            return
        # A row is [messages, first, last, queue id and queue offset of the first]. The numbers are
        # added, and the place is that of the earlier of the two first messages.
        first = min(had, row, key=lambda numbers: numbers[1])
        self.delays[key] = [had[0] + row[0], first[1], max(had[2], row[2]), *first[3:]]


def _add(sums: dict[Any, list[int]], rows: Iterable[tuple[Any, Sequence[int]]]) -> None:
    """Add rows of numbers, number by number, to the sums of their keys."""
    for key, row in rows:
        had = sums.get(key)
        sums[key] = [*row] if had is None else [a + b for a, b in zip(had, row, strict=True)]


class Stretch(NamedTuple):
    """
    A part of the log to be read.

    :ivar sides: the sides whose log has this part.
    :ivar compares: whether the bytes of both sides are compared.
    """

    number: int
    low: int
    high: int
    sides: tuple[int, ...]
    compares: bool


class Work(NamedTuple):
    """The values that all tasks share: `checks`, and the bytes that are read at once."""

    sides: tuple[Side, ...]
    checks: frozenset[str]
    window: int

    @property
    def pair(self) -> Sides:
        master, slave = self.sides[MASTER], self.sides[SLAVE]
        return Sides(master.log, slave.log, master.name, slave.name, self.window)


def run(work: Work, task: "Task", answer: TaskResult) -> None:
    """Run one task. If the store vanishes, the result says so, and nothing is raised."""
    try:
        _RUN[type(task)](work, task, answer)
    except CannotDecide as error:
        answer.failed = str(error)
    except OSError as error:
        answer.failed = str(vanished_error(error))


def vanished_error(error: OSError) -> CannotDecide:
    """Return the error for a file that was listed, but could not be read."""
    return CannotDecide(
        f"{error}: the file vanished while the store was read. If its broker runs, it may have"
        " deleted the file just now: compare again"
    )


def _stretch(work: Work, stretch: Stretch, answer: TaskResult) -> None:
    """
    Compare the bytes of a stretch, and check its records.

    If both sides have the same bytes, the records are decoded once for both sides.
    """
    _, low, high, sides, compares = stretch
    groups: list[tuple[int, ...]] = [(side,) for side in sides]
    if compares:
        result = compare(work.pair, low, high)
        if not result.findings and result.end == high:
            groups = [sides]
        else:
            answer.apart.append((low, high, result.shift))
        answer.findings += result.findings
        answer.compared += high - low
        answer.blank += result.blank
    if not work.checks:
        return
    for group in groups:
        records = size = 0
        for seen in audit([work.sides[side] for side in group], low, high, work.checks):
            records += seen.records
            size += seen.size
            answer.add_audited(seen, group)
        whose = [*group, COMMON] if compares and MASTER in group else group
        for side in whose:
            answer.add_records(side, records, size)


class Doubt(NamedTuple):
    """A queue with more entries than records; the task looks for entries without a record."""

    number: int
    side: int
    topic: str
    queue_id: int


def _doubt(work: Work, doubt: Doubt, answer: TaskResult) -> None:
    """Find the entries to which no record belongs."""
    side = work.sides[doubt.side]
    queue = side.queue(doubt.topic, doubt.queue_id)
    answer.findings += dangling_units(side.store, queue, side.log.stop, side.name)


class Survey(NamedTuple):
    """A part of one side to be read before its log: some queues, or one index file."""

    number: int
    side: int
    queues: Sequence[tuple[str, int]]
    index_file: int
    low: int
    high: int


def _survey(work: Work, survey: Survey, answer: TaskResult) -> None:
    side = work.sides[survey.side]
    scans = scan_queues(side.store, survey.queues, survey.low, survey.high, side.name)
    for name, scanned in scans:
        answer.ends[survey.side, *name] = scanned._replace(findings=())
        answer.findings += scanned.findings
    if survey.index_file >= 0:
        files = side.store.index_parts()[0]
        if survey.index_file < len(files):
            answer.findings += check_structure(files[survey.index_file], side.name)


class Landmarks(NamedTuple):
    """A part of a log, of which about one record in `every` bytes is picked, for both sides."""

    number: int
    side: int
    low: int
    high: int
    every: int


def _pick(work: Work, task: Landmarks, answer: TaskResult) -> None:
    log = work.sides[task.side].log
    anchors = anchors_in(log.items(task.low, log.stop), task.high, task.every)
    answer.anchors = [(task.side, *anchor) for anchor in anchors]


class ShiftedPart(NamedTuple):
    """
    A part of logs that are out of step.

    :ivar most: number of differences after which the task ends.
    :ivar tells: whether the differences are returned; otherwise they are only counted.
    """

    number: int
    part: LogPart
    most: int
    tells: bool


def _align(work: Work, task: ShiftedPart, answer: TaskResult) -> None:
    told = align_part(work.pair, task.part, task.most)
    answer.changes = len(told)
    if task.tells:
        answer.told = told


Task = Stretch | Survey | Doubt | Landmarks | ShiftedPart
_RUN: Mapping[type, Any] = {
    Stretch: _stretch,
    Survey: _survey,
    Doubt: _doubt,
    Landmarks: _pick,
    ShiftedPart: _align,
}

Answers = Mapping[int, TaskResult]
"""
Results by the number of the task. Results that are not needed task by task may be added up under
one number.
"""
Run = Callable[[str, Work, Sequence[Task], bool], Answers]
"""
A function that runs tasks somewhere. Its arguments are a label for the progress, the shared values,
the tasks, and whether the result of each task is needed by itself.
"""


def plan(
    ranges: Sequence[tuple[int, int]],
    common: tuple[int, int],
    step: int,
    bases: Sequence[int],
    holes: Sequence[Sequence[Hole]] = ((), ()),
) -> list[Stretch]:
    """
    Return the stretches of both logs.

    :param ranges: where the log of each side begins and ends.
    :param common: the part that both have, and that is compared.
    :param step: most bytes of one stretch.
    :param bases: where files begin; no stretch crosses such a place.
    :param holes: for each side the bytes that it should have, but lacks.
    """
    edges = {edge for mine in holes for hole in mine for edge in hole[:2]}
    cuts = sorted({*bases, *common, *edges, *(end for pair in ranges for end in pair)})
    stretches: list[Stretch] = []
    for low, end in pairwise(cuts):
        sides = tuple(
            side
            for side, (begin, stop) in enumerate(ranges)
            if begin <= low
            and end <= stop
            and not any(hole.start <= low and end <= hole.end for hole in holes[side])
        )
        compares = common[0] <= low and end <= common[1] and len(sides) > 1
        for at in range(low, end, step):
            high = min(at + step, end)
            if compares or len(sides) == 1:
                stretches.append(Stretch(len(stretches), at, high, sides, compares))
            else:  # both have it, but --from excludes it
                stretches += [
                    Stretch(len(stretches) + extra, at, high, (side,), False)
                    for extra, side in enumerate(sides)
                ]
    return stretches
