"""ConsumeStats: rates of a consumer in the last minute, for operators (statusTable of spec B13)."""

from collections import deque
from typing import Any

_WINDOW_MS = 60_000
_STEP_MS = 5_000


class _Sums:
    """Totals of the time from `since` on, for one step of the window."""

    __slots__ = ("failed", "ok", "ok_ms", "pull_ms", "pulled", "pulls", "since")

    def __init__(self, since: int) -> None:
        self.since = since
        self.ok = self.failed = self.pulled = self.pulls = 0
        self.ok_ms = self.pull_ms = 0


class ConsumeRates:
    """
    Rates of one consumer by topic, over the last minute in steps of 5 s.

    `now_ms` is always the time of a steady clock.
    """

    def __init__(self) -> None:
        self._topics: dict[str, deque[_Sums]] = {}

    def consumed(self, topic: str, count: int, took_ms: int, now_ms: int) -> None:
        """Count messages that the listener has consumed in a call of `took_ms`."""
        sums = self._now(topic, now_ms)
        sums.ok += count
        sums.ok_ms += took_ms * count

    def failed(self, topic: str, count: int, now_ms: int) -> None:
        """Count messages that are to be consumed again."""
        self._now(topic, now_ms).failed += count

    def pulled(self, topic: str, count: int, took_ms: int, now_ms: int) -> None:
        """Count the messages of one pull that took `took_ms`."""
        sums = self._now(topic, now_ms)
        sums.pulled += count
        sums.pulls += 1
        sums.pull_ms += took_ms

    def forget(self, topic: str) -> None:
        """Forget the rates of a topic that is not subscribed any more."""
        self._topics.pop(topic, None)

    def status(self, topic: str, now_ms: int) -> dict[str, Any]:
        """Return a topic's ConsumeStatus: TPS fields per second, RT fields in ms on average."""
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
