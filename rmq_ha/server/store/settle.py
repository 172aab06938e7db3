"""Decides when a put is answered, and with which status, after flush and replication have decided.

Spec: store.md, sections 2.7, 7.4 and 10.2.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from twisted.logger import Logger

from rmq_ha.base.model.message import (
    AppendResult,
    BrokerMessage,
    Draft,
    PutMessageResult,
    Row,
    offset_msg_id,
)
from rmq_ha.base.model.status import PutMessageStatus
from rmq_ha.server.store.journal import Journal, Replication
from rmq_ha.server.store.log.append import DraftGroup
from rmq_ha.server.store.statistics import StoreStatistics

Others = Mapping[int, PutMessageStatus]
Done = Callable[[PutMessageStatus, Sequence[Row | None], Others, float], None]
"""Called with the result of a group of drafts. The parameters are the status of the group; the row
of each draft's record, or None if it has none; other statuses, by draft number; and the time in
seconds."""

_OK = PutMessageStatus.PUT_OK
_NOT_ALL_REPLICATED = (PutMessageStatus.FLUSH_SLAVE_TIMEOUT, PutMessageStatus.SERVICE_NOT_AVAILABLE)


class PutTerms(NamedTuple):
    """
    The answers of a store about puts; they hold until its flags or its configuration change.

    :ivar refusal: the status of each put; None: puts are accepted.
    :ivar keeper: see `Journal.sole_keeper`.
    :ivar slow_s: after an append of more seconds, puts are refused for a while.
    :ivar append: does what `Journal.append` does.
    """

    refusal: PutMessageStatus | None
    keeper: Replication | None
    slow_s: float
    append: Callable[[Sequence[Draft], int], DraftGroup]


class PutSettler:
    """
    Asks the journal once for each group or batch whether it is kept, answers the sender, and counts
    the results.

    :ivar outcomes: the counters.
    """

    def __init__(self, journal: Journal, statistics: StoreStatistics) -> None:
        self._journal = journal
        self._statistics = statistics
        self.outcomes = statistics.outcomes

    def refused(self, status: PutMessageStatus, count: int = 1) -> None:
        """Count messages that did not come into the log."""
        self._statistics.put_failed += count
        self.outcomes.not_stored(status, count)

    def settle_group(
        self,
        group: DraftGroup,
        wait: bool,
        done: Done,
        began: float,
        ended: float,
        keeper: Replication | None = None,
    ) -> None:
        """
        Call `done` once with the results of a group of drafts.

        All records of the group are kept when its last record is: a journal keeps records in the
        order of the log. If no draft became a record, the status is MESSAGE_ILLEGAL. `done` may
        be called before this method returns, or later.

        :param wait: wait until the journal has kept the records, or has failed to. If False,
            `done` is called with PUT_OK before this method returns, unless
            `Journal.always_waits` is set.
        :param began: time in seconds when the append began; it ended at `ended`.
        :param keeper: what `Journal.sole_keeper` returned, if the caller knows it. It is then asked
            instead of the journal.
        """
        faults, rows, count = group.faults, group.rows, group.count
        if faults:
            count = len(rows)
            for fault in faults.values():
                self.refused(fault)
        if not rows:
            done(PutMessageStatus.MESSAGE_ILLEGAL, [None] * group.count, faults, ended)
            return
        put = _GroupUnderWay(self, count, began, ended, group, done)
        status = self._settle(rows.start, rows.end, rows.size, wait, put, keeper)
        if status is not None:
            put.tell(status, ended)

    def settle_batch(
        self,
        whole: AppendResult | PutMessageStatus,
        wait: bool,
        done: Callable[[PutMessageResult], None],
        began: float,
        ended: float,
    ) -> None:
        """Do what `settle_group` does, for a batch, which is stored as a whole or not at all."""
        if not isinstance(whole, AppendResult):
            self.refused(whole)
            done(PutMessageResult(whole))
            return
        start, size = whole.physical_offset, whole.size
        put = _BatchUnderWay(self, whole.message_count, began, ended, whole, done)
        status = self._settle(start, start + size, size, wait, put, None)
        if status is not None:
            put.tell(status, ended)

    def _settle(
        self,
        start: int,
        end: int,
        size: int,
        wait: bool,
        put: "_PutUnderWay",
        keeper: Replication | None,
    ) -> PutMessageStatus | None:
        """
        Count the put of a stretch of the log, and ask the journal whether it is kept.

        :param size: bytes of its records.
        :param keeper: see `settle_group`.
        :returns: the status; None if `put.decided` will be called with it.
        """
        count = put.count
        self._statistics.put_times += count
        self._statistics.put_size += size
        status: PutMessageStatus | None = _OK
        outcomes = self.outcomes
        if wait or self._journal.always_waits:
            # Counted before the question: the journal may call `put.decided`, which subtracts the
            # count again, before `when_kept` or `when_replicated` returns.
            outcomes.waiting += count
            if keeper is None:
                status = self._journal.when_kept(start, end, put.ended, put.decided)
            else:
                put.asks_replication = True
                status = keeper.when_replicated(end, start, put.decided)
            if status is None:
                return None
            outcomes.waiting -= count
        outcomes.seconds.add(put.ended - put.began, count)
        return status

    def tell_group(
        self, group: DraftGroup, done: Done, status: PutMessageStatus, now: float
    ) -> None:
        """
        Call `done` with the status of a group of which a part was not stored, or was stored less
        safely than configured.
        """
        others = dict(group.faults)
        rows: Sequence[Row | None] = group.rows
        if others:
            records = iter(group.rows)
            rows = [None if place in others else next(records) for place in range(group.count)]
        kept = 0
        if status in _NOT_ALL_REPLICATED and len(group.rows) > 1:
            for place, row in enumerate(rows):  # a slave may have some of the records
                if row is not None and self._journal.is_kept(row[2], row[2] + row[3]):
                    others[place] = _OK
                    kept += 1
        self.count_unsafe(status, len(group.rows) - kept)
        done(status, rows, others, now)

    def count_unsafe(self, status: PutMessageStatus, count: int) -> None:
        """Count messages that are in the log, and not kept as promised."""
        if status is _OK or not count:
            return
        if status.is_stored:
            self.outcomes.stored_less_safely(status, count)
        else:  # written, but without a quorum of the group
            self.outcomes.not_stored(status, count)


class _PutUnderWay:
    """
    A put that is in the log, and whose status is not known yet.

    :param count: number of its messages.
    :param began: time in seconds when the append began; it ended at `ended`.
    :ivar asks_replication: whether the replication alone decides the status.
    """

    __slots__ = ("_settler", "asks_replication", "began", "count", "ended")

    log = Logger()

    def __init__(self, settler: PutSettler, count: int, began: float, ended: float) -> None:
        self._settler = settler
        self.count = count
        self.began = began
        self.ended = ended
        self.asks_replication = False

    def decided(self, status: PutMessageStatus, now: float) -> None:
        """Take the status, and tell the sender."""
        outcomes = self._settler.outcomes
        outcomes.waiting -= self.count
        outcomes.seconds.add(now - self.began, self.count)
        if self.asks_replication:
            outcomes.replica_seconds.add(now - self.ended)
        try:
            self.tell(status, now)
        except Exception:  # an error of this sender's callback must not stop the others
            self.log.failure("cannot tell what became of a put")

    def tell(self, status: PutMessageStatus, now: float) -> None:
        """Tell the sender the status."""
        raise NotImplementedError


class _GroupUnderWay(_PutUnderWay):
    """A group of drafts that is in the log, and of which nobody knows yet whether it is kept."""

    __slots__ = ("_done", "_group")

    def __init__(
        self,
        settler: PutSettler,
        count: int,
        began: float,
        ended: float,
        group: DraftGroup,
        done: Done,
    ) -> None:
        self._settler = settler
        self.count = count
        self.began = began
        self.ended = ended
        self.asks_replication = False
        self._group = group
        self._done = done

    def tell(self, status: PutMessageStatus, now: float) -> None:
        group = self._group
        if status is _OK and not group.faults:
            self._done(status, group.rows, group.faults, now)
        else:
            self._settler.tell_group(group, self._done, status, now)


class _BatchUnderWay(_PutUnderWay):
    """A batch that is in the log, and of which nobody knows yet whether it is kept."""

    __slots__ = ("_done", "_whole")

    def __init__(
        self,
        settler: PutSettler,
        count: int,
        began: float,
        ended: float,
        whole: AppendResult,
        done: Callable[[PutMessageResult], None],
    ) -> None:
        super().__init__(settler, count, began, ended)
        self._whole = whole
        self._done = done

    def tell(self, status: PutMessageStatus, now: float) -> None:
        self._settler.count_unsafe(status, self.count)
        self._done(PutMessageResult(status, self._whole))


def results_of(
    messages: Sequence[BrokerMessage | None],
    status: PutMessageStatus,
    rows: Iterable[Row | None],
    others: Mapping[int, PutMessageStatus],
) -> list[PutMessageResult]:
    """
    Return the result of each message.

    :param messages: the messages that were put. None stands for a message that was refused because
        of its delay; its result is MESSAGE_ILLEGAL.
    :param status: see `Done`. Also `rows` and `others` count only the messages that are not None.
    """
    settled = enumerate(rows)
    results: list[PutMessageResult] = []
    for message in messages:
        if message is None:
            results.append(PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL))
            continue
        number, row = next(settled)
        append = None
        if row is not None:
            msg_id = offset_msg_id(message.store_host, row[2])
            append = AppendResult(row[2], row[3], row[5], row[6], 1, msg_id)
        results.append(PutMessageResult(others.get(number, status), append))
    return results
