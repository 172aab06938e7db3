"""PullConsumer: a consumer whose application pulls and keeps offsets (DefaultMQPullConsumer).

Spec: remoting.md, sections 6.1, 11.3 and 11.4.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any
from warnings import warn

from twisted.internet.defer import Deferred, fail
from twisted.logger import Logger

from rmq_ha.base.model.subscription import SUB_ALL, TAG_TYPES
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.connection.instance import ClientInstance
from rmq_ha.client.consume.active_part import ActivePart
from rmq_ha.client.consume.consumer_base import ConsumerBase
from rmq_ha.client.consume.offsets import OffsetStore, ReadOffsetType
from rmq_ha.client.consume.pull_api import Filter, PullAnswer, PullApi
from rmq_ha.client.consume.send_back import SendBack
from rmq_ha.client.lookup.pulls import Pull
from rmq_ha.client.rebalance.strategies import AllocateStrategy
from rmq_ha.client.rules.consumer_settings import PullConsumerConfig
from rmq_ha.client.rules.errors import MQClientError
from rmq_ha.client.rules.messages import MessageExt, PullResult
from rmq_ha.client.rules.old_spellings import level_of_caller
from rmq_ha.client.rules.routes import subscribe_queues
from rmq_ha.client.rules.subscriptions import MessageSelector, Subscriptions, subscription

QueueListener = Callable[[str, list[MessageQueue], list[MessageQueue]], Any]
"""Called as `listener(topic, all_queues, own_queues)` when this member's queues have changed."""


