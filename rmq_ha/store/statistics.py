"""What a store counts. Cheap: once a batch, and a sample every ten seconds.

Spec: remoting.md, section 7.9.
"""

from collections import deque
from datetime import date, datetime
from typing import NamedTuple

_WINDOWS = (1, 6, 60)
SAMPLE_S = 10.0


class _Sample(NamedTuple):
    at_ms: int
    put: int
    found: int
    missed: int
    transferred: int


class StoreStatistics:
    """
    Counters since the start.

    :ivar put_times: messages put (on a slave: dispatched).
    :ivar put_size: their bytes.
    :ivar put_failed: messages that were refused.
    :ivar get_found: pulls that found something; `get_missed` the others.
    :ivar get_transferred: messages that pulls found.
    """

    def __init__(self, now_ms: int) -> None:
        self.boot_ms = now_ms
        self.put_times = 0
        self.put_size = 0
        self.put_failed = 0
        self.put_time_max_ms = 0
        self.get_found = 0
        self.get_missed = 0
        self.get_transferred = 0
        self._samples: deque[_Sample] = deque(maxlen=_WINDOWS[-1] + 1)
        self._day: date = datetime.fromtimestamp(now_ms / 1000).date()
        self._yesterday = self._today = (0, 0)

    def sample(self, now_ms: int) -> None:
        """Remember the counters; call it every ten seconds."""
        self._samples.append(
            _Sample(now_ms, self.put_times, self.get_found, self.get_missed, self.get_transferred)
        )
        day = datetime.fromtimestamp(now_ms / 1000).date()
        if day != self._day:
            self._day = day
            self._yesterday, self._today = self._today, (self.put_times, self.get_transferred)

    def _rates(self, *fields: int) -> str:
        """Events a second over 10, 60 and 600 s; what is not known yet is left out."""
        samples = self._samples
        rates = []
        for window in _WINDOWS:
            if len(samples) > window:
                old, new = samples[-1 - window], samples[-1]
                seconds = max(new.at_ms - old.at_ms, 1) / 1000
                rates.append(str(sum(new[field] - old[field] for field in fields) / seconds))
        return " ".join(rates or ["0.0"])

    def table(self, now_ms: int) -> dict[str, str]:
        """The keys of the runtime info that these counters feed."""
        seconds = max(0, now_ms - self.boot_ms) // 1000
        days, hours, minutes = seconds // 86400, seconds // 3600 % 24, seconds // 60 % 60
        numbers = {
            "bootTimestamp": self.boot_ms,
            "putMessageTimesTotal": self.put_times,
            "putMessageSizeTotal": self.put_size,
            "putMessageAverageSize": self.put_size / max(self.put_times, 1),
            "putMessageEntireTimeMax": self.put_time_max_ms,
            "putMessageFailedTimes": self.put_failed,
            "msgPutTotalYesterdayMorning": self._yesterday[0],
            "msgPutTotalTodayMorning": self._today[0],
            "msgPutTotalTodayNow": self.put_times,
            "msgGetTotalYesterdayMorning": self._yesterday[1],
            "msgGetTotalTodayMorning": self._today[1],
            "msgGetTotalTodayNow": self.get_transferred,
        }
        return {
            "runtime": f"[ {days} days, {hours} hours, {minutes} minutes, {seconds % 60} seconds ]",
            "putTps": self._rates(1),
            "getFoundTps": self._rates(2),
            "getMissTps": self._rates(3),
            "getTotalTps": self._rates(2, 3),
            "getTransferedTps": self._rates(4),
            **{key: str(number) for key, number in numbers.items()},
        }
