"""Requests that a client sends, built from plain values.

Spec: remoting.md, chapters 4, 6 and 9.5.
"""

from rmq_ha.model.flags import PULL_SUBSCRIPTION, PULL_SUSPEND
from rmq_ha.model.topics import DEFAULT_TOPIC
from rmq_ha.wire.command import RemotingCommand

SEND_MESSAGE_V2 = 310
PULL_MESSAGE = 11
GET_ROUTEINFO_BY_TOPIC = 105


def send_request(
    group: str, topic: str, queue_id: int, body: bytes, properties: str, born_timestamp: int
) -> RemotingCommand:
    """
    SEND_MESSAGE_V2 of one message.

    :param properties: the property string, with UNIQ_KEY if the message shall be found by id.
    :param born_timestamp: ms since the epoch.
    """
    ext = {
        "a": group,
        "b": topic,
        "c": DEFAULT_TOPIC,
        "d": "4",
        "e": str(queue_id),
        "f": "0",
        "g": str(born_timestamp),
        "h": "0",
        "i": properties,
        "j": "0",
        "k": "false",
        "m": "false",
    }
    return RemotingCommand(SEND_MESSAGE_V2, ext, body or None)


def pull_request(
    group: str, topic: str, queue_id: int, queue_offset: int, max_nums: int = 32, hold_ms: int = 0
) -> RemotingCommand:
    """
    PULL_MESSAGE of everything in a queue, without committing an offset.

    :param hold_ms: how long the broker may hold the request when there is nothing new.
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
    return RemotingCommand(PULL_MESSAGE, ext)


def route_request(topic: str) -> RemotingCommand:
    """GET_ROUTEINFO_BY_TOPIC; the answer's body has quoted broker ids."""
    return RemotingCommand(
        GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": "true"}
    )
