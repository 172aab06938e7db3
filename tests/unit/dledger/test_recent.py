"""What is kept in memory of a ledger: bounded, and never what another leader replaced."""

import pytest

from rmq_ha.dledger.recent import RecentEntries
from rmq_ha.dledger.values import Entry


def entries(first: int, *sizes: int) -> list[Entry]:
    """Of so many bytes each, with their headers."""
    return [Entry(first + n, 1, 0, bytes(size - 48)) for n, size in enumerate(sizes)]


def kept(recent: RecentEntries) -> list[int]:
    return [index for index in range(20) if recent.get(index) is not None]


@pytest.mark.parametrize(
    ("index", "left"),
    [(2, []), (4, []), (5, [5]), (7, [5, 6, 7]), (8, [5, 6, 7, 8]), (99, [5, 6, 7, 8])],
)
def test_nothing_behind_a_cut_is_kept(index: int, left: list[int]) -> None:
    """Whatever was in its place before is another entry now; what lies before is still true."""
    recent = RecentEntries(1000)
    recent.add(entries(5, 100, 100, 100, 100))
    recent.cut(index)
    assert kept(recent) == left
    recent.add(entries((left or [4])[-1] + 1, 100))
    assert len(kept(recent)) == len(left) + 1


def test_the_newest_entry_is_kept_however_large_it_is() -> None:
    """And of the others what has room."""
    recent = RecentEntries(400)
    recent.add(entries(0, 1000))
    assert kept(recent) == [0]
    recent.add(entries(1, 500))
    assert kept(recent) == [1]
    recent.add(entries(2, 100))
    assert kept(recent) == [2]
    recent.add(entries(3, 100, 100, 100))
    assert kept(recent) == [2, 3, 4, 5]
    recent.add(entries(6, 100))
    assert kept(recent) == [4, 5, 6]


def test_entries_that_do_not_follow_begin_anew() -> None:
    recent = RecentEntries(1000)
    recent.add(entries(0, 100, 100))
    recent.add(entries(7, 100))
    assert kept(recent) == [7]
    recent.clear()
    assert (kept(recent), recent.some(7, 100, 9)) == ([], [])


@pytest.mark.parametrize(
    ("index", "max_bytes", "max_count", "found"),
    [
        (4, 999, 9, []),
        (5, 0, 9, [5]),
        (5, 200, 9, [5, 6]),
        (5, 199, 9, [5]),
        (6, 999, 2, [6, 7]),
        (8, 999, 9, [8]),
        (9, 999, 9, []),
    ],
)
def test_some_of_them(index: int, max_bytes: int, max_count: int, found: list[int]) -> None:
    """At least the first one, if it is there."""
    recent = RecentEntries(1000)
    recent.add(entries(5, 100, 100, 100, 100))
    assert [entry.index for entry in recent.some(index, max_bytes, max_count)] == found
