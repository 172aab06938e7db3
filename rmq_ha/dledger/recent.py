"""The newest entries, kept in memory up to a number of bytes."""

from collections.abc import Sequence

from rmq_ha.dledger.values import ENTRY_HEADER_SIZE, Entry

_KEPT = 0.75  # of the limit, when it is passed: old ones go many at a time


class RecentEntries:
    """
    Consecutive entries; the last one is always there.

    :param limit: bytes on the disk that the kept entries take.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: list[Entry] = []
        self._bytes = 0

    def add(self, entries: Sequence[Entry]) -> None:
        """Take entries that follow, or begin anew with them."""
        if self._entries and entries[0].index != self._entries[-1].index + 1:
            self.clear()
        self._entries += entries
        self._bytes += _size(entries)
        if self._bytes > self._limit:
            self._drop()

    def _drop(self) -> None:
        count, wanted = 0, self._limit * _KEPT
        while self._bytes > wanted and count < len(self._entries) - 1:
            self._bytes -= self._entries[count].size
            count += 1
        del self._entries[:count]

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
            self._bytes -= _size(self._entries[at:])
            del self._entries[at:]

    def clear(self) -> None:
        """Keep nothing."""
        self._entries.clear()
        self._bytes = 0


def _size(entries: Sequence[Entry]) -> int:
    return ENTRY_HEADER_SIZE * len(entries) + sum([len(entry.body) for entry in entries])
