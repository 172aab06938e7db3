"""The classic commit log of a broker that later joined a group: it is read, but never written
again.

Spec: dledger.md, section 15.4.
"""

from twisted.logger import Logger

from rmq_ha.base.errors import StoreError
from rmq_ha.base.runs.run import Run
from rmq_ha.base.store_format.commitlog import encode_blank
from rmq_ha.server.store.log.commitlog import CommitLog
from rmq_ha.server.store.log.recovery import LogRecovery
from rmq_ha.server.store.log.tail import LogTail
from rmq_ha.server.store.queues.table import ConsumeQueueTable


class ClassicPart:
    """
    The part of the log before the ledger's first entry, until its files have expired.

    :ivar log: the classic files. They are read as if the log ended where the ledger begins.
    """

    logger = Logger()

    def __init__(self, log: CommitLog) -> None:
        self.log = log
        self._tail = LogTail(log)

    @property
    def is_there(self) -> bool:
        """Whether some classic files have not expired yet."""
        return bool(self.log.row.starts)

    @property
    def end(self) -> int:
        """Return the offset at which the ledger begins; 0 without classic files."""
        return self.log.max_offset if self.is_there else 0

    def load(self, has_entries: bool, last_exit_ok: bool, queues: ConsumeQueueTable) -> None:
        """
        Find the end of the classic log. At the first start of DLedger, also fill up the last file,
        so that the first entry begins a new file.

        :param has_entries: the ledger has entries, so an earlier start has filled up the last file.
        :raises StoreError: the last stop before the first entry was not a clean one, or the disk
            refuses.
        """
        row = self.log.row
        if not row.starts:
            return
        if not has_entries:
            self._close_off(last_exit_ok, queues)
        end = row.starts[-1] + row.file_size
        self.log.recovered(end, end)

    def _close_off(self, last_exit_ok: bool, queues: ConsumeQueueTable) -> None:
        row = self.log.row
        if not last_exit_ok:
            raise StoreError(
                f"{row.directories[0]} was not closed cleanly: start once without "
                "enableDLegerCommitLog and stop; all members of the group need the same files"
            )
        recovery = LogRecovery(self.log, True)
        recovered = recovery.normal(queues.last_record())
        recovery.cut(recovered.end, recovered.end)
        self.log.last_store_timestamp = recovered.last_store_timestamp
        start = row.start_of(recovered.end)
        if start not in row.starts:
            return  # the last record ends with its file
        file = row.file(start)
        file.pwrite(encode_blank(start + row.file_size - recovered.end), recovered.end - start)
        file.sync()
        self.logger.info(
            "the classic commit log ends at {end}; DLedger begins at {begin}",
            end=recovered.end,
            begin=start + row.file_size,
        )

    def next_slice(self, position: int) -> Run | None:
        """Return the next records to dispatch, at most up to the ledger's first entry."""
        return self._tail.next_slice(position, False)
