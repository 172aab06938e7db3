"""BrokerStats: measures a broker's work for clients (BrokerStatsManager).

The numbers are for brokerStatus, statsAll, consumerProgress and exporters.

Spec: remoting.md, sections 7.5 and 7.9, appendix B16.
"""

from bisect import bisect_right
from collections.abc import Callable, Container
from struct import Struct
from typing import Any

from rmq_ha.base.model.message import BrokerMessage, PutMessageResult
from rmq_ha.base.model.topics import SCHEDULE_TOPIC
from rmq_ha.base.runs.face import Rows
from rmq_ha.base.runs.row_list import rows_of
from rmq_ha.base.store_format.commitlog import store_timestamp_of
from rmq_ha.server.broker.send_ways import SendWays
from rmq_ha.server.broker.stat_items import SAMPLE_S, Figure, Growth, StatsTable, Window

_LATENCY_LIMITS_MS = (0, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10000)
_BUCKETS_FROM_MS = (1, *_LATENCY_LIMITS_MS[1:])
_LATENCY_NAMES = (
    "<=0ms",
    "0~10ms",
    "10~50ms",
    "50~100ms",
    "100~200ms",
    "200~500ms",
    "500ms~1s",
    "1~2s",
    "2~3s",
    "3~4s",
    "4~5s",
    "5~10s",
    "10s~",
)
_LATENCY_PERIOD_MS = 60_000
_MAX_ITEMS = 50_000
_PHYSICAL_OFFSET = Struct(">28xq").unpack_from
# RocketMQ's name for the group of the delivery of delayed messages.
_SCHEDULE_GROUP = "SCHEDULE_CONSUMER"
ALL_QUEUES = -1
"""Replaces a queue id where queues are not counted separately."""

NAMES: dict[str, tuple[str, Figure]] = {
    "TOPIC_PUT_NUMS": ("topics", Figure.MESSAGES),
    "TOPIC_PUT_SIZE": ("topics", Figure.BYTES),
    "QUEUE_PUT_NUMS": ("queues", Figure.MESSAGES),
    "QUEUE_PUT_SIZE": ("queues", Figure.BYTES),
    "GROUP_GET_NUMS": ("groups", Figure.MESSAGES),
    "GROUP_GET_SIZE": ("groups", Figure.BYTES),
    "QUEUE_GET_NUMS": ("reads", Figure.MESSAGES),
    "QUEUE_GET_SIZE": ("reads", Figure.BYTES),
    "GROUP_GET_LATENCY": ("reads", Figure.MILLIS),
    "SNDBCK_PUT_NUMS": ("backs", Figure.MESSAGES),
    "BROKER_PUT_NUMS": ("puts", Figure.MESSAGES),
    "BROKER_GET_NUMS": ("gets", Figure.MESSAGES),
}
"""
The names that VIEW_BROKER_STATS_DATA knows. Each has the table of `BrokerStats.tables`, and the
figure of that table's items, that it shows.
"""


class _Latencies:
    """
    The durations of puts in RocketMQ's buckets: for the present minute, and for the last full one.
    """

    def __init__(self) -> None:
        self._now = [0] * len(_LATENCY_NAMES)
        self._last: list[int] | None = None
        self._period_ends_ms = 0
        self.max_ms = 0

    def add(self, elapsed_ms: int, count: int, now_ms: int) -> None:
        if now_ms >= self._period_ends_ms:
            self.turn_over(now_ms)
        self._now[bisect_right(_BUCKETS_FROM_MS, elapsed_ms)] += count
        if elapsed_ms > self.max_ms:
            self.max_ms = elapsed_ms

    def turn_over(self, now_ms: int) -> None:
        """Start a new minute if the old one is over."""
        if now_ms < self._period_ends_ms:
            return
        if self._period_ends_ms:
            is_recent = now_ms < self._period_ends_ms + _LATENCY_PERIOD_MS
            self._last = self._now if is_recent else [0] * len(_LATENCY_NAMES)
        self._now = [0] * len(_LATENCY_NAMES)
        self._period_ends_ms = now_ms + _LATENCY_PERIOD_MS

    def distribution(self) -> str:
        """Return the counts of the last full minute, or of the present one before that."""
        counts = self._now if self._last is None else self._last
        return "".join(
            [f"[{name}]:{count} " for name, count in zip(_LATENCY_NAMES, counts, strict=True)]
        )

    def quantile_ms(self, share: float) -> float:
        """Return the upper limit of the bucket that holds this share of the puts, ms."""
        counts = self._now if self._last is None else self._last
        rank = sum(counts) * share
        seen = 0
        for limit, count in zip((*_LATENCY_LIMITS_MS, self.max_ms), counts, strict=True):
            seen += count
            if seen and seen >= rank:
                return float(min(limit, self.max_ms))
        return 0.0


