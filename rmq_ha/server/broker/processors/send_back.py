"""CONSUMER_SEND_MSG_BACK (36): stores a message again that a consumer wants later.

Spec: remoting.md, section 4.7.
"""

from collections.abc import Sized
from random import Random
from typing import Any, Protocol

from twisted.internet.defer import Deferred, succeed

from rmq_ha.base.config.broker import BrokerConfig
from rmq_ha.base.errors import CorruptRecord, RequestRejected
from rmq_ha.base.interfaces import IMessageStore
from rmq_ha.base.model.flags import PERM_WRITE, TOPIC_UNIT_SUB
from rmq_ha.base.model.message import BrokerMessage, PutMessageResult
from rmq_ha.base.model.properties import (
    DELAY,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
    TIMER_SRC,
    WAIT,
    encode_properties,
)
from rmq_ha.base.model.status import PutMessageStatus
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig, TopicConfig
from rmq_ha.base.model.topics import DLQ_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.store_format.commitlog import Record, decode_record
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.versions import V3_4_9
from rmq_ha.server.broker.overload import LoadedStore, SendOverload
from rmq_ha.server.broker.processors import fields
from rmq_ha.server.broker.processors.fields import Handler
from rmq_ha.server.broker.processors.query import RecordReader
from rmq_ha.server.broker.stats import BrokerStats
from rmq_ha.server.broker.tables.groups import SubscriptionGroupManager
from rmq_ha.server.broker.tables.topics import TopicConfigManager
from rmq_ha.server.door import MessageSender, Settlement
from rmq_ha.server.store.delay.copies import copy_of
from rmq_ha.server.store.delay.redirect import stored_place

FIRST_DELAY_LEVEL = 3


def _queues_of(retry: TopicConfig, group: SubscriptionGroupConfig) -> int:
    """
    Return how many queues of a retry topic get messages: only those that consumers read.

    :raises RequestRejected: the topic has none.
    """
    readable = min(retry.read_queue_nums, retry.write_queue_nums)
    if readable <= 0:
        raise RequestRejected(
            ResponseCode.SYSTEM_ERROR,
            f"the topic {retry.topic_name} has no queue that consumers may read and the broker "
            f"may write: rmqha-admin topic update {retry.topic_name} --queues 1",
        )
    return min(readable, group.retry_queue_nums)


class SendBackStore(RecordReader, LoadedStore, Protocol):
    """The parts of a store that sending back uses."""

    @property
    def delay_levels(self) -> Sized: ...


