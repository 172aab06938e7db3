"""Which permissions a request needs.

Spec: remoting.md, section 10.2.
"""

from collections.abc import Callable, Mapping

from rmq_ha.acl.permissions import PUB, SUB, group_resource
from rmq_ha.errors import ProtocolViolation, RequestRejected
from rmq_ha.model.topics import REPLY_SUFFIX, RETRY_PREFIX
from rmq_ha.wire.bodies import HeartbeatData
from rmq_ha.wire.codes import RequestCode, ResponseCode

Need = tuple[str, int]
Ext = Mapping[str, str]

ADMIN_CODES = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_TOPIC_IN_BROKER,
    }
)
# With these any account could make itself an admin, or read the secrets of one.
STRICT_ADMIN_CODES = ADMIN_CODES | {
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
    RequestCode.DELETE_ACL_CONFIG,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
}


def _send(topic_field: str, group_field: str) -> Callable[[Ext], list[Need]]:
    def needs(ext: Ext) -> list[Need]:
        topic = ext.get(topic_field)
        if topic is None:
            return []
        if topic.startswith(RETRY_PREFIX):
            return _group(ext, group_field)
        return [(topic, PUB)]

    return needs


def _strict_send(topic_field: str, group_field: str) -> Callable[[Ext], list[Need]]:
    """RocketMQ lets whoever may read with any group send to the retry topics of all."""
    send = _send(topic_field, group_field)

    def needs(ext: Ext) -> list[Need]:
        topic = ext.get(topic_field, "")
        return send(ext) + ([(topic, SUB)] if topic.startswith(RETRY_PREFIX) else [])

    return needs


def _reply(topic_field: str, group_field: str) -> Callable[[Ext], list[Need]]:
    """A reply is stored in the topic that it names, which need not be one for replies."""
    send = _strict_send(topic_field, group_field)
    return lambda ext: [] if ext.get(topic_field, "").endswith(REPLY_SUFFIX) else send(ext)


def _group(ext: Ext, name: str) -> list[Need]:
    group = ext.get(name)
    return [] if group is None else [(group_resource(group), SUB)]


def _topic(ext: Ext, name: str = "topic") -> list[Need]:
    topic = ext.get(name)
    return [] if topic is None else [(topic, SUB)]


_NEEDS: dict[int, Callable[[Ext], list[Need]]] = {
    RequestCode.SEND_MESSAGE: _send("topic", "group"),
    RequestCode.SEND_MESSAGE_V2: _send("b", "a"),
    RequestCode.CONSUMER_SEND_MSG_BACK: lambda ext: _group(ext, "group"),
    RequestCode.PULL_MESSAGE: lambda ext: _topic(ext) + _group(ext, "consumerGroup"),
    RequestCode.QUERY_MESSAGE: _topic,
    RequestCode.UNREGISTER_CLIENT: lambda ext: _group(ext, "consumerGroup"),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: lambda ext: _group(ext, "consumerGroup"),
    RequestCode.UPDATE_CONSUMER_OFFSET: lambda ext: _group(ext, "consumerGroup") + _topic(ext),
}
_STRICT_NEEDS = _NEEDS | {
    RequestCode.SEND_MESSAGE: _strict_send("topic", "group"),
    RequestCode.SEND_MESSAGE_V2: _strict_send("b", "a"),
    RequestCode.SEND_BATCH_MESSAGE: _strict_send("b", "a"),
    RequestCode.SEND_REPLY_MESSAGE: _reply("topic", "group"),
    RequestCode.SEND_REPLY_MESSAGE_V2: _reply("b", "a"),
}


def needs_of(code: int, ext: Ext, body: bytes | None, *, strict: bool) -> list[Need]:
    """
    Resources of a request, each with the permission that it needs.

    :param strict: batches and replies need what a single message needs.
    :raises RequestRejected: a heartbeat without a body that can be read.
    """
    if code == RequestCode.HEART_BEAT:
        return _heartbeat(body)
    find = (_STRICT_NEEDS if strict else _NEEDS).get(code)
    return [] if find is None else find(ext)


def _heartbeat(body: bytes | None) -> list[Need]:
    try:
        heartbeat = HeartbeatData.decode(body or b"")
    except ProtocolViolation as error:
        raise RequestRejected(
            ResponseCode.SYSTEM_ERROR, f"AclException: the heartbeat's body: {error}"
        ) from None
    needs = []
    for consumer in heartbeat.consumers:
        needs.append((group_resource(consumer.group_name), SUB))
        needs += [(item.topic, SUB) for item in consumer.subscriptions]
    return needs
