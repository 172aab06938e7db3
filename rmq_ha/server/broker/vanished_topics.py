"""Finds topics that a slave's master may have deleted, by the master's tables.

The log does not record deletions. A table that is older than the log, or comes from a master that
lost its own, must not cause any deletion.
"""

from collections.abc import Callable, Collection, Iterable

from rmq_ha.base.config.own_keys import RmqHaConfig
from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.base.wire.bodies import TopicTable
from rmq_ha.server.broker.tables.consumer_offsets import ConsumerOffsetManager
from rmq_ha.server.store.message_store import DefaultMessageStore

GRACE_S = 60.0


class QueuesOfTopics:
    """
    The queues of a slave, by topic.

    :param config: decides whether offsets of groups are deleted with a topic.
    """

    def __init__(
        self, store: DefaultMessageStore, offsets: ConsumerOffsetManager, config: RmqHaConfig
    ) -> None:
        self._store = store
        self._offsets = offsets
        self._config = config

    def numbers(self, topic: str) -> list[int]:
        """Return the ids of a topic's queues."""
        return [queue_id for (name, queue_id), _ in self._store.queues.items() if name == topic]

    def drop(self, topic: str) -> None:
        """
        Delete the queues of a topic; the log keeps its messages.

        :raises StoreError: the disk refuses.
        """
        self._store.remove_topics({topic})
        if not self._config.keep_offsets_of_deleted_topics:
            self._offsets.remove_topic(topic)


class VanishedTopics:
    """
    Topics that the slave has, that a newer table of the master lacks, and of which no message came
    for a minute. The master has probably deleted them.

    A master that lost its table and got a new one looks the same. So the master is asked whether it
    still has messages of such a topic before the topic's queues are dropped.

    :param seconds: returns the time of a clock that never jumps, in seconds.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._since: dict[str, float] = {}

    def forget(self) -> None:
        """
        Forget all topics, as the tables of another master say nothing about the last one's
        deletions.
        """
        self._since.clear()

    def settled(self, topic: str) -> None:
        """Forget a topic: its queues were dropped, or it was decided that they stay."""
        self._since.pop(topic, None)

    def note_messages(self, topics: Iterable[str]) -> None:
        """Note topics of new messages: for them the minute begins again."""
        if self._since:
            for topic in self._since.keys() & topics:
                self._since[topic] = self._seconds()

    def copied(self, version: DataVersion, known: Collection[str], new: TopicTable) -> None:
        """
        Compare a whole new table of the master with the slave's topics.

        :param version: version of the slave's table that will be replaced; `known` has its topics.
        """
        now = self._seconds()
        for topic in new.topics:
            self._since.pop(topic, None)
        if new.version.counter > version.counter and new.version.timestamp >= version.timestamp:
            for topic in known:
                if topic not in new.topics:
                    self._since.setdefault(topic, now)

    def due(self) -> list[str]:
        """Return the topics that the master has lacked for a minute."""
        now = self._seconds()
        return [topic for topic, since in self._since.items() if now - since >= GRACE_S]
