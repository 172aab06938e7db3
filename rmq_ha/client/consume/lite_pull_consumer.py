"""LitePullConsumer: a consumer with poll, seek and commit, with or without a group's rebalance.

Spec: remoting.md, sections 11.3 and 11.4.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Unpack

from twisted.internet.defer import Deferred, fail
from twisted.logger import Logger

from rmq_ha.base.errors import ConfigurationError, RmqHaError
from rmq_ha.base.model.subscription import SUB_ALL, SubscriptionData
from rmq_ha.base.model.topics import topic_fault
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.route_bodies import TopicRoute
from rmq_ha.client.connection.instance import ClientInstance
from rmq_ha.client.consume.active_part import ActivePart
from rmq_ha.client.consume.consumer_base import ConsumerBase
from rmq_ha.client.consume.lite_queues import LiteQueues
from rmq_ha.client.consume.offsets import OffsetStore, ReadOffsetType, RemoteBrokerOffsetStore
from rmq_ha.client.consume.pull_api import Filter, PullApi
from rmq_ha.client.rebalance.strategies import AllocateStrategy
from rmq_ha.client.rules.consumer_settings import LitePullConsumerConfig
from rmq_ha.client.rules.errors import MQClientError
from rmq_ha.client.rules.messages import MessageExt
from rmq_ha.client.rules.namespaces import unwrap
from rmq_ha.client.rules.options import LitePullConsumerOptions, settings_of
from rmq_ha.client.rules.routes import subscribe_queues
from rmq_ha.client.rules.subscriptions import MessageSelector, Subscriptions, subscription

ChangeListener = Callable[[str, list[MessageQueue]], Any]
"""Called as `listener(topic, queues)` with all queues of a topic, when the queues have changed."""


class LitePullConsumer:
    """
    A consumer that pulls ahead in the background (RocketMQ's DefaultLitePullConsumer).

    Call `subscribe` for topics, whose queues the members of the group share, or `assign` for single
    queues. `poll` returns pulled messages. A later `poll` (with `auto_commit`) or `commit_sync`
    commits them.
    """

    log = Logger()

    def __init__(
        self,
        instance: ClientInstance,
        consumer_group: str,
        config: LitePullConsumerConfig | None = None,
        *,
        strategy: AllocateStrategy | None = None,
        offset_store: OffsetStore | None = None,
        filters: Sequence[Filter] = (),
        **options: Unpack[LitePullConsumerOptions],
    ) -> None:
        """
        :param strategy: decides which member gets which queue; all members need the same strategy.
        :param options: settings of `LitePullConsumerConfig`; they override those of `config`.
        :raises ConfigurationError: a setting, or the group's name, is not valid.
        """
        self.config = settings_of(LitePullConsumerConfig, config, options).checked()
        self._base = ConsumerBase(instance, consumer_group, self.config, offset_store)
        self._instance = instance
        self._now_ms = instance.host.now_ms
        self._steady_ms = instance.host.steady_ms
        api = PullApi(instance, self._base.group, self._base.choice, tuple(filters))
        self._queues = LiteQueues(self._base, self.config, api, self._subscription_of)
        self._base.queues_to_persist = self._queues.assigned
        self._subscriptions = Subscriptions()
        self._expressions: dict[str, str | MessageSelector] = {}
        self._by_hand: set[MessageQueue] | None = None
        self._listeners: dict[str, ChangeListener] = {}
        self._next_commit_ms = 0
        self._rebalancer = self._base.rebalancer(strategy, self)
        self._part = ActivePart(
            self._base,
            self.config,
            self._subscriptions,
            self._rebalancer.rebalance_soon,
            self._reset,
        )

    def __repr__(self) -> str:
        return f"<LitePullConsumer {self._base.consumer_group} {self._base.state}>"

    @property
    def is_running(self) -> bool:
        """Whether the consumer has started and has not begun to stop."""
        return self._base.is_running

    @property
    def offset_store(self) -> OffsetStore:
        """The store of the offset that the consumer has committed in each queue."""
        return self._base.offset_store

    # What to read

    def subscribe(self, topic: str, expression: str | MessageSelector | None = SUB_ALL) -> None:
        """
        Read this member's share of a topic's queues.

        :raises ConfigurationError: queues were assigned, or topic or expression is not valid.
        """
        if self._by_hand is not None:
            raise ConfigurationError("subscribe() and assign() exclude each other")
        fault = topic_fault(topic)
        if fault:
            raise ConfigurationError(fault)
        topic = self._base.wrap(topic)
        self._subscriptions.add(topic, expression, self._now_ms())
        if self.is_running:
            known = Deferred.fromCoroutine(self._base.know_routes([topic]))
            known.addErrback(lambda failure: self.log.failure("no route of a topic", failure))
            known.addCallback(lambda _: self._instance.heartbeat_now())
            known.addCallback(lambda _: self._rebalancer.rebalance())

    def unsubscribe(self, topic: str) -> None:
        """Stop reading a topic; the next rebalance gives its queues up."""
        topic = self._base.wrap(topic)
        self._subscriptions.remove(topic)
        if topic not in self._listeners:
            self._base.unwatch(topic)
        if self.is_running:
            self._instance.heartbeat_now()
            self._rebalancer.rebalance_soon()

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """
        Read exactly these queues, even if other members read them too.

        :raises ConfigurationError: topics are subscribed.
        """
        if len(self._subscriptions):
            raise ConfigurationError("subscribe() and assign() exclude each other")
        self._by_hand = {self._base.wrap_queue(queue) for queue in queues}
        if self.is_running:
            self._take_assigned()

    def set_sub_expression_for_assign(self, topic: str, expression: str | MessageSelector) -> None:
        """
        Read only the messages of a topic that match an expression; for queues that are assigned.

        :raises ConfigurationError: the expression is not valid.
        """
        topic = self._base.wrap(topic)
        subscription(topic, expression, 0)
        self._expressions[topic] = expression

    def assignment(self) -> list[MessageQueue]:
        """Return the queues that this consumer reads now."""
        return sorted(self._base.unwrap_queue(queue) for queue in self._queues.assigned())

    def fetch_message_queues(self, topic: str) -> "Deferred[list[MessageQueue]]":
        """Ask for all queues of a topic; fails with `NoRoute` or `NoNameServer`."""
        wrapped = self._base.wrap(topic)
        fetched = self._instance.routes.fetch(wrapped)
        return fetched.addCallback(lambda route: self._queues_of(wrapped, route))

    def register_topic_message_queue_change_listener(
        self, topic: str, listener: ChangeListener
    ) -> None:
        """Call a listener whenever a topic gets or loses queues."""
        topic = self._base.wrap(topic)
        self._listeners[topic] = listener
        self._base.watch(topic)

    # Life

    def start(self) -> "Deferred[None]":
        """Join the group. On failure, with `MQClientError`, the consumer is stopped."""
        try:
            self._base.begin()
        except MQClientError as error:
            return fail(error)
        return Deferred.fromCoroutine(self._start())

    def stop(self) -> "Deferred[None]":
        """
        Persist the committed offsets and leave the group; waiting polls get no message. It never
        fails.

        The messages of the last `poll` are not committed by this: call `commit_sync` before.
        """
        return Deferred.fromCoroutine(self._stop())

    async def _start(self) -> None:
        base = self._base
        try:
            await self._instance.start()
            await base.offset_store.load()
            by_hand = sorted({queue.topic for queue in self._by_hand or ()})
            await base.know_routes([*self._subscriptions, *by_hand])
            for subscription_data in self._subscriptions.all():
                if subscription_data.expression_type not in ("TAG", "", None):
                    await base.calls.check_subscription(
                        base.group, self._instance.client_id, subscription_data
                    )
            base.must_go_on()
            self._instance.register_consumer(base.group, self._part)
            base.run()
            self._next_commit_ms = self._steady_ms() + self.config.auto_commit_interval_ms
            await self._instance.heartbeat_now()
            base.must_go_on()
            self._instance.on_route_change(self._route_changed)
            self._take_assigned()
            await self._rebalancer.start()
        except BaseException:
            await self._stop()
            raise

    async def _stop(self) -> None:
        base = self._base
        if not base.stops():
            return
        self._instance.forget_route_change(self._route_changed)
        await self._rebalancer.stop()
        self._queues.stop()
        await base.halt()
        await self._part.leave()
        base.state = "stopped"

    # Reading

    def poll(self, timeout_ms: int | None = None) -> "Deferred[list[MessageExt]]":
        """
        Wait for the next messages of one queue, in the order of the queue.

        :param timeout_ms: how long to wait, in ms; None for `poll_timeout_ms`.
        :returns: fires with an empty list if no message came in time; fails with `NotStarted`, or
            with `ConfigurationError` when nothing is subscribed or assigned.
        """
        try:
            self._base.must_run()
            self._must_read()
        except (ConfigurationError, MQClientError) as error:
            return fail(error)
        now = self._steady_ms()
        if self.config.auto_commit and now >= self._next_commit_ms:
            self._next_commit_ms = now + self.config.auto_commit_interval_ms
            self._note_positions(self._queues.assigned())
        timeout = self.config.poll_timeout_ms if timeout_ms is None else timeout_ms
        return self._queues.poll(timeout).addCallback(self._visible)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Stop reading these queues until `resume`; they stay with this consumer."""
        self._queues.pause(map(self._base.wrap_queue, queues), paused=True)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Go on reading queues after `pause`, each from the message at which it was paused."""
        self._queues.pause(map(self._base.wrap_queue, queues), paused=False)

    def seek(self, queue: MessageQueue, offset: int) -> "Deferred[None]":
        """
        Go on reading a queue at another offset.

        :returns: fails with `MQClientError` when the queue is not with this consumer or does not
            have this offset.
        """
        return Deferred.fromCoroutine(self._seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> "Deferred[None]":
        """Go on at a queue's first message; fails as `seek` does."""
        return Deferred.fromCoroutine(self._seek(queue, None, to_end=False))

    def seek_to_end(self, queue: MessageQueue) -> "Deferred[None]":
        """Go on after a queue's last message; fails as `seek` does."""
        return Deferred.fromCoroutine(self._seek(queue, None, to_end=True))

    async def _seek(self, queue: MessageQueue, offset: int | None, *, to_end: bool = False) -> None:
        self._base.must_run()
        wrapped = self._base.wrap_queue(queue)
        self._must_have(wrapped)
        least = await self._base.calls.min_offset(wrapped)
        most = await self._base.calls.max_offset(wrapped)
        if offset is None:
            offset = most if to_end else least
        if not least <= offset <= most:
            raise MQClientError(f"{queue} has the offsets {least} to {most}, not {offset}")
        self._must_have(wrapped)
        self._queues.seek(wrapped, offset)

    def _must_read(self) -> None:
        if self._by_hand is None and not len(self._subscriptions):
            raise ConfigurationError(
                f"{self._base.consumer_group} reads nothing: call subscribe(topic) or"
                " assign(queues) before poll()"
            )

    def _must_have(self, queue: MessageQueue) -> None:
        if not self._queues.has_queue(queue):
            raise MQClientError(
                f"{queue} is not assigned to this consumer: assign it, or wait "
                "until the group's rebalance gives it to this member"
            )

    # Offsets

    def commit_sync(
        self, offsets: Mapping[MessageQueue, int] | None = None, *, persist: bool = True
    ) -> "Deferred[None]":
        """
        Commit the given offsets or, if None, the positions that `poll` has come to.

        :param persist: whether to wait until the brokers have the offsets; else they get them at
            the next interval of persisting.
        :returns: fails with `MQClientError` or `RemotingError` when a broker does not take them.
        """
        return Deferred.fromCoroutine(self._commit(offsets, persist=persist))

    def commit(self, queues: Iterable[MessageQueue], *, persist: bool = True) -> "Deferred[None]":
        """Commit the positions that `poll` has come to in these queues; see `commit_sync`."""
        wrapped = [self._base.wrap_queue(queue) for queue in queues]
        return Deferred.fromCoroutine(self._commit(None, wrapped, persist=persist))

    def committed(self, queue: MessageQueue) -> "Deferred[int | None]":
        """
        Return the offset that the group has committed in a queue; None if it has committed none.
        Fails as `commit_sync` does.
        """
        read = self.offset_store.read_offset(
            self._base.wrap_queue(queue), ReadOffsetType.MEMORY_FIRST_THEN_STORE
        )
        return Deferred.fromCoroutine(read)

    def offset_for_timestamp(self, queue: MessageQueue, timestamp: int) -> "Deferred[int]":
        """
        Return the offset of the first message that was stored at a time or later. RocketMQ 4.9, and
        rmq-ha with `timeSearchNearest`, take the message stored closest to the time.

        :param timestamp: the time, in ms since the epoch.
        :returns: fails as `commit_sync` does.
        """
        calls = self._base.calls
        return Deferred.fromCoroutine(calls.search_offset(self._base.wrap_queue(queue), timestamp))

    async def _commit(
        self,
        offsets: Mapping[MessageQueue, int] | None,
        queues: Collection[MessageQueue] | None = None,
        *,
        persist: bool,
    ) -> None:
        self._base.must_run()
        if offsets is not None:
            queues = [self._base.wrap_queue(queue) for queue in offsets]
            for queue, offset in zip(queues, offsets.values(), strict=True):
                self._must_have(queue)
                self.offset_store.update_offset(queue, offset, False)
        else:
            queues = self._queues.assigned() if queues is None else queues
            self._note_positions(queues)
        if persist and isinstance(self.offset_store, RemoteBrokerOffsetStore):
            await self.offset_store.persist_surely(queues)
        elif persist:
            await self.offset_store.persist_all(self._queues.assigned())

    def _note_positions(self, queues: Collection[MessageQueue]) -> None:
        positions = self._queues.positions()
        for queue in queues:
            if queue in positions:
                self.offset_store.update_offset(queue, positions[queue], False)

    # Inside

    def _subscription_of(self, topic: str) -> SubscriptionData | None:
        if self._by_hand is None:
            return self._subscriptions.get(topic)
        return subscription(topic, self._expressions.get(topic, SUB_ALL), 0)

    def _take_assigned(self) -> None:
        if self._by_hand is None:
            return
        for queue in self._queues.assigned():
            if queue not in self._by_hand:
                self._queues.remove(queue)
        for queue in sorted(self._by_hand):
            self._base.watch(queue.topic)
            self._queues.add(queue)

    def _visible(self, messages: list[MessageExt]) -> list[MessageExt]:
        namespace = self._instance.settings.namespace
        if namespace:
            for message in messages:
                message.topic = unwrap(namespace, message.topic)
        return messages

    def _queues_of(self, topic: str, route: TopicRoute) -> list[MessageQueue]:
        return [self._base.unwrap_queue(queue) for queue in subscribe_queues(topic, route)]

    def _route_changed(self, topic: str, route: TopicRoute) -> None:
        listener = self._listeners.get(topic)
        if listener is not None:
            name = unwrap(self._instance.settings.namespace, topic)
            try:
                listener(name, self._queues_of(topic, route))
            except Exception:
                self.log.failure("the change listener of {topic} failed", topic=topic)
        if topic in self._subscriptions:
            self._rebalancer.rebalance_soon()

    # QueueOwner

    def topics(self) -> Collection[str]:
        return list(self._subscriptions)

    def owned(self) -> Collection[MessageQueue]:
        """See `QueueOwner`; queues that are assigned by hand take no part in the rebalance."""
        return self._queues.live() if self._by_hand is None else ()

    def is_stuck(self, queue: MessageQueue) -> bool:
        return False

    async def take(self, queue: MessageQueue) -> bool:
        self.offset_store.remove_offset(queue)
        try:
            offset = await self._base.first_offset(queue)
        except RmqHaError as error:
            self.log.warn("where to begin with {queue}: {reason}", queue=queue, reason=error)
            return False
        if self._base.state in ("stopping", "stopped"):
            return False
        self._queues.add(queue, offset)
        return True

    async def give_up(self, queue: MessageQueue) -> None:
        self._queues.remove(queue)
        await self.offset_store.persist(queue)
        self.offset_store.remove_offset(queue)

    def share_changed(
        self, topic: str, queues: Collection[MessageQueue], share: Collection[MessageQueue]
    ) -> None:
        """Do nothing: limits of a lite pull consumer do not depend on its share."""

    def round_changed(self, topics: Collection[str]) -> None:
        self._subscriptions.touch(topics, self._now_ms())
        self._instance.heartbeat_now()

    def _reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Let polls continue at the offsets to which an operator resets the group."""
        for queue, offset in offsets.items():
            if self._queues.has_queue(queue):
                self._queues.seek(queue, offset)
                self.offset_store.update_offset(queue, offset, False)
