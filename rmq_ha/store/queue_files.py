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
    opens files for itself, so that no descriptor is closed under its feet.

    :param file_size: bytes of each file.
    :param most_open: descriptors that are kept.
    """

    def __init__(self, disk: Disk, file_size: int, most_open: int = 256) -> None:
        self._disk = disk
        self.file_size = file_size
        self._most_open = most_open
        self._open: dict[str, File] = {}
        self._dirty: dict[str, int] = {}
        self._lock = Lock()

    def _file(self, path: str) -> File:
        file = self._open.pop(path, None)
        if file is None:
            if len(self._open) >= self._most_open:
                self._open.pop(next(iter(self._open))).close()
            file = self._disk.open(path, self.file_size)
        self._open[path] = file
        return file

    def read(self, path: str, size: int, position: int) -> bytes:
        """:raises StoreError: the disk refuses."""
        try:
            return self._file(path).pread(size, position)
        except OSError as error:
            raise StoreError(f"cannot read {path}: {error}") from error

    def write(self, path: str, data: bytes, position: int) -> None:
        """
        Write into a file that is created if it is missing.

        :raises StoreError: the disk refuses; any part of `data` may be there.
        """
        try:
            self._file(path).pwrite(data, position)
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
                self._dirty.pop(path, None)
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
                    del self._dirty[path]
                self._disk.remove_tree(directory)
        except OSError as error:
            raise StoreError(f"cannot remove {directory}: {error}") from error

    def _give_up(self, path: str) -> None:
        file = self._open.pop(path, None)
        if file is not None:
            file.close()

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
            file = self._disk.open(path, self.file_size)
        try:
            file.sync()
        finally:
            file.close()

    def close(self) -> None:
        """Give all descriptors back; twice is harmless, and any use opens them again."""
        for file in self._open.values():
            file.close()
        self._open.clear()
