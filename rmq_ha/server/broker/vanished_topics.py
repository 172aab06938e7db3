"""Which topics a slave's master has deleted, by proof of its tables.

The log does not tell of deletions; a table that lags behind the log, or comes from a master that
lost its own, must delete nothing.
"""

from collections.abc import Callable, Collection, Iterable

from twisted.logger import Logger

from rmq_ha.base.errors import StoreError
from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.base.wire.bodies import TopicTable

GRACE_S = 60.0


class VanishedTopics:
    """
    Has the queues of a topic dropped when its master has really deleted it.

    That is so when a table that is newer than the one that had the topic has it no more, and for a
    minute no other table and no message of the topic has come.

    :param seconds: a clock that never jumps.
    :param drop: deletes a topic's queues; None: nothing is ever dropped.
    """

    log = Logger()

    def __init__(self, seconds: Callable[[], float], drop: Callable[[str], None] | None) -> None:
        self._seconds = seconds
        self._drop = drop
        self._since: dict[str, float] = {}

    def forget(self) -> None:
        """Another master: its tables say nothing of what the last one deleted."""
        self._since.clear()

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
        self.look()

    def look(self) -> None:
        """We know what the master has now: drop those whose time has come."""
        now = self._seconds()
        for topic in [topic for topic, since in self._since.items() if now - since >= GRACE_S]:
            del self._since[topic]
            self._drop_queues(topic)

    def _drop_queues(self, topic: str) -> None:
        if self._drop is None:
            return
        try:
            self._drop(topic)
        except StoreError as error:
            self.log.error("cannot drop the queues of {topic}: {error}", topic=topic, error=error)
        else:
            self.log.warn(
                "the master has deleted {topic}: its queues are dropped here, too; the log keeps "
                "the messages",
                topic=topic,
            )
