"""Refusals: limits log lines about refused connections."""

from twisted.internet.interfaces import IReactorTime

PERIOD_SECONDS = 60.0
LINES_PER_PERIOD = 30


class Refusals:
    """
    The refusals of the last minute.

    One host and reason gets one line a minute, and all together get at most 30.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._since = clock.seconds()
        self._told: dict[tuple[str, str], int] = {}
        self._before: dict[tuple[str, str], int] = {}
        self._untold = 0

    def admit(self, host: str, reason: str) -> str | None:
        """
        Note a refusal.

        :returns: text to add to its log line; None if it gets no line.
        """
        now = self._clock.seconds()
        if now - self._since >= PERIOD_SECONDS:
            self._since = now
            self._before, self._told = self._told, {}
        key = (host, reason)
        if key in self._told:
            self._told[key] += 1
            return None
        if len(self._told) >= LINES_PER_PERIOD:
            self._untold += 1
            return None
        self._told[key] = 0
        notes = []
        again = self._before.pop(key, 0)
        if again:
            notes.append(f"{again} times more in an earlier minute")
        if self._untold:
            notes.append(f"{self._untold} others were refused without a line")
            self._untold = 0
        return f" ({'; '.join(notes)})" if notes else ""
