"""Reads and writes in directories into which strangers may have written: no link in them is
followed.
"""

import errno
import os
import stat
from typing import BinaryIO

from rmq_ha.base.errors import CannotDecide
from rmq_ha.base.host.disk import RealDisk, RealFile
from rmq_ha.base.host.files import LocalFiles
from rmq_ha.base.store_files import DirectoryEntry

_LEADS_AWAY = (errno.ELOOP, errno.ENOTDIR)


class PlainFiles(LocalFiles):
    """
    Reads files, and follows no link below some directories. Only regular files are read there.

    :param roots: these directories; they may be links themselves.
    """

    def __init__(self, *roots: str) -> None:
        super().__init__()
        self._roots = roots

    def list(self, path: str) -> list[DirectoryEntry]:
        """
        Return the entries of a directory, sorted by name. A link is listed with its own size, which
        no file of a store has.
        """
        root = _root_of(path, self._roots)
        if root is None:
            return super().list(path)
        try:
            descriptor = _open_below(root, path, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            return []
        try:
            with os.scandir(descriptor) as entries:
                return sorted(_entry(entry) for entry in entries)
        finally:
            os.close(descriptor)

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading. A pipe is refused, and the call does not wait for its writer."""
        root = _root_of(path, self._roots)
        if root is None:
            return super().open(path)
        descriptor = _open_below(root, path, os.O_RDONLY | os.O_NONBLOCK)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise CannotDecide(f"{path} is no regular file, so it is not read")
        return os.fdopen(descriptor, "rb")


class PlainDisk(RealDisk):
    """
    Writes below one directory only, and through no link in it.

    :param root: this directory; it may be a link itself.
    """

    def __init__(self, root: str) -> None:
        super().__init__()
        self._root = root

    def open(self, path: str, size: int) -> RealFile:
        """Open or make a file of the directory; see `RealDisk.open`."""
        self._must_be_plain(path)
        return super().open(path, size)

    def replace(self, path: str, data: bytes, *, backup: bool = False) -> None:
        """Replace a file of the directory as a whole; see `RealDisk.replace`."""
        self._must_be_plain(path)
        self._must_be_plain(f"{path}.tmp")
        super().replace(path, data, backup=backup)

    def remove_tree(self, path: str) -> None:
        """Remove a directory below this one; see `RealDisk.remove_tree`."""
        self._must_be_plain(path)
        super().remove_tree(path)

    def _must_be_plain(self, path: str) -> None:
        if _root_of(path, (self._root,)) is None:
            raise CannotDecide(f"{path} is not in {self._root}, so it is left alone")
        at = self._root
        for name in os.path.relpath(path, self._root).split("/"):
            at = f"{at}/{name}"
            try:
                mode = os.lstat(at).st_mode
            except FileNotFoundError:
                return
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise CannotDecide(
                    f"{at} is neither a regular file nor a directory: remove it, or name another "
                    "directory"
                )


def _root_of(path: str, roots: tuple[str, ...]) -> str | None:
    """
    Return the root that a path is in or equals, once `..` in it is resolved; None if it is in none.
    """
    whole = os.path.normpath(path)
    return next((root for root in roots if f"{whole}/".startswith(f"{root}/")), None)


def _open_below(root: str, path: str, flags: int) -> int:
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    names = os.path.relpath(path, root).split("/")
    if names == ["."]:
        return descriptor
    steps = [os.O_RDONLY | os.O_DIRECTORY] * (len(names) - 1) + [flags]
    for name, step in zip(names, steps, strict=True):
        above = descriptor
        try:
            descriptor = os.open(name, step | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
        except OSError as error:
            if error.errno in _LEADS_AWAY:
                raise CannotDecide(
                    f"{path} is a link, or lies behind one, and no link is followed in {root}"
                ) from None
            raise
        finally:
            os.close(above)
    return descriptor


def _entry(entry: "os.DirEntry[str]") -> DirectoryEntry:
    status = entry.stat(follow_symlinks=False)
    is_directory = entry.is_dir(follow_symlinks=False)
    size = 0 if is_directory else status.st_size
    return DirectoryEntry(entry.name, size, is_directory, status.st_mtime_ns // 1_000_000)
