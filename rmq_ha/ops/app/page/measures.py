"""Measures the series of the plots at a broker, every ten seconds."""

from collections.abc import Callable, Mapping, Sequence
from heapq import nlargest
from typing import Any

from rmq_ha.base.model.histogram import Histogram
from rmq_ha.base.model.topics import DLQ_PREFIX
from rmq_ha.ops.app.status.lags import lag_of

PEAKS = (
    "put_p99_ms",
    "reactor_p99_ms",
    "replica_lag_bytes",
    "replica_lag_seconds",
    "consumer_lag",
)
SERIES = (
    "put_rate",
    "put_bytes",
    "get_rate",
    "put_p99_ms",
    "reactor_p99_ms",
    "replica_lag_bytes",
    "replica_lag_seconds",
    "consumer_lag",
    "dead",
    "connections",
    "held_pulls",
    "disk_used",
)
"""The series of the broker as a whole, which the disk keeps, too."""
KEYS_A_LOOK = 300
MOST_GROUPS = 24
GROUP = "group:"


class MeasuredRate:
    def __init__(self) -> None:
        self._before: tuple[float, float] | None = None

    def per_second(self, seconds: float, count: float) -> float | None:
        """
        Return the rate since the last call; None at the first call, and when the counter began
        anew.
        """
        before, self._before = self._before, (seconds, count)
        if before is None or seconds <= before[0] or count < before[1]:
            return None
        return (count - before[1]) / (seconds - before[0])


class Quantile:
    """
    Measures a quantile of the values that were added to a histogram since the last call.

    :param share: the part of the values that lie below the quantile, 0 to 1.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._before: list[int] = []

    def upper_limit(self, histogram: Histogram) -> float | None:
        """
        Return the upper limit of the bucket in which the quantile lies. For the last bucket, which
        has no upper limit, the largest limit is returned.

        :returns: None at the first call, and if nothing was added since the last call.
        """
        counts, before = list(histogram.counts), self._before
        self._before = counts
        if len(before) != len(counts):
            return None
        grown = [new - old for new, old in zip(counts, before, strict=True)]
        rank, seen = sum(grown) * self._share, 0
        if not rank:
            return None
        limits: Sequence[float] = (*histogram.limits, histogram.limits[-1])
        for limit, count in zip(limits, grown, strict=True):
            seen += count
            if seen >= rank:
                return limit
        return limits[-1]


class LagMeter:
    """
    Measures how far all groups are behind, with bounded work at each look.

    :param lag_of: returns the messages that a pair `topic@group` lags; None: not known.
    :ivar by_group: lag of each group over all its topics, in messages.
    """

    def __init__(self, lag_of: Callable[[str], int | None]) -> None:
        self._lag_of = lag_of
        self._lags: dict[str, int] = {}
        self._pending: list[str] = []
        self.by_group: dict[str, int] = {}

    @property
    def total(self) -> int:
        return sum(self.by_group.values())

    def look(self, table: Mapping[str, object]) -> None:
        """
        Look at the next few pairs.

        :param table: the table of offsets, whose keys are `topic@group`.
        """
        if not self._pending:
            for key in self._lags.keys() - table.keys():
                self._note(key, 0)
                del self._lags[key]
            self._pending = list(table)
        for key in self._pending[-KEYS_A_LOOK:]:
            if key in table:
                self._note(key, self._lag_of(key) or 0)
        del self._pending[-KEYS_A_LOOK:]

    def _note(self, key: str, messages: int) -> None:
        group = key.partition("@")[2]
        lag = self.by_group.get(group, 0) + messages - self._lags.get(key, 0)
        self._lags[key] = messages
        if lag:
            self.by_group[group] = lag
        else:
            self.by_group.pop(group, None)


class BrokerMeasures:
    """
    The measurements of one broker.

    :param broker: a `Broker`.
    :param reactor: histogram of how late timers ran.
    """

    def __init__(self, broker: Any, reactor: Histogram) -> None:
        self._broker = broker
        self._reactor = reactor
        self._rates: dict[str, MeasuredRate] = {}
        self._puts, self._turns = Quantile(0.99), Quantile(0.99)
        self.lags = LagMeter(lambda key: lag_of(broker, key))
        self.dead = DeadMeter(self._count_of)

    def look(self) -> None:
        """Look at the next part of the pairs and topics, which are too many for one look."""
        self.lags.look(self._broker.consumer_offsets.table)
        self.dead.look(self._broker.topics.table)

    def take(self, members: Sequence[Any]) -> dict[str, float | None]:
        """
        Return one point of each series.

        :param members: members of the pair, group or set.
        """
        broker, store = self._broker, self._broker.store
        statistics = store.statistics
        lags = [member.lag_bytes for member in members if member.lag_bytes is not None]
        seconds = [member.lag_seconds for member in members if member.lag_seconds is not None]
        p99, turn = (
            self._puts.upper_limit(statistics.outcomes.seconds),
            self._turns.upper_limit(self._reactor),
        )
        values: dict[str, float | None] = {
            "put_rate": self._rate("put_rate", statistics.put_times),
            "put_bytes": self._rate("put_bytes", statistics.put_size),
            "get_rate": self._rate("get_rate", statistics.get_transferred),
            "put_p99_ms": None if p99 is None else p99 * 1000,
            "reactor_p99_ms": None if turn is None else turn * 1000,
            "replica_lag_bytes": max(lags) if lags else None,
            "replica_lag_seconds": max(seconds) if seconds else None,
            "consumer_lag": self.lags.total,
            "dead": self.dead.total,
            "connections": broker.main_server.connections + broker.fast_server.connections,
            "held_pulls": len(broker.hold),
            "disk_used": store.cleaner.log_ratio(),
        }
        by_group = self.lags.by_group
        for group in nlargest(MOST_GROUPS, by_group, key=by_group.__getitem__):
            values[GROUP + group] = by_group[group]
        return values

    def _count_of(self, topic: str) -> int:
        store, queues = self._broker.store, range(self._broker.topics.table[topic].write_queue_nums)
        ends = sum([store.max_offset_in_queue(topic, number) for number in queues])
        return int(ends - sum([store.min_offset_in_queue(topic, number) for number in queues]))

    def _rate(self, name: str, count: float) -> float | None:
        return self._rates.setdefault(name, MeasuredRate()).per_second(
            self._broker.host.clock.seconds(), count
        )


class DeadMeter:
    """
    Counts the messages in dead-letter queues, with bounded work at each look.

    :param count_of: returns the number of messages of a topic.
    :ivar total: messages of all dead-letter queues.
    """

    def __init__(self, count_of: Callable[[str], int]) -> None:
        self._count_of = count_of
        self._counts: dict[str, int] = {}
        self._pending: list[str] = []
        self.total = 0

    def look(self, topics: Mapping[str, object]) -> None:
        """
        Look at the next few topics.

        :param topics: all topics, by name.
        """
        if not self._pending:
            for gone in self._counts.keys() - topics.keys():
                self.total -= self._counts.pop(gone)
            self._pending = list(topics)
        for name in self._pending[-KEYS_A_LOOK:]:
            if name.startswith(DLQ_PREFIX) and name in topics:
                count = self._count_of(name)
                self.total += count - self._counts.get(name, 0)
                self._counts[name] = count
        del self._pending[-KEYS_A_LOOK:]
