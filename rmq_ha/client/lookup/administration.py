"""Requests that change topics, groups and settings of brokers, and that list connected clients.

Spec: remoting.md, sections 2.2, 7.5, 7.7 and 7.9.
"""

from collections.abc import Mapping
from typing import NamedTuple

from rmq_ha.base.config import properties
from rmq_ha.base.model.attributes import format_changes
from rmq_ha.base.model.subscription import SubscriptionData
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig, TopicConfig
from rmq_ha.base.model.topics import DEFAULT_TOPIC
from rmq_ha.base.wire.bodies import read_body
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.fastjson import encode
from rmq_ha.base.wire.stat_bodies import Connection, ConsumerConnection, ProducerTable
from rmq_ha.client.lookup.asking import Ask, Asking, expect

_NOBODY = (ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SYSTEM_ERROR)


def put_topic(address: str, topic: TopicConfig, before: TopicConfig | None = None) -> Asking[None]:
    """
    Create or change a topic on one broker.

    :param before: the topic as the broker has it, whose attributes are changed to the new ones.
    :raises BrokerRefused: the broker refuses, as a slave always does.
    :raises RemotingError: the broker does not answer.
    """
    ext = {
        "topic": topic.topic_name,
        "defaultTopic": DEFAULT_TOPIC,
        "readQueueNums": str(topic.read_queue_nums),
        "writeQueueNums": str(topic.write_queue_nums),
        "perm": str(topic.perm),
        "topicFilterType": topic.topic_filter_type,
        "topicSysFlag": str(topic.topic_sys_flag),
        "order": "true" if topic.order else "false",
    }
    attributes = format_changes(before.attributes if before else {}, topic.attributes)
    if attributes:
        ext["attributes"] = attributes
    yield from expect(Ask(RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, ext), address))


def delete_topic(address: str, topic: str) -> Asking[None]:
    """Delete a topic and its messages on one broker; raises as `put_topic` does."""
    command = RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
    yield from expect(Ask(command, address))


def forget_topic(name_server: str, topic: str) -> Asking[None]:
    """Delete the routes of a topic at one name server; raises as `put_topic` does."""
    command = RemotingCommand(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": topic})
    yield from expect(Ask(command, name_server))


def put_group(address: str, group: SubscriptionGroupConfig) -> Asking[None]:
    """Create or change a consumer group on one broker; raises as `put_topic` does."""
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    yield from expect(Ask(RemotingCommand(code, None, encode(group)), address))


def delete_group(address: str, group: str, *, offsets: bool) -> Asking[None]:
    """
    Delete a consumer group on one broker; raises as `put_topic` does.

    :param offsets: whether to delete the group's offsets too.
    """
    ext = {"groupName": group, "removeOffset": "true" if offsets else "false"}
    yield from expect(Ask(RemotingCommand(RequestCode.DELETE_SUBSCRIPTIONGROUP, ext), address))


def change_config(address: str, changes: Mapping[str, str]) -> Asking[None]:
    """Change settings of a running broker; raises as `put_topic` does."""
    body = properties.format_properties(changes.items()).encode()
    command = RemotingCommand(RequestCode.UPDATE_BROKER_CONFIG, None, body)
    yield from expect(Ask(command, address))


def clean(address: str, code: RequestCode) -> Asking[None]:
    """Have one broker do a periodic deletion now; raises as `put_topic` does."""
    yield from expect(Ask(RemotingCommand(code), address))


class ConnectedMembers(NamedTuple):
    """
    The members of a consumer group, as one broker knows them.

    :ivar how: the group's way to consume: the values of consumeType, messageModel and
        consumeFromWhere.
    """

    connections: list[Connection]
    subscriptions: dict[str, SubscriptionData]
    how: dict[str, str | None]


def members_of(address: str, group: str) -> Asking[ConnectedMembers]:
    """Ask for a group's members; empty if it has none. Raises as `put_topic` does."""
    command = RemotingCommand(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group})
    response = yield from expect(Ask(command, address), _NOBODY)
    if response.code:
        return ConnectedMembers([], {}, {})
    listing = ConsumerConnection.decode(response.body or b"{}")
    how = {
        "consumeType": listing.consume_type,
        "messageModel": listing.message_model,
        "consumeFromWhere": listing.consume_from_where,
    }
    return ConnectedMembers(listing.connections, dict(listing.subscriptions), how)


def producers_at(address: str) -> Asking[dict[str, list[Connection]]]:
    """Ask for all producers of one broker, by group; raises as `put_topic` does."""
    response = yield from expect(Ask(RemotingCommand(RequestCode.GET_ALL_PRODUCER_INFO), address))
    return {
        group: [
            Connection(it.client_id, it.remote_ip.lstrip("/"), it.language, it.version)
            for it in clients
        ]
        for group, clients in ProducerTable.decode(response.body or b"{}").data.items()
    }


def lag_by_group(address: str) -> Asking[dict[str, int]]:
    """Ask how many messages each group has to consume yet; raises as `put_topic` does."""
    command = RemotingCommand(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"})
    response = yield from expect(Ask(command, address))
    return read_body(
        response.body or b"{}",
        lambda value: {
            str(group): sum(
                int(item["brokerOffset"]) - int(item["consumerOffset"])
                for stats in rows
                for item in (stats.get("offsetTable") or {}).values()
            )
            for entry in value.get("consumeStatsList") or ()
            for group, rows in entry.items()
        },
        None,
    )
