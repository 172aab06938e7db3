"""An asyncio event loop on simulated time, which never waits in real time."""

from asyncio import BaseEventLoop, Future
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from rmq_ha.testing.clock import SimClock

_RESOLUTION_SECONDS = 1e-6
"""Timers so close together are due together, because sums of seconds are not exact."""


class SimLoop(BaseEventLoop):
    """
    An asyncio loop whose `time` is a simulation's: where other loops sleep, it runs the
    simulation's events.

    It has no sockets, signals or processes. A function for an executor runs at once, because the
    outcome must not depend on anything that takes real time.
    """

    def __init__(self, clock: SimClock) -> None:
        super().__init__()
        inner: Any = self
        inner._clock_resolution = _RESOLUTION_SECONDS
        inner._selector = self
        self._sim_clock = clock

    def time(self) -> float:
        """Return the simulated time in seconds, by which asyncio runs all of its timers."""
        return self._sim_clock.seconds()

    def select(self, timeout: float | None) -> list[Any]:
        """
        Run events of the simulation until one of them makes this loop ready; called in place of a
        selector.

        :param timeout: simulated seconds, at most; None: as long as there are events.
        :raises RuntimeError: no events are left, so the loop would never be ready.
        """
        ready: Any = self._ready  # type: ignore[attr-defined]
        if timeout is not None:
            self._sim_clock.run_while(lambda: not ready, timeout)
            return []
        while not ready:
            if not self._sim_clock.step():
                raise RuntimeError("everybody waits, and nothing will ever happen")
        return []

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> "Future[Any]":
        """Run a function now, and return a future that is done."""
        done: Future[Any] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done

    def _process_events(self, event_list: list[Any]) -> None:
        """Do nothing: events of the simulation call the loop themselves."""

    def _write_to_self(self) -> None:
        """Do nothing: the loop never sleeps."""
