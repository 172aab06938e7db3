"""BrokerStats: what a broker measures of its work for clients, for brokerStatus, consumerProgress.

Counters take a sample of themselves when they move, so that no timer is needed for a rate.

Spec: remoting.md, sections 7.5 and 7.9.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable

_LATENCY_LIMITS_MS = (0, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10000)
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
_GROUP_WINDOW_MS = 60_000
_GROUP_STEP_MS = 5000
_MAX_GROUPS = 10_000


class Counter:
    """
    A total that can say how fast it grew.

    :param step_ms: the finest distance of two samples.
    :param window_ms: the longest time that a rate may be asked for.
    """

    __slots__ = ("_history", "_next_sample_ms", "_step_ms", "total")

    def __init__(self, step_ms: int, window_ms: int) -> None:
        self.total = 0
        self._step_ms = step_ms
        self._next_sample_ms = 0
        self._history: deque[tuple[int, int]] = deque(maxlen=window_ms // step_ms + 2)

    def add(self, count: int, now_ms: int) -> None:
        """Once a batch."""
        if now_ms >= self._next_sample_ms:
            self._history.append((now_ms, self.total))
            self._next_sample_ms = now_ms + self._step_ms
        self.total += count

    def rate(self, window_ms: int, now_ms: int) -> float:
        """Growth in a second, over the last `window_ms`."""
        start_ms = now_ms - window_ms
        for when_ms, total in self._history:
            if when_ms > start_ms:
                return (self.total - total) * 1000 / window_ms
        return 0.0


class _Latencies:
    """How long puts took, in RocketMQ's buckets: one list now, and the last full minute."""

    def __init__(self) -> None:
        self._now = [0] * len(_LATENCY_NAMES)
        self._last: list[int] | None = None
        self._period_ends_ms = 0
        self.max_ms = 0

    def add(self, elapsed_ms: int, count: int, now_ms: int) -> None:
        if now_ms >= self._period_ends_ms:
            self.turn_over(now_ms)
        self._now[_bucket(elapsed_ms)] += count
        if elapsed_ms > self.max_ms:
            self.max_ms = elapsed_ms

    def turn_over(self, now_ms: int) -> None:
        """Start a new minute when the old one is over."""
        if now_ms < self._period_ends_ms:
            return
        if self._period_ends_ms:
            is_recent = now_ms < self._period_ends_ms + _LATENCY_PERIOD_MS
            self._last = self._now if is_recent else [0] * len(_LATENCY_NAMES)
        self._now = [0] * len(_LATENCY_NAMES)
        self._period_ends_ms = now_ms + _LATENCY_PERIOD_MS

    def distribution(self) -> str:
        """Of the last full minute; before there is one, of the present one."""
        counts = self._now if self._last is None else self._last
        return "".join(
            [f"[{name}]:{count} " for name, count in zip(_LATENCY_NAMES, counts, strict=True)]
        )

    def quantile_ms(self, share: float) -> float:
        """The upper limit of the bucket that holds this share of the puts."""
        counts = self._now if self._last is None else self._last
        wanted = sum(counts) * share
        seen = 0
        for limit, count in zip((*_LATENCY_LIMITS_MS, self.max_ms), counts, strict=True):
            seen += count
            if seen and seen >= wanted:
                return float(min(limit, self.max_ms))
        return 0.0


class BrokerStats:
    """
    How long puts took and how fast groups read. Its methods are called once a batch.

    Messages, bytes and pulls are what the store counts.

    :param now_ms: ms since the epoch.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._latencies = _Latencies()
        self._groups: dict[tuple[str, str], Counter] = {}

    def put_took(self, elapsed_ms: int, count: int = 1) -> None:
        """How long a put took until its client was answered, flush and replica included."""
        self._latencies.add(elapsed_ms, count, self._now_ms())

    def got(self, topic: str, group: str, count: int) -> None:
        """A pull found messages."""
        now_ms = self._now_ms()
        counter = self._groups.get((topic, group))
        if counter is None:
            if len(self._groups) >= _MAX_GROUPS:
                self._forget_idle_groups(now_ms)
            counter = self._groups[topic, group] = Counter(_GROUP_STEP_MS, _GROUP_WINDOW_MS)
        counter.add(count, now_ms)

    def group_get_rate(self, topic: str, group: str) -> float:
        """Messages a second that a group got of a topic, over the last minute."""
        counter = self._groups.get((topic, group))
        return counter.rate(_GROUP_WINDOW_MS, self._now_ms()) if counter else 0.0

    def runtime_info(self) -> dict[str, str]:
        """The part of GET_BROKER_RUNTIME_INFO that these numbers feed."""
        latencies = self._latencies
        latencies.turn_over(self._now_ms())
        return {
            "putMessageEntireTimeMax": str(latencies.max_ms),
            "putMessageDistributeTime": latencies.distribution(),
            "putLatency99": f"{latencies.quantile_ms(0.99):.2f}",
            "putLatency999": f"{latencies.quantile_ms(0.999):.2f}",
        }

    def _forget_idle_groups(self, now_ms: int) -> None:
        """Make room; when nobody is idle, the oldest goes."""
        for key, counter in list(self._groups.items()):
            if not counter.rate(_GROUP_WINDOW_MS, now_ms):
                del self._groups[key]
        if len(self._groups) >= _MAX_GROUPS:
            del self._groups[next(iter(self._groups))]


def _bucket(elapsed_ms: int) -> int:
    """0 or less, then below each limit, then the rest."""
    return 0 if elapsed_ms <= 0 else bisect_right(_LATENCY_LIMITS_MS, elapsed_ms)
