"""The files of all consume queues: few descriptors for very many files.

Spec: store.md, section 1.
"""

from threading import Lock

from rmq_ha.errors import StoreError
from rmq_ha.seams import Disk, File


class QueueFiles:
    """
    Reads and writes files of one size by their path; the least used descriptors are given back.

    All calls belong to the reactor's thread but `sync`, which blocks and runs in the worker. It
    opens files for itself, so that no descriptor is closed under its feet. Only a file that was
    just made is flushed through the object that made it, as that one knows which directories
    are new as well; when very many are made at once, the file system's journal has to do for
    some of them.

    :param file_size: bytes of each file.
    :param most_open: descriptors that are kept, and as many again for files just made.
    """

    def __init__(self, disk: Disk, file_size: int, most_open: int = 256) -> None:
        self._disk = disk
        self.file_size = file_size
        self._most_open = most_open
        self._open: dict[str, File] = {}
        self._lock = Lock()
        # what follows is shared with the worker
        self._dirty: dict[str, int] = {}
        self._made: dict[str, File] = {}
        self._in_sync: File | None = None

    def _file(self, path: str, is_new: bool = False) -> File:
        with self._lock:
            file = self._open.pop(path, None) or self._made.get(path)
            if file is not None:
                self._open[path] = file
        if file is None:
            file = self._disk.open(path, self.file_size)
            with self._lock:
                self._open[path] = file
                if is_new and len(self._made) < self._most_open:
                    self._made[path] = file
        if len(self._open) > self._most_open:
            self._give_up(next(iter(self._open)))
        return file

    def _give_up(self, path: str) -> None:
        with self._lock:
            file = self._open.pop(path, None)
            if file is not None and self._made.get(path) is not file:
                file.close()

    def read(self, path: str, size: int, position: int) -> bytes:
        """:raises StoreError: the disk refuses."""
        try:
            return self._file(path).pread(size, position)
        except OSError as error:
            raise StoreError(f"cannot read {path}: {error}") from error

    def write(self, path: str, data: bytes, position: int, is_new: bool) -> None:
        """
        Write into a file that is created if it is missing.

        :param is_new: this is its first write.
        :raises StoreError: the disk refuses; any part of `data` may be there.
        """
        try:
            self._file(path, is_new).pwrite(data, position)
        except OSError as error:
            raise StoreError(
                f"cannot write {len(data)} bytes to {path}: {error}; free some disk space or "
                "repair the disk"
            ) from error
        with self._lock:
            self._dirty[path] = self._dirty.get(path, 0) + len(data)

    def zero(self, path: str, position: int) -> None:
        """
        Everything from `position` to the end of the file reads as zero.

        :raises StoreError: the disk refuses.
        """
        try:
            self._file(path).zero(position)
        except OSError as error:
            raise StoreError(f"cannot clear {path} from {position}: {error}") from error
        with self._lock:
            self._dirty.setdefault(path, 0)

    def remove(self, path: str) -> None:
        """
        Delete a file.

        :raises StoreError: the disk refuses.
        """
        self._give_up(path)
        try:
            with self._lock:
                self._forget(path)
                self._disk.remove(path)
        except OSError as error:
            raise StoreError(f"cannot remove {path}: {error}") from error

    def remove_tree(self, directory: str) -> None:
        """
        Delete a directory and all files in it.

        :raises StoreError: the disk refuses.
        """
        inside = directory + "/"
        for path in [path for path in self._open if path.startswith(inside)]:
            self._give_up(path)
        try:
            with self._lock:
                for path in [path for path in self._dirty if path.startswith(inside)]:
                    self._forget(path)
                for path in [path for path in self._made if path.startswith(inside)]:
                    self._forget(path)
                self._disk.remove_tree(directory)
        except OSError as error:
            raise StoreError(f"cannot remove {directory}: {error}") from error

    def _forget(self, path: str) -> None:
        self._dirty.pop(path, None)
        made = self._made.pop(path, None)
        if made is not None and made is not self._in_sync:
            made.close()  # else the worker does

    @property
    def dirty_bytes(self) -> int:
        """What was written since the last `sync`."""
        with self._lock:
            return sum(self._dirty.values())

    def sync(self) -> None:
        """
        What was written before this call is on the disk. Blocks: call it in the worker.

        :raises StoreError: the disk refuses; what is left will be tried again next time.
        """
        with self._lock:
            dirty, self._dirty = self._dirty, {}
        while dirty:
            path = next(iter(dirty))
            try:
                self._sync(path)
            except (OSError, StoreError) as error:
                with self._lock:
                    for other, count in dirty.items():
                        self._dirty[other] = self._dirty.get(other, 0) + count
                raise StoreError(f"cannot flush {path}: {error}") from error
            del dirty[path]

    def _sync(self, path: str) -> None:
        with self._lock:  # or else a file that is removed just now would be created again
            if not self._disk.exists(path):
                return
            file = self._made.get(path) or self._disk.open(path, self.file_size)
            self._in_sync = file
        is_synced = False
        try:
            file.sync()
            is_synced = True
        finally:
            with self._lock:
                self._in_sync = None
                is_made = self._made.get(path) is file
                if is_made and is_synced:
                    del self._made[path]
                if self._open.get(path) is not file and (is_synced or not is_made):
                    file.close()

    def close(self) -> None:
        """Give all descriptors back; twice is harmless, and any use opens them again."""
        with self._lock:
            for file in (*self._open.values(), *self._made.values()):
                file.close()
            self._open.clear()
            self._made.clear()