class PullConsumer:
    """
    A member of a consumer group whose application says when to pull.

    Only offsets that the application passes to `update_consume_offset` are committed. RocketMQ has
    deprecated this class, and so does this client: use `LitePullConsumer` with `assign`, `seek` and
    `poll` instead.
    """

    log = Logger()

    def __init__(
        self,
        instance: ClientInstance,
        consumer_group: str,
        config: PullConsumerConfig | None = None,
        *,
        strategy: AllocateStrategy | None = None,
        offset_store: OffsetStore | None = None,
        filters: Sequence[Filter] = (),
    ) -> None:
        """
        :param strategy: decides which member gets which queue of topics with a queue listener.
        :raises ConfigurationError: a setting, or the group's name, is not valid.
        """
        warn(
            "PullConsumer goes, as in RocketMQ: use LitePullConsumer, whose assign(), seek() and"
            " poll() read any queue from any offset",
            DeprecationWarning,
            level_of_caller(),
        )
        self.config = (config or PullConsumerConfig()).checked()
        self._base = ConsumerBase(instance, consumer_group, self.config, offset_store)
        self._instance = instance
        self._api = PullApi(instance, self._base.group, self._base.choice, tuple(filters))
        self._send_back = SendBack(
            instance,
            self._base.group,
            self.config.max_reconsume_times,
            unit_mode=self.config.unit_mode,
        )
        self._subscriptions = Subscriptions()
        self._listeners: dict[str, QueueListener | None] = {}
        self._owned: dict[MessageQueue, None] = {}
        self._touched: set[MessageQueue] = set()
        # `update_consume_offset` may note offsets of queues that were never assigned.
        self._base.queues_to_persist = lambda: self._touched.union(self._owned)
        self._rebalancer = self._base.rebalancer(strategy, self)
        self._part = ActivePart(
            self._base,
            self.config,
            self._subscriptions,
            self._rebalancer.rebalance_soon,
            self._reset,
        )

    def __repr__(self) -> str:
        return f"<PullConsumer {self._base.consumer_group} {self._base.state}>"

    @property
    def is_running(self) -> bool:
        """Whether the consumer has started and has not begun to stop."""
        return self._base.is_running

    @property
    def offset_store(self) -> OffsetStore:
        """The store of the offset that the group has come to in each queue."""
        return self._base.offset_store

    def register_message_queue_listener(
        self, topic: str, listener: QueueListener | None = None
    ) -> None:
        """
        Share the queues of a topic among the members of the group; call this before `start`.

        :param listener: called when this member's queues have changed; None for no call.
        """
        wrapped = self._base.wrap(topic)
        self._listeners[wrapped] = listener
        self._subscribe(wrapped)

    # Life

    def start(self) -> "Deferred[None]":
        """Join the group. On failure, with `MQClientError`, the consumer is stopped."""
        try:
            self._base.begin()
        except MQClientError as error:
            return fail(error)
        return Deferred.fromCoroutine(self._start())

    def stop(self) -> "Deferred[None]":
        """Persist offsets and leave the group; never fails. A second call changes nothing."""
        return Deferred.fromCoroutine(self._stop())

    async def _start(self) -> None:
        base = self._base
        try:
            await self._instance.start()
            await base.offset_store.load()
            await base.know_routes(list(self._listeners))
            base.must_go_on()
            self._instance.register_consumer(base.group, self._part)
            base.run()
            await self._instance.heartbeat_now()
            base.must_go_on()
            await self._rebalancer.start()
        except Exception:  # not a start that is dropped
            await self._stop()
            raise

    async def _stop(self) -> None:
        base = self._base
        if not base.stops():
            return
        await self._rebalancer.stop()
        await base.halt()
        await self._part.leave()
        base.state = "stopped"

    # Pulling

    def pull(
        self,
        queue: MessageQueue,
        expression: str | MessageSelector | None,
        offset: int,
        max_nums: int,
        timeout_ms: int = 0,
    ) -> "Deferred[PullResult]":
        """
        Pull messages of a queue from an offset on; the result may hold fewer than `max_nums`.

        :param timeout_ms: how long to wait for the broker's answer, in ms; 0 for
            `consumer_pull_timeout_ms`.
        :returns: fails with `MQClientError`, `RemotingError`, `CorruptRecord`.
        """
        timeout = timeout_ms or self.config.consumer_pull_timeout_ms
        return self._pull(queue, expression, offset, max_nums, timeout, 0)

    def pull_block_if_not_found(
        self,
        queue: MessageQueue,
        expression: str | MessageSelector | None,
        offset: int,
        max_nums: int,
    ) -> "Deferred[PullResult]":
        """Pull as `pull` does; the broker waits `broker_suspend_max_time_ms` for a message."""
        timeout = self.config.consumer_timeout_when_suspend_ms
        hold = self.config.broker_suspend_max_time_ms
        return self._pull(queue, expression, offset, max_nums, timeout, hold)

    def _pull(
        self,
        queue: MessageQueue,
        expression: str | MessageSelector | None,
        offset: int,
        max_nums: int,
        timeout_ms: int,
        hold_ms: int,
    ) -> "Deferred[PullResult]":
        try:
            self._base.must_run()
            if offset < 0 or max_nums <= 0:
                raise MQClientError(f"offset {offset} and max_nums {max_nums} must be positive")
            queue = self._base.wrap_queue(queue)
            self._subscribe(queue.topic)
            now = self._instance.host.now_ms()
            subscription_data = subscription(queue.topic, expression, now)
        except Exception:
            return fail()
        version = (
            0 if subscription_data.expression_type in TAG_TYPES else subscription_data.sub_version
        )
        pull = Pull(
            queue, subscription_data, offset, max_nums, timeout_ms, None, hold_ms, True, version
        )
        return self._api.pull(pull).addCallback(self._visible)

    def _visible(self, pulled: PullAnswer) -> PullResult:
        for message in pulled.result.msg_found_list:
            message.topic = self._base.unwrap_queue(message.queue).topic
        return pulled.result

    def _subscribe(self, topic: str) -> None:
        """Tell brokers, if they do not know it yet, that this group reads the topic."""
        if topic not in self._subscriptions:
            self._subscriptions.add(topic, SUB_ALL, self._instance.host.now_ms())
            if self.is_running:
                self._instance.heartbeat_now()

    # Queues and offsets

    def fetch_subscribe_message_queues(self, topic: str) -> "Deferred[list[MessageQueue]]":
        """Ask for all queues of a topic; fails with `NoRoute` or `NoNameServer`."""
        wrapped = self._base.wrap(topic)
        fetched = self._instance.routes.fetch(wrapped)
        return fetched.addCallback(
            lambda route: [
                self._base.unwrap_queue(queue) for queue in subscribe_queues(wrapped, route)
            ]
        )

    def fetch_message_queues_in_balance(self, topic: str) -> list[MessageQueue]:
        """Return the queues that this member has of a topic with a queue listener."""
        wrapped = self._base.wrap(topic)
        return sorted(
            self._base.unwrap_queue(queue) for queue in self._owned if queue.topic == wrapped
        )

    def update_consume_offset(self, queue: MessageQueue, offset: int) -> None:
        """Note that all messages below an offset are consumed; `stop` and a timer persist it."""
        queue = self._base.wrap_queue(queue)
        self._touched.add(queue)
        self.offset_store.update_offset(queue, offset, False)

    def fetch_consume_offset(
        self, queue: MessageQueue, *, from_store: bool = False
    ) -> "Deferred[int | None]":
        """
        Return the offset that the group has come to in a queue; None if it has none. Fails as
        `max_offset` does.

        :param from_store: ask the store, even if this process remembers an offset.
        """
        kind = (
            ReadOffsetType.READ_FROM_STORE if from_store else ReadOffsetType.MEMORY_FIRST_THEN_STORE
        )
        read = self.offset_store.read_offset(self._base.wrap_queue(queue), kind)
        return Deferred.fromCoroutine(read)

    def persist(self, queue: MessageQueue) -> "Deferred[None]":
        """Persist the offset of a queue now; never fails."""
        written = self.offset_store.persist(self._base.wrap_queue(queue))
        return Deferred.fromCoroutine(written)

    def max_offset(self, queue: MessageQueue) -> "Deferred[int]":
        """
        Ask for the offset after a queue's last message. Fails with `MQClientError` or
        `RemotingError`.
        """
        return Deferred.fromCoroutine(self._base.calls.max_offset(self._base.wrap_queue(queue)))

    def min_offset(self, queue: MessageQueue) -> "Deferred[int]":
        """Ask for the offset of a queue's first message; fails as `max_offset` does."""
        return Deferred.fromCoroutine(self._base.calls.min_offset(self._base.wrap_queue(queue)))

    def search_offset(self, queue: MessageQueue, timestamp: int) -> "Deferred[int]":
        """
        Ask for the offset of the first message that was stored at a time or later. RocketMQ 4.9,
        and rmq-ha with `timeSearchNearest`, take the message stored closest to the time.

        :param timestamp: the time, in ms since the epoch.
        :returns: fails as `max_offset` does.
        """
        calls = self._base.calls
        return Deferred.fromCoroutine(calls.search_offset(self._base.wrap_queue(queue), timestamp))

    def earliest_msg_store_time(self, queue: MessageQueue) -> "Deferred[int]":
        """
        Ask when a queue's first message was stored, in ms since the epoch. Fails as `max_offset`
        does.
        """
        calls = self._base.calls
        return Deferred.fromCoroutine(calls.earliest_msg_store_time(self._base.wrap_queue(queue)))

    def send_message_back(
        self, message: MessageExt, delay_level: int = 0, broker_name: str | None = None
    ) -> "Deferred[bool]":
        """
        Have a message delivered to the group's push consumers again later.

        :param delay_level: how long until then, as a delay level; 0 lets the broker decide, and a
            negative level sends the message to the dead-letter queue.
        :param broker_name: the broker to ask; None for the broker that the message came from.
        :returns: fires with False when no broker took the message.
        """
        broker_name = broker_name or message.broker_name or None
        return Deferred.fromCoroutine(self._send_back.give_back(message, delay_level, broker_name))

    # QueueOwner

    def topics(self) -> Collection[str]:
        return list(self._listeners)

    def owned(self) -> Collection[MessageQueue]:
        return self._owned.keys()

    def is_stuck(self, queue: MessageQueue) -> bool:
        return False

    async def take(self, queue: MessageQueue) -> bool:
        self.offset_store.remove_offset(queue)
        self._owned[queue] = None
        return True

    async def give_up(self, queue: MessageQueue) -> None:
        await self.offset_store.persist(queue)
        self.offset_store.remove_offset(queue)
        self._base.choice.forget(queue)
        self._owned.pop(queue, None)
        self._touched.discard(queue)

    def share_changed(
        self, topic: str, queues: Collection[MessageQueue], share: Collection[MessageQueue]
    ) -> None:
        listener = self._listeners.get(topic)
        if listener is None:
            return
        base = self._base
        try:
            listener(
                base.unwrap_queue(MessageQueue(topic, "", 0)).topic,
                [base.unwrap_queue(queue) for queue in queues],
                [base.unwrap_queue(queue) for queue in share],
            )
        except Exception:
            self.log.failure("the queue listener of {topic} failed", topic=topic)

    def round_changed(self, topics: Collection[str]) -> None:
        """Do nothing: brokers need not know of the change."""

    def _reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Ignore an operator's reset, as Java does: the application decides where it pulls."""
        self.log.info("a pull consumer keeps its own offsets: the reset is left to its owner")
