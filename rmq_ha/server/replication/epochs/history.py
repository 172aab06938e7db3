"""The epochs of a broker's log, in memory and on the disk.

Spec: controller.md, sections 4.1 and 7.5.
"""

from twisted.logger import Logger

from rmq_ha.base.seams import Host
from rmq_ha.server.replication.epochs.commit_log import EpochCommitLog
from rmq_ha.server.replication.epochs.epochs import BEFORE_CONTROLLERS, Epoch, Epochs
from rmq_ha.server.replication.epochs.files import EpochFile
from rmq_ha.server.replication.places import holds_nothing


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
