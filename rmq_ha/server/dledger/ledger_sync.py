"""The job that syncs a ledger's files to the disk."""

from collections.abc import Sequence

from twisted.logger import Logger

from rmq_ha.base.errors import StoreError
from rmq_ha.base.seams import File
from rmq_ha.base.store_format.dledger import DLedgerCheckpoint
from rmq_ha.server.dledger.ledger_files import DirtyRow
from rmq_ha.server.dledger.term_file import CheckpointFile

Taken = Sequence[tuple[DirtyRow, int, File]]


class SyncJob:
    """
    One sync. `Ledger.sync_job` makes it and `Ledger.synced` ends it in the reactor's thread; its
    `run` belongs into the worker.

    :param taken: the files to sync.
    :param index: the last entry that will be on the disk afterwards.
    :param checkpoint: the checkpoint to write after the files are synced; None: a later job writes
        one.
    :ivar is_saved: whether the checkpoint was written.
    """

    log = Logger()

    def __init__(
        self,
        taken: Taken,
        index: int,
        checkpoint_file: CheckpointFile,
        checkpoint: DLedgerCheckpoint | None,
    ) -> None:
        self._taken = taken
        self._checkpoint_file = checkpoint_file
        self.index = index
        self.checkpoint = checkpoint
        self.is_saved = False

    def cut(self, index: int) -> None:
        """
        Take note that entries after `index` are cut, so that this sync does not vouch for the
        entries that replace them.
        """
        self.index = min(self.index, index)

    def run(self) -> None:
        """
        Sync the files and save the checkpoint. Blocks.

        :raises NotNow: no sync failed, but a file could not be synced just now.
        :raises StoreError: the disk failed; nobody knows any more what it holds.
        """
        for part, start, file in self._taken:
            try:
                file.sync()
            except (OSError, ValueError) as error:
                if start not in part.gone:  # otherwise the file was deleted meanwhile
                    raise StoreError(f"cannot sync {part.row.path(start)}: {error}") from error
        if self.checkpoint is not None:
            try:
                self._checkpoint_file.save(self.checkpoint)
            except StoreError as error:
                self.log.warn("{error}; the next start takes longer", error=error)
            else:
                self.is_saved = True

    def give_back(self) -> None:
        """Count the files as dirty again, as far as they still exist: nothing was synced."""
        for part, start, _ in self._taken:
            if start not in part.gone:
                part.dirty.add(start)
