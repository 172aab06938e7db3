"""When a put is answered, and with what: after flush and replica have decided.

Spec: store.md, sections 2.7, 7.4 and 10.2.
"""

from collections.abc import Callable, Sequence

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from rmq_ha.config.store import MessageStoreConfig
from rmq_ha.interfaces import ICommitLog, IReplication
from rmq_ha.model.histogram import Histogram
from rmq_ha.model.message import AppendResult, PutMessageResult
from rmq_ha.model.status import FlushDiskType, PutMessageStatus
from rmq_ha.store.parts import Flusher
from rmq_ha.store.puts import MaybeLater, combine_later
from rmq_ha.store.statistics import StoreStatistics

Done = Callable[[list[PutMessageResult]], None]
Appended = Sequence[AppendResult | PutMessageStatus]


class PutSettler:
    """
    Waits for flush and replication of a run of messages once, and counts how it went.

    :param always_waits: also for messages that do not ask for it.
    :ivar replication: the HA service; None without one.
    :ivar began: when the last append began; the caller sets it, and `ended`.
    """

    def __init__(
        self,
        clock: IReactorTime,
        config: MessageStoreConfig,
        log: ICommitLog,
        flusher: Flusher,
        statistics: StoreStatistics,
        always_waits: bool = False,
    ) -> None:
        self.replication: IReplication | None = None
        self.began = self.ended = 0.0
        self._clock = clock
        self._config = config
        self._log = log
        self._flusher = flusher
        self._always_waits = always_waits
        self._statistics = statistics
        self._outcomes = statistics.outcomes

    def refused(self, status: PutMessageStatus, count: int = 1) -> None:
        """Messages that were not stored."""
        self._statistics.put_failed += count
        self._outcomes.not_stored(status, count)

    def settle(self, appended: Appended, wait: bool, done: Done) -> None:
        """Call `done` when flush and replication of the last stored message are decided."""
        statistics, outcomes, began = self._statistics, self._outcomes, self.began
        first = last = None
        stored = 0
        for item in appended:
            if isinstance(item, AppendResult):
                first = first or item
                last = item
                stored += item.message_count
                statistics.put_size += item.size
            else:
                self.refused(item)
        statistics.put_times += stored

        def finish(status: PutMessageStatus) -> None:
            outcomes.waiting -= stored
            outcomes.seconds.add(self._clock.seconds() - began, stored)
            done(self._results(appended, status, first is last))

        settled = PutMessageStatus.PUT_OK
        if (wait or self._always_waits) and first is not None and last is not None:
            later = self._wait(first.physical_offset, last.physical_offset + last.size)
            if isinstance(later, Deferred):
                outcomes.waiting += stored
                later.addCallback(finish)
                return
            settled = later
        if stored:
            outcomes.seconds.add(self.ended - began, stored)
        done(self._results(appended, settled, first is last))

    def _results(
        self, appended: Appended, status: PutMessageStatus, is_single: bool
    ) -> list[PutMessageResult]:
        is_late = status is PutMessageStatus.FLUSH_SLAVE_TIMEOUT and not is_single
        results = [
            PutMessageResult(self._own_status(item) if is_late else status, item)
            if isinstance(item, AppendResult)
            else PutMessageResult(item)
            for item in appended
        ]
        if status is not PutMessageStatus.PUT_OK:
            for own, append in results:
                if append is None or own is PutMessageStatus.PUT_OK:
                    continue
                if own.is_stored:
                    self._outcomes.stored_less_safely(own, append.message_count)
                else:  # written, but no quorum of a group has it
                    self._outcomes.not_stored(own, append.message_count)
        return results

    def _own_status(self, append: AppendResult) -> PutMessageStatus:
        """Of one message of a run that a slave did not take to its end in time."""
        is_safe = (
            self._config.flush_disk_type is FlushDiskType.ASYNC_FLUSH
            or append.next_offset <= self._log.flushed_offset
        )
        is_there = self.replication is not None and self.replication.is_replicated(
            append.physical_offset, append.next_offset
        )
        return (
            PutMessageStatus.PUT_OK
            if is_safe and is_there
            else PutMessageStatus.FLUSH_SLAVE_TIMEOUT
        )

    def _wait(self, start_offset: int, next_offset: int) -> MaybeLater:
        outcomes = self._outcomes
        flushed = self._flusher.wait_flushed(next_offset)
        if isinstance(flushed, Deferred):
            flushed.addCallback(self._waited, outcomes.flush_seconds, self.ended)
        if self.replication is None:
            return flushed
        replicated = self.replication.wait_replicated(next_offset, start_offset)
        if isinstance(replicated, Deferred):
            replicated.addCallback(self._waited, outcomes.replica_seconds, self.ended)
        return combine_later(flushed, replicated)

    def _waited(
        self, status: PutMessageStatus, histogram: Histogram, since: float
    ) -> PutMessageStatus:
        histogram.add(self._clock.seconds() - since)
        return status
