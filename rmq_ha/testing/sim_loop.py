"""asyncio on simulated time: a loop that waits for nothing, as its clock is wound."""

from asyncio import BaseEventLoop, Future
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from rmq_ha.testing.clock import SimClock

_RESOLUTION_SECONDS = 1e-6
"""Timers so close together are due together, as sums of seconds are not exact."""


class SimLoop(BaseEventLoop):
    """
    An asyncio loop whose `time` is a simulation's: where others sleep, it lets events happen.

    It has no sockets, signals or processes. What is given to an executor runs at once: nothing
    that takes real time may decide over what happens.
    """

    def __init__(self, clock: SimClock) -> None:
        super().__init__()
        inner: Any = self
        inner._clock_resolution = _RESOLUTION_SECONDS
        inner._selector = self
        self._sim_clock = clock

    def time(self) -> float:
        """Simulated seconds."""
        return self._sim_clock.seconds()

    def select(self, timeout: float | None) -> list[Any]:
        """
        What a selector is asked: let events happen until one of them is for this loop.

        :param timeout: simulated seconds, at most; None: as long as there are events.
        :raises RuntimeError: there are none, and nobody will ever be woken.
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
        """Run it now; the future is done."""
        done: Future[Any] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none: what happens calls the loop itself."""

    def _write_to_self(self) -> None:
        """Nobody sleeps."""
