"""
A ledger in memory for simulated groups; a power failure loses its writes that were not synced.
"""

from collections.abc import Sequence
from random import Random

from rmq_ha.base.errors import InconsistentLedger, LedgerFull
from rmq_ha.base.store_format.dledger_values import ENTRY_HEADER_SIZE, Entry, Room
from rmq_ha.server.dledger.codes import DLedgerResponseCode

BLANK_SIZE = 8


class MemoryLedger:
    """
    A ledger without files. The positions of its entries are those that files of `file_size` would
    give.

    :param loses_unsynced: whether a power failure loses writes that were not synced; if so, they
        are recorded.
    :ivar is_full: whether appends are refused.
    """

    def __init__(self, file_size: int = 4096, *, loses_unsynced: bool = False) -> None:
        self.file_size = file_size
        self.is_full = False
        self.first = 0
        self.log: list[Entry] = []
        self.committed_index = -1
        self._loses = loses_unsynced
        self._disk_first = 0
        self._disk: list[Entry] = []
        self._unsynced: list[tuple[bool, Entry]] = []

    @property
    def room(self) -> Room:
        """Return the room for entries: none while the ledger is full."""
        return Room.NONE if self.is_full else Room.FREE

    @property
    def begin_index(self) -> int:
        """Return the index of the first entry; -1: there is none."""
        return self.first if self.log else -1

    @property
    def end_index(self) -> int:
        """Return the index of the last entry; -1: there is none."""
        return self.first + len(self.log) - 1 if self.log else -1

    @property
    def end_term(self) -> int:
        """Return the term of the last entry; -1: there is none."""
        return self.log[-1].term if self.log else -1

    @property
    def end_pos(self) -> int:
        """Return the position at which the last entry ends."""
        return self.log[-1].pos + self.log[-1].size if self.log else 0

    def place(self, body_length: int) -> int:
        """Return the position that the next entry will get."""
        pos = self.end_pos
        left = self.file_size - pos % self.file_size
        return pos if ENTRY_HEADER_SIZE + body_length + BLANK_SIZE <= left else pos + left

    def append(self, term: int, bodies: Sequence[bytes]) -> list[Entry]:
        """Append entries as the leader."""
        if self.is_full:
            raise LedgerFull("the simulated disk is full")
        made = []
        for body in bodies:
            entry = Entry(self.end_index + 1, term, self.place(len(body)), body)
            self._write(entry)
            made.append(entry)
        return made

    def append_entry(self, entries: Sequence[Entry]) -> None:
        """Append entries as a follower; if one of them does not fit, none is written."""
        if self.is_full:
            raise LedgerFull("the simulated disk is full")
        for entry in entries:
            if entry.index != self.end_index + 1:
                raise InconsistentLedger(DLedgerResponseCode.INCONSISTENT_INDEX, "index")
            if entry.pos != self.place(len(entry.body)):
                raise InconsistentLedger(DLedgerResponseCode.DISK_ERROR, "pos")
            self._write(entry)

    def _write(self, entry: Entry) -> None:
        self.log.append(entry)
        if self._loses:
            self._unsynced.append((False, entry))

    def truncate_to(self, entry: Entry) -> None:
        """
        Make this entry the last one. If it is new, entries before it stay only if they are
        committed.
        """
        known = self.entry(entry.index) == entry or entry.index - 1 <= self.committed_index
        if not known:
            self.log.clear()
            self._unsynced.clear()
            self._disk.clear()
        self.first = _truncate(self.log, self.first, entry)
        if self._loses:
            self._unsynced.append((True, entry))

    def entry(self, index: int) -> Entry | None:
        """Return an entry; None: it does not exist."""
        at = index - self.first
        return self.log[at] if 0 <= at < len(self.log) else None

    def term_at(self, index: int) -> int:
        """Return the term of an entry; -1: it does not exist."""
        entry = self.entry(index)
        return -1 if entry is None else entry.term

    def entries(self, index: int, max_bytes: int, max_count: int) -> list[Entry]:
        """Return consecutive entries, at least one if there is one."""
        at = index - self.first
        entries: list[Entry] = []
        size = 0
        for entry in self.log[at : at + max_count] if at >= 0 else ():
            size += entry.size
            if entries and size > max_bytes:
                break
            entries.append(entry)
        return entries

    def commit(self, index: int) -> None:
        """Move the committed index, but never back and never beyond the end."""
        self.committed_index = max(self.committed_index, min(index, self.end_index))

    def expire(self, index: int) -> None:
        """Forget the entries before an index, at once also on the disk."""
        drop = min(index, self.committed_index, self.end_index) - self.first
        if drop > 0:
            self._land(len(self._unsynced))
            del self.log[:drop]
            del self._disk[:drop]
            self.first += drop
            self._disk_first = self.first

    # The disk

    def begin_sync(self) -> tuple[int, int]:
        """
        :returns: the number of writes that this sync brings to the disk, for `end_sync`, and the
        last index among them.
        """
        return len(self._unsynced), self.end_index

    def end_sync(self, count: int) -> None:
        """Note that this many of the writes since the last sync are on the disk now."""
        self._land(count)

    def _land(self, count: int) -> None:
        for is_cut, entry in self._unsynced[:count]:
            if is_cut:
                self._disk_first = _truncate(self._disk, self._disk_first, entry)
            else:
                if not self._disk:
                    self._disk_first = entry.index
                self._disk.append(entry)
        del self._unsynced[:count]

    def recovered(self, random: Random, *, power: bool) -> "MemoryLedger":
        """
        Return the ledger that the next start finds.

        :param power: whether the power failed. Then only a part of the writes since the last sync
            has reached the disk; the last one may be torn, and recovery cuts it off.
        """
        ledger = MemoryLedger(self.file_size, loses_unsynced=self._loses)
        if power and self._loses:
            self._land(random.randint(0, len(self._unsynced)))
            ledger.first, ledger.log = self._disk_first, list(self._disk)
        else:
            ledger.first, ledger.log = self.first, list(self.log)
        if self._loses:
            ledger._disk_first, ledger._disk = ledger.first, list(ledger.log)
        checkpoint = self.committed_index - random.choice((0, 0, 1, 5))
        if ledger.log and checkpoint >= ledger.first:
            ledger.commit(checkpoint)
        return ledger


def _truncate(log: list[Entry], first: int, entry: Entry) -> int:
    """:returns: the index of the first entry after the truncation."""
    at = entry.index - first
    if not log or at < 0 or at > len(log):
        log[:] = [entry]
        return entry.index
    if at < len(log) and log[at] == entry:
        del log[at + 1 :]
    else:
        log[at:] = [entry]
    return first
