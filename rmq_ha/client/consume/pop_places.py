"""PopPlaces: the places that a push consumer pops, as brokers assign them, and a loop for each.

Spec: pop.md, sections 2.1, 2.7 and 2.8.
"""

from collections.abc import Collection

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from rmq_ha.base.errors import RmqHaError
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.consume.consume_concurrently import ConsumeConcurrently
from rmq_ha.client.consume.consumer_base import ConsumerBase
from rmq_ha.client.consume.pop_api import PopApi
from rmq_ha.client.consume.pop_ends import PopEnds
from rmq_ha.client.consume.pull_loop import NOT_HELD_MS, NOT_HELD_SECONDS, PAUSED_SECONDS
from rmq_ha.client.consume.send_back import SendBack
from rmq_ha.client.lookup.pops import Pop
from rmq_ha.client.rules.consume_stats import ConsumeRates
from rmq_ha.client.rules.consumer_settings import ConsumeFromWhere, PushConsumerConfig
from rmq_ha.client.rules.lease_queue import LeaseQueue
from rmq_ha.client.rules.messages import MessageExt
from rmq_ha.client.rules.subscriptions import Subscriptions, chosen

_POLL_MS = 15_000
_FULL_SECONDS = 1.0


class PopPlaces:
    """
    Pops messages into the consume service.

    :ivar is_paused: while True nothing is popped; messages that are there are still consumed.
    """

    log = Logger()

    def __init__(
        self,
        base: ConsumerBase,
        config: PushConsumerConfig,
        subscriptions: Subscriptions,
        stats: ConsumeRates,
    ) -> None:
        self.is_paused = False
        self.api = PopApi(base.instance, base.group)
        self.error_seconds = base.instance.settings.pull_time_delay_when_exception_ms / 1000
        self.clock = base.instance.host.clock
        self.steady_ms = base.instance.host.steady_ms
        self._base = base
        self._config = config
        self._subscriptions = subscriptions
        self._stats = stats
        self._loops: dict[MessageQueue, PopLoop] = {}
        self._left: list[LeaseQueue] = []
        self._service: ConsumeConcurrently | None = None
        self._ends: PopEnds | None = None

    def use(self, service: ConsumeConcurrently, send_back: SendBack) -> None:
        """Set the service that shows popped messages to the listener."""
        self._service = service
        self._ends = service.pop_ends = PopEnds(self._base, self.api, send_back)

    def queues(self) -> list[MessageQueue]:
        """Return the places that are popped; the queue id -1 stands for all of a broker."""
        return list(self._loops)

    def assign(self, topic: str, queues: Collection[MessageQueue]) -> bool:
        """
        Pop exactly these places of a topic.

        :returns: whether they are other places than before.
        """
        before = {queue for queue in self._loops if queue.topic == topic}
        for queue in before.difference(queues):
            self._end(self._loops.pop(queue))
        for queue in sorted(set(queues) - before):
            loop = self._loops[queue] = PopLoop(self, queue)
            loop.start()
        return before != set(queues)

    def keep(self, topics: Collection[str]) -> None:
        """Stop popping topics that are not subscribed any more."""
        for topic in {queue.topic for queue in self._loops}.difference(topics):
            self.assign(topic, ())

    def stop_popping(self) -> None:
        """Stop popping; messages in answers that are under way are given back."""
        for loop in self._loops.values():
            self._end(loop)
            self._left.append(loop.popped)
        self._loops.clear()

    async def finish(self, within_ms: int) -> None:
        """
        Give messages back that no loop of the application took, and wait until brokers have the
        answers of all messages, at most this time, in ms.
        """
        if self._ends is not None:
            for popped in self._left:
                self._ends.give_back(popped.unanswered())
            await self._ends.finish(self.clock, within_ms)

    def _end(self, loop: "PopLoop") -> None:
        """End a loop, and give its messages back that wait for the listener."""
        loop.stop()
        if self._service is not None and self._ends is not None:
            waiting = self._service.take_waiting(loop.popped)
            loop.popped.end(waiting)
            self._ends.give_back(waiting)

    # What loops ask

    def may_pop(self, popped: LeaseQueue) -> float:
        """Return 0 if a loop may pop now; else for how many seconds it rests."""
        if self.is_paused or popped.count > self._config.pop_threshold_for_queue:
            return PAUSED_SECONDS
        return 0.0

    def next_pop(self, queue: MessageQueue) -> Pop | None:
        """Return the next pop of a place; None if its topic is not subscribed any more."""
        subscription = self._subscriptions.get(queue.topic)
        if subscription is None:
            return None
        from_max = self._config.consume_from_where is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
        return Pop(
            queue.topic,
            queue.broker_name,
            queue.queue_id,
            subscription,
            self._config.pop_batch_nums,
            self._config.pop_invisible_time_ms,
            _POLL_MS,
            from_max,
        )

    def found(
        self, queue: MessageQueue, popped: LeaseQueue, messages: list[MessageExt], took_ms: int
    ) -> None:
        """Take popped messages; those whose tag only has a subscribed hash are acknowledged."""
        assert self._service is not None
        assert self._ends is not None
        subscription = self._subscriptions.get(queue.topic)
        if popped.dropped or subscription is None:
            self._ends.give_back(messages)
            return
        now_ms = self.steady_ms()
        self._stats.pulled(queue.topic, len(messages), took_ms, now_ms)
        shown = chosen(messages, subscription)
        if len(shown) != len(messages):
            ids = {id(message) for message in shown}
            others = [message for message in messages if id(message) not in ids]
            self._ends.answered(popped, others, (), 0)
        popped.lease(shown, now_ms + self._config.pop_invisible_time_ms)
        self._service.submit(popped, queue, shown)


