"""For how long a slave follows nobody."""

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from rmq_ha.base.timing.timer import rearm

TOLD_AFTER_SECONDS = 60.0


class MasterlessTime:
    """
    Counts the time, and says it once when it becomes too long.

    :param tell: called after a minute of it.
    """

    def __init__(self, clock: IReactorTime, tell: Callable[[], None]) -> None:
        self._clock = clock
        self._tell = tell
        self._since: float | None = None
        self._timer: IDelayedCall | None = None

    @property
    def seconds(self) -> float | None:
        """Since nobody is followed; None while somebody is, or nobody shall be."""
        return None if self._since is None else self._clock.seconds() - self._since

    def begin(self) -> None:
        """Nobody is followed, from now on or for longer already."""
        if self._since is None:
            self._since = self._clock.seconds()
            self._set(self._since + TOLD_AFTER_SECONDS)

    def end(self) -> None:
        """Somebody is followed, or nobody shall be any more."""
        if self._since is not None:
            self._since = None
            self._set(None)

    def _set(self, when: float | None) -> None:
        self._timer = rearm(self._clock, self._timer, when, self._tell)
