"""PushQueues: the queues that a push consumer has now, from taking them to giving them up.

Spec: remoting.md, sections 11.3 and 11.4.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from rmq_ha.base.errors import RmqHaError
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.consume.consume_concurrently import ConsumeConcurrently
from rmq_ha.client.consume.consume_orderly import ConsumeOrderly
from rmq_ha.client.consume.consumer_base import ConsumerBase
from rmq_ha.client.consume.pull_api import PullApi
from rmq_ha.client.consume.pull_loop import PAUSED_SECONDS, PullLoop
from rmq_ha.client.lookup.pulls import Pull
from rmq_ha.client.rules.consume_stats import ConsumeRates
from rmq_ha.client.rules.consumer_settings import PushConsumerConfig
from rmq_ha.client.rules.messages import MessageExt
from rmq_ha.client.rules.process_queue import FlowLimits, ProcessQueue
from rmq_ha.client.rules.subscriptions import Subscriptions

SUSPEND_MS = 15_000
PULL_TIMEOUT_MS = 30_000

Service = ConsumeConcurrently | ConsumeOrderly


class PushQueues:
    """
    Takes queues, pulls their messages into the consume service, and gives queues up.

    :param on_change: called when a queue that was given up may be taken again.
    :ivar is_paused: while True nothing is pulled; cached messages are still consumed.
    """

    log = Logger()

    def __init__(
        self,
        base: ConsumerBase,
        config: PushConsumerConfig,
        subscriptions: Subscriptions,
        pull_api: PullApi,
        stats: ConsumeRates,
        on_change: Callable[[], None],
    ) -> None:
        host = base.instance.host
        self.clock: IReactorTime = host.clock
        self.steady_ms = host.steady_ms
        self._now_ms = host.now_ms
        self.pull_api = pull_api
        self.error_seconds = base.instance.settings.pull_time_delay_when_exception_ms / 1000
        self.is_paused = False
        self._base = base
        self._config = config
        self._subscriptions = subscriptions
        self._stats = stats
        self._on_change = on_change
        self._service: Service | None = None
        self._table: dict[MessageQueue, PullLoop] = {}  # a queue that is being given up is in it
        self._ours: dict[MessageQueue, ProcessQueue] = {}  # without queues that are being given up
        self._moved: dict[MessageQueue, IDelayedCall] = {}
        self._limits: dict[str, FlowLimits] = {}
        self._told_version = 0
        self._stopped = False

    def use(self, service: Service) -> None:
        """Set the service that shows pulled messages to the listener."""
        self._service = service
        service.owned(self._ours)

    def stop_pulling(self) -> None:
        """Stop pulling; answers that are under way are thrown away. The offsets stay."""
        self._stopped = True
        for timer in self._moved.values():
            timer.cancel()
        for loop in self._table.values():
            loop.halt()

    async def release(self) -> None:
        """Unlock all queues of an orderly consumer; call `stop_pulling` before."""
        if self._service is not None and self._service.is_orderly and self._config.is_clustering:
            by_broker: dict[str, list[MessageQueue]] = {}
            for queue in self._table:
                by_broker.setdefault(queue.broker_name, []).append(queue)
            for broker_name, queues in by_broker.items():
                await self._unlock(broker_name, queues)

    def process_queues(self) -> dict[MessageQueue, ProcessQueue]:
        """Return the queues that this member has, without those that it is giving up."""
        return dict(self._ours)

    def versions_told(self, version: int) -> None:
        """Note that brokers have this version of the subscriptions, so that pulls may name it."""
        self._told_version = max(self._told_version, version)

    def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """
        Give these queues up, so that they are taken again at these offsets. Cached messages are
        dropped, and results of running listener calls are ignored.
        """
        for queue, offset in offsets.items():
            self._go_on_at(queue, offset)

    # QueueOwner

    def topics(self) -> Collection[str]:
        return list(self._subscriptions)

    def owned(self) -> Collection[MessageQueue]:
        return self._table.keys()

    def is_stuck(self, queue: MessageQueue) -> bool:
        process_queue = self._ours.get(queue)
        return (
            process_queue is not None
            and queue not in self._moved
            and process_queue.is_pull_expired(self.steady_ms())
        )

    async def take(self, queue: MessageQueue) -> bool:
        if queue in self._table or self._service is None:
            return False  # the queue is still being given up
        needs_lock = self._service.is_orderly and self._config.is_clustering
        if needs_lock and not await self._lock(queue):
            self.log.info("{queue} is still locked by another member", queue=queue)
            return False
        self._base.offset_store.remove_offset(queue)
        try:
            offset = await self._base.first_offset(queue)
        except RmqHaError as error:
            self.log.warn("where to begin with {queue}: {reason}", queue=queue, reason=error)
            return False
        if self._stopped or queue in self._table:
            if needs_lock and queue not in self._table:
                await self._unlock(queue.broker_name, [queue])
            return False
        process_queue = ProcessQueue(self.steady_ms())
        process_queue.locked = needs_lock
        loop = self._table[queue] = PullLoop(self, queue, process_queue, offset)
        self._ours[queue] = process_queue
        loop.start()
        return True

    async def give_up(self, queue: MessageQueue) -> None:
        if queue not in self._ours or self._service is None:
            return
        process_queue = self._ours.pop(queue)
        self._table[queue].stop()
        timer = self._moved.pop(queue, None)
        if timer is not None and timer.active():
            timer.cancel()
        waiting = self._service.leave(process_queue, queue)
        if waiting is None:
            await self._forget_queue(queue)
        else:
            waiting.addCallback(lambda _: Deferred.fromCoroutine(self._forget_queue(queue)))
            waiting.addCallback(lambda _: self._on_change())

    def share_changed(
        self, topic: str, queues: Collection[MessageQueue], share: Collection[MessageQueue]
    ) -> None:
        assert self._service is not None
        self._limits[topic] = self._config.limits(len(share), orderly=self._service.is_orderly)

    def round_changed(self, topics: Collection[str]) -> None:
        self._subscriptions.touch(topics, self._now_ms())
        self.tell()

    def tell(self) -> "Deferred[None]":
        """Tell brokers the subscriptions, by a heartbeat."""
        version = self._subscriptions.version
        told = self._base.instance.heartbeat_now()
        return told.addCallback(lambda _: self.versions_told(version))

    # PullOwner

    def may_pull(self, queue: MessageQueue, process_queue: ProcessQueue) -> float:
        if self.is_paused:
            return PAUSED_SECONDS
        assert self._service is not None
        if self._service.is_orderly and self._config.is_clustering and not process_queue.locked:
            return self.error_seconds
        return 0.0

    def limits(self, queue: MessageQueue) -> FlowLimits:
        limits = self._limits.get(queue.topic)
        if limits is None:
            assert self._service is not None
            limits = self._config.limits(1, orderly=self._service.is_orderly)
        return limits

    def next_pull(self, queue: MessageQueue, offset: int) -> Pull | None:
        subscription = self._subscriptions.get(queue.topic)
        if subscription is None:
            return None
        commit = self._base.offset_store.memory(queue) if self._config.is_clustering else None
        return Pull(
            queue,
            subscription,
            offset,
            self._config.pull_batch_size,
            PULL_TIMEOUT_MS,
            commit or None,
            SUSPEND_MS,
            self._config.post_subscription_when_pull,
            min(subscription.sub_version, self._told_version),
        )

    def found(
        self, queue: MessageQueue, process_queue: ProcessQueue, messages: list[MessageExt]
    ) -> float:
        assert self._service is not None
        self._service.submit(process_queue, queue, process_queue.put(messages))
        return self._config.pull_interval_ms / 1000

    def nothing_below(self, queue: MessageQueue, process_queue: ProcessQueue, offset: int) -> None:
        self._base.offset_store.update_offset(queue, offset, True)

    def offset_moved(self, queue: MessageQueue, process_queue: ProcessQueue, offset: int) -> None:
        process_queue.dropped = True
        timer = self.clock.callLater(self.error_seconds, self._go_on_at, queue, offset)
        self._moved[queue] = timer

    def unknown_subscription(self) -> None:
        """Send one heartbeat soon, even if the loops of many queues call this; see `PullOwner`."""
        self._base.instance.heartbeat_soon()

    def pulled(self, topic: str, count: int, took_ms: int) -> None:
        self._stats.pulled(topic, count, took_ms, self.steady_ms())

    # Inside

    def _go_on_at(self, queue: MessageQueue, offset: int) -> None:
        if queue not in self._ours or self._stopped:
            return
        self._base.offset_store.update_offset(queue, offset, False)
        given_up = Deferred.fromCoroutine(self.give_up(queue))
        given_up.addErrback(lambda failure: self.log.failure("giving up a queue failed", failure))
        given_up.addCallback(lambda _: self._on_change())

    async def _forget_queue(self, queue: MessageQueue) -> None:
        assert self._service is not None
        store = self._base.offset_store
        try:
            await store.persist(queue)
            if self._service.is_orderly and self._config.is_clustering:
                await self._unlock(queue.broker_name, [queue])
        finally:
            store.remove_offset(queue)
            self._base.choice.forget(queue)
            self._table.pop(queue, None)

    async def _lock(self, queue: MessageQueue) -> Any:
        base = self._base
        return await base.calls.lock(
            base.group, base.instance.client_id, queue.broker_name, [queue]
        )

    async def _unlock(self, broker_name: str, queues: list[MessageQueue]) -> None:
        base = self._base
        await base.calls.unlock(base.group, base.instance.client_id, broker_name, queues)
