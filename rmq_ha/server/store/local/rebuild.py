"""Rebuilds queues and index from the log where they do not fit it.

Spec: store.md, sections 3.4 and 6.
"""

from collections.abc import Callable, Iterator
from functools import partial

from twisted.logger import Logger

from rmq_ha.base.model.message import DispatchRequest
from rmq_ha.base.runs.face import Rows
from rmq_ha.base.runs.row_list import NOT_FOR_CONSUMERS
from rmq_ha.base.store_format.record_checks import message_check
from rmq_ha.server.store.index.index import IndexService
from rmq_ha.server.store.log.commitlog import CommitLog
from rmq_ha.server.store.log.search import whole_records
from rmq_ha.server.store.queues.ends import QueueEnds
from rmq_ha.server.store.queues.queue import ConsumeQueue
from rmq_ha.server.store.queues.table import ConsumeQueueTable

_LOOK_BACK = 8 << 20
"""Bytes at each end of the log with which the queues of a store without `queueEnds` are
compared."""


def _lies_below(end: int, queue_offset: int, physical_offset: int, size: int) -> bool:
    return queue_offset < end


class QueueRebuild:
    """
    Finds queues that lack messages of the log, and writes the missing units.

    Messages that a queue has already change nothing in it. A record whose body is damaged gets its
    unit, too, since its queue offset is used; a stretch without a record is skipped.

    :param log: the commit log. The callers pass its end, as the log does not know it yet.
    :ivar begin: physical offset where the last `run` began.
    """

    log = Logger()

    def __init__(
        self, log: CommitLog, queues: ConsumeQueueTable, index: IndexService | None
    ) -> None:
        self._log = log
        self._row = log.row
        self._queues = queues
        self._index = index
        self._from: int | None = None
        self.begin = 0
        self._safe = -1
        self._seen: set[tuple[str, int]] = set()
        self._lacks: list[tuple[ConsumeQueue, str, int]] = []
        self._given: dict[tuple[str, int], int] = {}

    def look(self) -> None:
        """Note the damage that loading and recovery found in queues and index."""
        for _, queue in self._queues.items():
            if queue.damage:
                self._lacking(queue, queue.damage)
        if self._index is not None and self._index.damage:
            begin = max(self._index.reached, self._log.min_offset)
            self.log.warn(
                "{damage}; it is removed, and its keys are taken from the log again, from {begin} "
                "on",
                damage=self._index.damage,
                begin=begin,
            )
            self._need(begin)

    def compare(self, ends: QueueEnds, *, is_exact: bool) -> None:
        """
        Note the queues whose ends differ from those that the last stop noted.

        :param is_exact: nothing has changed since the ends were noted; else queues may be longer,
            but not shorter.
        """
        for key, end in ends.queues.items():
            if self._queues.is_deleted(key, end.reached - 1):
                continue
            if is_exact:
                self._given[key] = end.end
            if end.reached <= self._log.min_offset:
                continue  # the log has deleted all of its messages
            queue = self._queues.get(*key)
            if queue is None or queue.max_offset < end.end:
                state = "is gone" if queue is None else f"ends at {queue.max_offset}"
                self._lacking(self._queues.queue(*key), f"{state}, and ended at {end.end}")
            elif is_exact and queue.max_offset > end.end:
                queue.cut_back(partial(_lies_below, end.end))
            if queue is None or not is_exact:
                continue
            if queue.first_offset > end.first:
                queue.empty()
                self._lacking(queue, f"begins at {queue.first_offset}, and began at {end.first}")
            elif queue.max_offset == end.end and queue.max_physical_offset != end.reached:
                queue.cut_back(self._fits(queue))
                self._lacking(queue, f"pointed to {end.reached} at its end, and does no more")

    def audit(self, end: int) -> None:
        """
        Compare the queues with the log's first and last records, if no file tells how the queues
        were.

        :param end: the log's end, or the physical offset up to which the queues should have its
            messages.
        """
        low = self._log.min_offset
        for request in self._requests(low, min(low + _LOOK_BACK, end)):
            queue = self._queues.get(request.topic, request.queue_id)
            if queue is not None and request.queue_offset < queue.first_offset:
                why = f"begins at {queue.first_offset}, and the log has {request.queue_offset}"
                queue.empty()
                self._lacking(queue, why)
        for request in self._requests(max(end - _LOOK_BACK, low), end):
            if request[:2] not in self._seen:
                self._check_start(request, 1)

    def _requests(self, begin: int, end: int) -> Iterator[DispatchRequest]:
        """Yield the records of the log that belong into a queue."""
        for start, stop in self._stretches(begin, end):
            for batch in self._records(start, stop):
                for row in batch:
                    if not row[9] & NOT_FOR_CONSUMERS:
                        yield DispatchRequest._make(row)

    def _lacking(self, queue: ConsumeQueue, why: str) -> None:
        """Note that a queue lacks the messages after its end."""
        begin = queue.max_physical_offset
        if queue.last_record() is None or begin < self._log.min_offset:  # no unit to continue after
            queue.empty()
            begin = self._log.min_offset
        key = queue.topic, queue.queue_id
        if key not in self._seen:
            self._seen.add(key)
            self._lacks.append((queue, why, queue.max_offset))
        self._need(begin)

    def again_from(self, begin: int) -> None:
        """Note that records from `begin` on may be missing, without any damage."""
        self._need(begin)

    def _need(self, begin: int) -> None:
        self._from = begin if self._from is None else min(begin, self._from)

    def _fits(self, queue: ConsumeQueue) -> Callable[[int, int, int], bool]:
        is_message = message_check(queue.topic, queue.queue_id)

        def fits(queue_offset: int, physical_offset: int, size: int) -> bool:
            data = self._log.record_at(physical_offset, size)
            return data is not None and is_message(data, physical_offset, size, queue_offset)

        return fits

    def run(self, end: int) -> None:
        """
        Write what is missing, for records up to a physical offset.

        :raises StoreError: the disk refuses.
        :raises OSError: the disk refuses.
        """
        for _ in self.steps(end):
            pass

    def steps(self, end: int) -> Iterator[None]:
        """Do what `run` does, a piece in each step."""
        if self._from is None:
            return
        begin, self._from = self._from, None
        self.begin = begin
        for start, stop in self._stretches(begin, end):
            for batch in self._records(start, stop):
                self._queues.put_rows(batch)
                if self._index is not None:
                    self._index.put_rows(batch)
                yield
        self._tell(begin)

    def leave_out(self) -> None:
        """
        Move queue ends forward after the log was read, so that the queue offsets of lost messages
        are not used again.

        :raises StoreError: the disk refuses.
        """
        for key, end in self._given.items():
            queue = self._queues.queue(*key)
            if queue.max_offset < end:
                self.log.warn(
                    "the queue {topic} {queue_id} ends at {found}, and ended at {end}: the log has "
                    "lost these messages, and their numbers are left out",
                    topic=queue.topic,
                    queue_id=queue.queue_id,
                    found=queue.max_offset,
                    end=end,
                )
                queue.leave_out(end)

    def _tell(self, begin: int) -> None:
        lacks, self._lacks = self._lacks, []
        for queue, why, before in lacks:
            if queue.max_offset == before and self._safe >= 0:
                continue  # the crash itself left it so, and below `safe` nothing is missing
            self.log.warn(
                "the queue {topic} {queue_id} {why}; what it lacks was taken from the log, from "
                "{begin} on: it goes from {low} to {high} now",
                topic=queue.topic,
                queue_id=queue.queue_id,
                why=why,
                begin=begin,
                low=queue.first_offset,
                high=queue.max_offset,
            )

    # After a crash

    def begin_again(self, safe: int) -> None:
        """
        Prepare to dispatch again after queues were cut at a physical offset.

        :param safe: that offset; queues should have all records before it.
        """
        self._safe = safe
        self.run(safe)
        self._seen.clear()

    def dispatch_again(self, rows: Rows) -> None:
        """
        Dispatch good records again, from `safe` on and in order.

        A queue that lacks messages before its first record here gets them first.
        """
        if self._safe > self._log.min_offset:
            for row in rows:
                key = row[:2]
                if key not in self._seen:
                    if not row[9] & NOT_FOR_CONSUMERS:
                        self._check_start(DispatchRequest._make(row), 0)
                    self._seen.add(key)
            self.run(rows[0][2])
        self._queues.put_rows(rows)
        if self._index is not None:
            self._index.put_rows(rows)

    def _check_start(self, request: DispatchRequest, more: int) -> None:
        """
        Note the queue as lacking if it does not reach this message, or `more` messages farther.
        """
        if self._queues.is_deleted(request[:2], request.physical_offset):
            return
        queue = self._queues.queue(request.topic, request.queue_id)
        if queue.max_offset < request.queue_offset + more:
            state = f"ends at {queue.max_offset}, and the log has {request.queue_offset}"
            self._lacking(queue, state)

    def _stretches(self, begin: int, end: int) -> list[tuple[int, int]]:
        size = self._row.file_size
        cut = [(max(begin, start), min(end, start + size)) for start in self._row.starts]
        return [(start, stop) for start, stop in cut if start < stop]

    def _records(self, begin: int, end: int) -> Iterator[Rows]:
        start = self._row.start_of(begin)
        file = self._row.file(start)
        return whole_records(
            lambda size, position: file.pread(size, position - start),
            begin,
            end,
            self._log.delay_levels,
            check_crc=False,
        )
