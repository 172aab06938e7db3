"""Simulated time: a heap of events, and a clock for each machine on it."""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

from twisted.internet.error import AlreadyCalled, AlreadyCancelled
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from rmq_ha.testing.trace import TIMER, Trace

MAX_STEPS_AT_ONCE = 200_000


class SimulationStuck(Exception):
    """The simulated time does not move: a function calls itself again without a delay."""


class SimClock:
    """
    All events of a simulation in order of (time, sequence); time jumps from one to the next.

    :ivar failures: exceptions that timers and protocols raised; an empty list in a healthy run.
    """

    log = Logger()

    def __init__(self, trace: Trace | None = None) -> None:
        self.trace = trace or Trace()
        self.failures: list[Failure] = []
        self._now = 0.0
        self._sequence = 0
        self._heap: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._steps_at_once = 0

    def seconds(self) -> float:
        """Simulated seconds since the start."""
        return self._now

    def call_at(self, time: float, function: Callable[..., object], *args: Any) -> None:
        """Run a function at a time, or now if that time has passed. It cannot be cancelled."""
        self._sequence += 1
        heappush(self._heap, (max(time, self._now), self._sequence, function, args))

    def step(self) -> bool:
        """
        Run the next event.

        :returns: False when there is none.
        :raises SimulationStuck: time stood still for very many events.
        """
        if not self._heap:
            return False
        time, _, function, args = heappop(self._heap)
        if time > self._now:
            self._now = time
            self._steps_at_once = 0
        else:
            self._steps_at_once += 1
            if self._steps_at_once > MAX_STEPS_AT_ONCE:
                raise SimulationStuck(f"{MAX_STEPS_AT_ONCE} events at {time} s, last: {function}")
        try:
            function(*args)
        except Exception:
            self.fail("an event raised", Failure())  # type: ignore[no-untyped-call]
        return True

    def fail(self, what: str, failure: Failure) -> None:
        """Note an exception that a reactor would have logged."""
        self.failures.append(failure)
        self.log.failure("{what}", failure=failure, what=what)

    def run_until(self, time: float) -> None:
        """Run every event up to and including a time, and set the time to it."""
        heap = self._heap
        while heap and heap[0][0] <= time:
            self.step()
        if time > self._now:
            self._now = time
            self._steps_at_once = 0

    def run_for(self, seconds: float) -> None:
        """Let so many seconds pass."""
        self.run_until(self._now + seconds)

    def run_while(self, waiting: Callable[[], object], limit: float) -> bool:
        """
        Run as long as `waiting()` is true, at most `limit` seconds.

        :returns: whether it became false in time.
        """
        end = self._now + limit
        while waiting():
            if not self._heap or self._heap[0][0] > end:
                self.run_until(end)
                return not waiting()
            self.step()
        return True


@implementer(IDelayedCall)
class SimCall:
    """A timer of a `HostClock`, with the semantics of Twisted's `DelayedCall`."""

    __slots__ = ("_clock", "_queued", "_state", "_time", "args", "function", "kw")

    def __init__(
        self,
        clock: "HostClock",
        time: float,
        function: Callable[..., object],
        args: tuple[Any, ...],
        kw: dict[str, Any],
    ) -> None:
        self.function = function
        self.args = args
        self.kw = kw
        self._clock = clock
        self._time = time
        self._state = 0
        self._queued = time

    def getTime(self) -> float:
        """The clock's time at which the call will fire."""
        return self._time

    def cancel(self) -> None:
        """
        Cancel the call.

        :raises AlreadyCalled: it has fired.
        :raises AlreadyCancelled: it was cancelled.
        """
        self._check()
        self._state = 2
        self._clock.forget(self)

    def reset(self, secondsFromNow: float) -> None:
        """Fire after that number of seconds from now; raises the same as `cancel`."""
        self._check()
        self._move(self._clock.seconds() + secondsFromNow)

    def delay(self, secondsLater: float) -> None:
        """Fire that number of seconds later than planned; raises the same as `cancel`."""
        self._check()
        self._move(self._time + secondsLater)

    def active(self) -> bool:
        """Return whether the call has neither fired nor been cancelled."""
        return self._state == 0

    def _check(self) -> None:
        if self._state == 1:
            raise AlreadyCalled
        if self._state == 2:
            raise AlreadyCancelled

    def _move(self, time: float) -> None:
        """
        Change the time. For a later time the entry in the heap stays and is queued again when it
        comes up; an earlier time needs a new entry.
        """
        self._time = time
        if time < self._queued:
            self._queued = time
            self._clock.queue(self, time)

    def fire(self, queued: float) -> None:
        """
        Run the call, or queue it again if its time was moved; called when its entry in the heap
        comes up.
        """
        if self._state or queued != self._queued:
            return
        if self._time > queued:
            self._queued = self._time
            self._clock.queue(self, self._time)
            return
        self._state = 1
        self._clock.forget(self)
        self._clock.fired(self)

    def vanish(self) -> None:
        """Drop the call, because its machine crashed."""
        self._state = 2


@implementer(IReactorTime)
class HostClock:
    """
    The clock of one machine, an `IReactorTime`: the simulation's time with the machine's own
    timers.

    :param index: index of the machine, for the trace.
    """

    def __init__(self, clock: SimClock, index: int = 0) -> None:
        self._clock = clock
        self._index = index
        self._calls: dict[SimCall, None] = {}
        self._dead = False

    def seconds(self) -> float:
        """Simulated seconds, the same on every machine."""
        return self._clock.seconds()

    def callLater(
        self, delay: float, callable: Callable[..., Any], *args: object, **kw: object
    ) -> SimCall:
        """Call a function `delay` seconds from now; with 0 after everything that is due already."""
        if delay < 0:
            raise ValueError(f"{delay} seconds: a delay cannot be negative")
        call = SimCall(self, self._clock.seconds() + delay, callable, args, kw)
        if self._dead:
            call.vanish()
        else:
            self._calls[call] = None
            self.queue(call, call.getTime())
        return call

    def getDelayedCalls(self) -> Sequence[IDelayedCall]:
        """Timers that have neither fired nor been cancelled."""
        return list(self._calls)

    def queue(self, call: SimCall, time: float) -> None:
        """Put a timer's entry into the heap."""
        self._clock.call_at(time, call.fire, time)

    def forget(self, call: SimCall) -> None:
        """Remove a timer that is done."""
        self._calls.pop(call, None)

    def fired(self, call: SimCall) -> None:
        """Run a timer that is due."""
        self._clock.trace.add(TIMER, self._index, self._clock.seconds(), 0)
        call.function(*call.args, **call.kw)

    def crash(self) -> None:
        """Drop every timer; new ones never fire."""
        self._dead = True
        for call in self._calls:
            call.vanish()
        self._calls.clear()
