"""The commit log of a broker in controller mode: consumers read what is confirmed, and no more.

Spec: controller.md, section 8.5.
"""

from collections.abc import Callable
from typing import Protocol

from zope.interface import implementer

from rmq_ha.config.store import MessageStoreConfig
from rmq_ha.interfaces import ICommitLog
from rmq_ha.model.message import AppendResult, Message
from rmq_ha.model.status import PutMessageStatus
from rmq_ha.seams import Disk
from rmq_ha.store.batch import BatchLayout
from rmq_ha.store.boot import Left
from rmq_ha.store.commitlog import CommitLog
from rmq_ha.store.layout import log_files
from rmq_ha.store.parts import ClassicParts, Surroundings
from rmq_ha.store.run import Run
from rmq_ha.store.tail import LogTail


class Leadership(Protocol):
    """What the set says about appends."""

    @property
    def may_append(self) -> bool:
        """This broker leads, holds a lease, and enough are in sync."""


@implementer(ICommitLog)
class EpochCommitLog(CommitLog):
    """
    The built-in log, in which a master appends only while it leads.

    :ivar leadership: None: nothing is appended.
    :ivar admits: clients' messages are taken; by role.
    :ivar confirm_offset: what lies below it no election can lose, and may be read.
    :ivar on_flushed: called when more of it is on the disk.
    :ivar is_whole: the stop before was clean, so nothing is lost that others may have.
    """

    leadership: Leadership | None = None
    admits = False
    confirm_offset = 0
    on_flushed: Callable[[], None] | None = None
    is_whole = True

    def make_parts(self, store: Surroundings) -> "EpochParts":
        """What a store shall put around this log."""
        return EpochParts(store, self)

    @property
    def readable_end(self) -> int:
        """Where what is confirmed ends."""
        return min(self.max_offset, max(self.confirm_offset, self.min_offset, 0))

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

    def append_group(
        self, messages: list[Message], now_ms: int
    ) -> list[AppendResult | PutMessageStatus]:
        """As `CommitLog.append_group`, by a master in its epoch."""
        if not self._may_append:
            return [PutMessageStatus.SERVICE_NOT_AVAILABLE] * len(messages)
        return super().append_group(messages, now_ms)

    def append_batch(self, batch: BatchLayout, now_ms: int) -> AppendResult | PutMessageStatus:
        """As `CommitLog.append_batch`, by a master in its epoch."""
        if not self._may_append:
            return PutMessageStatus.SERVICE_NOT_AVAILABLE
        return super().append_batch(batch, now_ms)

    @property
    def _may_append(self) -> bool:
        return self.admits and self.leadership is not None and self.leadership.may_append


class EpochParts(ClassicParts):
    """What is around such a log: the built-in parts, up to what is confirmed."""

    is_elected = True
    goes_on_after_kill = False

    def __init__(self, store: Surroundings, log: EpochCommitLog) -> None:
        super().__init__(store, log)
        self._epoch_log = log
        self.tail = ConfirmedTail(log)
        log.subscribe(self._note)

    def log_flushed(self) -> None:
        """As `ClassicParts.log_flushed`; who counts what is on the disk hears of it."""
        super().log_flushed()
        if self._epoch_log.on_flushed is not None:
            self._epoch_log.on_flushed()

    def _note(self) -> None:
        self._store.checkpoint.confirmed = self._epoch_log.readable_end

    def recover(self, left: Left) -> None:
        """
        As `LogParts` says; what was dispatched was confirmed, and what the checkpoint says.

        What recovery builds anew beyond that is taken back.
        """
        log, queues, index = self._epoch_log, self._store.queues, self._store.index
        log.is_whole = left is Left.CLEAN
        dispatched = max(queues.max_physical_offset, 0)
        super().recover(left)
        known = max(dispatched, self._store.checkpoint.confirmed)
        log.confirm_offset = confirmed = min(known, int(log.max_offset))
        if queues.max_physical_offset > confirmed:
            queues.truncate(confirmed)
            if queues.max_physical_offset > confirmed:  # it may lie within a record
                confirmed, _ = queues.last_record() or (0, 0)
                queues.truncate(confirmed)
        if index is not None:
            index.truncate(confirmed)


class ConfirmedTail(LogTail):
    """What of the log is not dispatched yet, and may be."""

    def __init__(self, log: EpochCommitLog) -> None:
        super().__init__(log)
        self._epoch_log = log

    def next_slice(self, position: int, waits: bool) -> Run | None:
        """As `Tail` says; a record is read when all of it is confirmed."""
        log = self._epoch_log
        found = super().next_slice(position, waits)
        end = log.readable_end
        if found is None or found.end <= end:
            return found
        kept = [row for row in found.rows if row[2] + row[3] <= end]
        if not kept:
            return None
        return Run(position, kept[-1][2] + kept[-1][3], kept)


def make_epoch_log(disk: Disk, config: MessageStoreConfig) -> EpochCommitLog:
    """
    The log in the configured directories; nothing is read before the store loads.

    :raises ConfigurationError: the delay levels cannot be read.
    """
    return EpochCommitLog(*log_files(disk, config))
