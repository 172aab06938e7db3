"""What was appended is taken in slices, in its order, whatever came how."""

from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.model.message import DispatchRequest
from rmq_ha.base.runs.row_list import rows_of
from rmq_ha.base.runs.run import SLICE, SLICE_WORK, PendingRuns, Run, by_name

SIZE = 100
GAP = 48


def runs_of(sizes: list[int], keys: str, gap: int) -> list[Run]:
    """Side by side; each record `gap` bytes behind the one before."""
    made, position, number = [], 0, 0
    for size in sizes:
        rows, start = [], position
        for _ in range(size):
            text = keys if number % 7 == 0 else ""
            place = position + gap
            rows.append(("T", 0, place, SIZE, 0, 1, number, text, "", 0, 0, ""))
            position, number = place + SIZE, number + 1
        made.append(Run(start, position, rows_of(rows)))
    return made


@given(
    st.lists(st.integers(1, 2 * SLICE + 1), max_size=6),
    st.integers(0, 4000),
    st.sampled_from([0, GAP]),
    st.lists(st.integers(0, 40_000), max_size=4),
)
def test_slices_are_all_there_is_in_order(sizes, keys, gap, ends) -> None:
    """And no record that ends behind what may be read by then."""
    runs = runs_of(sizes, "k" * keys, gap)
    pending = PendingRuns()
    for run in runs:
        pending.add(run)
    taken, position = [], 0
    for end in [*sorted(ends), 1 << 40]:
        while (found := pending.take(position, end)) is not None:
            assert found.start == position
            assert 0 < len(found.rows) <= SLICE
            assert found.rows.work == sum(len(row[7]) for row in found.rows)
            last = len(found.rows[-1][7])
            assert found.rows.work - last < SLICE_WORK or len(found.rows) == 1
            assert found.end == found.rows[-1][2] + SIZE <= end
            taken += found.rows
            position = found.end
    assert taken == [row for run in runs for row in run.rows]
    assert not pending


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.sampled_from([0, GAP]), st.data())
def test_whoever_has_read_some_of_it_goes_on_behind(sizes, gap, data) -> None:
    """A slice that was read from the log may end anywhere in what is remembered."""
    runs = runs_of(sizes, "", gap)
    rows = [row for run in runs for row in run.rows]
    pending = PendingRuns()
    for run in runs:
        pending.add(run)
    read = data.draw(st.integers(0, len(rows) - 1))
    position = rows[read - 1][2] + SIZE if read else 0
    found = pending.take(position, 1 << 40)
    assert found is not None
    assert list(found.rows) == rows[read : read + SLICE]
    assert len(pending) == len(rows[read + SLICE :])


def test_what_ends_a_file_is_in_no_record_and_passed_over() -> None:
    """The blank behind the last record of a file belongs to its run."""
    (first,), pending = runs_of([2], "", 0), PendingRuns()
    pending.add(first._replace(end=1024))
    second = ("T", 0, 1024, SIZE, 0, 1, 2, "", "", 0, 0, "")
    pending.add(Run(1024, 1024 + SIZE, rows_of([second])))
    found = pending.take(0, 1024 + SIZE)
    assert found is not None
    assert (found.end, len(found.rows)) == (1024 + SIZE, 3)


def test_who_asks_for_names_gets_them() -> None:
    (run,) = runs_of([2], "k", 0)
    heard: list[list[DispatchRequest]] = []
    by_name(heard.append)(run.rows)
    assert heard == [run.rows]
    assert [request.queue_offset for request in heard[0]] == [0, 1]
