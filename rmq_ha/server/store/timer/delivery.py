"""Delivers timer messages that are due, while the broker is the master.

The order is that of due time and queue offset.

The messages that are put together, at most 1000, are called a run here. One run is in flight at a
time, from its put until its records are dispatched. A message whose put was refused is tried again
every 100 ms, and no other message waits for it. A put that is in the log is never repeated,
whatever its status, because the record in the log settles the message.
"""

from collections import deque
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from rmq_ha.base.errors import CorruptRecord, StoreError
from rmq_ha.base.model.message import Address, BrokerMessage, PutMessageResult
from rmq_ha.base.seams import Times
from rmq_ha.base.store_format.timer_times import due_in
from rmq_ha.base.timing.clock_steps import ClockSteps
from rmq_ha.server.store.delay.schedule import Put
from rmq_ha.server.store.timer.frontier import MOST_OPEN, encode_frontier
from rmq_ha.server.store.timer.records import delivery_of, frontier_message, rolled_copy_of
from rmq_ha.server.store.timer.reports import TimerWork
from rmq_ha.server.store.timer.sources import TimerSource
from rmq_ha.server.store.timer.table import TimerLog, TimerTable
from rmq_ha.server.store.timer.waiting import MINUTE_MS, minute_of

RETRY_S = 0.1
_MOST_MESSAGES = 1000
_MOST_BYTES = 256 << 10
_LONGEST_SLEEP_S = 1.0
"""No sleep is longer, because the clock may be set forward meanwhile."""
_AHEAD_MS = 2000
"""The messages of a minute are sorted so long before the minute begins."""
_FRONTIER_BYTES = 8 << 20
_FRONTIER_BYTES_IDLE = 256 << 20


class DeliveryTerms(NamedTuple):
    """
    The functions by which the delivery asks its store.

    :ivar dispatched: returns the physical offset up to which records are dispatched.
    :ivar written: returns the physical offset of the end of all that is written.
    :ivar may_put: returns whether the store takes puts now.
    :ivar is_held: returns `timerStopDequeue`: whether the operator holds deliveries back.
    :ivar store_host: returns the address that frontiers have as their host.
    :ivar progress_ms: `timerProgressIntervalMs`, the least ms between two frontiers.
    """

    dispatched: Callable[[], int]
    written: Callable[[], int]
    may_put: Callable[[], bool]
    is_held: Callable[[], bool]
    store_host: Callable[[], Address]
    progress_ms: Callable[[], int]


