"""Requests for a broker's settings, runtime info and tables.

Spec: remoting.md, sections 7.5, 7.7 and 7.9, chapter 8.
"""

import json
from typing import Any

from rmq_ha.base.config import properties
from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig, TopicConfig
from rmq_ha.base.wire.bodies import (
    GroupTable,
    MessageQueue,
    TopicTable,
    decode_kv_table,
    decode_offset_table,
    decode_queue_table,
)
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.pages import FIRST, next_page
from rmq_ha.base.wire.stat_bodies import REPLICATION_KEY, TopicOffset
from rmq_ha.client.lookup.asking import Ask, Asking, expect

Offsets = dict[str, dict[int, int]]
"""Offsets by `topic@group`, and then by queue id."""


def broker_config(address: str) -> Asking[dict[str, str]]:
    """
    Ask for a broker's settings, including defaults.

    :raises BrokerRefused: the broker refuses.
    :raises RemotingError: the broker does not answer.
    """
    response = yield from expect(Ask(RemotingCommand(RequestCode.GET_BROKER_CONFIG), address))
    text = (response.body or b"").decode("utf-8", "replace")
    return {item.key: item.value for item in properties.parse(text)}


def runtime_info(address: str) -> Asking[dict[str, str]]:
    """Ask for a broker's counters, rates and log offsets; raises as `broker_config` does."""
    command = RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO, {REPLICATION_KEY: "true"})
    response = yield from expect(Ask(command, address))
    return decode_kv_table(response.body or b"{}")


def replication_of(info: dict[str, str]) -> dict[str, Any]:
    """Return what a broker of rmq-ha tells of its replication; empty for a broker of RocketMQ."""
    try:
        replication = json.loads(info.get(REPLICATION_KEY, "{}"))
    except (ValueError, RecursionError):  # RecursionError: the JSON is nested too deeply
        return {}
    return replication if isinstance(replication, dict) else {}


def topic_configs(address: str) -> Asking[dict[str, TopicConfig]]:
    """Ask for all topics of a broker; raises as `broker_config` does."""
    return (yield from topic_table(address)).topics


def topic_table(address: str) -> Asking[TopicTable]:
    """Ask for all topics with the table's version, which says when it was changed last."""
    bodies = yield from _pages(address, RequestCode.GET_ALL_TOPIC_CONFIG)
    pages = [TopicTable.decode(body) for body in bodies]
    return TopicTable(pages[-1].version, {k: v for page in pages for k, v in page.topics.items()})


def group_configs(address: str) -> Asking[dict[str, SubscriptionGroupConfig]]:
    """Ask for all consumer groups of a broker; raises as `broker_config` does."""
    bodies = yield from _pages(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    return {k: v for body in bodies for k, v in GroupTable.decode(body).groups.items()}


def consumer_offsets(address: str) -> Asking[Offsets]:
    """Ask for the offsets of all groups; raises as `broker_config` does."""
    bodies = yield from _pages(address, RequestCode.GET_ALL_CONSUMER_OFFSET)
    return {k: v for body in bodies for k, v in decode_offset_table(body).items()}


def topic_offsets(address: str, topic: str) -> Asking[dict[MessageQueue, TopicOffset]]:
    """Ask for the first and last offsets of a topic's queues; empty if the topic does not exist."""
    command = RemotingCommand(RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
    response = yield from expect(Ask(command, address), (ResponseCode.TOPIC_NOT_EXIST,))
    if response.code:
        return {}
    try:
        return {
            queue: TopicOffset(
                int(item["minOffset"]), int(item["maxOffset"]), int(item["lastUpdateTimestamp"])
            )
            for queue, item in decode_queue_table(response.body or b"{}").items()
        }
    except (TypeError, KeyError, ValueError):
        raise ProtocolViolation(f"{address} tells the offsets of {topic} in another form") from None


def _pages(address: str, code: RequestCode) -> Asking[list[bytes]]:
    """Ask for all pages of a table; a broker without paging answers with one page."""
    bodies: list[bytes] = []
    first: int | None = 0
    while first is not None:
        response = yield from expect(Ask(RemotingCommand(code, {FIRST: str(first)}), address))
        bodies.append(response.body or b"{}")
        first = next_page(response.ext, first)
    return bodies
