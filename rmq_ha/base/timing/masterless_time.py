"""Measures for how long a slave has followed no master."""

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from rmq_ha.base.timing.timer import rearm

TOLD_AFTER_SECONDS = 60.0


class MasterlessTime:
    """
    Measures the time without a master, and tells once when it becomes long.

    :param tell: called when no master was followed for TOLD_AFTER_SECONDS.
    """

    def __init__(self, clock: IReactorTime, tell: Callable[[], None]) -> None:
        self._clock = clock
        self._tell = tell
        self._since: float | None = None
        self._timer: IDelayedCall | None = None

    @property
    def seconds(self) -> float | None:
        """Return for how many seconds no master was followed; None while that is not measured."""
        return None if self._since is None else self._clock.seconds() - self._since

    def begin(self) -> None:
        """Measure from now on; a measurement under way goes on."""
        if self._since is None:
            self._since = self._clock.seconds()
            self._set(self._since + TOLD_AFTER_SECONDS)

    def end(self) -> None:
        """Stop measuring: a master is followed, or this broker shall follow none."""
        if self._since is not None:
            self._since = None
            self._set(None)

    def _set(self, when: float | None) -> None:
        self._timer = rearm(self._clock, self._timer, when, self._tell)