class PopLoop:
    """
    A loop that pops one place until `stop`.

    :ivar popped: the messages that are not answered.
    """

    log = Logger()

    def __init__(self, owner: PopPlaces, queue: MessageQueue) -> None:
        self._owner = owner
        self._queue = queue
        self.popped = LeaseQueue(owner.steady_ms(), self._poke)
        self._timer: IDelayedCall | None = None

    def start(self) -> None:
        """Pop for the first time."""
        running = Deferred.fromCoroutine(self._run())
        running.addErrback(lambda why: self.log.failure("popping {q} ended", why, q=self._queue))

    def stop(self) -> None:
        """Pop no more; messages of an answer that is under way are given back."""
        self.popped.dropped = True
        self._poke()

    def _poke(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.reset(0)

    async def _run(self) -> None:
        owner, popped = self._owner, self.popped
        failures = 0
        while not popped.dropped:
            wait = owner.may_pop(popped)
            pop = None if wait else owner.next_pop(self._queue)
            if pop is None:
                await self._rest(wait or owner.error_seconds)
                continue
            began = popped.last_pull_ms = owner.steady_ms()
            try:
                answer = await owner.api.pop(pop)
            except RmqHaError as error:
                failures += 1
                if failures % 10 == 1 and not popped.dropped:
                    self.log.warn("{queue} is not popped: {why}", queue=self._queue, why=error)
                await owner.api.look_for_master(pop.topic)
                await self._rest(owner.error_seconds)
                continue
            failures = 0
            took_ms = owner.steady_ms() - began
            if answer.messages:
                owner.found(self._queue, popped, answer.messages, took_ms)
            elif answer.is_full:
                await self._rest(_FULL_SECONDS)
            elif took_ms < NOT_HELD_MS:
                await self._rest(NOT_HELD_SECONDS)

    async def _rest(self, seconds: float) -> None:
        if not self.popped.dropped:
            over: Deferred[None] = Deferred()
            self._timer = self._owner.clock.callLater(seconds, over.callback, None)
            await over
            self._timer = None
