"""Shows and changes topics for operators: codes 17, 21, 202, 215, 300, 305 and 351.

Spec: remoting.md, sections 7.5 and 7.7, chapter 8; pop.md, section 7.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Any, Protocol

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.model.attributes import parse_changes, with_changes
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.model.topics import (
    POP_TOPIC,
    SYSTEM_TOPICS,
    TIMER_PROGRESS_TOPIC,
    TIMER_TOPIC,
    topic_fault,
)
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.timing.slices import Lane
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.members import to_members
from rmq_ha.base.wire.stat_bodies import TopicOffset, TopicStatsTable
from rmq_ha.server.broker.processors import fields
from rmq_ha.server.broker.processors.fields import Answer, Handler
from rmq_ha.server.broker.processors.query import answer_over_turns
from rmq_ha.server.broker.stats import BrokerStats
from rmq_ha.server.broker.tables.broker_tables import BrokerTables

MAX_QUEUE_NUMS = 65536
"""Most queues of a topic. Listings go through all queues of a topic in one turn."""

_FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")

_QUEUES_A_TURN = 250
"""Queues that are shown in one turn. For each of them a record is read, for its store time."""


class TopicStore(Protocol):
    """The store's answers about topics."""

    def max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the end of a queue, exclusive; 0 for an unknown queue."""

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the first offset of a queue; 0 for an unknown queue."""

    def store_timestamp_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """
        Return the store time of a message, ms since the epoch; -1 if the store does not know it.
        """

    def clean_unused_topics(self, known: Collection[str]) -> Any:
        """Delete the queues of topics that are not known."""


def refuse_on_slave(configuration: BrokerConfiguration) -> None:
    """
    Refuse an operator's change on a slave, as the next synchronisation would overwrite it.

    :raises RequestRejected: this broker is a slave.
    """
    if configuration.store.broker_role is BrokerRole.SLAVE:
        raise RequestRejected(
            ResponseCode.SYSTEM_ERROR,
            "Can't modify topic or subscription group from slave broker, please execute it from "
            "master broker.",
        )


def answer_when_written(
    written: "Deferred[bool] | None", request: RemotingCommand
) -> "Deferred[RemotingCommand | None]":
    """
    Answer with success when a change is on the disk, as RocketMQ does.

    :param written: fires when a table is written; None if nothing was changed.
    """

    def answer(is_written: bool) -> RemotingCommand:
        if is_written:
            return request.response()
        return request.response(
            ResponseCode.SYSTEM_ERROR,
            "this is in force, but could not be written and is lost with a restart: the broker's "
            "log says why; do it again when its disk is well",
        )

    return (succeed(True) if written is None else written).addCallback(answer)