class TimerDelivery:
    """
    Puts deliveries and rolled copies of waiting messages.

    A *rolled copy* waits at the end of the log in place of a message whose file is about to be
    deleted. A *frontier* is a record that says which messages are settled; see `frontier`.

    :param table: the waiting messages.
    :param put: stores messages; calls back once, with one result for each.
    :ivar is_ending: whether no run begins any more, because the store stops.
    :ivar in_flight: queue offsets of messages whose delivery or rolled copy is being put, or is in
        the log and not dispatched.
    :ivar clock_steps: notices that the clock was set while messages wait.
    :ivar recalling: the due times of messages whose recall is being put or is not dispatched, by
        their sources.
    """

    log = Logger()

    def __init__(
        self, times: Times, log: TimerLog, table: TimerTable, terms: DeliveryTerms, put: Put
    ) -> None:
        self._clock, self._now_ms = times
        self._log = log
        self._table = table
        self._terms = terms
        self._put = put
        self._level = terms.written()
        self._heap: list[tuple[int, int]] = []
        self._opened_to = -1
        self._next: int | None = table.waiting.next_minute(-1)
        self._refused: list[tuple[int, int]] = []
        self._to_roll: deque[int] = deque()
        self._parked: dict[int, int] = {}
        self._timer: IDelayedCall | None = None
        self._retry: IDelayedCall | None = None
        self._is_putting = False
        self._run_end = 0
        self._is_stopped = False
        self._told_refusal = ""
        self.is_ending = False
        self.clock_steps = ClockSteps(self._now_ms(), self._clock.seconds())
        self._is_idle = True
        self.in_flight: set[int] = set()
        self.recalling: dict[TimerSource, int] = {}
        self._frontier_at = 0.0
        self._frontier_place = table.waiting.frontier.place
        self._frontier_greatest = (
            table.waiting.frontier.due_ms,
            table.waiting.frontier.queue_offset,
        )
        self._wake(0.0)

    def stop(self) -> None:
        """Put nothing any more."""
        self._is_stopped = True
        for timer in (self._timer, self._retry):
            if timer is not None:
                timer.cancel()
        self._timer = self._retry = None

    # Events

    def arrived(self, messages: Sequence[tuple[int, int]]) -> None:
        """Take note of new waiting messages: due time and queue offset of each."""
        earliest = None
        for message in messages:
            number = minute_of(message[0])
            if number <= self._opened_to:
                heappush(self._heap, message)
            elif self._next is None or number < self._next:
                self._next = number
            if earliest is None or message[0] < earliest:
                earliest = message[0]
        if earliest is not None and not self.in_flight:
            pause = max(0, earliest - self._now_ms()) / 1000
            self._wake(min(pause, _LONGEST_SLEEP_S))

    def dispatched(self) -> None:
        """Take note that a part of the log was dispatched, and that the table has its records."""
        if self.in_flight:
            self._land()
        if self.recalling:
            self._forget_recalls()
        grown = self._terms.dispatched() - self._frontier_place
        if grown >= _FRONTIER_BYTES_IDLE and self._table.waiting.count:
            self.put_frontier()

    def _land(self) -> None:
        """Go on with the next run if all records of this run are dispatched."""
        if not self._is_putting and self._terms.dispatched() >= self._run_end:
            self.in_flight.clear()
            self._wake(0.0)

    def _forget_recalls(self) -> None:
        """Forget the recalls whose records were dispatched."""
        waits = self._table.waiting.waits
        for source, due in list(self.recalling.items()):
            if waits(due, source):
                continue
            del self.recalling[source]
            self._parked.pop(source.queue_offset, None)

    def undo_recall(self, source: TimerSource) -> None:
        """Have a message delivered after all, because the put of its recall was refused."""
        self.recalling.pop(source, None)
        due = self._parked.pop(source.queue_offset, None)
        if due is not None:
            heappush(self._heap, (due, source.queue_offset))
            self._wake(0.0)

    @property
    def is_level(self) -> bool:
        """Whether all is dispatched that was in the log when this broker began to deliver."""
        return self._terms.dispatched() >= self._level

    @property
    def work(self) -> TimerWork:
        """Whether waiting messages are delivered now, or why not."""
        if not self.is_level:
            return TimerWork.BEHIND
        if not self._terms.may_put():
            return TimerWork.REFUSED
        return TimerWork.HELD if self._terms.is_held() else TimerWork.DELIVERING

    # Turns

    def _wake(self, seconds: float) -> None:
        if self._is_stopped:
            return
        if self._timer is not None:
            if self._timer.getTime() <= self._clock.seconds() + seconds:
                return
            self._timer.cancel()
        self._timer = self._clock.callLater(seconds, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self._look_at_clock()
        if self.in_flight or self.is_ending:
            return  # `dispatched` goes on
        try:
            pause = self._turn()
        except (StoreError, OSError) as error:
            self.log.error("timer messages have to wait: {error}", error=error)
            pause = RETRY_S
        self._is_idle = pause is None and not self.in_flight
        if pause is not None:
            self._wake(min(pause, _LONGEST_SLEEP_S))

    def _look_at_clock(self) -> None:
        """
        Tell if the clock was set since the last turn, at most a second ago.

        While no message waits there are no turns, and nobody is concerned.
        """
        now, seconds = self._now_ms(), self._clock.seconds()
        if self._is_idle:
            self.clock_steps.begin(now, seconds)
        elif self.clock_steps.look(now, seconds):
            self.log.warn(
                "the clock was set by {seconds:+.1f} s; the timer messages that wait are delivered "
                "when the new clock says that they are due",
                seconds=self.clock_steps.step_ms / 1000,
            )

    def _turn(self) -> float | None:
        """
        Put a run if messages are due.

        :returns: the seconds until the next turn. None if no message waits, or if a run is in
            flight, behind which `dispatched` goes on.
        :raises StoreError: the disk refuses.
        """
        if not self.is_level or not self._terms.may_put():
            return RETRY_S if self._table.waiting.count else None
        if self._terms.is_held():
            self._roll_some()
            return None if self.in_flight else _LONGEST_SLEEP_S
        now = self._now_ms()
        self._open(now)
        messages, offsets = self._run(now)
        if messages:
            self._put_run(messages, offsets)
        else:
            self._roll_some()
        return None if self.in_flight else self._pause(now)

    def _open(self, now: int) -> None:
        """
        Move the messages of the next minutes into the heap of those that are due soon.

        A minute is opened only when no message of an earlier minute, which is due, is left in the
        heap, so that the heap stays small.
        """
        waiting, heap = self._table.waiting, self._heap
        while self._next is not None and self._next <= minute_of(now + _AHEAD_MS):
            number = self._next
            if heap and heap[0][0] <= min(number * MINUTE_MS, now):
                return
            waiting.tidy(now)
            messages = waiting.of_minute(number)
            self._opened_to, self._next = number, waiting.next_minute(number)
            if heap:
                heap += messages
                heapify(heap)
            else:
                self._heap = heap = messages

    def _pause(self, now: int) -> float | None:
        dues = [] if self._next is None else [self._next * MINUTE_MS + 1 - _AHEAD_MS]
        if self._heap:
            dues.append(self._heap[0][0])
        return max(0, min(dues) - now) / 1000 if dues else None

    def _run(self, now: int) -> tuple[list[BrokerMessage], list[tuple[int, int]]]:
        """
        Take the messages of one run out of the heap, among those that are due.

        :returns: the deliveries, and due time and queue offset of each waiting message.

        :raises StoreError: the disk refuses; then the heap is as it was.
        """
        heap, size = self._heap, 0
        messages, taken = list[BrokerMessage](), list[tuple[int, int]]()
        while heap and heap[0][0] <= now and len(messages) < _MOST_MESSAGES and size < _MOST_BYTES:
            place = heappop(heap)
            if taken and taken[-1] == place:
                continue
            try:
                message = self._message(*place, now)
            except (StoreError, OSError):
                heap += [place, *taken]
                heapify(heap)
                raise
            if message is not None:
                messages.append(message)
                taken.append(place)
                size += len(message.body) + len(message.properties_string)
        return messages, taken

    def _message(self, due: int, offset: int, now: int) -> BrokerMessage | None:
        """Return the delivery of a message; None if it waits no more, or cannot be delivered."""
        queue = self._log.queue
        unit = None if queue is None else queue.unit(offset)
        if unit is None:
            return None
        source = TimerSource(unit[0], offset)
        if not self._table.waiting.waits(due, source):
            return None
        if source in self.recalling:
            self._parked[offset] = due
            return None
        record = self._log.record(unit)
        try:
            if record is None:
                raise CorruptRecord("the log lacks it, or it is damaged")
            return delivery_of(record, source, now)
        except CorruptRecord as error:
            self._table.waiting.settle(due, source)
            self.log.error(
                "the timer message at {physical_offset} is left out: {error}",
                physical_offset=unit[0],
                error=error,
            )
            return None

    # Puts

    def _put_run(
        self, messages: list[BrokerMessage], offsets: list[tuple[int, int]], *, again: bool = True
    ) -> None:
        """
        Put deliveries or rolled copies.

        :param messages: the deliveries or rolled copies.
        :param offsets: due time and queue offset of the waiting message of each.
        :param again: whether refused puts are tried again.
        """
        frontier = self._frontier_due()
        if frontier is not None:
            messages = [frontier, *messages]
        self.in_flight.update([offset for _, offset in offsets])
        self._is_putting = True

        def stored(results: list[PutMessageResult]) -> None:
            self._after_put(offsets, results[-len(offsets) :], again)

        self._put(messages, stored)

    def _after_put(
        self, offsets: list[tuple[int, int]], results: Sequence[PutMessageResult], again: bool
    ) -> None:
        """
        Take back the messages that did not come into the log.

        The records of all others settle their messages when they are dispatched.
        """
        self._is_putting = False
        self._run_end = max(
            [result.append.next_offset for result in results if result.append is not None],
            default=0,
        )
        refused = [
            message
            for message, result in zip(offsets, results, strict=True)
            if result.append is None
        ]
        if self._is_stopped:
            return
        if refused:
            self._tell_refused(results)
            self.in_flight.difference_update([offset for _, offset in refused])
            self._refused += refused if again else []
            if self._retry is None:
                self._retry = self._clock.callLater(RETRY_S, self._try_again)
        else:
            self._told_refusal = ""
        self._land()

    def _tell_refused(self, results: Sequence[PutMessageResult]) -> None:
        refused = [result.status.name for result in results if result.append is None]
        if refused[0] != self._told_refusal:
            self._told_refusal = refused[0]
            self.log.error(
                "{count} timer messages cannot be delivered, and are tried again every 100 ms: "
                "{status}",
                count=len(refused),
                status=refused[0],
            )

    def _try_again(self) -> None:
        self._retry = None
        refused, self._refused = self._refused, []
        self._heap += refused
        heapify(self._heap)
        self._wake(0.0)

    # Frontiers

    def _frontier_due(self) -> BrokerMessage | None:
        """Return a frontier to be put before a run; None if none is due, or it cannot be made."""
        now = self._clock.seconds()
        grown = self._terms.dispatched() - self._frontier_place
        is_late = now - self._frontier_at >= self._terms.progress_ms() / 1000
        if self._table.greatest == self._frontier_greatest or not (
            is_late or grown >= _FRONTIER_BYTES
        ):
            return None
        return self._frontier()

    def _frontier(self) -> BrokerMessage | None:
        """
        Return a frontier for the present state, while nothing is in flight.

        None if more than `MOST_OPEN` messages before its place are not settled.
        """
        due, offset = self._table.greatest
        still_open = self._table.waiting.up_to(due, offset)
        if len(still_open) > MOST_OPEN:
            return None
        queue = self._log.queue
        sources: list[TimerSource] = []
        for _, number in still_open:
            unit = None if queue is None else queue.unit(number)
            if unit is None:
                return None
            sources.append(TimerSource(unit[0], number))
        end = self._terms.dispatched()
        self._frontier_at, self._frontier_place = self._clock.seconds(), end
        self._frontier_greatest = (due, offset)
        body = encode_frontier(due, offset, end, sources)
        return frontier_message(body, self._terms.store_host(), self._now_ms())

    def put_frontier(self) -> None:
        """Put a frontier alone, if nothing is in flight and the log has grown since the last."""
        if self.in_flight or not self.is_level or not self._terms.may_put():
            return
        if self._terms.dispatched() <= self._frontier_place:
            return
        frontier = self._frontier()
        if frontier is not None:
            self._put([frontier], lambda results: None)

    # Rolling

    def roll(self, queue_offsets: Sequence[int]) -> None:
        """
        Put rolled copies of waiting messages, whose file is about to be deleted.

        They are put run after run, as soon as no message is due.
        """
        self._to_roll = deque(queue_offsets)
        if not self.in_flight:
            self._wake(0.0)

    def _roll_some(self) -> None:
        """
        Put one run of rolled copies, if some are left to be rolled.

        :raises StoreError: the disk refuses.
        """
        queue, now, size = self._log.queue, self._now_ms(), 0
        messages, taken = list[BrokerMessage](), list[tuple[int, int]]()
        while self._to_roll and len(messages) < _MOST_MESSAGES and size < _MOST_BYTES:
            offset = self._to_roll.popleft()
            unit = None if queue is None else queue.unit(offset)
            record = None if unit is None else self._log.record(unit)
            if unit is None or record is None:
                continue
            source = TimerSource(unit[0], offset)
            due = due_in(self._log.due_of(unit) or 0)
            if source not in self.recalling and self._table.waiting.waits(due, source):
                messages.append(rolled_copy_of(record, source, now))
                taken.append((due, offset))
                size += len(record.body) + len(messages[-1].properties_string)
        if messages:
            self._put_run(messages, taken, again=False)
