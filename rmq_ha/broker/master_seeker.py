"""A slave asks soon again while nobody knows its master.

Spec: ha.md, section 9.
"""

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

FIRST_SECONDS = 1.0
GROWTH = 1.5
LONGEST_SECONDS = 10.0


class MasterSeeker:
    """
    Registers again after a second, and then less and less often, while no name server names a
    master: a slave that started before its master would else learn of it half a minute later.

    :param ask: registers with every name server; `learned` hears what that says. Never fails.
    """

    def __init__(self, clock: IReactorTime, ask: Callable[[], "Deferred[None]"]) -> None:
        self._clock = clock
        self._ask = ask
        self._seconds = FIRST_SECONDS
        self._timer: IDelayedCall | None = None
        self._is_known = True
        self._is_stopped = False

    def learned(self, address: str | None) -> None:
        """What a registration said: the master's address, None where nobody knows one."""
        self._is_known = address is not None
        if self._is_known:
            self._seconds = FIRST_SECONDS
        self._go_on()

    def stop(self) -> None:
        """Ask no more."""
        self._is_stopped = True
        self._go_on()

    def _go_on(self) -> None:
        """Have one timer while it is wanted; a round that nobody answered goes on as well."""
        if self._is_known or self._is_stopped:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        elif self._timer is None:
            self._timer = self._clock.callLater(self._seconds, self._on_time)
            self._seconds = min(LONGEST_SECONDS, self._seconds * GROWTH)

    def _on_time(self) -> None:
        self._timer = None
        self._ask().addCallback(lambda _: self._go_on())
