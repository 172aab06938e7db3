"""Syncing a ledger to the disk, and deleting its expired files.

Spec: dledger.md, chapters 2 and 14.
"""

from collections.abc import Callable

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmq_ha.base.errors import NotNow, StoreError
from rmq_ha.base.model.status import Decided, PutMessageStatus
from rmq_ha.server.dledger.commit_log import DLedgerCommitLog
from rmq_ha.server.dledger.ledger_sync import SyncJob
from rmq_ha.server.store.journal import JournalStoreContext
from rmq_ha.server.store.log.clean import CleaningLimits, LogCleaner

FLUSH_S = 0.01
CHECKPOINT_S = 3.0
_OPEN_AGAIN_S = 0.5


class LedgerFlusher:
    """
    Syncs a ledger in the worker, one sync at a time.

    A sync comes soon after an append, or at once when a caller of `sync` waits. Every few seconds
    it includes the index and the checkpoint. No timer runs while everything is on the disk.

    Spec: dledger.md, section 2 (the flush service).
    """

    log = Logger()

    def __init__(self, log: DLedgerCommitLog, store: JournalStoreContext) -> None:
        self._log = log
        self._ledger = log.ledger
        self._store = store
        self._clock, self._worker = store.host.clock, store.host.worker
        self._timer: IDelayedCall | None = None
        self._again: IDelayedCall | None = None
        self._running: Deferred[None] | None = None
        self._callers: list[Callable[[int], None]] = []
        self._seen = (-1, -1)
        self._last_thorough = self._clock.seconds()
        self._is_broken = self._is_stopped = False

    @property
    def never_waits(self) -> bool:
        """Return True: a put waits for the group, and not for this disk alone."""
        return True

    def when_flushed(self, next_offset: int, decided: Decided) -> PutMessageStatus:
        """
        Return PUT_OK at once: a put waits for the group alone. With SYNC_FLUSH, the group counts
        only the entries that this member has flushed (`DurableIndex`).
        """
        return PutMessageStatus.PUT_OK

    def appended(self) -> None:
        """Arm the timer if the ledger, or its committed part, has grown."""
        if self._state() != self._seen and self._timer is None and self._running is None:
            self._arm()

    def sync(self, done: Callable[[int], None]) -> None:
        """
        Sync everything that is in the ledger now.

        :param done: called with the last entry that is on the disk; never if the disk fails.
        """
        self._callers.append(done)
        if self._running is None and self._again is None and not self._is_broken:
            self._start()

    def _state(self) -> tuple[int, int]:
        return self._ledger.end_pos, self._ledger.committed_index

    def _arm(self) -> None:
        if self._is_broken or self._is_stopped or self._again is not None:
            return
        wait = FLUSH_S
        if self._state()[0] == self._seen[0]:  # only the checkpoint is out of date
            wait = max(wait, self._last_thorough + CHECKPOINT_S - self._clock.seconds())
        self._timer = self._clock.callLater(wait, self._on_time)

    def _on_time(self) -> None:
        self._timer = self._again = None
        self._start()

    def _start(self, thorough: bool = False) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._clock.seconds()
        if thorough or now >= self._last_thorough + CHECKPOINT_S:
            thorough, self._last_thorough = True, now
        end, committed = self._state()
        self._seen = (end, committed if thorough else self._seen[1])
        newest = self._log.last_store_timestamp
        try:
            job = self._ledger.sync_job(thorough)
        except NotNow as error:
            self._put_off(error)
            return
        except (OSError, StoreError) as error:
            # files that were to be synced may count as clean by now
            self._give_up(f"cannot sync: {error}")
            self.log.error("the ledger takes no more entries: {error}", error=error)
            return
        callers, self._callers = self._callers, []
        running: Deferred[None] = Deferred()
        self._running = running
        synced = self._worker.call(job.run)
        synced.addCallbacks(
            self._synced,
            self._failed,
            callbackArgs=(job, end, newest, callers),
            errbackArgs=(job, callers),
        )
        synced.addErrback(self._surprised).addBoth(self._next, running)

    def _synced(
        self, _: None, job: SyncJob, end: int, newest: int, callers: list[Callable[[int], None]]
    ) -> None:
        index = self._ledger.synced(job)
        self._log.flushed_offset = min(end, self._ledger.end_pos)
        checkpoint = self._store.checkpoint
        checkpoint.physic = max(checkpoint.physic, newest)
        self._store.log_flushed()
        for done in callers:
            done(index)

    def _failed(self, failure: Failure, job: SyncJob, callers: list[Callable[[int], None]]) -> None:
        if isinstance(failure.value, NotNow) and not self._is_stopped:
            self._ledger.put_off(job)
            self._callers = callers + self._callers
            self._put_off(failure.value)
            return
        # after a failed fsync nobody knows what is on the disk: stop, do not try again
        self._is_broken = True
        self._ledger.sync_failed(job, failure.value)  # type: ignore[arg-type]
        self._log.fault = f"sync failed: {failure.getErrorMessage()}"

    def _put_off(self, error: NotNow) -> None:
        """Try again later. No sync has failed, so callers that wait for one go on waiting."""
        self.log.warn("the ledger is synced later: {error}", error=error)
        if not self._is_stopped:
            self._again = self._clock.callLater(_OPEN_AGAIN_S, self._on_time)

    def _give_up(self, reason: str) -> None:
        self._is_broken = self._ledger.is_broken = True
        self._ledger.fault = self._log.fault = reason

    def _surprised(self, failure: Failure) -> None:
        self._give_up(f"cannot sync: {failure.getErrorMessage()}")
        self.log.failure("the ledger cannot be synced any more", failure)

    def _next(self, _: object, running: "Deferred[None]") -> None:
        self._running = None
        if not self._is_broken and self._again is None:
            if self._callers:
                self._start()
            elif self._state() != self._seen:
                self._arm()
        running.callback(None)

    async def stop(self) -> None:
        """Sync everything, with index and checkpoint, and start no more syncs."""
        self._is_stopped = True
        for timer in (self._timer, self._again):
            if timer is not None:
                timer.cancel()
        self._timer = self._again = None
        while self._running is not None:
            await self._join()
        if not self._is_broken:
            self._start(thorough=True)
            await self._join()

    def _join(self) -> "Deferred[None]":
        if self._running is None:
            return succeed(None)
        done: Deferred[None] = Deferred()
        self._running.chainDeferred(done)
        return done


