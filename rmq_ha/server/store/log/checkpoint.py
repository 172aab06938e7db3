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


class Checkpoint:
    """
    What is known in memory, and the file that it is written to.

    :ivar physic: newest message of the flushed commit log, ms.
    :ivar logics: newest message that is in the queues, ms.
    :ivar index: end of the last full index file, ms.
    :ivar flushed: up to this physical offset the commit log is on the disk; 0: not known.
    :ivar confirmed: in controller mode: below this physical offset the log may be read.
    :ivar written: what the file says of these.
    :ivar whole: what it says to be complete on the disk, in log, queues and index.
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
        Open the file; a new one that knows nothing if it is missing, or of another size.

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
        Take its room on the disk now.

        On a disk that gets full the log takes what its files have room for, and a flush of that
        has to be noted all the same, or damage to it passes for what a crash leaves. A disk that
        refuses now may take the first write; if it does not, that says so.
        """
        try:
            file.reserve(0, CHECKPOINT_SIZE)
        except OSError as error:
            self.log.warn("cannot reserve room for {path}: {error}", path=self._path, error=error)

    def write(self, times: CheckpointTimes, whole: CompletePositions = NOTHING_WHOLE) -> None:
        """
        Put these on the disk. Blocks: for the worker.

        :param whole: what stays so, whatever is written from now on.
        :raises NotNow: there is no room for them just now.
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
        """Put on the disk how far the commit log is; no more of the others. For the worker."""
        self.write(
            self.written._replace(
                physic_msg_timestamp=physic, flushed_offset=flushed, confirmed_offset=confirmed
            ),
            self.whole,
        )

    def take_whole(self) -> CompletePositions:
        """
        What was whole; nothing is any more, also on the disk: a start changes it. Blocks.

        :raises OSError: the disk refuses.
        """
        whole = self.whole
        if whole.offset:
            self.write(self.written)
        return whole

    def give_up(self, end: int, newest: int) -> None:
        """
        The log is about to be cut there: no flush vouches for what lies behind any more.

        Neither does a time: what a slave fetches in its place is as old as what was there. On the
        disk before the cut, or the next crash would take the cut for damage. Blocks.

        :param newest: when the last record before that was stored, ms.
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
