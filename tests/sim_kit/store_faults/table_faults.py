"""Faults in the tables of a store's `config` directory, for `verify_offsets` to find."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from rmq_ha.base.model.topics import BUILT_IN_GROUPS, SYSTEM_TOPICS
from tests.sim_kit.store_faults.image import StoreImage
from tests.sim_kit.store_faults.planted import OFFSETS, Planted

_OFFSETS = "consumerOffset.json"
_DELAYS = "delayOffset.json"
_TOPICS = "topics.json"
_GROUPS = "subscriptionGroup.json"
_AHEAD = 1000
"""How far beyond the end of its queue an offset is set."""

CODES: dict[tuple[str, str], tuple[str, ...]] = {
    ("rolled-back offset", "a queue"): ("STALE", "LAGGING", "ROLLBACK"),
    ("rolled-back offset", "to zero"): ("STALE", "LAGGING", "ROLLBACK"),
    ("offset jump", "beyond the queue"): ("BEYOND_MAX",),
    ("offset jump", "within the queue"): ("SLAVE_AHEAD",),
    ("missing group", "configuration"): ("MISSING_GROUP",),
    ("missing group", "offsets"): ("MISSING_ON_SLAVE",),
    ("stale table", "topics"): ("VERSION_DRIFT", "STALE_TABLE"),
    ("stale table", "groups"): ("VERSION_DRIFT", "STALE_TABLE"),
    ("stale table", "content of a topic"): ("CONTENT_DRIFT", "QUEUE_NUM_DRIFT"),
    ("missing topic config", "topic"): ("MISSING_TOPIC_CONFIG",),
    ("wrong delay offset", "behind"): ("DELAY_LAG",),
    ("wrong delay offset", "beyond the queue"): ("BEYOND_MAX",),
    ("wrong delay offset", "missing"): ("DELAY_LAG",),
}
"""The codes with which `verify_offsets` reports each kind and variant."""


class TableFaults:
    """
    Plants faults into the tables of a slave's store; each hits an entry of its own.

    :param image: the store that gets the faults. It has the tables of its master.
    """

    def __init__(self, image: StoreImage, random: Random) -> None:
        self._image = image
        self._random = random
        self._hit: set[Any] = set()

    def plant(self, kinds: Sequence[tuple[str, str]]) -> list[Planted]:
        """
        Plant one fault for each kind and variant (keys of `CODES`).

        :raises ValueError: the tables have no entry left for one.
        """
        planted = {}
        for number, (kind, variant) in sorted(enumerate(kinds), key=_room):
            planted[number] = _HOW[kind](self, kind, variant)
        return [planted[number] for number in range(len(kinds))]

    def _choose(self, entries: Sequence[Any]) -> Any:
        free = [entry for entry in entries if entry not in self._hit]
        if not free:
            raise ValueError("the tables have no room for another fault of that kind")
        chosen = self._random.choice(free)
        self._hit.add(chosen)
        return chosen

    def _planted(self, kind: str, variant: str, **where: Any) -> Planted:
        return Planted(kind, variant, OFFSETS, CODES[kind, variant], **where)

    def _offset(self, kind: str, variant: str) -> Planted:
        table = self._image.table(_OFFSETS)
        offsets = table["offsetTable"]
        ahead = kind == "offset jump"
        entries = [
            (key, int(queue_id))
            for key, queues in offsets.items()
            for queue_id, offset in queues.items()
            if (self._end(key, int(queue_id)) > int(offset) + 1 if ahead else int(offset) > 1)
            or variant == "beyond the queue"
        ]
        key, queue_id = self._choose(entries)
        queues = offsets[key]
        name = queue_id if queue_id in queues else str(queue_id)
        if variant == "beyond the queue":
            value = self._end(key, queue_id) + self._random.randrange(1, _AHEAD)
        elif variant == "within the queue":
            value = self._random.randrange(queues[name] + 1, self._end(key, queue_id))
        elif variant == "to zero":
            value = 0
        else:
            value = self._random.randrange(0, queues[name] - 1)
        queues[name] = value
        self._image.put_table(_OFFSETS, table)
        topic, _, group = key.partition("@")
        return self._planted(
            kind, variant, topic=topic, queue_id=queue_id, queue_offset=value, group=group
        )

    def _end(self, key: str, queue_id: int) -> int:
        queue = self._image.queues.get((key.partition("@")[0], queue_id))
        return queue.end if queue else 0

    def _group(self, kind: str, variant: str) -> Planted:
        if variant == "offsets":
            table = self._image.table(_OFFSETS)
            taken = {entry[0] for entry in self._hit if isinstance(entry, tuple)}
            key = self._choose(sorted(set(table["offsetTable"]) - taken))
            del table["offsetTable"][key]
            self._image.put_table(_OFFSETS, table)
            topic, _, group = key.partition("@")
            return self._planted(kind, variant, topic=topic, group=group)
        table = self._image.table(_GROUPS)
        groups = table["subscriptionGroupTable"]
        group = self._choose(sorted(set(groups) - set(BUILT_IN_GROUPS)))
        del groups[group]
        self._image.put_table(_GROUPS, table)
        return self._planted(kind, variant, group=group)

    def _topic(self, kind: str, variant: str) -> Planted:
        table = self._image.table(_TOPICS)
        topics = table["topicConfigTable"]
        used = {name for name, _ in self._image.queues} - SYSTEM_TOPICS
        topic = self._choose(sorted(used & set(topics)))
        if kind == "missing topic config":
            del topics[topic]
        else:
            topics[topic]["writeQueueNums"] += 4
            topics[topic]["readQueueNums"] += 4
        self._image.put_table(_TOPICS, table)
        return self._planted(kind, variant, topic=topic)

    def _stale(self, kind: str, variant: str) -> Planted:
        if variant.startswith("content"):
            return self._topic(kind, variant)
        name = _TOPICS if variant == "topics" else _GROUPS
        table = self._image.table(name)
        version = table["dataVersion"]
        version["counter"] = max(0, version["counter"] - 1)
        version["timestamp"] -= self._random.randrange(1, 10_000_000)
        self._image.put_table(name, table)
        tables = {_TOPICS: "topics", _GROUPS: "subscriptionGroups"}
        return self._planted(kind, variant, topic=tables[name])

    def _delay(self, kind: str, variant: str) -> Planted:
        table = self._image.table(_DELAYS)
        offsets = table["offsetTable"]
        level = self._choose(sorted(offsets, key=int))
        value = None
        if variant == "missing":
            del offsets[level]
        elif variant == "behind":
            value = offsets[level] = self._random.randrange(0, offsets[level])
        else:
            end = self._end("SCHEDULE_TOPIC_XXXX", int(level) - 1)
            value = offsets[level] = end + self._random.randrange(1, _AHEAD)
        self._image.put_table(_DELAYS, table)
        return self._planted(
            kind,
            variant,
            topic="SCHEDULE_TOPIC_XXXX",
            queue_id=int(level) - 1,
            queue_offset=value,
        )


def _room(numbered: tuple[int, tuple[str, str]]) -> int:
    """Return the sort key of a fault: faults that fit few entries are planted first."""
    return next((at for at, pair in enumerate(_FIRST) if pair == numbered[1]), len(_FIRST))


_FIRST = (
    ("offset jump", "within the queue"),
    ("rolled-back offset", "a queue"),
    ("rolled-back offset", "to zero"),
    ("offset jump", "beyond the queue"),
)
_HOW: dict[str, Callable[[TableFaults, str, str], Planted]] = {
    "rolled-back offset": TableFaults._offset,
    "offset jump": TableFaults._offset,
    "missing group": TableFaults._group,
    "stale table": TableFaults._stale,
    "missing topic config": TableFaults._topic,
    "wrong delay offset": TableFaults._delay,
}
