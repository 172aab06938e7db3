"""Reading a ledger: entries, of which the newest are in memory, and raw bytes.

Spec: dledger.md, chapter 3.
"""

from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter

from rmq_ha.base.errors import StoreError
from rmq_ha.base.store_format.dledger import BLANK_SIZE, IndexEntry, place_after
from rmq_ha.base.store_format.dledger_values import ENTRY_HEADER_SIZE, MAX_ENTRY_SIZE, Entry
from rmq_ha.server.dledger.ledger_files import LedgerFiles
from rmq_ha.server.dledger.ledger_recovery import RecoveredLedger

_READ_COUNT = 1024


_KEPT = 0.75  # part of the limit that stays when it is passed: many old entries go at a time


class RecentEntries:
    """
    The newest entries in memory, without a gap; the last entry is always kept.

    :param limit: size on the disk of the kept entries, at most, in bytes.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: list[Entry] = []

    def add(self, entries: Sequence[Entry]) -> None:
        """Add entries. If they do not follow the kept ones, those are dropped first."""
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
        """Return one entry; None if it is not in memory."""
        entries = self._entries
        at = index - entries[0].index if entries else -1
        return entries[at] if 0 <= at < len(entries) else None

    def entries_from(self, index: int, max_bytes: int, max_count: int) -> list[Entry]:
        """
        Return consecutive entries from `index` on, at least one; none if `index` is not in memory.
        """
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
        """Drop all entries after `index`."""
        if self._entries:
            at = max(0, index + 1 - self._entries[0].index)
            del self._entries[at:]

    def clear(self) -> None:
        self._entries.clear()


class LedgerReader:
    """
    The bounds of a ledger, and its entries for reading.

    :ivar first_pos: position of the first entry: 0, or the end of an older commit log. It is the
        start of a file. Set it while the ledger is empty, before `become`.
    :param cached_bytes: size in bytes of the newest entries that stay in memory, so that pushing
        them needs no read.
    :ivar begin_index: the first entry; -1 when empty.
    :ivar begin_pos: position of the first entry.
    :ivar end_index: the last entry; -1 when empty.
    :ivar end_term: term of the last entry; -1 when empty.
    :ivar end_pos: end of the last entry. The next one begins here if it fits into the file.
    :ivar largest_body: size of the largest possible body of an entry in bytes.
    """

    begin_index: int
    begin_pos: int
    end_index: int
    end_term: int
    end_pos: int

    def __init__(self, files: LedgerFiles, first_pos: int, cached_bytes: int) -> None:
        self.files = files
        self.file_size = files.file_size
        self.largest_body = min(MAX_ENTRY_SIZE, files.file_size - BLANK_SIZE) - ENTRY_HEADER_SIZE
        self.recent = RecentEntries(cached_bytes)
        self.first_pos = first_pos
        self.become(RecoveredLedger())

    def become(self, recovered: RecoveredLedger) -> None:
        """Take over begin and end from a recovery. An empty ledger begins at `first_pos`."""
        if recovered.end_index < 0:
            recovered = RecoveredLedger(begin_pos=self.first_pos, end_pos=self.first_pos)
        self.begin_index, self.begin_pos, self.end_index, self.end_term, self.end_pos = recovered

    @property
    def directories(self) -> Sequence[str]:
        return self.files.data.row.directories

    def place(self, body_length: int, after: int | None = None) -> int:
        """
        Return the position at which the next entry will be written.

        Spec: dledger.md, section 3.3

        :param after: end of the preceding entry, if that is not appended yet.
        :raises ValueError: no entry can have a body of this length.
        """
        if not 0 <= body_length <= self.largest_body:
            raise ValueError(
                f"an entry's body has at most {self.largest_body} bytes, and not {body_length}"
            )
        end_pos = self.end_pos if after is None else after
        return place_after(end_pos, ENTRY_HEADER_SIZE + body_length, self.file_size)

    def entry(self, index: int) -> Entry | None:
        """
        Return one entry; None outside the ledger.

        :raises StoreError: the disk cannot read the entry, or the entry is damaged.
        """
        recent = self.recent.get(index)
        if recent is None and self.begin_index <= index <= self.end_index and index >= 0:
            return self._read(index, 0, 1)[0]
        return recent

    def entries(self, index: int, max_bytes: int, max_count: int) -> list[Entry]:
        """
        Return consecutive entries, at least one unless the first is outside the ledger.

        :param max_bytes: size of headers and bodies together.
        :raises StoreError: the disk cannot read the entries, or one is damaged.
        """
        recent = self.recent.entries_from(index, max_bytes, max_count)
        if recent or not 0 <= self.begin_index <= index <= self.end_index:
            return recent
        return self._read(index, max_bytes, min(max_count, self.end_index - index + 1))

    def _read(self, index: int, max_bytes: int, max_count: int) -> list[Entry]:
        before = 1 if index > self.begin_index else 0
        try:
            located = self.files.located(index - before, min(max_count, _READ_COUNT) + before)
            count, size = before + 1, sum(unit.size for unit in located[before : before + 1])
            while count < len(located) and (size := size + located[count].size) <= max_bytes:
                count += 1
            if len(located) <= before:
                raise StoreError(f"the index does not know entry {index}")
            term = located[0].term if before else None
            return self.files.read_entries(located[before:count], term)
        except OSError as error:
            raise StoreError(f"cannot read entry {index}: {error}") from error

    def term_at(self, index: int) -> int:
        """
        Return an entry's term; -1 outside the ledger.

        :raises StoreError: the disk cannot read the index.
        """
        if index == self.end_index:
            return self.end_term
        located = self.located(index)
        return -1 if located is None else located.term

    def located(self, index: int) -> IndexEntry | None:
        """Return the index entry of an entry; None outside the ledger."""
        recent = self.recent.get(index)
        if recent is not None:
            return IndexEntry(recent.magic, recent.pos, recent.size, recent.index, recent.term)
        if not 0 <= self.begin_index <= index <= self.end_index:
            return None
        try:
            entries = self.files.located(index)
        except OSError as error:
            raise StoreError(f"cannot read the index of entry {index}: {error}") from error
        if not entries:
            raise StoreError(f"the index does not know entry {index}")
        return entries[0]

    def read(self, pos: int, length: int) -> bytes:
        """
        Return raw bytes; fewer at the end of a file or of the ledger, none outside the ledger.

        :raises StoreError: the disk cannot read them.
        """
        if not self.begin_pos <= pos < self.end_pos:
            return b""
        try:
            return self.files.data.read(pos, min(length, self.end_pos - pos))
        except OSError as error:
            raise StoreError(f"cannot read the ledger at {pos}: {error}") from error
