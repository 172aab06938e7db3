"""How long a request waits before this process gets to it."""


class TurnWatch:
    """
    The length of the reactor's last turns: who arrives just after its socket was looked at waits
    for about one.

    It is measured while there is work, from an append to the turn that takes care of it, so that no
    timer runs for it.
    """

    def __init__(self) -> None:
        self._last = self._before = 0.0
        self._at = 0.0

    def took(self, seconds: float, now: float) -> None:
        """A turn is over."""
        self._before, self._last, self._at = self._last, seconds, now

    def waiting_ms(self, now: float) -> int:
        """
        What the last two turns took at least: a single long one, as when the machine was busy with
        something else, is no overload. It counts for as long as it took; then it is old.
        """
        if now - self._at > self._last:
            return 0
        return int(min(self._last, self._before) * 1000)
