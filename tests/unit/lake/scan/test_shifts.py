"""What tasks are asked where logs are out of step, and what their answers say together."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rmq_ha.base.errors import CannotDecide
from rmq_ha.base.host.files import LocalFiles
from rmq_ha.lake.scan.replica.auditing import Side
from rmq_ha.lake.scan.replica.comparing import MORE, LogPart, ReportedDifference
from rmq_ha.lake.scan.replica.logs import Log
from rmq_ha.lake.scan.replica.shifts import (
    Region,
    RegionAlignment,
    Shifts,
    _findings_with_moves,
    _first_of,
    regions_of,
)
from rmq_ha.lake.scan.replica.tasks import Answers, Landmarks, ShiftedPart, Task, TaskResult, Work
from rmq_ha.ops.checks.codes import finding
from rmq_ha.ops.offsets.findings import Finding

SPLIT = 800
MOST = 1000


def at(
    code: str, place: int | None = None, identity: bytes = b"", **more: Any
) -> ReportedDifference:
    return ReportedDifference(finding(code, broker="s", physical_offset=place, **more), identity)


def places(found: Sequence[Finding]) -> list[tuple[str, int | None]]:
    return [(one.code, one.physical_offset) for one in found]


# Regions


@pytest.mark.parametrize(
    ("apart", "stops", "regions"),
    [
        ([], (30, 31), []),
        ([(0, 10, 0)], (30, 31), [Region(0, 0, (10, 10), False)]),
        ([(0, 10, 0), (10, 20, 15)], (30, 31), [Region(0, 0, (20, 20), False)]),
        ([(0, 10, -1), (10, 20, 12), (20, 30, 25)], (30, 31), [Region(0, 12, (30, 31), True)]),
        ([(20, 30, 20)], None, [Region(0, 20, (30, 30), False)]),
        (
            [(0, 10, 5), (20, 30, 20)],
            (40, 30),
            [Region(0, 5, (10, 10), False), Region(10, 20, (40, 30), True)],
        ),
    ],
)
def test_a_region_reaches_from_its_first_shift_to_a_stretch_that_is_alike(
    apart: list[tuple[int, int, int]], stops: tuple[int, int] | None, regions: list[Region]
) -> None:
    """A log may be out of step from its very first byte on."""
    assert list(regions_of([(0, 10), (10, 20), (20, 30)], apart, stops)) == regions


def test_inside_regions_content_counts_and_not_bytes() -> None:
    regions = [Region(0, 100, (200, 250), False), Region(200, 300, (400, 400), True)]
    inside = [100, 199, 300, 399]
    outside = [0, 99, 200, 250, 299, 400]
    found = [at("LOG_DIFFERS", place).finding for place in sorted(inside + outside)]
    other = [at("BODY_CRC", place).finding for place in inside]
    kept = list(RegionAlignment([], regions).leave([*found, *other, at("LOG_DIFFERS").finding]))
    assert places(kept) == [
        *(("LOG_DIFFERS", place) for place in outside),
        *(("BODY_CRC", place) for place in inside),
        ("LOG_DIFFERS", None),
    ]
    assert list(RegionAlignment([], []).leave(found)) == found


# What is told


@pytest.mark.parametrize(
    ("changes", "numbers"),
    [
        ([], []),
        ([0, 3, 0, 2], [1, 3]),
        ([MOST - 1, 0, 1, 1], [0, 2]),  # the first ones are told, up to a thousand
        ([MOST, 1], [0]),
        ([MOST + 7, 1], [0]),
    ],
)
def test_parts_are_told_up_to_a_thousand_changes(changes: list[int], numbers: list[int]) -> None:
    assert list(_first_of(changes)) == numbers


LOST_A, LOST_B = at("RECORD_LOST", 1, b"a", expected="at offset 1"), at("RECORD_LOST", 2, b"b")
MORE_AT = at(MORE, 9)


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ([LOST_A, LOST_B], [("RECORD_LOST", 1), ("RECORD_LOST", 2)]),
        ([LOST_A, at("RECORD_EXTRA", 7, b"a"), LOST_B], [("RECORD_MOVED", 1), ("RECORD_LOST", 2)]),
        ([at("RECORD_EXTRA", 7, b"a"), LOST_B, LOST_A], [("RECORD_MOVED", 1), ("RECORD_LOST", 2)]),
        ([at("RECORD_DUPLICATED", 7, b"b"), LOST_B], [("RECORD_MOVED", 2)]),
        # It is there twice: one of them has moved, the other one is too many.
        (
            [LOST_A, at("RECORD_EXTRA", 7, b"a"), at("RECORD_EXTRA", 8, b"a")],
            [("RECORD_MOVED", 1), ("RECORD_EXTRA", 8)],
        ),
        ([at("RECORD_EXTRA", 7, b"c"), LOST_B], [("RECORD_EXTRA", 7), ("RECORD_LOST", 2)]),
        # Behind the first one that says that there is more nothing is told.
        ([LOST_A, MORE_AT, LOST_B, at(MORE, 12)], [("RECORD_LOST", 1), (MORE, 9)]),
        ([MORE_AT, LOST_A], [(MORE, 9)]),
    ],
)  # fmt: skip
def test_what_one_part_lost_and_another_has_too_many_has_moved(
    told: list[ReportedDifference], found: list[tuple[str, int]]
) -> None:
    assert places(_findings_with_moves(told, False)) == found
    if MORE not in dict(found):
        last = told[-1].finding if found[-1][0] != "RECORD_MOVED" else None
        more = _findings_with_moves(told, True)
        assert places(more[:-1]) == found
        assert (more[-1].code, more[-1].broker) == (MORE, "s")
        assert last is None or more[-1].physical_offset == found[-1][1]
    else:
        assert places(_findings_with_moves(told, True)) == found


def test_what_moved_is_named_as_what_was_lost_and_by_where_it_is_now() -> None:
    (one,) = _findings_with_moves(
        [LOST_A, at("RECORD_EXTRA", 7, b"a", actual="at offset 7")], False
    )
    usual = finding("RECORD_MOVED")
    assert (one.expected, one.actual) == ("at offset 1", "at offset 7")
    assert (one.severity, one.detail) == (LOST_A.finding.severity, usual.detail)


# Tasks


class Asked:
    """Somebody who runs tasks, and remembers what was asked."""

    def __init__(self, answer: Callable[[Task], TaskResult]) -> None:
        self.asked: list[tuple[str, list[Task], bool]] = []
        self._answer = answer

    def run(self, label: str, work: Work, tasks: Sequence[Task], is_apart: bool) -> Answers:
        self.asked.append((label, list(tasks), is_apart))
        return {task.number: self._answer(task) for task in reversed(tasks)}


def laid(
    asked: Asked, ends: tuple[int, int], shift: int = 100, *, is_whole: bool = True
) -> list[tuple[str, int | None]]:
    """Logs of which all that was compared differs."""
    nothing: Any = None
    pair = [
        Side(name, nothing, Log(LocalFiles(), [], end), 0)
        for name, end in zip("ms", ends, strict=True)
    ]
    work = Work((pair[0], pair[1]), frozenset(), 16)
    compared = [(0, 50), (50, min(ends))]
    found = Shifts(asked.run, work, SPLIT).aligned(
        compared, [(50, min(ends), shift)], is_whole=is_whole
    )
    assert len(found.regions) == 1
    return places(found.findings)


def lost(task: Task) -> TaskResult:
    return TaskResult(told=[at("RECORD_LOST", task.number, b"%d" % task.number)], changes=1)


def test_a_short_region_is_one_task_that_tells_at_once() -> None:
    asked = Asked(lost)
    assert laid(asked, (100 + 2 * SPLIT, 100 + 2 * SPLIT)) == [("RECORD_LOST", 0)]
    ((_, tasks, is_apart),) = asked.asked
    end = 100 + 2 * SPLIT
    assert tasks == [ShiftedPart(0, LogPart((0, end), (0, end), 100, True), MOST, True)]
    assert is_apart
    asked = Asked(lost)
    laid(asked, (500, 600), is_whole=False)
    assert asked.asked[0][1] == [
        ShiftedPart(0, LogPart((0, 500), (0, 500), 100, False), MOST, True)
    ]


@pytest.mark.parametrize("ends", [(2000, 1700), (1700, 2000), (1701, 1700)])
def test_a_long_region_is_cut_where_both_logs_have_the_same(ends: tuple[int, int]) -> None:
    """Landmarks of one side lie where the tasks of both pick them, in any order."""
    marks = {1: (900, 1000), 2: (1000, 1100), 5: (1690, 1695)}
    outside = {8: (60, 99), 9: (5000, 5000)}

    def answer(task: Task) -> TaskResult:
        if not isinstance(task, Landmarks):
            return lost(task) if task.number != 0 else TaskResult()
        here = {run: at for run, at in marks.items() if task.low <= at[task.side] < task.high}
        if task.low == 100:
            here |= outside
        return TaskResult(anchors=[(task.side, run, at[task.side]) for run, at in here.items()])

    asked = Asked(answer)
    found = laid(asked, ends)
    (picking, first, second) = asked.asked
    assert [(one.side, one.low, one.high) for one in picking[1] if isinstance(one, Landmarks)] == [
        (side, low, min(low + SPLIT, end))
        for side, end in enumerate(ends)
        for low in range(100, end, SPLIT)
    ]
    assert {one.every for one in picking[1] if isinstance(one, Landmarks)} == {SPLIT // 8}
    assert [task.number for task in picking[1]] == list(range(len(picking[1])))
    assert not picking[2]
    # The second landmark is too near to the first, and the last one too near to that.
    parts = [
        LogPart((0, 900), (0, 1000), 100, False),
        LogPart((900, ends[0]), (1000, ends[1]), -1, True),
    ]
    assert first[1:] == (
        [ShiftedPart(at, part, MOST, False) for at, part in enumerate(parts)],
        True,
    )
    assert second[1:] == ([ShiftedPart(1, parts[1], MOST, True)], True)
    assert found == [("RECORD_LOST", 1)]


def test_landmarks_are_at_least_as_far_apart_as_bytes_are() -> None:
    asked = Asked(lambda task: TaskResult())
    nothing: Any = None
    side = Side("m", nothing, Log(LocalFiles(), [], 100), 0)
    Shifts(asked.run, Work((side, side), frozenset(), 16), 4).aligned(
        [(0, 100)], [(0, 100, 0)], is_whole=True
    )
    assert {one.every for one in asked.asked[0][1] if isinstance(one, Landmarks)} == {1}


def test_each_long_region_has_landmarks_of_its_own_and_a_short_one_has_none() -> None:
    asked = Asked(lambda task: TaskResult())
    nothing: Any = None
    side = Side("m", nothing, Log(LocalFiles(), [], 9000), 0)
    compared = [(0, 2000), (2000, 2500), (2500, 3000), (3000, 3500), (3500, 9000)]
    apart = [(0, 2000, 100), (2500, 3000, 2600), (3500, 9000, 7000)]
    Shifts(asked.run, Work((side, side), frozenset(), 16), SPLIT).aligned(
        compared, apart, is_whole=True
    )
    (_, picked, _), (_, parts, _), *rest = asked.asked
    assert [(each.side, each.low, each.high) for each in picked if isinstance(each, Landmarks)] == [
        (side, low, min(low + SPLIT, end))
        for start, end in ((100, 2000), (7000, 9000))
        for side in (0, 1)
        for low in range(start, end, SPLIT)
    ]
    assert [each.part.shift for each in parts if isinstance(each, ShiftedPart)] == [100, 2600, 7000]
    assert [tasks for _, tasks, _ in rest] in ([], [[]])


def test_of_more_changes_than_are_told_it_is_said_that_there_are_more() -> None:
    told = [at("RECORD_LOST", 5, b"5")]
    assert laid(Asked(lambda task: TaskResult(told=told, changes=1)), (500, 500)) == [
        ("RECORD_LOST", 5)
    ]
    more = laid(Asked(lambda task: TaskResult(told=told, changes=2)), (500, 500))
    assert more == [("RECORD_LOST", 5), (MORE, 5)]


def test_where_nothing_is_out_of_step_nobody_is_asked() -> None:
    asked = Asked(lost)
    nothing: Any = None
    side = Side("m", nothing, Log(LocalFiles(), [], 100), 0)
    found = Shifts(asked.run, Work((side, side), frozenset(), 16), SPLIT).aligned(
        [(0, 100)], [(0, 100, -1)], is_whole=True
    )
    assert (found.findings, found.regions, asked.asked) == ([], [], [])


def test_a_task_that_could_not_read_ends_it() -> None:
    def answer(task: Task) -> TaskResult:
        return TaskResult(failed="gone" if isinstance(task, ShiftedPart) else "")

    with pytest.raises(CannotDecide, match="gone"):
        laid(Asked(answer), (500, 500))
    with pytest.raises(CannotDecide, match="no marks"):
        laid(Asked(lambda task: TaskResult(failed="no marks" if task.number else "")), (9000, 9000))
