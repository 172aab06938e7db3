"""A ledger in memory that loses what was not synced: the simulated groups' log."""

from collections.abc import Sequence
from random import Random

from rmq_ha.base.errors import InconsistentLedger, LedgerFull
from rmq_ha.base.store_format.dledger_values import ENTRY_HEADER_SIZE, Entry, Room
from rmq_ha.server.dledger.codes import DLedgerResponseCode

BLANK_SIZE = 8


class MemoryLedger:
    """
    The ledger's contract without files; positions are those that files of `file_size` would give.

    :param loses_unsynced: keep account of what a power failure would take.
    :ivar is_full: appends are refused.
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
        """None while it is full."""
        return Room.NONE if self.is_full else Room.FREE

    @property
    def begin_index(self) -> int:
        """The first entry; -1: none."""
        return self.first if self.log else -1

    @property
    def end_index(self) -> int:
        """The last entry; -1: none."""
        return self.first + len(self.log) - 1 if self.log else -1

    @property
    def end_term(self) -> int:
        """The last entry's term; -1: none."""
        return self.log[-1].term if self.log else -1

    @property
    def end_pos(self) -> int:
        """Where the last entry ends."""
        return self.log[-1].pos + self.log[-1].size if self.log else 0

    def place(self, body_length: int) -> int:
        """The position that the next entry will get."""
        pos = self.end_pos
        left = self.file_size - pos % self.file_size
        return pos if ENTRY_HEADER_SIZE + body_length + BLANK_SIZE <= left else pos + left

    def append(self, term: int, bodies: Sequence[bytes]) -> list[Entry]:
        """Append as the leader."""
        if self.is_full:
            raise LedgerFull("the simulated disk is full")
        made = []
        for body in bodies:
            entry = Entry(self.end_index + 1, term, self.place(len(body)), body)
            self._write(entry)
            made.append(entry)
        return made

    def append_entry(self, entries: Sequence[Entry]) -> None:
        """Append as a follower; nothing is written of what does not fit."""
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
        """Make this the last entry; if it is new, what is before it stays only if committed."""
        known = self.entry(entry.index) == entry or entry.index - 1 <= self.committed_index
        if not known:
            self.log.clear()
            self._unsynced.clear()
            self._disk.clear()
        self.first = _truncate(self.log, self.first, entry)
        if self._loses:
            self._unsynced.append((True, entry))

    def entry(self, index: int) -> Entry | None:
        """One entry; None: not there."""
        at = index - self.first
        return self.log[at] if 0 <= at < len(self.log) else None

    def term_at(self, index: int) -> int:
        """An entry's term; -1: not there."""
        entry = self.entry(index)
        return -1 if entry is None else entry.term

    def entries(self, index: int, max_bytes: int, max_count: int) -> list[Entry]:
        """Consecutive ones, at least one if there is one."""
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
        """Move the committed index; never back, never beyond the end."""
        self.committed_index = max(self.committed_index, min(index, self.end_index))

    def expire(self, index: int) -> None:
        """Forget entries before this one, at once on the disk too."""
        drop = min(index, self.committed_index, self.end_index) - self.first
        if drop > 0:
            self._land(len(self._unsynced))
            del self.log[:drop]
            del self._disk[:drop]
            self.first += drop
            self._disk_first = self.first

    # The disk

    def begin_sync(self) -> tuple[int, int]:
        """:returns: how much will be on the disk, for `end_sync`, and the last index of it."""
        return len(self._unsynced), self.end_index

    def end_sync(self, count: int) -> None:
        """So many of the writes since the last sync are on the disk now."""
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
        What the next start finds.

        :param power: only a part of the writes since the last sync has reached the disk, the last
            one perhaps torn, which recovery cuts off.
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
    """:returns: the index of the first entry."""
    at = entry.index - first
    if not log or at < 0 or at > len(log):
        log[:] = [entry]
        return entry.index
    if at < len(log) and log[at] == entry:
        del log[at + 1 :]
    else:
        log[at:] = [entry]
    return first
