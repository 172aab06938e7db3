"""The checkpoint: how far log, queues and index are surely on the disk.

Spec: store.md, section 5.1.
"""

from twisted.logger import Logger

from rmq_ha.base.errors import NotNow
from rmq_ha.base.seams import Disk, File
from rmq_ha.base.store_flags import may_pass
from rmq_ha.base.store_format.checkpoint import (
    CHECKPOINT_BYTES,
    CHECKPOINT_SIZE,
    NOTHING_WHOLE,
    CheckpointTimes,
    CompletePositions,
)


class StoreCheckpoint:
    """
    The checkpoint's values in memory, and its file.

    :ivar physic: store time of the newest message in the flushed commit log, ms.
    :ivar logics: store time of the newest message in the queues, ms.
    :ivar index: store time of the last record in the last full index file, ms.
    :ivar flushed: physical offset up to which the commit log is on the disk; 0: not known.
    :ivar confirmed: in controller mode, the physical offset below which the log may be read.
    :ivar written: the five values above, as the file on the disk holds them.
    :ivar whole: the positions that the file says are complete on the disk in log, queues and index.
    """

    log = Logger()

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._file: File | None = None
        self.physic = self.logics = self.index = self.flushed = self.confirmed = 0
        self.written = CheckpointTimes()
        self.whole = NOTHING_WHOLE
        self._place = b""

    @property
    def times(self) -> CheckpointTimes:
        return CheckpointTimes(self.physic, self.logics, self.index, self.flushed, self.confirmed)

    def set(self, times: CheckpointTimes) -> None:
        self.physic, self.logics, self.index, self.flushed, self.confirmed = times

    def load(self) -> None:
        """
        Open the file. If it is missing or has a wrong size, create one whose values are 0.

        :raises OSError: the disk refuses.
        """
        if self._disk.exists(self._path) and self._disk.size(self._path) not in (
            0,
            CHECKPOINT_SIZE,
        ):
            self.log.warn(
                "{path} has {size} bytes instead of {wanted}: removed; after a stop that was not "
                "clean all of the commit log is read",
                path=self._path,
                size=self._disk.size(self._path),
                wanted=CHECKPOINT_SIZE,
            )
            self._disk.remove(self._path)
        self._file = self._disk.open(self._path, CHECKPOINT_SIZE)
        self._reserve(self._file)
        data = self._file.pread(CHECKPOINT_BYTES, 0)
        self._place = self._disk.place_of(self._path)
        self.written = CheckpointTimes.decode(data)
        self.whole = CompletePositions.decode(data, self._place)
        self.set(self.written)

    def _reserve(self, file: File) -> None:
        """
        Reserve the file's disk space.

        While a disk fills up, the log still takes messages into reserved space. Their flush must be
        noted in the checkpoint, else damage to them would look like the usual end after a crash. If
        the disk refuses now, it may still take the first write; otherwise that write reports the
        error.
        """
        try:
            file.reserve(0, CHECKPOINT_SIZE)
        except OSError as error:
            self.log.warn("cannot reserve room for {path}: {error}", path=self._path, error=error)

    def write(self, times: CheckpointTimes, whole: CompletePositions = NOTHING_WHOLE) -> None:
        """
        Write the checkpoint to the disk. Blocks: call it in the worker.

        :param whole: positions that stay complete, whatever is written later.
        :raises NotNow: the disk has no room just now.
        :raises OSError: the disk refuses.
        """
        if self._file is not None:
            try:
                self._file.pwrite(times.encode() + whole.encode(times, self._place), 0)
            except OSError as error:
                if may_pass(error):
                    raise NotNow(f"cannot write {self._path}: {error}") from error
                raise
            self._file.sync()
            self.written, self.whole = times, whole

    def write_flushed(self, physic: int, flushed: int, confirmed: int) -> None:
        """
        Write how far the commit log is on the disk, and leave the other values.

        Call it in the worker.
        """
        self.write(
            self.written._replace(
                physic_msg_timestamp=physic, flushed_offset=flushed, confirmed_offset=confirmed
            ),
            self.whole,
        )

    def take_whole(self) -> CompletePositions:
        """
        Return the complete positions, and clear them in the file, because a start changes the
        store. Blocks.

        :raises OSError: the disk refuses.
        """
        whole = self.whole
        if whole.offset:
            self.write(self.written)
        return whole

    def give_up(self, end: int, newest: int) -> None:
        """
        Lower the checkpoint before the log is cut at `end`, so that it confirms nothing beyond.

        The times are lowered, too: a slave fetches other messages with the same times instead,
        which are not on the disk yet. The lower checkpoint is on the disk before the log is cut.
        Otherwise a start after a crash would take the cut for damage. Blocks.

        :param newest: store time of the last record before `end`, ms.
        :raises OSError: the disk refuses.
        """
        most = CheckpointTimes.ending(end, newest)
        self.set(self.times.at_most(most))
        if self.whole.offset or self.written != self.written.at_most(most):
            self.write(self.written.at_most(most))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
