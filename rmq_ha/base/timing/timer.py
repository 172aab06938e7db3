"""One timer that follows a deadline."""

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

    A timer that is due before the deadline is kept: deadlines mostly move away (each write puts
    off the next heartbeat), and one call too many every few seconds costs less than moving the
    timer at every event. So `function` must look for itself whether its time has come.

    :param timer: what the previous call returned.
    :param deadline: in the clock's seconds; None: no call at all.
    :returns: the timer to pass next time.
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
    One more turn of the reactor before somebody is given up for his silence.

    Timers come before sockets are read. After a turn that took long (a big request, a machine that
    slept) what an honest peer has sent in time is still unread when its timer is over.
    """

    def __init__(self) -> None:
        self._is_given = False

    def look_again(
        self, clock: IReactorTime, function: Callable[[], object]
    ) -> IDelayedCall | None:
        """
        Somebody's time is over.

        :param function: looks again, with what was read by then.
        :returns: the timer of that, or None when this was the last turn.
        """
        self._is_given = not self._is_given
        return clock.callLater(0, function) if self._is_given else None

    def reset(self) -> None:
        self._is_given = False


def wait_at_most(clock: IReactorTime, seconds: float, later: "Deferred[Any]") -> "Deferred[None]":
    """Fires with None when `later` has fired, whatever with, or when the time is over."""
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

    A long coroutine awaits it between two slices, so that the reactor serves others meanwhile.
    """
    later: Deferred[None] = Deferred()
    clock.callLater(0, later.callback, None)
    return later
