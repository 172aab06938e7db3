"""Stores a message that asks for a delay in the schedule topic, in the queue of its level.

Spec: store.md, section 10.2.
"""

from dataclasses import replace

from rmq_ha.base.model.flags import TRANSACTION_PREPARED
from rmq_ha.base.model.message import BrokerMessage
from rmq_ha.base.model.properties import (
    DELAY,
    REAL_QID,
    REAL_TOPIC,
    decode_properties,
    encode_properties,
)
from rmq_ha.base.model.topics import HALF_TOPIC, SCHEDULE_TOPIC
from rmq_ha.base.store_format.delay_levels import DELAY_MARK, delay_level_in, parse_delay_level


def delay_level(message: BrokerMessage) -> int | None:
    """
    Return the level that the message asks for; 0 if it asks for none, None if its DELAY is not a
    number.
    """
    if not message.properties:
        return delay_level_in(message.properties_string)
    text = message.properties.get(DELAY)
    return parse_delay_level(text) if text else 0


def redirect(message: BrokerMessage, level: int, level_count: int) -> BrokerMessage:
    """
    Return the message as it is stored in the schedule topic.

    Messages of a transaction that is not committed stay as they are.

    :param level: more than 0; a level above the highest becomes the highest.
    """
    if _stays(message):
        return message
    level = min(level, level_count)
    properties = dict(message.properties or decode_properties(message.properties_string))
    properties[DELAY] = str(level)
    properties[REAL_TOPIC] = message.topic
    properties[REAL_QID] = str(message.queue_id)
    return replace(
        message,
        topic=SCHEDULE_TOPIC,
        queue_id=level - 1,
        properties=properties,
        properties_string=encode_properties(properties),
    )


def _stays(message: BrokerMessage) -> bool:
    """
    Return whether the message's delay begins only with the commit of its transaction.

    RocketMQ delays the half message itself, and drops it when it is due. The send was answered with
    SEND_OK, but nobody can end the transaction.
    """
    return message.topic == HALF_TOPIC or bool(message.sys_flag & TRANSACTION_PREPARED)


def stored_place(message: BrokerMessage, level_count: int) -> tuple[str, int]:
    """Return topic and queue id where the message is stored: a delay changes both."""
    level = delay_level(message)
    if level is None or level < 1 or _stays(message):
        return message.topic, message.queue_id
    return SCHEDULE_TOPIC, min(level, level_count) - 1


def redirect_delayed(messages: list[BrokerMessage], level_count: int) -> list[BrokerMessage | None]:
    """
    Return the messages, each with a delay redirected to the schedule topic.

    :returns: None in the place of a message whose DELAY is not a number.
    """
    ready: list[BrokerMessage | None] = []
    for message in messages:
        level = delay_level(message)
        if level is None:
            ready.append(None)
        else:
            ready.append(redirect(message, level, level_count) if level > 0 else message)
    return ready


def asks_for_delay(messages: list[BrokerMessage]) -> bool:
    """Return whether any message may ask for a delay."""
    for message in messages:
        if DELAY in message.properties or (
            not message.properties and DELAY_MARK in message.properties_string
        ):
            return True
    return False
