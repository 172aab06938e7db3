"""Decides which offsets of clients are committed, and where a consumer continues that is beyond the
end of its queue.

Spec: remoting.md, section 7.4.
"""

from collections.abc import Callable
from typing import Protocol

from twisted.logger import Logger

from rmq_ha.base.config.own_keys import RmqHaConfig
from rmq_ha.server.broker.tables.consumer_offsets import ConsumerOffsetManager
from rmq_ha.server.broker.tables.topics import TopicConfigManager
from rmq_ha.server.broker.transactions.messages import GROUP as TRANSACTION_GROUP
from rmq_ha.server.store.journal import Role


class QueuePlaces(Protocol):
    """The store's answers about the messages of a queue."""

    def max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the queue offset that the next message gets; 0 for an unknown queue."""

    def physical_offset_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the physical offset of a message; -1 if unknown."""


class ClientOffsets:
    """
    Commits the offsets that clients send, if their queues can have them.

    RocketMQ stores every offset forever. An account with one topic and one group can make the table
    larger than a frame by many queue ids, and then no group's offsets reach the slave.

    A slave that is promoted may lack messages that groups consumed at the old master. RocketMQ lets
    such a group skip as many new messages. Here the group continues at its committed offset, which
    is set to the end of the queue when this broker becomes the master. The group's running members
    have larger offsets in memory. These are not committed, and a pull from such an offset is sent
    back.

    :param role: role of this broker; the queues of a slave may lack the newest messages.
    :ivar refused: number of commits that were not stored.
    :ivar is_popped: returns whether a group pops a topic, so that acknowledgements alone move its
        offset.
    :ivar not_pulled: by `topic@group` the queues from which the group has not pulled since this
        broker became the master; only read it.
    """

    log = Logger()

    def __init__(
        self,
        offsets: ConsumerOffsetManager,
        topics: TopicConfigManager,
        config: RmqHaConfig,
        queues: QueuePlaces,
        role: Role,
    ) -> None:
        self._offsets = offsets
        self._topics = topics
        self._config = config
        self._queues = queues
        self._role = role
        self._log_end = 0
        self.not_pulled: dict[str, set[int]] = {}
        self.refused = 0
        self.is_popped: Callable[[str, str], bool] = lambda group, topic: False

    def commit(
        self, group: str, topic: str, queue_id: int, queue_offset: int, *, by_member: bool = True
    ) -> str | None:
        """
        Store a consumer's progress, lower values too.

        :param by_member: whether a running consumer sent it, and not an operator's tool.
        :returns: why it is not stored; None if it is.
        """
        fault = None
        if self.is_popped(group, topic):
            fault = (
                f"{group} pops {topic}: its offset follows its acknowledgements. mqadmin "
                "resetOffsetByTime moves it"
            )
        elif self._config.check_committed_offsets:
            fault = self._fault(group, topic, queue_id, queue_offset)
            if fault is None and by_member and self._is_ahead(group, topic, queue_id, queue_offset):
                fault = f"{group} has not read up to the offset {queue_offset} at this master"
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
        if not self._role.corrects_offsets:
            return None
        end = self._queues.max_offset_in_queue(topic, queue_id)
        if queue_offset > end:
            return (
                f"the offset {queue_offset} is beyond the end {end} of queue {queue_id} of {topic}:"
                " this broker does not have those messages (checkCommittedOffsets)"
            )
        return None

    def became_master(self, log_end: int, *, has_all: bool = False) -> None:
        """
        Take note that this broker is the master now. With `checkCommittedOffsets`, lower committed
        offsets to the ends of their queues, whatever the groups' members remember.

        The progress of the transaction checks is left alone, as the checks correct it themselves.

        :param log_end: physical offset of the log's end; records below it came before this broker
            was the master.
        :param has_all: whether this log has all messages of the old master, as after a hand-over of
            a pair. Then no consumer has read others at the same offsets; one that is ahead has read
            on at the old master, which is a slave now.
        """
        self._log_end = log_end
        self.not_pulled = {}
        if has_all or not self._config.check_committed_offsets:
            return
        ends = self._queues.max_offset_in_queue
        for item in self._offsets.end_at_queues(ends, self._is_exempt):
            self.log.warn(
                "group {group} goes on at {end}, the end of {topic} queue {queue_id}: its offset "
                "{offset} is from a log that was longer than this broker's",
                **item._asdict(),
            )
        self.not_pulled = {key: set(queues) for key, queues in self._offsets.table.items()}

    def _is_exempt(self, topic: str, group: str) -> bool:
        keeps_deleted = self._config.keep_offsets_of_deleted_topics
        return group == TRANSACTION_GROUP or (keeps_deleted and self._topics.get(topic) is None)

    def set_back(
        self, group: str, topic: str, queue_id: int, queue_offset: int, end: int
    ) -> int | None:
        """
        Return where a consumer that pulls from this master has to continue.

        :param queue_offset: the offset from which it pulls.
        :param end: end of the queue.
        :returns: the group's committed offset, if the consumer is ahead of all messages that it can
            have read here. None if it may read on from `queue_offset`, or if no better offset is
            known.
        """
        if queue_offset > end:
            committed = self._offsets.query(group, topic, queue_id)
            is_known = self._config.check_committed_offsets and 0 <= committed < end
            return committed if is_known else None
        if not self._is_ahead(group, topic, queue_id, queue_offset):
            self._has_pulled(group, topic, queue_id)
            return None
        return self._offsets.query(group, topic, queue_id)

    def _is_ahead(self, group: str, topic: str, queue_id: int, queue_offset: int) -> bool:
        """
        Return whether a consumer that has not pulled here yet has an offset beyond messages that
        came after this broker became the master.

        It cannot have read these messages. At their offsets it has read other messages of the old
        master, which this broker never got.
        """
        if queue_id not in self.not_pulled.get(f"{topic}@{group}", ()):
            return False
        if not 0 <= self._offsets.query(group, topic, queue_id) < queue_offset:
            return False
        last_read = self._queues.physical_offset_at(topic, queue_id, queue_offset - 1)
        return last_read >= self._log_end

    def _has_pulled(self, group: str, topic: str, queue_id: int) -> None:
        key = f"{topic}@{group}"
        queues = self.not_pulled.get(key)
        if queues is not None:
            queues.discard(queue_id)
            if not queues:
                del self.not_pulled[key]
