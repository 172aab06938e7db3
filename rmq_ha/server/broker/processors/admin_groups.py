"""Shows and changes consumer groups, and shows connections: codes 200, 201, 203, 204, 207,
208 and 352.

Spec: remoting.md, sections 7.5 and 7.7, chapter 8; pop.md, section 7.
"""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace
from twisted.internet.defer import Deferred, gatherResults

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig, TopicConfig
from rmq_ha.base.model.topics import RETRY_PREFIX, group_name_fault
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.bodies import MessageQueue, read_as
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.members import to_members
from rmq_ha.base.wire.pop_reports import IN_FLIGHT
from rmq_ha.base.wire.stat_bodies import (
    Connection,
    ConsumeOffset,
    ConsumerConnection,
    ConsumeStats,
    ProducerConnection,
)
from rmq_ha.server.broker.processors import fields
from rmq_ha.server.broker.processors.admin_topics import (
    answer_when_written,
    queue_nums,
    refuse_on_slave,
)
from rmq_ha.server.broker.processors.consume_tables import ConsumeTables
from rmq_ha.server.broker.processors.fields import Answer, Handler
from rmq_ha.server.broker.processors.pop_reports import PopReports
from rmq_ha.server.broker.stats import BrokerStats
from rmq_ha.server.broker.tables.broker_tables import BrokerTables
from rmq_ha.server.broker.tables.clients import ClientChannelInfo, ConsumerGroupInfo
from rmq_ha.server.broker.tables.door_consumers import CONSUME_TYPE, MODEL
from rmq_ha.server.broker.tables.entries import ENTRY_DEPTH

_MEMBERS_OF_5: Mapping[str, Any] = {
    "attributes": {},
    "consumeMessageOrderly": False,
    "consumeTimeoutMinute": 15,
    "groupRetryPolicy": {"type": "CUSTOMIZED"},
    "groupSysFlag": 0,
}
"""
The members of a group's configuration that only RocketMQ 5 has. The values stand for those that a
group here lacks.
"""