class SendBackProcessor:
    """
    Puts a copy of a message into its group's retry topic, or into the dead-letter queue.

    :param front: stores messages: the store, wrapped by the plugins.
    :param random: chooses the queue.
    """

    def __init__(
        self,
        *,
        store: SendBackStore,
        front: IMessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        stats: BrokerStats,
        config: BrokerConfig,
        random: Random,
    ) -> None:
        self._store = store
        self._front: Any = front
        self._topics = topics
        self._groups = groups
        self._stats = stats
        self._config = config
        self._random = random
        self._overload = SendOverload(config, store)

    def routes(self) -> dict[int, Handler]:
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back}

    def send_back(
        self, channel: Channel, request: RemotingCommand
    ) -> "RemotingCommand | Deferred[RemotingCommand | None]":
        """
        Answer CONSUMER_SEND_MSG_BACK (36): store a message again that a consumer could not consume,
        for a later attempt or as a dead letter.
        """
        self._overload.check(channel)
        header = fields.header(request)
        offset, delay_level = fields.int64(header, "offset"), fields.int32(header, "delayLevel")
        limit = fields.optional_int32(header, "maxReconsumeTimes")
        if request.version < V3_4_9:
            limit = None
        sys_flag = TOPIC_UNIT_SUB if fields.flag(header, "unitMode") else 0
        group = fields.text(header, "group")
        put = self._store_again(group, offset, delay_level, limit, sys_flag)
        return put.addCallback(lambda end: request.response(end.code, end.remark))

    def bury(
        self, sender: MessageSender, group: str, physical_offset: int
    ) -> "Deferred[Settlement]":
        """
        Store a message among the dead letters of a group, for a client of the gRPC door.

        :raises RequestRejected: the message, or the group, is not there.
        """
        self._overload.check(sender)
        return self._store_again(group, physical_offset, -1, 0, 0)

    def _store_again(
        self, group_name: str, offset: int, delay_level: int, limit: int | None, sys_flag: int
    ) -> "Deferred[Settlement]":
        """
        Store a copy of a message for a later attempt, or as a dead letter.

        :param delay_level: the delay until the next attempt; a negative level asks for a dead
            letter.
        :param limit: how many attempts a message has at most; None for the group's setting.
        """
        group = self._checked_group(group_name)
        # As in RocketMQ, success although nothing is stored: such a group wants no retries.
        if group.retry_queue_nums <= 0:
            return succeed(Settlement(ResponseCode.SUCCESS))
        retry_topic = RETRY_PREFIX + group.group_name
        retry = self._topics.create_in_send_back(retry_topic, group.retry_queue_nums, sys_flag)
        if not retry.perm & PERM_WRITE:
            raise RequestRejected(
                ResponseCode.NO_PERMISSION, f"the topic[{retry_topic}] sending message is forbidden"
            )
        record = self._record_at(offset)
        if limit is None:
            limit = group.retry_max_times
        properties = record.properties
        # `setdefault`: after several attempts the properties still name the first topic and
        # message.
        properties.setdefault(RETRY_TOPIC, record.topic)
        properties.pop(TIMER_SRC, None)  # it would settle a waiting message
        properties[WAIT] = "false"
        properties.setdefault(ORIGIN_MESSAGE_ID, record.msg_id)
        if record.reconsume_times >= limit or delay_level < 0:
            topic, queue_id = DLQ_PREFIX + group.group_name, 0
            self._topics.create_in_send_back(topic)
            properties[DELAY] = "0"
        else:
            topic, queue_id = retry_topic, self._random.randrange(_queues_of(retry, group))
            properties[DELAY] = str(delay_level or FIRST_DELAY_LEVEL + record.reconsume_times)
        # The store host stays the one of the original message, as in Java.
        copy = copy_of(record, topic, queue_id, properties, encode_properties(properties))
        copy.reconsume_times += 1
        put: Deferred[Any] = self._front.put_message(copy)
        put.addCallback(self._settlement, copy, group.group_name)
        return put.addCallback(lambda end: self._topics.when_ready(topic, end))

    def _settlement(self, result: PutMessageResult, copy: BrokerMessage, group: str) -> Settlement:
        if result.status is not PutMessageStatus.PUT_OK:
            return Settlement(ResponseCode.SYSTEM_ERROR, result.status.name)
        topic, queue_id = stored_place(copy, len(self._store.delay_levels))
        if topic == SCHEDULE_TOPIC and result.append is not None:
            self._stats.put_back(topic, queue_id, result.append.size)
        self._stats.sent_back(copy.properties[RETRY_TOPIC], group)
        return Settlement(ResponseCode.SUCCESS)

    def _checked_group(self, name: str) -> SubscriptionGroupConfig:
        group = self._groups.find(name)
        if group is None:
            raise RequestRejected(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {name}: create it with mqadmin updateSubGroup",
            )
        if not self._config.broker_permission & PERM_WRITE:
            raise RequestRejected(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._config.broker_ip1}] sending message is forbidden",
            )
        return group

    def _record_at(self, physical_offset: int) -> Record:
        data = self._store.record_starting_at(physical_offset)
        if data is not None:
            try:
                return decode_record(data)
            except CorruptRecord:
                pass  # for the client there is no message either
        raise RequestRejected(
            ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {physical_offset}"
        )