class LedgerCleaner(LogCleaner):
    """
    Deletes expired data files by RocketMQ's rules. While the disk is too full, the ledger also
    refuses a leader's entries.

    Spec: dledger.md, section 13.1 and chapter 14.
    """

    def __init__(self, log: DLedgerCommitLog, store: JournalStoreContext) -> None:
        configuration = store.configuration
        self._group_log = log
        self._ledger = log.ledger
        super().__init__(
            store.host,
            configuration.store,
            log,
            f"{store.root}/consumequeue",
            store.flags,
            # RocketMQ tells DLedger to keep files for one hour more.
            CleaningLimits.from_config(configuration.ours, extra_hours=1),
        )

    def check_disk(self) -> None:
        """
        Look how full the disk is. The result also applies to a leader's entries: a follower with a
        full disk answers 415.
        """
        super().check_disk()
        ratio, fuller = self.log_ratio(), max(self.log_ratio(), self.queue_ratio())
        is_full = ratio > self._limits.full_ratio
        self._ledger.full = f"its disk is {ratio:.0%} full" if is_full else None
        is_short = fuller > self._limits.force_ratio
        self._ledger.short = f"its disk is {fuller:.0%} full" if is_short else None

    def may_force(self) -> bool:
        """
        Whether unexpired files may be deleted; see `LogCleaner`. A leader keeps them while another
        member can lead instead.
        """
        leadership = self._group_log.leadership
        return leadership is None or leadership.deletes_early()
