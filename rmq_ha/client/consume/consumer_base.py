"""ConsumerBase: the group, offsets and first offsets of a consumer of any kind.

Spec: remoting.md, sections 11.2 and 11.3.
"""

from collections.abc import Callable, Collection

import msgspec
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.model.topics import RETRY_PREFIX, group_fault
from rmq_ha.base.timing.periodic import Periodic
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.connection.instance import ClientInstance
from rmq_ha.client.connection.queue_calls import QueueCalls
from rmq_ha.client.consume.offsets import (
    LocalFileOffsetStore,
    OffsetStore,
    ReadOffsetType,
    RemoteBrokerOffsetStore,
)
from rmq_ha.client.consume.rebalancer import QueueOwner, Rebalancer
from rmq_ha.client.rebalance.strategies import AllocateAveragely, AllocateStrategy
from rmq_ha.client.rules.broker_choice import BrokerChoice
from rmq_ha.client.rules.consumer_settings import ConsumeFromWhere, ConsumerConfig
from rmq_ha.client.rules.errors import NoRoute, NotStarted
from rmq_ha.client.rules.namespaces import unwrap, wrap

FIRST_PERSIST_SECONDS = 10.0
_LOCAL_DIR = ".rocketmq_offsets"
_DEFAULT_GROUP = "DEFAULT_CONSUMER"


