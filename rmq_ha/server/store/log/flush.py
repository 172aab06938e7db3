"""Decides when written bytes are flushed to the disk, and answers the puts that wait for it.

Spec: store.md, sections 5.1, 7.1 and 7.2.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmq_ha.base.config.store import MessageStoreConfig
from rmq_ha.base.errors import NotNow, StoreError
from rmq_ha.base.model.status import Decided, FlushDiskType, PutMessageStatus
from rmq_ha.base.seams import File, Worker
from rmq_ha.base.store_format.checkpoint import CheckpointTimes, CompletePositions
from rmq_ha.server.store.log.checkpoint import StoreCheckpoint
from rmq_ha.server.store.log.commitlog import CommitLog

_PAGE = 4096
_OPEN_AGAIN_S = 0.5
_WHOLE_EVERY = 128 << 20
"""
When so many bytes were appended, a round of the queues begins early. A start after a power loss has
to read about as many bytes.
"""
_ALL = 1 << 63
"""An offset above every physical offset."""


def _sync_all(files: Iterable[File]) -> None:
    for file in files:
        file.sync()


class CommitLogFlusher:
    """
    Flushes the commit log: at once for all waiting puts together, or at intervals.

    No timer runs while everything is on the disk.

    :param flushed: called when more of the log is on the disk.
    :param doubt: called when a flush failed, as the page cache may have lost bytes.
    """

    log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        worker: Worker,
        configuration: MessageStoreConfig,
        log: CommitLog,
        checkpoint: StoreCheckpoint,
        flushed: Callable[[], None],
        doubt: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._worker = worker
        self._configuration = configuration
        self._log = log
        self._checkpoint = checkpoint
        self._tell_flushed = flushed
        self._doubt = doubt
        self._is_broken = self._is_stopping = False
        self._waiters: deque[tuple[int, float, Decided]] = deque()
        self._running: Deferred[None] | None = None
        self._wanted = False
        self._is_held = False
        self._deadline_timer: IDelayedCall | None = None
        self._flush_timer: IDelayedCall | None = None
        self._again: IDelayedCall | None = None
        self._last_thorough = clock.seconds()

    @property
    def waiting(self) -> int:
        """Number of puts that wait for the disk."""
        return len(self._waiters)

    @property
    def never_waits(self) -> bool:
        """Whether no put waits for this disk, as the configuration says."""
        return self._configuration.flush_disk_type is FlushDiskType.ASYNC_FLUSH

    def when_flushed(self, next_offset: int, decided: Decided) -> PutMessageStatus | None:
        """
        Wait for a flush, which `appended` starts once for all puts of a turn.

        :param next_offset: end of the records that were put.
        :returns: PUT_OK if there is nothing to wait for; FLUSH_DISK_TIMEOUT if an earlier flush
            failed, so that none follows; None if `decided` will be called with PUT_OK or
            FLUSH_DISK_TIMEOUT.
        """
        if self.never_waits or next_offset <= self._log.flushed_offset:
            return PutMessageStatus.PUT_OK
        if self._is_broken:
            return PutMessageStatus.FLUSH_DISK_TIMEOUT
        deadline = self._clock.seconds() + self._configuration.sync_flush_timeout / 1000
        self._waiters.append((next_offset, deadline, decided))
        if self._deadline_timer is None:
            self._deadline_timer = self._clock.callLater(
                self._configuration.sync_flush_timeout / 1000, self._overdue
            )
        return None

    def appended(self) -> None:
        """Have the new end of the log flushed, at once (SYNC_FLUSH) or after the flush interval."""
        if self._configuration.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            self._want()
        elif self._flush_timer is None and self._running is None:
            self._arm()

    def _arm(self) -> None:
        self._flush_timer = self._clock.callLater(
            max(self._configuration.flush_interval_commit_log, 1) / 1000, self._on_interval
        )

    def _on_interval(self) -> None:
        self._flush_timer = None
        dirty = self._log.max_offset // _PAGE - self._log.flushed_offset // _PAGE
        thorough = self._configuration.flush_commit_log_thorough_interval / 1000
        if (
            dirty >= self._configuration.flush_commit_log_least_pages
            or self._clock.seconds() >= self._last_thorough + thorough
        ):
            self._want()
        elif self._log.max_offset > self._log.flushed_offset:
            self._arm()

    def _want(self) -> None:
        """Flush up to the present end; if a flush is running, the next one follows it."""
        if self._running is not None or self._is_held or self._again is not None:
            self._wanted = True
        elif not self._is_broken and self._log.max_offset > self._log.flushed_offset:
            self._flush()

    async def hold(self) -> None:
        """Let no flush begin until `release`; a running one is over when this returns."""
        self._is_held = True
        while self._running is not None:
            await self._running

    def release(self) -> None:
        """Allow flushes again, and begin at once if one was wanted meanwhile."""
        self._is_held = False
        if self._wanted and self._running is None:
            self._want()

    def _flush(self) -> bool:
        """Begin a flush; return False if the files cannot be opened, which is tried again soon."""
        self._wanted = False
        log, row = self._log, self._log.row
        # Read before the sync begins: it does not cover what is appended while it runs.
        target, newest = log.max_offset, log.last_store_timestamp
        try:
            files = [
                row.file(start)
                for start in row.starts
                if start < target and start + row.file_size > log.flushed_offset
            ]
        except (OSError, StoreError) as error:
            self._put_off(error)
            return False
        self._last_thorough = self._clock.seconds()
        running: Deferred[None] = Deferred()
        self._running = running
        synced = self._worker.call(_sync_all, files)
        synced.addCallbacks(self._flushed, self._failed, callbackArgs=(target, newest))
        synced.addBoth(self._next, running)
        return True

    def _put_off(self, error: Exception) -> None:
        """Try again in half a second. No sync has failed, so puts that wait continue to wait."""
        self.log.warn("cannot open the commit log to flush it: {error}", error=error)
        if self._again is None:
            self._again = self._clock.callLater(_OPEN_AGAIN_S, self._on_open_again)

    def _on_open_again(self) -> None:
        self._again = None
        self._want()

    def _flushed(self, _: Any, target: int, newest: int) -> None:
        self._log.flushed_offset = target
        self._checkpoint.physic = max(self._checkpoint.physic, newest)
        self._checkpoint.flushed = target
        self._tell_flushed()

    def _failed(self, failure: Failure) -> None:
        if isinstance(failure.value, NotNow) and not self._is_stopping:
            self._put_off(failure.value)
            return
        # After a failed fsync nobody knows what is on the disk: stop, do not try again.
        self._is_broken = True
        self._doubt()
        self._log.refuse_writes(
            f"flush failed: {failure.getErrorMessage()}; what is on the disk is not known before "
            "the log is read again: repair the disk and start this broker again"
        )

    def _next(self, _: Any, running: "Deferred[None]") -> None:
        self._running = None
        if self._is_broken:
            self._complete(_ALL, PutMessageStatus.FLUSH_DISK_TIMEOUT)
        else:
            self._complete(self._log.flushed_offset, PutMessageStatus.PUT_OK)
            if self._running is None and (self._waiters or self._wanted):
                self._want()
            elif self._running is None and self._log.max_offset > self._log.flushed_offset:
                self.appended()
        running.callback(None)

    def _complete(self, up_to: int, status: PutMessageStatus) -> None:
        done = []
        while self._waiters and self._waiters[0][0] <= up_to:
            done.append(self._waiters.popleft()[2])
        self._stop_deadline_if_idle()
        now = self._clock.seconds()
        for decided in done:
            decided(status, now)

    def _overdue(self) -> None:
        """
        Answer puts whose deadline is over.

        Deadlines rise along the deque, so look at its front only.
        """
        self._deadline_timer = None
        now = self._clock.seconds()
        late = []
        while self._waiters and self._waiters[0][1] <= now:
            late.append(self._waiters.popleft()[2])
        if self._waiters:
            self._deadline_timer = self._clock.callLater(self._waiters[0][1] - now, self._overdue)
        for decided in late:
            decided(PutMessageStatus.FLUSH_DISK_TIMEOUT, now)

    def _stop_deadline_if_idle(self) -> None:
        if not self._waiters and self._deadline_timer is not None:
            self._deadline_timer.cancel()
            self._deadline_timer = None

    async def stop(self) -> None:
        """Flush the rest of the log. Afterwards every waiter has its answer."""
        self._is_stopping = True
        while self._running is not None or (
            not self._is_broken and self._log.max_offset > self._log.flushed_offset
        ):
            if self._running is None and not self._flush():
                break
            await (self._running or succeed(None))
        self._complete(_ALL, PutMessageStatus.FLUSH_DISK_TIMEOUT)
        self._cancel_timers()

    def _cancel_timers(self) -> None:
        for timer in (self._flush_timer, self._again):
            if timer is not None:
                timer.cancel()
        self._flush_timer = self._again = None


class FlushedFiles(NamedTuple):
    """
    The files that are built from the log.

    :ivar sync: flushes the queues; blocks.
    :ivar sync_index: flushes the index; blocks.
    :ivar whole: returns the positions that are complete on the disk as soon as `sync` and
        `sync_index` have run after this call.
    """

    sync: Callable[[], None]
    sync_index: Callable[[], None]
    whole: Callable[[], CompletePositions]


class QueueFlusher:
    """
    Flushes queues and checkpoint some time after they changed; sleeps while nothing changes.

    :param doubt: see `CommitLogFlusher`.
    :ivar is_broken: a flush failed. Nobody knows what is on the disk, so the checkpoint is not
        written any more. Puts continue: the next start rebuilds queues and index from the
        checkpoint on.
    :ivar index_end: store time of the last record in the last full index file, ms.
    """

    log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        worker: Worker,
        configuration: MessageStoreConfig,
        checkpoint: StoreCheckpoint,
        files: FlushedFiles,
        doubt: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._worker = worker
        self._configuration = configuration
        self._checkpoint = checkpoint
        self._sync, self._sync_index, self._whole = files
        self._doubt = doubt
        self.index_end = 0
        self._is_held = False
        self._timer: IDelayedCall | None = None
        self._stamp: IDelayedCall | None = None
        self._running: Deferred[None] | None = None
        self._dirty = False
        self._last_thorough: float | None = None
        self._is_stopping = False
        self.is_broken = False

    def dispatched(self) -> None:
        self._dirty = True
        if self._timer is None and self._running is None and not self.is_broken:
            self._arm()

    def log_flushed(self) -> None:
        """
        Have the checkpoint written soon, also between rounds, as more of the log is on the disk.
        """
        self.dispatched()
        if self._whole().offset - self._checkpoint.whole.offset >= _WHOLE_EVERY:
            self._come_early()
        if self._stamp is None and self._checkpoint.flushed and not self.is_broken:
            self._stamp = self._clock.callLater(self._soon_s, self._on_stamp)

    def _on_stamp(self) -> None:
        self._stamp = None
        checkpoint = self._checkpoint
        if self._running is not None:
            self.log_flushed()
        elif not self._is_held and checkpoint.flushed != checkpoint.written.flushed_offset:
            self._running = Deferred()
            written = self._worker.call(
                checkpoint.write_flushed,
                checkpoint.physic,
                checkpoint.flushed,
                checkpoint.confirmed,
            )
            written.addErrback(self._failed).addBoth(self._done, self._running)

    async def hold(self) -> None:
        """Let no round begin until `release`; a running one is over when this returns."""
        self._is_held = True
        while self._running is not None:
            await self._running

    def release(self) -> None:
        self._is_held = False
        self.log_flushed()

    def index_file_full(self, end_timestamp: int) -> None:
        """Note a full index file: the next round flushes it, up to this store time, ms."""
        self.index_end = max(self.index_end, end_timestamp)

    @property
    def _soon_s(self) -> float:
        """Seconds until the first round, or until a checkpoint; an operator may change it."""
        return max(self._configuration.flush_interval_consume_queue, 1) / 1000

    def _arm(self) -> None:
        delay = self._soon_s
        if self._last_thorough is not None:
            every = self._configuration.flush_consume_queue_thorough_interval / 1000
            delay = max(delay, self._last_thorough + every - self._clock.seconds())
        self._timer = self._clock.callLater(delay, self._round)

    def _come_early(self) -> None:
        """Move the next round forward, to `_soon_s` from now."""
        delay = self._soon_s
        if self._timer is not None and self._timer.getTime() > self._clock.seconds() + delay:
            self._timer.reset(delay)

    def _round(self) -> None:
        self._timer = None
        if self._is_held or self._running is not None:
            return  # still dirty: `release`, or the running round, sets the timer again
        self._last_thorough = self._clock.seconds()
        self._dirty = False
        running: Deferred[None] = Deferred()
        self._running = running
        times, whole = self._checkpoint.times, self._whole()
        if whole.offset <= self._checkpoint.whole.offset:
            whole = self._checkpoint.whole
        written = self._worker.call(self._write, times, self.index_end, whole)
        written.addCallbacks(self._written, self._failed).addBoth(self._done, running)

    def _write(self, times: CheckpointTimes, index_end: int, whole: CompletePositions) -> int:
        """Flush, then write the checkpoint, which must not confirm more. Runs in the worker."""
        self._sync()
        if index_end > times.index_msg_timestamp or whole != self._checkpoint.whole:
            self._sync_index()
        if index_end > times.index_msg_timestamp:
            times = times._replace(index_msg_timestamp=index_end)
        self._checkpoint.write(times, whole)
        return times.index_msg_timestamp

    def _written(self, index_timestamp: int) -> None:
        self._checkpoint.index = index_timestamp

    def _failed(self, failure: Failure) -> None:
        if isinstance(failure.value, NotNow) and not self._is_stopping:
            self._dirty = True  # no sync has failed: the next round flushes all
            self.log.warn("queues are flushed later: {error}", error=failure.getErrorMessage())
            return
        self.is_broken = True
        self._cancel_timers()
        self._doubt()
        self.log.error(
            "cannot flush queues and index: {error}; the checkpoint stays where it is, and the "
            "next start builds them again from there: repair the disk and start again",
            error=failure.getErrorMessage(),
        )

    def _done(self, _: Any, running: "Deferred[None]") -> None:
        self._running = None
        if self._dirty and self._timer is None and not self.is_broken:
            self._arm()
        running.callback(None)

    async def stop(self) -> None:
        """Flush all queues and write the checkpoint."""
        self._is_stopping = True
        while self._running is not None:
            await self._running
        self._cancel_timers()
        if not self.is_broken:
            await self._worker.call(self._sync_index).addErrback(self._failed)
            times, whole = self._checkpoint.times, self._checkpoint.whole
            written = self._worker.call(self._write, times, self.index_end, whole)
            await written.addCallbacks(self._written, self._failed)

    def _cancel_timers(self) -> None:
        for timer in (self._timer, self._stamp):
            if timer is not None:
                timer.cancel()
        self._timer = self._stamp = None
