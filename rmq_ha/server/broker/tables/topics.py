"""TopicConfigManager: the topics of this broker.

Spec: store.md, section 12.2; remoting.md, sections 4.4, 7.7 and 9.6.
"""

import sys
from collections.abc import Callable, Container, Mapping
from typing import Any, TypeVar

from msgspec.structs import replace
from twisted.internet.defer import Deferred, DeferredList, succeed

from rmq_ha.base.config.broker import BrokerConfig
from rmq_ha.base.model.flags import PERM_INHERIT, PERM_READ, PERM_WRITE
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.model.topics import (
    BENCHMARK_TOPIC,
    DEFAULT_TOPIC,
    NOT_FOR_CLIENTS,
    OFFSET_MOVED_EVENT,
    REPLY_SUFFIX,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYSTEM_PREFIX,
    SYSTEM_TOPICS,
    TIMER_TOPIC,
)
from rmq_ha.base.seams import Disk, Worker
from rmq_ha.base.wire.bodies import TopicTable
from rmq_ha.server.broker.tables.versioned_table import VersionedTable

T = TypeVar("T")

PERM_RW = PERM_READ | PERM_WRITE
MAX_DELAY_LEVEL = 18
MULTI_TAG_FILTER = "MULTI_TAG"


class TopicConfigManager(VersionedTable[TopicConfig]):
    """
    The `TopicConfig` by topic name, in memory and in `topics.json`.

    All changes of topics use these methods, which raise the data version and write the file. The
    first change also writes the built-in topics.
    """

    most_key = "maxTopics"

    def __init__(
        self,
        disk: Disk,
        worker: Worker,
        path: str,
        config: BrokerConfig,
        now_ms: Callable[[], int],
        most: Callable[[], int] = lambda: sys.maxsize,
        *,
        has_timers: bool = False,
    ) -> None:
        built_in = {item.topic_name: item for item in _built_in_topics(config)}
        if has_timers:
            built_in[TIMER_TOPIC] = TopicConfig(TIMER_TOPIC, 1, 1)
        super().__init__(disk, worker, path, now_ms, built_in, most)
        self._config = config
        self._tell: Callable[[TopicConfig], Deferred[None]] = lambda _: succeed(None)
        self._unready: dict[str, Deferred[Any]] = {}

    @property
    def reply_topic(self) -> str:
        """The topic where replies are stored."""
        return self._config.broker_cluster_name + REPLY_SUFFIX

    def is_system(self, topic: str) -> bool:
        """Return whether operators may neither update nor delete the topic."""
        return (
            topic in SYSTEM_TOPICS
            or topic.startswith(SYSTEM_PREFIX)
            or topic in (self._config.broker_cluster_name, self._config.broker_name)
            or topic == self.reply_topic
            or (self._config.trace_topic_enable and topic == self._config.msg_trace_topic_name)
        )

    def is_order(self, topic: str) -> bool:
        """Return whether the name servers list the topic in ORDER_TOPIC_CONFIG."""
        config = self._table.get(topic)
        return config is not None and config.order

    def on_creation(self, tell: Callable[[TopicConfig], "Deferred[None]"]) -> None:
        """
        Have a function called after each topic that a client's request created implicitly.

        The caller of an explicit update or deletion announces it itself.

        :param tell: registers the topic with the name servers; its Deferred never fails.
        """
        self._tell = tell

    def create_in_send(
        self, topic: str, default_topic: str, client_queue_nums: int, sys_flag: int
    ) -> TopicConfig | None:
        """
        Return the topic, created from `default_topic` if that may be inherited from.

        :param client_queue_nums: number of queues that the producer wants.
        :returns: None if the topic is unknown and may not be created.
        :raises RequestRejected: see `check_creation`.
        """
        known = self._table.get(topic)
        if known is not None:
            return known
        template = self._table.get(default_topic)
        if template is not None:
            perm = template.perm
            if default_topic == DEFAULT_TOPIC and not self._config.auto_create_topic_enable:
                perm = PERM_RW
            if perm & PERM_INHERIT:
                if not self._has_room(topic):
                    return None
                queues = max(0, min(client_queue_nums, template.write_queue_nums))
                return self._create(
                    TopicConfig(
                        topic,
                        queues,
                        queues,
                        perm & ~PERM_INHERIT,
                        template.topic_filter_type,
                        sys_flag,
                    )
                )
        if topic.startswith(RETRY_PREFIX):
            self.check_creation()
            return self._create(TopicConfig(topic, 1, 1, PERM_RW, topic_sys_flag=sys_flag))
        return None

    def create_in_send_back(
        self, topic: str, queue_nums: int = 1, sys_flag: int = 0
    ) -> TopicConfig:
        """Return the topic; an unknown one is created with these values, readable and writable."""
        known = self._table.get(topic)
        if known is not None:
            return known
        return self._create(
            TopicConfig(topic, queue_nums, queue_nums, PERM_RW, topic_sys_flag=sys_flag)
        )

    def ordinary_queues(self, name: str) -> int:
        """
        Return how many queue ids a send may name for a topic that needs no special treatment.

        :returns: 0 if the topic must go the general way: it is unknown, not persisted yet, a retry
            or system topic, or clients may not send to it. Else the larger one of its numbers of
            read and write queues, as RocketMQ accepts a queue that exists for either.
        """
        topic = self._table.get(name)
        if (
            topic is None
            or topic.topic_filter_type == MULTI_TAG_FILTER
            or name.startswith((RETRY_PREFIX, SYSTEM_PREFIX))
            or name in NOT_FOR_CLIENTS
            or name in self._unready
        ):
            return 0
        reads, writes = topic.read_queue_nums, topic.write_queue_nums
        return reads if reads > writes else writes  # called for each message; `max` is a call more

    def is_ready(self, topic: str) -> bool:
        """Return whether the topic's first write and its registration are over."""
        return topic not in self._unready

    def when_ready(self, topic: str, answer: T) -> "T | Deferred[T]":
        """
        Hold an answer until its topic can be found.

        Else a restart, or the client's first request for a route, could contradict it.

        :returns: the answer, at once if `is_ready`; never fails.
        """
        ready = self._unready.get(topic)
        if ready is None:
            return answer
        held: Deferred[T] = Deferred()
        ready.addCallback(lambda _: held.callback(answer))
        return held

    def update(self, config: TopicConfig) -> "Deferred[bool]":
        """
        Store a whole topic configuration, as an operator asked.

        :returns: see `persist`.
        """
        return self._put(config.topic_name, config)

    def update_order(self, ordered: Container[str]) -> bool:
        """
        Mark the topics in `ordered` (a registration's ORDER_TOPIC_CONFIG), and unmark all others.

        :returns: whether a topic changed.
        """
        changes = {
            name: replace(config, order=name in ordered)
            for name, config in self._table.items()
            if config.order != (name in ordered)
        }
        if changes:
            self._table.update(changes)
            self._bump(*changes)
        return bool(changes)

    def permission_changed(self) -> None:
        """
        Raise the version after a change of `brokerPermission`, which changes registrations but no
        topic.
        """
        self._bump()

    def file_of(self, parts: Mapping[str, Any]) -> dict[str, Any]:
        return {"dataVersion": self.data_version, "topicConfigTable": parts}

    def decode(self, data: bytes) -> None:
        """
        Merge a file over the built-in topics.

        :raises ProtocolViolation: the text does not hold topics.
        """
        loaded = TopicTable.decode(data)
        self._table.update(loaded.topics)
        self.on_any_change()
        self.data_version.assign(loaded.version)

    def _create(self, config: TopicConfig) -> TopicConfig:
        name = config.topic_name
        written = self._put(name, config)
        self.log.info("created topic {topic}", topic=name, config=config)
        under_way: list[Deferred[Any]] = [written, self._tell(config)]
        if not all(item.called for item in under_way):
            self._unready[name] = ready = DeferredList(under_way)
            ready.addCallback(lambda _: self._settled(name, ready))
        return config

    def _settled(self, name: str, ready: "Deferred[Any]") -> None:
        if self._unready.get(name) is ready:  # unless it was deleted and created again
            del self._unready[name]


def _built_in_topics(config: BrokerConfig) -> list[TopicConfig]:
    cluster, broker = config.broker_cluster_name, config.broker_name or ""
    open_perm = PERM_RW | PERM_INHERIT
    configs = [TopicConfig(SELF_TEST_TOPIC, 1, 1)]
    if config.auto_create_topic_enable:
        queues = config.default_topic_queue_nums
        configs.append(TopicConfig(DEFAULT_TOPIC, queues, queues, open_perm))
    configs += [
        TopicConfig(BENCHMARK_TOPIC, 1024, 1024),
        TopicConfig(cluster, 16, 16, open_perm if config.cluster_topic_enable else PERM_INHERIT),
        TopicConfig(broker, 1, 1, open_perm if config.broker_topic_enable else PERM_INHERIT),
        TopicConfig(OFFSET_MOVED_EVENT, 1, 1),
        TopicConfig(SCHEDULE_TOPIC, MAX_DELAY_LEVEL, MAX_DELAY_LEVEL),
    ]
    if config.trace_topic_enable:
        configs.append(TopicConfig(config.msg_trace_topic_name, 1, 1))
    configs.append(TopicConfig(cluster + REPLY_SUFFIX, 1, 1))
    return configs
