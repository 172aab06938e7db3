"""LiteQueues: the queues of a lite pull consumer, and their messages that no poll has returned yet.

Spec: remoting.md, section 11.4.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from rmq_ha.base.errors import RmqHaError
from rmq_ha.base.model.subscription import TAG_TYPES, SubscriptionData
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.consume.consumer_base import ConsumerBase
from rmq_ha.client.consume.pull_api import PullApi
from rmq_ha.client.consume.pull_loop import FULL_SECONDS, PAUSED_SECONDS, PullLoop
from rmq_ha.client.lookup.pulls import Pull
from rmq_ha.client.rules.consumer_settings import LitePullConsumerConfig
from rmq_ha.client.rules.messages import MessageExt
from rmq_ha.client.rules.process_queue import FlowLimits, ProcessQueue


class _Lite:
    """
    The state of one queue.

    :ivar position: offset of the next message to hand out; None while no message was handed out and
        nobody called `seek`.
    """

    __slots__ = ("loop", "paused", "position", "process_queue", "timer")

    def __init__(self, process_queue: ProcessQueue) -> None:
        self.process_queue = process_queue
        self.loop: PullLoop | None = None
        self.position: int | None = None
        self.paused = False
        self.timer: IDelayedCall | None = None


class LiteQueues:
    """
    Pulls assigned queues ahead and hands out the pulled messages, those of one pull at a time.

    :param subscription_of: returns a topic's subscription; None if the topic has none.
    """

    log = Logger()

    def __init__(
        self,
        base: ConsumerBase,
        config: LitePullConsumerConfig,
        pull_api: PullApi,
        subscription_of: Callable[[str], SubscriptionData | None],
    ) -> None:
        host = base.instance.host
        self.clock: IReactorTime = host.clock
        self.steady_ms = host.steady_ms
        self.pull_api = pull_api
        self.error_seconds = base.instance.settings.pull_time_delay_when_exception_ms / 1000
        self._base = base
        self._config = config
        self._limits = config.limits()
        self._subscription_of = subscription_of
        self._table: dict[MessageQueue, _Lite] = {}
        self._ready: deque[tuple[MessageQueue, ProcessQueue, list[MessageExt]]] = deque()
        self._waiting: deque[Deferred[list[MessageExt]]] = deque()
        self._stopped = False

    # Assignment

    def assigned(self) -> list[MessageQueue]:
        """Return the queues that the consumer reads now."""
        return list(self._table)

    def live(self) -> Collection[MessageQueue]:
        """Return a live view of `assigned`, which follows later changes."""
        return self._table.keys()

    def has_queue(self, queue: MessageQueue) -> bool:
        """Whether the consumer reads this queue now."""
        return queue in self._table

    def add(self, queue: MessageQueue, offset: int | None = None) -> None:
        """
        Begin with a queue.

        :param offset: the offset to begin at; None for `ConsumerBase.first_offset`.
        """
        if queue in self._table or self._stopped:
            return
        lite = self._table[queue] = _Lite(ProcessQueue(self.steady_ms()))
        if offset is None:
            self._begin(queue, lite)
        else:
            self._run(queue, lite, offset)

    def remove(self, queue: MessageQueue) -> None:
        """Stop reading a queue; its cached messages are not handed out."""
        lite = self._table.pop(queue, None)
        if lite is not None:
            self._end(lite)
            self._base.choice.forget(queue)

    def stop(self) -> None:
        """Stop pulling; waiting polls get no message."""
        self._stopped = True
        for lite in self._table.values():
            self._end(lite)
        waiting, self._waiting = self._waiting, deque()
        for later in waiting:
            later.callback([])

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on reading a queue at another offset; its cached messages are not handed out."""
        lite = self._table[queue]
        lite.position = offset
        if lite.loop is not None or lite.timer is not None:
            self._end(lite)
            lite.process_queue = ProcessQueue(self.steady_ms())
            self._run(queue, lite, offset)

    def pause(self, queues: Iterable[MessageQueue], *, paused: bool) -> None:
        """Stop or resume pulling these queues; cached messages of a paused queue wait."""
        for queue in queues:
            lite = self._table.get(queue)
            if lite is not None:
                lite.paused = paused
                if not paused and lite.loop is not None:
                    lite.loop.poke()
        if not paused:
            self._hand_out()

    def positions(self) -> dict[MessageQueue, int]:
        """Return the next offset of each queue that had a message handed out or a `seek`."""
        return {
            queue: lite.position for queue, lite in self._table.items() if lite.position is not None
        }

    # Handing out

    def poll(self, timeout_ms: int) -> "Deferred[list[MessageExt]]":
        """Wait for the messages of one pull; fires with an empty list if none came in time."""
        waiting: Deferred[list[MessageExt]] = Deferred(self._forget)
        self._waiting.append(waiting)
        self._hand_out()
        timer = self.clock.callLater(timeout_ms / 1000, self._too_late, waiting)

        def answered(messages: list[MessageExt]) -> list[MessageExt]:
            if timer.active():
                timer.cancel()
            return messages

        return waiting.addBoth(answered)

    def _too_late(self, waiting: "Deferred[list[MessageExt]]") -> None:
        self._forget(waiting)
        waiting.callback([])

    def _forget(self, waiting: "Deferred[list[MessageExt]]") -> None:
        if waiting in self._waiting:
            self._waiting.remove(waiting)

    def _hand_out(self) -> None:
        kept = []
        while self._ready and self._waiting:
            queue, process_queue, messages = self._ready.popleft()
            lite = self._table.get(queue)
            if process_queue.dropped or lite is None:
                continue
            if lite.paused:
                kept.append((queue, process_queue, messages))
                continue
            lite.position = process_queue.remove(messages)
            self._waiting.popleft().callback(messages)
        self._ready.extendleft(reversed(kept))

    # PullOwner

    def may_pull(self, queue: MessageQueue, process_queue: ProcessQueue) -> float:
        lite = self._table.get(queue)
        if lite is not None and lite.paused:
            return PAUSED_SECONDS
        if len(self._ready) * self._config.pull_batch_size > self._config.pull_threshold_for_all:
            return FULL_SECONDS
        return 0.0

    def limits(self, queue: MessageQueue) -> FlowLimits:
        return self._limits

    def next_pull(self, queue: MessageQueue, offset: int) -> Pull | None:
        subscription = self._subscription_of(queue.topic)
        if subscription is None:
            return None
        config = self._config
        return Pull(
            queue,
            subscription,
            offset,
            config.pull_batch_size,
            config.consumer_timeout_when_suspend_ms,
            hold_ms=config.broker_suspend_max_time_ms,
            send_expression=True,
            sub_version=0 if subscription.expression_type in TAG_TYPES else None,
            is_lite=True,
        )

    def found(
        self, queue: MessageQueue, process_queue: ProcessQueue, messages: list[MessageExt]
    ) -> float:
        added = process_queue.put(messages)
        if added:
            self._ready.append((queue, process_queue, added))
            self._hand_out()
        return 0.0

    def nothing_below(self, queue: MessageQueue, process_queue: ProcessQueue, offset: int) -> None:
        lite = self._table.get(queue)
        if lite is not None and lite.position is not None:
            lite.position = max(lite.position, offset)

    def offset_moved(self, queue: MessageQueue, process_queue: ProcessQueue, offset: int) -> None:
        """See `PullOwner`; messages that were pulled before are still handed out."""
        lite = self._table.get(queue)
        if lite is None or self._stopped:
            return
        process_queue.go_on_at(offset)
        lite.timer = self.clock.callLater(self.error_seconds, self._run, queue, lite, offset)

    def unknown_subscription(self) -> None:
        """Send one heartbeat soon, even if the loops of many queues call this; see `PullOwner`."""
        self._base.instance.heartbeat_soon()

    def pulled(self, topic: str, count: int, took_ms: int) -> None:
        """Do nothing: a lite pull consumer has no statistics."""

    # Inside

    def _begin(self, queue: MessageQueue, lite: _Lite) -> None:
        lite.timer = None
        beginning = Deferred.fromCoroutine(self._base.first_offset(queue))
        beginning.addCallbacks(
            lambda offset: self._found_beginning(queue, lite, offset),
            lambda failure: self._no_beginning(queue, lite, failure),
        )

    def _found_beginning(self, queue: MessageQueue, lite: _Lite, offset: int) -> None:
        if not lite.process_queue.dropped:
            self._run(queue, lite, offset if lite.position is None else lite.position)

    def _no_beginning(self, queue: MessageQueue, lite: _Lite, failure: object) -> None:
        error = getattr(failure, "value", failure)
        if isinstance(error, RmqHaError):
            self.log.warn("where to begin with {queue}: {reason}", queue=queue, reason=error)
        else:
            self.log.failure("where to begin with {queue}", failure, queue=queue)  # type: ignore[arg-type]
        if not lite.process_queue.dropped:
            lite.timer = self.clock.callLater(self.error_seconds, self._begin, queue, lite)

    def _run(self, queue: MessageQueue, lite: _Lite, offset: int) -> None:
        lite.timer = None
        lite.loop = PullLoop(self, queue, lite.process_queue, offset)
        lite.loop.start()

    def _end(self, lite: _Lite) -> None:
        if lite.timer is not None:
            lite.timer.cancel()
            lite.timer = None
        lite.process_queue.dropped = True
        if lite.loop is not None:
            lite.loop.stop()
