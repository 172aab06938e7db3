"""Index files as bytes: what they hold, and how many slots they have where nobody says so."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.base.errors import CannotDecide
from rmq_ha.base.host.files import LocalFiles
from rmq_ha.base.store_format.index import index_file_size
from rmq_ha.lake.scan.store.directory import open_store
from rmq_ha.lake.scan.store.parts import StoredIndexFile
from tests.unit.lake.scan.parts_kit import Item, index_of, log_of

SLOTS = 10
NUMBERS = (13, 3, 24, 13, 0, 7)


def chained(*hashes: int, slots: int = SLOTS, step: int = 10) -> tuple[list[Item], dict[int, int]]:
    """Each leads to the one before it in its slot."""
    heads: dict[int, int] = {}
    items: list[Item] = []
    for number, each in enumerate(hashes, 1):
        items.append((each, step * number, number, heads.get(each % slots, 0)))
        heads[each % slots] = number
    return items, heads


ITEMS, HEADS = chained(*NUMBERS)


def guessed(file: StoredIndexFile) -> StoredIndexFile:
    """The same file for somebody who does not know its sizes."""
    return StoredIndexFile(LocalFiles(), file.path, file.size, None)


def test_a_file_of_another_size_than_its_numbers_make_is_refused(tmp_path: Path) -> None:
    file = index_of(tmp_path, ITEMS, HEADS, slots=SLOTS)
    assert (file.slots, file.items, file.count) == (SLOTS, 9, 6)
    with pytest.raises(CannotDecide, match="with 11 slots and 9 items it would have"):
        StoredIndexFile(LocalFiles(), file.path, file.size, (11, 9))


@pytest.mark.parametrize(
    ("said", "count"), [(0, 0), (1, 0), (2, 1), (7, 6), (9, 8), (10, 8), (99, 8)]
)
def test_a_file_holds_no_more_than_it_has_room_for(tmp_path: Path, said: int, count: int) -> None:
    assert index_of(tmp_path, ITEMS, HEADS, slots=SLOTS, count=said).count == count


def test_items_and_heads_are_read_in_parts(tmp_path: Path) -> None:
    file = index_of(tmp_path, ITEMS, HEADS, slots=SLOTS)
    for start, stop in ((0, None), (0, 6), (2, 4), (5, 99), (3, 3), (4, 2), (6, 9)):
        found = file.entries(start, stop)
        some = ITEMS[start:stop]
        assert found.hash.tolist() == [item[0] for item in some]
        assert found.slot.tolist() == [item[0] % SLOTS for item in some]
        assert found.physical_offset.tolist() == [item[1] for item in some]
        assert found.time_diff.tolist() == [item[2] for item in some]
        assert found.previous.tolist() == [item[3] for item in some]
    heads = [HEADS.get(slot, 0) for slot in range(SLOTS)]
    for start, stop in ((0, None), (0, 10), (3, 5), (7, 99)):
        assert (
            list(file.slot_numbers(start, len(heads) if stop is None else stop))
            == heads[start:stop]
        )


# How many slots


@pytest.mark.parametrize("slots", [1, 3, 10, 25])
@pytest.mark.parametrize("room", [7, 8, 20])
def test_items_that_fit_their_slots_show_how_many_there_are(
    tmp_path: Path, slots: int, room: int
) -> None:
    items, heads = chained(*NUMBERS, slots=slots)
    file = guessed(index_of(tmp_path, items, heads, slots=slots, room=room))
    assert (file.slots, file.items) == (slots, room)
    assert file.entries().physical_offset.tolist() == [item[1] for item in items]


def test_one_item_and_two_of_one_record_show_it_too(tmp_path: Path) -> None:
    """The last two stand at one place of the log: so it is not the first that is found."""
    items, heads = chained(12)
    assert guessed(index_of(tmp_path, items, heads, slots=SLOTS)).slots == SLOTS
    items = [*ITEMS[:-1], (*ITEMS[-1][:1], ITEMS[-2][1], *ITEMS[-1][2:])]
    assert guessed(index_of(tmp_path, items, HEADS, slots=SLOTS)).slots == SLOTS


@pytest.mark.parametrize("slots", [1, 4, 5, 6, 7, 10, 50, 53])
@pytest.mark.parametrize("count", [0, 1])
def test_for_a_file_without_items_any_numbers_do_that_fit(
    tmp_path: Path, slots: int, count: int
) -> None:
    file = guessed(index_of(tmp_path, [], {}, slots=slots, room=11, count=count))
    assert index_file_size(file.slots, file.items) == file.size
    assert file.slots > 0
    assert file.count == 0


def changed(number: int, field: int, value: int) -> list[Item]:
    item = list(ITEMS[number])
    item[field] = value
    return [*ITEMS[:number], tuple(item), *ITEMS[number + 1 :]]  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("items", "heads", "bounds"),
    [
        (changed(1, 0, -7), HEADS, None),  # no hash is negative; its slot would be the same
        (changed(0, 3, 1), HEADS, None),  # leads to itself
        (changed(2, 3, 5), HEADS, None),  # or forward
        (changed(2, 3, -1), HEADS, None),
        (ITEMS, HEADS | {3: 1}, None),  # a slot that has forgotten its newest
        (ITEMS, HEADS | {9: 2}, None),
        (ITEMS, HEADS, (11, 60)),  # another first record
        (ITEMS, HEADS, (10, 61)),  # another last one
        (ITEMS, HEADS, (10, -1)),
    ],
)
def test_items_that_do_not_fit_show_nothing(
    tmp_path: Path, items: Sequence[Item], heads: dict[int, int], bounds: tuple[int, int] | None
) -> None:
    file = index_of(tmp_path, items, heads, slots=SLOTS, bounds=bounds)
    with pytest.raises(CannotDecide, match="give the broker's numbers"):
        guessed(file)


def ambiguous(folder: Path, **more: Any) -> StoredIndexFile:
    """One item, and the same bytes in a row that was never written: five slots more fit as well."""
    item = (2, 30, 0, 0)
    return index_of(folder, [item, item], {2: 1}, slots=5, count=2, bounds=(30, 30), **more)


def test_a_file_that_several_numbers_fit_shows_nothing(tmp_path: Path) -> None:
    file = ambiguous(tmp_path)
    with pytest.raises(CannotDecide, match="give the broker's numbers"):
        guessed(file)


# All of a store


def store_at(folder: Path) -> Path:
    """A log of two files, and no index."""
    for name in ("commitlog", "index"):
        (folder / name).mkdir(parents=True)
    first = log_of({"store_timestamp": 111}, {"store_timestamp": 222})
    second = log_of({"store_timestamp": 333}, base=len(first))
    (folder / "commitlog" / f"{0:020}").write_bytes(first)
    (folder / "commitlog" / f"{len(first):020}").write_bytes(second.ljust(len(first), b"\0"))
    return folder


def numbers(folder: Path, **more: Any) -> tuple[list[tuple[str, int]], int]:
    """The files that can be read with their slots, and how many others there are."""
    store = open_store(str(folder), index_sizes=more.pop("index_sizes", None))
    store.index_hint = more.pop("hint", None)
    found, unreadable = store.index_parts()
    assert all(isinstance(one, CannotDecide) for one in unreadable)
    if unreadable:
        with pytest.raises(CannotDecide):
            store.index_files()
    else:
        assert [file.path for file in store.index_files()] == [file.path for file in found]
    return [(file.path.rpartition("/")[2][-1], file.slots) for file in found], len(unreadable)


def test_a_file_that_does_not_show_its_slots_has_those_of_another_of_its_size(
    tmp_path: Path,
) -> None:
    index = store_at(tmp_path) / "index"
    items, heads = chained(2, 3, 2, slots=5)
    unclear = ambiguous(index, room=30)
    clear = index_of(index, items, heads, slots=5, room=30)
    assert unclear.size == clear.size
    assert numbers(tmp_path) == ([("0", 5), ("1", 5)], 0)
    ambiguous(index, room=31)
    ambiguous(index, room=32)
    assert numbers(tmp_path) == ([("0", 5), ("1", 5)], 2)
    # Somebody has seen the sizes in the other store of the pair; they fit one of them.
    assert numbers(tmp_path, hint=(5, 31)) == ([("0", 5), ("1", 5), ("2", 5)], 1)


def test_an_empty_file_says_nothing_of_others(tmp_path: Path) -> None:
    index = store_at(tmp_path) / "index"
    ambiguous(index, room=30)
    index_of(index, [], {}, slots=5, room=30)
    found, count = numbers(tmp_path)
    assert ([name for name, _ in found], count) == (["1"], 1)


def test_numbers_that_are_given_count_and_nothing_else_does(tmp_path: Path) -> None:
    index = store_at(tmp_path) / "index"
    items, heads = chained(2, 3, 2, slots=5)
    index_of(index, items, heads, slots=5, room=30)
    index_of(index, items, heads, slots=10, room=30)
    assert numbers(tmp_path, index_sizes=(5, 30)) == ([("0", 5)], 1)
    assert numbers(tmp_path, index_sizes=(10, 30), hint=(5, 30)) == ([("1", 10)], 1)


def test_what_is_no_index_file_is_passed_over(tmp_path: Path) -> None:
    index = store_at(tmp_path) / "index"
    (index / "123").mkdir()
    (index / "notes").write_bytes(b"x")
    items, heads = chained(2, 3, 2, slots=5)
    file = index_of(index, items, heads, slots=5)
    assert numbers(tmp_path) == ([(file.path[-1], 5)], 0)


def test_when_a_record_was_stored(tmp_path: Path) -> None:
    store = open_store(str(store_at(tmp_path)))
    size = len(log_of({}))
    assert [store.store_time_of(at) for at in (0, size, 2 * size)] == [111, 222, 333]
    assert [store.store_time_of(at) for at in (-1, 3 * size, 4 * size, 9 * size)] == [0] * 4
    (tmp_path / "commitlog" / f"{0:020}").unlink()
    assert [store.store_time_of(at) for at in (0, 2 * size)] == [0, 333]


def test_a_log_is_split_between_two_places(tmp_path: Path) -> None:
    store = open_store(str(store_at(tmp_path)))
    size = len(log_of({}))

    def spans(*given: int | None) -> list[tuple[int, int]]:
        return [(one.lo, one.hi) for one in store.splits(*given)]  # type: ignore[arg-type]

    assert spans(1 << 20) == [(0, 2 * size), (2 * size, 3 * size)]
    assert spans(size) == [(0, size), (size, 2 * size), (2 * size, 3 * size)]
    assert spans(1 << 20, 9 * size) == [(0, 2 * size), (2 * size, 3 * size)]
    assert spans(1 << 20, size + 5, 5) == [(5, size + 5)]
    assert spans(1 << 20, 2 * size, 0) == [(0, 2 * size)]
