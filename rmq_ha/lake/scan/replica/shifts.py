"""
Aligns logs that are shifted against each other, in parts that tasks handle independently.

One record more or less shifts all records after it. So that no task has to walk from there to the
end, each task first picks landmarks in its own piece of one log. The logs are cut where both have
the same landmarks, and each part becomes a task. If one part lacks a record that another part has
in addition, the record has moved.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from rmq_ha.base.errors import CannotDecide
from rmq_ha.lake.scan.replica.aligning import Change
from rmq_ha.lake.scan.replica.anchors import Anchor, cuts, in_both
from rmq_ha.lake.scan.replica.comparing import MORE, LogPart, ReportedDifference
from rmq_ha.lake.scan.replica.tasks import Landmarks, Run, ShiftedPart, Task, TaskResult, Work
from rmq_ha.ops.checks.codes import finding
from rmq_ha.ops.offsets.findings import Finding

_MOST = 1000
"""How many differences are reported of logs that are out of step."""
_LANDMARKS = 8
"""How many landmarks are picked in the bytes of one task."""
_PLACE = attrgetter("place")
Marks = tuple[list[Anchor], list[Anchor]]
"""Landmarks of both sides, in the order of their logs."""


class Region(NamedTuple):
    """
    Adjacent stretches in which the logs differ. The region begins with the first stretch that is
    out of step.

    :ivar known: physical offset; differences before it were reported already.
    :ivar shift: physical offset from which on records do not stand in the same places.
    """

    known: int
    shift: int
    ends: tuple[int, int]
    is_last: bool


def regions_of(
    compared: Sequence[tuple[int, int]],
    apart: Iterable[tuple[int, int, int]],
    stops: tuple[int, int] | None,
) -> Iterator[Region]:
    """
    Yield the regions in which the logs have to be aligned.

    :param stops: where both logs end, if they end with the last stretch; otherwise None.
    """
    shifts = {low: shift for low, _, shift in apart}
    known = high = 0
    first = -1
    for low, end in compared:
        shift = shifts.get(low)
        if shift is None and first >= 0:
            yield Region(known, first, (high, high), False)
            known, first = high, -1
        if shift is not None and first < 0:
            first = shift
        high = end
    if first >= 0:
        yield Region(known, first, stops or (high, high), stops is not None)


class RegionAlignment(NamedTuple):
    """The changes of the records of all regions."""

    findings: Sequence[Finding]
    regions: Sequence[Region]

    def leave(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """Yield the findings without those of changed bytes inside of regions."""
        shifts = [region.shift for region in self.regions]
        for fault in findings:
            at = fault.physical_offset or 0
            number = bisect_right(shifts, at) - 1
            is_inside = number >= 0 and at < self.regions[number].ends[0]
            if fault.code != Change.CHANGED or not is_inside:
                yield fault


class Shifts:
    """Aligns regions by tasks, which handle about `split` bytes of each log."""

    def __init__(self, run_tasks: Run, work: Work, split: int) -> None:
        self._run_tasks = run_tasks
        self._work = work
        self._split = split

    def aligned(
        self,
        compared: Sequence[tuple[int, int]],
        apart: Sequence[tuple[int, int, int]],
        *,
        is_whole: bool,
    ) -> RegionAlignment:
        """
        Align the logs where they differ.

        :param is_whole: the last stretch is the end of the common part.
        :raises CannotDecide: a task could not read a file.
        """
        pair = self._work.pair
        stops = (pair.master.stop, pair.slave.stop) if is_whole else None
        regions = list(regions_of(compared, apart, stops))
        marks = self._landmarks(regions)
        parts = [part for region in regions for part in self._parts(region, marks)]
        answers = self._align(range(len(parts)), parts, tells=len(parts) == 1)
        changes = [answers[number].changes for number in range(len(parts))]
        if len(parts) > 1:
            answers |= self._align(_first_of(changes), parts, tells=True)
        told = [change for number in sorted(answers) for change in answers[number].told]
        return RegionAlignment(_findings_with_moves(told, sum(changes) > len(told)), regions)

    def _landmarks(self, regions: Iterable[Region]) -> Marks:
        """Pick landmarks in both logs; regions up to twice `split` bytes are one task each."""
        tasks: list[Task] = []
        every = max(1, self._split // _LANDMARKS)
        for region in regions:
            if max(region.ends) - region.shift > 2 * self._split:
                for side, end in enumerate(region.ends):
                    for low in range(region.shift, end, self._split):
                        high = min(low + self._split, end)
                        tasks.append(Landmarks(len(tasks), side, low, high, every))
        marks: Marks = [], []
        for answer in self._run("landmarks", tasks, is_apart=False).values():
            for side, *anchor in answer.anchors:
                marks[side].append(Anchor(*anchor))
        for row in marks:
            row.sort(key=_PLACE)
        return marks

    def _parts(self, region: Region, marks: Marks) -> Iterator[LogPart]:
        """Cut a region where both logs have the same landmarks, and yield its parts."""
        mine = [
            side[bisect_left(side, region.shift, key=_PLACE) : bisect_left(side, end, key=_PLACE)]
            for side, end in zip(marks, region.ends, strict=True)
        ]
        at, other, shift = region.known, region.known, region.shift
        for end, other_end in cuts(in_both(*mine), region.shift, self._split):
            yield LogPart((at, end), (other, other_end), shift, False)
            at, other, shift = end, other_end, -1
        yield LogPart((at, region.ends[0]), (other, region.ends[1]), shift, region.is_last)

    def _align(
        self, numbers: Iterable[int], parts: Sequence[LogPart], *, tells: bool
    ) -> dict[int, TaskResult]:
        """Align parts by tasks, and return the results by part; `tells`: with differences."""
        tasks = [ShiftedPart(number, parts[number], _MOST, tells) for number in numbers]
        return self._run("where the logs are out of step", tasks, is_apart=True)

    def _run(self, label: str, tasks: Sequence[Task], *, is_apart: bool) -> dict[int, TaskResult]:
        """Run tasks, and return their results by number, or raise CannotDecide."""
        answers = dict(self._run_tasks(label, self._work, tasks, is_apart)) if tasks else {}
        for answer in answers.values():
            if answer.failed:
                raise CannotDecide(answer.failed)
        return answers


def _first_of(changes: Iterable[int]) -> Iterator[int]:
    """Yield the numbers of the parts whose changes are reported: the first ones with any."""
    before = 0
    for number, count in enumerate(changes):
        if count and before < _MOST:
            yield number
        before += count


def _findings_with_moves(told: Sequence[ReportedDifference], is_cut: bool) -> list[Finding]:
    """
    Return the differences as findings; one lost here and new there becomes one that moved.

    :param is_cut: further differences were found, but not kept.
    """
    lost = {
        change.identity: change.finding for change in told if change.finding.code == Change.LOST
    }
    usual = finding(Change.MOVED.value)
    gone: set[bytes] = set()
    changes = []
    for change, identity in told:
        source = lost.get(identity)
        if source is None or identity in gone or change.code == Change.LOST:
            changes.append((change, identity))
            continue
        gone.add(identity)
        moved = source._replace(code=usual.code, detail=usual.detail, actual=change.actual)
        changes.append((moved, b""))
    rest = [
        change for change, identity in changes if change.code != Change.LOST or identity not in gone
    ]
    ends = [number for number, change in enumerate(rest) if change.code == MORE]
    if ends:
        return rest[: ends[0] + 1]
    if is_cut:
        last = rest[-1]
        rest.append(finding(MORE, broker=last.broker, physical_offset=last.physical_offset))
    return rest
