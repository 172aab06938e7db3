"""ConsumerBase: the offsets and first offsets of a consumer that reads queues.

Spec: remoting.md, sections 11.2 and 11.3.
"""

from collections.abc import Callable, Collection

from twisted.internet.defer import Deferred

from rmq_ha.base.model.topics import RETRY_PREFIX
from rmq_ha.base.timing.periodic import Periodic
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.connection.instance import ClientInstance
from rmq_ha.client.consume.consumer_member import ConsumerMember
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

FIRST_PERSIST_SECONDS = 10.0
_LOCAL_DIR = ".rocketmq_offsets"


class ConsumerBase(ConsumerMember):
    """
    A member of a group that reads queues by offsets.

    :ivar offset_store: keeps the offset that the consumer has come to in each queue.
    :ivar queues_to_persist: returns the queues whose offsets are persisted.
    """

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
        super().__init__(instance, consumer_group)
        self.choice = BrokerChoice(
            instance.host.clock.seconds,
            connect_broker_by_user=config.connect_broker_by_user,
            default_broker_id=config.default_broker_id,
        )
        self.offset_store = offset_store or self._make_offset_store(config)
        self.queues_to_persist: Callable[[], Collection[MessageQueue]] = list
        self._base_config = config
        self._persisting = Periodic(
            instance.host.clock,
            f"persisting offsets of {self.group}",
            self._persist,
            instance.settings.persist_consumer_offset_interval_ms / 1000,
            FIRST_PERSIST_SECONDS,
        )

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
        self.unwatch_all()

    def _persist(self) -> object:
        return Deferred.fromCoroutine(self.persist_offsets())

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
