"""Namespaces: a prefix that keeps users of one cluster apart.

Spec: remoting.md, section 5.2 (INSTANCE_ID).
"""

from rmq_ha.base.model.topics import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SYSTEM_GROUP_PREFIX,
    SYSTEM_PREFIX,
    SYSTEM_TOPICS,
)

SEPARATOR = "%"


def wrap(namespace: str, name: str) -> str:
    """
    Return a topic or group as brokers know it; names of RocketMQ itself stay unchanged.

    `%RETRY%g` becomes `%RETRY%ns%g`.
    """
    if not namespace or not name or is_system(name):
        return name
    prefix, bare = _split(name)
    if bare.startswith(namespace + SEPARATOR):
        return name
    return f"{prefix}{namespace}{SEPARATOR}{bare}"


def unwrap(namespace: str, name: str) -> str:
    """Return a topic or group as the application knows it; the reverse of `wrap`."""
    if not namespace:
        return name
    prefix, bare = _split(name)
    return prefix + bare.removeprefix(namespace + SEPARATOR)


def is_system(name: str) -> bool:
    """Whether RocketMQ itself uses this topic or group."""
    return name in SYSTEM_TOPICS or name.startswith((SYSTEM_GROUP_PREFIX, SYSTEM_PREFIX))


def _split(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name
