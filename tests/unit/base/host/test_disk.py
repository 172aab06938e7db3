"""The real disk, beyond the contract. Spec: store.md, section 1."""

import os
import subprocess
import sys
from errno import EIO

import pytest

from rmq_ha.base.errors import StoreError, StoreLocked
from rmq_ha.base.host.disk import RealDisk

TAKE_POSIX_LOCK = (
    "import fcntl, sys; file = open(sys.argv[1], 'r+b');"
    "fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)"
)


def other_process_gets_lock(path):
    """With the call that a Java broker uses."""
    return (
        subprocess.run(
            [sys.executable, "-c", TAKE_POSIX_LOCK, path], capture_output=True, check=False
        ).returncode
        == 0
    )


def test_the_lock_excludes_java_and_ourselves(tmp_path):
    """A POSIX record lock of another process and a second one in this process are refused; a
    failed attempt does not loosen the lock."""
    path = str(tmp_path / "store" / "lock")
    disk = RealDisk()
    lock = disk.lock(path)
    assert disk.read_bytes(path) == b"lock"
    assert not other_process_gets_lock(path)
    with pytest.raises(StoreLocked, match="another broker"):
        RealDisk().lock(path)
    assert not other_process_gets_lock(path)
    open(path, "rb").close()
    assert not other_process_gets_lock(path)
    lock.release()
    assert other_process_gets_lock(path)
    disk.lock(path).release()


def test_a_lock_of_java_is_respected(tmp_path):
    """Another process holds the record lock."""
    path = tmp_path / "lock"
    path.write_bytes(b"lock of somebody")
    code = TAKE_POSIX_LOCK + "; print('locked', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(StoreLocked):
            RealDisk().lock(str(path))
        other.stdin.close()
    RealDisk().lock(str(path)).release()
    assert path.read_bytes() == b"lock"


def test_files_are_sparse_and_zeroing_keeps_them_so(tmp_path):
    """A new file takes no room; zeroing touches only what was written."""
    path = str(tmp_path / "a" / "b" / "file")
    file = RealDisk().open(path, 1 << 26)
    file.pwrite(b"x" * 10000, 5_000_000)
    file.pwrite(b"y", 60_000_000)
    file.zero(5_000_100)
    assert file.pread(200, 5_000_000) == b"x" * 100 + bytes(100)
    assert file.pread(1, 60_000_000) == b"\0"
    file.sync()
    file.close()
    file.close()
    assert os.stat(path).st_size == 1 << 26
    assert os.stat(path).st_blocks * 512 < 1 << 20


def test_a_creation_that_was_cut_short(tmp_path):
    """A file of no bytes gets its size; one of another size is not touched."""
    path = tmp_path / "file"
    path.write_bytes(b"")
    RealDisk().open(str(path), 100).close()
    assert path.stat().st_size == 100
    with pytest.raises(StoreError, match="has 100 bytes"):
        RealDisk().open(str(path), 101)


def test_replace_keeps_a_backup(tmp_path):
    """The old content is `.bak`; nothing temporary is left."""
    path = str(tmp_path / "config" / "topics.json")
    disk = RealDisk()
    disk.replace(path, b"one", backup=True)
    assert disk.list_dir(str(tmp_path / "config")) == ["topics.json"]
    disk.replace(path, b"two", backup=True)
    assert disk.list_dir(str(tmp_path / "config")) == ["topics.json", "topics.json.bak"]
    assert disk.read_bytes(path) == b"two"
    assert disk.read_bytes(f"{path}.bak") == b"one"


def test_replace_keeps_who_may_read_the_file(tmp_path):
    """A file of secrets stays one, and so does its backup."""
    path = tmp_path / "plain_acl.yml"
    path.write_text("old")
    path.chmod(0o600)
    RealDisk().replace(str(path), b"new", backup=True)
    assert path.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "plain_acl.yml.bak").stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_replace_keeps_whose_file_it_is(tmp_path):
    """What root changes (`sudo rmqha-admin promote`) the broker's own account reads again."""
    path = tmp_path / "broker.properties"
    path.write_text("old")
    os.chown(path, 4711, 4712)
    path.chmod(0o600)
    RealDisk().replace(str(path), b"new", backup=True)
    found = path.stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (4711, 4712, 0o600)


def modes(root):
    return {
        str(path.relative_to(root)): path.stat().st_mode & 0o777 for path in sorted(root.rglob("*"))
    }


