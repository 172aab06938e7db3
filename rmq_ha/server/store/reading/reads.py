"""The reading half of the store.

Spec: store.md, sections 4.4, 8 and 9.3.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Protocol

from rmq_ha.base.config.store import MessageStoreConfig
from rmq_ha.base.interfaces import IMessageFilter
from rmq_ha.base.model.message import GetMessageResult
from rmq_ha.base.model.status import GetMessageStatus
from rmq_ha.base.store_flags import RunningFlags
from rmq_ha.base.store_format.commitlog import store_timestamp_of
from rmq_ha.base.store_format.record_checks import is_of_topic
from rmq_ha.server.store.index.index import IndexService
from rmq_ha.server.store.log.dispatch import Dispatcher
from rmq_ha.server.store.log.journal_log import JournalLog
from rmq_ha.server.store.queues.table import ConsumeQueueTable
from rmq_ha.server.store.reading.pulls import MessageReader
from rmq_ha.server.store.statistics import StoreStatistics

_HEAD_SIZE = 96
_READ_AT_ONCE = 1 << 20
"""Bytes of records that a query reads and checks without a pause."""
_MAX_ANSWER = (1 << 24) - (1 << 16)
"""Most bytes of records in an answer: a frame holds 16 MiB (remoting.md, section 1.1)."""


class QueryResult(NamedTuple):
    """
    The result of a search by key.

    :ivar records: whole records, oldest first; some may have another key of the same hash.
    :ivar index_last_update_timestamp: store time of the last record in the newest index file, ms.
    :ivar index_last_update_offset: physical offset of that record.
    """

    records: list[bytes]
    index_last_update_timestamp: int
    index_last_update_offset: int


class OlderMessages(Protocol):
    """
    Messages that the local log has no more.

    :ivar figures: returns metrics, by their names without `rmqha_tier_`.

    `low` is the first queue offset that the local log has, `high` the one after the queue's last
    message.
    """

    figures: Callable[[], Mapping[str, float]]

    def get_message(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_nums: int,
        message_filter: IMessageFilter | None,
        bounds: tuple[int, int],
    ) -> GetMessageResult | None:
        """
        Read as `StoreReads.get_message` does, below `low`.

        :param bounds: `low` and `high`.
        :returns: None if there are no older messages from this queue offset on.
        :raises StoreError: the messages cannot be read.
        """

    def first_offset(self, topic: str, queue_id: int, low: int, high: int) -> int:
        """Return the first queue offset that can be read; `low` without older messages."""

    def offset_by_time(self, topic: str, queue_id: int, ms: int, low: int, high: int) -> int | None:
        """
        Return a queue offset below `low` from which on all messages since a time can be read.

        :returns: None if all of them are in the local log.
        """

    @property
    def min_physical_offset(self) -> int | None:
        """Where the older messages begin in the log; None without any."""


class StoreReads:
    """
    The part of a store that answers reads.

    :param index: None with `messageIndexEnable=false`.
    :ivar dispatcher: only messages that it has dispatched can be read.
    :ivar damage: the damage that readers have found.
    :ivar older: messages that the log has no more; None: they cannot be read.
    """

    dispatcher: Dispatcher

    def __init__(
        self,
        configuration: MessageStoreConfig,
        log: JournalLog,
        queues: ConsumeQueueTable,
        index: IndexService | None,
        reader: MessageReader,
        flags: RunningFlags,
        statistics: StoreStatistics,
    ) -> None:
        self._configuration = configuration
        self.log = log
        self.queues = queues
        self.index = index
        self.flags = flags
        self.statistics = statistics
        self._reader = reader
        self.damage = reader.damage
        self._memory_bytes = reader.memory_bytes
        self.is_open = False
        self.older: OlderMessages | None = None

    @property
    def is_readable(self) -> bool:
        """Whether messages may be read now."""
        return self.is_open

    def get_message(
        self,
        group: str,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_nums: int,
        message_filter: IMessageFilter | None,
    ) -> GetMessageResult | None:
        """
        Return the messages of a queue from an offset on.

        :returns: None if the store cannot be read.
        :raises StoreError: the disk refuses.
        """
        if not self.is_readable:
            return None
        self.dispatcher.hurry()
        result = None
        if self.older is not None and not self._is_in_log(topic, queue_id, queue_offset):
            bounds = self._local_bounds(topic, queue_id)
            if queue_offset < bounds[0]:
                result = self.older.get_message(
                    topic, queue_id, queue_offset, max_nums, message_filter, bounds
                )
        if result is None:
            result = self._reader.get_message(
                group, topic, queue_id, queue_offset, max_nums, message_filter
            )
        if self.older is not None:
            lowest = self.older.first_offset(topic, queue_id, result.min_offset, result.max_offset)
            result = result._replace(min_offset=lowest)
        if result.status is GetMessageStatus.FOUND:
            self.statistics.get_found += 1
            self.statistics.get_transferred += len(result.messages)
        else:
            self.statistics.get_missed += 1
        return result

    def record_at(self, physical_offset: int, size: int | None = None) -> bytes | None:
        """
        Return the record at a physical offset; None if none starts there, or if it is damaged.

        :param size: from its queue entry; None: read the size from the log.
        :raises StoreError: the disk refuses.
        """
        record = self.log.record_at(physical_offset, size)
        if record is None or not self.damage.is_sound(record, physical_offset):
            return None
        return record

    def query(self, topic: str, key: str, max_nums: int, begin_ms: int, end_ms: int) -> QueryResult:
        """Do what `query_in_slices` does, in one step."""
        results: list[QueryResult] = []
        for _ in self.query_in_slices(topic, key, max_nums, begin_ms, end_ms, results.append):
            pass
        (result,) = results
        return result

    def query_in_slices(
        self,
        topic: str,
        key: str,
        max_nums: int,
        begin_ms: int,
        end_ms: int,
        take: Callable[[QueryResult], None],
    ) -> Iterator[None]:
        """
        Search records by key in the index; take the newest ones, as many as an answer may hold.

        :param begin_ms: earliest store time; the index knows whole seconds only.
        :param take: called with the result at the end.
        :returns: an iterator that does a part of the work in each step.
        :raises StoreError: the disk refuses.
        """
        if self.index is None:
            take(QueryResult([], 0, 0))
            return
        # Index and queues get a record one turn after the log. A query that follows a send must
        # find it.
        self.dispatcher.hurry()
        most = min(max_nums, self._configuration.max_msgs_num_batch)
        offsets: list[int] = []
        yield from self.index.find(topic, key, most, begin_ms, end_ms, offsets)
        timestamp, last_offset = self.index.reached_timestamp, self.index.reached
        records: list[bytes] = []
        size = 0
        for offset in sorted(offsets, reverse=True):
            record = self.record_at(offset)
            if record is None:
                if self.log.min_offset <= offset < self.log.max_offset:
                    self.damage.bad_record(offset)
            # A hash leads to other topics' messages, too, and the client may choose it.
            elif is_of_topic(record, topic):
                before, size = size, size + len(record)
                if records and size > _MAX_ANSWER:
                    break
                records.append(record)
                if before // _READ_AT_ONCE < size // _READ_AT_ONCE:
                    yield
        # The newest were read first, as the answer may be full before the oldest. It is in log
        # order.
        take(QueryResult(records[::-1], timestamp, last_offset))

    def max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the queue offset that the next message gets; 0 for an unknown queue."""
        self.dispatcher.hurry()
        queue = self.queues.get(topic, queue_id)
        return queue.max_offset if queue is not None else 0

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the first queue offset that can be read; 0 for an unknown queue."""
        queue = self.queues.get(topic, queue_id)
        if queue is None:
            return 0
        if self.older is None:
            return queue.min_offset
        return self.older.first_offset(topic, queue_id, *self._local_bounds(topic, queue_id))

    def _is_in_log(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Return whether the local log has a message of a queue, or the offset is its end."""
        queue = self.queues.get(topic, queue_id)
        if queue is None:
            return False
        if queue_offset >= queue.max_offset:
            return True
        unit = queue.unit(queue_offset)
        return unit is not None and unit[0] >= self.log.min_offset

    def _local_bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """
        Return the first queue offset whose message is in the local log, and the queue's end.

        A queue has units of messages that the log has no more: it learns of deleted log files after
        a moment, and it keeps its last file.
        """
        queue = self.queues.get(topic, queue_id)
        if queue is None:
            return 0, 0
        low, high, begins = queue.min_offset, queue.max_offset, self.log.min_offset
        if queue.max_physical_offset <= begins:
            return high, high
        first = queue.unit(low)
        if first is not None and first[0] < begins:
            low = queue.offset_by_place(begins)
        return low, high

    def offset_by_time(self, topic: str, queue_id: int, ms: int, *, nearest: bool = False) -> int:
        """
        Return the queue offset where a time begins, as `ConsumeQueue.offset_by_time` does; 0 for an
        unknown queue.

        :param nearest: return the message whose store time is nearest to the time, before or after
            it.
        :raises StoreError: the disk refuses.
        """
        self.dispatcher.hurry()
        queue = self.queues.get(topic, queue_id)
        if queue is None:
            return 0
        if self.older is not None:
            bounds = self._local_bounds(topic, queue_id)
            offset = self.older.offset_by_time(topic, queue_id, ms, *bounds)
            if offset is not None:
                return offset
        return queue.offset_by_time(ms, self._store_timestamp, self.log.min_offset, nearest=nearest)

    def store_timestamp_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the store time of a message, ms; -1 if unknown."""
        unit = self._unit(topic, queue_id, queue_offset)
        return self._store_timestamp(unit[0], unit[1]) if unit is not None else -1

    def physical_offset_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the physical offset of a message; -1 if unknown."""
        unit = self._unit(topic, queue_id, queue_offset)
        return unit[0] if unit is not None else -1

    def earliest_message_time(self, topic: str | None = None, queue_id: int = 0) -> int:
        """
        Return the store time of the oldest message of a queue or of the log, ms; -1 if unknown.

        For the log it is known only when the first file holds twice `maxMessageSize`. RocketMQ does
        the same, and tools compare brokers.

        Spec: store.md, section 8.5.
        """
        if topic is None:
            first = max(self.log.min_offset, 0)
            end = min(first + self.log.file_size, self.log.max_offset)
            if end - first < 2 * self._configuration.max_message_size:
                return -1
            return self._store_timestamp(first, 1)
        return self.store_timestamp_at(topic, queue_id, self.min_offset_in_queue(topic, queue_id))

    def is_in_disk(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Return whether a message is so far before the log's end that it may not be in memory."""
        unit = self._unit(topic, queue_id, queue_offset)
        ratio = self._configuration.access_message_in_memory_max_ratio / 100
        return unit is not None and self.log.max_offset - unit[0] > self._memory_bytes * ratio

    def _unit(self, topic: str, queue_id: int, queue_offset: int) -> tuple[int, int, int] | None:
        self.dispatcher.hurry()
        queue = self.queues.get(topic, queue_id)
        return None if queue is None else queue.unit(queue_offset)

    def _store_timestamp(self, physical_offset: int, size: int) -> int:
        if physical_offset + size > self.log.max_offset:
            return -1
        return store_timestamp_of(self.log.read(physical_offset, _HEAD_SIZE)) or -1
