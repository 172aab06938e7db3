"""The commit log of a broker in controller mode. Consumers read only the confirmed part.

Spec: controller.md, section 8.5.
"""

from collections.abc import Sequence
from typing import Protocol

from rmq_ha.base.model.message import AppendResult, Draft
from rmq_ha.base.model.status import PutMessageStatus
from rmq_ha.base.runs.run import Run
from rmq_ha.server.store.log.append import DraftGroup
from rmq_ha.server.store.log.batch import BatchLayout
from rmq_ha.server.store.log.commitlog import CommitLog
from rmq_ha.server.store.log.tail import LogTail


class AppendPermission(Protocol):
    """The permission to append, which depends on the set."""

    @property
    def may_append(self) -> bool:
        """Whether this broker leads, holds a lease, and enough brokers are in sync."""


class EpochCommitLog(CommitLog):
    """
    The built-in log, to which a master appends only while it leads.

    :ivar leadership: the permission to append; None: nothing is appended.
    :ivar admits: whether the log takes clients' messages; the broker's role decides.
    :ivar confirm_offset: no election can lose messages below this offset, so they may be read.
    :ivar is_whole: whether the last stop was clean. After a crash, this log may lack bytes that it
        had sent to other brokers.
    :ivar shared_end: the confirm offset of the last run, which only this mode writes.
    """

    leadership: AppendPermission | None = None
    admits = False
    confirm_offset = 0
    is_whole = True
    shared_end = 0

    @property
    def readable_end(self) -> int:
        """Return the end of the confirmed part of the log."""
        return min(self.max_offset, max(self.confirm_offset, self.min_offset))

    def confirmed(self, offset: int) -> None:
        """
        Raise the confirm offset, so that consumers may read more. It falls only when the log is
        cut.
        """
        if offset > self.confirm_offset:
            self.confirm_offset = offset
            self.poke()

    def poke(self) -> None:
        """
        Call the subscribers of the log, which flush it to the disk, send it to slaves and dispatch
        it.
        """
        for callback in self._subscribers:
            callback()

    def recovered(self, end: int, safe: int) -> None:
        """See `CommitLog.recovered`. After a cut, the confirm offset is at most the new end."""
        super().recovered(end, safe)
        self.confirm_offset = min(self.confirm_offset, end)

    def append_group(self, drafts: Sequence[Draft], now_ms: int) -> DraftGroup:
        """Append as a master in its epoch; see `CommitLog.append_group`."""
        if not self._may_append:
            return DraftGroup.refused(len(drafts), PutMessageStatus.SERVICE_NOT_AVAILABLE)
        return super().append_group(drafts, now_ms)

    def append_batch(self, batch: BatchLayout, now_ms: int) -> AppendResult | PutMessageStatus:
        """Append as a master in its epoch; see `CommitLog.append_batch`."""
        if not self._may_append:
            return PutMessageStatus.SERVICE_NOT_AVAILABLE
        return super().append_batch(batch, now_ms)

    @property
    def _may_append(self) -> bool:
        return self.admits and self.leadership is not None and self.leadership.may_append


class ConfirmedTail(LogTail):
    """The part of the log that is confirmed and not dispatched yet."""

    def __init__(self, log: EpochCommitLog) -> None:
        super().__init__(log)
        self._epoch_log = log

    def next_slice(self, position: int, waits: bool) -> Run | None:
        """See `Tail`. A record is returned only when all of it is confirmed."""
        log = self._epoch_log
        run = super().next_slice(position, waits)
        end = log.readable_end
        if run is None or run.end <= end:
            return run
        kept = sum([row[2] + row[3] <= end for row in run.rows])
        if not kept:
            return None
        rows = run.rows.part(0, kept)
        return Run(position, rows.end, rows)
