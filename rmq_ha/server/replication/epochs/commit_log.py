"""The commit log of a broker in controller mode: consumers read what is confirmed, and no more.

Spec: controller.md, section 8.5.
"""

from collections.abc import Sequence
from typing import Protocol

from rmq_ha.base.model.message import AppendResult, Draft
from rmq_ha.base.model.status import PutMessageStatus
from rmq_ha.base.store_format.run import Run
from rmq_ha.server.store.log.append import Group
from rmq_ha.server.store.log.batch import BatchLayout
from rmq_ha.server.store.log.commitlog import CommitLog
from rmq_ha.server.store.log.tail import LogTail


class Leadership(Protocol):
    """What the set says about appends."""

    @property
    def may_append(self) -> bool:
        """This broker leads, holds a lease, and enough are in sync."""


class EpochCommitLog(CommitLog):
    """
    The built-in log, in which a master appends only while it leads.

    :ivar leadership: None: nothing is appended.
    :ivar admits: clients' messages are taken; by role.
    :ivar confirm_offset: what lies below it no election can lose, and may be read.
    :ivar is_whole: the stop before was clean, so nothing is lost that others may have.
    :ivar shared_end: the confirm offset of the life before, which only this mode writes.
    """

    leadership: Leadership | None = None
    admits = False
    confirm_offset = 0
    is_whole = True
    shared_end = 0

    @property
    def readable_end(self) -> int:
        """Where what is confirmed ends."""
        return min(self.max_offset, max(self.confirm_offset, self.min_offset))

    def confirmed(self, offset: int) -> None:
        """More may be read; it never becomes less, but with a cut."""
        if offset > self.confirm_offset:
            self.confirm_offset = offset
            self.poke()

    def poke(self) -> None:
        """Have what is not flushed, sent or dispatched seen to."""
        for callback in self._subscribers:
            callback()

    def recovered(self, end: int, safe: int) -> None:
        """As `CommitLog.recovered`; of what is cut nothing is confirmed any more."""
        super().recovered(end, safe)
        self.confirm_offset = min(self.confirm_offset, end)

    def append_group(self, drafts: Sequence[Draft], now_ms: int) -> Group:
        """As `CommitLog.append_group`, by a master in its epoch."""
        if not self._may_append:
            return Group.refused(len(drafts), PutMessageStatus.SERVICE_NOT_AVAILABLE)
        return super().append_group(drafts, now_ms)

    def append_batch(self, batch: BatchLayout, now_ms: int) -> AppendResult | PutMessageStatus:
        """As `CommitLog.append_batch`, by a master in its epoch."""
        if not self._may_append:
            return PutMessageStatus.SERVICE_NOT_AVAILABLE
        return super().append_batch(batch, now_ms)

    @property
    def _may_append(self) -> bool:
        return self.admits and self.leadership is not None and self.leadership.may_append


class ConfirmedTail(LogTail):
    """What of the log is not dispatched yet, and may be."""

    def __init__(self, log: EpochCommitLog) -> None:
        super().__init__(log)
        self._epoch_log = log

    def next_slice(self, position: int, waits: bool) -> Run | None:
        """As `Tail` says; a record is read when all of it is confirmed."""
        log = self._epoch_log
        run = super().next_slice(position, waits)
        end = log.readable_end
        if run is None or run.end <= end:
            return run
        kept = [row for row in run.rows if row[2] + row[3] <= end]
        if not kept:
            return None
        return Run(position, kept[-1][2] + kept[-1][3], kept)