class ConsumerBase:
    """
    One client's member of a consumer group.

    :ivar consumer_group: the group's name as the application knows it.
    :ivar group: the group's name as brokers know it, with its namespace.
    :ivar instance: the client that the consumer belongs to.
    :ivar offset_store: keeps the offset that the consumer has come to in each queue.
    :ivar queues_to_persist: returns the queues whose offsets are persisted.
    :ivar state: "new", "starting", "running", "stopping" or "stopped".
    """

    log = Logger()

    def __init__(
        self,
        instance: ClientInstance,
        consumer_group: str,
        config: ConsumerConfig,
        offset_store: OffsetStore | None = None,
    ) -> None:
        """
        :param offset_store: None for RocketMQ's: at the brokers, or in a file if the group
            broadcasts.
        :raises ConfigurationError: the group's name is not valid.
        """
        fault = group_fault(consumer_group)
        if fault is None and consumer_group == _DEFAULT_GROUP:
            fault = f"{_DEFAULT_GROUP} is no name for a group of yours"
        if fault is not None:
            raise ConfigurationError(f"consumer_group: {fault}")
        self.instance = instance
        self.consumer_group = consumer_group
        self.group = self.wrap(consumer_group)
        self.calls = QueueCalls(instance)
        self.choice = BrokerChoice(
            instance.host.clock.seconds,
            connect_broker_by_user=config.connect_broker_by_user,
            default_broker_id=config.default_broker_id,
        )
        self.offset_store = offset_store or self._make_offset_store(config)
        self.queues_to_persist: Callable[[], Collection[MessageQueue]] = list
        self._base_config = config
        self._watched: set[str] = set()
        self.state = "new"
        self._persisting = Periodic(
            instance.host.clock,
            f"persisting offsets of {self.group}",
            self._persist,
            instance.settings.persist_consumer_offset_interval_ms / 1000,
            FIRST_PERSIST_SECONDS,
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.consumer_group} {self.state}>"

    @property
    def is_running(self) -> bool:
        """Whether the consumer has started and has not begun to stop."""
        return self.state == "running"

    def wrap(self, name: str) -> str:
        """Return the name of a topic or group as brokers know it, with the namespace."""
        return wrap(self.instance.settings.namespace, name)

    def unwrap_queue(self, queue: MessageQueue) -> MessageQueue:
        """Return a queue as the application knows it, without namespace."""
        topic = unwrap(self.instance.settings.namespace, queue.topic)
        return msgspec.structs.replace(queue, topic=topic)

    def wrap_queue(self, queue: MessageQueue) -> MessageQueue:
        """Return a queue as brokers know it, with the namespace."""
        return msgspec.structs.replace(queue, topic=self.wrap(queue.topic))

    def rebalancer(self, strategy: AllocateStrategy | None, owner: QueueOwner) -> Rebalancer:
        """
        Return a rebalancer that tells `owner` which queues this member gets.

        :param strategy: shares the queues out; None for RocketMQ's default.
        """
        return Rebalancer(
            self.instance,
            self.calls,
            self.group,
            strategy or AllocateAveragely(),
            owner,
            clustering=self._base_config.is_clustering,
            interval_ms=self._base_config.rebalance_interval_ms,
        )

    async def first_offset(self, queue: MessageQueue) -> int:
        """
        Return the offset at which to begin with a queue that was just assigned: the group's offset,
        or, if the group has none, the offset that `consume_from_where` asks for.

        :raises RmqHaError: no broker could tell the offset.
        """
        known = await self.offset_store.read_offset(queue, ReadOffsetType.READ_FROM_STORE)
        if known is not None and known >= 0:
            return known
        beginning = self._base_config.beginning
        is_retry = queue.topic.startswith(RETRY_PREFIX)
        if beginning.where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
            return await self.calls.min_offset(queue)
        if beginning.where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP and not is_retry:
            time = beginning.time_ms(self.instance.host.now_ms())
            return await self.calls.search_offset(queue, time)
        if beginning.where is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET and is_retry:
            return 0
        return await self.calls.max_offset(queue)

    async def know_routes(self, topics: list[str]) -> None:
        """
        Ask for the routes of topics, and keep them fresh. A topic without a route is only logged,
        as it may get one later.

        :raises NoNameServer: no name server answers.
        """
        for topic in topics:
            if self.state in ("stopping", "stopped"):
                return
            self.watch(topic)
            try:
                await self.instance.route(topic)
            except NoRoute as error:
                if not topic.startswith(RETRY_PREFIX):
                    self.log.warn("{reason}: waiting for it", reason=error)

    def watch(self, topic: str) -> None:
        """Keep the route of a topic fresh until `unwatch` or `halt`; a second call does nothing."""
        if topic not in self._watched:
            self._watched.add(topic)
            self.instance.watch_topic(topic)

    def unwatch(self, topic: str) -> None:
        """Stop keeping the route of a topic fresh; do nothing if the topic is not watched."""
        if topic in self._watched:
            self._watched.remove(topic)
            self.instance.unwatch_topic(topic)

    async def persist_offsets(self) -> None:
        """Persist all offsets now. An exception of the offset store is logged, never raised."""
        try:
            await self.offset_store.persist_all(self.queues_to_persist())
        except Exception:
            self.log.failure("offsets of {group} are not persisted", group=self.group)

    def run(self) -> None:
        """Note that the consumer has started, and persist its offsets at intervals from now on."""
        self.state = "running"
        self._persisting.start()

    async def halt(self) -> None:
        """Persist the offsets of a stopping consumer once more, and stop watching its topics."""
        await self._persisting.stop()
        await self.persist_offsets()
        for topic in list(self._watched):
            self.unwatch(topic)

    def _persist(self) -> object:
        return Deferred.fromCoroutine(self.persist_offsets())

    def begin(self) -> None:
        """
        Note that the consumer is starting.

        :raises NotStarted: it was started before.
        """
        if self.state != "new":
            raise NotStarted(f"{self!r} was started before: make a new one")
        self.state = "starting"

    def must_go_on(self) -> None:
        """
        Check, after each wait during a start, that nobody has stopped the consumer meanwhile.

        :raises NotStarted: the consumer was stopped during the wait.
        """
        if self.state not in ("starting", "running"):
            raise NotStarted(f"{self!r} was stopped before it had started")

    def stops(self) -> bool:
        """
        Note that the consumer is stopping.

        :returns: whether it has anything to stop: False if it never started or is stopping already.
        """
        before = self.state
        if before in ("stopping", "stopped"):
            return False
        self.state = "stopped" if before == "new" else "stopping"
        return before != "new"

    def must_run(self) -> None:
        """
        Check, before each call that needs a running consumer, that this consumer runs.

        :raises NotStarted: the consumer does not run.
        :raises ForkedClient: this process is a fork of the one that started it.
        """
        self.instance.must_be_ours()
        if self.state != "running":
            raise NotStarted(f"{self!r}: call and wait for start() first; nothing after stop()")

    def _make_offset_store(self, config: ConsumerConfig) -> OffsetStore:
        if config.is_clustering:
            return RemoteBrokerOffsetStore(self.calls, self.group)
        instance = self.instance
        settings, process = instance.settings, instance.process
        directory = config.local_offset_store_dir or f"{process.home}/{_LOCAL_DIR}"
        # Not the client's id, which may hold the process's number: the next process must find
        # the same file.
        client = f"{settings.client_ip or process.address}@{settings.instance_name}"
        if settings.unit_name.strip():
            client += f"@{settings.unit_name}"
        path = f"{directory}/{client}/{self.group}/offsets.json"
        return LocalFileOffsetStore(instance.host.disk, instance.host.worker, path)
