"""Makes the records that the store keeps for timer messages: those that wait, and recalls of them.

A message is *due* at the ms before which no consumer may see it.

Spec: timer.md, sections 3, 4 and 13.1.
"""

import re
from collections.abc import Mapping
from dataclasses import replace

from rmq_ha.base.model.message import Address, BrokerMessage
from rmq_ha.base.model.properties import (
    MAX_PROPERTIES_SIZE,
    PGROUP,
    REAL_QID,
    REAL_TOPIC,
    TAGS,
    TIMER_ASKS,
    TIMER_DEL_UNIQKEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_DEQUEUE_MS,
    TIMER_ENQUEUE_MS,
    TIMER_OUT_MS,
    TIMER_ROLL_TIMES,
    TIMER_SRC,
    UNIQ_KEY,
    WAIT,
    encode_properties,
)
from rmq_ha.base.model.topics import TIMER_TOPIC
from rmq_ha.base.model.unserved_properties import asks_for_timer, has_level
from rmq_ha.base.store_format.timer_times import out_for

RESERVE = 160
"""Bytes by which the properties of a delivery or rolled copy may exceed those of its record."""
RECALL_TAG = "_RECALL_TAG_"
_OF_BROKERS = (
    TIMER_OUT_MS,
    TIMER_ENQUEUE_MS,
    TIMER_DEQUEUE_MS,
    TIMER_ROLL_TIMES,
    REAL_TOPIC,
    REAL_QID,
)
"""Properties that brokers write into timer messages. A consumer that sends a message on may leave
them in it, and ask for a new delay all the same."""
_UNIT_MS = {TIMER_DELAY_SEC: 1000, TIMER_DELAY_MS: 1}
_LONG = re.compile(r"[+-]?\d+")
_LONG_MAX = 2**63 - 1


def drop_written_by_brokers(properties: dict[str, str]) -> None:
    """
    Remove properties that only brokers may write, from a message that a client sends.

    TIMER_SRC is removed from every message, because it would settle a waiting message.
    """
    properties.pop(TIMER_SRC, None)
    if asks_for_timer(properties):
        for name in _OF_BROKERS:
            properties.pop(name, None)
    elif has_level(properties):
        for name in TIMER_ASKS:
            properties.pop(name, None)


def asked_due(properties: Mapping[str, str], now_ms: int) -> int | None:
    """
    Return when a message that asks for a timer is due, in ms; None if its time cannot be read, or
    has no place in 64 bits.

    RocketMQ lets a time above 64 bits overflow, and delivers the message at once.
    """
    name = next(name for name in TIMER_ASKS if properties.get(name))
    text = properties[name]
    if not _LONG.fullmatch(text):
        return None
    try:
        number = int(text)
    except ValueError:  # thousands of digits
        return None
    if not -_LONG_MAX <= number <= _LONG_MAX:
        return None
    due = number if name == TIMER_DELIVER_MS else now_ms + number * _UNIT_MS[name]
    return due if due <= _LONG_MAX else None


def waiting_record(message: BrokerMessage, due_ms: int) -> BrokerMessage:
    """Return the record that keeps a message until it is due."""
    properties = {
        **message.properties,
        TIMER_OUT_MS: str(out_for(due_ms)),
        REAL_TOPIC: message.topic,
        REAL_QID: str(message.queue_id),
    }
    return with_properties(replace(message, topic=TIMER_TOPIC, queue_id=0), properties)


def has_room(properties_string: str) -> bool:
    """Return whether properties leave room for those that a delivery has besides."""
    size = len(properties_string.encode("utf-8", "replace"))
    return size + RESERVE <= MAX_PROPERTIES_SIZE


def recall_record(
    topic: str,
    unique_key: str,
    out_ms: int,
    *,
    now_ms: int,
    born: Address,
    store: Address,
    group: str = "",
    source: str = "",
    with_topic: bool = True,
) -> BrokerMessage:
    """
    Return the record that recalls a waiting message.

    :param out_ms: TIMER_OUT_MS of the waiting record.
    :param group: the producer group that recalls it; empty if nobody said so.
    :param source: TIMER_SRC of the waiting record; empty to recall all of topic, key and time.
    :param with_topic: write the key as `<topic>+<unique key>`, as RocketMQ 5.3 does.
    """
    properties = {
        TIMER_DEL_UNIQKEY: f"{topic}+{unique_key}" if with_topic else unique_key,
        UNIQ_KEY: unique_key,
        TAGS: RECALL_TAG,
        TIMER_DELIVER_MS: str(out_ms + 1),
        "BORN_TIMESTAMP": str(now_ms),
        TIMER_OUT_MS: str(out_ms),
        REAL_TOPIC: topic,
        REAL_QID: "0",
    }
    if group:
        properties[PGROUP] = group
    if source:
        properties[TIMER_SRC] = source
    return BrokerMessage(
        TIMER_TOPIC,
        0,
        b"0",
        born,
        store,
        now_ms,
        properties=properties,
        properties_string=encode_properties(properties),
    )


def with_properties(message: BrokerMessage, properties: dict[str, str]) -> BrokerMessage:
    """Return a message with other properties; WAIT is left out of those that are stored."""
    stored = {name: text for name, text in properties.items() if name != WAIT}
    return replace(message, properties=properties, properties_string=encode_properties(stored))
