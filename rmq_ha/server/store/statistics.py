"""Counters of a store. They are cheap: counted once for each batch, and sampled every second.

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
    Counters of the results of a store's puts since its start.

    :ivar seconds: time from the begin of the append to the answer, for each message.
    :ivar replica_seconds: the part of it that waited for a slave, for each batch that waited.
    :ivar flush_seconds: the part of it that waited for the disk, for each batch that waited.
    :ivar waiting: messages that are stored and not answered yet.
    :ivar degraded: messages that were stored, but less safely than configured, by reason.
    :ivar refused: messages that were not stored, or that no quorum stored in time, by reason.
    :ivar known: messages that were recognized as duplicates and not stored again.
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
        """
        Count messages that were stored less safely than configured.

        :param status: FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT or SLAVE_NOT_AVAILABLE.
        """
        self.degraded[status] = self.degraded.get(status, 0) + count

    def not_stored(self, status: PutMessageStatus, count: int = 1) -> None:
        """
        Count messages that were not stored, or that no quorum of a group stored in time.

        :param status: the reason.
        """
        self.refused[status] = self.refused.get(status, 0) + count


class _CountSample(NamedTuple):
    at_ms: int
    put: int
    got: int
    got_none: int
    transferred: int


class StoreStatistics:
    """
    Counters since the start.

    :ivar put_times: messages put (on a slave: dispatched).
    :ivar put_size: bytes of these messages.
    :ivar put_failed: messages that were refused.
    :ivar get_found: pulls that found messages; `get_missed` counts the other pulls.
    :ivar get_transferred: messages that pulls found.
    :ivar set_aside_bytes: bytes that were cut from the log and set aside; `set_aside_messages`
        counts their whole messages.
    :ivar outcomes: results of puts, with their durations.
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
        self._samples: deque[_CountSample] = deque(maxlen=_WINDOWS_S[-1] + 1)
        self._day_ends_ms = next_midnight_ms(now_ms)
        self._yesterday = self._today = (0, 0)

    def sample(self, now_ms: int, steady_ms: int) -> None:
        """
        Store a sample of the counters; call it every second.

        :param now_ms: the wall clock, for the change of day; everything else uses `steady_ms`.
        """
        self._samples.append(
            _CountSample(
                steady_ms, self.put_times, self.get_found, self.get_missed, self.get_transferred
            )
        )
        if now_ms >= self._day_ends_ms:
            self._day_ends_ms = next_midnight_ms(now_ms)
            self._yesterday, self._today = self._today, (self.put_times, self.get_transferred)

    def _rates(self, *fields: int, missing: str = "") -> str:
        """
        Return events a second over 10, 60 and 600 s.

        A window longer than this run has no number.
        """
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
        """Return the keys of the runtime info that come from these counters."""
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
    """Return the end of this day in local time, ms."""
    tomorrow = datetime.fromtimestamp(now_ms / 1000).date() + timedelta(days=1)
    return int(datetime.combine(tomorrow, time.min).timestamp() * 1000)


def duration_text(elapsed_ms: int) -> str:
    """Return how long a broker runs, in RocketMQ's words."""
    minutes, seconds = divmod(max(elapsed_ms, 0) // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def readable_size(size: int) -> str:
    """Return bytes as RocketMQ prints them: `235 B`, `6.2 KiB`, `252.0 GiB`."""
    if size < 1024:
        return f"{size} B"
    power = min((size.bit_length() - 1) // 10, len(_UNITS))
    return f"{size / (1 << 10 * power):.1f} {_UNITS[power - 1]}"
