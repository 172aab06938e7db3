"""Runs: records that stand side by side in the log, as rows for queues, index and listeners.

An append makes a run of the records that it wrote, and a walk of those that it read.
"""

from collections import deque
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import NamedTuple

from rmq_ha.base.model.message import DispatchRequest, Row
from rmq_ha.base.runs.face import Rows
from rmq_ha.base.runs.maker import concat

SLICE = 256
"""Most records of a slice, which is the run that `PendingRuns.take` returns."""
SLICE_WORK = 16384
"""
Characters of KEYS (`Rows.work`) at which a slice ends. Its last record may exceed this number, by
at most its own KEYS: less than twice this number.
"""

_MAX_PENDING = 16384
_rows = itemgetter(2)


class Run(NamedTuple):
    """
    A part of the log.

    :ivar start: physical offset of the first byte.
    :ivar end: physical offset after the last byte. That byte may be of a blank, which fills the end
        of a log file.
    :ivar rows: the rows of its records, in order; empty if it has none.
    """

    start: int
    end: int
    rows: Rows

    def parted(self, count: int) -> "tuple[Run, Run]":
        """Return a run with the first `count` records, at least one, and a run with the others."""
        first, others = self.rows.part(0, count), self.rows.part(count, len(self.rows))
        return Run(self.start, first.end, first), Run(first.end, self.end, others)


def by_name(
    callback: Callable[[list[DispatchRequest]], object],
) -> Callable[[Sequence[Row]], None]:
    """Return a function that passes rows on as objects with named fields."""

    def call(rows: Sequence[Row]) -> None:
        callback([DispatchRequest._make(row) for row in rows])

    return call


class PendingRuns:
    """
    The records that were appended and not dispatched yet. When too many records wait, new ones are
    left out, and the dispatcher reads those from the log.
    """

    def __init__(self) -> None:
        self._runs: deque[Run] = deque()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, run: Run) -> None:
        """Add the newest run, which must have records. It is left out if too many records wait."""
        if self._count < _MAX_PENDING:
            self._runs.append(run)
            self._count += len(run.rows)

    def clear(self) -> None:
        """
        Forget all runs, because the log was cut, or because another broker's records are written to
        it.
        """
        self._runs.clear()
        self._count = 0

    def take(self, position: int, end: int) -> Run | None:
        """
        Remove the next slice of waiting records, and return it as one run; None if no waiting
        record begins at `position`.

        :param position: physical offset at which the first record of the slice begins. Records
            before it are dropped, because they are dispatched already.
        :param end: physical offset; records that end after it are not taken.
        """
        runs = self._runs
        while runs and runs[0].start < position:
            self._drop_before(position)
        start, taken, count, work = position, list[Run](), 0, 0
        while runs and runs[0].start == position:
            run = runs.popleft()
            size = len(run.rows)
            # Two limits end a slice: `SLICE` records, and `SLICE_WORK` characters of KEYS.
            if run.end > end or count + size > SLICE or work + run.rows.work > SLICE_WORK:
                # Only the first run of a slice is parted. A later run that does not fit stays
                # whole, and begins the next slice.
                fitting = 0 if taken else _fitting(run.rows, end)
                if fitting < size:
                    if fitting:
                        run, rest = run.parted(fitting)
                        taken += (run,)
                        count = fitting
                    runs.appendleft(rest if fitting else run)
                    break
            taken += (run,)
            count += size
            work += run.rows.work
            position = run.end
        self._count -= count
        if not taken:
            return None
        if taken[0] is taken[-1]:
            return taken[0]
        return Run(start, position, concat(list(map(_rows, taken))))

    def _drop_before(self, position: int) -> None:
        """Drop the records of the first run that begin before `position`."""
        run = self._runs.popleft()
        size = len(run.rows)
        dropped = sum([row[2] < position for row in run.rows])
        self._count -= dropped
        if dropped < size:
            self._runs.appendleft(Run(position, run.end, run.rows.part(dropped, size)))


def _fitting(rows: Rows, end: int) -> int:
    """
    Return how many of the first records fit into a slice.

    :param end: physical offset; records that end after it do not fit.
    """
    count = work = 0
    for row in rows.part(0, min(SLICE, len(rows))):
        if row[2] + row[3] > end or work >= SLICE_WORK:
            break
        work += len(row[7])
        count += 1
    return count
