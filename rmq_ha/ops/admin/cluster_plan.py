"""Compares brokers of an exported document with running ones, and plans the changes."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from rmq_ha.base.config.all_keys import ALL_KEYS
from rmq_ha.base.config.remote_change import local_reason
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig, TopicConfig
from rmq_ha.base.model.topics import (
    BUILT_IN_GROUPS,
    DLQ_PREFIX,
    REPLY_SUFFIX,
    RETRY_PREFIX,
    SYSTEM_GROUP_PREFIX,
    group_fault,
    is_system,
    topic_fault,
)
from rmq_ha.base.wire.members import from_members, to_members
from rmq_ha.ops.admin.redaction import HIDDEN, is_secret_name
from rmq_ha.ops.admin.session import ChangeRefused

TOPIC, GROUP, SETTING, BROKER, OFFSETS = "topic", "group", "setting", "broker", "offsets"
_COMPUTED = frozenset({"rmqAddressServerDomain", "clientCallbackExecutorThreads", "rocketmqHome"})
"""Keys that Java's brokers compute, and that say nothing about the wishes of an operator."""


class ExportedBroker(NamedTuple):
    """
    A broker as an exported document has it, or as it runs.

    :ivar has_offsets: whether the document has offsets of groups.
    """

    cluster: str
    name: str
    config: Mapping[str, str]
    topics: Mapping[str, TopicConfig]
    groups: Mapping[str, SubscriptionGroupConfig]
    has_offsets: bool = False


class ImportStep(NamedTuple):
    """
    One difference between the document and a broker.

    :ivar broker: the broker's name.
    :ivar kind: `topic`, `group`, `setting`, `broker` or `offsets`.
    :ivar before: what the broker has; empty: nothing.
    :ivar after: what the document has.
    :ivar refusal: why it is not set; empty: it is set.
    :ivar is_local: it belongs to the broker's own file, as an address does, so the import is whole
        without it.
    """

    broker: str
    kind: str
    name: str
    before: str
    after: str
    refusal: str = ""
    is_local: bool = False


def read_export(document: Any) -> list[ExportedBroker]:
    """
    Read a document of `cluster export`; of each broker name the entry of its master, or the first.

    :raises ChangeRefused: it is no such document; the text says where.
    """
    entries = document.get("brokers") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise ChangeRefused(
            "this is no document of `cluster export`: it has no list `brokers`; give the file that "
            "`rmqha-admin cluster export FILE` wrote"
        )
    known: dict[str, tuple[int, ExportedBroker]] = {}
    for number, entry in enumerate(entries):
        try:
            broker = ExportedBroker(
                str(entry["cluster"]),
                str(entry["broker"]),
                {str(key): str(value) for key, value in entry["config"].items()},
                {item["topicName"]: from_members(TopicConfig, item) for item in entry["topics"]},
                {
                    item["groupName"]: from_members(SubscriptionGroupConfig, item)
                    for item in entry["groups"]
                },
                bool(entry.get("offsets")),
            )
            broker_id = int(entry.get("id") or 0)
        except (KeyError, TypeError, ValueError, AttributeError, msgspec.ValidationError) as error:
            raise ChangeRefused(
                f"broker {number + 1} of the document has another form than `cluster export` "
                f"writes: {error}"
            ) from None
        if broker.name not in known or broker_id < known[broker.name][0]:
            known[broker.name] = (broker_id, broker)
    return [broker for _, broker in known.values()]


def steps_for(wish: ExportedBroker, present: ExportedBroker) -> list[ImportStep]:
    """Return the differences of a broker from the document; what only the broker has stays."""
    return [
        *_topic_steps(wish, present),
        *_group_steps(wish, present),
        *_setting_steps(wish, present),
        *_offset_steps(wish),
    ]


def _topic_steps(wish: ExportedBroker, present: ExportedBroker) -> Iterator[ImportStep]:
    own = {wish.cluster, wish.name, f"{wish.cluster}{REPLY_SUFFIX}"}
    for name, topic in sorted(wish.topics.items()):
        if is_system(name) or name in own or name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            continue  # the brokers make these topics themselves
        before = present.topics.get(name)
        texts = _texts(before, topic)
        if texts is not None:
            yield ImportStep(wish.name, TOPIC, name, *texts, topic_fault(name) or "")


def _group_steps(wish: ExportedBroker, present: ExportedBroker) -> Iterator[ImportStep]:
    for name, group in sorted(wish.groups.items()):
        if name in BUILT_IN_GROUPS or name.startswith(SYSTEM_GROUP_PREFIX):
            continue
        before = present.groups.get(name)
        texts = _texts(before, group)
        if texts is not None:
            yield ImportStep(wish.name, GROUP, name, *texts, group_fault(name) or "")


def _texts(before: msgspec.Struct | None, after: msgspec.Struct) -> tuple[str, str] | None:
    """Return the members that differ, before and after; None: none does."""
    new = to_members(after)
    if before is None:
        shown = {key: value for key, value in new.items() if key not in ("topicName", "groupName")}
        return "", _text(shown)
    old = to_members(before)
    keys = [key for key in sorted({*old, *new}) if old.get(key) != new.get(key)]
    if not keys:
        return None
    return _text({key: old.get(key) for key in keys}), _text({key: new.get(key) for key in keys})


def _text(members: Mapping[str, Any]) -> str:
    def value_text(value: Any) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, dict):
            return "{" + _text(value) + "}"
        return "none" if value is None else str(value)

    return ", ".join(f"{key}={value_text(value)}" for key, value in members.items())


def _setting_steps(wish: ExportedBroker, present: ExportedBroker) -> Iterator[ImportStep]:
    for key, value in sorted(wish.config.items()):
        before = present.config.get(key)
        if key in _COMPUTED or is_secret_name(key) or value == HIDDEN or before == value:
            continue
        local = local_reason(key)
        refusal = _setting_refusal(key, before, local)
        yield ImportStep(wish.name, SETTING, key, before or "", value, refusal, local is not None)


def _setting_refusal(key: str, before: str | None, local: str | None) -> str:
    if local is not None:
        return f"only the broker's own file sets it ({local})"
    row = ALL_KEYS.get(key)
    if before is None and row is None:
        return "this broker does not know the key"
    if row is None or not row.is_mutable:
        return "a running broker does not change it: set it in the broker's file, and restart it"
    return ""


def _offset_steps(wish: ExportedBroker) -> Iterator[ImportStep]:
    if wish.has_offsets:
        yield ImportStep(
            wish.name,
            OFFSETS,
            "all groups",
            "",
            "",
            "offsets fit the queues of the broker that was exported: `reset-offset` moves a group "
            "to a time, and `restore` brings a store back with its offsets",
            True,
        )
