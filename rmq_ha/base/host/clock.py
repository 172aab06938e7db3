"""Steady time: durations by the monotonic clock, on any reactor.

Twisted's `reactor.seconds` is the time of day. If an operator or NTP sets it back by an hour, no
timer fires for an hour. If it is set forward, all deadlines are over at once.
"""

import socket
import threading
import time
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any

from twisted.internet.base import DelayedCall
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

monotonic = time.monotonic

if hasattr(time, "CLOCK_BOOTTIME"):

    def boot_clock() -> float:
        """Return a monotonic time in seconds that also counts while the machine is suspended."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:
    boot_clock = monotonic

_MOST_STALE = 50


def make_steady(reactor: Any) -> None:
    """
    Let a reactor of this program use the monotonic clock, also for its sockets' timers.

    `callLater`, `timeout` and `runUntilCurrent` all read the instance's clock. Timers that are set
    already fire after the time that was left; a second call changes nothing.
    """
    ahead = monotonic() - reactor.seconds()
    reactor.seconds = monotonic
    # Change cancelled timers too, which keep their places in Twisted's heap.
    for call in (*reactor._pendingTimedCalls, *reactor._newTimedCalls):
        call.time += ahead
        call.seconds = monotonic


def is_steady(reactor: Any) -> bool:
    """Whether a reactor uses the monotonic clock."""
    return reactor.seconds is monotonic


def steady_clock(reactor: Any) -> IReactorTime:
    """
    Return a steady clock whose timers fire in the reactor's thread. The reactor is not changed.

    :param reactor: any reactor, also the application's.
    """
    clock: IReactorTime = reactor if is_steady(reactor) else SteadyClock(reactor)
    return clock


@implementer(IReactorTime)
class SteadyClock:
    """
    Steady timers beside an application's reactor, which uses the time of day.

    Where that time is set back, the reactor itself may sleep for as long as the step, and nothing
    in it would notice. So a thread waits until the next timer is due and wakes it. The thread is
    there only while timers are.

    :param reactor: the reactor, of which only `callFromThread` is used.
    """

    log = Logger()

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._numbers = count()
        self._heap: list[tuple[float, int, DelayedCall]] = []
        self._pending: dict[DelayedCall, None] = {}
        self._is_turn_asked_for = False
        self._alarm: _Alarm | None = None

    seconds = staticmethod(monotonic)
    """
    The time of the monotonic clock. It is that function itself, without a call in between, because
    every message asks for it.
    """

    def callLater(
        self, delay: float, callable: Callable[..., Any], *args: object, **kw: object
    ) -> DelayedCall:
        if delay < 0:
            raise ValueError(f"{delay} seconds: a delay cannot be negative")
        call = DelayedCall(
            monotonic() + delay, callable, args, kw, self._forget, self._queue, monotonic
        )
        self._pending[call] = None
        if delay:
            self._queue(call)
        else:
            self._push(call)
            self._ask_for_turn()
        return call

    def getDelayedCalls(self) -> Sequence[IDelayedCall]:
        """Return the timers that have neither fired nor been cancelled."""
        return list(self._pending)

    def _forget(self, call: DelayedCall) -> None:
        self._pending.pop(call, None)
        if not self._pending:
            self._end_alarm()
        elif len(self._heap) > _MOST_STALE + 2 * len(self._pending):
            self._heap[:] = [item for item in self._heap if item[2] in self._pending]
            heapify(self._heap)

    def _push(self, call: DelayedCall) -> None:
        heappush(self._heap, (call.time, next(self._numbers), call))

    def _queue(self, call: DelayedCall) -> None:
        """
        Put a timer into the heap. A timer that was put off keeps its old place there, and is put in
        again when that place comes up.
        """
        self._push(call)
        if self._heap[0][2] is call:
            self._wake_at(call.time)

    def _wake_at(self, when: float) -> None:
        if self._alarm is None:
            self._alarm = _Alarm(lambda: self._reactor.callFromThread(self._turn))
        self._alarm.set(when)

    def _end_alarm(self) -> None:
        alarm, self._alarm = self._alarm, None
        self._heap.clear()
        if alarm is not None:
            alarm.end()

    def _ask_for_turn(self) -> None:
        if not self._is_turn_asked_for:
            self._is_turn_asked_for = True
            self._reactor.callFromThread(self._turn)

    def _turn(self) -> None:
        """Run the timers that are due; timers that these set wait for another turn."""
        self._is_turn_asked_for = False
        now, heap = monotonic(), self._heap
        while heap and heap[0][0] <= now:
            when, _, call = heappop(heap)
            if not call.active() or call.time != when:
                continue  # cancelled, or moved to an earlier time under which it stands again
            if call.delayed_time > 0:
                call.activate_delay()
                self._push(call)
                continue
            del self._pending[call]
            call.called = 1
            with self.log.failuresHandled("a timer raised"):
                call.func(*call.args, **call.kw)
        if heap:
            self._wake_at(heap[0][0])
        elif not self._pending:
            self._end_alarm()


class _Alarm:
    """
    A thread that calls a function when a time has come, which may be set again and again.

    :param ring: called in that thread.
    """

    def __init__(self, ring: Callable[[], object]) -> None:
        self._ring = ring
        self._at: float | None = None
        self._is_over = False
        self._lock = threading.Lock()
        self._pokes, self._poked = socket.socketpair()
        self._pokes.setblocking(False)
        threading.Thread(target=self._run, name="rmq-ha-alarm", daemon=True).start()

    def set(self, when: float) -> None:
        """
        Ring at a time, in seconds of the monotonic clock. An earlier time replaces a later one at
        once.
        """
        with self._lock:
            before, self._at = self._at, when
        if before is None or when < before:
            self._poke()

    def end(self) -> None:
        """
        Stop ringing and end the thread: closing this socket wakes it, since it waits at the other
        one.
        """
        self._is_over = True
        self._pokes.close()

    def _poke(self) -> None:
        try:
            self._pokes.send(b"!")
        except OSError:
            pass  # many pokes wait already, or the thread has ended with the reactor

    def _run(self) -> None:
        try:
            while not self._is_over:
                self._wait()
        except (OSError, RuntimeError):
            pass  # the reactor is closed
        self._poked.close()

    def _wait(self) -> None:
        """
        Wait until the time comes or a poke arrives, and ring if it is due.

        It waits on a socket. With any C library, only this wait of Python ignores changes of the
        time of day.
        """
        with self._lock:
            wait = None if self._at is None else self._at - monotonic()
            is_due = wait is not None and wait <= 0
            if is_due:
                self._at = None
        if is_due:
            self._ring()
            return
        self._poked.settimeout(wait)
        try:
            self._poked.recv(4096)
        except TimeoutError:
            pass
