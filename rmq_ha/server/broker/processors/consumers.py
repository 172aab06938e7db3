"""Answers with consumer lists and committed offsets: codes 38, 14 and 15.

Spec: remoting.md, sections 7.2 and 7.4.
"""

from typing import Protocol

from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.broker.processors import fields
from rmq_ha.server.broker.processors.fields import Handler
from rmq_ha.server.broker.tables.client_offsets import ClientOffsets
from rmq_ha.server.broker.tables.clients import ConsumerManager
from rmq_ha.server.broker.tables.consumer_offsets import ConsumerOffsetManager


class QueueStart(Protocol):
    """The store's answers about the beginning of a queue."""

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the first offset of a queue; 0 for an unknown queue."""

    def is_in_disk(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Return whether a message is so old that it may not be in memory any more."""


class ConsumerProcessor:
    """Tells consumers the members of their group and its offsets, and takes commits."""

    def __init__(
        self,
        *,
        store: QueueStart,
        consumers: ConsumerManager,
        consumer_offsets: ConsumerOffsetManager,
        client_offsets: ClientOffsets,
    ) -> None:
        self._store = store
        self._consumers = consumers
        self._consumer_offsets = consumer_offsets
        self._client_offsets = client_offsets

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.consumer_list,
            RequestCode.QUERY_CONSUMER_OFFSET: self.query_offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update_offset,
        }

    def consumer_list(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer GET_CONSUMER_LIST_BY_GROUP (38) with the members' client ids, for rebalancing."""
        group = fields.text(fields.header(request), "consumerGroup")
        client_ids = self._consumers.client_ids(group)
        if not client_ids:
            return request.response(
                ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}", {}
            )
        return request.response(ext={}, body=fastjson.encode({"consumerIdList": client_ids}))

    def query_offset(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """
        Answer QUERY_CONSUMER_OFFSET (14); 0 for a new group if the queue has all its messages in
        memory.

        A consumer does not start after any answer but SUCCESS and QUERY_NOT_FOUND.
        """
        header = fields.header(request)
        group, topic = fields.text(header, "consumerGroup"), fields.text(header, "topic")
        queue_id = fields.int32(header, "queueId")
        offset = self._consumer_offsets.query(group, topic, queue_id)
        if offset < 0:
            if self._store.min_offset_in_queue(topic, queue_id) > 0 or self._store.is_in_disk(
                topic, queue_id, 0
            ):
                return request.response(
                    ResponseCode.QUERY_NOT_FOUND,
                    "no offset is committed, maybe this group consumer boot first",
                    {},
                )
            offset = 0
        return request.response(ext={"offset": str(offset)})

    def update_offset(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """
        Answer UPDATE_CONSUMER_OFFSET (15): commit an offset of a group in a queue. Lower offsets
        are stored as well, also on a slave.

        Consumers of all languages commit one-way, tools wait for the answer.
        """
        header = fields.header(request)
        fault = self._client_offsets.commit(
            fields.text(header, "consumerGroup"),
            fields.text(header, "topic"),
            fields.int32(header, "queueId"),
            fields.int64(header, "commitOffset"),
            by_member=request.is_oneway,
        )
        if fault is not None:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, fault)
        return request.response(ext={})
