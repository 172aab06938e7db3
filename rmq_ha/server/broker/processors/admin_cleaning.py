"""Cleans on an operator's request: codes 306, 316 and 329.

Spec: remoting.md, section 2.2.
"""

from collections.abc import Callable, Collection
from typing import Protocol

from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.broker.processors.fields import Handler
from rmq_ha.server.broker.stats import BrokerStats


class CleaningStore(Protocol):
    """The parts of the store that cleaning uses."""

    def clean_unused_topics(self, known: Collection[str]) -> int:
        """Delete the queues of topics that are not known."""

    def clean_expired_queues(self) -> int:
        """Delete the queues whose messages the log has all deleted."""

    def clean_expired_files(self) -> None:
        """Delete expired files of the log at any hour."""


class AdminCleaningProcessor:
    """
    Runs at once the cleaning that the store does periodically.

    :param topics: returns the names of all topics.
    """

    def __init__(
        self, *, store: CleaningStore, topics: Callable[[], Collection[str]], stats: BrokerStats
    ) -> None:
        self._store = store
        self._topics = topics
        self._stats = stats

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.clean_expired_queues,
            RequestCode.CLEAN_UNUSED_TOPIC: self.clean_unused_topics,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self.clean_expired_files,
        }

    def clean_expired_queues(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer CLEAN_EXPIRED_CONSUMEQUEUE (306): delete queues whose messages have expired."""
        self._store.clean_expired_queues()
        return request.response()

    def clean_unused_topics(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer CLEAN_UNUSED_TOPIC (316): delete the queues of topics that do not exist."""
        topics = self._topics()
        self._store.clean_unused_topics(topics)
        self._stats.keep_topics(topics)
        return request.response()

    def clean_expired_files(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """
        Answer DELETE_EXPIRED_COMMITLOG (329): delete expired files of the commit log at any hour.

        The cleaner's next rounds delete the files, after this answer.
        """
        self._store.clean_expired_files()
        return request.response()
