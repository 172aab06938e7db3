"""
What there is to do, in parts that run anywhere and in any order, and what each adds to the answer.

Tasks write into an `Answer`: numbers add up, whoever runs the tasks, and wherever.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

from rmq_ha.base.errors import CannotDecide
from rmq_ha.lake.scan.replica.anchors import anchors_in
from rmq_ha.lake.scan.replica.auditing import AuditResult, Side, audit
from rmq_ha.lake.scan.replica.comparing import Part, ReportedDifference, Sides, align_part, compare
from rmq_ha.lake.scan.replica.indexes import check_structure
from rmq_ha.lake.scan.replica.queues import Delay, check_files, dangling, scan_queue
from rmq_ha.ops.offline.log_files import Hole
from rmq_ha.ops.offsets.findings import Finding, Severity

MASTER, SLAVE = 0, 1
COMMON = -2
"""Instead of a side: of records, those that were compared."""
_MOST_DELAYS = 1000


class QueueEnd(NamedTuple):
    """What a queue of one side says by itself; see `queues.Scan`."""

    entries: int
    end: int
    last: int
    first: int


class Answer(msgspec.Struct):
    """
    What tasks found.

    :ivar findings: may hold one twice, where two stretches saw it.
    :ivar failed: why a task could not read something; empty: all could.
    :ivar compared: bytes; `blank`: of them, those that differ and mean nothing.
    :ivar records: of each side, and of those compared (`COMMON`): how many, and their bytes.
    :ivar tallies: by side, topic and queue id: as in `queues.Tally`.
    :ivar delays: by side, level and delay: messages, the first and last of them, queue and offset.
    :ivar keys: of each side, as in `indexes.Counts`.
    :ivar apart: stretches that differ, from where to where, and from where on their logs are out
        of step; -1: they are in step.
    :ivar anchors: by side: hash of a run of records, and where it is.
    :ivar changes: differences between logs that are out of step; `told`: those in words.
    :ivar ends: by side, topic and queue id.
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
    ends: dict[tuple[int, str, int], QueueEnd] = {}

    @property
    def is_bad(self) -> bool:
        """It found an error, which in a store that moves may be none."""
        return any(shift >= 0 for *_, shift in self.apart) or any(
            finding.severity == Severity.ERROR for finding in self.findings
        )

    def add(self, other: "Answer") -> None:
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
        """
        What was seen of some records.

        :param group: the sides whose records these are.
        """
        self.findings += seen.findings
        for at, checked in seen.checked:
            tally = checked.tally
            key = group[at], tally.topic, tally.queue_id
            _add(self.tallies, [(key, tally[2:])])
            for delay in checked.delays:
                self.add_delay(group[at], delay)
        _add(self.keys, ((group[at], counts) for at, counts in seen.counts if any(counts)))

    def add_records(self, side: int, records: int, size: int) -> None:
        """:param side: or `COMMON`."""
        _add(self.records, [(side, (records, size))])

    def add_delay(self, side: int, delay: Delay) -> None:
        self._add_delay((side, delay.level, delay.delay), [*delay[2:]])

    def _add_delay(self, key: tuple[int, int, int], row: Sequence[int]) -> None:
        had = self.delays.get(key)
        if had is None:
            if len(self.delays) < _MOST_DELAYS:
                self.delays[key] = [*row]
            return
        # A row is [messages, first, last, queue id and queue offset of the first]: the sums are
        # added, and the place is that of the earlier one of the two first messages.
        first = min(had, row, key=lambda numbers: numbers[1])
        self.delays[key] = [had[0] + row[0], first[1], max(had[2], row[2]), *first[3:]]


def _add(sums: dict[Any, list[int]], rows: Iterable[tuple[Any, Sequence[int]]]) -> None:
    for key, row in rows:
        had = sums.get(key)
        sums[key] = [*row] if had is None else [a + b for a, b in zip(had, row, strict=True)]


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
        master, slave = self.sides[MASTER], self.sides[SLAVE]
        return Sides(master.log, slave.log, master.name, slave.name, self.window)


def run(work: Work, task: "Task", answer: Answer) -> None:
    """One task; a store that vanishes is an answer, no error."""
    try:
        _RUN[type(task)](work, task, answer)
    except CannotDecide as error:
        answer.failed = str(error)


def _stretch(work: Work, stretch: Stretch, answer: Answer) -> None:
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
    """A queue that has more entries than records point to."""

    number: int
    side: int
    topic: str
    queue_id: int


def _doubt(work: Work, doubt: Doubt, answer: Answer) -> None:
    """Find the entries that no record stands behind."""
    side = work.sides[doubt.side]
    queue = side.queue(doubt.topic, doubt.queue_id)
    answer.findings += dangling(side.store, queue, side.log.stop, side.name)


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


def _survey(work: Work, survey: Survey, answer: Answer) -> None:
    """Read queues entry by entry, or an index file by itself."""
    side = work.sides[survey.side]
    queues = [side.queue(*name) for name in survey.queues]
    sizes = Counter(file.size for queue in queues for file in queue.row)
    usual = max(sizes, key=sizes.__getitem__, default=0)
    for topic, queue_id in survey.queues:
        queue = side.queue(topic, queue_id)
        answer.findings += check_files(queue, usual, side.name)
        scanned = scan_queue(queue, survey.low, survey.high, side.name)
        key = survey.side, topic, queue_id
        answer.ends[key] = QueueEnd(scanned.entries, scanned.end, scanned.last, scanned.first)
        answer.findings += scanned.findings
    if survey.index_file >= 0:
        files = side.store.index_parts()[0]
        if survey.index_file < len(files):
            answer.findings += check_structure(files[survey.index_file], side.name)


class Landmarks(NamedTuple):
    """
    A part of one side's log, of whose records some are picked to be found in the other one.

    :ivar every: bytes for each that is picked, about.
    """

    number: int
    side: int
    low: int
    high: int
    every: int


def _pick(work: Work, task: Landmarks, answer: Answer) -> None:
    log = work.sides[task.side].log
    anchors = anchors_in(log.items(task.low, log.stop), task.high, task.every)
    answer.anchors = [(task.side, *anchor) for anchor in anchors]


class ShiftedPart(NamedTuple):
    """
    A part of logs that are out of step.

    :ivar most: differences after which it ends.
    :ivar tells: them; else it counts them.
    """

    number: int
    part: Part
    most: int
    tells: bool


def _align(work: Work, task: ShiftedPart, answer: Answer) -> None:
    """Lay the logs beside each other there."""
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

Answers = Mapping[int, Answer]
"""By the number of the task; tasks that nobody will ask for again may be added up in one."""
Run = Callable[[str, Work, Sequence[Task], bool], Answers]
"""
Runs tasks somewhere: a label for who looks on, what they share, the tasks, and whether each one's
answer has to be told from those of others.
"""


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
            else:  # both have it, but it is not to be compared (--from)
                stretches += [
                    Stretch(len(stretches) + extra, at, high, (side,), False)
                    for extra, side in enumerate(sides)
                ]
    return stretches
