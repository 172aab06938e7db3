"""PushConsumer: shows a listener the messages of a group's topics (DefaultMQPushConsumer).

Spec: remoting.md, sections 7.6 and 11.2 to 11.5.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Literal, Unpack, overload

from twisted.internet.defer import Deferred, fail
from twisted.logger import Logger

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.model.pop_topics import retry_topic
from rmq_ha.base.model.printable import NamedValues
from rmq_ha.base.model.subscription import SUB_ALL, TAG_TYPES
from rmq_ha.base.model.topics import RETRY_PREFIX, topic_fault
from rmq_ha.base.timing.periodic import Periodic
from rmq_ha.base.wire.bodies import ConsumerData, MessageQueue
from rmq_ha.base.wire.route_bodies import TopicRoute
from rmq_ha.client.connection.instance import ClientInstance
from rmq_ha.client.consume.broker_assignments import BrokerAssignments
from rmq_ha.client.consume.consume_concurrently import ConsumeConcurrently
from rmq_ha.client.consume.consume_orderly import ConsumeOrderly
from rmq_ha.client.consume.consume_service import ConsumeHook, ConsumeParts
from rmq_ha.client.consume.consumer_base import ConsumerBase
from rmq_ha.client.consume.offsets import OffsetStore
from rmq_ha.client.consume.pop_places import PopPlaces
from rmq_ha.client.consume.pull_api import Filter, PullApi
from rmq_ha.client.consume.push_queues import PushQueues, Service
from rmq_ha.client.consume.rebalancer import Rebalancer
from rmq_ha.client.consume.send_back import SendBack
from rmq_ha.client.rebalance.strategies import AllocateAveragely, AllocateStrategy
from rmq_ha.client.rules.consume_stats import ConsumeRates
from rmq_ha.client.rules.consumer_settings import DEFAULT_MAX_RECONSUME_TIMES, PushConsumerConfig
from rmq_ha.client.rules.errors import MQClientError
from rmq_ha.client.rules.listening import MAX_INT, ConcurrentListener, Listener, OrderlyListener
from rmq_ha.client.rules.messages import MessageExt
from rmq_ha.client.rules.options import PushConsumerOptions, settings_of
from rmq_ha.client.rules.subscriptions import MessageSelector, Subscriptions

_CLEAN_SECONDS = 60.0
"""Longest interval between two searches for calls that take longer than `consume_timeout_ms`."""

_STRATEGIES_OF_BROKERS = ("AVG", "AVG_BY_CIRCLE")


class PushConsumer:
    """
    A member of a consumer group with a listener.

    Subscribe and register the listener, then `start()`. Each message is shown at least once; its
    offset is committed only when it is consumed, or the broker has taken it back.

    :ivar config: the consumer's settings.
    """

    log = Logger()

    def __init__(
        self,
        instance: ClientInstance,
        consumer_group: str,
        config: PushConsumerConfig | None = None,
        *,
        strategy: AllocateStrategy | None = None,
        offset_store: OffsetStore | None = None,
        hooks: Sequence[ConsumeHook] = (),
        filters: Sequence[Filter] = (),
        **options: Unpack[PushConsumerOptions],
    ) -> None:
        """
        :param strategy: decides which member gets which queue; all members need the same strategy.
        :param offset_store: None for RocketMQ's: at the brokers, or in a file if the group
            broadcasts.
        :param hooks: called before and after every call of the listener.
        :param filters: each returns the messages of a pulled batch that the listener gets.
        :param options: settings of `PushConsumerConfig`; they override those of `config`.
        :raises ConfigurationError: a setting, or the group's name, is not valid.
        """
        self.config = settings_of(PushConsumerConfig, config, options).checked()
        name = "AVG" if strategy is None else strategy.name
        if not self.config.client_rebalance and name not in _STRATEGIES_OF_BROKERS:
            raise ConfigurationError(
                f"client_rebalance=False: brokers do not know the strategy {name}, but"
                f" {' and '.join(_STRATEGIES_OF_BROKERS)}"
            )
        self._base = ConsumerBase(instance, consumer_group, self.config, offset_store)
        self._instance = instance
        self._strategy = strategy
        self._hooks = tuple(hooks)
        self._subscriptions = Subscriptions()
        self._stats = ConsumeRates()
        self._now_ms = instance.host.now_ms
        self._api = PullApi(instance, self._base.group, self._base.choice, tuple(filters))
        self._queues = PushQueues(
            self._base, self.config, self._subscriptions, self._api, self._stats, self._rebalance
        )
        self._base.queues_to_persist = self._queues.owned
        self._pops = PopPlaces(self._base, self.config, self._subscriptions, self._stats)
        self._listener: Listener | None = None
        self._orderly = False
        self._service: Service | None = None
        self._rebalancer: Rebalancer | None = None
        self._cleaning: Periodic | None = None
        self._started_ms = 0

    def __repr__(self) -> str:
        return f"<PushConsumer {self._base.consumer_group} {self._base.state}>"

    @property
    def consumer_group(self) -> str:
        """The group's name as the application knows it, without namespace."""
        return self._base.consumer_group

    @property
    def is_running(self) -> bool:
        """Whether the consumer has started and has not begun to stop."""
        return self._base.is_running

    @property
    def has_listener(self) -> bool:
        """Whether a listener is registered."""
        return self._listener is not None

    @property
    def offset_store(self) -> OffsetStore:
        """The store of the offset that the group has come to in each queue."""
        return self._base.offset_store

    def subscribe(self, topic: str, expression: str | MessageSelector | None = SUB_ALL) -> None:
        """
        Consume a topic, or change which messages of a topic are consumed; before or after `start`.

        :param expression: tags like `TagA || TagB`, or a `MessageSelector`.
        :raises ConfigurationError: topic or expression is not valid.
        """
        fault = topic_fault(topic)
        if fault:
            raise ConfigurationError(fault)
        topic = self._base.wrap(topic)
        self._subscriptions.add(topic, expression, self._now_ms())
        if self.is_running:
            known = Deferred.fromCoroutine(self._base.know_routes([topic]))
            known.addErrback(lambda failure: self.log.failure("no route of a topic", failure))
            known.addCallback(lambda _: self._queues.tell())
            known.addCallback(lambda _: self._rebalance())

    def unsubscribe(self, topic: str) -> None:
        """Stop consuming a topic; the next rebalance gives its queues up."""
        topic = self._base.wrap(topic)
        self._subscriptions.remove(topic)
        self._pops.assign(topic, ())
        self._pull_retries(topic, is_pulled=False)
        self._stats.forget(topic)
        self._base.unwatch(topic)
        if self.is_running:
            self._queues.tell()
            self._rebalance()

    @overload
    def register_message_listener(
        self, listener: ConcurrentListener, *, orderly: Literal[False] = False
    ) -> None: ...

    @overload
    def register_message_listener(
        self, listener: OrderlyListener, *, orderly: Literal[True]
    ) -> None: ...

    def register_message_listener(self, listener: Listener, *, orderly: bool = False) -> None:
        """
        Set the listener; `rmq_ha.client.rules.listening` defines its arguments and answers.

        :param listener: `listener(messages, context)`, plain or `async def`. A plain one runs in
            the reactor: it must not block.
        :param orderly: whether the listener gets the messages of each queue one after the other.
        """
        if self._base.state != "new":
            raise ConfigurationError("register the listener before start()")
        self._listener = listener
        self._orderly = orderly

    def suspend(self) -> None:
        """Stop pulling until `resume`; cached messages are still consumed."""
        self._queues.is_paused = self._pops.is_paused = True

    def resume(self) -> None:
        """Go on pulling after `suspend`, within a second."""
        self._queues.is_paused = self._pops.is_paused = False

    def max_offset(self, queue: MessageQueue) -> "Deferred[int]":
        """
        Ask for the offset after a queue's last message. Fails with `MQClientError` or
        `RemotingError`.
        """
        return Deferred.fromCoroutine(self._base.calls.max_offset(self._base.wrap_queue(queue)))

    def assignment(self) -> list[MessageQueue]:
        """
        Return the queues that this member has now, with topics as the application knows them. The
        queue id -1 stands for all queues of a broker, which the member pops.
        """
        queues = [*self._queues.process_queues(), *self._pops.queues()]
        return sorted(self._base.unwrap_queue(queue) for queue in queues)

    # Life

    def start(self) -> "Deferred[None]":
        """
        Join the group and begin to consume.

        :returns: fires after the first rebalance. It fails with `ConfigurationError` if listener or
            topic is missing; call `start` again once they are there. It fails with `MQClientError`
            if, for example, no name server answers or a broker refuses an expression; the consumer
            is then stopped.
        """
        if self._listener is None:
            return fail(ConfigurationError("register_message_listener() comes before start()"))
        if not len(self._subscriptions):
            return fail(
                ConfigurationError(
                    f"{self.consumer_group} subscribes to no topic: call subscribe(topic) before"
                    " start()"
                )
            )
        if self._orderly and not self.config.client_rebalance:
            return fail(
                ConfigurationError(
                    "an orderly listener needs client_rebalance=True, as a group that pops gets no"
                    " order; SimpleConsumer(order=True) pops in order"
                )
            )
        try:
            self._base.begin()
        except MQClientError as error:
            return fail(error)
        return Deferred.fromCoroutine(self._start())

    def stop(self) -> "Deferred[None]":
        """
        Leave the group: stop pulling, wait for the listener, persist offsets, unlock queues and
        unregister at the brokers.

        :returns: fires when all that is done; never fails. A second call changes nothing.
        """
        return Deferred.fromCoroutine(self._stop())

    async def _start(self) -> None:
        base = self._base
        if self.config.is_clustering:
            self._subscriptions.add(RETRY_PREFIX + base.group, SUB_ALL, self._now_ms())
        try:
            await self._instance.start()
            await base.offset_store.load()
            base.must_go_on()
            self._make_service()
            topics = list(self._subscriptions)
            await base.know_routes(topics)
            await self._check_expressions()
            base.must_go_on()
            self._started_ms = self._now_ms()
            self._instance.register_consumer(base.group, self)
            base.run()
            await self._queues.tell()
            base.must_go_on()
            self._instance.on_route_change(self._route_changed)
            assert self._rebalancer is not None
            await self._rebalancer.start()
        except Exception:  # not a start that is dropped
            await self._stop()
            raise

    def _make_service(self) -> None:
        base, config = self._base, self.config
        most = config.max_reconsume_times
        if most == -1:
            most = MAX_INT if self._orderly else DEFAULT_MAX_RECONSUME_TIMES
        assert self._listener is not None
        parts = ConsumeParts(
            self._instance,
            base.group,
            config,
            self._listener,
            base.offset_store,
            SendBack(self._instance, base.group, most, unit_mode=config.unit_mode),
            self._stats,
            self._hooks,
        )
        service: Service = (
            ConsumeOrderly(parts, base.calls) if self._orderly else ConsumeConcurrently(parts)
        )
        self._service = service
        self._queues.use(service)
        if isinstance(service, ConsumeConcurrently):
            self._pops.use(service, parts.send_back)
        service.start()
        between_s = min(config.consume_timeout_ms / 1000, _CLEAN_SECONDS)
        clock = self._instance.host.clock
        self._cleaning = Periodic(
            clock, "looking for stuck listeners", service.clean_expired, between_s
        )
        self._cleaning.start()
        self._rebalancer = base.rebalancer(self._strategy, self._queues)
        self._rebalancer.assignments = self._assignments()

    def _assignments(self) -> BrokerAssignments | None:
        if self.config.client_rebalance:
            return None
        base, strategy = self._base, self._strategy or AllocateAveragely()
        return BrokerAssignments(
            self._instance, base.calls, base.group, strategy.name, self._use_assignment
        )

    def _use_assignment(
        self, topic: str, pulls: Sequence[MessageQueue], pops: Sequence[MessageQueue]
    ) -> None:
        """
        Pop these places of a topic. While the topic is pulled, so are the retry topics of its pops,
        by which messages come again that were out when the mode changed.
        """
        if topic not in self._subscriptions:
            return
        if self._pops.assign(topic, pops):
            self.log.info(
                "{group} {mode} {topic} now",
                group=self._base.group,
                mode="pops" if pops else "pulls",
                topic=topic,
            )
        if (pulls or pops) and not topic.startswith(RETRY_PREFIX):
            self._pull_retries(topic, is_pulled=not pops)

    def _pull_retries(self, topic: str, *, is_pulled: bool) -> None:
        for is_v2 in (False, True):
            retries = retry_topic(self._base.group, topic, v2=is_v2)
            if self.config.client_rebalance or is_pulled == (retries in self._subscriptions):
                continue
            if is_pulled:
                self._base.watch(retries)
                self._subscriptions.add(retries, SUB_ALL, self._now_ms())
            else:
                self._base.unwatch(retries)
                self._subscriptions.remove(retries)
            self._queues.tell()
            self._rebalance()

    async def _check_expressions(self) -> None:
        for subscription in self._subscriptions.all():
            if subscription.expression_type not in TAG_TYPES:
                await self._base.calls.check_subscription(
                    self._base.group, self._instance.client_id, subscription
                )

    async def _stop(self) -> None:
        base = self._base
        if not base.stops():
            return
        self._queues.stop_pulling()
        self._pops.stop_popping()
        self._instance.forget_route_change(self._route_changed)
        if self._rebalancer is not None:
            await self._rebalancer.stop()
        if self._cleaning is not None:
            self._cleaning.stop()
        if self._service is not None:
            await self._service.stop(self.config.await_termination_when_shutdown_ms)
        await self._pops.finish(self.config.await_termination_when_shutdown_ms)
        await base.halt()
        await self._queues.release()
        if self._instance.consumers.get(base.group) is self:
            await self._instance.unregister_consumer(base.group)
        await self._instance.stop_if_unused()
        base.state = "stopped"

    def _rebalance(self) -> None:
        if self._rebalancer is not None and self.is_running:
            self._rebalancer.rebalance_soon()

    def _route_changed(self, topic: str, route: TopicRoute) -> None:
        if topic in self._subscriptions:
            self._rebalance()

    # ConsumerPart: what the client asks this consumer, for heartbeats and for operators

    def heartbeat_data(self) -> ConsumerData:
        return ConsumerData(
            self._base.group,
            "CONSUME_PASSIVELY",
            self.config.message_model.value,
            self.config.consume_from_where.value,
            self._subscriptions.all(),
            self.config.unit_mode,
        )

    def on_group_changed(self) -> None:
        self._rebalance()

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        self.log.info(
            "the offsets of {group} are reset{offsets}",
            group=self._base.group,
            offsets=NamedValues({str(queue): offset for queue, offset in offsets.items()}),
        )
        self._queues.reset(offsets)

    def consume_status(self, topic: str) -> Mapping[MessageQueue, int]:
        return self._base.offset_store.clone_offset_table(topic)

    def running_info(self, want_stack: bool) -> Mapping[str, Any]:
        host, memory = self._base.instance.host, self._base.offset_store.memory
        now = host.steady_ms()
        info: dict[str, Any] = {
            "mqTable": {
                queue: process_queue.info(_or_zero(memory(queue)), epoch_ms=host.now_ms() - now)
                for queue, process_queue in self._queues.process_queues().items()
            },
            "properties": {
                **self._settings(),
                "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
                "PROP_CONSUMEORDERLY": "true" if self._orderly else "false",
                "PROP_THREADPOOL_CORE_SIZE": str(self.config.consume_concurrency),
                "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
            },
            "statusTable": {topic: self._stats.status(topic, now) for topic in self._subscriptions},
            "subscriptionSet": self._subscriptions.all(),
        }
        if want_stack:
            info["jstack"] = "a Twisted client: there are no threads to show\n"
        return info

    def consume_directly(self, message: MessageExt) -> Any:
        if self._service is None:
            return fail(MQClientError("the consumer is not started"))
        return Deferred.fromCoroutine(self._service.consume_directly(message))

    def _settings(self) -> dict[str, str]:
        return {item.name: str(getattr(self.config, item.name)) for item in fields(self.config)}


def _or_zero(offset: int | None) -> int:
    return offset or 0
