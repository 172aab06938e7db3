"""One timer that follows a deadline."""

from collections.abc import Callable
from typing import Any

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
