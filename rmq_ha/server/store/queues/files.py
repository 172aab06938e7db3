"""The files of all consume queues, with few descriptors for very many files.

Spec: store.md, section 1.
"""

from collections import deque
from errno import EMFILE, ENFILE

from rmq_ha.base.errors import NotNow, StoreError
from rmq_ha.base.seams import Disk, File
from rmq_ha.base.store_flags import may_pass

FEWEST_QUEUE_FILES = 256
"""How many queue files stay open at least, if the process may have so many. A queue beyond them is
opened and closed for each write, which takes four times the calls."""
_OTHER_FILES = 768
"""Descriptors that are left for the log, the index, and queue files that were just made."""
_FEWEST_OTHERS = 48


def most_queue_files(open_files: int) -> int:
    """
    Return how many queue files may stay open.

    :param open_files: how many files this process may open, connections not counted. The files of
        log and index, listening ports, and tables that are being written count among them.
    """
    room = open_files - _FEWEST_OTHERS
    usual = max(FEWEST_QUEUE_FILES, open_files - _OTHER_FILES)
    return max(1, min(usual, max(room // 2, room - FEWEST_QUEUE_FILES)))


class QueueFiles:
    """
    Reads and writes files of one size by their path; closes the files that were used least
    recently.

    Call everything in the reactor's thread, except `sync`, which blocks and runs in the worker,
    never twice at once. `sync` opens files for itself, so that nobody closes its descriptors. Only
    a file that was just made is flushed through the object that made it, because that object knows
    which directories are new as well. If very many files are made at once, some are flushed without
    it, and their directories depend on the file system's journal.

    The two threads need no lock. A path is marked dirty after the write and unmarked before the
    flush. Only the reactor's thread closes the files that it opened, and it removes no file that
    the worker is just opening.

    :param file_size: bytes of each file.
    :param most_open: descriptors that stay open. As many again, but at most `FEWEST_QUEUE_FILES`,
        stay open for files that were just made.
    """

    def __init__(self, disk: Disk, file_size: int, most_open: int = FEWEST_QUEUE_FILES) -> None:
        self._disk = disk
        self.file_size = file_size
        self._most_open = most_open
        self._most_made = min(most_open, FEWEST_QUEUE_FILES)
        self._open: dict[str, File] = {}
        self._dirty: dict[str, int] = {}
        self._made: dict[str, File] = {}
        self._synced: deque[tuple[str, File]] = deque()
        self._opening: str | None = None

    def _file(self, path: str, is_new: bool = False) -> File:
        file = self._open.pop(path, None)
        if file is not None:
            self._open[path] = file  # behind all others
        else:
            file = self._made.get(path) or self._open_file(path)
            if is_new and len(self._made) < self._most_made:
                self._made[path] = file
            self._open[path] = file
            if len(self._open) > self._most_open:
                self._give_up(next(iter(self._open)))
        if self._synced:
            self._release_synced()
        return file

    def _open_file(self, path: str) -> File:
        """Open a file; if the process has no descriptor left, close idle files first."""
        try:
            return self._disk.open(path, self.file_size)
        except OSError as error:
            if error.errno not in (EMFILE, ENFILE) or not self._open:
                raise
        for idle in list(self._open):
            self._give_up(idle)
        return self._disk.open(path, self.file_size)

    def _give_up(self, path: str) -> None:
        file = self._open.pop(path, None)
        if file is not None and self._made.get(path) is not file:
            file.close()

    def _release_synced(self) -> None:
        """Treat new files that `sync` has flushed like any other file."""
        while self._synced:
            path, file = self._synced.popleft()
            if self._made.get(path) is file:
                del self._made[path]
                if self._open.get(path) is not file:
                    file.close()

    def read(self, path: str, size: int, position: int) -> bytes:
        """
        Read bytes of a file.

        :raises StoreError: the disk refuses.
        """
        try:
            return self._file(path).pread(size, position)
        except OSError as error:
            raise StoreError(f"cannot read {path}: {error}") from error

    def write(self, path: str, data: bytes, position: int, is_new: bool) -> None:
        """
        Write into a file, which is created if it is missing.

        :param is_new: this is the file's first write.
        :raises StoreError: the disk refuses; any part of `data` may be written.
        """
        try:
            self._file(path, is_new).pwrite(data, position)
        except OSError as error:
            raise StoreError(
                f"cannot write {len(data)} bytes to {path}: {error}; free some disk space or "
                "repair the disk"
            ) from error
        self._dirty[path] = self._dirty.get(path, 0) + len(data)

    def zero(self, path: str, position: int) -> None:
        """
        Fill the file with zeros from `position` to its end.

        :raises StoreError: the disk refuses.
        """
        try:
            self._file(path).zero(position)
        except OSError as error:
            raise StoreError(f"cannot clear {path} from {position}: {error}") from error
        self._dirty.setdefault(path, 0)

    def remove(self, path: str) -> None:
        """
        Delete a file.

        :raises StoreError: the disk refuses.
        """
        self._forget(path)
        try:
            self._disk.remove(path)
        except OSError as error:
            raise StoreError(f"cannot remove {path}: {error}") from error

    def remove_tree(self, directory: str) -> None:
        """
        Delete a directory and all files in it.

        :raises StoreError: the disk refuses.
        """
        inside = directory + "/"
        paths = {*list(self._dirty), *self._open, *self._made}
        paths.add(self._opening or "")  # looked at last: `sync` removes it from `_dirty` first
        for path in paths:
            if path.startswith(inside):
                self._forget(path)
        try:
            self._disk.remove_tree(directory)
        except OSError as error:
            raise StoreError(f"cannot remove {directory}: {error}") from error

    def _forget(self, path: str) -> None:
        """Close the file, and make sure that the worker does not open it (again)."""
        self._dirty.pop(path, None)
        made = self._made.pop(path, None)
        for file in (self._open.pop(path, None), made):
            if file is not None:
                file.close()
        while self._opening == path:
            pass  # takes microseconds; after a removal it would create the file again

    @property
    def dirty_bytes(self) -> int:
        """Bytes written since the last `sync`."""
        return sum(list(self._dirty.values()))

    def sync(self) -> None:
        """
        Bring all bytes written before this call to the disk. Blocks: call it in the worker.

        :raises NotNow: a file cannot be opened just now; the next call continues with it.
        :raises StoreError: the disk refuses, and it is not known which bytes it has.
        """
        for path in list(self._dirty):
            count = 0
            try:
                self._opening = path
                try:
                    dirty = self._dirty.pop(path, None)
                    made = self._made.get(path)
                    if dirty is None or not (made or self._disk.exists(path)):
                        continue
                    count = dirty
                    file = made or self._open_to_sync(path)
                finally:
                    self._opening = None
                self._sync(path, file, made)
            except (OSError, StoreError) as error:
                self._dirty[path] = self._dirty.get(path, 0) + count
                if isinstance(error, NotNow):
                    raise
                raise StoreError(f"cannot flush {path}: {error}") from error

    def _open_to_sync(self, path: str) -> File:
        try:
            return self._disk.open(path, self.file_size)
        except OSError as error:
            if may_pass(error):
                raise NotNow(f"cannot open {path} to flush it: {error}") from error
            raise

    def _sync(self, path: str, file: File, made: File | None) -> None:
        try:
            file.sync()
        except OSError:
            if made is None or self._made.get(path) is made:
                raise
            return  # the file was removed and closed meanwhile
        finally:
            if made is None:
                file.close()
        if made is not None:
            self._synced.append((path, made))

    def close(self) -> None:
        """Close all files. A second call is harmless, and the next use opens files again."""
        for file in (*self._open.values(), *self._made.values()):
            file.close()
        self._open.clear()
        self._made.clear()
