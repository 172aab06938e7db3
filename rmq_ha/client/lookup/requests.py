"""Requests that a client sends, built from plain values.

Spec: remoting.md, chapters 4, 6 and 9.5.
"""

from rmq_ha.base.model.flags import PULL_SUBSCRIPTION, PULL_SUSPEND
from rmq_ha.base.model.topics import DEFAULT_TOPIC
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.send_header import SendHeader, encode_send_header


def send_request(
    group: str, topic: str, queue_id: int, body: bytes, properties: str, born_timestamp: int
) -> RemotingCommand:
    """
    Make a SEND_MESSAGE_V2 request with one message.

    :param properties: the property string, with UNIQ_KEY if the message shall be found by id.
    :param born_timestamp: when the message was made, in ms since the epoch.
    """
    header = SendHeader(
        producer_group=group,
        topic=topic,
        default_topic=DEFAULT_TOPIC,
        default_topic_queue_nums=4,
        queue_id=queue_id,
        born_timestamp=born_timestamp,
        properties=properties,
    )
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, encode_send_header(header), body or None)


def pull_request(
    group: str, topic: str, queue_id: int, queue_offset: int, max_nums: int = 32, hold_ms: int = 0
) -> RemotingCommand:
    """
    Make a PULL_MESSAGE request for all messages of a queue, which commits no offset.

    :param hold_ms: how long the broker may hold the request if it finds no message, in ms.
    """
    ext = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": str(queue_id),
        "queueOffset": str(queue_offset),
        "maxMsgNums": str(max_nums),
        "sysFlag": str(PULL_SUBSCRIPTION | (PULL_SUSPEND if hold_ms else 0)),
        "commitOffset": "0",
        "suspendTimeoutMillis": str(hold_ms),
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    return RemotingCommand(RequestCode.PULL_MESSAGE, ext)


def route_request(topic: str) -> RemotingCommand:
    """Make a GET_ROUTEINFO_BY_TOPIC request; the answer's body has quoted broker ids."""
    return RemotingCommand(
        RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": "true"}
    )
