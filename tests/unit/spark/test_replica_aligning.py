"""Logs out of step: what is lost, doubled, moved or changed is found by content."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_ha.scan.replica.aligning import Aligned, Change, Item, align, identity_of
from tests.kits.draws import draws


def log(names: Sequence[int], size: int = 100) -> list[Item]:
    return [Item(at * size, size, b"%d" % name) for at, name in enumerate(names)]


def aligned(one: Sequence[int], other: Sequence[int], most: int = 100) -> Aligned:
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
    record = bytes(range(100))
    moved = record[:20] + bytes(16) + record[36:]
    assert identity_of(record) == identity_of(memoryview(moved))
    assert identity_of(record) != identity_of(record[:99])
