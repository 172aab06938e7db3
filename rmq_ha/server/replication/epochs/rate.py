"""Counts the bytes that a connection carries."""


class TransferRate:
    """Bytes of the last whole second, as RocketMQ counts them; needs no timer."""

    def __init__(self) -> None:
        self._second = self._counted = self._last = 0

    def add(self, size: int, now: float) -> None:
        """Count `size` bytes that were sent or received at `now`, in seconds."""
        self._turn(now)
        self._counted += size

    def per_second(self, now: float) -> int:
        """Return the bytes of the last whole second."""
        self._turn(now)
        return self._last

    def in_this_second(self, now: float) -> int:
        """Return the bytes that were added in this second."""
        self._turn(now)
        return self._counted

    def _turn(self, now: float) -> None:
        second = int(now)
        if second != self._second:
            self._last = self._counted if second == self._second + 1 else 0
            self._second, self._counted = second, 0
