"""Timers that follow a deadline, and waits for the next turn."""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime


def rearm(
    clock: IReactorTime,
    timer: IDelayedCall | None,
    deadline: float | None,
    function: Callable[..., object],
    *args: Any,
) -> IDelayedCall | None:
    """
    Make sure that `function` is called at the deadline, or earlier.

    A timer that is due before the deadline is kept. Deadlines mostly move away, since each write
    puts off the next heartbeat. One call too many every few seconds costs less than moving the
    timer at every event. So `function` must look for itself whether its time has come.

    :param timer: the timer that the previous call returned.
    :param deadline: in seconds of the clock; None: no call at all.
    :returns: the timer to pass in the next call.
    """
    if timer is not None and timer.active():
        if deadline is not None and timer.getTime() <= deadline:
            return timer
        timer.cancel()
    if deadline is None:
        return None
    return clock.callLater(max(0.0, deadline - clock.seconds()), function, *args)


class LastTurn:
    """
    Grants a silent peer one more turn of the reactor before it is given up.

    Timers fire before sockets are read. After a long turn, as of a big request or a machine that
    slept, the bytes that an honest peer sent in time are still unread when its timer fires.
    """

    def __init__(self) -> None:
        self._is_given = False

    def look_again(
        self, clock: IReactorTime, function: Callable[[], object]
    ) -> IDelayedCall | None:
        """
        Decide at the end of a peer's time.

        :param function: looks at the peer again, after the bytes that have arrived are read.
        :returns: the timer for `function`; None if this was the granted turn already.
        """
        self._is_given = not self._is_given
        return clock.callLater(0, function) if self._is_given else None

    def reset(self) -> None:
        """Forget that a turn was granted, because the peer has spoken."""
        self._is_given = False


def wait_at_most(clock: IReactorTime, seconds: float, later: "Deferred[Any]") -> "Deferred[None]":
    """
    Wait for a Deferred for some seconds. Fires with None when `later` has fired or failed, or when
    the time is over.
    """
    done: Deferred[None] = Deferred()
    timer = clock.callLater(seconds, done.callback, None)

    def fired(_: object) -> None:
        if timer.active():
            timer.cancel()
            done.callback(None)

    later.addBoth(fired)
    return done


def next_turn(clock: IReactorTime) -> "Deferred[None]":
    """
    Fires in the next turn of the reactor, after the bytes that have arrived by now are read.

    A long coroutine awaits this between two slices, so that the reactor serves others meanwhile.
    """
    later: Deferred[None] = Deferred()
    clock.callLater(0, later.callback, None)
    return later
