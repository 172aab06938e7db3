"""A replica's tables at a moment, as facts that can be compared, stored and joined."""

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig
from rmq_ha.base.model.topics import (
    BUILT_IN_GROUPS,
    REPLY_SUFFIX,
    SCHEDULE_TOPIC,
    SYSTEM_PREFIX,
    SYSTEM_TOPICS,
)
from rmq_ha.base.wire.bodies import GroupTable, TopicTable
from rmq_ha.base.wire.members import to_members

OFFSET, DELAY, QUEUE, LOG = "offset", "delay", "queue", "log"
TOPIC, GROUP, VERSION = "topic", "group", "version"
NUMBERS = (OFFSET, DELAY, QUEUE, LOG)
TEXTS = (TOPIC, GROUP, VERSION)
SLAVE_ROLE = "SLAVE"

_MOST_QUEUES = 1 << 16
Offsets = Mapping[str, Mapping[int, int]]
"""Offset by `topic@group` and queue id, as brokers have it."""


class FactKey(NamedTuple):
    """The subject of a fact. Facts of two replicas with equal keys are compared."""

    kind: str
    topic: str | None = None
    group: str | None = None
    queue_id: int | None = None


class Fact(NamedTuple):
    """
    One value that a replica holds.

    :ivar kind: `offset` (of a group in a queue), `delay` (progress of a delay level: queue `level
        - 1` of SCHEDULE_TOPIC_XXXX), `queue`, `log`, `topic`, `group`, or `version` (of the table
        that `topic` names).
    :ivar value: next offset; of a queue or log where it ends; of a topic its write queues; of a
        version a checksum of the table.
    :ivar low: of a queue or log where it begins; of a topic its read queues.
    :ivar text: of a topic or group its configuration, of a version the version.
    """

    kind: str
    topic: str | None = None
    group: str | None = None
    queue_id: int | None = None
    value: int | None = None
    low: int | None = None
    text: str | None = None

    @property
    def key(self) -> FactKey:
        return FactKey(self.kind, self.topic, self.group, self.queue_id)


