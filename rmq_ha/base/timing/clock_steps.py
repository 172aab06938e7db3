"""Notices that a machine's wall clock was set."""

_LEAST_MS = 1000


class ClockSteps:
    """
    Compares the wall clock with a clock that never jumps.

    :ivar step_ms: by how much the wall clock was last set; 0 if it was not.
    :ivar at_ms: when that was seen, by the new clock.
    """

    def __init__(self, now_ms: int, seconds: float) -> None:
        self.step_ms = self.at_ms = 0
        self.begin(now_ms, seconds)

    def begin(self, now_ms: int, seconds: float) -> None:
        """Forget what was seen before, because nobody looked for long. The last step is kept."""
        self._ahead_ms = now_ms - seconds * 1000

    def look(self, now_ms: int, seconds: float) -> bool:
        """
        Look at both clocks.

        :param seconds: the clock that never jumps.
        :returns: whether the wall clock was set by a second or more since the last look. Smaller
            differences are those of two clocks that run.
        """
        ahead_ms = now_ms - seconds * 1000
        step_ms, self._ahead_ms = round(ahead_ms - self._ahead_ms), ahead_ms
        if abs(step_ms) < _LEAST_MS:
            return False
        self.step_ms, self.at_ms = step_ms, now_ms
        return True
