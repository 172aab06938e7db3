"""Shows the bounds of queues, and the offsets that a slave copies: codes 29 to 32, 43 and 45.

Spec: remoting.md, section 7.4 and chapter 8.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from rmq_ha.base.config.own_keys import RmqHaConfig
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.versions import V5_0_0
from rmq_ha.server.broker.processors import fields
from rmq_ha.server.broker.processors.fields import Handler
from rmq_ha.server.broker.tables.consumer_offsets import ConsumerOffsetManager
from rmq_ha.server.broker.tables.delay_offsets import delay_offset_body


class QueueBounds(Protocol):
    """The store's answers about the bounds of a queue."""

    def max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the end of a queue, exclusive; 0 for an unknown queue."""

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the first offset of a queue; 0 for an unknown queue."""

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, *, nearest: bool = False
    ) -> int:
        """
        Return the first queue offset that was stored at this time or later; 0 for an unknown queue.

        :param nearest: return the queue offset that was stored nearest to this time instead.
        """

    def earliest_message_time(self, topic: str, queue_id: int) -> int:
        """Return the store time of the first message, ms; -1 if unknown."""


class AdminOffsetsProcessor:
    """
    Shows where queues begin and end.

    :param delay_offsets: returns the next queue offset by delay level.
    """

    def __init__(
        self,
        *,
        store: QueueBounds,
        config: RmqHaConfig,
        consumer_offsets: ConsumerOffsetManager,
        delay_offsets: Callable[[], Mapping[int, int]],
    ) -> None:
        self._store = store
        self._config = config
        self._consumer_offsets = consumer_offsets
        self._delay_offsets = delay_offsets

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.search_offset,
            RequestCode.GET_MAX_OFFSET: self.max_offset,
            RequestCode.GET_MIN_OFFSET: self.min_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.earliest_store_time,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.all_consumer_offsets,
            RequestCode.GET_ALL_DELAY_OFFSET: self.all_delay_offsets,
        }

    def search_offset(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """
        Answer SEARCH_OFFSET_BY_TIMESTAMP (29) with the queue offset of the first message that was
        stored at a time or later; with `timeSearchNearest`, of the message stored nearest to it.
        """
        timestamp_ms = fields.int64(fields.header(request), "timestamp")
        nearest = self._config.time_search_nearest
        offset = self._store.offset_by_time(*_queue(request), timestamp_ms, nearest=nearest)
        return request.response(ext={"offset": str(offset)})

    def max_offset(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer GET_MAX_OFFSET (30) with the end of a queue, exclusive."""
        return request.response(
            ext={"offset": str(self._store.max_offset_in_queue(*_queue(request)))}
        )

    def min_offset(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """
        Answer GET_MIN_OFFSET (31) with the offset of the first message that a queue still has.
        """
        return request.response(
            ext={"offset": str(self._store.min_offset_in_queue(*_queue(request)))}
        )

    def earliest_store_time(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """
        Answer GET_EARLIEST_MSG_STORETIME (32) with the store time of a queue's first message, ms.
        """
        return request.response(
            ext={"timestamp": str(self._store.earliest_message_time(*_queue(request)))}
        )

    def all_consumer_offsets(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """
        Answer GET_ALL_CONSUMER_OFFSET (43) with the committed offsets of all groups, for a slave.

        A slave of 5.x takes over the version of the table, and fails without a version: then it has
        the offsets in memory, but not on its disk.
        """
        if request.version >= V5_0_0:
            return request.response(body=fastjson.encode(self._consumer_offsets.to_json_of_5()))
        return fields.table_answer(request, self._consumer_offsets)

    def all_delay_offsets(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer GET_ALL_DELAY_OFFSET (45) with the progress of each delay level, for a slave."""
        return request.response(body=delay_offset_body(self._delay_offsets()))


def _queue(request: RemotingCommand) -> tuple[str, int]:
    header = fields.header(request)
    return fields.text(header, "topic"), fields.int32(header, "queueId")
