"""The checkpoint: how far log, queues and index are surely on the disk.

Spec: store.md, section 5.1.
"""

from rmq_ha.errors import NotNow
from rmq_ha.seams import Disk, File
from rmq_ha.store.flags import may_pass
from rmq_ha.store.format.checkpoint import CHECKPOINT_SIZE, CheckpointTimes


class Checkpoint:
    """
    The three times in memory, and the file that they are written to.

    :ivar physic: newest message of the flushed commit log, ms.
    :ivar logics: newest message that is in the queues, ms.
    :ivar index: end of the last full index file, ms.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._file: File | None = None
        self.physic = self.logics = self.index = 0

    @property
    def times(self) -> CheckpointTimes:
        """All three."""
        return CheckpointTimes(self.physic, self.logics, self.index)

    def set(self, times: CheckpointTimes) -> None:
        """Replace all three, in memory."""
        self.physic, self.logics, self.index = times

    def load(self) -> None:
        """
        Open the file, a new one with three zeros if it is missing.

        :raises StoreError: the file has another size.
        """
        self._file = self._disk.open(self._path, CHECKPOINT_SIZE)
        self.set(CheckpointTimes.decode(self._file.pread(24, 0)))

    def write(self, times: CheckpointTimes) -> None:
        """
        Put these on the disk. Blocks: for the worker.

        :raises NotNow: there is no room for them just now.
        :raises OSError: the disk refuses.
        """
        if self._file is not None:
            try:
                self._file.pwrite(times.encode(), 0)
            except OSError as error:
                if may_pass(error):
                    raise NotNow(f"cannot write {self._path}: {error}") from error
                raise
            self._file.sync()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
