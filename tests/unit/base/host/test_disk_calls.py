"""What the real disk asks of the kernel, and in which order: a crash cannot be tried out here."""

import os
from errno import EIO, EMFILE, ENOSPC

import pytest

from rmq_ha.base.errors import NotNow, StoreError, StoreLocked
from rmq_ha.base.host.disk import RealDisk
from tests.kits.descriptors import open_descriptors


@pytest.fixture
def calls(monkeypatch):
    """
    Files and directories that were synced, and names that were put in place, in order.

    A file that has nothing yet is not worth a sync.
    """
    found = []

    def note(name):
        real = getattr(os, name)

        def called(fd):
            assert os.fstat(fd).st_size, "its content is still in this process"
            found.append(("sync", os.readlink(f"/proc/self/fd/{fd}")))
            return real(fd)

        monkeypatch.setattr(os, name, called)

    note("fsync")
    note("fdatasync")
    replace = os.replace

    def replaced(source, target):
        found.append(("named", target))
        replace(source, target)

    monkeypatch.setattr(os, "replace", replaced)
    return found


def test_a_sync_takes_the_data_and_the_names_that_lead_to_it(tmp_path, calls):
    """A new file in new directories: each entry that was added, once; then only the data."""
    path = str(tmp_path / "a" / "b" / "file")
    file = RealDisk().open(path, 4096)
    file.pwrite(b"x", 0)
    assert calls == []
    file.sync()
    assert calls[0] == ("sync", path)
    directories = [str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")]
    assert sorted(calls[1:]) == [("sync", directory) for directory in directories]
    calls.clear()
    file.sync()
    assert calls == [("sync", path)]
    file.close()


def test_a_directory_that_could_not_be_synced_is_synced_by_the_next_call(
    tmp_path, calls, monkeypatch
):
    path = str(tmp_path / "a" / "file")
    file = RealDisk().open(path, 4096)

    def refuse(fd):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        with pytest.raises(OSError, match="Input/output"):
            file.sync()
    calls.clear()
    file.sync()
    assert sorted(calls) == [("sync", str(tmp_path)), ("sync", str(tmp_path / "a")), ("sync", path)]
    file.close()


def no_descriptor(monkeypatch, wanted, number=EMFILE):
    """Opening this directory fails until `undo`."""
    real = os.open

    def opened(path, flags, *mode):
        if path == wanted:
            raise OSError(number, "Too many open files" if number == EMFILE else "it refuses")
        return real(path, flags, *mode)

    monkeypatch.setattr(os, "open", opened)


def test_no_descriptor_for_the_directory_of_a_new_file(tmp_path, monkeypatch):
    """No sync has failed, and the next call does what is missing."""
    file = RealDisk().open(f"{tmp_path}/new", 10)
    with monkeypatch.context() as patch:
        no_descriptor(patch, str(tmp_path))
        with pytest.raises(NotNow):
            file.sync()
    synced = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    file.sync()
    assert synced == [str(tmp_path)]
    file.close()


def test_a_directory_that_cannot_be_opened_was_not_synced(tmp_path, monkeypatch):
    """Nobody may count on the name of the new file; that will not pass by itself."""
    file = RealDisk().open(f"{tmp_path}/new", 10)
    with monkeypatch.context() as patch:
        no_descriptor(patch, str(tmp_path), EIO)
        with pytest.raises(OSError, match="it refuses") as caught:
            file.sync()
    assert caught.value.errno == EIO
    file.close()


def test_a_name_that_cannot_be_replaced_is_said(tmp_path, monkeypatch):
    """With the kernel's reason; the old content stays, and no descriptor."""
    disk, path = RealDisk(), f"{tmp_path}/table"
    disk.replace(path, b"old")
    before = len(open_descriptors())

    def refuse(source, target):
        raise OSError(EIO, "the disk refuses", target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        with pytest.raises(OSError, match="the disk refuses"):
            disk.replace(path, b"new")
    assert disk.read_bytes(path) == b"old"
    assert len(open_descriptors()) == before


def test_a_lock_that_cannot_be_written_leaves_nothing_open(tmp_path, monkeypatch):
    """A full disk: whoever makes room may start."""
    before = len(open_descriptors())

    def refuse(fd, data, position):
        raise OSError(ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", refuse)
        with pytest.raises(OSError, match="No space"):
            RealDisk().lock(f"{tmp_path}/lock")
    assert len(open_descriptors()) == before
    RealDisk().lock(f"{tmp_path}/lock").release()


def test_no_descriptor_for_the_directory_of_a_replaced_file(tmp_path, monkeypatch):
    """The old content is still there, as whoever hears of the failure thinks."""
    disk, path = RealDisk(), f"{tmp_path}/table"
    disk.replace(path, b"old")
    with monkeypatch.context() as patch:
        no_descriptor(patch, str(tmp_path))
        with pytest.raises(OSError, match="Too many"):
            disk.replace(path, b"new")
    assert disk.read_bytes(path) == b"old"


@pytest.mark.parametrize("backup", [False, True])
def test_a_replaced_file_is_whole_before_it_has_its_name(tmp_path, calls, backup):
    """Content, backup, name, directory: whatever the crash leaves is old or new, and not empty."""
    path = str(tmp_path / "table")
    RealDisk().replace(path, b"old")
    calls.clear()
    RealDisk().replace(path, b"new", backup=backup)
    kept = [("named", f"{path}.bak")] if backup else []
    assert calls == [
        ("sync", f"{path}.tmp"),
        *kept,
        ("named", path),
        ("sync", str(tmp_path)),
    ]
    assert RealDisk().read_bytes(path) == b"new"


def test_what_was_moved_stays_where_it_is(tmp_path, calls):
    """Its new place first: a crash between may leave two names, but not none."""
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / "0").write_bytes(b"set aside")
    RealDisk().move(str(tmp_path / "commitlog" / "0"), str(tmp_path / "aside" / "1" / "0"))
    places = [tmp_path, tmp_path / "aside", tmp_path / "aside" / "1", tmp_path / "commitlog"]
    assert calls == [("sync", str(place)) for place in places]
    assert (tmp_path / "aside" / "1" / "0").read_bytes() == b"set aside"


def test_what_was_left_of_a_backup_is_in_nobodys_way(tmp_path):
    path = tmp_path / "table"
    path.write_bytes(b"old")
    (tmp_path / "table.bak.tmp").write_bytes(b"a crash left this")
    RealDisk().replace(str(path), b"new", backup=True)
    assert (tmp_path / "table.bak").read_bytes() == b"old"


@pytest.mark.parametrize("at_once", [1, 3, 7, 100])
def test_a_kernel_that_does_it_in_parts(tmp_path, monkeypatch, at_once):
    """Reads and writes go on until all is done, or the file ends."""
    read, write = os.pread, os.pwrite
    monkeypatch.setattr(os, "pread", lambda fd, size, at: read(fd, min(size, at_once), at))
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: write(fd, data[:at_once], at))
    file = RealDisk().open(str(tmp_path / "file"), 16)
    file.pwrite(b"0123456789", 6)
    file.pwrite(b"abc", 0)
    assert file.pread(16, 0) == b"abc\0\0\0" + b"0123456789"
    assert file.pread(9, 6) == b"012345678"
    assert file.pread(9, 12) == b"6789"
    assert file.pread(4, 16) == b""
    file.close()


def test_reserved_blocks_are_there(tmp_path):
    """Writing them through the map cannot run out of disk."""
    path = str(tmp_path / "file")
    file = RealDisk().open(path, 1 << 20)
    assert os.stat(path).st_blocks == 0
    file.reserve(0, 1 << 19)
    assert os.stat(path).st_blocks * 512 >= 1 << 19
    file.close()


def test_no_descriptor_stays(tmp_path):
    """Neither of what was closed (twice is harmless) nor of what was refused."""
    disk, path = RealDisk(), str(tmp_path / "file")
    before = len(open_descriptors())
    file = disk.open(path, 4096)
    view = file.map()
    assert file.map() is view
    file.sync()
    file.close()
    file.close()
    assert view.closed
    disk.replace(str(tmp_path / "table"), b"x", backup=True)
    with pytest.raises(StoreError, match="4096 bytes"):
        disk.open(path, 8192)
    with pytest.raises(FileNotFoundError):
        disk.read_bytes(str(tmp_path / "none"))
    lock = disk.lock(str(tmp_path / "lock"))
    with pytest.raises(StoreLocked):
        disk.lock(str(tmp_path / "lock"))
    lock.release()
    lock.release()
    assert len(open_descriptors()) == before


def test_pages_that_are_let_go_come_back_as_they_were(tmp_path):
    """Wherever the range begins and ends; also without a map, and behind the end."""
    file = RealDisk().open(str(tmp_path / "file"), 4 * 4096)
    file.forget(0, 4096)
    view = file.map()
    view[:] = b"x" * len(view)
    for start, size in ((0, 1), (5000, 100), (4096, 3 * 4096), (16383, 1), (16384, 4096)):
        file.forget(start, size)
        assert bytes(view) == b"x" * len(view)
    file.close()


def test_a_tree_is_on_the_disk_when_each_file_and_each_name_in_it_is(tmp_path, calls):
    """What another process wrote, too: each file's own sync tells that something was lost."""
    (tmp_path / "store" / "queues").mkdir(parents=True)
    for name in ("log", "queues/0"):
        (tmp_path / "store" / name).write_bytes(b"x")
    RealDisk().sync_tree(str(tmp_path / "store"))
    expected = ["store", "store/log", "store/queues", "store/queues/0"]
    assert sorted(calls) == [("sync", str(tmp_path / name)) for name in expected]


def test_what_lies_behind_a_link_is_brought_to_the_disk_as_well(tmp_path, calls):
    """Operators put a log on a disk of its own so."""
    (tmp_path / "store").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "log").write_bytes(b"x")
    (tmp_path / "store" / "commitlog").symlink_to(tmp_path / "elsewhere")
    RealDisk().sync_tree(str(tmp_path / "store"))
    synced = {path for _, path in calls}
    assert {str(tmp_path / name) for name in ("elsewhere", "elsewhere/log")} <= synced


def test_a_boot_that_the_kernel_does_not_tell_is_none(tmp_path, monkeypatch):
    disk = RealDisk()
    assert disk.boot_id(str(tmp_path))
    assert disk.boot_id(str(tmp_path / "missing")) == b""
    monkeypatch.setattr(RealDisk, "read_bytes", lambda self, path: b"")
    assert disk.boot_id(str(tmp_path)) == b""
