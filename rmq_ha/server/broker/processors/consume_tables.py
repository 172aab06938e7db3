"""Reads the progress of a group in the queues of a topic.

Spec: remoting.md, section 7.5.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.stat_bodies import ConsumeOffset
from rmq_ha.server.broker.tables.clients import ConsumerManager
from rmq_ha.server.broker.tables.consumer_offsets import ConsumerOffsetManager
from rmq_ha.server.broker.tables.topics import TopicConfigManager


class QueueStoreTimes(Protocol):
    """The part of the store that knows the ends of queues and the times of their messages."""

    def max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the end of a queue, exclusive; 0 for an unknown queue."""

    def store_timestamp_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """
        Return the store time of a message, ms since the epoch; -1 if the store does not know it.
        """


class ConsumeTables:
    """
    Combines the ends of queues with committed offsets.

    :param out_of: returns how many messages of a queue are out with a group, by group, topic and
        queue id; None if the group does not pop the queue.
    """

    def __init__(
        self,
        *,
        store: QueueStoreTimes,
        topics: TopicConfigManager,
        consumers: ConsumerManager,
        consumer_offsets: ConsumerOffsetManager,
        broker_name: str,
        out_of: Callable[[str, str, int], int | None],
    ) -> None:
        self._store = store
        self._topics = topics
        self._consumers = consumers
        self._consumer_offsets = consumer_offsets
        self._broker_name = broker_name
        self._out_of = out_of

    def topics_by_group(self) -> Mapping[str, Iterable[str]]:
        """Return the topics on which each group has committed offsets."""
        return self._consumer_offsets.topics_by_group()

    def topics_of(self, group: str, topics: Iterable[str] | None = None) -> Iterator[TopicConfig]:
        """
        Yield the topics that a group consumes here.

        For a group that is online these are only its present subscriptions.

        :param topics: only these topics; None: all on which the group has committed offsets.
        """
        if topics is None:
            topics = self._consumer_offsets.which_topics(group)
        info = self._consumers.group(group)
        for topic in sorted(topics):
            config = self._topics.get(topic)
            if config is not None and (
                info is None or not info.subscriptions or topic in info.subscriptions
            ):
                yield config

    def offsets(
        self, config: TopicConfig, group: str, queue_nums: int
    ) -> dict[MessageQueue, ConsumeOffset]:
        """
        Return for each queue of a topic its end, the group's offset, the time of the message before
        that offset, and how many messages are out.

        :param queue_nums: how many queues, from queue id 0 on.
        """
        topic = config.topic_name
        committed = self._consumer_offsets.queues(group, topic)
        table: dict[MessageQueue, ConsumeOffset] = {}
        for queue_id in range(queue_nums):
            offset = max(0, committed.get(queue_id, 0))
            last_ms = 0
            if offset > 0:
                last_ms = max(0, self._store.store_timestamp_at(topic, queue_id, offset - 1))
            out = self._out_of(group, topic, queue_id)
            table[MessageQueue(topic, self._broker_name, queue_id)] = ConsumeOffset(
                max(0, self._store.max_offset_in_queue(topic, queue_id)),
                offset,
                last_ms,
                None if out is None else offset + out,
            )
        return table
