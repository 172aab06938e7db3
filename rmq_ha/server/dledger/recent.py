"""The newest entries, kept in memory up to a number of bytes."""

from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter

from rmq_ha.base.store_format.dledger_values import Entry

_KEPT = 0.75  # of the limit, when it is passed: old ones go many at a time


class RecentEntries:
    """
    Consecutive entries; the last one is always there.

    :param limit: bytes on the disk that the kept entries take.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: list[Entry] = []

    def add(self, entries: Sequence[Entry]) -> None:
        """Take entries that follow, or begin anew with them."""
        if self._entries and entries[0].index != self._entries[-1].index + 1:
            self.clear()
        self._entries += entries
        last = self._entries[-1]
        end = last.pos + last.size
        if end - self._entries[0].pos > self._limit:
            first = end - int(self._limit * _KEPT)
            others = len(self._entries) - 1
            del self._entries[: bisect_left(self._entries, first, 0, others, key=attrgetter("pos"))]

    def get(self, index: int) -> Entry | None:
        """One entry, if it is here."""
        entries = self._entries
        at = index - entries[0].index if entries else -1
        return entries[at] if 0 <= at < len(entries) else None

    def some(self, index: int, max_bytes: int, max_count: int) -> list[Entry]:
        """Consecutive entries from one on, at least that one; none if it is not here."""
        entries = self._entries
        at = index - entries[0].index if entries else -1
        if not 0 <= at < len(entries):
            return []
        end, size = at + 1, entries[at].size
        last = min(len(entries), at + max_count)
        while end < last and (size := size + entries[end].size) <= max_bytes:
            end += 1
        return entries[at:end]

    def cut(self, index: int) -> None:
        """Keep nothing behind an entry."""
        if self._entries:
            at = max(0, index + 1 - self._entries[0].index)
            del self._entries[at:]

    def clear(self) -> None:
        self._entries.clear()
