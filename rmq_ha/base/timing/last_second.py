"""Counts bytes or messages of the last second."""


class LastSecond:
    """The count of the last whole second, as RocketMQ counts transfers; needs no timer."""

    def __init__(self) -> None:
        self._second = self._counted = self._last = 0

    def add(self, size: int, now: float) -> None:
        """Count `size` bytes or messages at `now`, in seconds."""
        self._turn(now)
        self._counted += size

    def per_second(self, now: float) -> int:
        """Return the count of the last whole second."""
        self._turn(now)
        return self._last

    def in_this_second(self, now: float) -> int:
        """Return the count of this second so far."""
        self._turn(now)
        return self._counted

    def _turn(self, now: float) -> None:
        second = int(now)
        if second != self._second:
            self._last = self._counted if second == self._second + 1 else 0
            self._second, self._counted = second, 0
