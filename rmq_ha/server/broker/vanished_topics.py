"""Which topics a slave's master may have deleted, by its tables.

The log does not tell of deletions; a table that lags behind the log, or comes from a master that
lost its own, must delete nothing.
"""

from collections.abc import Callable, Collection, Iterable

from rmq_ha.base.config.ours import RmqHaConfig
from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.base.wire.bodies import TopicTable
from rmq_ha.server.broker.tables.consumer_offsets import ConsumerOffsetManager
from rmq_ha.server.store.message_store import DefaultMessageStore

GRACE_S = 60.0


class QueuesOfTopics:
    """
    The queues that a slave has, by topic.

    :param config: whether offsets of groups go with a topic.
    """

    def __init__(
        self, store: DefaultMessageStore, offsets: ConsumerOffsetManager, config: RmqHaConfig
    ) -> None:
        self._store = store
        self._offsets = offsets
        self._config = config

    def numbers(self, topic: str) -> list[int]:
        """Which queues it has of a topic."""
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
    Topics that a newer table of the master has no more, and of which nothing came for a minute.

    A master that lost its table and got a new one looks the same. So who drops the queues of such
    a topic asks the master first whether it has its messages still.

    :param seconds: a clock that never jumps.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._since: dict[str, float] = {}

    def forget(self) -> None:
        """Another master: its tables say nothing of what the last one deleted."""
        self._since.clear()

    def settled(self, topic: str) -> None:
        """Its queues were dropped, or stay."""
        self._since.pop(topic, None)

    def seen(self, topics: Iterable[str]) -> None:
        """Messages came of these: what of them seems deleted is waited for once more."""
        if self._since:
            for topic in self._since.keys() & topics:
                self._since[topic] = self._seconds()

    def copied(self, version: DataVersion, known: Collection[str], new: TopicTable) -> None:
        """
        The master's whole table came.

        :param version: of the slave's table, as `known`, which it is about to replace.
        """
        now = self._seconds()
        for topic in new.topics:
            self._since.pop(topic, None)
        if new.version.counter > version.counter and new.version.timestamp >= version.timestamp:
            for topic in known:
                if topic not in new.topics:
                    self._since.setdefault(topic, now)

    def due(self) -> list[str]:
        """The topics that their master has lacked for a minute."""
        now = self._seconds()
        return [topic for topic, since in self._since.items() if now - since >= GRACE_S]
