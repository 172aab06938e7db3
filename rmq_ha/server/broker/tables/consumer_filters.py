"""ConsumerFilterManager: the SQL92 expressions with which consumer groups have subscribed.

Spec: store.md, sections 6.2, 8.3 and 12.5; remoting.md, sections 6.2 and 7.1.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rmq_ha.base.config.broker import BrokerConfig
from rmq_ha.base.errors import InvalidSelector
from rmq_ha.base.filter.bloom import BloomFilter, BloomFilterData
from rmq_ha.base.filter.cache import SelectorCache
from rmq_ha.base.filter.selector import Selector
from rmq_ha.base.model.message import DispatchRequest
from rmq_ha.base.model.subscription import SQL92, TAG_TYPES, SubscriptionData
from rmq_ha.base.persisted_table import PersistedTable
from rmq_ha.base.seams import Disk, Worker
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.bodies import optional_text, read_body, text

CAPACITY = 8 << 20
"""Most characters of all expressions, where each counts `ENTRY_SIZE` more."""
ENTRY_SIZE = 256
LOADED_DEAD_MS = 30_000
_NONE: Mapping[str, "ConsumerFilterData"] = {}


@dataclass(slots=True, eq=False)
class ConsumerFilterData:
    """
    The SQL92 filter of one group for one topic.

    :ivar client_version: version of the subscription that it came with.
    :ivar born_ms: when this expression was registered, ms since the epoch.
    :ivar dead_ms: when it was marked as dead, ms since the epoch; 0 while it is alive.
    :ivar selector: None if the expression in a file does not compile: every message matches.
    """

    topic: str
    group: str
    expression: str
    expression_type: str
    client_version: int
    born_ms: int
    selector: Selector | None
    bloom: BloomFilterData | None
    dead_ms: int = 0

    @property
    def is_dead(self) -> bool:
        """
        Whether no member of the group has this subscription any more; the filter is kept for a
        while.
        """
        return self.dead_ms >= self.born_ms

    @property
    def size(self) -> int:
        """How much of `CAPACITY` the filter uses, in characters."""
        return ENTRY_SIZE + len(self.expression)

    def to_json(self) -> dict[str, Any]:
        bloom = self.bloom
        return {
            "bloomFilterData": bloom and {"bitNum": bloom.bit_num, "bitPos": list(bloom.positions)},
            "bornTime": self.born_ms,
            "clientVersion": self.client_version,
            "consumerGroup": self.group,
            "dead": self.is_dead,
            "deadTime": self.dead_ms,
            "expression": self.expression,
            "expressionType": self.expression_type,
            "topic": self.topic,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "ConsumerFilterData":
        """Read a filter from JSON, without compiling its expression."""
        bloom = value.get("bloomFilterData")
        return cls(
            topic=text(value.get("topic")),
            group=text(value.get("consumerGroup")),
            expression=text(value.get("expression")),
            expression_type=optional_text(value.get("expressionType")) or "",
            client_version=int(value.get("clientVersion", 0)),
            born_ms=int(value.get("bornTime", 0)),
            selector=None,
            bloom=bloom
            and BloomFilterData(
                int(bloom.get("bitNum", 0)), tuple(int(bit) for bit in bloom.get("bitPos") or ())
            ),
            dead_ms=int(value.get("deadTime", 0)),
        )


class ConsumerFilterManager(PersistedTable):
    """
    The expressions by topic and group, in memory and in `consumerFilter.json`.

    The broker calls `clean` and then `persist_if_dirty` every 10 s and when it stops.

    :param capacity: most characters of all filters together, see `CAPACITY`.
    :ivar bloom_filter: gives each group and topic its bits in messages' bit maps.
    """

    without_file = "forgets which SQL92 expressions there were until consumers send them again"

    def __init__(
        self,
        disk: Disk,
        worker: Worker,
        path: str,
        config: BrokerConfig,
        now_ms: Callable[[], int],
        capacity: int = CAPACITY,
    ) -> None:
        super().__init__(disk, worker, path)
        self._config = config
        self._now_ms = now_ms
        self._capacity = capacity
        self._size = 0
        self._topics: dict[str, dict[str, ConsumerFilterData]] = {}
        self._groups: dict[str, dict[str, ConsumerFilterData]] = {}
        self._cache = SelectorCache()
        self.bloom_filter = BloomFilter.by_error_rate(
            config.max_error_rate_of_bloom_filter, config.expect_consumer_num_use_filter
        )

    def get(self, topic: str, group: str) -> ConsumerFilterData | None:
        """Return the filter of a group for a topic, dead or alive."""
        return self._topics.get(topic, _NONE).get(group)

    def of_topic(self, topic: str) -> Iterable[ConsumerFilterData]:
        """Return all groups' filters for a topic, dead or alive."""
        return self._topics.get(topic, _NONE).values()

    def bit_map(self, request: DispatchRequest) -> bytes | None:
        """
        Return the bits of all filters of a message's topic that match it; None without filters.

        Spec: store.md, section 6.2.
        """
        filters = self._topics.get(request.topic)
        if not filters:
            return None
        properties = request.properties
        return self.bloom_filter.bit_map(
            data.bloom
            for data in filters.values()
            if data.bloom is not None
            and data.selector is not None
            and data.selector.matches(properties)
        )

    def compile(self, expression_type: str, expression: str | None) -> Selector:
        """
        Return the selector of a subscription that is not by tags.

        :raises InvalidSelector: the type is unknown, or the expression does not compile.
        """
        if expression_type != SQL92:
            raise InvalidSelector(f"there is no expression type {expression_type[:40]!r}")
        return self._cache.get(expression or "")

    def register(self, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
        """
        Register the subscriptions of a heartbeat. Mark the group's filters for other topics as
        dead.
        """
        subscriptions = list(subscriptions)
        for item in subscriptions:
            if item.expression_type not in TAG_TYPES and item.sub_string:
                self._register(group, item, item.expression_type or "")
        topics = self._groups.get(group)
        if topics:
            listed = {item.topic for item in subscriptions}
            self._die([data for topic, data in topics.items() if topic not in listed])

    def unregister(self, group: str) -> None:
        """Mark the filters of a group as dead, because its last member left."""
        self._die(list(self._groups.get(group, _NONE).values()))

    def clean(self) -> None:
        """Forget filters that have been dead for longer than `filterDataCleanTimeSpan`."""
        limit = self._now_ms() - self._config.filter_data_clean_time_span
        for topics in list(self._groups.values()):
            for data in list(topics.values()):
                if data.is_dead and data.dead_ms <= limit:
                    self._remove(data)

    def encode(self) -> bytes:
        return fastjson.pretty(
            {
                "filterDataByTopic": {
                    topic: {
                        "groupFilterData": {
                            group: data.to_json() for group, data in groups.items()
                        },
                        "topic": topic,
                    }
                    for topic, groups in self._topics.items()
                }
            }
        )

    def decode(self, data: bytes) -> None:
        """
        Take over the filters of a file. If they were made for a bloom filter of another size, take
        none of them.

        Filters that were alive when the file was written count as dead until the next heartbeat.

        :raises ProtocolViolation: the text does not hold filters.
        """
        loaded = read_body(data, _filters_of, None)
        if not all(self.bloom_filter.is_valid(item.bloom) for item in loaded):
            self.log.info("the bloom filter is another one now: {path} is ignored", path=self.path)
            return
        self._topics, self._groups, self._size = {}, {}, 0
        for item in loaded:
            try:
                item.selector = self.compile(item.expression_type, item.expression)
            except InvalidSelector as error:
                self.log.warn(
                    "the filter of {group} on {topic} in {path} lets everything pass: {fault}",
                    group=item.group,
                    topic=item.topic,
                    path=self.path,
                    fault=str(error),
                )
            if item.dead_ms == 0:
                item.dead_ms = max(self._now_ms() - LOADED_DEAD_MS, item.born_ms)
            self._put(item)

    def _register(self, group: str, item: SubscriptionData, kind: str) -> None:
        """Do what `ConsumerFilterManager.FilterDataMapByTopic.register` of 4.9.7 does."""
        old = self.get(item.topic, group)
        if old is not None and item.sub_version <= old.client_version:
            if item.sub_version == old.client_version:
                self._revive(old)
            return
        if old is not None and (old.expression, old.expression_type) == (item.sub_string, kind):
            old.client_version = item.sub_version
            self.is_dirty = True
            self._revive(old)
            return
        if old is not None:
            self._remove(old)
        try:
            selector = self.compile(kind, item.sub_string)
        except InvalidSelector as error:
            self.log.warn(
                "the filter of {group} on {topic} is not taken: {fault}",
                group=group,
                topic=item.topic,
                fault=str(error),
            )
            return
        made = ConsumerFilterData(
            item.topic,
            group,
            item.sub_string,
            kind,
            item.sub_version,
            self._now_ms(),
            selector,
            self.bloom_filter.generate(f"{group}#{item.topic}"),
        )
        if self._has_room(made.size):
            self._put(made)

    def _has_room(self, size: int) -> bool:
        """
        Return whether a filter has room. If there is too little, filters that are dead are removed
        first, the one that has been dead for longest before the others.
        """
        missing = self._size + size - self._capacity
        if missing > 0:
            dead = [
                data for item in self._topics.values() for data in item.values() if data.is_dead
            ]
            for data in sorted(dead, key=lambda data: data.dead_ms):
                if missing > 0:
                    missing -= data.size
                    self._remove(data)
        if missing > 0:
            self.log.warn(
                "SQL92 filters of {capacity} characters are registered: no more are taken",
                capacity=self._capacity,
            )
        return missing <= 0

    def _put(self, data: ConsumerFilterData) -> None:
        self._topics.setdefault(data.topic, {})[data.group] = data
        self._groups.setdefault(data.group, {})[data.topic] = data
        self._size += data.size
        self.is_dirty = True

    def _remove(self, data: ConsumerFilterData) -> None:
        for table, outer, inner in (
            (self._topics, data.topic, data.group),
            (self._groups, data.group, data.topic),
        ):
            del table[outer][inner]
            if not table[outer]:
                del table[outer]
        self._size -= data.size
        self.is_dirty = True

    def _revive(self, data: ConsumerFilterData) -> None:
        if data.is_dead:
            data.dead_ms = 0
            self.is_dirty = True

    def _die(self, gone: Iterable[ConsumerFilterData]) -> None:
        now_ms = self._now_ms()
        for data in gone:
            if not data.is_dead:
                data.dead_ms = now_ms
                self.is_dirty = True


def _filters_of(value: dict[str, Any]) -> list[ConsumerFilterData]:
    """Return one filter for each topic and group; the keys decide, as in Java."""
    loaded = []
    for topic, groups in (value.get("filterDataByTopic") or {}).items():
        for group, item in ((groups or {}).get("groupFilterData") or {}).items():
            if item is not None:
                data = ConsumerFilterData.from_json(item)
                data.topic, data.group = str(topic), str(group)
                loaded.append(data)
    return loaded
