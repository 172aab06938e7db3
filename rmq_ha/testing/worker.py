"""
Workers for tests: one of a simulated machine that takes a little time, and one that takes none.
"""

from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.python.failure import Failure

from rmq_ha.testing.clock import SimClock
from rmq_ha.testing.trace import WORKED

T = TypeVar("T")

THREADS = 4


class SimWorker:
    """
    A `rmq_ha.base.seams.Worker` of a simulated machine.

    A call takes effect some time after it was requested, and its result comes some time after that.
    So bytes that are written in between are not part of a sync. With several threads, the call that
    was requested first may end last.

    :ivar delay: shortest and longest time of each of the two waits, in seconds; `usual_delay` at
        first.
    """

    def __init__(self, clock: SimClock, random: Random, index: int = 0) -> None:
        self.usual_delay = self.delay = (0.00002, 0.0004)
        self.outstanding = 0
        self._clock = clock
        self._random = random
        self._index = index
        self._free_at = [0.0] * THREADS
        self._dead = False

    def call(self, function: Callable[..., T], *args: Any) -> "Deferred[T]":
        """
        Run a function in a simulated thread; fires with its result or failure, never after a crash.
        """
        done: Deferred[T] = Deferred()
        if not self._dead:
            self.outstanding += 1
            thread = min(range(THREADS), key=self._free_at.__getitem__)
            start = max(self._clock.seconds(), self._free_at[thread]) + self._wait()
            end = start + self._wait()
            self._free_at[thread] = end
            self._clock.call_at(start, self._run, end, done, function, args)
        return done

    def _wait(self) -> float:
        low, high = self.delay
        return low + self._random.random() * (high - low)

    def _run(
        self, end: float, done: "Deferred[Any]", function: Callable[..., Any], args: tuple[Any, ...]
    ) -> None:
        if self._dead:
            return
        try:
            result = function(*args)
        except Exception:
            result = Failure()  # type: ignore[no-untyped-call]
        self._clock.call_at(end, self._tell, done, result)

    def _tell(self, done: "Deferred[Any]", result: Any) -> None:
        if self._dead:
            return
        self.outstanding -= 1
        self._clock.trace.add(WORKED, self._index, self._clock.seconds(), self.outstanding)
        done.callback(result)

    def crash(self) -> None:
        """Drop all calls: those that have not run will not run, and no result comes."""
        self._dead = True


class AtOnce:
    """
    A `rmq_ha.base.seams.Worker` without threads and without time: calls run at once, or when `work`
    is called.

    :ivar later: calls wait for `work`.
    :ivar queue: function, arguments and Deferred of each waiting call.
    :ivar calls: how many calls were requested.
    """

    def __init__(self) -> None:
        self.later = False
        self.queue: list[tuple[Callable[..., Any], tuple[Any, ...], Deferred[Any]]] = []
        self.calls = 0

    def call(self, function: Callable[..., T], *args: Any) -> "Deferred[T]":
        """Run a function, or queue it for `work`; fires with its result or failure."""
        self.calls += 1
        if not self.later:
            return maybeDeferred(function, *args)
        done: Deferred[T] = Deferred()
        self.queue.append((function, args, done))
        return done

    def work(self) -> None:
        """Run all waiting calls, in order."""
        queue, self.queue = self.queue, []
        for function, args, done in queue:
            maybeDeferred(function, *args).chainDeferred(done)
