"""What is kept in memory of a ledger: bounded, and never what another leader replaced."""

from itertools import accumulate, count

import pytest

from rmq_ha.base.store_format.dledger_values import Entry
from rmq_ha.server.dledger.ledger_reader import RecentEntries


def entries(first: int, *sizes: int, at: int = 0) -> list[Entry]:
    """Of so many bytes each, with their headers, side by side."""
    ends = accumulate(sizes, initial=at)
    made = zip(count(first), sizes, ends, strict=False)
    return [Entry(index, 1, pos, bytes(size - 48)) for index, size, pos in made]


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
    recent.add(entries(1, 500, at=1000))
    assert kept(recent) == [1]
    recent.add(entries(2, 100, at=1500))
    assert kept(recent) == [2]
    recent.add(entries(3, 100, 100, 100, at=1600))
    assert kept(recent) == [2, 3, 4, 5]
    recent.add(entries(6, 100, at=1900))
    assert kept(recent) == [4, 5, 6]


def test_entries_that_do_not_follow_begin_anew() -> None:
    recent = RecentEntries(1000)
    recent.add(entries(0, 100, 100))
    recent.add(entries(7, 100))
    assert kept(recent) == [7]
    recent.clear()
    assert (kept(recent), recent.entries_from(7, 100, 9)) == ([], [])


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
    assert [entry.index for entry in recent.entries_from(index, max_bytes, max_count)] == found
