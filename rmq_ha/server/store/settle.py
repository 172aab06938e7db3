"""Decides when a put is answered, and with which status, after flush and replication have decided.

Spec: store.md, sections 2.7, 7.4 and 10.2.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from twisted.logger import Logger

from rmq_ha.base.model.message import AppendResult, Message, PutMessageResult, Row, offset_msg_id
from rmq_ha.base.model.status import Decided, PutMessageStatus
from rmq_ha.server.store.journal import Journal
from rmq_ha.server.store.log.append import Group
from rmq_ha.server.store.statistics import StoreStatistics

Others = Mapping[int, PutMessageStatus]
Done = Callable[[PutMessageStatus, Sequence[Row | None], Others, float], None]
"""Called with the result of a group of drafts. The parameters are the status of the group; the row
of each draft's record, or None if it has none; other statuses, by draft number; and the time in
seconds."""

_OK = PutMessageStatus.PUT_OK
_NOT_ALL_REPLICATED = (PutMessageStatus.FLUSH_SLAVE_TIMEOUT, PutMessageStatus.SERVICE_NOT_AVAILABLE)


class PutSettler:
    """Waits once for a run of messages to be kept, and counts the results."""

    log = Logger()

    def __init__(self, journal: Journal, statistics: StoreStatistics) -> None:
        self._journal = journal
        self._statistics = statistics
        self._outcomes = statistics.outcomes

    def refused(self, status: PutMessageStatus, count: int = 1) -> None:
        self._statistics.put_failed += count
        self._outcomes.not_stored(status, count)

    def settle_group(
        self, group: Group, wait: bool, done: Done, began: float, ended: float
    ) -> None:
        """
        Call `done` when it is decided whether the last record is kept.

        :param began: time in seconds when the append began; it ended at `ended`.
        """
        faults, rows = group.faults, group.rows
        for fault in faults.values():
            self.refused(fault)
        if not rows:
            done(PutMessageStatus.MESSAGE_ILLEGAL, [None] * group.count, faults, ended)
            return
        start, last = rows[0][2], rows[-1]
        end, count = last[2] + last[3], len(rows)
        decided = partial(self._decided, group, done)
        status = self._settle(start, end, count, group.size, wait, decided, began, ended)
        if status is _OK and not faults:
            done(status, rows, faults, ended)
        elif status is not None:
            decided(status, ended)

    def _decided(self, group: Group, done: Done, status: PutMessageStatus, now: float) -> None:
        faults = group.faults
        if status is _OK and not faults:
            done(status, group.rows, faults, now)
            return
        others = dict(faults)
        records = iter(group.rows)
        rows = [None if place in others else next(records) for place in range(group.count)]
        kept = 0
        if status in _NOT_ALL_REPLICATED and len(group.rows) > 1:
            for place, row in enumerate(rows):  # a slave may have some of the records
                if row is not None and self._journal.is_kept(row[2], row[2] + row[3]):
                    others[place] = _OK
                    kept += 1
        self._count_unsafe(status, len(group.rows) - kept)
        done(status, rows, others, now)

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
        start, size, count = whole.physical_offset, whole.size, whole.message_count

        def decided(status: PutMessageStatus, now: float) -> None:
            self._count_unsafe(status, count)
            done(PutMessageResult(status, whole))

        status = self._settle(start, start + size, count, size, wait, decided, began, ended)
        if status is not None:
            decided(status, ended)

    def _settle(
        self,
        start: int,
        end: int,
        count: int,
        size: int,
        wait: bool,
        decided: Decided,
        began: float,
        ended: float,
    ) -> PutMessageStatus | None:
        """
        Count the put of a stretch of the log, and ask the journal whether it is kept.

        :param count: number of messages.
        :param size: bytes of their records.
        :returns: the status; None if `decided` will be called with it.
        """
        self._statistics.put_times += count
        self._statistics.put_size += size
        status: PutMessageStatus | None = _OK
        outcomes = self._outcomes
        if wait or self._journal.always_waits:
            outcomes.waiting += count
            later = partial(self._settled, began, count, decided)
            status = self._journal.kept(start, end, ended, later)
            if status is None:
                return None
            outcomes.waiting -= count
        outcomes.seconds.add(ended - began, count)
        return status

    def _settled(
        self, began: float, count: int, decided: Decided, status: PutMessageStatus, now: float
    ) -> None:
        self._outcomes.waiting -= count
        self._outcomes.seconds.add(now - began, count)
        try:
            decided(status, now)
        except Exception:  # an error of this sender's callback must not stop the others
            self.log.failure("cannot tell what became of a put")

    def _count_unsafe(self, status: PutMessageStatus, count: int) -> None:
        if status is _OK or not count:
            return
        if status.is_stored:
            self._outcomes.stored_less_safely(status, count)
        else:  # written, but without a quorum of the group
            self._outcomes.not_stored(status, count)


def results_of(
    messages: Sequence[Message | None],
    status: PutMessageStatus,
    rows: Iterable[Row | None],
    others: Mapping[int, PutMessageStatus],
) -> list[PutMessageResult]:
    """
    Return the result of each message.

    :param messages: as `redirect_delayed` returns them.
    :param status: with `rows` and `others`, as `Done` gets them, for the messages that are not
        None.
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
