"""Registers connected clients and their groups: codes 34, 35 and 46.

Spec: remoting.md, sections 7.1 and 7.2.
"""

from dataclasses import replace
from typing import cast

from twisted.logger import Logger

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.errors import InvalidSelector, RequestRejected
from rmq_ha.base.model.flags import TOPIC_UNIT_SUB
from rmq_ha.base.model.subscription import TAG_TYPES
from rmq_ha.base.model.topics import RETRY_PREFIX
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.seams import Times
from rmq_ha.base.wire.bodies import CheckClient, ConsumerData, HeartbeatData
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.duplicates import WINDOW
from rmq_ha.server.broker.frame_limits import FILTERS, GROUPS, SUBSCRIPTIONS, FrameLimits
from rmq_ha.server.broker.notify import ConsumerIdsNotifier
from rmq_ha.server.broker.processors import fields
from rmq_ha.server.broker.processors.fields import Handler
from rmq_ha.server.broker.processors.pull_filters import not_supported
from rmq_ha.server.broker.tables.broker_tables import BrokerTables
from rmq_ha.server.broker.tables.clients import (
    ClientChannelInfo,
    ConsumerGroupInfo,
)

_DEFAULTS = ConsumerGroupInfo("")
_MOST_MISSING = 1000


class HeartbeatProcessor:
    """
    Registers clients by their heartbeats, and forgets them when their connection closes.

    A broker with `duplicateWindowMillis` tells its clients for how long it recognizes repeated
    sends.
    """

    log = Logger()

    def __init__(
        self,
        *,
        tables: BrokerTables,
        notifier: ConsumerIdsNotifier,
        configuration: BrokerConfiguration,
        limits: FrameLimits,
        times: Times,
    ) -> None:
        window_ms = configuration.ours.duplicate_window_millis
        self._told = {WINDOW: str(window_ms)} if window_ms else None
        self._topics = tables.topics
        self._groups = tables.groups
        self._consumers = tables.consumers
        self._producers = tables.producers
        self._notifier = notifier
        self._filters = tables.consumer_filters
        self._config = configuration.broker
        self._limits = limits
        self._now_ms = times.now_ms
        self._steady_ms = times.steady_ms
        self._channels: dict[Channel, str] = {}
        self._direct: dict[str, Channel] = {}
        self._relayed: dict[str, Channel] = {}
        self._missing: set[str] = set()

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_client_config,
        }

    def heartbeat(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """
        Answer HEART_BEAT (34): register the groups of a client, and the subscriptions of its
        consumers.

        If it changes a consumer group, the group's members are notified before the response.
        """
        data = request.read(HeartbeatData.decode)
        if not channel.is_open or not (data.consumers or data.producer_groups):
            return request.response(ext=self._told)
        _check(data)
        self._check_size(data)
        grant = request.grant
        client = ClientChannelInfo(
            channel,
            data.client_id,
            request.language,
            request.version,
            self._now_ms(),
            self._steady_ms(),
            None if grant is None else grant.owner,
        )
        if channel.is_relayed and data.client_id in self._direct:
            return request.response(ext=self._told)
        self._watch(channel, data.client_id)
        for item in data.consumers:
            self._register_consumer(item, client)
        for group in data.producer_groups:
            if grant is None or grant.may_settle(group):
                self._producers.register(group, client)
            else:  # it still gets replies to its request messages
                self._producers.register(group, replace(client, may_settle=False))
        if not channel.is_relayed and data.client_id in self._relayed:
            self._closed(self._relayed[data.client_id])
        return request.response(ext=self._told)

    def unregister(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """
        Answer UNREGISTER_CLIENT (35): remove the connection from the groups that the request names.
        """
        header = fields.header(request)
        producer_group = header.get("producerGroup")
        if producer_group is not None:
            self._producers.unregister(producer_group, channel)
        consumer_group = header.get("consumerGroup")
        if consumer_group is not None and self._consumers.unregister(consumer_group, channel):
            self._notifier.notify(consumer_group)
        return request.response(ext={})

    def check_client_config(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """
        Answer CHECK_CLIENT_CONFIG (46): whether this broker supports a subscription's expression.
        """
        subscription = request.read(CheckClient.decode).subscription
        if subscription is None or subscription.expression_type in TAG_TYPES:
            return request.response()
        kind = str(subscription.expression_type)
        if not self._config.enable_property_filter:
            raise not_supported(kind)
        try:
            self._filters.compile(kind, str(subscription.sub_string))
        except InvalidSelector as error:
            return request.response(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"Invalid MessageSelector: {error}"
            )
        return request.response()

    def close_expired(self) -> None:
        """Close connections whose last heartbeat is too old; called every 10 s."""
        now_ms = self._steady_ms()
        expired = [*self._consumers.expired(now_ms), *self._producers.expired(now_ms)]
        for channel in dict.fromkeys(expired):
            cast(Channel, channel).close()

    def _check_size(self, data: HeartbeatData) -> None:
        subscriptions = [
            subscription for item in data.consumers for subscription in item.subscriptions
        ]
        expressions = [
            subscription.sub_string
            for subscription in subscriptions
            if subscription.expression_type not in TAG_TYPES
        ]
        self._limits.check(GROUPS, len(data.consumers) + len(data.producer_groups))
        self._limits.check(SUBSCRIPTIONS, len(subscriptions))
        self._limits.check(FILTERS, sum(map(len, expressions)))

    def _watch(self, channel: Channel, client_id: str) -> None:
        """
        Note whose connection this is. A client that comes itself replaces its connection by way of
        a former master: with two it would count twice where a group's queues are divided.
        """
        if channel not in self._channels:
            channel.on_close(self._closed)
        self._channels[channel] = client_id
        (self._relayed if channel.is_relayed else self._direct)[client_id] = channel

    def _closed(self, channel: Channel) -> None:
        client_id = self._channels.pop(channel, "")
        known = self._relayed if channel.is_relayed else self._direct
        if known.get(client_id) is channel:
            del known[client_id]
        self._producers.channel_closed(channel)
        self._notifier.channel_closed(channel)

    def _register_consumer(self, item: ConsumerData, client: ClientChannelInfo) -> None:
        group = item.group_name
        self._create(group, item.unit_mode)
        if self._consumers.register(
            group,
            client,
            item.consume_type or _DEFAULTS.consume_type,
            item.message_model or _DEFAULTS.message_model,
            item.consume_from_where or _DEFAULTS.consume_from_where,
            item.subscriptions,
        ):
            self._notifier.notify(group)
        self._filters.register(group, item.subscriptions)

    def _create(self, group: str, unit_mode: bool) -> None:
        """
        Create the group, if the settings allow that, and its retry topic. Do nothing while this
        broker is not the master.
        """
        try:
            self._topics.check_creation()
        except RequestRejected:
            return
        config = self._groups.find(group)
        if config is None:
            self._tell_missing(group)
        else:
            self._missing.discard(group)
            self._topics.create_in_send_back(
                RETRY_PREFIX + group, config.retry_queue_nums, TOPIC_UNIT_SUB if unit_mode else 0
            )

    def _tell_missing(self, group: str) -> None:
        """Log a missing group once: its consumers get neither messages nor an error."""
        if group not in self._missing and len(self._missing) < _MOST_MISSING:
            self._missing.add(group)
            self.log.warn(
                "consumers of the group {group} get nothing: this broker does not have the group, "
                "and makes none by itself; rmqha-admin group create makes it",
                group=group,
            )


def _check(data: HeartbeatData) -> None:
    """
    Check that names exist and texts are strings, before anything is changed.

    :raises RequestRejected: a name is missing, or a text is not a string.
    """
    names = [data.client_id, *data.producer_groups]
    texts: list[object] = []
    for item in data.consumers:
        names.append(item.group_name)
        for subscription in item.subscriptions:
            texts += (subscription.topic, subscription.sub_string)
            texts.append(subscription.expression_type or "")
    if not all(names) or not all(isinstance(text, str) for text in texts):
        raise RequestRejected(
            ResponseCode.SYSTEM_ERROR,
            "the heartbeat names no clientID or groupName, or a subscription has no strings",
        )
