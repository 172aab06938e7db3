"""Holds pulls that wait for a message (PullRequestHoldService).

Spec: remoting.md, section 6.5.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from rmq_ha.base.interfaces import IMessageFilter
from rmq_ha.base.model.message import Row
from rmq_ha.base.model.properties import decode_properties
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.runs.face import Rows
from rmq_ha.base.timing.timer import rearm

RECHECK_SECONDS = 5.0
MAX_HOLD_SECONDS = 3600.0
MAX_EXPRESSIONS = 1 << 22
"""Most characters in the subscriptions of all held pulls; their filters take forty times as much
memory."""
GONE = -1.0
_MIN_COMPACT = 64


@dataclass(slots=True, eq=False)
class HeldPull:
    """
    One pull that found nothing.

    :ivar wanted_offset: the queue offset that it asked for.
    :ivar suspend_ms: how long it may wait, ms.
    :ivar message_filter: dropped together with `resume` when the pull is released.
    :ivar resume: runs the pull again without permission to wait, and answers it.
    :ivar expression_size: number of characters from which its own `message_filter` was made.
    """

    channel: Channel
    topic: str
    queue_id: int
    wanted_offset: int
    suspend_ms: int
    message_filter: IMessageFilter | None
    resume: Callable[["HeldPull"], None]
    expression_size: int = 0
    deadline: float = field(default=0.0, init=False)
    check_at: float = field(default=GONE, init=False)


class PullRequestHoldService:
    """
    Holds pulls by queue, until a message arrives, their time limit is over, or their connection is
    closed.

    One timer is set to the earliest limit; it is off if nothing was held lately. If the filter of a
    held pull refuses a message that arrived, the pull is run again after `RECHECK_SECONDS`. So the
    consumer's offset moves past messages that the consumer does not want. The Java broker's
    periodic sweep over held pulls has the same effect.

    :param max_offset: returns the end of a queue, by topic and queue id.
    :param capacity: how many pulls may wait. A further pull is answered at once, and so is a pull
        by which the expressions of all held pulls would exceed `MAX_EXPRESSIONS`.
    """

    def __init__(
        self, clock: IReactorTime, max_offset: Callable[[str, int], int], capacity: int
    ) -> None:
        self._clock = clock
        self._max_offset = max_offset
        self._capacity = capacity
        self._queues: dict[tuple[str, int], dict[HeldPull, None]] = {}
        self._channels: dict[Channel, dict[HeldPull, None]] = {}
        self._heap: list[tuple[float, int, HeldPull]] = []
        self._sequence = count()
        self._timer: IDelayedCall | None = None
        self._held = 0
        self._expressions = 0
        self._stopped = False

    def __len__(self) -> int:
        return self._held

    def hold(self, pull: HeldPull) -> bool:
        """
        Hold a pull until a message arrives or its time limit is over.

        :returns: False if it cannot wait and must be answered now.
        """
        if self._stopped or self._held >= self._capacity or not pull.channel.is_open:
            return False
        if self._expressions + pull.expression_size > MAX_EXPRESSIONS:
            return False
        now = self._clock.seconds()
        pull.deadline = now + min(max(pull.suspend_ms, 0) / 1000, MAX_HOLD_SECONDS)
        check_at = pull.deadline
        if self._max_offset(pull.topic, pull.queue_id) > pull.wanted_offset:
            # The queue has a message that could not be read, so no arrival will release the pull.
            check_at = min(check_at, now + RECHECK_SECONDS)
        self._queues.setdefault((pull.topic, pull.queue_id), {})[pull] = None
        of_channel = self._channels.get(pull.channel)
        if of_channel is None:
            of_channel = self._channels[pull.channel] = {}
            pull.channel.on_close(self._forget_channel)
        of_channel[pull] = None
        self._held += 1
        self._expressions += pull.expression_size
        self._check_at(pull, check_at)
        return True

    def on_arrival(self, rows: Rows) -> None:
        """Release the pulls that wait for these messages, once all messages were looked at."""
        if not self._held:
            return
        queues = self._queues
        if queues.keys().isdisjoint(rows.names):
            return
        woken: list[HeldPull] = []
        for row in rows:
            waiting = queues.get(row[:2])
            if waiting:
                self._match(waiting, row, woken)
        self._release(woken)

    def stop(self) -> None:
        """Answer all held pulls, and hold no more."""
        self._stopped = True
        self._release([pull for waiting in self._queues.values() for pull in waiting])
        self._heap.clear()
        self._arm()

    def _match(self, waiting: dict[HeldPull, None], row: Row, woken: list[HeldPull]) -> None:
        recheck = 0.0
        for pull in list(waiting):
            if row[6] < pull.wanted_offset:
                continue
            message_filter = pull.message_filter
            if message_filter is None or is_wanted(message_filter, row):
                woken.append(pull)
                self._remove(pull)
                continue
            recheck = recheck or self._clock.seconds() + RECHECK_SECONDS
            if pull.check_at > recheck:
                self._check_at(pull, recheck)

    def _release(self, pulls: list[HeldPull]) -> None:
        for pull in pulls:
            self._remove(pull)
        for pull in pulls:
            resume = pull.resume
            _free(pull)
            resume(pull)

    def _remove(self, pull: HeldPull) -> None:
        """Remove a pull; a second call is harmless."""
        key = (pull.topic, pull.queue_id)
        waiting = self._queues.get(key)
        if waiting is None or pull not in waiting:
            return
        del waiting[pull]
        if not waiting:
            del self._queues[key]
        self._channels.get(pull.channel, {}).pop(pull, None)
        pull.check_at = GONE
        self._held -= 1
        self._expressions -= pull.expression_size

    def _forget_channel(self, channel: Channel) -> None:
        for pull in list(self._channels.pop(channel, ())):
            self._remove(pull)
            _free(pull)
        self._compact()

    def _compact(self) -> None:
        """Remove released pulls from the heap when they are the majority."""
        heap = self._heap
        if len(heap) > _MIN_COMPACT and len(heap) > 2 * self._held:
            heap[:] = [entry for entry in heap if entry[0] == entry[2].check_at]
            heapify(heap)

    def _check_at(self, pull: HeldPull, when: float) -> None:
        """
        Set the time at which a pull is looked at next. Older entries of the pull in the heap are
        skipped.
        """
        pull.check_at = when
        self._compact()
        heappush(self._heap, (when, next(self._sequence), pull))
        self._arm()

    def _arm(self) -> None:
        earliest = self._heap[0][0] if self._heap else None
        self._timer = rearm(self._clock, self._timer, earliest, self._on_time)

    def _on_time(self) -> None:
        now = self._clock.seconds()
        due: list[HeldPull] = []
        heap = self._heap
        while heap and (heap[0][0] <= now or heap[0][0] != heap[0][2].check_at):
            when, _, pull = heappop(heap)
            if when != pull.check_at:
                continue
            if now >= pull.deadline or (
                self._max_offset(pull.topic, pull.queue_id) > pull.wanted_offset
            ):
                due.append(pull)
            else:
                pull.check_at = pull.deadline
                heappush(heap, (pull.deadline, next(self._sequence), pull))
        self._release(due)
        self._arm()


def _free(pull: HeldPull) -> None:
    """
    Drop the parts of a released pull that hold memory; the heap may hold the pull itself until its
    time comes.
    """
    pull.message_filter = None
    pull.resume = _done


def _done(pull: HeldPull) -> None:
    """Replace `HeldPull.resume` of a released pull."""


def is_wanted(message_filter: IMessageFilter, row: Row) -> bool:
    """
    Return whether the filter may pass a message that arrived.

    A message without properties is judged when the pull is run again.
    """
    if not message_filter.matches_unit(row[4]):
        return False
    properties = decode_properties(row[11])
    return not properties or bool(message_filter.matches_properties(properties))
