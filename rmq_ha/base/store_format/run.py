"""Runs: records side by side in the log, as whoever builds on them needs them.

An append makes them of what it wrote, a walk of what it reads; queues, index and listeners take
their rows.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rmq_ha.base.model.message import DispatchRequest, Row

SLICE = 256
SLICE_WORK = 16384
"""With which a slice ends; a single record has twice as much at most."""

_MAX_PENDING = 16384


class Run(NamedTuple):
    """
    A stretch of the log.

    :ivar start: physical offset.
    :ivar end: physical offset behind it, and behind what no record is.
    :ivar rows: its records, in order.
    :ivar work: what they cost besides being records: see `work_of`.
    """

    start: int
    end: int
    rows: Sequence[Row]
    work: int = 0

    def parted(self, count: int) -> "tuple[Run, Run]":
        """The first `count` records, at least one, and the others."""
        first, others = self.rows[:count], self.rows[count:]
        between = first[-1][2] + first[-1][3]
        work = sum(map(work_of, first))
        return (
            Run(self.start, between, first, work),
            Run(between, self.end, others, self.work - work),
        )


def work_of(row: Row) -> int:
    """What a record may cost besides being one: each two characters may be a key of the index."""
    return len(row[7])


def by_name(
    callback: Callable[[list[DispatchRequest]], object],
) -> Callable[[Sequence[Row]], None]:
    """For whoever reads rows by the names of their fields."""

    def call(rows: Sequence[Row]) -> None:
        callback([DispatchRequest._make(row) for row in rows])

    return call


class PendingRuns:
    """
    What was appended and not dispatched yet; beyond some of it the dispatcher reads the log.
    """

    def __init__(self) -> None:
        self._runs: deque[Run] = deque()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, run: Run) -> None:
        """The newest one; it has records."""
        if self._count < _MAX_PENDING:
            self._runs.append(run)
            self._count += len(run.rows)

    def clear(self) -> None:
        """The log was cut, or others write it."""
        self._runs.clear()
        self._count = 0

    def take(self, position: int, end: int) -> Run | None:
        """
        What goes on exactly at a physical offset, a slice at most; None where nothing does.

        :param end: physical offset: no record that ends behind it.
        """
        runs = self._runs
        while runs and runs[0].start < position:
            self._drop_before(position)
        start, taken, count, work = position, list[Run](), 0, 0
        while runs and runs[0].start == position:
            run = runs.popleft()
            size = len(run.rows)
            if run.end > end or count + size > SLICE or work + run.work > SLICE_WORK:
                fitting = 0 if taken else _fitting(run.rows, end)
                if fitting < size:
                    if fitting:
                        run, rest = run.parted(fitting)
                        taken.append(run)
                        count = fitting
                    runs.appendleft(rest if fitting else run)
                    break
            taken.append(run)
            count += size
            work += run.work
            position = run.end
        self._count -= count
        if not taken:
            return None
        if taken[0] is taken[-1]:
            return taken[0]
        return Run(start, position, [row for run in taken for row in run.rows], work)

    def _drop_before(self, position: int) -> None:
        """Of the first run what was dispatched already."""
        run = self._runs.popleft()
        rows = [row for row in run.rows if row[2] >= position]
        self._count -= len(run.rows) - len(rows)
        if rows:
            self._runs.appendleft(Run(position, run.end, rows, sum(map(work_of, rows))))


def _fitting(rows: Sequence[Row], end: int) -> int:
    """How many of the first records make a slice."""
    count = work = 0
    for row in rows[:SLICE]:
        if row[2] + row[3] > end or work >= SLICE_WORK:
            break
        work += work_of(row)
        count += 1
    return count
