"""How a store was left: a process that died leaves all that it wrote, a machine does not.

What a killed process wrote is in the page cache, to the last byte, until the machine loses its
power. So a mark beside the store, with what tells one boot of the machine from the next, spares a
start the log that it would else read and dispatch again. It is trusted only where everything goes
well: whatever makes the page cache doubtful takes it away, and recovery begins without it.

Spec: store.md, section 5.3.
"""

from collections.abc import Iterable
from enum import Enum, auto

from twisted.logger import Logger

from rmq_ha.base.seams import Disk

FILE_NAME = "boot"


class LeftByCrash(Enum):
    CLEAN = auto()
    """Everything is on the disk, and says so."""
    KILLED = auto()
    """The process died and the machine went on: all that was written is there."""
    CRASHED = auto()
    """Whatever the checkpoint does not vouch for may be lost."""


class BootMark:
    """
    The mark of one store.

    :param root: the store's directory.
    :param is_wanted: `trustPageCacheAfterKill`; False: no mark is made, and none believed.
    :ivar path: of its file.
    """

    log = Logger()

    def __init__(self, disk: Disk, root: str, *, is_wanted: bool) -> None:
        self._disk = disk
        self._root = root
        self.path = f"{root}/{FILE_NAME}"
        self._is_wanted = is_wanted

    def how_it_was_left(self, directories: Iterable[str]) -> LeftByCrash:
        """
        Look. What a killed process wrote is on the disk then. Blocks.

        :param directories: of the log, which may be elsewhere.
        :raises OSError: the disk refuses.
        """
        disk = self._disk
        if not disk.exists(f"{self._root}/abort"):
            return LeftByCrash.CLEAN
        if not self._is_trusted():
            return LeftByCrash.CRASHED
        try:
            for directory in (self._root, *directories):
                disk.sync_tree(directory)
        except OSError as error:
            self.log.warn(
                "the process before was killed, and what it left cannot be brought to the disk: "
                "{error}; the store is recovered as after a loss of power",
                error=error,
            )
            return LeftByCrash.CRASHED
        return LeftByCrash.KILLED

    def _is_trusted(self) -> bool:
        """The machine has not been down since the mark was set, and this is the same store."""
        identity = self._identity()
        return bool(
            identity
            and self._disk.exists(self.path)
            and self._disk.read_bytes(self.path) == identity
        )

    def _identity(self) -> bytes:
        return self._disk.boot_id(self._root) if self._is_wanted else b""

    def set(self) -> None:
        """From now on queues and index follow the log in order, and may be gone on with."""
        identity = self._identity()
        if not identity:
            return
        try:
            self._disk.replace(self.path, identity)
        except OSError as error:  # a full disk: the next start takes longer, that is all
            self.log.warn("cannot write {path}: {error}", path=self.path, error=error)

    def forget(self) -> None:
        """What the page cache holds is not sure any more, or not in order."""
        try:
            self._disk.remove(self.path)
        except OSError as error:
            self.log.error(
                "cannot remove {path}: {error}; remove it by hand before the next start, which "
                "would believe what this process has written",
                path=self.path,
                error=error,
            )
