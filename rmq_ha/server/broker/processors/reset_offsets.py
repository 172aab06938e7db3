"""INVOKE_BROKER_TO_RESET_OFFSET (222): sets the offsets of a group's online members to a time.

Spec: remoting.md, sections 7.6 and 11.7.
"""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import cast

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rmq_ha.base.config.own_keys import RmqHaConfig
from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.model.printable import NamedValues
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.codes import LanguageCode, RequestCode, ResponseCode
from rmq_ha.base.wire.command import FLAG_ONEWAY, RemotingCommand
from rmq_ha.base.wire.offset_bodies import ResetOffsetBody, ResetOffsetBodyForC
from rmq_ha.server.broker.processors import fields
from rmq_ha.server.broker.processors.admin_offsets import QueueBounds
from rmq_ha.server.broker.processors.fields import Answer, Handler
from rmq_ha.server.broker.processors.relays import members_that_can
from rmq_ha.server.broker.tables.clients import ConsumerManager
from rmq_ha.server.broker.tables.consumer_offsets import ConsumerOffsetManager
from rmq_ha.server.broker.tables.topics import TopicConfigManager
from rmq_ha.server.pop.face import LeaseStatus, Pops

TO_THE_END = -1
_OPAQUE_MASK = 0x7FFFFFFF


