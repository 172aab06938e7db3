"""Tells requests when a part of the log is dispatched: when the queues have its records."""

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime


class DispatchWaits:
    """
    The requests that wait until a part of the log is dispatched.

    :param dispatched: returns the physical offset up to which records are dispatched.
    """

    def __init__(self, clock: IReactorTime, dispatched: Callable[[], int]) -> None:
        self._clock = clock
        self._dispatched = dispatched
        self._waits: dict[Deferred[bool], tuple[int, IDelayedCall]] = {}

    def wait_until(self, end: int, limit_s: float) -> "Deferred[bool]":
        """
        Wait until all records below a physical offset are dispatched.

        :returns: fires with True then; with False after `limit_s` seconds, or if the store stops.
        """
        later: Deferred[bool] = Deferred()
        if self._dispatched() >= end:
            later.callback(True)
        else:
            self._waits[later] = (end, self._clock.callLater(limit_s, self._end_wait, later))
        return later

    def look(self) -> None:
        """
        Look whether a request need not wait any longer, because a slice was dispatched.

        It goes on in the next turn: a put of its own must not come in the midst of a dispatch.
        """
        reached = self._dispatched() if self._waits else 0
        for end, timer in self._waits.values():
            if end <= reached:
                timer.reset(0)

    def stop(self) -> None:
        """Answer all requests with what is dispatched, because the store stops."""
        for later, (_, timer) in list(self._waits.items()):
            timer.cancel()
            self._end_wait(later)

    def _end_wait(self, later: "Deferred[bool]") -> None:
        end, _ = self._waits.pop(later)
        later.callback(self._dispatched() >= end)
