"""ConsumeStats: what operators see of a consumer's work in the last minute (statusTable of B13)."""

from collections import deque
from typing import Any

_WINDOW_MS = 60_000
_STEP_MS = 5_000


class _Sums:
    """Totals of one stretch of time."""

    __slots__ = ("failed", "ok", "ok_ms", "pull_ms", "pulled", "pulls", "since")

    def __init__(self, since: int) -> None:
        self.since = since
        self.ok = self.failed = self.pulled = self.pulls = 0
        self.ok_ms = self.pull_ms = 0


class ConsumeStats:
    """
    Rates of one consumer by topic; bounded: one minute in steps of 5 s.

    `now_ms` is of a clock that nobody sets.
    """

    def __init__(self) -> None:
        self._topics: dict[str, deque[_Sums]] = {}

    def consumed(self, topic: str, count: int, took_ms: int, now_ms: int) -> None:
        """The listener was happy with `count` messages after `took_ms`."""
        sums = self._now(topic, now_ms)
        sums.ok += count
        sums.ok_ms += took_ms * count

    def failed(self, topic: str, count: int, now_ms: int) -> None:
        """`count` messages are to be consumed again."""
        self._now(topic, now_ms).failed += count

    def pulled(self, topic: str, count: int, took_ms: int, now_ms: int) -> None:
        """A pull brought `count` messages after `took_ms`."""
        sums = self._now(topic, now_ms)
        sums.pulled += count
        sums.pulls += 1
        sums.pull_ms += took_ms

    def forget(self, topic: str) -> None:
        """It is subscribed no more."""
        self._topics.pop(topic, None)

    def status(self, topic: str, now_ms: int) -> dict[str, Any]:
        """ConsumeStatus; per second, and ms on average."""
        window = [sums for sums in self._topics.get(topic, ()) if sums.since > now_ms - _WINDOW_MS]
        seconds = _WINDOW_MS / 1000
        ok = sum(sums.ok for sums in window)
        failed = sum(sums.failed for sums in window)
        pulls = sum(sums.pulls for sums in window)
        return {
            "consumeFailedMsgs": failed,
            "consumeFailedTPS": failed / seconds,
            "consumeOKTPS": ok / seconds,
            "consumeRT": sum(sums.ok_ms for sums in window) / ok if ok else 0.0,
            "pullRT": sum(sums.pull_ms for sums in window) / pulls if pulls else 0.0,
            "pullTPS": sum(sums.pulled for sums in window) / seconds,
        }

    def _now(self, topic: str, now_ms: int) -> _Sums:
        window = self._topics.get(topic)
        if window is None:
            window = self._topics[topic] = deque(maxlen=_WINDOW_MS // _STEP_MS)
        if not window or now_ms - window[-1].since >= _STEP_MS:
            window.append(_Sums(now_ms))
        return window[-1]
