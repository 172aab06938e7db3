"""Logs out of step: what is lost, doubled, moved or changed is found by content."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_ha.lake.scan.replica.aligning import (
    LOOK_AHEAD,
    Alignment,
    Change,
    Item,
    align,
    identity_of,
)
from tests.kits.draws import draws


def log(names: Sequence[int], size: int = 100) -> list[Item]:
    return [Item(at * size, size, b"%d" % name) for at, name in enumerate(names)]


def aligned(one: Sequence[int], other: Sequence[int], most: int = 100) -> Alignment:
    return align(iter(log(one)), iter(log(other)), most)


def told(one: Sequence[int], other: Sequence[int]) -> list[tuple[str, int | None]]:
    return [
        (step.change.name, int(step.master.identity) if step.master else None)
        for step in aligned(one, other).steps
    ]


ROW = list(range(60))


def test_equal_logs() -> None:
    assert aligned(ROW, ROW).steps == []


def test_one_lost() -> None:
    assert told(ROW, ROW[:20] + ROW[21:]) == [("LOST", 20)]


def test_several_in_a_row_lost() -> None:
    assert told(ROW, ROW[:20] + ROW[25:]) == [("LOST", number) for number in range(20, 25)]


def test_one_doubled_and_one_strange() -> None:
    assert told(ROW, [*ROW[:21], 20, *ROW[21:]]) == [("DUPLICATED", 20)]
    assert told(ROW, [*ROW[:20], 999, *ROW[20:]]) == [("EXTRA", None)]


def test_neighbours_swapped_are_in_step_afterwards() -> None:
    other = ROW.copy()
    other[20:22] = [21, 20]
    assert told(ROW, other) == [("MOVED", 20), ("MOVED", 21)]
    found = aligned(ROW, other)
    assert found.in_step
    assert found.end < 6000


def test_one_that_moved_far() -> None:
    other = ROW[:20] + ROW[21:30] + [20] + ROW[30:]
    assert ("MOVED", 20) in told(ROW, other)
    assert len(told(ROW, other)) == 1


def test_changed_in_its_place() -> None:
    other = ROW.copy()
    other[20] = 999
    [step] = aligned(ROW, other).steps
    assert step.change is Change.CHANGED
    assert step.master
    assert step.slave
    assert step.master.offset == step.slave.offset == 2000


def test_it_ends_when_there_is_too_much() -> None:
    found = aligned(ROW, [number + 1000 * (number % 7 == 3) for number in ROW], most=3)
    assert not found.complete
    assert len(found.steps) == 3


def test_what_only_the_longer_log_has_at_its_end_is_no_loss() -> None:
    """That is told by the bounds."""
    assert told(ROW, ROW[:20] + ROW[21:50]) == [("LOST", 20)]


@settings(max_examples=draws(50))
@given(
    st.lists(st.integers(2, 57), unique=True, max_size=5).filter(
        lambda some: all(abs(a - b) > 4 for a in some for b in some if a is not b)
    ),
    st.data(),
)
def test_several_changes_far_enough_apart_are_all_found(
    some: list[int], data: st.DataObject
) -> None:
    other: list[int] = []
    expected = []
    kinds = {number: data.draw(st.sampled_from(["LOST", "DUPLICATED"])) for number in some}
    for number in ROW:
        kind = kinds.get(number)
        other += {"LOST": [], "DUPLICATED": [number] * 2, None: [number]}[kind]
        if kind:
            expected.append((kind, number))
    found = told(ROW, other)
    assert found == expected[: len(found)]
    # Logs that are in step again are none of its business any more.
    assert aligned(ROW, other).in_step or len(found) == len(expected)


def test_identity_is_of_the_content() -> None:
    """All of a record but the two places that it says it is at: bytes 20 to 35."""
    record = bytes(range(100))
    for at in range(100):
        moved = bytearray(record)
        moved[at] ^= 1
        assert (identity_of(memoryview(moved)) == identity_of(record)) is (20 <= at < 36)
    assert identity_of(record) != identity_of(record[:99])
    assert len(identity_of(record)) == 16  # a task holds one for each record it has seen


@pytest.mark.parametrize(
    ("master", "slave", "is_in_step", "end"),
    [
        (ROW[:38], [*ROW[:20], 21, 20, *ROW[22:38]], True, 3800),  # 16 alike behind the change
        (ROW[:37], [*ROW[:20], 21, 20, *ROW[22:37]], False, 3700),  # 15: the log ends before
        (ROW, [*ROW[:20], 21, 20, *ROW[22:]], True, 3800),  # what is behind them is not read
        (ROW, ROW, False, 6000),  # they were never out of step
        (ROW, [*ROW[:20], *ROW[21:]], False, 6000),  # alike, and each in another place
        (ROW[:30], [*ROW[:20], 999], False, 3000),  # what was lost last belongs to it
    ],
)
def test_logs_are_in_step_again_behind_sixteen_equal_records_in_equal_places(
    master: list[int], slave: list[int], is_in_step: bool, end: int
) -> None:
    found = aligned(master, slave)
    assert (found.in_step, found.end, found.complete) == (is_in_step, end, True)


def test_when_there_is_too_much_it_says_up_to_where_it_looked() -> None:
    """From there on nothing is said, in step or not."""
    other = [number for number in ROW if number not in range(20, 25) and number != 40]
    assert aligned(ROW, other, most=5)[1:] == (4000, False, False)
    assert aligned(ROW, other, most=6)[1:] == (6000, False, True)


@pytest.mark.parametrize(
    ("slave", "wanted"),
    [
        ([*ROW[:20], 998, 999, *ROW[22:]], [("CHANGED", 20), ("CHANGED", 21)]),
        ([*ROW[:20], 998, 999, *ROW[20:]], [("EXTRA", None), ("EXTRA", None)]),
        # Two alike in a row are no chance, one between two changes may be one.
        ([*ROW[:20], 998, 21, 22, 999, *ROW[24:]], [("CHANGED", 20), ("CHANGED", 23)]),
        (
            [*ROW[:20], 21, 998, 999, *ROW[22:]],
            [("MOVED", 21), ("LOST", 20), *[("EXTRA", None)] * 2],
        ),
    ],
)
def test_changes_that_stand_beside_each_other_are_all_told(
    slave: list[int], wanted: list[tuple[str, int | None]]
) -> None:
    assert told(ROW, slave) == wanted


@pytest.mark.parametrize(
    ("doubled", "behind", "what"),
    [
        (0, 2 * LOOK_AHEAD, "DUPLICATED"),
        (LOOK_AHEAD - 1, 2 * LOOK_AHEAD + 1, "EXTRA"),  # forgotten with all before it
        (LOOK_AHEAD, 2 * LOOK_AHEAD + 1, "DUPLICATED"),
        (LOOK_AHEAD + 1, 3 * LOOK_AHEAD, "DUPLICATED"),
    ],
)
def test_a_record_is_known_again_as_far_back_as_they_are_kept(
    doubled: int, behind: int, what: str
) -> None:
    row = list(range(4 * LOOK_AHEAD))
    (step,) = aligned(row, [*row[:behind], doubled, *row[behind:]]).steps
    assert step.change.name == what


def test_no_more_is_read_than_may_be_looked_at() -> None:
    """A log of a terabyte does not come into memory because of one record."""
    most = [0, 0]

    def counted(side: int, names: Sequence[int]) -> Iterator[Item]:
        for item in log(names):
            most[side] += 1
            yield item

    row = list(range(4 * LOOK_AHEAD))
    slave = [number for number in row if number not in (20, 30)]
    found = align(counted(0, row), counted(1, slave), 2)
    assert len(found.steps) == 2
    most[:] = 0, 0
    slave = [number for number in row if number not in (20, 30, 40)]
    align(counted(0, row), counted(1, slave), 2)
    assert most == [30 + LOOK_AHEAD, 29 + LOOK_AHEAD]