class _QueueCounts(dict[tuple[str, int], list[int]]):
    """Number of messages and their bytes, by topic and queue."""

    def __missing__(self, key: tuple[str, int]) -> list[int]:
        count = self[key] = [0, 0]
        return count


class _Pulls(dict[tuple[str, int, str], list[int]]):
    """
    Number and bytes of messages, number of pulls, and the duration of the pulls in ms, by topic,
    queue and group.
    """

    def __missing__(self, key: tuple[str, int, str]) -> list[int]:
        count = self[key] = [0, 0, 0, 0]
        return count


class BrokerStats:
    """
    Counts puts and reads by topic, queue and group.

    Its methods are called once for each batch.

    :param now_ms: ms since the epoch.
    :param seconds: a clock that never jumps.
    :param cluster_name: the key of BROKER_PUT_NUMS and BROKER_GET_NUMS.
    :param with_queues: count also each queue (`enableDetailStat`).
    :param log_end: returns the physical offset of the log's end.
    :ivar ways: counts the ways that sends took.
    :ivar fall_behind: by `(topic, queue id, group)` the bytes from its last read to the log's end,
        and the age of the read message, ms (GROUP_GET_FALL_SIZE, GROUP_GET_FALL_TIME).
    """

    def __init__(
        self,
        now_ms: Callable[[], int],
        seconds: Callable[[], float],
        cluster_name: str = "",
        with_queues: bool = True,
        log_end: Callable[[], int] = lambda: 0,
    ) -> None:
        self._now_ms = now_ms
        self._seconds = seconds
        self._began = seconds()
        self._cluster_name = cluster_name
        self._with_queues = with_queues
        self._log_end = log_end
        self._latencies = _Latencies()
        self._max_get_ms = 0
        self.ways = SendWays()
        tables = self._tables = {name: StatsTable[Any](_MAX_ITEMS) for name, _ in NAMES.values()}
        self._topics, self._queues = tables["topics"], tables["queues"]
        self._groups, self._reads = tables["groups"], tables["reads"]
        self._puts, self._gets = tables["puts"], tables["gets"]
        self._counts, self._pulls, self._counted_at = _QueueCounts(), _Pulls(), 0
        self.fall_behind: dict[tuple[str, int, str], tuple[int, int]] = {}

    # ------------------------------------------------------------ counting

    def steady_ms(self) -> int:
        """Return the time in ms of the clock with which all durations here are measured."""
        return int(self._seconds() * 1000)

    def put_took(self, elapsed_ms: int, count: int = 1) -> None:
        """Count how long a put took until its answer, including flush and replication."""
        self._latencies.add(elapsed_ms, count, self.steady_ms())

    def put(self, topic: str, queue_id: int, count: int, size: int, times: int = 1) -> None:
        """
        Count messages of one queue that were stored.

        :param size: bytes in the log.
        :param times: number of requests.
        """
        tick = self._tick()
        self._topics.add(topic, tick, count, size, times)
        if self._with_queues:
            self._queues.add((topic, queue_id), tick, count, size, times)
        self._puts.add(self._cluster_name, tick, count, times=0)

    def put_back(self, topic: str, queue_id: int, size: int) -> None:
        """
        Count a message that a consumer sent back and that waits in this topic.

        A producer's put is counted by `put`.
        """
        tick = self._tick()
        self._topics.add(topic, tick, 1, size)
        if self._with_queues:
            self._queues.add((topic, queue_id), tick, 1, size)

    def put_rows(self, rows: Rows, began: float, now: float) -> None:
        """
        Count messages that were stored, each by its own request.

        The tables get them at the next sampling.

        :param began: time in seconds when the requests came; the time is `now`.
        """
        tick = int(now - self._began) // SAMPLE_S
        if tick != self._counted_at:
            self._fold(tick)
        counts = self._counts
        try:
            counted = rows.counts()
        except RuntimeError:  # the maker of runs failed
            counted = rows_of(rows).counts()
        total = 0
        for key, count, size in counted:
            sums = counts[key]
            sums[0] += count
            sums[1] += size
            total += count
        self._latencies.add(int((now - began) * 1000), total, int(now * 1000))

    @property
    def tables(self) -> dict[str, StatsTable[Any]]:
        """The tables by the names in `NAMES`."""
        self._fold(self._counted_at)
        return self._tables

    def _fold(self, tick: int) -> None:
        """Add to the tables what `put_rows` and `count_pull` counted since the last sampling."""
        counts, self._counts = self._counts, _QueueCounts()
        pulls, self._pulls = self._pulls, _Pulls()
        counted_at, self._counted_at = self._counted_at, tick
        for (topic, queue_id, group), (count, size, times, took_ms) in pulls.items():
            self._groups.add((topic, group), counted_at, count, size, times)
            key = (topic, queue_id, group)
            self._reads.add(key, counted_at, count, size, times, took_ms)
            self._gets.add(self._cluster_name, counted_at, count, times=0)
        of_topics: dict[str, list[int]] = {}
        for (topic, queue_id), (count, size) in counts.items():
            if self._with_queues:
                self._queues.add((topic, queue_id), counted_at, count, size, count)
            sums = of_topics.setdefault(topic, [0, 0])
            sums[0] += count
            sums[1] += size
        for topic, (count, size) in of_topics.items():
            self._topics.add(topic, counted_at, count, size, count)
            self._puts.add(self._cluster_name, counted_at, count, times=0)

    def count_pull(
        self,
        topic: str,
        queue_id: int,
        group: str,
        count: int,
        size: int,
        took_ms: int = 0,
        now: float | None = None,
    ) -> None:
        """
        Count messages that a pull found. The tables get them at the next sampling.

        :param size: bytes of the messages.
        :param took_ms: duration of the reading, ms.
        :param now: the time in seconds, if the caller has read the clock.
        """
        tick = int((self._seconds() if now is None else now) - self._began) // SAMPLE_S
        if tick != self._counted_at:
            self._fold(tick)
        pulls = self._pulls[topic, queue_id if self._with_queues else ALL_QUEUES, group]
        pulls[0] += count
        pulls[1] += size
        pulls[2] += 1
        pulls[3] += took_ms
        if took_ms > self._max_get_ms:
            self._max_get_ms = took_ms

    def read(
        self,
        topic: str,
        queue_id: int,
        group: str,
        records: list[bytes],
        size: int,
        began: float,
    ) -> None:
        """
        Count messages that a pull found, and note how far before the log's end they are.

        :param records: at least one.
        :param size: bytes of the records.
        :param began: time in seconds when the reading began.
        """
        now, last = self._seconds(), records[-1]
        self.count_pull(topic, queue_id, group, len(records), size, int((now - began) * 1000), now)
        stored_ms = store_timestamp_of(last)
        if stored_ms:
            (place,) = _PHYSICAL_OFFSET(last)
            behind = self._log_end() - place
            self.fell_behind(topic, queue_id, group, behind, self._now_ms() - stored_ms)

    def fell_behind(self, topic: str, queue_id: int, group: str, size: int, behind_ms: int) -> None:
        """
        Note how far a group's last read was before the end of the log.

        :param size: bytes to the end of the log.
        :param behind_ms: age of the last message, ms.
        """
        if len(self.fall_behind) >= _MAX_ITEMS:
            del self.fall_behind[next(iter(self.fall_behind))]
        self.fall_behind[topic, queue_id, group] = (size, behind_ms)

    def sent_back(self, topic: str, group: str) -> None:
        """Count a message of this topic that a group sent back."""
        self.tables["backs"].add((topic, group), self._tick(), 1)

    def delivered(
        self, level: int, messages: list[BrokerMessage], results: list[PutMessageResult]
    ) -> None:
        """
        Count delayed messages that were put into their real topics.

        :param level: their delay level, from 1.
        """
        tick = self._tick()
        count = total = 0
        for message, result in zip(messages, results, strict=True):
            if (append := result.stored) is not None:
                self._topics.add(message.topic, tick, 1, append.size)
                count += 1
                total += append.size
        if not count:
            return
        self._groups.add((SCHEDULE_TOPIC, _SCHEDULE_GROUP), tick, count, total, count)
        key = (SCHEDULE_TOPIC, level - 1 if self._with_queues else ALL_QUEUES, _SCHEDULE_GROUP)
        self._reads.add(key, tick, count, total, count)
        self._puts.add(self._cluster_name, tick, count, times=0)

    # ------------------------------------------------------------ forgetting

    def topic_deleted(self, topic: str) -> None:
        """Forget the counts of a deleted topic."""
        self._forget_topics(lambda name: name == topic)

    def group_deleted(self, group: str) -> None:
        """Forget the counts of a deleted group."""
        for name in ("groups", "reads", "backs"):
            self.tables[name].forget(lambda key: key[-1] == group)
        self._forget_behind(lambda key: key[-1] == group)

    def keep_topics(self, known: Container[str]) -> None:
        """Forget the counts of topics that are not known."""
        self._forget_topics(lambda name: name not in known)

    def _forget_topics(self, is_gone: Callable[[str], bool]) -> None:
        tables = self.tables
        tables["topics"].forget(is_gone)
        for name in ("queues", "groups", "reads", "backs"):
            tables[name].forget(lambda key: is_gone(key[0]))
        self._forget_behind(lambda key: is_gone(key[0]))

    def _forget_behind(self, is_gone: Callable[[tuple[str, int, str]], bool]) -> None:
        for key in [key for key in self.fall_behind if is_gone(key)]:
            del self.fall_behind[key]

    # ------------------------------------------------------------ telling

    def group_get_rate(self, topic: str, group: str) -> float:
        """Return how many messages a second a group got of a topic in the last minute."""
        item = self.tables["groups"].get((topic, group))
        if item is None:
            return 0.0
        return item.growth(Window.MINUTE, Figure.MESSAGES, self._tick()).per_second

    def growths(self, name: str, key: str) -> list[Growth] | None:
        """
        Return the growth over a minute, an hour and a day.

        :param name: one of `NAMES`, or GROUP_GET_FALL_SIZE or GROUP_GET_FALL_TIME, which do not
            grow: their total is the last value.
        :param key: as RocketMQ writes it: `topic@group`, `topic@queueId` ...
        :returns: None if this name and key were never counted.
        """
        if name in _BEHIND:
            behind = self.fall_behind.get(_key("reads", name, key))
            return None if behind is None else [Growth(behind[_BEHIND[name]], 0.0, 0.0)] * 3
        if name not in NAMES:
            return None
        table, figure = NAMES[name]
        item = self.tables[table].get(_key(table, name, key))
        if item is None:
            return None
        tick = self._tick()
        return [item.growth(window, figure, tick) for window in Window]

    def runtime_info(self) -> dict[str, str]:
        """Return the part of GET_BROKER_RUNTIME_INFO that comes from these numbers."""
        latencies = self._latencies
        latencies.turn_over(self.steady_ms())
        return {
            "getMessageEntireTimeMax": str(self._max_get_ms),
            "putMessageEntireTimeMax": str(latencies.max_ms),
            "putMessageDistributeTime": latencies.distribution(),
            "putLatency99": f"{latencies.quantile_ms(0.99):.2f}",
            "putLatency999": f"{latencies.quantile_ms(0.999):.2f}",
        }

    def _tick(self) -> int:
        """Return the number of the last sampling."""
        tick = int(self._seconds() - self._began) // SAMPLE_S
        if tick != self._counted_at:
            self._fold(tick)
        return tick


_BEHIND = {"GROUP_GET_FALL_SIZE": 0, "GROUP_GET_FALL_TIME": 1}
_QUEUE_FIRST = ("GROUP_GET_LATENCY", "GROUP_GET_FALL_SIZE", "GROUP_GET_FALL_TIME")


def _key(table: str, name: str, text: str) -> Any:
    """
    Return the key of an item for RocketMQ's text; for an invalid text, return a key that no item
    has.

    Topics hold no `@`.
    """
    parts = text.split("@", 2)
    if table == "queues" and len(parts) == 2:
        return parts[0], _number(parts[1])
    if table in ("groups", "backs"):
        return tuple(text.split("@", 1))
    if table == "reads" and len(parts) == 2:
        return parts[0], ALL_QUEUES, parts[1]
    if table == "reads" and len(parts) == 3:
        first, second, group = parts
        topic, queue_id = (second, first) if name in _QUEUE_FIRST else (first, second)
        return topic, _number(queue_id), group
    return text


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
