"""What a master remembers of slaves that cannot prove what they have.

Spec: ha.md, section 14.2.
"""

MOST_HOSTS = 256


class RefusedSlaves:
    """
    By machine: up to where a slave that was ahead of us may have our log.

    It stays refused, though our log outgrows it, until it comes with that or less: it would be fed
    from the middle of something that is not ours. A slave of ours that proves what it has need not
    care. Known for this run; the oldest goes when there are MOST_HOSTS.
    """

    def __init__(self) -> None:
        self._ceilings: dict[str, int] = {}

    @property
    def hosts(self) -> list[str]:
        """The machines, in the order in which they came."""
        return list(self._ceilings)

    def ceiling(self, host: str) -> int | None:
        """The largest first report that is taken from there; None: any."""
        return self._ceilings.get(host)

    def remember(self, host: str, end: int) -> None:
        """Its slave claimed more than our log held, which ended there."""
        known = self._ceilings.get(host)
        if known is None and len(self._ceilings) >= MOST_HOSTS:
            del self._ceilings[next(iter(self._ceilings))]
        self._ceilings[host] = end if known is None else min(known, end)

    def forget(self, host: str) -> None:
        """It came with less."""
        self._ceilings.pop(host, None)


class SentTo:
    """By machine: up to where it was sent our log in this run; the oldest goes as above."""

    def __init__(self) -> None:
        self._ends: dict[str, int] = {}

    def covers(self, host: str, offset: int) -> bool:
        """It was sent that much."""
        return offset <= self._ends.get(host, -1)

    def note(self, host: str, end: int) -> None:
        """A connection with it ended."""
        known = self._ends.pop(host, -1)
        if len(self._ends) >= MOST_HOSTS:
            del self._ends[next(iter(self._ends))]
        self._ends[host] = max(known, end)
