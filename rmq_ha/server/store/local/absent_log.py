"""
Finds out whether a store has lost its commit log, because a disk is not mounted or a folder was
deleted.

Spec: store.md, section 5.2.
"""

from twisted.logger import Logger

from rmq_ha.base.errors import StoreError
from rmq_ha.base.seams import Disk
from rmq_ha.server.store.log.checkpoint import StoreCheckpoint
from rmq_ha.server.store.log.commitlog import CommitLog
from rmq_ha.server.store.log.recovery import LogRecovery
from rmq_ha.server.store.log.setaside import folder_for
from rmq_ha.server.store.queues.ends import FILE_NAME
from rmq_ha.server.store.queues.table import ConsumeQueueTable

_BUILT_ON_IT = ("consumequeue", "consumequeue_ext", "index", FILE_NAME)


class AbsentLog:
    """
    Decides whether a log without files may be used, before queues, index or checkpoint are changed.

    :param root: the store's root directory.
    """

    log = Logger()

    def __init__(self, disk: Disk, root: str, log: CommitLog) -> None:
        self._disk = disk
        self._root = root
        self._directories = log.row.directories

    def settle(
        self,
        queues: ConsumeQueueTable,
        checkpoint: StoreCheckpoint,
        *,
        may_start: bool,
        now_ms: int,
    ) -> None:
        """
        Continue with a log that has no file, if it never had one, or if the operator allows it.

        :param may_start: `startWithoutCommitLog`.
        :raises StoreError: there was a log before.
        :raises OSError: the disk refuses.
        """
        evidence = self._evidence(queues, checkpoint)
        if not evidence:
            return
        where = " and ".join(self._directories)
        if not may_start:
            raise StoreError(
                f"{where}: no commit log is there, but {evidence}. Is the disk mounted, and "
                "storePathCommitLog right? Restore the files from a copy or from another member; "
                "or start once with startWithoutCommitLog=true: all messages are given up then, "
                f"and queues and index are set aside in {self._root}/setaside"
            )
        folder = folder_for(self._disk, self._root, "queues", now_ms)
        for name in _BUILT_ON_IT:
            if self._disk.exists(f"{self._root}/{name}"):
                self._disk.move(f"{self._root}/{name}", f"{folder}/{name}")
        queues.forget()
        self.log.warn(
            "{where}: no commit log is there, but {evidence}; startWithoutCommitLog=true: it "
            "begins at 0, and what was built on the old one is in {folder}",
            where=where,
            evidence=evidence,
            folder=folder,
        )

    def _evidence(self, queues: ConsumeQueueTable, checkpoint: StoreCheckpoint) -> str:
        """Return what proves that there was a log; empty if nothing does."""
        known = queues.first_file()
        if known:
            return f"{known} points into it"
        if checkpoint.flushed:
            return f"{self._root}/checkpoint says that it was written up to {checkpoint.flushed}"
        if checkpoint.physic:
            return f"{self._root}/checkpoint says that it was written at {checkpoint.physic} ms"
        return ""


def tell_lost_files(log: CommitLog, queues: ConsumeQueueTable, kept_ms: int, now_ms: int) -> None:
    """
    Warn when queues point before the log's begin although its first file is not old enough for
    deletions.

    :param kept_ms: how long files are kept.
    :raises OSError: the disk refuses.
    """
    begin = log.min_offset
    low = min((queue.first_record() for _, queue in queues.items()), default=begin)
    if low < begin and now_ms < LogRecovery(log, True).begun_at(begin) + kept_ms:
        AbsentLog.log.warn(
            "the commit log begins at {begin}, and queues point to messages from {low} on: its "
            "first files, and these messages, are gone before their time (fileReservedTime)",
            begin=begin,
            low=low,
        )
