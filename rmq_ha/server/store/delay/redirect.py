"""A message that asks for a delay is stored in the schedule topic, in the queue of its level.

Spec: store.md, section 10.2.
"""

from dataclasses import replace

from rmq_ha.base.model.flags import TRANSACTION_PREPARED
from rmq_ha.base.model.message import Message
from rmq_ha.base.model.properties import (
    DELAY,
    REAL_QID,
    REAL_TOPIC,
    decode_properties,
    encode_properties,
)
from rmq_ha.base.model.topics import HALF_TOPIC, SCHEDULE_TOPIC
from rmq_ha.base.store_format.delay_levels import DELAY_MARK, delay_level_in, parse_delay_level


def delay_level(message: Message) -> int | None:
    """The level that the message asks for; 0 for none, None when it is no number."""
    if not message.properties:
        return delay_level_in(message.properties_string)
    text = message.properties.get(DELAY)
    return parse_delay_level(text) if text else 0


def redirect(message: Message, level: int, level_count: int) -> Message:
    """
    The message as it goes into the schedule topic; half, prepared and rolled-back ones stay.

    :param level: more than 0; capped to the highest there is.
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


def _stays(message: Message) -> bool:
    """
    Its delay counts from the commit.

    RocketMQ delays the half message itself, and drops it when it is due: the send was answered
    with SEND_OK, and nobody can end the transaction.
    """
    return message.topic == HALF_TOPIC or bool(message.sys_flag & TRANSACTION_PREPARED)


def stored_place(message: Message, level_count: int) -> tuple[str, int]:
    """Topic and queue id that the message is stored in, which a delay changes."""
    level = delay_level(message)
    if level is None or level < 1 or _stays(message):
        return message.topic, message.queue_id
    return SCHEDULE_TOPIC, min(level, level_count) - 1


def redirect_delayed(messages: list[Message], level_count: int) -> list[Message | None]:
    """
    Messages with those that ask for a delay redirected.

    :returns: None in the place of one whose DELAY is no number.
    """
    ready: list[Message | None] = []
    for message in messages:
        level = delay_level(message)
        if level is None:
            ready.append(None)
        else:
            ready.append(redirect(message, level, level_count) if level > 0 else message)
    return ready


def asks_for_delay(messages: list[Message]) -> bool:
    """Whether any of them has to be looked at for its delay."""
    for message in messages:
        if DELAY in message.properties or (
            not message.properties and DELAY_MARK in message.properties_string
        ):
            return True
    return False
