"""Holds pops, and questions whether a pop would find something, until messages come.

Spec: pop.md, sections 2.7 and 13.4.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from heapq import heapify, heappop, heappush, merge
from itertools import count

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from rmq_ha.base.interfaces import IMessageFilter
from rmq_ha.base.model.message import Row
from rmq_ha.base.runs.face import Rows
from rmq_ha.base.timing.timer import rearm
from rmq_ha.server.broker.hold import is_wanted
from rmq_ha.server.door import Poller

ALL_QUEUES = -1
"""The queue id of a request for all queues of a topic."""
MAX_EXPRESSIONS = 1 << 22
"""Most characters in the filters of all held requests."""
_MIN_COMPACT = 64
_Polls = dict["HeldPoll", None]


class Release(Enum):
    """Why a held request is released."""

    MESSAGES = auto()
    """There may be a message for it."""
    TIME = auto()
    """Its waiting time is over: it looks for messages once more, and is answered."""
    END = auto()
    """This broker hands out no messages any more: the request is answered."""


@dataclass(slots=True, eq=False)
class HeldPoll:
    """
    One request that found nothing.

    :ivar topic: the topic that the client names, never one of its retry topics.
    :ivar queue_id: `ALL_QUEUES`, or the only queue that the client wants.
    :ivar most: how many messages it takes at most, at least one.
    :ivar deadline: until when it may wait, in seconds of the clock.
    :ivar resume: called once, with the reason, after the request was taken out of the hold.
    :ivar expression: type and text of its filter; equal ones select the same messages.
    """

    channel: Poller
    group: str
    topic: str
    queue_id: int
    most: int
    deadline: float
    resume: Callable[[Release], None]
    message_filter: IMessageFilter | None = None
    expression: tuple[str, str] = ("", "")
    number: int = field(default=0, init=False)
    is_held: bool = field(default=False, init=False)

    def __lt__(self, other: "HeldPoll") -> bool:
        return self.number < other.number


class PopHold:
    """
    Holds requests by topic, group and queue.

    When messages come, the oldest requests are released, as many as the messages suffice for. A
    message releases only a request whose filter passes the message. A request is forgotten when its
    connection is closed.

    :param most_of_key: returns how many requests may wait under one topic, group and queue id.
    :param most: returns how many requests may wait altogether.
    """

    log = Logger()

    def __init__(
        self, clock: IReactorTime, most_of_key: Callable[[], int], most: Callable[[], int]
    ) -> None:
        self._clock = clock
        self._most_of_key = most_of_key
        self._most = most
        self._topics: dict[str, dict[str, dict[int, _Polls]]] = {}
        self._channels: dict[Poller, _Polls] = {}
        self._heap: list[tuple[float, HeldPoll]] = []
        self._numbers = count(1)
        self._timer: IDelayedCall | None = None
        self._held = 0
        self._expressions = 0
        self._stopped = False

    def __len__(self) -> int:
        return self._held

    def count(self, group: str, topic: str, queue_id: int) -> int:
        """Return how many requests wait under exactly this queue id."""
        return len(self._topics.get(topic, {}).get(group, {}).get(queue_id, ()))

    def hold(self, poll: HeldPoll) -> bool:
        """
        Hold a request until messages come or its time is over.

        :returns: False if too many wait, or this broker stops: it must be answered now.
        """
        if self._stopped or self._held >= self._most() or not poll.channel.is_open:
            return False
        if self._expressions + len(poll.expression[1]) > MAX_EXPRESSIONS:
            return False
        if self.count(poll.group, poll.topic, poll.queue_id) >= self._most_of_key():
            return False
        poll.number = next(self._numbers)
        poll.is_held = True
        groups = self._topics.setdefault(poll.topic, {})
        waiting = groups.setdefault(poll.group, {}).setdefault(poll.queue_id, {})
        waiting[poll] = None
        of_channel = self._channels.get(poll.channel)
        if of_channel is None:
            of_channel = self._channels[poll.channel] = {}
            poll.channel.on_close(self._forget_channel)
        of_channel[poll] = None
        self._held += 1
        self._expressions += len(poll.expression[1])
        self._compact()
        heappush(self._heap, (poll.deadline, poll))
        self._arm()
        return True

    def on_arrival(self, rows: Rows) -> None:
        """Release the requests for which messages have arrived in queues of their topics."""
        topics = self._topics
        if not self._held or topics.keys().isdisjoint(rows.topics):
            return
        queues: dict[tuple[str, int], list[Row]] = {}
        for row in rows:
            if row[0] in topics:
                queues.setdefault(row[:2], []).append(row)
        woken: dict[HeldPoll, None] = {}
        for (topic, queue_id), arrived in queues.items():
            for waiting in topics[topic].values():
                woken |= dict.fromkeys(_choose_polls(_in_order(waiting, queue_id), arrived))
        self._release(woken, Release.MESSAGES)

    def wake(self, group: str, topic: str, queue_id: int, messages: int) -> None:
        """
        Release requests of a group because messages can be popped that did not arrive just now.

        :param topic: the topic that the requests name.
        :param queue_id: `ALL_QUEUES` if a retry topic has the messages, which any request of the
            topic finds.
        :param messages: how many.
        """
        waiting = self._topics.get(topic, {}).get(group)
        if not waiting:
            return
        polls = merge(*waiting.values()) if queue_id == ALL_QUEUES else _in_order(waiting, queue_id)
        woken = []
        for poll in polls:
            if messages <= 0:
                break
            woken.append(poll)
            messages -= poll.most
        self._release(woken, Release.MESSAGES)

    def release_all(self) -> None:
        """Have all held requests answered, as this broker hands out no messages any more."""
        polls = [
            poll
            for groups in self._topics.values()
            for queues in groups.values()
            for waiting in queues.values()
            for poll in waiting
        ]
        self._release(sorted(polls), Release.END)

    def stop(self) -> None:
        """Have all held requests answered, and hold no more."""
        self._stopped = True
        self.release_all()
        self._heap.clear()
        self._arm()

    def _release(self, polls: Iterable[HeldPoll], reason: Release) -> None:
        """
        Remove all these requests before any is resumed, as a resumed request may be held again at
        once.
        """
        released = list(polls)
        for poll in released:
            self._remove(poll)
        for poll in released:
            try:
                poll.resume(reason)
            except Exception:  # the others are answered all the same
                self.log.failure("a held request for {topic} failed", topic=poll.topic)

    def _remove(self, poll: HeldPoll) -> None:
        poll.is_held = False
        groups = self._topics[poll.topic]
        queues = groups[poll.group]
        del queues[poll.queue_id][poll]
        if not queues[poll.queue_id]:
            del queues[poll.queue_id]
        if not queues:
            del groups[poll.group]
        if not groups:
            del self._topics[poll.topic]
        self._channels.get(poll.channel, {}).pop(poll, None)
        self._held -= 1
        self._expressions -= len(poll.expression[1])

    def _forget_channel(self, channel: Poller) -> None:
        for poll in self._channels.pop(channel, {}):
            self._remove(poll)
        self._compact()

    def _compact(self) -> None:
        """Remove released requests from the heap when they are the majority."""
        heap = self._heap
        if len(heap) > _MIN_COMPACT and len(heap) > 2 * self._held:
            heap[:] = [entry for entry in dict.fromkeys(heap) if entry[1].is_held]
            heapify(heap)

    def _arm(self) -> None:
        earliest = self._heap[0][0] if self._heap else None
        self._timer = rearm(self._clock, self._timer, earliest, self._on_time)

    def _on_time(self) -> None:
        now = self._clock.seconds()
        over: dict[HeldPoll, None] = {}
        while self._heap and (self._heap[0][0] <= now or not self._heap[0][1].is_held):
            _, poll = heappop(self._heap)
            if poll.is_held:
                over[poll] = None
        self._release(over, Release.TIME)
        self._arm()


def _in_order(waiting: dict[int, _Polls], queue_id: int) -> Iterable[HeldPoll]:
    """Return the requests that want messages of a queue, oldest first."""
    return merge(waiting.get(ALL_QUEUES, ()), waiting.get(queue_id, ()))


def _choose_polls(polls: Iterable[HeldPoll], arrived: Sequence[Row]) -> list[HeldPoll]:
    """
    Return the requests that get the messages that arrived in a queue, oldest request first.

    Each request takes as many messages as it wants, out of those that its filter passes. If a
    filter passes none, later requests with the same expression are skipped, so that many requests
    do not multiply the work.
    """
    left = list(arrived)
    served: list[HeldPoll] = []
    useless: set[tuple[str, str]] = set()
    for poll in polls:
        if not left:
            break
        chosen = poll.message_filter
        if chosen is None:
            served.append(poll)
            del left[: poll.most]
        elif poll.expression not in useless:
            matching = [at for at, row in enumerate(left) if is_wanted(chosen, row)][: poll.most]
            if not matching:
                useless.add(poll.expression)
                continue
            served.append(poll)
            for at in reversed(matching):
                del left[at]
    return served
