"""BrokerStats: what a broker counts of its work for clients, for brokerStatus and consumerProgress.

Counters take a sample of themselves when they move, so that no timer is needed for a rate.

Spec: remoting.md, sections 7.5 and 7.9.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from datetime import datetime, time, timedelta

_WINDOWS_SECONDS = (10, 60, 600)
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
_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_LATENCY_PERIOD_MS = 60_000
_GROUP_WINDOW_MS = 60_000
_GROUP_STEP_MS = 5000
_MAX_GROUPS = 10_000


class Counter:
    """
    A total that can say how fast it grew.

    :param step_ms: the finest distance of two samples.
    :param window_ms: how far back a rate may be asked for.
    """

    __slots__ = ("_history", "_next_sample_ms", "_step_ms", "total")

    def __init__(self, step_ms: int = 1000, window_ms: int = 600_000) -> None:
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
    Counts puts and gets. Its methods are called once a batch.

    :param now_ms: ms since the epoch.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._boot_ms = now_ms()
        self._put = Counter()
        self._found = Counter()
        self._missed = Counter()
        self._transferred = Counter()
        self._latencies = _Latencies()
        self._put_size = 0
        self._put_failed = 0
        self._groups: dict[tuple[str, str], Counter] = {}
        self._day_ends_ms = next_midnight_ms(self._boot_ms)
        self._put_mornings = (0, 0)  # the totals of yesterday's and of today's midnight
        self._get_mornings = (0, 0)

    def put(self, count: int, size: int) -> None:
        """
        Messages were stored.

        :param size: bytes of their records.
        """
        self._put.add(count, self._day())
        self._put_size += size

    def put_failed(self, count: int = 1) -> None:
        """Messages were not stored."""
        self._put_failed += count

    def put_took(self, elapsed_ms: int, count: int = 1) -> None:
        """How long a put took until its client was answered, flush and replica included."""
        self._latencies.add(elapsed_ms, count, self._now_ms())

    def got(self, topic: str, group: str, count: int) -> None:
        """A pull found messages."""
        now_ms = self._day()
        self._found.add(1, now_ms)
        self._transferred.add(count, now_ms)
        counter = self._groups.get((topic, group))
        if counter is None:
            if len(self._groups) >= _MAX_GROUPS:
                self._forget_idle_groups(now_ms)
            counter = self._groups[topic, group] = Counter(_GROUP_STEP_MS, _GROUP_WINDOW_MS)
        counter.add(count, now_ms)

    def missed(self) -> None:
        """A pull found nothing."""
        self._missed.add(1, self._day())

    def group_get_rate(self, topic: str, group: str) -> float:
        """Messages a second that a group got of a topic, over the last minute."""
        counter = self._groups.get((topic, group))
        return counter.rate(_GROUP_WINDOW_MS, self._now_ms()) if counter else 0.0

    def runtime_info(self) -> dict[str, str]:
        """The part of GET_BROKER_RUNTIME_INFO that these numbers feed."""
        now_ms = self._day()
        latencies = self._latencies
        latencies.turn_over(now_ms)
        put_total, got_total = self._put.total, self._transferred.total
        return {
            "bootTimestamp": str(self._boot_ms),
            "runtime": duration_text(now_ms - self._boot_ms),
            "putTps": self._rates(now_ms, self._put),
            "getFoundTps": self._rates(now_ms, self._found),
            "getMissTps": self._rates(now_ms, self._missed),
            "getTotalTps": self._rates(now_ms, self._found, self._missed, missing="0.0"),
            "getTransferedTps": self._rates(now_ms, self._transferred),
            "putMessageTimesTotal": str(put_total),
            "putMessageSizeTotal": str(self._put_size),
            "putMessageAverageSize": str(self._put_size / put_total if put_total else 0.0),
            "putMessageFailedTimes": str(self._put_failed),
            "putMessageEntireTimeMax": str(latencies.max_ms),
            "putMessageDistributeTime": latencies.distribution(),
            "putLatency99": f"{latencies.quantile_ms(0.99):.2f}",
            "putLatency999": f"{latencies.quantile_ms(0.999):.2f}",
            "msgPutTotalYesterdayMorning": str(self._put_mornings[0]),
            "msgPutTotalTodayMorning": str(self._put_mornings[1]),
            "msgPutTotalTodayNow": str(put_total),
            "msgGetTotalYesterdayMorning": str(self._get_mornings[0]),
            "msgGetTotalTodayMorning": str(self._get_mornings[1]),
            "msgGetTotalTodayNow": str(got_total),
        }

    def _day(self) -> int:
        """Now; at the first call of a day, its morning's totals are put down first."""
        now_ms = self._now_ms()
        if now_ms >= self._day_ends_ms:
            is_next_day = now_ms < next_midnight_ms(self._day_ends_ms)
            put_total, got_total = self._put.total, self._transferred.total
            self._put_mornings = (self._put_mornings[1] if is_next_day else put_total, put_total)
            self._get_mornings = (self._get_mornings[1] if is_next_day else got_total, got_total)
            self._day_ends_ms = next_midnight_ms(now_ms)
        return now_ms

    def _rates(self, now_ms: int, *counters: Counter, missing: str = "") -> str:
        """Over 10, 60 and 600 s; a window that is longer than this run has no number."""
        return " ".join(
            [
                str(sum([counter.rate(seconds * 1000, now_ms) for counter in counters], 0.0))
                if now_ms - self._boot_ms > seconds * 1000
                else missing
                for seconds in _WINDOWS_SECONDS
            ]
        )

    def _forget_idle_groups(self, now_ms: int) -> None:
        """Make room; when nobody is idle, the oldest goes."""
        for key, counter in list(self._groups.items()):
            if not counter.rate(_GROUP_WINDOW_MS, now_ms):
                del self._groups[key]
        if len(self._groups) >= _MAX_GROUPS:
            del self._groups[next(iter(self._groups))]


def next_midnight_ms(now_ms: int) -> int:
    """The end of this day in local time."""
    tomorrow = datetime.fromtimestamp(now_ms / 1000).date() + timedelta(days=1)
    return int(datetime.combine(tomorrow, time.min).timestamp() * 1000)


def duration_text(elapsed_ms: int) -> str:
    """RocketMQ's words for how long a broker runs."""
    minutes, seconds = divmod(max(elapsed_ms, 0) // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def readable_size(size: int) -> str:
    """Bytes as RocketMQ prints them: `235 B`, `6.2 KiB`, `252.0 GiB`."""
    if size < 1024:
        return f"{size} B"
    power = min((size.bit_length() - 1) // 10, len(_UNITS))
    return f"{size / (1 << 10 * power):.1f} {_UNITS[power - 1]}"


def _bucket(elapsed_ms: int) -> int:
    """0 or less, then below each limit, then the rest."""
    return 0 if elapsed_ms <= 0 else bisect_right(_LATENCY_LIMITS_MS, elapsed_ms)
