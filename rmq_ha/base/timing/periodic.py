"""A timer that goes on after a failure.

Twisted's `LoopingCall` ends for good when its function fails once. Registration must not end.
"""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure


class Periodic:
    """
    Runs a function at a fixed rate, never twice at once, and goes on when it raises.

    When a run takes longer than the period, the runs that were due meanwhile are left out.

    :param name: name of the work in the log.
    :param function: may return a Deferred; the next run waits for it.
    :param every: seconds between the starts of two runs; more than 0.
    :param first: seconds from `start` to the first run; None: `every`.
    :ivar failures: how many runs have failed.
    """

    log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        name: str,
        function: Callable[[], Any],
        every: float,
        first: float | None = None,
    ) -> None:
        if every <= 0:
            raise ValueError(f"the period of {name} must be more than 0 s, not {every}")
        self.failures = 0
        self._clock = clock
        self._name = name
        self._function = function
        self._every = every
        self._first = every if first is None else first
        self._due = 0.0
        self._timer: IDelayedCall | None = None
        self._started = False
        self._running: Deferred[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether a run is under way now."""
        return self._running is not None

    def start(self) -> None:
        """Arm the timer. A second call changes nothing."""
        if self._started:
            return
        self._started = True
        if self._running is None:
            self._due = self._clock.seconds() + self._first
            self._arm()

    def stop(self) -> "Deferred[None]":
        """
        Begin no more runs.

        :returns: fires with None when the run under way has ended; never fails.
        """
        self._started = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        done: Deferred[None] = succeed(None)
        if self._running is not None:
            done = Deferred()
            self._running.chainDeferred(done)
        return done

    def _arm(self) -> None:
        delay = max(0.0, self._due - self._clock.seconds())
        self._timer = self._clock.callLater(delay, self._run)

    def _run(self) -> None:
        self._timer = None
        self._running = Deferred()
        maybeDeferred(self._function).addErrback(self._failed).addBoth(self._finished)

    def _failed(self, failure: Failure) -> None:
        self.failures += 1
        self.log.failure("{name} failed; it runs again in time", failure, name=self._name)

    def _finished(self, _: object) -> None:
        running, self._running = self._running, None
        if self._started:
            now = self._clock.seconds()
            missed = max(0, int((now - self._due) // self._every))
            self._due += (missed + 1) * self._every
            self._arm()
        if running is not None:
            running.callback(None)
