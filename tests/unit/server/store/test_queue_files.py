"""QueueFiles: descriptors, and a worker that flushes while the reactor writes."""

import os
from errno import EBADF, EIO, EMFILE
from pathlib import Path
from random import Random
from threading import Event, Thread, Timer, current_thread

import pytest

from rmq_ha.base.errors import NotNow, StoreError
from rmq_ha.base.host.disk import RealDisk, RealFile
from rmq_ha.server.store.queues.files import QueueFiles, most_queue_files
from rmq_ha.testing.disk import SimDisk


class CountingDisk(RealDisk):
    """Knows the files that it gave out and that were not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[RealFile] = []

    def open(self, path: str, size: int) -> RealFile:
        file = super().open(path, size)
        self.opened.append(file)
        return file

    @property
    def still_open(self) -> int:
        return sum(file._fd >= 0 for file in self.opened)


def test_flushing_beside_writing_and_removing(tmp_path: Path) -> None:
    """No write, flush or removal disturbs another, and no descriptor is lost."""
    disk = CountingDisk()
    files = QueueFiles(disk, 400, most_open=5)
    faults: list[BaseException] = []
    enough = Event()

    def flush() -> None:
        while not enough.is_set():
            try:
                files.sync()
            except BaseException as fault:
                faults.append(fault)
                return

    worker = Thread(target=flush)
    worker.start()
    written: dict[str, int] = {}
    try:
        for turn in range(3000):
            path = str(tmp_path / str(turn % 7) / str(turn * 5 % 3))
            files.write(path, bytes([turn % 251 + 1]), 0, path not in written)
            written[path] = turn % 251 + 1
            if turn % 50 == 49:
                victim = next(iter(written))
                del written[victim]
                files.remove(victim)
            if turn % 700 == 699:
                directory = os.path.dirname(next(iter(written)))
                files.remove_tree(directory)
                written = {p: n for p, n in written.items() if os.path.dirname(p) != directory}
    finally:
        enough.set()
        worker.join()
    assert faults == []
    assert {path: files.read(path, 1, 0)[0] for path in written} == written
    assert {str(path) for path in tmp_path.glob("*/*")} == set(written)
    files.sync()
    assert files.dirty_bytes == 0
    files.read(next(iter(written)), 1, 0)
    assert disk.still_open <= 5
    files.close()
    files.close()
    assert disk.still_open == 0


def test_a_directory_is_not_removed_while_a_file_in_it_is_opened_to_be_flushed(
    tmp_path: Path,
) -> None:
    """What opens a removed file makes it anew, and a queue that was deleted would be there."""
    is_opening, go = Event(), Event()

    class SlowDisk(RealDisk):
        def open(self, path: str, size: int) -> RealFile:
            if current_thread() is worker:
                is_opening.set()
                go.wait()
            return super().open(path, size)

    files = QueueFiles(SlowDisk(), 400, most_open=1)
    worker = Thread(target=files.sync)
    files.write(str(tmp_path / "deleted" / "0"), b"1", 0, False)
    files.write(str(tmp_path / "other" / "0"), b"1", 0, False)
    worker.start()
    is_opening.wait()
    later = Timer(0.01, go.set)
    later.start()
    files.remove_tree(str(tmp_path / "deleted"))
    later.join()
    worker.join()
    assert not (tmp_path / "deleted").exists()
    files.close()


def test_new_files_are_flushed_through_what_made_them(tmp_path: Path) -> None:
    """Only that object knows which directories are new; its entries are on the disk afterwards."""
    disk = CountingDisk()
    files = QueueFiles(disk, 400, most_open=2)
    for name in "abcdef":
        files.write(str(tmp_path / name / "0"), b"x", 0, True)
    assert disk.still_open == 4, "as many are kept as are just made, and as many others"
    made = disk.opened[0]
    assert made._new_in
    files.sync()
    assert not made._new_in
    files.close()
    assert disk.still_open == 0
    assert [files.read(str(tmp_path / name / "0"), 1, 0) for name in "af"] == [b"x", b"x"]
    files.close()
    assert disk.still_open == 0


def test_a_disk_that_refuses_is_a_store_error(tmp_path: Path) -> None:
    """With path and reason."""
    (tmp_path / "file").write_bytes(b"x")
    files = QueueFiles(RealDisk(), 400)
    inside = str(tmp_path / "file" / "0")
    with pytest.raises(StoreError, match=r"cannot write 1 bytes to .*/file/0"):
        files.write(inside, b"x", 0, True)
    with pytest.raises(StoreError, match="cannot read"):
        files.read(inside, 1, 0)
    with pytest.raises(StoreError, match="cannot clear"):
        files.zero(inside, 0)
    with pytest.raises(StoreError, match="cannot remove"):
        files.remove(str(tmp_path))
    with pytest.raises(StoreError, match="cannot remove"):
        files.remove_tree(str(tmp_path / "file"))


@pytest.mark.parametrize(
    ("open_files", "most"), [(0, 1), (64, 8), (96, 24), (256, 104), (1024, 256), (16384, 15616)]
)
def test_queues_leave_descriptors_to_log_and_ports(open_files: int, most: int) -> None:
    """With as many for files that were just made, at most 256, they stay below what there is."""
    assert most_queue_files(open_files) == most
    assert most + min(most, 256) <= max(2, open_files - 48)


def test_descriptors_that_are_kept_are_a_reserve(tmp_path: Path) -> None:
    """Where the process has none left, idle files are closed, and the write succeeds."""
    disk = CountingDisk()
    files = QueueFiles(disk, 400)
    for name in "abc":
        files.write(f"{tmp_path}/{name}", b"x", 0, False)
    plain_open = disk.open

    def scarce(path: str, size: int) -> RealFile:
        if disk.still_open >= 3:
            raise OSError(EMFILE, "Too many open files")
        return plain_open(path, size)

    disk.open = scarce  # type: ignore[method-assign]
    files.write(f"{tmp_path}/d", b"x", 0, False)
    assert disk.still_open == 1
    assert files.read(f"{tmp_path}/a", 1, 0) == b"x"
    files.sync()
    files.close()
    assert disk.still_open == 0


def test_what_was_cleared_is_flushed_like_what_was_written() -> None:
    """A cut that is not on the disk brings back what was cut; it counts for no bytes."""
    disk = SimDisk(Random(1), lambda: 0)
    files = QueueFiles(disk, 400)
    files.write("/a", b"xyz", 0, True)
    files.sync()
    files.zero("/a", 1)
    assert files.dirty_bytes == 0
    assert not disk.is_safe("/a")
    files.sync()
    assert disk.is_safe("/a")
    assert files.read("/a", 3, 0) == b"x\0\0"


def test_a_flush_makes_no_file_anew_that_is_gone() -> None:
    """Removed while another one is flushed, or taken away by somebody: a deleted queue stays so."""
    disk = SimDisk(Random(1), lambda: 0)
    files = QueueFiles(disk, 400)
    for path in ("/q/a", "/q/b", "/q/c"):
        files.write(path, b"xyz", 0, False)
    disk.remove("/q/c")
    disk.fault = lambda operation, path: (
        files.remove("/q/b") if (operation, path) == ("sync", "/q/a") else None
    )
    files.sync()
    assert disk.paths("/q") == ["/q/a"]
    assert files.dirty_bytes == 0
    files.write("/q/a", b"xyz", 0, False)
    files.remove("/q/a")
    assert files.dirty_bytes == 0
    assert disk.paths("/q") == []


@pytest.mark.parametrize("is_new", [False, True])
def test_a_flush_that_fails_is_told_and_counts_for_nothing(is_new: bool) -> None:
    """Unless the file was removed, and so closed, while it was flushed: nobody misses it then."""
    disk = SimDisk(Random(1), lambda: 0)
    files = QueueFiles(disk, 400)
    files.write("/a", b"xyz", 0, is_new)
    disk.fault = lambda operation, path: EIO if operation == "sync" else None
    with pytest.raises(StoreError, match="cannot flush /a"):
        files.sync()
    assert files.dirty_bytes == 3
    files.remove("/a")
    files.write("/b", b"xyz", 0, True)

    def removed(operation: str, path: str) -> int | None:
        if operation == "sync":
            files.remove(path)
            return EBADF
        return None

    disk.fault = removed
    files.sync()
    assert disk.paths("/b") == []
    assert files.dirty_bytes == 0


def test_only_where_descriptors_are_lacking_others_are_given_up(tmp_path: Path) -> None:
    """Any other error is told at once: opened a second time, the file might hide a bad disk."""
    disk = CountingDisk()
    files = QueueFiles(disk, 400)
    files.write(f"{tmp_path}/a", b"x", 0, False)
    plain_open, errors = disk.open, [EIO]

    def refuse(path: str, size: int) -> RealFile:
        if errors:
            raise OSError(errors.pop(), "Input/output error")
        return plain_open(path, size)

    disk.open = refuse  # type: ignore[method-assign]
    with pytest.raises(StoreError, match="Input/output error"):
        files.write(f"{tmp_path}/b", b"x", 0, False)
    assert disk.still_open == 1
    files.close()


@pytest.mark.parametrize("number", [EIO, EMFILE])
def test_a_file_that_cannot_be_opened_to_be_flushed_stays_dirty(number: int) -> None:
    """The caller hears of it: for good, or to try again where descriptors may come back."""
    disk = SimDisk(Random(1), lambda: 0)
    files = QueueFiles(disk, 400)
    for path in ("/a", "/b"):
        files.write(path, b"xyz", 0, False)
    disk.fault = lambda operation, path: number if operation == "open" and path == "/b" else None
    with pytest.raises(StoreError) as told:
        files.sync()
    assert isinstance(told.value, NotNow) is (number == EMFILE)
    assert "/b" in str(told.value)
    assert files.dirty_bytes == 3
    assert disk.is_safe("/a")
    assert not disk.is_safe("/b")
    disk.fault = lambda operation, path: None
    files.sync()
    assert files.dirty_bytes == 0
    assert disk.is_safe("/b")