class AdminGroupsProcessor:
    """
    Changes consumer groups, lists their members, and shows their progress.

    :param register_topic: registers a changed topic with the name servers; fires when they have
        answered.
    :param deleted: called with the name of a group that is deleted.
    """

    def __init__(
        self,
        *,
        tables: BrokerTables,
        stats: BrokerStats,
        consume_tables: ConsumeTables,
        pop_reports: PopReports,
        configuration: BrokerConfiguration,
        register_topic: Callable[[TopicConfig], "Deferred[None]"],
        deleted: Callable[[str], None],
    ) -> None:
        self._groups = tables.groups
        self._topics = tables.topics
        self._register_topic = register_topic
        self._deleted = deleted
        self._consumers = tables.consumers
        self._producers = tables.producers
        self._door_consumers = tables.door_consumers
        self._consumer_offsets = tables.consumer_offsets
        self._stats = stats
        self._consume_tables = consume_tables
        self._pop_reports = pop_reports
        self._configuration = configuration

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.update_group,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.all_groups,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.group_config,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.consumer_connections,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.producer_connections,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete_group,
            RequestCode.GET_CONSUME_STATS: self.consume_stats,
        }

    def update_group(
        self, channel: Channel, request: RemotingCommand
    ) -> "Deferred[RemotingCommand | None]":
        """
        Answer UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200): replace the whole configuration of a
        group. Attributes that the request does not name stay, as in RocketMQ 5.

        If its retry topic has fewer queues than the group's retryQueueNums, it gets as many.
        """
        refuse_on_slave(self._configuration)
        config = request.read(_read_group)
        fault = group_name_fault(config.group_name)
        if fault is not None:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, fault)
        queue_nums(config.retry_queue_nums, "retryQueueNums")
        config.attributes = _changed_attributes(
            self._groups.get(config.group_name), config.attributes
        )
        written = self._groups.update(config)
        retry = self._topics.get(RETRY_PREFIX + config.group_name)
        queues = config.retry_queue_nums
        if retry is None or min(retry.read_queue_nums, retry.write_queue_nums) >= queues:
            return answer_when_written(written, request)
        wider = replace(
            retry,
            read_queue_nums=max(retry.read_queue_nums, queues),
            write_queue_nums=max(retry.write_queue_nums, queues),
        )
        both: Deferred[Any] = gatherResults([written, self._topics.update(wider)])
        all_written: Deferred[bool] = both.addCallback(all)
        registered: Deferred[Any] = self._register_topic(wider)
        return registered.addBoth(lambda _: answer_when_written(all_written, request))

    def all_groups(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201) with all groups, for slaves and exports."""
        return fields.table_answer(request, self._groups)

    def group_config(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """
        Answer GET_SUBSCRIPTIONGROUP_CONFIG (352), which proxies of RocketMQ 5 ask for each group.

        An unknown group is created if a pull would create it.
        """
        name = fields.text(fields.header(request), "group")
        config = self._groups.find(name)
        if config is None:
            return request.response(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"No group in this broker. group: {name}"
            )
        return request.response(body=fastjson.encode({**_MEMBERS_OF_5, **to_members(config)}))

    def delete_group(
        self, channel: Channel, request: RemotingCommand
    ) -> "Deferred[RemotingCommand | None]":
        """
        Answer DELETE_SUBSCRIPTIONGROUP (207); delete the group's offsets too if the request asks
        for it.
        """
        refuse_on_slave(self._configuration)
        header = fields.header(request)
        group = fields.text(header, "groupName")
        written = self._groups.delete(group)
        self._stats.group_deleted(group)
        self._deleted(group)
        if fields.flag(header, "removeOffset"):
            self._consumer_offsets.remove_group(group)
        return answer_when_written(written, request)

    def consumer_connections(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """
        Answer GET_CONSUMER_CONNECTION_LIST (203) with the clients and subscriptions of a group, of
        remoting and of gRPC.
        """
        group = fields.text(fields.header(request), "consumerGroup")
        info, at_door = self._consumers.group(group), self._door_consumers.members(group)
        if info is None and not at_door:
            return request.response(
                ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online"
            )
        members = [] if info is None else list(info.members.values())
        known = info or ConsumerGroupInfo(group, CONSUME_TYPE, MODEL)
        body = ConsumerConnection(
            [_connection(client) for client in [*members, *at_door]],
            {**self._door_consumers.subscriptions(group), **known.subscriptions},
            known.consume_type,
            known.message_model,
            known.consume_from_where,
        )
        return request.response(body=body.encode())

    def producer_connections(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer GET_PRODUCER_CONNECTION_LIST (204) with the clients of a producer group."""
        group = fields.text(fields.header(request), "producerGroup")
        clients = self._producers.clients(group)
        if not clients:
            return request.response(
                ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist"
            )
        body = ProducerConnection([_connection(client) for client in clients])
        return request.response(body=body.encode())

    def consume_stats(self, channel: Channel, request: RemotingCommand) -> Answer:
        """
        Answer GET_CONSUME_STATS (208) for each read queue; the table of an unknown group is empty.

        With the header field `IN_FLIGHT`, answer with the messages that are out instead.
        """
        header = fields.header(request)
        group, topic = header.get("consumerGroup", ""), header.get("topic", "")
        if IN_FLIGHT in header:
            return self._pop_reports.answer(channel, request, group, topic)
        table: dict[MessageQueue, ConsumeOffset] = {}
        tps = 0.0
        for config in self._consume_tables.topics_of(group, [topic] if topic.strip() else None):
            table |= self._consume_tables.offsets(config, group, config.read_queue_nums)
            tps += self._stats.group_get_rate(config.topic_name, group)
        return request.response(body=ConsumeStats(table, tps).encode())


def _read_group(body: bytes) -> SubscriptionGroupConfig:
    """
    Read a group from the body of a request.

    :raises ProtocolViolation: the body is no group, or nests too deep for the file of all groups.
    """
    config = read_as(SubscriptionGroupConfig, body)
    fastjson.pretty_part(config, ENTRY_DEPTH)
    return config


def _changed_attributes(
    known: SubscriptionGroupConfig | None, asked: Mapping[str, str]
) -> dict[str, str]:
    """
    Return a group's attributes after the changes that a request asks for.

    :param asked: the changes. `-name` removes an attribute. A bare name comes from a copied group:
        the attribute is kept.
    :raises RequestRejected: `+name` sets an attribute to a new value: no attribute of groups is
        served.
    """
    after = {} if known is None else dict(known.attributes)
    for name, value in asked.items():
        if name.startswith("-"):
            after.pop(name[1:], None)
        elif not name.startswith("+"):
            after[name] = value
        elif after.get(name[1:]) != value:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"the attribute {name[1:]} is not served, as no attribute of a group is; "
                "retryMaxTimes and consumeMessageOrderly are members of the group itself",
            )
    return after


def _connection(client: ClientChannelInfo) -> Connection:
    return Connection(
        client.client_id,
        client.channel.remote_text,
        client.language,
        client.version,
        client.sdk or None,
    )
