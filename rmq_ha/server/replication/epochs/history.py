"""The epochs of a broker's log, in memory and on the disk.

Spec: controller.md, sections 4.1 and 7.5.
"""

from twisted.logger import Logger

from rmq_ha.base.errors import ProtocolViolation, StoreError
from rmq_ha.base.seams import Disk, Host
from rmq_ha.server.replication.epochs.commit_log import EpochCommitLog
from rmq_ha.server.replication.epochs.epochs import (
    BEFORE_CONTROLLERS,
    Epoch,
    Epochs,
    decode_epochs,
    encode_epochs,
    read_decoded,
)
from rmq_ha.server.replication.places import holds_nothing


class EpochFile:
    """
    The file epochFileCheckpoint, which keeps the epochs of the log.

    Differs from 5.3.3 on purpose: the file is replaced as a whole, and is on the disk when `write`
    returns. The file epochFileCheckpoint.crashed beside it remembers a crash, which no later clean
    stop undoes.

    :ivar epochs: the epochs in the file.
    :ivar crashed_in: the newest epoch of which this log may have lost bytes that other brokers
        have; -1: none.
    """

    log = Logger()

    def __init__(self, disk: Disk, path: str) -> None:
        self.epochs = Epochs()
        self.crashed_in = -1
        self._disk = disk
        self._path = path
        self._crash_path = path + ".crashed"
        self._keeps_backup = True

    def load(self) -> None:
        """
        Read the file, or its backup if it is missing or damaged. If both are missing, there are no
        epochs.

        :raises StoreError: they are damaged, and nobody can tell which master wrote the log.
        """
        faults = []
        for path in (self._path, self._path + ".bak"):
            try:
                epochs = read_decoded(self._disk, path, decode_epochs)
            except ProtocolViolation as error:
                faults.append(f"{path} is damaged ({error})")
                continue
            if epochs is not None:
                if path != self._path:
                    self.log.warn(
                        "{path} was loaded instead of {first}", path=path, first=self._path
                    )
                    self._keeps_backup = False
                self.epochs = epochs
                self.crashed_in = self._last_crash()
                return
        if faults:
            raise StoreError(
                f"{'; '.join(faults)}: who wrote which part of the log is not known. Move the "
                "whole store away to begin as a new replica"
            )

    def _last_crash(self) -> int:
        newest = self.epochs.last_epoch
        try:
            noted = int(self._disk.read_bytes(self._crash_path))
        except FileNotFoundError:
            return -1
        except ValueError:
            return newest  # nobody knows in which epoch the crash was
        return min(noted, newest)

    def note_crash(self) -> None:
        """
        Note that the log may have lost bytes of the newest epoch. Blocks, so call it in the worker.

        :raises OSError: the disk refuses.
        """
        newest = self.epochs.last_epoch
        if newest > self.crashed_in:
            self._disk.replace(self._crash_path, str(newest).encode())
            self.crashed_in = newest

    def write(self, epochs: Epochs) -> None:
        """
        Write the epochs to the disk. Blocks, so call it in the worker.

        :raises OSError: the disk refuses.
        """
        self._disk.replace(self._path, encode_epochs(epochs), backup=self._keeps_backup)
        self._keeps_backup = True
        self.epochs = epochs


class EpochHistory:
    """
    The epochs of a broker's log: which master wrote which part.

    :param path: path of epochFileCheckpoint.
    :ivar epochs: epochs of the log.
    """

    log = Logger()

    def __init__(self, host: Host, log: EpochCommitLog, path: str) -> None:
        self.epochs = Epochs()
        self._worker = host.worker
        self._log = log
        self._file = EpochFile(host.disk, path)

    @property
    def crashed_in(self) -> int:
        """
        Return the newest epoch of which this log may have lost bytes that other brokers have; -1:
        none.
        """
        return self._file.crashed_in

    @property
    def is_of_controllers(self) -> bool:
        """Whether the log has an epoch that an election made."""
        return self.epochs.last_epoch > BEFORE_CONTROLLERS

    async def load(self) -> None:
        """
        Read the file. If the last stop was a crash, note that on the disk.

        :raises StoreError: the file cannot be used.
        """
        self._file.load()
        self.epochs = self._file.epochs.cut(int(self._log.max_offset))
        if not self._log.is_whole:
            await self._worker.call(self._file.note_crash)

    async def begin_mode(self, has_id: bool) -> None:
        """
        Note the log that a classic pair left as an epoch that no election made.

        The epoch is on the disk before the controller gives this broker an id. A broker that has
        an id but no epochs has therefore lost its epoch file.
        """
        if has_id or self._file.epochs.entries or holds_nothing(self._log):
            return
        await self.write(Epochs([Epoch(BEFORE_CONTROLLERS, 0)]))
        self.log.info(
            "the log, up to {end}, is from before controller mode", end=self._log.max_offset
        )

    async def write(self, epochs: Epochs) -> None:
        """
        Write the epochs to the disk, then take them over.

        :raises OSError: the disk refuses.
        """
        await self._worker.call(self._file.write, epochs)
        self.epochs = epochs
