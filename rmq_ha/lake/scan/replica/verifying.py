"""
Compares the bytes of two logs up to the common offset, and the queues and index of each store with
the store's own log.

First it reads queues and index files alone, to learn how far the queues were built. Then each task
takes a stretch of the log. It compares the bytes of both stores. Where they are equal, it decodes
each record once for both. The stores may be in use: the bounds are fixed first, and faults of an
open store are looked at again before they are reported.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rmq_ha.base.errors import CannotDecide
from rmq_ha.base.model.topics import LMQ_PREFIX
from rmq_ha.lake.scan.replica.auditing import INDEX, QUEUES
from rmq_ha.lake.scan.replica.comparing import Sides
from rmq_ha.lake.scan.replica.parting import parting, parting_finding
from rmq_ha.lake.scan.replica.settings import OpenedStore, Settings, common_of, open_pair, opened
from rmq_ha.lake.scan.replica.shifts import RegionAlignment, Shifts
from rmq_ha.lake.scan.replica.tasks import (
    COMMON,
    Answers,
    Doubt,
    Run,
    Survey,
    Task,
    TaskResult,
    Work,
    plan,
    run,
    vanished_error,
)
from rmq_ha.lake.scan.replica.verdicts import LOG_CODES, blamed_on_the_log, judge_bounds, verdict
from rmq_ha.ops.checks.store_rules import (
    checkpoint_state,
    judge_checkpoint,
    judge_holes,
    judge_tables,
    tail_findings,
)
from rmq_ha.ops.checks.sums import DelaySum, IndexState, QueueSum, judge_sums, topics_of
from rmq_ha.ops.checks.units import NO_SCAN, QueueScan
from rmq_ha.ops.offsets.findings import Finding, Severity

_QUEUES_A_TASK = 200
"""How many queues one task reads entry by entry."""
_AGAIN = 3
"""How often tasks with errors run again, if a store is open."""
_MOST_AGAIN = 500
"""How many tasks run again at most."""
_MOST_DOUBTS = 500
"""How many queues are searched for entries without a record."""
_POINTS = 120
"""Into how many parts the plot of errors divides the log."""


def run_here(label: str, work: Work, tasks: Sequence[Task], is_apart: bool) -> Answers:
    """Run tasks one after the other, in this process."""
    answers: dict[int, TaskResult] = {}
    for task in tasks:
        run(work, task, answers.setdefault(task.number, TaskResult()))
    return answers


class ReplicaComparison(NamedTuple):
    """
    The result of comparing two stores.

    :ivar ranges: for each store the physical offsets at which its log begins and ends.
    :ivar common: the part of the log that both have, and that was to be compared.
    :ivar sums: the results of all tasks, added up.
    :ivar first: the difference between the logs that is nearest to the log's start.
    :ivar apart: number of findings that say that the logs differ.
    :ivar along: for the report's plot: physical offsets, and the number of errors from each up to
        the next.
    """

    names: Sequence[str]
    ranges: Sequence[tuple[int, int]]
    common: tuple[int, int]
    findings: Sequence[Finding]
    sums: TaskResult
    queues: Sequence[QueueSum]
    first: Finding | None
    apart: int
    errors: int
    along: Sequence[tuple[int, int]]
    is_alone: bool

    @property
    def verdict(self) -> str:
        messages = self.sums.records[COMMON][0] if COMMON in self.sums.records else None
        return verdict(self.common, messages, self.first, self.errors, is_alone=self.is_alone)

    @property
    def numbers(self) -> dict[str, Any]:
        roles = ("master", "slave")
        sums, first = self.sums, self.first
        return {
            "from": self.common[0],
            "to": self.common[1],
            "bytesCompared": sums.compared,
            "bytesWithoutMeaning": sums.blank,
            "messages": {role: sums.records.get(at, [0])[0] for at, role in enumerate(roles)},
            "keys": {role: sums.keys.get(at, [0])[0] for at, role in enumerate(roles)},
            "differences": self.apart,
            "firstDifference": None if first is None else first.physical_offset,
        }


def verify(
    settings: Settings,
    run_tasks: Run = run_here,
    note: Callable[[str], None] = lambda _: None,
    pause: Callable[[float], None] = lambda _: None,
) -> ReplicaComparison:
    """
    Compare two stores, or one with itself.

    :param pause: waits for a number of ms before a store in use is checked again.
    :raises CannotDecide: a store cannot be read, or they have nothing in common.
    """
    try:
        return _Verification(settings, open_pair(settings), run_tasks, note, pause).run()
    except OSError as error:
        raise vanished_error(error) from None


class _Verification:
    """
    One comparison: the stores and their common bounds, and the findings so far.

    :ivar _store_findings: findings about whole stores, which no task made.
    :ivar _compared: the part of the log that tasks compare: `_common` up to the parting, if there
        is one.
    """

    def __init__(
        self,
        settings: Settings,
        pair: list[OpenedStore],
        run_tasks: Run,
        note: Callable[[str], None],
        pause: Callable[[float], None],
    ) -> None:
        self._settings = settings
        self._pair = pair
        self._run_tasks = run_tasks
        self._note = note
        self._pause = pause
        self._is_alone = settings.master == settings.slave
        self._names = [replica.store.uri for replica in pair]
        if self._is_alone:
            self._names[1] += " (again)"
        self._ranges = [(replica.low, replica.high) for replica in pair]
        self._common = common_of(pair, settings.start)
        self._store_findings: list[Finding] = list(
            judge_bounds(self._names, self._ranges, any(replica.is_quorum for replica in pair))
        )
        for name, replica in zip(self._names, pair, strict=True):
            self._store_findings += judge_holes(name, replica.store.holes)
            self._store_findings += judge_tables(name, replica.store)
        self._compared = self._common
        names = self._names[0], self._names[1]
        logs = Sides(pair[0].log, pair[1].log, *names, settings.window)
        parted = None if self._is_alone else parting(logs, *self._common)
        if parted is not None:
            self._compared = self._common[0], parted.offset
            ahead = ("SLAVE_AHEAD", "MASTER_AHEAD")
            self._store_findings = [
                finding for finding in self._store_findings if finding.code not in ahead
            ]
            self._store_findings.append(parting_finding(parted, self._names[1]))

    def run(self) -> ReplicaComparison:
        """Do all steps, each behind those whose results it needs."""
        survey = self._survey_stores()
        ends = survey.ends if QUEUES in self._settings.checks else {}
        queue_ends = [
            max((ends[key].end for key in ends if key[0] == side), default=0) for side in (0, 1)
        ]
        work = self._work(queue_ends)
        sums = self._compare_logs(work)
        self._judge_tails(ends)
        queues = self._queue_sums(ends, sums)
        self._store_findings += judge_sums(
            list(queues.values()),
            [
                DelaySum(self._names[side], level, delay, *numbers)
                for (side, level, delay), numbers in sums.delays.items()
            ],
            [(self._names[side], numbers[2]) for side, numbers in sums.keys.items()],
            self._index_states(queue_ends),
            {
                name: topics_of(replica.store)
                for name, replica in zip(self._names, self._pair, strict=True)
            },
            is_pair=not self._is_alone,
        )
        self._store_findings += self._checkpoint_findings()
        aligned = self._align_logs(work, sums)
        doubts = self._check_doubtful_queues(work, queues)
        self._refuse_vanished(ends)
        findings = self._every_finding(
            [*survey.findings, *sums.findings, *doubts.findings], aligned
        )
        return self._make_comparison(findings, sums, list(queues.values()))

    def _work(self, queue_ends: Sequence[int]) -> Work:
        """Return what tasks share; the queues of each side were built up to its end."""
        sides = tuple(
            replica.side(name, min(end, replica.high))
            for name, replica, end in zip(self._names, self._pair, queue_ends, strict=True)
        )
        return Work(sides, self._settings.checks, self._settings.window)

    # The stores by themselves

    def _survey_stores(self) -> TaskResult:
        """Read queues and index files by themselves, to learn where the queues end."""
        tasks: list[Survey] = []
        for side, replica in enumerate(self._pair):
            low = max(replica.low, self._settings.start)
            if QUEUES in self._settings.checks:
                names = replica.store.topics_on_disk()
                for at in range(0, len(names), _QUEUES_A_TASK):
                    some = names[at : at + _QUEUES_A_TASK]
                    tasks.append(Survey(len(tasks), side, some, -1, low, replica.high))
            if INDEX in self._settings.checks:
                for number in range(len(replica.store.index_parts()[0])):
                    tasks.append(Survey(len(tasks), side, (), number, low, replica.high))
        return self._run("queues and index", self._work([0, 0]), tasks)

    def _run(self, label: str, work: Work, tasks: Sequence[Task]) -> TaskResult:
        """
        Run tasks, and return the sum of their results.

        A broker has a store open while the file `abort` is there: the broker removes it at an
        orderly end. If a store is open, errors may come from writes during the reading. So tasks
        with errors run again after a pause, until there is no error, no log grows, or `_AGAIN`
        rounds are over.

        :raises CannotDecide: a task could not read a file.
        """
        may_move = any(replica.store.abort for replica in self._pair)
        answers = dict(self._run_tasks(label, work, tasks, may_move)) if tasks else {}
        for _ in range(_AGAIN if may_move else 0):
            bad = sorted(number for number in answers if answers[number].is_bad)[:_MOST_AGAIN]
            if not bad:
                break
            self._note(f"looking again at {len(bad)} of {len(tasks)} parts: a store is open")
            self._pause(self._settings.pause_ms)
            moves = self._has_any_grown()
            again = set(bad)
            some = [task for task in tasks if task.number in again]
            answers |= self._run_tasks(label, work, some, True)
            if not moves:
                break
        sums = TaskResult()
        for answer in answers.values():
            sums.add(answer)
        if sums.failed:
            raise CannotDecide(sums.failed)
        return sums

    def _has_any_grown(self) -> bool:
        return any(self._has_grown(side) for side in (0, 1))

    def _has_grown(self, side: int) -> bool:
        """Open a store again, and return whether its log is longer than at the beginning."""
        at = (self._settings.master, self._settings.slave)[side]
        return opened(at, self._settings.index_sizes).high > self._pair[side].high

    # The log

    def _compare_logs(self, work: Work) -> TaskResult:
        start = self._settings.start
        bases = [
            file.base
            for replica in self._pair
            for file in replica.store.log_files()
            if file.base > start
        ]
        ranges = [(max(low, start), high) for low, high in self._ranges]
        holes = [replica.store.holes for replica in self._pair]
        tasks = plan(ranges, self._compared, self._settings.split, bases, holes)
        self._plan = [(task.low, task.high) for task in tasks if task.compares]
        label = f"{self._compared[1] - self._compared[0]:,} bytes of both logs"
        return self._run(label, work, tasks)

    # The sums

    def _judge_tails(self, ends: Mapping[tuple[int, str, int], QueueScan]) -> None:
        """Add findings about the ends of the logs; a log that still grows has none to judge."""
        for side, replica in enumerate(self._pair):
            if replica.store.abort and self._has_grown(side):
                continue
            mine = ((end.end, key[1:], end.last) for key, end in ends.items() if key[0] == side)
            self._store_findings += tail_findings(self._names[side], replica.store, mine)

    def _queue_sums(
        self, ends: Mapping[tuple[int, str, int], QueueScan], sums: TaskResult
    ) -> dict[tuple[int, str, int], QueueSum]:
        """Return the numbers of entries and records of each queue, by side, topic and queue id."""
        queues = {}
        for key in sorted({*ends, *sums.tallies}):
            end = ends.get(key, NO_SCAN)
            tally = sums.tallies.get(key, [0] * 5)
            queue = QueueSum(self._names[key[0]], *key[1:], end.entries, *tally)
            queues[key] = queue._replace(first=end.first)
        return queues

    def _refuse_vanished(self, ends: Mapping[tuple[int, str, int], QueueScan]) -> None:
        """:raises CannotDecide: a store, or all its queues, were removed during the comparison."""
        for side, replica in enumerate(self._pair):
            store = replica.store
            directories = [replica.log.row[-1].path.rpartition("/")[0]]
            if any(key[0] == side for key in ends):
                directories.append(f"{store.root}/consumequeue")
            for directory in directories:
                if not store.files.list(directory):
                    raise CannotDecide(f"{directory} vanished while it was read: compare again")

    def _check_doubtful_queues(
        self, work: Work, queues: Mapping[tuple[int, str, int], QueueSum]
    ) -> TaskResult:
        """Look for entries without a record in queues that have more entries than records."""
        # Light queues have no records of their own: they always have a surplus, and so they come
        # last.
        doubted = sorted(
            (key for key, queue in queues.items() if queue.surplus > 0),
            key=lambda key: key[1].startswith(LMQ_PREFIX),
        )
        tasks = [Doubt(number, *key) for number, key in enumerate(doubted[:_MOST_DOUBTS])]
        return self._run("entries in doubt", work, tasks)

    def _align_logs(self, work: Work, sums: TaskResult) -> RegionAlignment:
        """Align the logs; faults are not checked twice, which would take as long again."""
        is_whole = self._compared == self._common
        shifts = Shifts(self._run_tasks, work, self._settings.split)
        return shifts.aligned(self._plan, sums.apart, is_whole=is_whole)

    def _checkpoint_findings(self) -> Iterator[Finding]:
        """Yield findings about the checkpoints; a log that still grows has none to judge."""
        for side, (name, replica) in enumerate(zip(self._names, self._pair, strict=True)):
            findings = list(
                judge_checkpoint(
                    name,
                    checkpoint_state(replica.store, replica.high, replica.log.newest_time()),
                )
            )
            if findings and not (replica.store.abort and self._has_grown(side)):
                yield from findings

    def _index_states(self, queue_ends: Sequence[int]) -> list[IndexState]:
        """Return the facts about each side's index files; none if these are not checked."""
        states = []
        for name, replica, end in zip(self._names, self._pair, queue_ends, strict=True):
            files, faults = replica.store.index_parts()
            headers = [file.header for file in files if file.count]
            spans = [(head.begin_physical_offset, head.end_physical_offset) for head in headers]
            if INDEX in self._settings.checks:
                low = max(replica.low, self._settings.start)
                states.append(
                    IndexState(name, [*map(str, faults)], spans, low, end or replica.high)
                )
        return states

    def _every_finding(
        self, findings: Sequence[Finding], aligned: RegionAlignment
    ) -> list[Finding]:
        """Return each finding once; where logs are out of step, only content is compared."""
        kept: dict[tuple[object, ...], Finding] = {}
        for finding in [*aligned.leave(findings), *aligned.findings]:
            key = (
                finding.code, finding.broker, finding.topic, finding.queue_id, finding.queue_offset,
                finding.physical_offset, finding.expected,
            )  # fmt: skip
            kept.setdefault(key, finding)
        mine = list(kept.values())
        if not self._is_alone:
            mine = blamed_on_the_log(mine, self._names)
        every = [*mine, *self._store_findings]
        if self._is_alone:  # a finding about the other side is about the same store
            every = [finding for finding in every if finding.broker != self._names[1]]
        return every

    def _make_comparison(
        self, findings: Sequence[Finding], sums: TaskResult, queues: Sequence[QueueSum]
    ) -> ReplicaComparison:
        low, high = self._common
        width = max(1, (high - low) // _POINTS)
        errors = [finding for finding in findings if finding.severity == Severity.ERROR]
        apart = [finding for finding in errors if finding.code in LOG_CODES]
        along = Counter(
            low + (finding.physical_offset - low) // width * width
            for finding in errors
            if finding.physical_offset is not None
        )
        return ReplicaComparison(
            self._names,
            self._ranges,
            self._common,
            findings,
            sums,
            queues,
            min(apart, key=lambda finding: finding.physical_offset or 0, default=None),
            len(apart),
            len(errors),
            sorted(along.items()),
            self._is_alone,
        )
