"""
The job: two stores, their bytes up to the common offset, and each one's queues and index.

First queues and index files are read by themselves, so that it is known how far the queues were
built. Then tasks go over the log, a stretch each: bytes against bytes, and, where they are the
same, each record once for both sides. Stores may move: the bounds are fixed first, and stretches
of a store that is open and seems to be wrong are looked at again before anything is said.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rmq_ha.offsets.findings import Finding, Outcome
from rmq_ha.spark.findings import FINDINGS, finding_row
from rmq_ha.spark.host.waiting import pause
from rmq_ha.spark.replica.auditing import INDEX, QUEUES
from rmq_ha.spark.replica.comparing import Sides, resolve
from rmq_ha.spark.replica.parting import parting, parting_finding
from rmq_ha.spark.replica.report import sections_of
from rmq_ha.spark.replica.rows import (
    ROWS,
    Overview,
    QueueEnd,
    Sums,
    count_of,
    findings_of,
    overview_of,
    queue_ends,
    rows_of,
    sums_of,
    tasks_in_error,
)
from rmq_ha.spark.replica.settings import Opened, Settings, common_of, open_pair, opened
from rmq_ha.spark.replica.tasks import (
    COMMON,
    Doubt,
    Survey,
    Work,
    plan,
    run_doubt,
    run_stretch,
    run_survey,
)
from rmq_ha.spark.replica.verdicts import (
    LOG_CODES,
    DelaySum,
    IndexState,
    QueueSum,
    TailState,
    judge_bounds,
    judge_checkpoint,
    judge_delays,
    judge_holes,
    judge_index,
    judge_keys,
    judge_queues,
    judge_tail,
    verdict,
)
from rmq_ha.spark.result import JobResult

_QUEUES_A_TASK = 200
_AGAIN = 3
_MOST_AGAIN = 500
_MOST_ALIGNED = 1000
_MOST_DOUBTS = 500
_LIGHT = "%LMQ%"


class JobLike(Protocol):
    """What of `rmq_ha.spark.running.Job` is used."""

    @property
    def spark(self) -> SparkSession:
        """The session."""

    def note(self, text: str) -> None:
        """A line for who looks on."""

    def progress(self, label: str) -> Any:
        """Shows how far Spark is while its block runs."""


def verify(job: JobLike, settings: Settings) -> JobResult:
    """
    Compare two stores.

    :raises CannotDecide: one cannot be read, or they have nothing in common.
    """
    return _Verification(job, settings, open_pair(settings)).run()


class _Verification:
    """One run."""

    def __init__(self, job: JobLike, settings: Settings, pair: list[Opened]) -> None:
        self._job = job
        self._settings = settings
        self._pair = pair
        self._is_alone = settings.master == settings.slave
        self._names = [one.store.uri for one in pair]
        if self._is_alone:
            self._names[1] += " (again)"
        self._ranges = [(one.low, one.high) for one in pair]
        self._common = common_of(pair, settings.start)
        self._is_silent = True  # no task found anything
        self._told: list[Finding] = list(
            judge_bounds(self._names, self._ranges, any(one.is_quorum for one in pair))
        )
        for name, one in zip(self._names, pair, strict=True):
            self._told += judge_holes(name, one.store.holes)
        self._compared = self._common
        names = self._names[0], self._names[1]
        logs = Sides(pair[0].log, pair[1].log, *names, settings.window)
        parted = None if self._is_alone else parting(logs, *self._common)
        if parted is not None:
            self._compared = self._common[0], parted.offset
            ahead = ("SLAVE_AHEAD", "MASTER_AHEAD")
            self._told = [one for one in self._told if one.code not in ahead]
            self._told.append(parting_finding(parted, self._names[1]))

    def run(self) -> JobResult:
        """All steps in order."""
        survey = self._survey()
        ends = queue_ends(survey) if QUEUES in self._settings.checks else []
        known = [max((end.end for end in ends if end.side == side), default=0) for side in (0, 1)]
        work = self._work(known)
        rows = self._stretches(work)
        sums = sums_of(rows)
        self._add_tails(ends)
        queues = self._queue_sums(ends, sums)
        self._told += judge_queues(list(queues.values()))
        self._told += judge_delays(
            [
                DelaySum(self._names[side], level, delay, *numbers)
                for (side, level, delay), numbers in sums.delays.items()
            ]
        )
        self._told += judge_keys(
            (self._names[side], numbers[2]) for side, numbers in sums.keys.items()
        )
        self._told += self._checkpoints()
        self._told += judge_index(self._indexes(known))
        aligned = self._align(work, sums.shifts)
        doubts = self._doubts(work, queues)
        found = self._findings([survey, rows, doubts], aligned)
        return self._result(found, sums, list(queues.values()))

    def _work(self, known: Sequence[int]) -> Work:
        sides = tuple(
            one.side(name, min(end, one.high))
            for name, one, end in zip(self._names, self._pair, known, strict=True)
        )
        return Work(sides, self._settings.checks, self._settings.window)

    # The stores by themselves

    def _survey(self) -> DataFrame:
        tasks: list[Survey] = []
        for side, one in enumerate(self._pair):
            low = max(one.low, self._settings.start)
            if QUEUES in self._settings.checks:
                names = one.store.topics_on_disk()
                for at in range(0, len(names), _QUEUES_A_TASK):
                    some = names[at : at + _QUEUES_A_TASK]
                    tasks.append(Survey(len(tasks), side, some, -1, low, one.high))
            if INDEX in self._settings.checks:
                for number in range(len(one.store.index_parts()[0])):
                    tasks.append(Survey(len(tasks), side, (), number, low, one.high))
        return self._run("queues and index", self._work([0, 0]), tasks, run_survey)

    def _run(
        self, label: str, work: Work, tasks: Sequence[Any], run: Any, parts: int = 0
    ) -> DataFrame:
        """Run tasks; again those that found errors in a store that moves."""
        spark = self._job.spark
        if not tasks:
            return spark.createDataFrame([], ROWS)
        rows, errors = self._kept(label, rows_of(spark, work, tasks, run, parts))
        for _ in range(_AGAIN):
            if not errors or not any(one.store.abort for one in self._pair):
                break
            again = set(tasks_in_error(rows, _MOST_AGAIN))
            self._job.note(f"looking again at {len(again)} of {len(tasks)} parts: a store is open")
            pause(self._settings.pause_ms)
            moves = self._moves()
            later = rows_of(spark, work, [task for task in tasks if task.number in again], run)
            rest = rows.where(~F.col("task").isin(sorted(again)))
            rows, errors = self._kept(label, rest.unionAll(later))
            if not moves:
                break
        return rows

    def _kept(self, label: str, rows: DataFrame) -> tuple[DataFrame, int]:
        """The rows, kept, and how many errors are in them."""
        rows = rows.persist()
        with self._job.progress(label):
            findings, errors = count_of(rows)
        self._is_silent = self._is_silent and not findings
        return rows, errors

    def _moves(self) -> bool:
        return any(self._moved_on(side) for side in (0, 1))

    def _moved_on(self, side: int) -> bool:
        at = (self._settings.master, self._settings.slave)[side]
        return opened(at, self._settings.index_sizes).high > self._pair[side].high

    # The log

    def _stretches(self, work: Work) -> DataFrame:
        start = self._settings.start
        bases = [
            file.base for one in self._pair for file in one.store.log_files() if file.base > start
        ]
        ranges = [(max(low, start), high) for low, high in self._ranges]
        holes = [one.store.holes for one in self._pair]
        tasks = plan(ranges, self._compared, self._settings.split, bases, holes)
        label = f"{self._compared[1] - self._compared[0]:,} bytes of both logs"
        size = sum(task.high - task.low for task in tasks)
        return self._run(label, work, tasks, run_stretch, size // self._settings.split)

    def _align(
        self, work: Work, shifts: Sequence[tuple[int, int]]
    ) -> tuple[list[tuple[int, int]], list[Finding]]:
        """Where the logs were out of step, and what was found there."""
        if not shifts:
            return [], []
        with self._job.progress(f"out of step from {shifts[0][0]} on"):
            task = self._job.spark.sparkContext.parallelize([(work.pair, shifts, _MOST_ALIGNED)], 1)
            return task.map(_resolved).collect()[0]

    # What it adds up to

    def _add_tails(self, ends: Sequence[QueueEnd]) -> None:
        for side, one in enumerate(self._pair):
            last = max(
                (end for end in ends if end.side == side), key=lambda end: end.end, default=None
            )
            beyond = last is not None and last.end > one.high
            if one.store.abort and self._moved_on(side):
                continue
            where = ("", -1, -1) if last is None else (last.topic, last.queue_id, last.last)
            state = TailState(
                self._names[side],
                one.high,
                last.end if last is not None and beyond else -1,
                *where,
                one.store.abort,
                self._has_residue(one),
            )
            self._told += judge_tail(state)

    @staticmethod
    def _has_residue(one: Opened) -> bool:
        log = one.log
        if one.high >= log.row[-1].end:
            return False
        file = log.file_at(one.high)
        return any(log.files.read(file.path, one.high - file.base, 8))

    def _queue_sums(
        self, ends: Sequence[QueueEnd], sums: Sums
    ) -> dict[tuple[int, str, int], QueueSum]:
        known = {end[:3]: end for end in ends}
        found = {}
        for key in sorted({*known, *sums.tallies}):
            side, topic, queue_id = key
            entries, first = (known[key].entries, known[key].first) if key in known else (0, -1)
            tally = sums.tallies.get(key, [0] * 5)
            one = QueueSum(self._names[side], topic, queue_id, entries, *tally)
            found[key] = one._replace(first=first)
        return found

    def _doubts(self, work: Work, queues: Mapping[tuple[int, str, int], QueueSum]) -> DataFrame:
        # Light queues have no records of their own: they are always in doubt, and so come last.
        doubted = sorted(
            (key for key, one in queues.items() if one.surplus > 0),
            key=lambda key: key[1].startswith(_LIGHT),
        )
        tasks = [Doubt(number, *key) for number, key in enumerate(doubted[:_MOST_DOUBTS])]
        return self._run("entries in doubt", work, tasks, run_doubt)

    def _checkpoints(self) -> Iterator[Finding]:
        for side, (name, one) in enumerate(zip(self._names, self._pair, strict=True)):
            told = list(judge_checkpoint(name, one.store.checkpoint(), one.log.newest_time()))
            if told and not (one.store.abort and self._moved_on(side)):
                yield from told

    def _indexes(self, known: Sequence[int]) -> list[IndexState]:
        found = []
        for name, one, end in zip(self._names, self._pair, known, strict=True):
            files, faults = one.store.index_parts()
            headers = [file.header for file in files if file.count]
            spans = [(head.begin_physical_offset, head.end_physical_offset) for head in headers]
            if INDEX in self._settings.checks:
                low = max(one.low, self._settings.start)
                found.append(IndexState(name, [*map(str, faults)], spans, low, end or one.high))
        return found

    def _findings(
        self, parts: Sequence[DataFrame], aligned: tuple[list[tuple[int, int]], list[Finding]]
    ) -> DataFrame:
        spans, found = aligned
        spark = self._job.spark
        told = [finding_row(one) for one in (*self._told, *found)]
        own = spark.createDataFrame(told, FINDINGS)
        if self._is_silent:
            return own
        rows = parts[0]
        for part in parts[1:]:
            rows = rows.unionAll(part)
        if spans:
            # There a record is compared with the one of its content, not of its place.
            out = F.broadcast(spark.createDataFrame(spans, "low bigint, high bigint"))
            at = F.col("finding.physicalOffset")
            is_out = (F.col("finding.code") == "LOG_DIFFERS") & (at >= out.low) & (at < out.high)
            rows = rows.join(out, is_out, "left_anti")
        every = findings_of(rows).unionAll(own)
        if self._is_alone:  # what is said of the other side was said of this one
            every = every.where(F.col("broker").isNull() | (F.col("broker") != self._names[1]))
        return every.persist()

    def _result(self, found: DataFrame, sums: Sums, queues: Sequence[QueueSum]) -> JobResult:
        overview = overview_of(found, LOG_CODES, *self._common)
        errors, _, first, along = overview
        messages = sums.records[COMMON][0] if COMMON in sums.records else None
        return JobResult(
            found,
            Outcome.VIOLATED if errors else Outcome.HOLDS,
            verdict(self._common, messages, first, errors, is_alone=self._is_alone),
            self._numbers(sums, overview),
            sections_of(self._names, self._ranges, self._common, sums, queues, along),
        )

    def _numbers(self, sums: Sums, overview: Overview) -> dict[str, Any]:
        roles = ("master", "slave")
        first = overview.first
        return {
            "from": self._common[0],
            "to": self._common[1],
            "bytesCompared": sums.compared,
            "bytesWithoutMeaning": sums.blank,
            "messages": {role: sums.records.get(at, (0,))[0] for at, role in enumerate(roles)},
            "keys": {role: sums.keys.get(at, [0])[0] for at, role in enumerate(roles)},
            "differences": overview.apart,
            "firstDifference": None if first is None else first.physical_offset,
        }


def _resolved(
    task: tuple[Sides, Sequence[tuple[int, int]], int],
) -> tuple[list[tuple[int, int]], list[Finding]]:
    return resolve(*task)
