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
    Return the name of the topic by which a group gets unacknowledged messages of a topic again.

    :param v2: whether group and topic are divided by `+` and not by `_`; no other name has a `+`
        (`enableRetryTopicV2`).
    """
    return f"{RETRY_PREFIX}{group}{_BETWEEN_V2 if v2 else _BETWEEN_V1}{topic}"


def kind_of(topic: str) -> TopicKind:
    """Return the kind of a topic, by its name."""
    if not topic.startswith(RETRY_PREFIX):
        return TopicKind.NORMAL
    return TopicKind.RETRY_V2 if _BETWEEN_V2 in topic else TopicKind.RETRY


def real_topic(group: str, topic: str, kind: int) -> str:
    """
    Return the topic whose queue has a message: the topic itself, or a retry topic.

    :param topic: the topic that the group subscribed to.
    :param kind: a number of `TopicKind`, as receipts have it.
    """
    if kind == TopicKind.NORMAL:
        return topic
    return retry_topic(group, topic, v2=kind == TopicKind.RETRY_V2)


def original_topic(group: str, topic: str) -> str:
    """
    Return the topic that a group subscribed to.

    :param topic: that topic, or one of the group's retry topics for it.

    :param group: the group that pops. A retry topic of another group is returned unchanged.
    """
    for between in (_BETWEEN_V2, _BETWEEN_V1):
        prefix = f"{RETRY_PREFIX}{group}{between}"
        if topic.startswith(prefix) and len(topic) > len(prefix):
            return topic[len(prefix) :]
    return topic
