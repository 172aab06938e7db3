"""The real disk, by pwrite, pread and fdatasync, with POSIX record locks."""

import fcntl
import mmap
import os
import shutil
import stat
import struct
from contextlib import suppress
from errno import EBADF, ENOLCK, ENOTSUP, ENXIO

from rmq_ha.base.errors import NotNow, StoreError, StoreLocked
from rmq_ha.base.seams import DiskUsage
from rmq_ha.base.store_flags import may_pass

_CHUNK = 1 << 20
_PAGE = mmap.PAGESIZE


class RealFile:
    """
    A file of fixed size; see `rmq_ha.base.seams.File`.

    :param new_in: directories that got a new entry with this file. `sync` brings these entries to
        the disk, too.
    """

    def __init__(self, fd: int, path: str, size: int, new_in: list[str]) -> None:
        self._fd = fd
        self._path = path
        self._size = size
        self._new_in = new_in
        self._map: mmap.mmap | None = None

    @property
    def size(self) -> int:
        """Size in bytes, fixed when the file was created."""
        return self._size

    def pread(self, size: int, position: int) -> bytes:
        """Read exactly `size` bytes, or fewer at the end of the file."""
        data = os.pread(self._fd, size, position)
        if len(data) == size or not data:
            return data
        pieces = [data]
        done = len(data)
        while done < size and (data := os.pread(self._fd, size - done, position + done)):
            pieces.append(data)
            done += len(data)
        return b"".join(pieces)

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """Write all of `data`, however many system calls that takes."""
        written = os.pwrite(self._fd, data, position)
        if written < len(data):
            rest = memoryview(data)
            while written < len(data):
                written += os.pwrite(self._fd, rest[written:], position + written)

    def reserve(self, position: int, size: int) -> None:
        """Allocate the blocks of a range."""
        os.posix_fallocate(self._fd, position, size)

    def map(self) -> mmap.mmap:
        """Return the map of the whole file, shared and writable; it is made at the first call."""
        if self._map is None:
            self._map = mmap.mmap(self._fd, self._size)
        return self._map

    def next_data(self, position: int) -> int:
        """
        Return the first position at or after `position` where the file has data; the file's size if
        only a hole follows.
        """
        try:
            return os.lseek(self._fd, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == ENXIO:
                return self._size  # only holes from here to the end
            raise

    def zero(self, position: int) -> None:
        """Write zeros over all data from `position` on; holes stay holes."""
        while (position := self.next_data(position)) < self._size:
            hole = os.lseek(self._fd, position, os.SEEK_HOLE)
            data = os.pread(self._fd, min(_CHUNK, hole - position), position)
            if data.count(0) != len(data):
                self.pwrite(bytes(len(data)), position)
            position += max(len(data), 1)

    def sync(self) -> None:
        """
        Block until the file's data are on the disk, and the name of a new file with them.

        :raises NotNow: no descriptor is left to open a directory. The data are on the disk then,
            and the next `sync` tries the names again.
        """
        os.fdatasync(self._fd)  # takes pages written through the map along
        while self._new_in:
            self._sync_names(self._new_in[-1])
            self._new_in.pop()

    def _sync_names(self, directory: str) -> None:
        try:
            entries = _open_directory(directory)
        except OSError as error:
            if may_pass(error):
                raise NotNow(f"cannot open {directory} to sync it: {error}") from error
            raise
        _sync_opened(entries)

    def forget(self, position: int, size: int) -> None:
        """Tell the kernel that the mapped pages of a range are not needed any more."""
        if self._map is not None:
            start = position - position % _PAGE
            with suppress(OSError, ValueError):
                self._map.madvise(mmap.MADV_DONTNEED, start, size + position - start)

    def close(self) -> None:
        """Close the map and the descriptor."""
        if self._map is not None:
            with suppress(BufferError):  # a view is alive; the map goes with it
                self._map.close()
            self._map = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class RealLock:
    """The lock on a store. It also ends with the process."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        """Release the lock, so that another process can open the store."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class RealDisk:
    """
    The file system of this machine; see `rmq_ha.base.seams.Disk`.

    :param is_private: whether new files and folders are for their owner and group only; else the
        umask decides.
    """

    def __init__(self, is_private: bool = True) -> None:
        self._file_mode, self._folder_mode = (0o640, 0o750) if is_private else (0o666, 0o777)

    def open(self, path: str, size: int) -> RealFile:
        """
        Open a file, or create it with its directories. An existing empty file counts as one whose
        creation was cut short.

        :raises StoreError: the file exists with another size.
        """
        flags = os.O_RDWR | os.O_CLOEXEC
        new_in: list[str] = []
        try:
            fd = os.open(path, flags)
        except FileNotFoundError:
            new_in = self._make_dirs(os.path.dirname(path))
            fd = os.open(path, flags | os.O_CREAT, self._file_mode)
        try:
            file_size = os.fstat(fd).st_size
            if file_size != size:
                if file_size:
                    raise StoreError(f"{path} has {file_size} bytes; it should have {size}")
                os.ftruncate(fd, size)
        except BaseException:
            os.close(fd)
            raise
        return RealFile(fd, path, size, new_in)

    def exists(self, path: str) -> bool:
        """Return whether a file or directory with this path exists."""
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def size(self, path: str) -> int:
        """Return the size of a file in bytes."""
        return os.stat(path).st_size

    def mtime_ms(self, path: str) -> int:
        """Return the time of the last modification, in ms since the epoch."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def list_dir(self, path: str) -> list[str]:
        """Return the sorted names in a directory; none if it does not exist."""
        try:
            return sorted(os.listdir(path))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def read_bytes(self, path: str) -> bytes:
        """Read a small file whole."""
        with open(path, "rb") as file:
            return file.read()

    def replace(self, path: str, data: bytes, *, backup: bool = False) -> None:
        """
        Replace a small file so that a crash leaves either the old file or the new one.

        :param backup: whether the old content stays as `.bak`.
        """
        directory = os.path.dirname(path)
        self.make_dirs(directory)
        old = _stat(path)
        self._write_synced(f"{path}.tmp", data, old)
        if backup:
            with suppress(FileNotFoundError):
                self._keep_old(path, f"{path}.bak.tmp", old)
                os.replace(f"{path}.bak.tmp", f"{path}.bak")
        entries = _open_directory(directory)  # if it cannot be, the old file is still there
        try:
            os.replace(f"{path}.tmp", path)
        except OSError:
            os.close(entries)
            raise
        _sync_opened(entries)

    def boot_id(self, path: str) -> bytes:
        """
        Return the kernel's boot id with device and inode of the directory; empty if one of them is
        not known.
        """
        try:
            boot = self.read_bytes("/proc/sys/kernel/random/boot_id").strip()
        except OSError:
            return b""
        place = self.place_of(path)
        return boot + b" %b\n" % place if boot and place else b""

    def place_of(self, path: str) -> bytes:
        """
        Return device and inode of a file, which stay the same when it is renamed; empty if it does
        not exist.
        """
        try:
            status = os.stat(path)
        except OSError:
            return b""
        return b"%d %d" % (status.st_dev, status.st_ino)

    def sync_tree(self, path: str) -> None:
        """
        Sync all files below a directory, one after the other: only a file's own sync reports lost
        data.
        """
        for directory, _, names in os.walk(path, followlinks=True):
            for name in names:
                with suppress(FileNotFoundError):
                    _sync_opened(os.open(f"{directory}/{name}", os.O_RDONLY | os.O_CLOEXEC))
            _sync_opened(_open_directory(directory))

    def _keep_old(self, path: str, name: str, old: os.stat_result | None) -> None:
        """
        Give a file's content another name: by a link, which saves a third of the time, or by a copy
        if the file system has no links.

        :raises FileNotFoundError: the file does not exist.
        """
        with suppress(FileNotFoundError):
            os.unlink(name)
        try:
            os.link(path, name)
        except OSError:
            self._write_synced(name, self.read_bytes(path), old)

    def _write_synced(self, path: str, data: bytes, old: os.stat_result | None) -> None:
        with open(path, "wb", opener=self._create) as file:
            if old is not None:
                # Before the content, which may be secret. What root changes stays its owner's,
                # who has to read it at the next start.
                with suppress(PermissionError):
                    os.fchown(file.fileno(), old.st_uid, old.st_gid)
                os.fchmod(file.fileno(), stat.S_IMODE(old.st_mode))
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def _create(self, path: str, flags: int) -> int:
        return os.open(path, flags, self._file_mode)

    def make_dirs(self, path: str) -> None:
        """Create a directory and its parents."""
        self._make_dirs(path)

    def remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(path)

    def remove_tree(self, path: str) -> None:
        """Delete a directory and all in it."""
        with suppress(FileNotFoundError):
            shutil.rmtree(path)

    def move(self, path: str, new_path: str) -> None:
        changed = self._make_dirs(os.path.dirname(new_path))
        os.rename(path, new_path)
        for directory in (*reversed(changed), os.path.dirname(path)):
            _sync_opened(_open_directory(directory))

    def lock(self, path: str) -> RealLock:
        """
        Take the record lock on byte 0, as a lock of the open file and not of the process.

        Such a lock excludes Java's (POSIX) and also a second store in this process, and it does not
        vanish when some other descriptor of the file is closed.

        A folder, in which RocketMQ wants no other file, is locked itself; that excludes no Java.

        :raises StoreLocked: another store holds the lock.
        """
        if os.path.isdir(path):
            return self._lock_folder(path)
        self.make_dirs(os.path.dirname(path))
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, self._file_mode)
        flock = struct.pack("hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        try:
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, flock)
            os.ftruncate(fd, 0)
            os.pwrite(fd, b"lock", 0)
        except (BlockingIOError, PermissionError) as error:
            os.close(fd)
            raise StoreLocked(
                f"{path} is locked: another broker has this store open; stop it first"
            ) from error
        except BaseException:
            os.close(fd)
            raise
        return RealLock(fd)

    @staticmethod
    def _lock_folder(path: str) -> RealLock:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(fd)
            raise StoreLocked(
                f"{path} is locked: another broker has this folder open; stop it first, or name "
                "another folder"
            ) from error
        except OSError as error:  # a network's file system may lock no folders
            if error.errno not in (EBADF, ENOLCK, ENOTSUP):
                os.close(fd)
                raise
        return RealLock(fd)

    def may_write(self, path: str) -> bool:
        """Whether this process's user may write the nearest existing directory of the path."""
        while not os.path.lexists(path) and os.path.dirname(path) != path:
            path = os.path.dirname(path)
        return os.path.isdir(path) and os.access(path, os.W_OK | os.X_OK)

    def usage(self, path: str) -> DiskUsage | None:
        """Return the usage of the partition that holds `path`."""
        try:
            partition = os.statvfs(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        unit = partition.f_frsize
        return DiskUsage(
            partition.f_blocks * unit,
            (partition.f_blocks - partition.f_bfree) * unit,
            partition.f_bavail * unit,
        )

    def _make_dirs(self, directory: str) -> list[str]:
        """
        Create the missing directories of a path.

        :returns: the directory itself, and the parents that got a new entry; the topmost is the
            last.
        """
        changed = [directory]
        missing = directory
        while not os.path.isdir(missing):
            missing = os.path.dirname(missing) or "."
            changed.append(missing)
        for made in reversed(changed[:-1]):
            try:
                os.mkdir(made, self._folder_mode)
            except FileExistsError:
                if not os.path.isdir(made):
                    raise
        return changed


def _stat(path: str) -> os.stat_result | None:
    """Return what the file system knows of a file, such as its owner; None if it is missing."""
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _open_directory(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _sync_opened(entries: int) -> None:
    """
    Bring the names in a directory to the disk, and close its descriptor.

    :param entries: an open descriptor of the directory.
    """
    try:
        os.fsync(entries)
    finally:
        os.close(entries)
