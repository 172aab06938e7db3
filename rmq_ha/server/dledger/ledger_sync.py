"""Bringing to the disk what a ledger has written."""

from collections.abc import Sequence

from twisted.logger import Logger

from rmq_ha.base.errors import StoreError
from rmq_ha.base.seams import File
from rmq_ha.base.store_format.dledger import Checkpoint
from rmq_ha.server.dledger.ledger_files import DirtyRow
from rmq_ha.server.dledger.term_file import CheckpointFile

Taken = Sequence[tuple[DirtyRow, int, File]]


class SyncJob:
    """
    One sync: made and finished in the reactor's thread (`Ledger.sync_job`, `Ledger.synced`), run
    in the worker.

    :param taken: the files.
    :param index: the last entry that will be on the disk.
    :param checkpoint: to write when they are; None: later.
    :ivar is_saved: the checkpoint was written.
    """

    log = Logger()

    def __init__(
        self,
        taken: Taken,
        index: int,
        checkpoint_file: CheckpointFile,
        checkpoint: Checkpoint | None,
    ) -> None:
        self._taken = taken
        self._checkpoint_file = checkpoint_file
        self.index = index
        self.checkpoint = checkpoint
        self.is_saved = False

    def cut(self, index: int) -> None:
        """Entries behind this one are gone: the sync says nothing about what comes there."""
        self.index = min(self.index, index)

    def run(self) -> None:
        """
        Block until all is on the disk.

        :raises NotNow: no sync failed, but one was not possible just now.
        :raises StoreError: the disk failed; what it holds is not known any more.
        """
        for part, start, file in self._taken:
            try:
                file.sync()
            except (OSError, ValueError) as error:
                if start not in part.gone:  # else it was deleted meanwhile
                    raise StoreError(f"cannot sync {part.row.path(start)}: {error}") from error
        if self.checkpoint is not None:
            try:
                self._checkpoint_file.save(self.checkpoint)
            except StoreError as error:
                self.log.warn("{error}; the next start takes longer", error=error)
            else:
                self.is_saved = True

    def give_back(self) -> None:
        """Nothing was synced: the files that are still there have to be."""
        for part, start, _ in self._taken:
            if start not in part.gone:
                part.dirty.add(start)
