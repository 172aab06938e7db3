"""What happens to a message before and after it is appended.

Spec: store.md, sections 2.6 to 2.8, 7.4 and 10.2.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from rmq_ha.model.flags import TRANSACTION_PREPARED
from rmq_ha.model.message import AppendResult, Message, PutMessageResult, Row, offset_msg_id
from rmq_ha.model.properties import (
    DELAY,
    REAL_QID,
    REAL_TOPIC,
    decode_properties,
    encode_properties,
)
from rmq_ha.model.status import PutMessageStatus
from rmq_ha.model.topics import HALF_TOPIC, SCHEDULE_TOPIC
from rmq_ha.store.format.commitlog import parse_delay_level

Decided = Callable[[PutMessageStatus, float], None]
"""Hears once how a wait ended, and what the clock says; perhaps before it is told that it waits."""

_DELAY_MARK = f"{DELAY}\x01"


def delay_level(message: Message) -> int | None:
    """The level that the message asks for; 0 for none, None when it is no number."""
    if not message.properties:
        return delay_level_in(message.properties_string)
    text = message.properties.get(DELAY)
    return parse_delay_level(text) if text else 0


def delay_level_in(properties_string: str) -> int | None:
    """The same of properties as they are stored."""
    if _DELAY_MARK not in properties_string:
        return 0
    text = decode_properties(properties_string).get(DELAY)
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


def results_of(
    messages: Sequence[Message | None],
    status: PutMessageStatus,
    rows: Iterable[Row | None],
    others: Mapping[int, PutMessageStatus],
) -> list[PutMessageResult]:
    """
    What became of messages, by name.

    :param messages: as `redirect_delayed` leaves them.
    :param status: as `rmq_ha.store.settle.Done` gets them, of those that are not None.
    """
    settled = enumerate(rows)
    results: list[PutMessageResult] = []
    for message in messages:
        if message is None:
            results.append(PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL))
            continue
        number, row = next(settled)
        append = None
        if row is not None:
            msg_id = offset_msg_id(message.store_host, row[2])
            append = AppendResult(row[2], row[3], row[5], row[6], 1, msg_id)
        results.append(PutMessageResult(others.get(number, status), append))
    return results


def asks_for_delay(messages: list[Message]) -> bool:
    """Whether any of them has to be looked at for its delay."""
    for message in messages:
        if DELAY in message.properties or (
            not message.properties and _DELAY_MARK in message.properties_string
        ):
            return True
    return False


def combine(flushed: PutMessageStatus, replicated: PutMessageStatus) -> PutMessageStatus:
    """The replica's status overrides the disk's. Spec: store.md, section 7.4."""
    return flushed if replicated is PutMessageStatus.PUT_OK else replicated
