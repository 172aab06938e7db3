"""Finds out how a store was left.

A process that died leaves all its writes; a machine that lost its power does not.

The page cache keeps what a killed process wrote, to the last byte, until the machine loses its
power. So the store has a mark: a file that identifies the boot of the machine. After a kill, a
start with the mark of this boot reads and dispatches less of the log again. The mark is removed
when the page cache becomes doubtful, for example after a failed flush. A start after a kill then
counts as a start after a crash.

Spec: store.md, section 5.3.
"""

from collections.abc import Iterable
from enum import Enum, auto

from twisted.logger import Logger

from rmq_ha.base.seams import Disk

FILE_NAME = "boot"


class LastExit(Enum):
    """How the process that had the store open before this one ended."""

    CLEAN = auto()
    """The store was stopped, and everything is on the disk."""
    KILLED = auto()
    """The process died, but not the machine, so all writes exist."""
    CRASHED = auto()
    """Any write that the checkpoint does not confirm may be lost."""


class BootMark:
    """
    The boot mark of one store.

    :param root: the store's directory.
    :param is_wanted: `trustPageCacheAfterKill`; if False, no mark is written or trusted.
    :ivar path: path of its file.
    """

    log = Logger()

    def __init__(self, disk: Disk, root: str, *, is_wanted: bool) -> None:
        self._disk = disk
        self._root = root
        self.path = f"{root}/{FILE_NAME}"
        self._is_wanted = is_wanted

    def how_it_was_left(self, directories: Iterable[str]) -> LastExit:
        """
        Return how the store was left.

        After a kill, this brings the process's writes to the disk. Blocks.

        :param directories: directories of the log, which may be outside the store's.
        :raises OSError: the disk refuses.
        """
        disk = self._disk
        if not disk.exists(f"{self._root}/abort"):
            return LastExit.CLEAN
        if not self._is_trusted():
            return LastExit.CRASHED
        try:
            for directory in (self._root, *directories):
                disk.sync_tree(directory)
        except OSError as error:
            self.log.warn(
                "the process before was killed, and what it left cannot be brought to the disk: "
                "{error}; the store is recovered as after a loss of power",
                error=error,
            )
            return LastExit.CRASHED
        return LastExit.KILLED

    def _is_trusted(self) -> bool:
        """
        Return whether the machine has run since the mark was set, and the mark is of this store.
        """
        identity = self._identity()
        return bool(
            identity
            and self._disk.exists(self.path)
            and self._disk.read_bytes(self.path) == identity
        )

    def _identity(self) -> bytes:
        return self._disk.boot_id(self._root) if self._is_wanted else b""

    def set(self) -> None:
        """
        Write the mark: from now on queues and index follow the log in order, so a start after a
        kill can use them.
        """
        identity = self._identity()
        if not identity:
            return
        try:
            self._disk.replace(self.path, identity)
        except OSError as error:  # with a full disk the next start only takes longer
            self.log.warn("cannot write {path}: {error}", path=self.path, error=error)

    def forget(self) -> None:
        """
        Remove the mark: the page cache is not reliable any more, or queues do not follow the log in
        order.
        """
        try:
            self._disk.remove(self.path)
        except OSError as error:
            self.log.error(
                "cannot remove {path}: {error}; remove it by hand before the next start, which "
                "would believe what this process has written",
                path=self.path,
                error=error,
            )
