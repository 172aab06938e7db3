"""The facts of a journal that metrics, health and the page show, for every kind of replication."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalStatistics:
    """
    The facts that every kind of replication knows.

    :ivar waiting: number of puts that wait for other machines now.
    :ivar refused: number of strangers' connections or requests that replication refused since the
        start.
    """

    waiting: int = 0
    refused: int = 0

    @property
    def follows_master(self) -> bool:
        """Whether this broker is a slave that appends its master's log at present."""
        return False
