"""What a store counts. Cheap: once a batch, and a sample every second.

Spec: remoting.md, section 7.9.
"""

from collections import deque
from datetime import datetime, time, timedelta
from typing import NamedTuple

from rmq_ha.base.model.histogram import Histogram
from rmq_ha.base.model.status import PutMessageStatus

SAMPLE_S = 1.0
_WINDOWS_S = (10, 60, 600)
_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


class PutOutcomes:
    """
    What became of the puts of one store since its start.

    :ivar seconds: from the append, which counts, to the moment its answer is known; by message.
    :ivar replica_seconds: of it, waiting for a slave's acknowledgement; by batch that waited.
    :ivar flush_seconds: of it, waiting for the disk; by batch that waited.
    :ivar waiting: messages that are stored and not yet answered.
    :ivar degraded: messages that are stored, but less safely than configured, by reason.
    :ivar refused: messages that were not stored, by reason.
    :ivar known: messages that were stored before, and not again.
    """

    def __init__(self) -> None:
        self.seconds = Histogram()
        self.replica_seconds = Histogram()
        self.flush_seconds = Histogram()
        self.waiting = 0
        self.known = 0
        self.degraded: dict[PutMessageStatus, int] = {}
        self.refused: dict[PutMessageStatus, int] = {}

    def stored_less_safely(self, status: PutMessageStatus, count: int) -> None:
        """:param status: FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT or SLAVE_NOT_AVAILABLE."""
        self.degraded[status] = self.degraded.get(status, 0) + count

    def not_stored(self, status: PutMessageStatus, count: int = 1) -> None:
        """:param status: why."""
        self.refused[status] = self.refused.get(status, 0) + count


class _Sample(NamedTuple):
    at_ms: int
    put: int
    got: int
    got_none: int
    transferred: int


class StoreStatistics:
    """
    Counters since the start.

    :ivar put_times: messages put (on a slave: dispatched).
    :ivar put_size: their bytes.
    :ivar put_failed: messages that were refused.
    :ivar get_found: pulls that found something; `get_missed` the others.
    :ivar get_transferred: messages that pulls found.
    :ivar set_aside_bytes: that a diverged log had to give up; `set_aside_messages` whole ones.
    :ivar outcomes: how puts ended, and when.
    """

    def __init__(self, now_ms: int, steady_ms: int = 0) -> None:
        self.boot_ms = now_ms
        self._began_ms = steady_ms
        self.put_times = 0
        self.put_size = 0
        self.put_failed = 0
        self.get_found = 0
        self.get_missed = 0
        self.get_transferred = 0
        self.set_aside_bytes = 0
        self.set_aside_messages = 0
        self.outcomes = PutOutcomes()
        self._samples: deque[_Sample] = deque(maxlen=_WINDOWS_S[-1] + 1)
        self._day_ends_ms = next_midnight_ms(now_ms)
        self._yesterday = self._today = (0, 0)

    def sample(self, now_ms: int, steady_ms: int) -> None:
        """
        Remember the counters; call it every second.

        :param now_ms: a day is one of the wall clock, all else goes by `steady_ms`.
        """
        self._samples.append(
            _Sample(
                steady_ms, self.put_times, self.get_found, self.get_missed, self.get_transferred
            )
        )
        if now_ms >= self._day_ends_ms:
            self._day_ends_ms = next_midnight_ms(now_ms)
            self._yesterday, self._today = self._today, (self.put_times, self.get_transferred)

    def _rates(self, *fields: int, missing: str = "") -> str:
        """Events a second over 10, 60 and 600 s; a window longer than this run has no number."""
        samples = self._samples
        rates = []
        for window in _WINDOWS_S:
            rate = missing
            if len(samples) > window:
                old, new = samples[-1 - window], samples[-1]
                seconds = max(new.at_ms - old.at_ms, 1) / 1000
                rate = str(sum([new[field] - old[field] for field in fields]) / seconds)
            rates.append(rate)
        return " ".join(rates)

    def table(self, steady_ms: int) -> dict[str, str]:
        """The keys of the runtime info that these counters feed."""
        numbers = {
            "bootTimestamp": self.boot_ms,
            "putMessageTimesTotal": self.put_times,
            "putMessageSizeTotal": self.put_size,
            "putMessageAverageSize": self.put_size / max(self.put_times, 1),
            "putMessageFailedTimes": self.put_failed,
            "msgPutTotalYesterdayMorning": self._yesterday[0],
            "msgPutTotalTodayMorning": self._today[0],
            "msgPutTotalTodayNow": self.put_times,
            "msgGetTotalYesterdayMorning": self._yesterday[1],
            "msgGetTotalTodayMorning": self._today[1],
            "msgGetTotalTodayNow": self.get_transferred,
        }
        return {
            "runtime": duration_text(steady_ms - self._began_ms),
            "putTps": self._rates(1),
            "getFoundTps": self._rates(2),
            "getMissTps": self._rates(3),
            "getTotalTps": self._rates(2, 3, missing="0.0"),
            "getTransferedTps": self._rates(4),
            **{key: str(number) for key, number in numbers.items()},
        }


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
