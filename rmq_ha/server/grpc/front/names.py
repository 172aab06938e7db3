"""Names of topics and groups in gRPC's messages, and their namespaces.

A name in a namespace is stored as `namespace%name`, as clients of remoting write it, so programs of
both kinds meet in one topic.

Spec: grpc.md, section 10.
"""

import re
from typing import Any, NamedTuple

from rmq_ha.base.model.topics import (
    DLQ_PREFIX,
    MAX_TOPIC_LENGTH,
    RETRY_PREFIX,
    SYSTEM_GROUP_PREFIX,
    SYSTEM_TOPICS,
    is_system,
)
from rmq_ha.server.grpc.front.refusals import FrontRefusal
from rmq_ha.server.grpc.wire.enums import AnswerCode

_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+")
MAX_GROUP_LENGTH = 120
_SEPARATOR = "%"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class StoredName(NamedTuple):
    """
    A name as the broker stores it.

    :ivar text: with the namespace in front of it.
    :ivar namespace: empty for none.
    """

    text: str
    namespace: str


def has_control(text: str) -> bool:
    """
    Return whether a text has control characters.

    They are not allowed in properties, because two of them divide the properties of a record.
    """
    return _CONTROL.search(text) is not None


def topic_of(resource: Any) -> StoredName:
    """
    Return the topic that a `Resource` names.

    :raises FrontRefusal: the name has a wrong form, or is that of a system topic.
    """
    name = _stored_name(resource, AnswerCode.ILLEGAL_TOPIC, "topic", MAX_TOPIC_LENGTH)
    if name.text in SYSTEM_TOPICS or is_system(name.text):
        raise FrontRefusal(AnswerCode.ILLEGAL_TOPIC, "cannot access system topic")
    return name


def group_of(resource: Any) -> StoredName:
    """
    Return the consumer group that a `Resource` names.

    :raises FrontRefusal: the name has a wrong form, or is that of a system group.
    """
    name = _stored_name(resource, AnswerCode.ILLEGAL_CONSUMER_GROUP, "group", MAX_GROUP_LENGTH)
    if name.text.startswith(SYSTEM_GROUP_PREFIX):
        raise FrontRefusal(AnswerCode.ILLEGAL_CONSUMER_GROUP, "cannot use system consumer group")
    return name


def split(stored: str, namespace: str) -> Any:
    """
    Divide a stored name into namespace and name, for a client of a namespace.

    :returns: both parts; an empty text and the whole name if it is not in that namespace.
    """
    prefix = namespace + _SEPARATOR
    if namespace and stored.startswith(prefix):
        return namespace, stored[len(prefix) :]
    return "", stored


def is_of_a_group(topic: str) -> bool:
    """Return whether a topic is a retry topic or a dead-letter topic, by its name."""
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def _stored_name(resource: Any, code: AnswerCode, kind: str, most: int) -> StoredName:
    name, namespace = resource.name, resource.resource_namespace
    if not name.strip():
        raise FrontRefusal(code, f"the {kind} has no name")
    for text in (name, namespace):
        if text and _LEGAL.fullmatch(text) is None:
            raise FrontRefusal(
                code,
                f"the specified {kind} {text[:most]!r} contains illegal characters, allowing only "
                "%|a-zA-Z0-9_-",
            )
    stored = f"{namespace}{_SEPARATOR}{name}" if namespace else name
    if len(stored) > most:
        raise FrontRefusal(
            code, f"the specified {kind} is longer than {most} characters with its namespace"
        )
    return StoredName(stored, namespace)