@pytest.mark.parametrize(
    ("is_private", "file", "folder"), [(True, 0o640, 0o750), (False, 0o644, 0o755)]
)
def test_who_may_read_what_is_made(tmp_path, is_private, file, folder):
    """Messages are for nobody else on this machine."""
    before = os.umask(0o022)
    try:
        disk = RealDisk(is_private)
        disk.open(f"{tmp_path}/store/commitlog/0", 10).close()
        disk.replace(f"{tmp_path}/store/config/topics.json", b"x", backup=True)
        disk.replace(f"{tmp_path}/store/config/topics.json", b"y", backup=True)
        disk.make_dirs(f"{tmp_path}/store/index")
        disk.lock(f"{tmp_path}/store/lock").release()
        disk.move(f"{tmp_path}/store/index", f"{tmp_path}/other/index")
    finally:
        os.umask(before)
    assert modes(tmp_path) == {
        "other": folder,
        "other/index": folder,
        "store": folder,
        "store/commitlog": folder,
        "store/commitlog/0": file,
        "store/config": folder,
        "store/config/topics.json": file,
        "store/config/topics.json.bak": file,
        "store/lock": file,
    }


def test_a_file_in_the_place_of_a_folder(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    with pytest.raises(OSError, match=r"exists|directory"):
        RealDisk().make_dirs(f"{tmp_path}/file")
    with pytest.raises(OSError, match=r"exists|directory"):
        RealDisk().make_dirs(f"{tmp_path}/file/below")
    monkeypatch.chdir(tmp_path)
    RealDisk().make_dirs("relative/path")
    assert (tmp_path / "relative/path").is_dir()


def test_a_folder_that_another_process_makes_at_the_same_moment(tmp_path, monkeypatch):
    real = os.mkdir

    def beaten(path, mode):
        real(path, mode)
        raise FileExistsError(path)

    monkeypatch.setattr(os, "mkdir", beaten)
    RealDisk().make_dirs(f"{tmp_path}/store/index")
    assert (tmp_path / "store/index").is_dir()


def test_a_map_and_writes_see_each_other(tmp_path):
    """The index file is mapped, everything else is not."""
    file = RealDisk().open(str(tmp_path / "file"), 8192)
    file.reserve(0, 4096)
    view = file.map()
    view[0:3] = b"abc"
    assert file.pread(3, 0) == b"abc"
    file.forget(0, 4096)
    assert view[0:3] == b"abc"
    file.sync()
    file.close()


def test_usage(tmp_path):
    """Of an existing path only."""
    usage = RealDisk().usage(str(tmp_path))
    assert 0 < usage.used <= usage.total
    assert RealDisk().usage(str(tmp_path / "none")) is None


def test_a_backup_is_a_copy_where_there_are_no_links(tmp_path, monkeypatch):
    """FAT, some network file systems; what a crash left of the last attempt is no obstacle."""

    def no_links(source, target):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    path = str(tmp_path / "table.json")
    disk = RealDisk()
    disk.replace(path, b"one")
    (tmp_path / "table.json.bak.tmp").write_bytes(b"torn")
    disk.replace(path, b"two", backup=True)
    assert (disk.read_bytes(path), disk.read_bytes(path + ".bak")) == (b"two", b"one")
    monkeypatch.undo()
    (tmp_path / "table.json.bak.tmp").write_bytes(b"torn")
    disk.replace(path, b"three", backup=True)
    assert (disk.read_bytes(path), disk.read_bytes(path + ".bak")) == (b"three", b"two")
    assert sorted(os.listdir(tmp_path)) == ["table.json", "table.json.bak"]


def test_a_file_system_that_cannot_say_where_data_is(tmp_path, monkeypatch):
    """Nobody may take that for "nothing but holes": what is to be zeros would stay as it is."""
    file = RealDisk().open(str(tmp_path / "file"), 8192)
    file.pwrite(b"x", 0)

    def refuse(fd, position, whence):
        raise OSError(EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "lseek", refuse)
        with pytest.raises(OSError, match="Input/output"):
            file.next_data(0)
        with pytest.raises(OSError, match="Input/output"):
            file.zero(0)
    file.zero(0)
    assert file.next_data(8191) == file.size
    file.close()


def test_where_one_may_write(tmp_path):
    """In a directory, and where one can be made below it; not below a file or a link to nothing."""
    disk = RealDisk()
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "file").chmod(0o700)
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    places = ("", "new", "new/er", "file", "file/new", "link", "link/new")
    found = [place for place in places if disk.may_write(str(tmp_path / place))]
    assert found == ["", "new", "new/er"]
