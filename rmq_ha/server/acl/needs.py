"""The permissions that a request needs with RocketMQ 4.9.7 (`aclStrict=false`).

RocketMQ checks only a few codes, and leaves all others to anybody. `rmq_ha.server.acl.table` has a
row for every code. Pops, which 4.9 does not know, need what pulls need.

Spec: remoting.md, section 10.2.
"""

from collections.abc import Callable, Mapping

from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.model.pop_topics import original_topic
from rmq_ha.base.model.subscription import SubscriptionData
from rmq_ha.base.model.topics import RETRY_PREFIX
from rmq_ha.base.wire.bodies import HeartbeatData
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.acl.permissions import PUB, SUB, group_resource

Need = tuple[str, int]
Ext = Mapping[str, str]

ADMIN_CODES = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.AUTH_CREATE_USER,
        RequestCode.AUTH_UPDATE_USER,
        RequestCode.AUTH_DELETE_USER,
        RequestCode.AUTH_GET_USER,
        RequestCode.AUTH_LIST_USER,
        RequestCode.AUTH_CREATE_ACL,
        RequestCode.AUTH_UPDATE_ACL,
        RequestCode.AUTH_DELETE_ACL,
        RequestCode.AUTH_GET_ACL,
        RequestCode.AUTH_LIST_ACL,
    }
)


def _send(topic_field: str, group_field: str) -> Callable[[Ext], list[Need]]:
    def needs(ext: Ext) -> list[Need]:
        topic = ext.get(topic_field)
        if topic is None:
            return []
        if topic.startswith(RETRY_PREFIX):
            return _group(ext, group_field)
        return [(topic, PUB)]

    return needs


def _group(ext: Ext, name: str) -> list[Need]:
    group = ext.get(name)
    return [] if group is None else [(group_resource(group), SUB)]


def _topic(ext: Ext, name: str = "topic") -> list[Need]:
    topic = ext.get(name)
    return [] if topic is None else [(topic, SUB)]


def _reads(ext: Ext) -> list[Need]:
    """Return the needs of reads and commits: a retry topic of pops counts as its own topic."""
    topic, group = ext.get("topic"), ext.get("consumerGroup", "")
    needs = [] if topic is None else [(original_topic(group, topic), SUB)]
    return needs + _group(ext, "consumerGroup")


def _pop_needs(ext: Ext) -> list[Need]:
    group, topic = ext.get("consumerGroup", ""), ext.get("topic", "")
    return [(group_resource(group), SUB), (original_topic(group, topic), SUB)]


_NEEDS: dict[int, Callable[[Ext], list[Need]]] = {
    RequestCode.SEND_MESSAGE: _send("topic", "group"),
    RequestCode.SEND_MESSAGE_V2: _send("b", "a"),
    RequestCode.CONSUMER_SEND_MSG_BACK: lambda ext: _group(ext, "group"),
    RequestCode.PULL_MESSAGE: _reads,
    RequestCode.QUERY_MESSAGE: _topic,
    RequestCode.UNREGISTER_CLIENT: lambda ext: _group(ext, "consumerGroup"),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: lambda ext: _group(ext, "consumerGroup"),
    RequestCode.UPDATE_CONSUMER_OFFSET: _reads,
    RequestCode.POP_MESSAGE: _pop_needs,
    RequestCode.ACK_MESSAGE: _pop_needs,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _pop_needs,
    RequestCode.PEEK_MESSAGE: _pop_needs,
}


def needs_of(request: RemotingCommand) -> list[Need]:
    """
    Return the resources of a request, each with the permission that it needs.

    :raises RequestRejected: it is a heartbeat whose body cannot be read.
    """
    if request.code == RequestCode.HEART_BEAT:
        return heartbeat(request)
    find = _NEEDS.get(request.code)
    return [] if find is None else find(request.ext or {})


def heartbeat(request: RemotingCommand) -> list[Need]:
    """
    Return the needs of a heartbeat: SUB on its consumer groups, and on the topics that they
    subscribe.

    :raises RequestRejected: the heartbeat cannot be read.
    """
    needs: list[Need] = []
    for consumer in request.read(HeartbeatData.decode).consumers:
        needs.append((group_resource(consumer.group_name), SUB))
        needs += [subscribed(item, consumer.group_name) for item in consumer.subscriptions]
    return needs


def subscribed(subscription: SubscriptionData, group: str) -> Need:
    """
    Return the need of a subscription: SUB on its topic; for a retry topic of pops, on the topic
    that it is for.

    :raises RequestRejected: the topic is no string.
    """
    topic: object = subscription.topic
    if not isinstance(topic, str):
        raise RequestRejected(
            ResponseCode.SYSTEM_ERROR,
            f"AclException: the topic of a subscription is {topic!r:.100}",
        )
    return original_topic(group, topic), SUB
