"""Makes copies of stored messages that can be sent, with another topic, body or properties."""

from collections.abc import Mapping
from typing import NamedTuple

from rmq_ha.base.model.flags import COMPRESSED
from rmq_ha.base.model.properties import (
    CHECK_IMMUNITY_TIME_IN_SECONDS,
    CLUSTER,
    DELAY,
    FIRST_POP_TIME,
    KEYS,
    MAX_RECONSUME_TIMES,
    ORIGIN_MESSAGE_ID,
    PGROUP,
    POP_CK,
    POP_SRC,
    REAL_QID,
    REAL_TOPIC,
    RECONSUME_TIME,
    RETRY_TOPIC,
    SENT_BY,
    TAGS,
    TIMER_DEQUEUE_MS,
    TIMER_ENQUEUE_MS,
    TIMER_OUT_MS,
    TIMER_ROLL_TIMES,
    TIMER_SRC,
    TRAN_MSG,
    TRAN_PREPARED_QUEUE_OFFSET,
    TRANSACTION_CHECK_TIMES,
    UNIQ_KEY,
    WAIT,
)
from rmq_ha.base.model.topics import DLQ_PREFIX, NOT_FOR_CLIENTS, RETRY_PREFIX
from rmq_ha.base.model.unserved_properties import TIMERS
from rmq_ha.client.rules.messages import Message, MessageExt
from rmq_ha.ops.admin.session import ChangeRefused

COPY_OF = "RMQHA_COPY_OF"
"""A property of copies: the msgId of the message that was copied."""
COPIED_FROM = "RMQHA_COPIED_FROM"
"""A property of copies: topic and place of that message, as `topic/broker:queue:offset`."""

WRITTEN_BY_BROKERS = frozenset(
    {
        CHECK_IMMUNITY_TIME_IN_SECONDS,
        CLUSTER,
        DELAY,
        FIRST_POP_TIME,
        MAX_RECONSUME_TIMES,
        PGROUP,
        POP_CK,
        POP_SRC,
        REAL_QID,
        REAL_TOPIC,
        RECONSUME_TIME,
        RETRY_TOPIC,
        SENT_BY,
        TIMER_DEQUEUE_MS,
        TIMER_ENQUEUE_MS,
        TIMER_OUT_MS,
        TIMER_ROLL_TIMES,
        TIMER_SRC,
        TRAN_MSG,
        TRAN_PREPARED_QUEUE_OFFSET,
        TRANSACTION_CHECK_TIMES,
        WAIT,
        *TIMERS,
    }
)
"""Properties of one delivery, transaction or delay. A message that is sent anew has none."""


class CopyEdit(NamedTuple):
    """
    The differences between a message and its copy; None keeps the value of the message.

    :ivar topic: topic of the copy.
    :ivar keys: keys of the copy.
    :ivar properties: properties that are set.
    :ivar dropped: names of properties that are removed.
    """

    topic: str | None = None
    body: bytes | None = None
    tags: str | None = None
    keys: tuple[str, ...] | None = None
    properties: Mapping[str, str] = {}
    dropped: frozenset[str] = frozenset()


def copy_of(message: MessageExt, edit: CopyEdit) -> Message:
    """
    Return the copy of a message. It gets an id of its own, is delivered at once, and names the
    message in two properties.

    :raises ChangeRefused: the message cannot be sent as it is; the text says what to give.
    """
    topic = edit.topic or sendable_topic(message)
    if edit.body is None and message.sys_flag & COMPRESSED:
        raise ChangeRefused(
            "the body is compressed in a way that this program does not know: give --body-file"
        )
    kept = {
        name: value
        for name, value in message.properties.items()
        if name not in WRITTEN_BY_BROKERS and name not in (UNIQ_KEY, ORIGIN_MESSAGE_ID)
    }
    if topic.startswith(RETRY_PREFIX) and RETRY_TOPIC in message.properties:
        kept[RETRY_TOPIC] = message.properties[RETRY_TOPIC]
    kept |= edit.properties
    if missing := sorted(edit.dropped - message.properties.keys()):
        own = ", ".join(sorted(kept)) or "none"
        raise ChangeRefused(f"the message has no property {missing[0]} (it has: {own})")
    for name in edit.dropped:
        kept.pop(name, None)
    kept[COPY_OF] = message.msg_id
    place = f"{message.broker_name or '?'}:{message.queue_id}:{message.queue_offset}"
    kept[COPIED_FROM] = f"{message.topic}/{place}"
    tags, keys = kept.pop(TAGS, ""), kept.pop(KEYS, "")
    return Message(
        topic,
        message.body if edit.body is None else edit.body,
        tags if edit.tags is None else edit.tags,
        keys if edit.keys is None else edit.keys,
        properties=kept,
        flag=message.flag,
    )


def sendable_topic(message: MessageExt) -> str:
    """
    Return the topic to which a message is sent again: its own, or for a message that waited in a
    topic of RocketMQ the topic that it was meant for.

    :raises ChangeRefused: it belongs to no topic of clients, or is a dead letter.
    """
    topic = message.topic
    if topic.startswith(DLQ_PREFIX):
        group = topic.removeprefix(DLQ_PREFIX)
        raise ChangeRefused(
            f"it is a dead letter: `rmqha-admin dlq resend {group}` sends dead letters to their"
            " group, and `message copy ID --to TOPIC` to a topic"
        )
    if topic.startswith(RETRY_PREFIX) or topic not in NOT_FOR_CLIENTS:
        return topic
    meant = message.properties.get(REAL_TOPIC, "")
    if not meant or meant in NOT_FOR_CLIENTS:
        raise ChangeRefused(
            f"{topic} is a topic of RocketMQ itself: name another one, `message copy ID --to TOPIC`"
        )
    return meant
