"""When a put is answered, and with what: after flush and replica have decided.

Spec: store.md, sections 2.7, 7.4 and 10.2.
"""

from collections.abc import Callable, Sequence

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from rmq_ha.model.message import AppendResult, PutMessageResult
from rmq_ha.model.status import PutMessageStatus
from rmq_ha.store.journal import Journal
from rmq_ha.store.statistics import StoreStatistics

Done = Callable[[list[PutMessageResult]], None]
Appended = Sequence[AppendResult | PutMessageStatus]


class PutSettler:
    """Waits once until a run of messages is kept, and counts how it went."""

    def __init__(self, clock: IReactorTime, journal: Journal, statistics: StoreStatistics) -> None:
        self._clock = clock
        self._journal = journal
        self._statistics = statistics
        self._outcomes = statistics.outcomes

    def refused(self, status: PutMessageStatus, count: int = 1) -> None:
        """Messages that were not stored."""
        self._statistics.put_failed += count
        self._outcomes.not_stored(status, count)

    def settle(
        self, appended: Appended, wait: bool, done: Done, began: float, ended: float
    ) -> None:
        """
        Call `done` when it is decided whether the last stored message is kept.

        :param began: when the append began, by the clock; it has ended at `ended`.
        """
        statistics, outcomes, journal = self._statistics, self._outcomes, self._journal
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
        if (wait or journal.always_waits) and first is not None and last is not None:
            later = journal.kept(first.physical_offset, last.physical_offset + last.size, ended)
            if isinstance(later, Deferred):
                outcomes.waiting += stored
                later.addCallback(finish)
                return
            settled = later
        if stored:
            outcomes.seconds.add(ended - began, stored)
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
        is_kept = self._journal.is_kept(append.physical_offset, append.next_offset)
        return PutMessageStatus.PUT_OK if is_kept else PutMessageStatus.FLUSH_SLAVE_TIMEOUT
