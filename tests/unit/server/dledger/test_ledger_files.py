"""Which files a sync has to take: one too few, and what was synced is not."""

from random import Random

import pytest

from rmq_ha.server.dledger.ledger_files import DirtyRow
from rmq_ha.server.store.log.files import FileRow
from rmq_ha.testing.disk import SimDisk

SIZE = 100


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(Random(1), lambda: 0)


@pytest.fixture
def row(disk: SimDisk) -> DirtyRow:
    return DirtyRow(FileRow(disk, ["/m"], SIZE))


def sync(row: DirtyRow) -> list[int]:
    """Take and sync; the starts of the files."""
    taken = row.opened()
    row.taken()
    for _, file in taken:
        file.sync()
    return [start for start, _ in taken]


def unsafe(disk: SimDisk) -> list[int]:
    return [int(path.rpartition("/")[2]) for path in disk.paths("/m") if not disk.is_safe(path)]


@pytest.mark.parametrize(
    ("position", "size", "files"),
    [
        (0, 1, [0]),
        (0, 100, [0]),
        (0, 101, [0, 100]),
        (99, 1, [0]),
        (99, 2, [0, 100]),
        (50, 250, [0, 100, 200]),
        (100, 100, [100]),
    ],
)
def test_what_is_written_over_the_ends_of_files(
    disk: SimDisk, row: DirtyRow, position: int, size: int, files: list[int]
) -> None:
    """It is read again, in one piece or over the ends, and each file is synced once."""
    if position >= SIZE:
        row.write(0, b"before")
        sync(row)
    data = bytes(1 + number % 250 for number in range(size))
    row.write(position, data)
    assert row.read_over(position, size) == data
    assert row.read(position, size) == data[: SIZE - position % SIZE]
    assert row.read_over(position, 1000).rstrip(b"\0") == data
    assert sync(row) == files
    assert unsafe(disk) == []
    assert sync(row) == []


def test_what_was_cut_off_stays_off(disk: SimDisk, row: DirtyRow) -> None:
    """The zeros are synced as well: else power loss would bring entries of another life back."""
    row.write(0, b"x" * 250)
    sync(row)
    row.cut(120)
    assert sync(row) == [100]
    row.row.close()
    after = DirtyRow(FileRow(disk.crash(), ["/m"], SIZE))
    after.row.load()
    assert after.row.starts == [0, 100]
    assert after.read_over(0, 200) == b"x" * 120 + bytes(80)


def test_a_cut_at_the_edge_of_a_file_leaves_the_others_alone(disk: SimDisk, row: DirtyRow) -> None:
    row.write(0, b"x" * 250)
    assert sync(row) == [0, 100, 200]
    row.cut(100)
    assert row.row.starts == [0]
    assert row.gone == {100, 200}
    assert sync(row) == []
    assert row.gone == set()
    row.write(100, b"y")
    assert sync(row) == [100]


def test_files_that_were_dropped_are_not_synced(row: DirtyRow) -> None:
    """A sync that runs knows that they are gone; the last file stays, whatever is asked."""
    row.write(0, b"x" * 250)
    assert row.drop_before(99) == []
    assert row.drop_before(200) == [f"/m/{0:020}", f"/m/{100:020}"]
    assert row.gone == {0, 100}
    assert sync(row) == [200]
    assert row.drop_before(1000) == []


@pytest.mark.parametrize(
    ("position", "files"),
    [(0, [0, 100, 200]), (99, [0, 100, 200]), (100, [100, 200]), (299, [200])],
)
def test_from_there_on_nobody_knows(row: DirtyRow, position: int, files: list[int]) -> None:
    row.write(0, b"x" * 250)
    sync(row)
    row.all_dirty_from(position)
    assert sync(row) == files


def test_files_that_are_not_synced_stay_open(row: DirtyRow) -> None:
    """A file that is opened anew for its sync may hear nothing of a write that failed before."""
    row.write(0, b"x" * 6900)
    sync(row)
    for position in (200, 6800):
        row.write(position, b"y")
    files = {start: row.row.file(start) for start in row.row.starts}
    row.close_idle()
    reopened = [start for start in row.row.starts if row.row.file(start) is not files[start]]
    assert reopened == [0, 100]