@dataclass(frozen=True)
class Snapshot:
    """
    All facts of one replica.

    :ivar place: where it was read, as the user wrote it.
    :ivar role: RocketMQ's name of the role; None: not known.
    :ivar is_resting: the broker is off, and nothing in its store changes.
    :ivar began: ms since the epoch: no fact is older.
    :ivar ended: ms since the epoch: no fact is younger.
    :ivar is_crashed: the broker is off, and could not write its tables when it ended.
    :ivar kinds: kinds of facts that could be read; facts of any other kind are unknown.
    :ivar own: topics that the broker creates for itself; a store does not say which these are.
    :ivar faults: the damage that was found: for each, a code of `codes.MEANINGS` and the place.
    :ivar uncertain_queues: topic and queue id of queues whose end is not known, because a file is
        missing behind which nothing is written. They are not compared.
    :ivar messages_read: number of messages that were read from the log, to see whether it holds
        what its queues say.
    """

    place: str
    broker: str | None
    broker_id: int | None
    role: str | None
    is_resting: bool
    began: int
    ended: int
    kinds: frozenset[str]
    facts: tuple[Fact, ...]
    is_crashed: bool = False
    own: frozenset[str] = frozenset()
    faults: tuple[tuple[str, str], ...] = ()
    uncertain_queues: frozenset[tuple[str, int]] = frozenset()
    messages_read: int = 0

    def bounds(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Return the first offset and the end of each queue, by topic and queue id."""
        return {
            (fact.topic or "", fact.queue_id or 0): (fact.low or 0, fact.value or 0)
            for fact in self.facts
            if fact.kind == QUEUE
        }

    def offsets(self) -> dict[str, dict[int, int]]:
        """Return the consumer offsets, as brokers write them."""
        table: dict[str, dict[int, int]] = {}
        for fact in self.facts:
            if fact.kind == OFFSET and fact.value is not None:
                queues = table.setdefault(f"{fact.topic}@{fact.group}", {})
                queues[fact.queue_id or 0] = fact.value
        return table


def offset_facts(table: Offsets) -> Iterator[Fact]:
    """
    Yield the facts of `consumerOffset.json` or of the answer to code 43. A name without `@` belongs
    to no group and is left out.

    :raises ValueError: a number is one that no broker can have.
    """
    for name, queues in table.items():
        topic, separator, group = name.partition("@")
        if separator:
            for queue_id, offset in queues.items():
                _check(name, queue_id, offset)
                yield Fact(OFFSET, topic, group, queue_id, offset)


def delay_facts(table: Mapping[int, int]) -> Iterator[Fact]:
    """
    Yield the facts of `delayOffset.json` or of the answer to code 45.

    :raises ValueError: a number is one that no broker can have.
    """
    for level, offset in table.items():
        _check("delay level", level, offset)
        yield Fact(DELAY, SCHEDULE_TOPIC, None, level - 1, offset)


def queue_fact(topic: str, queue_id: int, low: int, end: int) -> Fact:
    """Return the fact of where a queue begins and ends."""
    return Fact(QUEUE, topic, None, queue_id, end, low)


def log_fact(low: int, end: int) -> Fact:
    """Return the fact of where the commit log begins and ends, in bytes."""
    return Fact(LOG, value=end, low=low)


def topic_facts(table: TopicTable, own: Iterable[str] = ()) -> Iterator[Fact]:
    """
    Yield the facts of `topics.json` or of the answer to code 21, without topics that each broker
    creates for itself.

    :param own: further topics of that kind: those named after the broker and its cluster.
    :raises ValueError: a topic has more queues than any broker can have.
    """
    queue_numbers(table)
    left_out = {*SYSTEM_TOPICS, *own}
    texts = {}
    for name, topic in table.topics.items():
        if name in left_out or name.startswith(SYSTEM_PREFIX) or name.endswith(REPLY_SUFFIX):
            continue
        text = texts[name] = canonical(to_members(topic))
        yield Fact(TOPIC, name, value=topic.write_queue_nums, low=topic.read_queue_nums, text=text)
    yield _version_fact("topics", table.version, texts)


def queue_numbers(table: TopicTable) -> dict[str, int]:
    """
    Return how many queues each topic has, to read or to write, whichever is more.

    :raises ValueError: a topic has more queues than any broker can have.
    """
    numbers = {
        name: max(topic.read_queue_nums, topic.write_queue_nums)
        for name, topic in table.topics.items()
    }
    for name, number in numbers.items():
        if number > _MOST_QUEUES:
            raise ValueError(f"topic {name} has {number} queues")
    return numbers


def _check(name: str, number: int, offset: int) -> None:
    """Raise ValueError if no broker can have these numbers; the name is for the error."""
    if not (0 <= number < 1 << 31 and -(1 << 63) <= offset < 1 << 63):
        raise ValueError(f"{name}, {number}: {offset}")


def group_facts(table: GroupTable) -> Iterator[Fact]:
    """
    Yield the facts of `subscriptionGroup.json` or of the answer to code 201, without groups that
    each broker creates for itself.
    """
    texts = {
        name: canonical(to_members(group))
        for name, group in table.groups.items()
        if name not in BUILT_IN_GROUPS or group != SubscriptionGroupConfig(name)
    }
    for name, text in texts.items():
        yield Fact(GROUP, None, name, text=text)
    yield _version_fact("subscriptionGroups", table.version, texts)


def canonical(value: Any) -> str:
    """Return JSON with sorted members, so that equal content gives equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _version_fact(table: str, version: DataVersion, texts: Mapping[str, str]) -> Fact:
    """Return the fact of a table's version, with a checksum of the table's content."""
    content = zlib.crc32("\n".join(texts[name] for name in sorted(texts)).encode())
    return Fact(VERSION, table, value=content, text=f"{version.counter} of {version.timestamp}")
