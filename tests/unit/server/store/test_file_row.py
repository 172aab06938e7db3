"""Which descriptors of a row of files stay open."""

from random import Random

import pytest

from rmq_ha.base.seams import File
from rmq_ha.server.store.log.files import FileRow
from rmq_ha.testing.disk import SimDisk

SIZE = 100


def a_row(count: int) -> tuple[FileRow, list[File]]:
    row = FileRow(SimDisk(Random(1), lambda: 0), ["/m"], SIZE)
    return row, [row.create(SIZE * number) for number in range(count)]


@pytest.mark.parametrize(
    ("sizes", "left"),
    [
        ({0: 0, 10: 0, 11: SIZE}, [10, 11]),
        ({0: 0, 1: 0, 10: 0, 20: 0, 21: SIZE, 22: SIZE}, [20, 21, 22]),
        ({1: 0, 2: 0, 3: SIZE}, [1, 2, 3]),
        ({5: 0, 9: SIZE}, [9]),
        ({5: SIZE, 6: SIZE}, [5, 6]),
    ],
)
def test_files_without_bytes_before_a_gap_go(sizes: dict[int, int], left: list[int]) -> None:
    """The row had just been begun anew elsewhere when a crash came: all before it was lost."""
    disk = SimDisk(Random(1), lambda: 0)
    for number, size in sizes.items():
        disk.replace(f"/m/{SIZE * number:020d}", bytes(size))
    row = FileRow(disk, ["/m"], SIZE)
    row.load()
    assert row.starts == [SIZE * number for number in left]


def still_open(files: list[File]) -> list[int]:
    found = []
    for number, file in enumerate(files):
        try:
            file.pread(1, 0)
            found.append(number)
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    ("count", "before", "left"),
    [
        (8, 6 * SIZE, [5, 6, 7]),
        (8, 8 * SIZE, [5, 6, 7]),
        (8, 2 * SIZE, [2, 3, 4, 5, 6, 7]),
        (8, 2 * SIZE - 1, [1, 2, 3, 4, 5, 6, 7]),
        (4, 4 * SIZE, [1, 2, 3]),
        (3, 3 * SIZE, [0, 1, 2]),
        (2, 2 * SIZE, [0, 1]),
    ],
)
def test_the_oldest_that_are_not_written_any_more_are_closed(
    monkeypatch: pytest.MonkeyPatch, count: int, before: int, left: list[int]
) -> None:
    """As many as are too many, and no more."""
    monkeypatch.setattr("rmq_ha.server.store.log.files._MAX_OPEN", 3)
    row, files = a_row(count)
    row.close_idle(before)
    assert still_open(files) == left
    assert row.file(0).pread(1, 0) == b"\0"


@pytest.mark.parametrize(
    ("full", "used"),
    [("", "abcabc"), ("b", "acacac"), ("ab", "cccccc"), ("abc", "abcabc")],
)
def test_new_files_go_to_the_directories_that_have_room(full: str, used: str) -> None:
    """In turn; if none has, it is for the cleaner to refuse what is put."""
    disk = SimDisk(Random(1), lambda: 0)
    row = FileRow(disk, ["/b", "/a", "/c", "/a"], SIZE, has_room=lambda at: at[1:] not in full)
    for number in range(6):
        row.create(SIZE * number)
    assert "".join(row.path(SIZE * number)[1] for number in range(6)) == used
    again = FileRow(disk, ["/a", "/b", "/c"], SIZE)
    again.load()
    assert again.starts == row.starts
