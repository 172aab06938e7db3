"""Lets requests wait until a part of the log is dispatched, so that the queues have its records."""

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

        :param end: the physical offset.
        :param limit_s: longest time to wait, seconds.
        :returns: fires with whether the records are dispatched: with True as soon as they are, or
            with False after `limit_s` or when the store stops.
        """
        later: Deferred[bool] = Deferred()
        if self._dispatched() >= end:
            later.callback(True)
        else:
            self._waits[later] = (end, self._clock.callLater(limit_s, self._end_wait, later))
        return later

    def look(self) -> None:
        """
        End the waits whose records are dispatched by now; called after each slice of the dispatch.

        The requests go on in the next turn, because they may put messages, and no put may come in
        the midst of a dispatch.
        """
        reached = self._dispatched() if self._waits else 0
        for end, timer in self._waits.values():
            if end <= reached:
                timer.reset(0)

    def stop(self) -> None:
        """End all waits, with whether their records are dispatched, because the store stops."""
        for later, (_, timer) in list(self._waits.items()):
            timer.cancel()
            self._end_wait(later)

    def _end_wait(self, later: "Deferred[bool]") -> None:
        end, _ = self._waits.pop(later)
        later.callback(self._dispatched() >= end)
