"""Queues with gaps, where records that the log has lost were left out."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.model.message import DispatchRequest
from rmq_ha.base.store_format.consumequeue import FILLER_SIZE, UNIT_SIZE
from rmq_ha.server.store.queues.search import Bounds, first_from, nearest_in_time
from rmq_ha.server.store.queues.table import ConsumeQueue, ConsumeQueueTable
from rmq_ha.testing.disk import SimDisk

FILLER = (0, FILLER_SIZE, 0)
FILE = 800
UNITS = 40


def search(units: list[tuple[int, int, int]], wanted: int) -> int:
    def behind_fillers(position: int, end: int) -> int:
        while position < end and units[position // UNIT_SIZE] == FILLER:
            position += UNIT_SIZE
        return position

    def unit(position: int) -> tuple[int, int, int]:
        return units[position // UNIT_SIZE]

    return first_from(unit, behind_fillers, 0, len(units) * UNIT_SIZE, wanted) // UNIT_SIZE


@given(
    runs=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30))), wanted=st.integers(0, 9999)
)
def test_as_a_walk_finds_it(runs: list[tuple[int, int]], wanted: int) -> None:
    """Fillers at the beginning, gaps of any length, and fillers at the end hide no message."""
    units: list[tuple[int, int, int]] = []
    for gap, count in runs:
        units += [FILLER] * gap
        units += [(100 * number, 100, 0) for number in range(len(units), len(units) + count)]
    walked = (n for n, one in enumerate(units) if one != FILLER and one[0] >= wanted)
    assert search(units, wanted) == next(walked, len(units))


def test_a_message_of_the_first_millisecond_there_is_can_be_found() -> None:
    """What is negative is gone; 0 is a time."""
    units = [(at, 100, 0) for at in range(0, 500, 100)]
    bounds = Bounds([0], 5 * UNIT_SIZE, UNIT_SIZE, 5 * UNIT_SIZE)

    def found(ms: int, times: list[int]) -> int:
        return nearest_in_time(
            bounds,
            lambda position: units[position // UNIT_SIZE],
            lambda position, end: position,
            ms,
            lambda offset, size: times[offset // 100],
            0,
        )

    assert found(0, [0] * 5) == 2 * UNIT_SIZE
    assert found(3, [0, 0, 0, 1, 3]) == 4 * UNIT_SIZE
    assert found(0, [0, -1, -1, -1, -1]) == 0


def test_a_search_in_time_looks_at_nothing_in_front_of_the_first_message() -> None:
    """It has expired, and nobody knows any more when it was stored."""
    times = [-1, -1, -1, 5, 9]
    at = nearest_in_time(
        Bounds([0], 5 * UNIT_SIZE, 3 * UNIT_SIZE, 5 * UNIT_SIZE),
        lambda position: (position, 100, 0),
        lambda position, end: position,
        5,
        lambda offset, size: times[offset // UNIT_SIZE],
        0,
    )
    assert at == 3 * UNIT_SIZE


def test_one_damaged_record_behind_the_first() -> None:
    """Pair seed 832: the queue began behind the gap, and its first message was not readable."""
    units = [(0, 100, 0), FILLER, *((100 * number, 100, 0) for number in range(2, 32))]
    assert search(units, 0) == 0


def a_queue(numbers: list[int], disk: SimDisk | None = None) -> ConsumeQueue:
    """Whose record number n stands at 100 n of the log; the others are lost."""
    table = ConsumeQueueTable(disk or SimDisk(Random(1), lambda: 1000), "/store", FILE)
    queue = table.queue("T", 0)
    queue.append(
        [DispatchRequest("T", 0, 100 * n, 100, 7, 1, n, "", "", 0, 0, "") for n in numbers]
    )
    return queue


def messages(queue: ConsumeQueue) -> list[int]:
    found: list[int] = []
    for number in range(queue.min_offset, queue.max_offset):
        offset, size, _ = queue.units(number, 1)[0]
        if size != FILLER_SIZE:
            assert offset == 100 * number
            found.append(number)
    return found


@given(gap=st.integers(0, 130), before=st.integers(1, 90), wanted=st.integers(-1, 25_000))
def test_by_place(gap: int, before: int, wanted: int) -> None:
    """Over several files, one of which may hold fillers only."""
    numbers = [*range(before), *range(before + gap, before + gap + 50)]
    queue = a_queue(numbers)
    behind = (number for number in numbers if 100 * number >= wanted)
    assert queue.offset_by_place(wanted) == next(behind, queue.max_offset)


def test_a_cut_behind_a_gap_keeps_what_is_before_it() -> None:
    """A slave that set its tail aside had an empty queue: the last unit left was a filler."""
    queue = a_queue([*range(10), *range(20, 30)])
    queue.truncate(2000)
    assert messages(queue) == list(range(10))
    assert (queue.max_offset, queue.max_physical_offset) == (10, 1000)


def test_a_cut_below_a_long_gap() -> None:
    """Units behind the end of the log stayed, and what came there later was "built already"."""
    queue = a_queue([*range(35), *range(150, 155)])
    queue.truncate(1000)
    assert messages(queue) == list(range(10))
    assert (queue.max_offset, queue.max_physical_offset) == (10, 1000)


@given(
    numbers=st.sets(st.integers(0, 130), min_size=1),
    first=st.integers(0, 100),
    cut=st.integers(0, 140),
)
def test_any_cut(numbers: set[int], first: int, cut: int) -> None:
    there = [first + n for n in sorted(numbers)]
    queue = a_queue(there)
    queue.truncate(100 * cut)
    left = [n for n in there if n < cut]
    assert messages(queue) == left
    assert queue.max_offset == (left[-1] + 1 if left else 0)


def test_a_file_that_ends_in_a_gap_does_not_expire() -> None:
    """The place of a filler, 0, lies before any log: 39 messages could not be read any more."""
    queue = a_queue([*range(1, 39), 40, 41])
    assert queue.delete_expired(500) == 0
    assert messages(queue) == [*range(5, 39), 40, 41]
    assert queue.delete_expired(3900) == 1


def test_a_file_with_one_message_before_a_gap_does_not_expire() -> None:
    """Its first unit is its last message."""
    queue = a_queue([0, 40, 41])
    assert queue.delete_expired(0) == 0
    assert messages(queue) == [0, 40, 41]
    assert queue.delete_expired(1) == 1


def test_nothing_is_taken_back_behind_a_gap() -> None:
    """Two units too many, as damage leaves them, cost all of a queue that had a gap before."""
    queue = a_queue([*range(10), *range(20, 22)])
    queue.cut_back(lambda number, offset, size: number < 20)
    assert messages(queue) == list(range(10))
    assert queue.max_offset == 20
    assert queue.max_physical_offset == 1000


@given(numbers=st.sets(st.integers(0, 160), min_size=1), wanted=st.integers(0, 170))
def test_the_first_of_a_time_over_files_with_gaps(numbers: set[int], wanted: int) -> None:
    """Some files end in fillers, and some hold nothing else."""
    there, queue = sorted(numbers), a_queue(sorted(numbers))
    begun = queue.offset_by_time(10 * wanted, lambda offset, size: offset // 10, 0)
    assert begun == next((n for n in there if n >= wanted), queue.max_offset)


@given(numbers=st.sets(st.integers(0, 39), min_size=1), wanted=st.integers(0, 45))
def test_by_time(numbers: set[int], wanted: int) -> None:
    """The nearest message in time, whatever is missing; ms 10 n for number n."""
    there, queue = sorted(numbers), a_queue(sorted(numbers))
    begun = queue.offset_by_time(10 * wanted, lambda offset, size: offset // 10, 0)
    assert begun == next((n for n in there if n >= wanted), queue.max_offset)
    found = queue.offset_by_time(10 * wanted, lambda offset, size: offset // 10, 0, nearest=True)
    distance = min(abs(n - wanted) for n in there)
    assert found in there
    assert abs(found - wanted) == distance
