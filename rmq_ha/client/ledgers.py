"""Ledgers of messages as JSON lines, which hooks write and `audit-messages` reads."""

import json
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

from rmq_ha.base.model.properties import KEYS, UNIQ_KEY
from rmq_ha.client.connection.hooks import SendContext
from rmq_ha.client.rules.messages import MessageExt

UNSTORED = "FAILED"


def produced_lines(context: SendContext, order_property: str = "") -> Iterator[str]:
    """
    Yield one line for each message of an attempt to send; call it in `SendHook.after_send`.

    :param order_property: the property whose value names the sequence that the message belongs to
        (a sharding key); empty if messages have no such property.
    """
    result, queue = context.result, context.queue
    status = UNSTORED if result is None else result.send_status.name
    for number, message in enumerate(context.messages):
        row: dict[str, Any] = {
            "topic": message.topic,
            "msgId": message.properties.get(UNIQ_KEY),
            "sentAt": context.started_ms,
            "status": status,
            "brokerName": queue.broker_name,
            "queueId": queue.queue_id,
        }
        if result is not None:
            row["queueOffset"] = result.queue_offset + number
        if KEYS in message.properties:
            row["keys"] = message.properties[KEYS]
        yield _line(row, message, order_property)


def delivered_lines(
    group: str, messages: Iterable[MessageExt], now_ms: int, order_property: str = ""
) -> Iterator[str]:
    """
    Yield one line for each message that a listener gets; call it in `ConsumeHook.before_consume`.

    :param now_ms: the current time, in ms since the epoch.
    """
    for message in messages:
        row: dict[str, Any] = {
            "topic": message.topic,
            "group": group,
            "msgId": message.msg_id,
            "deliveredAt": now_ms,
            "brokerName": message.broker_name,
            "queueId": message.queue_id,
            "queueOffset": message.queue_offset,
            "reconsumeTimes": message.reconsume_times,
        }
        yield _line(row, message, order_property)


def _line(row: dict[str, Any], message: Any, order_property: str) -> str:
    row["bodyCrc"] = zlib.crc32(message.body)
    if order_property and order_property in message.properties:
        row["orderKey"] = message.properties[order_property]
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"))
