"""A row of files of one size, each named by the offset of its first byte.

Spec: store.md, section 1.
"""

from collections.abc import Callable, Sequence

from rmq_ha.base.errors import StoreError
from rmq_ha.base.seams import Disk, File

_NAME_DIGITS = 20
_MAX_OPEN = 16
"""Most files of a row that stay open. Old files are read seldom, and opening one takes some 30
us."""


def file_name(start: int) -> str:
    """Return the name of the file whose first byte is at `start`."""
    return f"{start:0{_NAME_DIGITS}d}"


def is_file_name(name: str) -> bool:
    """Return whether a file of a row may be called like this."""
    return len(name) == _NAME_DIGITS and name.isascii() and name.isdigit()


class FileRow:
    """
    Consecutive files without a gap, in one or several directories.

    Files are opened when they are needed; at most `_MAX_OPEN` idle ones stay open.

    :param directories: where files are created, and where they are found.
    :param has_room: whether a new file may be created in this directory.
    :ivar starts: offset of the first byte of each file, rising.
    """

    def __init__(
        self,
        disk: Disk,
        directories: Sequence[str],
        file_size: int,
        has_room: Callable[[str], bool] = lambda directory: True,
    ) -> None:
        self._disk = disk
        self.directories = sorted(set(directories))
        self._has_room = has_room
        self.file_size = file_size
        self.starts: list[int] = []
        self._paths: dict[int, str] = {}
        self._open: dict[int, File] = {}

    def load(self) -> None:
        """
        Find the files.

        :raises StoreError: a file has a wrong size or name, or a file is missing.
        """
        for directory in self.directories:
            for name in self._disk.list_dir(directory):
                path = f"{directory}/{name}"
                self._check(path, name)
                if int(name) in self._paths:
                    raise StoreError(f"{path} is there twice: also as {self._paths[int(name)]}")
                self._paths[int(name)] = path
        self.starts = sorted(self._paths)
        while self.starts and self._disk.size(self._paths[self.starts[-1]]) == 0:
            self.delete(self.starts[-1])  # a crash came between its creation and its first size
        self._drop_empty_before_gap()
        for before, after in zip(self.starts, self.starts[1:], strict=False):
            if after - before != self.file_size:
                raise StoreError(
                    f"between {self._paths[before]} and {self._paths[after]} is not one file of "
                    f"{self.file_size} bytes; restore what is missing or move the older files away"
                )

    def _drop_empty_before_gap(self) -> None:
        """
        Delete empty files before a gap: a crash came just after the row was begun again elsewhere.
        """
        empty: list[int] = []
        for start in list(self.starts):
            if empty and start - empty[-1] != self.file_size:
                for other in empty:
                    self.delete(other)
                empty.clear()
            if self._disk.size(self._paths[start]):
                return
            empty.append(start)

    def _check(self, path: str, name: str) -> None:
        if not is_file_name(name):
            raise StoreError(f"{path} does not belong there; move it away")
        size = self._disk.size(path)
        if size not in (0, self.file_size):
            raise StoreError(
                f"{path} has {size} bytes, but files of {self.file_size} are configured; "
                "where all are so, start with the file size with which the store was written; "
                "where only this one is, it was cut off: restore it from a copy, or lead with a "
                "replica"
            )
        if int(name) % self.file_size:
            raise StoreError(f"{path} does not start at a multiple of {self.file_size}")

    def path(self, start: int) -> str:
        """Return the path of the file that starts at this offset."""
        return self._paths[start]

    def start_of(self, offset: int) -> int:
        """Return the start of the file that holds, or would hold, an offset."""
        return offset - offset % self.file_size

    def file(self, start: int) -> File:
        """
        Return the file that starts at this offset, opened.

        :raises OSError: it cannot be opened.
        :raises StoreError: the row has no such file.
        """
        file = self._open.get(start)
        if file is None:
            path = self._paths.get(start)
            if path is None:
                raise StoreError(f"{self.directories[0]} has no file {file_name(start)}")
            self._open[start] = file = self._disk.open(path, self.file_size)
        return file

    def create(self, start: int) -> File:
        """
        Return the file that starts at this offset; create it at the end of the row if it is
        missing.

        :raises OSError: the disk refuses.
        """
        file = self._open.get(start)
        if file is not None:
            return file
        if start not in self._paths:
            path = f"{self._directory_for(start)}/{file_name(start)}"
            self._open[start] = self._disk.open(path, self.file_size)
            self._paths[start] = path
            self.starts.append(start)
        return self.file(start)

    def _directory_for(self, start: int) -> str:
        free = [directory for directory in self.directories if self._has_room(directory)]
        candidates = free or self.directories
        return candidates[start // self.file_size % len(candidates)]

    def close_idle(self, before: int) -> None:
        """
        Close some files when many are open.

        :param before: files that end at or before this offset may be closed.
        """
        if len(self._open) <= _MAX_OPEN:
            return
        idle = [start for start in self._open if start + self.file_size <= before]
        for start in idle[: len(self._open) - _MAX_OPEN]:
            self._open.pop(start).close()

    def forget(self, start: int) -> str:
        """Remove a file from the row; return its path, so that the caller can delete it."""
        self.starts.remove(start)
        file = self._open.pop(start, None)
        if file is not None:
            file.close()
        return self._paths.pop(start)

    def delete(self, start: int) -> None:
        """Remove a file from the row, and delete it."""
        self._disk.remove(self.forget(start))

    def close(self) -> None:
        """Close every file; the next use opens them again."""
        for file in self._open.values():
            file.close()
        self._open.clear()
