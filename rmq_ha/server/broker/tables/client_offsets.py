"""Which offsets of clients are committed.

Spec: remoting.md, section 7.4.
"""

from rmq_ha.base.config.ours import RmqHaConfig
from rmq_ha.server.broker.tables.consumer_offsets import ConsumerOffsetManager
from rmq_ha.server.broker.tables.topics import TopicConfigManager


class ClientOffsets:
    """
    Commits what clients say of themselves, if it can be so.

    RocketMQ stores whatever comes, for ever: an account with one topic and one group makes the
    table larger than a frame by its queue ids, and then no group's offsets reach the slave.

    :ivar refused: commits that were not stored.
    """

    def __init__(
        self, offsets: ConsumerOffsetManager, topics: TopicConfigManager, config: RmqHaConfig
    ) -> None:
        self._offsets = offsets
        self._topics = topics
        self._config = config
        self.refused = 0

    def commit(self, group: str, topic: str, queue_id: int, queue_offset: int) -> str | None:
        """
        Store a consumer's progress, lower values too.

        :returns: why it is not stored; None when it is.
        """
        fault = None
        if self._config.check_committed_offsets:
            fault = self._fault(group, topic, queue_id, queue_offset)
        if fault is None:
            self._offsets.commit(group, topic, queue_id, queue_offset)
        else:
            self.refused += 1
        return fault

    def _fault(self, group: str, topic: str, queue_id: int, queue_offset: int) -> str | None:
        config = self._topics.get(topic)
        if config is None:
            return f"topic[{topic}] not exist: no offset on it is committed (checkCommittedOffsets)"
        queues = max(config.read_queue_nums, config.write_queue_nums)
        if not 0 <= queue_id < queues:
            return f"queueId[{queue_id}] is illegal, topic {topic} has {queues} queues"
        if queue_offset < 0:
            return f"the offset {queue_offset} is negative"
        if "@" in group:
            return f"the group {group!r} contains an @, which separates topics from groups"
        return None
