"""Retry topics of pop: names, and the kinds that receipts and answers have.

A popped message that was not acknowledged in time comes again from a retry topic of its group and
topic. Spec: pop.md, sections 2.2 and 3.
"""

from enum import IntEnum

from rmq_ha.base.model.topics import RETRY_PREFIX

_BETWEEN_V1 = "_"
_BETWEEN_V2 = "+"


class TopicKind(IntEnum):
    """The kind of topic that a popped message came from, as receipts and answers name it."""

    NORMAL = 0
    RETRY = 1
    RETRY_V2 = 2


def retry_topic(group: str, topic: str, *, v2: bool = False) -> str:
    """
    Return the topic in which the unacknowledged messages of a group come again.

    :param v2: whether group and topic are divided by `+`, which is in no other name
        (`enableRetryTopicV2`).
    """
    return f"{RETRY_PREFIX}{group}{_BETWEEN_V2 if v2 else _BETWEEN_V1}{topic}"


def kind_of(topic: str) -> TopicKind:
    """Return the kind of a topic, by its name."""
    if not topic.startswith(RETRY_PREFIX):
        return TopicKind.NORMAL
    return TopicKind.RETRY_V2 if _BETWEEN_V2 in topic else TopicKind.RETRY


def real_topic(group: str, topic: str, kind: int) -> str:
    """Return the topic that a message of this kind is read from and acknowledged in."""
    if kind == TopicKind.NORMAL:
        return topic
    return retry_topic(group, topic, v2=kind == TopicKind.RETRY_V2)


def original_topic(group: str, topic: str) -> str:
    """
    Return the topic that a group subscribed to, given it or one of its retry topics.

    :param group: the group that pops. A retry topic of another group is returned as it is.
    """
    for between in (_BETWEEN_V2, _BETWEEN_V1):
        prefix = f"{RETRY_PREFIX}{group}{between}"
        if topic.startswith(prefix) and len(topic) > len(prefix):
            return topic[len(prefix) :]
    return topic