class ResetOffsetProcessor:
    """
    Computes new offsets and pushes them to every member. The members then commit them.

    :param broker_name: broker name of the queues in pushes and answers.
    """

    log = Logger()

    def __init__(
        self,
        *,
        store: QueueBounds,
        config: RmqHaConfig,
        topics: TopicConfigManager,
        consumers: ConsumerManager,
        consumer_offsets: ConsumerOffsetManager,
        broker_name: str,
        pops: Pops,
    ) -> None:
        self._pops = pops
        self._store = store
        self._config = config
        self._topics = topics
        self._consumers = consumers
        self._consumer_offsets = consumer_offsets
        self._broker_name = broker_name
        self._opaque = count(1)

    def routes(self) -> dict[int, Handler]:
        return {RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset_offset}

    def reset_offset(self, channel: Channel, request: RemotingCommand) -> Answer:
        """
        Answer INVOKE_BROKER_TO_RESET_OFFSET (222): have the members of a group that are online move
        their offsets of a topic to a time.

        A group that pops has no offsets at its members: they are moved here, and what is out comes
        no more as a retry.
        """
        header = fields.header(request)
        topic, group = fields.text(header, "topic"), fields.text(header, "group")
        timestamp_ms = fields.int64(header, "timestamp")
        config = self._topics.get(topic)
        if config is None:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"[reset-offset] reset offset failed, no topic in this broker. topic={topic}",
            )
        if self._pops.is_enabled and self._pops.knows(group, topic):
            return self._reset_pops(channel, request, config, group, timestamp_ms)
        table = self._targets(config, group, timestamp_ms, fields.flag(header, "isForce"))
        members = members_that_can(self._consumers, group)
        if not members:
            raise RequestRejected(
                ResponseCode.CONSUMER_NOT_ONLINE,
                "Consumer not online, so can not reset offset, "
                f"Group: {group} Topic: {topic} Timestamp: {timestamp_ms}",
            )
        # RocketMQ chooses the form by the language of the asking tool, not of the members.
        as_list = request.language == LanguageCode.CPP.name
        body = ResetOffsetBodyForC.from_table(table) if as_list else ResetOffsetBody(table)
        push = RemotingCommand(
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
            {"topic": topic, "group": group, "timestamp": str(timestamp_ms), "isForce": "false"},
            body.encode(),
            opaque=next(self._opaque) & _OPAQUE_MASK,
            flag=FLAG_ONEWAY,
        )
        for member in members:
            self._push(cast(Channel, member.channel), push)
        self.log.info(
            "{peer} resets the offsets of {group} on {topic}, by queue{offsets}",
            peer=channel.remote_text,
            group=group,
            topic=topic,
            offsets=NamedValues({str(queue.queue_id): at for queue, at in table.items()}),
        )
        return request.response(body=ResetOffsetBody(table).encode())

    def _reset_pops(
        self,
        channel: Channel,
        request: RemotingCommand,
        config: TopicConfig,
        group: str,
        timestamp_ms: int,
    ) -> "Deferred[RemotingCommand | None]":
        """Move the offsets of a group that pops: those of all queues, or of one queue."""
        header, topic = fields.header(request), config.topic_name
        queue_id = fields.optional_int32(header, "queueId")
        offset = fields.optional_int64(header, "offset")
        queues: Sequence[int] = range(config.read_queue_nums)
        given: int | None = None
        if queue_id is not None and queue_id >= 0:
            queues = [queue_id]
            given = offset if offset is not None and offset >= 0 else None
        table: dict[int, int] = {}
        for number in queues:
            if not 0 <= number < config.read_queue_nums:
                raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"{topic} has no queue {number}")
            table[number] = self._target(group, topic, number, timestamp_ms, given, header)
        body = ResetOffsetBody(
            {MessageQueue(topic, self._broker_name, number): at for number, at in table.items()}
        ).encode()

        def answer(status: LeaseStatus) -> RemotingCommand | None:
            if status is LeaseStatus.DONE:
                return request.response(body=body)
            return request.response(
                ResponseCode.SYSTEM_BUSY,
                "the reset is not kept yet, by disk and slaves as configured: repeat it",
            )

        self.log.info(
            "{peer} resets where {group} pops {topic}, by queue{offsets}",
            peer=channel.remote_text,
            group=group,
            topic=topic,
            offsets=NamedValues({str(number): at for number, at in table.items()}),
        )
        return self._pops.reset(group, topic, table).addCallback(answer)

    def _target(
        self,
        group: str,
        topic: str,
        queue_id: int,
        timestamp_ms: int,
        given: int | None,
        header: Mapping[str, str],
    ) -> int:
        """
        Return the offset at which a group goes on in a queue, within the queue's bounds. Without
        the field `isForce` a reset never skips messages: it goes to the committed offset at most.

        :param given: the offset that the request names; None: the offset of `timestamp_ms`.
        """
        least, end = (
            max(0, self._store.min_offset_in_queue(topic, queue_id)),
            self._store.max_offset_in_queue(topic, queue_id),
        )
        if given is not None:
            target = given
        elif timestamp_ms == TO_THE_END:
            target = end
        else:
            nearest = self._config.time_search_nearest
            target = self._store.offset_by_time(topic, queue_id, timestamp_ms, nearest=nearest)
        if not fields.flag(header, "isForce"):
            committed = self._consumer_offsets.query(group, topic, queue_id)
            target = min(target, committed) if committed >= 0 else target
        return min(max(target, least), end)

    def _push(self, channel: Channel, push: RemotingCommand) -> None:
        if channel.is_full:
            self.log.warn("{peer} does not read: it is not reset", peer=channel.remote_text)
        else:
            channel.send(push)

    def _targets(
        self, config: TopicConfig, group: str, timestamp_ms: int, force: bool
    ) -> dict[MessageQueue, int]:
        """
        Return the new offset for each write queue.

        :param force: whether a new offset may be above the committed one.
        :raises RequestRejected: the group has no offset on a queue.
        """
        topic = config.topic_name
        table: dict[MessageQueue, int] = {}
        for queue_id in range(config.write_queue_nums):
            committed = self._consumer_offsets.query(group, topic, queue_id)
            if committed == -1:
                raise RequestRejected(
                    ResponseCode.SYSTEM_ERROR,
                    f"THe consumer group <{group}> not exist: it has no offset on queue "
                    f"{queue_id} of {topic} yet",
                )
            if timestamp_ms == TO_THE_END:
                target = self._store.max_offset_in_queue(topic, queue_id)
            else:
                nearest = self._config.time_search_nearest
                target = self._store.offset_by_time(topic, queue_id, timestamp_ms, nearest=nearest)
            target = max(0, target)
            if not force:
                target = min(target, committed)
            table[MessageQueue(topic, self._broker_name, queue_id)] = target
        return table
