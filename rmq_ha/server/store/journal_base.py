"""The common base of the journals of this package and of `replication` and `dledger`."""

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred, fail, maybeDeferred, succeed

from rmq_ha.base.config.store import MessageStoreConfig
from rmq_ha.base.errors import StoreError
from rmq_ha.base.model.message import AppendResult, Draft
from rmq_ha.base.model.status import Decided, FlushDiskType, PutMessageStatus
from rmq_ha.server.store.journal import (
    Cleaner,
    Flusher,
    JournalBrokerContext,
    JournalStoreContext,
    Replication,
    Role,
)
from rmq_ha.server.store.journal_statistics import JournalStatistics
from rmq_ha.server.store.log.append import DraftGroup
from rmq_ha.server.store.log.batch import BatchLayout
from rmq_ha.server.store.log.journal_log import JournalLog
from rmq_ha.server.store.log.setaside import TailAside
from rmq_ha.server.store.log.tail import Tail


class JournalBase:
    """
    A log, the flusher that brings it to the disk, and perhaps a replication that sends it to
    others; see `Journal`.

    :ivar replication: None if messages are kept on this disk only.
    :ivar flusher: set before `attach` is called.
    """

    always_waits = False
    goes_on_after_kill = False
    flusher: Flusher
    cleaner: Cleaner
    tail: Tail

    def __init__(self, log: JournalLog, config: MessageStoreConfig, role: Role) -> None:
        self.log = log
        self.role = role
        self.dispatch_from: int | None = None
        self.once_a_turn: list[Callable[[], None]] = []
        self.replication: Replication | None = None
        self._config = config
        self._has_started = False

    def attach(self, store: JournalStoreContext) -> None:
        self._outcomes = store.statistics.outcomes
        self.once_a_turn.append(self.flusher.appended)

    def join(self, broker: JournalBrokerContext) -> None:
        pass

    def hand_over(self) -> "Deferred[None]":
        """Do nothing: the role of this broker does not change when it stops."""
        return succeed(None)

    def replicated_by(self, replication: Replication | None) -> None:
        """
        Set the replication that sends the log to others, before `start`; None for no replication.
        """
        if self.replication is not None:
            self.once_a_turn.remove(self.replication.appended)
        self.replication = replication
        if replication is not None:
            self.once_a_turn.insert(0, replication.appended)

    # Keeping

    def append(self, drafts: Sequence[Draft], now_ms: int) -> DraftGroup:
        return self.log.append_group(drafts, now_ms)

    def append_batch(self, batch: BatchLayout, now_ms: int) -> AppendResult | PutMessageStatus:
        return self.log.append_batch(batch, now_ms)

    def when_kept(
        self, start_offset: int, next_offset: int, since: float, decided: Decided
    ) -> PutMessageStatus | None:
        """See `Journal`. The replication's status overrides the disk's, unless it is PUT_OK."""
        outcomes = self._outcomes
        flushed: PutMessageStatus | None = None
        replicated: PutMessageStatus | None = None

        def on_disk(status: PutMessageStatus, now: float) -> None:
            nonlocal flushed
            flushed = status
            outcomes.flush_seconds.add(now - since)
            if replicated is not None:
                decided(combine(status, replicated), now)

        def on_replicas(status: PutMessageStatus, now: float) -> None:
            nonlocal replicated
            replicated = status
            outcomes.replica_seconds.add(now - since)
            if flushed is not None:
                decided(flushed if status is PutMessageStatus.PUT_OK else status, now)

        at_once = self.flusher.when_flushed(next_offset, on_disk)
        if at_once is not None:
            flushed = at_once
        if self.replication is None:
            at_once = PutMessageStatus.PUT_OK
        else:
            at_once = self.replication.when_replicated(next_offset, start_offset, on_replicas)
        if at_once is None:
            return None
        replicated = at_once
        return flushed if flushed is None or at_once is PutMessageStatus.PUT_OK else at_once

    def sole_keeper(self) -> Replication | None:
        """See `Journal`. A subclass that overrides `when_kept` is asked by `when_kept` alone."""
        if type(self).when_kept is not JournalBase.when_kept or not self.flusher.never_waits:
            return None
        return self.replication

    def is_kept(self, start_offset: int, next_offset: int) -> bool:
        is_safe = (
            self._config.flush_disk_type is FlushDiskType.ASYNC_FLUSH
            or next_offset <= self.log.flushed_offset
        )
        replication = self.replication
        return (
            is_safe
            and replication is not None
            and replication.is_replicated(start_offset, next_offset)
        )

    @property
    def replicated_end(self) -> int:
        if self.replication is None:
            return self.log.max_offset
        return self.replication.replicated_offset()

    def why_no_puts(self) -> str:
        return ""

    def why_not_kept(self) -> str:
        return self.why_no_puts()

    # Beginning and end

    def start(self) -> "Deferred[None]":
        if self.replication is None:
            return succeed(None)
        self._has_started = True
        started: Deferred[None] = maybeDeferred(self.replication.start)
        return started

    def stop(self) -> "Deferred[None]":
        if self.replication is None or not self._has_started:
            return succeed(None)
        stopped: Deferred[None] = maybeDeferred(self.replication.stop)
        return stopped

    async def flush(self) -> None:
        await self.flusher.stop()

    def note_ends(self) -> None:
        """See `Journal`. Note nothing: the next start compares queues and log."""

    def stopped(self) -> None:
        pass

    # Calls of the broker

    def set_aside(self, end: int, why: str) -> "Deferred[TailAside]":
        return fail(StoreError("only the end of a classic commit log can be set aside"))

    def set_all_aside(self, why: str) -> "Deferred[TailAside]":
        return fail(StoreError("only a classic commit log can be set aside"))

    async def is_whole(self) -> None:
        pass

    def set_master_address(self, address: str | None) -> None:
        if self.replication is not None:
            self.replication.set_master_address(address)

    @property
    def has_masters_log(self) -> bool:
        return True

    def routes(self) -> dict[int, Any]:
        return {}

    def reloadable(self) -> list[Any]:
        return []

    def info(self) -> dict[str, Any]:
        return {}

    def statistics(self) -> JournalStatistics:
        return JournalStatistics() if self.replication is None else self.replication.statistics()


def combine(flushed: PutMessageStatus, replicated: PutMessageStatus) -> PutMessageStatus:
    """
    Return the replication's status, or the disk's if the records are replicated.

    Spec: store.md, section 7.4.
    """
    return flushed if replicated is PutMessageStatus.PUT_OK else replicated
