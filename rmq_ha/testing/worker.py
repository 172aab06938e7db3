"""Workers for tests: a simulated machine's, that takes a little time, and one that takes none."""

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
    A `rmq_ha.base.seams.Worker`.

    A call takes effect some time after it was asked for, and its result comes some time after
    that: what is written in between is not part of a sync. With several threads, what was asked
    for first may end last.

    :ivar delay: least and most seconds of each of the two waits; `usual_delay` at first.
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
        """Run it aside; fires with its result or failure, never after a crash."""
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
        """What was asked for and has not run will not run; no result comes."""
        self._dead = True


class AtOnce:
    """
    A `rmq_ha.base.seams.Worker` without threads and without time: calls run at once, or when told
    to.

    :ivar later: calls wait for `work`.
    :ivar queue: function, arguments and Deferred of each call that waits.
    :ivar calls: how many were asked for.
    """

    def __init__(self) -> None:
        self.later = False
        self.queue: list[tuple[Callable[..., Any], tuple[Any, ...], Deferred[Any]]] = []
        self.calls = 0

    def call(self, function: Callable[..., T], *args: Any) -> "Deferred[T]":
        """Run it; fires with its result or failure."""
        self.calls += 1
        if not self.later:
            return maybeDeferred(function, *args)
        done: Deferred[T] = Deferred()
        self.queue.append((function, args, done))
        return done

    def work(self) -> None:
        """Do what waits by now, in order."""
        queue, self.queue = self.queue, []
        for function, args, done in queue:
            maybeDeferred(function, *args).chainDeferred(done)