class AdminTopicsProcessor:
    """
    Creates, changes, deletes and lists topics.

    :param register_topic: registers a changed topic with the name servers; fires when they have
        answered.
    :param deleted: called with the name of a topic that is deleted.
    """

    def __init__(
        self,
        *,
        store: TopicStore,
        tables: BrokerTables,
        stats: BrokerStats,
        configuration: BrokerConfiguration,
        register_topic: Callable[[TopicConfig], "Deferred[None]"],
        deleted: Callable[[str], None],
        clock: IReactorTime,
    ) -> None:
        self._lane = Lane(clock)
        self._store = store
        self._topics = tables.topics
        self._consumers = tables.consumers
        self._consumer_offsets = tables.consumer_offsets
        self._stats = stats
        self._configuration = configuration
        self._register_topic = register_topic
        self._deleted = deleted

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.update_topic,
            RequestCode.GET_ALL_TOPIC_CONFIG: self.all_topics,
            RequestCode.GET_TOPIC_CONFIG: self.topic_config,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete_topic,
            RequestCode.GET_TOPIC_STATS_INFO: self.topic_stats,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.consumed_by,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.system_topics,
        }

    def update_topic(
        self, channel: Channel, request: RemotingCommand
    ) -> "Deferred[RemotingCommand | None]":
        """
        Answer UPDATE_AND_CREATE_TOPIC (17): replace the whole configuration of a topic, or create
        it. Attributes that the request does not name stay, as in RocketMQ 5.

        The name servers know the topic before the response is sent.
        """
        refuse_on_slave(self._configuration)
        header = fields.header(request)
        topic = self._checked_name(header.get("topic", ""))
        filter_type = fields.text(header, "topicFilterType")
        if filter_type not in _FILTER_TYPES:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"topicFilterType = [{filter_type}] value invalid, use SINGLE_TAG",
            )
        known = self._topics.get(topic)
        config = TopicConfig(
            topic,
            queue_nums(fields.int32(header, "readQueueNums"), "readQueueNums"),
            queue_nums(fields.int32(header, "writeQueueNums"), "writeQueueNums"),
            fields.int32(header, "perm"),
            filter_type,
            fields.optional_int32(header, "topicSysFlag") or 0,
            # Name servers decide which topics are ordered, not this request.
            known is not None and known.order,
            _changed_attributes(known, header.get("attributes", "")),
            known.foreign if known is not None else {},
        )
        written = self._topics.update(config)
        registered: Deferred[Any] = self._register_topic(config)
        return registered.addBoth(lambda _: answer_when_written(written, request))

    def all_topics(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer GET_ALL_TOPIC_CONFIG (21) with all topics, for slaves and for exports."""
        return fields.table_answer(request, self._topics, ext={})

    def topic_config(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer GET_TOPIC_CONFIG (351), which proxies of RocketMQ 5 ask for each topic."""
        topic = fields.text(fields.header(request), "topic")
        config = self._topics.get(topic)
        if config is None:
            return request.response(
                ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}"
            )
        return request.response(body=fastjson.encode({"attributes": {}} | to_members(config)))

    def delete_topic(
        self, channel: Channel, request: RemotingCommand
    ) -> "RemotingCommand | Deferred[RemotingCommand | None]":
        """
        Answer DELETE_TOPIC_IN_BROKER (215): delete a topic with its queues.

        An unknown topic is a success; name servers keep the topic.

        Differs from 4.9.7 on purpose: groups lose their offsets of the topic.
        """
        refuse_on_slave(self._configuration)
        topic = self._checked_name(fields.header(request).get("topic", ""))
        written = self._topics.delete(topic)
        self._stats.topic_deleted(topic)
        self._deleted(topic)
        if not self._configuration.ours.keep_offsets_of_deleted_topics:
            self._consumer_offsets.remove_topic(topic)
        self._store.clean_unused_topics(set(self._topics.table))
        return answer_when_written(written, request)

    def topic_stats(self, channel: Channel, request: RemotingCommand) -> Answer:
        """
        Answer GET_TOPIC_STATS_INFO (202) with the bounds and the last store time of every write
        queue.
        """
        topic = fields.text(fields.header(request), "topic")
        config = self._topics.get(topic)
        if config is None:
            return request.response(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        broker_name, queues = self._configuration.broker.broker_name or "", config.write_queue_nums
        parts: list[fastjson.RawJson] = []

        def slices() -> Iterator[None]:
            for start in range(0, queues, _QUEUES_A_TURN):
                if start:
                    yield
                table = {
                    MessageQueue(topic, broker_name, queue_id): self._queue_stats(topic, queue_id)
                    for queue_id in range(start, min(start + _QUEUES_A_TURN, queues))
                }
                parts.append(fastjson.part(table))

        def answer() -> RemotingCommand:
            return request.response(body=TopicStatsTable(fastjson.joined(parts)).encode())

        return answer_over_turns(self._lane, channel, request, slices(), answer)

    def consumed_by(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """
        Answer QUERY_TOPIC_CONSUME_BY_WHO (300) with the groups that are online or have committed
        offsets.
        """
        topic = fields.text(fields.header(request), "topic")
        groups = self._consumers.which_groups(topic) | self._consumer_offsets.which_groups(topic)
        return request.response(body=fastjson.encode({"groupList": sorted(groups)}))

    def system_topics(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """
        Answer GET_SYSTEM_TOPIC_LIST_FROM_BROKER (305) with the built-in topics, and with those
        named as the cluster and the broker.
        """
        config = self._configuration.broker
        topics = {
            *SYSTEM_TOPICS,
            config.broker_cluster_name,
            config.broker_name or "",
            self._topics.reply_topic,
        }
        if not self._configuration.ours.timer_wheel_enable:
            topics -= {TIMER_TOPIC, TIMER_PROGRESS_TOPIC}
        if not self._configuration.ours.pop_enable:
            topics -= {POP_TOPIC}
        return request.response(body=fastjson.encode({"topicList": sorted(topics)}))

    def _checked_name(self, topic: str) -> str:
        fault = topic_fault(topic)
        if fault is not None:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, fault)
        if self._topics.is_system(topic):
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR, f"The topic[{topic}] is conflict with system topic."
            )
        return topic

    def _queue_stats(self, topic: str, queue_id: int) -> TopicOffset:
        low = max(0, self._store.min_offset_in_queue(topic, queue_id))
        high = max(0, self._store.max_offset_in_queue(topic, queue_id))
        last_ms = self._store.store_timestamp_at(topic, queue_id, high - 1) if high else 0
        return TopicOffset(low, high, last_ms)


def _changed_attributes(known: TopicConfig | None, changes: str) -> dict[str, str]:
    """
    Return a topic's attributes after the changes that a request asks for.

    :param known: the topic before; None if it is to be created.
    :raises RequestRejected: a change has no known form, or its attribute is not served.
    """
    before = {} if known is None else known.attributes
    try:
        return with_changes(before, parse_changes(changes))
    except ValueError as error:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, str(error)) from None


def queue_nums(number: int, name: str) -> int:
    """
    Check a number of queues.

    :raises RequestRejected: it is negative, or above `MAX_QUEUE_NUMS`.
    """
    if not 0 <= number <= MAX_QUEUE_NUMS:
        raise RequestRejected(
            ResponseCode.SYSTEM_ERROR, f"{name} is {number}; choose 0 to {MAX_QUEUE_NUMS}"
        )
    return number
