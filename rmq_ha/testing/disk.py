"""
A simulated disk that keeps written bytes apart from those that survive a power loss.

Writes go to a page cache; `sync` makes a file's content durable. When the power fails, a seeded
part of the 512-byte sectors that were written but not synced is lost, and some may be torn: only
their beginning is kept. Files that were created since the last sync of any file may be gone, and
removed ones may come back, the latest first, as with a journaling file system. `replace` and `move`
are durable when they return.
"""

import errno
import os
import os.path
from collections.abc import Callable
from random import Random

from rmq_ha.base.errors import NotNow, StoreError, StoreLocked
from rmq_ha.base.seams import DiskUsage
from rmq_ha.testing.trace import REPLACED, SYNC, Trace

SECTOR = 512
PAGE = 4096


class Inode:
    """The content of a file, twice: as processes read it, and as it survives a power loss."""

    def __init__(self, size: int, mtime_ms: int) -> None:
        self.cache = bytearray(size)
        self.durable = bytearray(size)
        self.pages = bytearray(-(-size // PAGE))
        self.mtime_ms = mtime_ms

    @classmethod
    def from_bytes(cls, data: bytes, mtime_ms: int) -> "Inode":
        """Return a small file whose content is durable."""
        inode = cls(0, mtime_ms)
        inode.cache = bytearray(data)
        inode.durable = bytearray(data)
        inode.pages = bytearray(b"\x01" * -(-len(data) // PAGE))
        return inode

    def sync(self) -> None:
        """Make the present content durable."""
        self.durable[:] = self.cache

    def lose_power(self, random: Random) -> int:
        """
        Keep a random part of the sectors that were not synced. A sector may be torn if nothing of
        the next unsynced sector was kept: then only its beginning is kept.

        :returns: how many sectors lost their latest content.
        """
        if self.cache == self.durable:
            return 0
        dirty = [
            start
            for start in range(0, len(self.cache), SECTOR)
            if self.cache[start : start + SECTOR] != self.durable[start : start + SECTOR]
        ]
        keep = random.choice((0.0, 0.5, 0.9, 1.0))
        kept = [random.random() < keep for _ in dirty]
        sizes = []
        for start, is_kept, next_is_kept in zip(dirty, kept, [*kept[1:], False], strict=True):
            size = min(SECTOR, len(self.cache) - start)
            if not is_kept:
                size = random.randrange(size) if not next_is_kept and random.random() < 0.2 else 0
            sizes.append(size)
        written = 0
        for start, is_kept, size in reversed(list(zip(dirty, kept, sizes, strict=True))):
            # a torn sector was the last to be written: it is torn only if nothing of the next one
            # was kept
            written = size if is_kept or not written else 0
            self.durable[start : start + written] = self.cache[start : start + written]
        lost = kept.count(False)
        self.cache[:] = self.durable
        return lost


class SimFile:
    """An open file, a `rmq_ha.base.seams.File`."""

    def __init__(self, disk: "SimDisk", path: str, inode: Inode) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._closed = False

    @property
    def size(self) -> int:
        """Bytes; fixed at creation."""
        return len(self._inode.cache)

    def _check(self, operation: str) -> None:
        self._disk.check()
        self._disk.try_fault(operation, self._path)
        if self._closed:
            raise OSError(errno.EBADF, "closed", self._path)

    def pread(self, size: int, position: int) -> bytes:
        """Exactly `size` bytes, or fewer at the end of the file."""
        self._check("pread")
        if size < 0 or position < 0:
            raise OSError(errno.EINVAL, "Invalid argument", self._path)
        return bytes(memoryview(self._inode.cache)[position : position + size])

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """Write all of `data`; on a full disk write a part of it and raise OSError."""
        self._check("pwrite")
        inode = self._inode
        size = len(data)
        if position < 0 or position + size > len(inode.cache):
            raise OSError(errno.EINVAL, "beyond the end", self._path)
        room = self._disk.allocate(inode, position, size)
        inode.cache[position : position + room] = data if room == size else bytes(data)[:room]
        inode.mtime_ms = self._disk.now_ms()
        if room < size:
            raise OSError(errno.ENOSPC, "No space left on device", self._path)

    def reserve(self, position: int, size: int) -> None:
        """Make sure that writing this range through `map` cannot run out of disk space."""
        self._check("reserve")
        if self._disk.allocate(self._inode, position, size) < size:
            raise OSError(errno.ENOSPC, "No space left on device", self._path)

    def map(self) -> bytearray:
        """Return the page cache itself: bytes that are written here count as not synced."""
        self._check("map")
        return self._inode.cache

    def next_data(self, position: int) -> int:
        """
        Return the first position from `position` on that has data, or the file's size; all bytes
        before it are a hole of zeros.
        """
        self._check("next_data")
        page = self._inode.pages.find(1, position // PAGE)
        return self.size if page < 0 else max(position, page * PAGE)

    def zero(self, position: int) -> None:
        """Make all bytes from `position` to the end zero."""
        self._check("zero")
        cache = self._inode.cache
        cache[position:] = bytes(len(cache) - position)

    def sync(self) -> None:
        """Make the file's content durable."""
        self._check("sync")
        if self._disk.sync_fails:
            raise OSError(errno.EIO, "Input/output error", self._path)
        self._inode.sync()
        self._disk.check_names(self._path)
        self._disk.synced(self._inode.durable)

    def forget(self, position: int, size: int) -> None:
        """Do nothing; the call is only a hint."""

    def close(self) -> None:
        """Close the file; a second call is harmless."""
        self._closed = True


class _SimLock:
    """A lock on a directory."""

    def __init__(self, disk: "SimDisk", path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        """Release the lock, so that others can open the store."""
        self._disk.unlock(self._path, self)


class SimDisk:
    """
    A disk from one boot of its machine to the next crash, a `rmq_ha.base.seams.Disk`.

    :param now_ms: clock for modification times.
    :param index: index of the machine, for the trace.
    :ivar is_full: writes that need new pages fail.
    :ivar sync_fails: every sync fails.
    :ivar fault: called with the name of a call (`pread`, `pwrite`, `sync`, `open`, ...) and its
        path; returns the errno with which the call fails, or None. A machine that starts again has
        no faults.
    :ivar capacity: size of the disk in bytes, for `usage`.
    :ivar boot: number of the machine's boot; it does not change when only a process dies.
    """

    def __init__(
        self, random: Random, now_ms: Callable[[], int], trace: Trace | None = None, index: int = 0
    ) -> None:
        self.is_full = False
        self.sync_fails = False
        self.fault: Callable[[str, str], int | None] = lambda operation, path: None
        self.capacity = 1 << 40
        self.now_ms = now_ms
        self.lost_sectors = 0
        self.boot = 1
        self._random = random
        self._trace = trace or Trace()
        self._index = index
        self._dead = False
        self._files: dict[str, Inode] = {}
        self._dirs: dict[str, None] = {"/": None}
        self._journal: list[Callable[[], None]] = []
        self._replaced: dict[str, None] = {}
        self._locks: dict[str, _SimLock] = {}

    def crash(self, *, power: bool = True) -> "SimDisk":
        """
        Stop the machine; open files of this boot fail from now on.

        :param power: the machine loses power; False: only the process died, and the bytes that it
            wrote stay.
        :returns: the disk as the next boot finds it.
        """
        self._dead = True
        disk = SimDisk(self._random, self.now_ms, self._trace, self._index)
        disk.capacity = self.capacity
        disk.is_full = self.is_full
        disk.boot = self.boot + power
        disk._files = self._files
        disk._dirs = self._dirs
        if power:
            disk.lost_sectors = self._lose_power()
        else:
            disk._journal = self._journal
            disk._replaced = self._replaced
        self._files, self._dirs, self._journal = {}, {}, []
        return disk

    def _lose_power(self) -> int:
        keep = self._random.randint(0, len(self._journal))
        for undo in reversed(self._journal[keep:]):
            undo()
        for path in self._replaced:
            if self._random.random() < 0.1 and path in self._files:
                data = bytes(self._files[path].durable)
                torn = data[: self._random.randint(0, len(data))]
                self._files[path + ".tmp"] = Inode.from_bytes(torn, self.now_ms())
        return sum(self._files[path].lose_power(self._random) for path in sorted(self._files))

    # Used by tests only

    def paths(self, prefix: str) -> list[str]:
        """Return all files at or below a path, sorted."""
        inside = prefix + "/"
        return sorted(path for path in self._files if path == prefix or path.startswith(inside))

    def content(self, path: str) -> bytes:
        """Return the content of a file as processes read it; b"" if it does not exist."""
        inode = self._files.get(path)
        return b"" if inode is None else bytes(inode.cache)

    def is_safe(self, path: str, start: int = 0, end: int | None = None) -> bool:
        """Return whether the bytes of a file from `start` to `end` survive a power loss."""
        inode = self._files[path]
        return inode.cache[start:end] == inode.durable[start:end]

    def damage(self, path: str, data: bytes | None) -> None:
        """Replace a file's bytes, in the cache and on the disk; None removes the file."""
        if data is None:
            del self._files[path]
        else:
            self._files[path] = Inode.from_bytes(data, self._files[path].mtime_ms)

    # Called by files

    def check(self) -> None:
        """
        Check that this boot is not over.

        :raises OSError: this boot is over.
        """
        if self._dead:
            raise OSError(errno.EIO, "this machine has crashed")

    def try_fault(self, operation: str, path: str) -> None:
        """
        Fail if the test has set a fault.

        :raises OSError: the test has set one for this call.
        """
        number = self.fault(operation, path)
        if number is not None:
            raise OSError(number, os.strerror(number), path)

    def check_names(self, path: str) -> None:
        """
        Fail if the test has set a fault for the call `names`, which opens the directory of a file
        to sync it.

        :raises NotNow: the test has set one.
        """
        number = self.fault("names", path)
        if number is not None:
            raise NotNow(f"cannot open {os.path.dirname(path)}: {os.strerror(number)}")

    def allocate(self, inode: Inode, position: int, size: int) -> int:
        """
        Take disk space for a range of a file, and return how many bytes of the range, from its
        start on, may be written. On a full disk only ranges that have space already may be written.
        """
        first, last = position // PAGE, (position + size - 1) // PAGE + 1
        if self.is_full:
            missing = inode.pages.find(0, first, last)
            if missing >= 0:
                return max(0, missing * PAGE - position)
        inode.pages[first:last] = b"\x01" * (last - first)
        return size

    def synced(self, durable: bytearray) -> None:
        """
        Note a sync: no power loss undoes a creation or removal of a file before it any more.

        :param durable: the content of the synced file, for the trace.
        """
        self._journal.clear()
        self._replaced.clear()
        self._note(SYNC, durable)

    def _note(self, kind: int, data: bytes | bytearray) -> None:
        self._trace.add(kind, self._index, self.now_ms() / 1000, len(data), data)

    # The interface `Disk`

    def open(self, path: str, size: int) -> SimFile:
        """
        Open a file of exactly `size` bytes; create it, sparse, if missing or cut short.

        :raises StoreError: the file exists with another size.
        """
        self.check()
        self.try_fault("open", path)
        inode = self._files.get(path)
        if inode is None:
            self.make_dirs(os.path.dirname(path))
            inode = self._files[path] = Inode(size, self.now_ms())
            self._journal.append(lambda: self._undo_create(path))
        elif not inode.cache:
            self._files[path] = inode = Inode(size, self.now_ms())
        elif len(inode.cache) != size:
            raise StoreError(f"{path} has {len(inode.cache)} bytes instead of {size}")
        return SimFile(self, path, inode)

    def exists(self, path: str) -> bool:
        """Return whether a file or directory exists."""
        self.check()
        return path in self._files or path in self._dirs

    def is_dir(self, path: str) -> bool:
        """Return whether a directory exists."""
        self.check()
        return path in self._dirs

    def size(self, path: str) -> int:
        """Bytes of a file."""
        return len(self._find(path).cache)

    def mtime_ms(self, path: str) -> int:
        """Last modification, ms since the epoch."""
        self.check()
        return 0 if path in self._dirs else self._find(path).mtime_ms

    def list_dir(self, path: str) -> list[str]:
        """Names in a directory, sorted; empty when it does not exist."""
        self.check()
        inside = path.rstrip("/") + "/"
        start = len(inside)
        return sorted(
            name[start:]
            for names in (self._files, self._dirs)
            for name in names
            if name.startswith(inside) and "/" not in name[start:] and name != inside
        )

    def read_bytes(self, path: str) -> bytes:
        """
        Return the content of a small file.

        :raises FileNotFoundError: the file does not exist.
        """
        return bytes(self._find(path).cache)

    def _find(self, path: str) -> Inode:
        self.check()
        try:
            return self._files[path]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path) from None

    def replace(self, path: str, data: bytes, *, backup: bool = False) -> None:
        """Replace the content of a small file, durably."""
        self.check()
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device", path)
        if self.sync_fails:
            raise OSError(errno.EIO, "Input/output error", path)
        self.make_dirs(os.path.dirname(path))
        if backup and path in self._files:
            self._files[path + ".bak"] = Inode.from_bytes(
                bytes(self._files[path].cache), self.now_ms()
            )
        self._files[path] = Inode.from_bytes(bytes(data), self.now_ms())
        self._files.pop(path + ".tmp", None)
        self._journal.clear()
        self._replaced[path] = None
        self._note(REPLACED, data)

    def boot_id(self, path: str) -> bytes:
        """Return the number of the boot."""
        self.check()
        return b"boot %d of %d %s\n" % (self.boot, self._index, path.encode())

    def place_of(self, path: str) -> bytes:
        """Return a name of this path on this disk. Only tests copy a disk."""
        self.check()
        return b"%d %s" % (self._index, path.encode())

    def sync_tree(self, path: str) -> None:
        """Sync each file below a path."""
        self.check()
        for name in self.paths(path):
            SimFile(self, name, self._files[name]).sync()

    def make_dirs(self, path: str) -> None:
        """Create a directory and its parents; harmless when there."""
        self.check()
        if path in self._dirs:
            return
        if path in self._files:
            raise FileExistsError(errno.EEXIST, "File exists", path)
        self.make_dirs(os.path.dirname(path))
        self._dirs[path] = None

    def remove(self, path: str) -> None:
        """Delete a file; harmless when missing."""
        self.check()
        self.try_fault("remove", path)
        inode = self._files.pop(path, None)
        if inode is not None:
            self._journal.append(lambda: self._undo_remove(path, inode))

    def remove_tree(self, path: str) -> None:
        """Delete a directory and all in it; harmless when missing."""
        self.check()
        inside = path + "/"
        for name in [name for name in self._files if name.startswith(inside)]:
            self.remove(name)
        for name in [name for name in self._dirs if name == path or name.startswith(inside)]:
            del self._dirs[name]

    def move(self, path: str, new_path: str) -> None:
        """Rename a file or directory, durably."""
        self.try_fault("move", path)
        if not self.exists(path):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        self.make_dirs(os.path.dirname(new_path))
        for names in (self._files, self._dirs):
            for name in [name for name in names if name == path or name.startswith(path + "/")]:
                names[new_path + name.removeprefix(path)] = names.pop(name)  # type: ignore[assignment]
        self._journal.clear()
        self._note(REPLACED, b"")

    def lock(self, path: str) -> _SimLock:
        """
        Take RocketMQ's lock and write `lock` into the file, or lock a folder that exists.

        :raises StoreLocked: the lock is held.
        """
        self.check()
        if path in self._locks:
            raise StoreLocked(f"{path} is held by another process")
        if path not in self._dirs:
            self.make_dirs(os.path.dirname(path))
            self._files[path] = Inode.from_bytes(b"lock", self.now_ms())
        self._locks[path] = _SimLock(self, path)
        return self._locks[path]

    def unlock(self, path: str, lock: _SimLock) -> None:
        """Give a lock back; only its holder can."""
        if self._locks.get(path) is lock:
            del self._locks[path]

    def may_write(self, path: str) -> bool:
        """Return whether a file can be created here: no file is in the way."""
        self.check()
        return path not in self._files

    def usage(self, path: str) -> DiskUsage | None:
        """Return the usage of the whole disk; None if the path does not exist."""
        self.check()
        if path not in self._files and path not in self._dirs:
            return None
        used = sum(inode.pages.count(1) for inode in self._files.values()) * PAGE
        return DiskUsage(self.capacity, used, 0 if self.is_full else self.capacity - used)

    # Crash

    def _undo_create(self, path: str) -> None:
        if self._files.pop(path, None) is not None and self._random.random() < 0.2:
            self._files[path] = Inode(0, self.now_ms())  # only its name survived

    def _undo_remove(self, path: str, inode: Inode) -> None:
        self._restore_dirs(os.path.dirname(path))
        self._files[path] = inode

    def _restore_dirs(self, path: str) -> None:
        """Make the directories again that a file which comes back needs."""
        while path not in self._dirs:
            self._dirs[path] = None
            path = os.path.dirname(path)
