"""Recovery of a ledger after a stop, clean or not: finds its end and mends its index.

Spec: dledger.md, section 15.1.
"""

from collections.abc import Iterator
from typing import NamedTuple

from twisted.logger import Logger

from rmq_ha.base.errors import CorruptRecord
from rmq_ha.base.store_format.dledger import (
    BLANK,
    BLANK_MAGIC,
    BLANK_SIZE,
    CHECKSUM_UNIT,
    INDEX,
    INDEX_UNIT,
    EntryHeader,
    SyncedUpTo,
    decode_header,
    encode_checksums,
)
from rmq_ha.base.store_format.dledger_values import ENTRY_HEADER_SIZE
from rmq_ha.server.dledger.ledger_files import DirtyRow, LedgerFiles

_CHUNK = 1 << 20
_COLUMN = 1 << 15
_FILES_BACK = 3


class RecoveredLedger(NamedTuple):
    """
    The bounds of a recovered ledger. Indexes and term are -1 when it is empty.

    :ivar end_pos: end of the last entry.
    """

    begin_index: int = -1
    begin_pos: int = 0
    end_index: int = -1
    end_term: int = -1
    end_pos: int = 0


class _Column:
    """
    Fixed-size units in a row of files. They are read in order, and written anew where they are
    wrong.
    """

    def __init__(self, part: DirtyRow, unit: int) -> None:
        self._part = part
        self._unit = unit
        self._first = 0
        self._data = b""
        self._mended_from = 0
        self._mended = bytearray()
        self.count_mended = 0

    def __getitem__(self, index: int) -> bytes:
        """Return one unit of bytes; fewer bytes where the file is missing."""
        unit = self._unit
        at = unit * (index - self._first)
        if not 0 <= at < len(self._data):
            self._first, at = index, 0
            self._data = self._part.read(unit * index, _COLUMN)
        return self._data[at : at + unit]

    def mend(self, index: int, content: bytes) -> None:
        """Replace one unit. Consecutive units are collected and written together."""
        if self._mended_from + len(self._mended) // self._unit != index or (
            len(self._mended) >= _COLUMN
        ):
            self.flush()
            self._mended_from = index
        self._mended += content
        self.count_mended += 1

    def flush(self) -> None:
        """Write the units that `mend` has collected, and begin a new collection."""
        if self._mended:
            self._part.write(self._unit * self._mended_from, bytes(self._mended))
            self._mended.clear()


class LedgerRecovery:
    """
    Walks the newest part of a ledger.

    :param synced: the last entry that rmq-ha knows to be on the disk; None: upstream wrote last.
        Then upstream's rule holds: everything that looks like an entry is one.
    """

    log = Logger()

    def __init__(self, files: LedgerFiles, synced: SyncedUpTo | None) -> None:
        self._files = files
        self._row = files.data.row
        self._synced = synced
        self._index = _Column(files.index, INDEX_UNIT)
        self._checksums = _Column(files.checksums, CHECKSUM_UNIT)

    def run(self) -> RecoveredLedger:
        """
        Find the end, and mend index and checksums up to it. The caller cuts everything after the
        end.

        :raises StoreError: the beginning of the ledger is damaged, or the disk cannot read it.
        """
        if not self._row.starts:
            return RecoveredLedger()
        begin_pos, begin = self._beginning()
        start = self._first_unsure(begin)
        last_header = self._walk(start) if start != self._row.starts[0] else None
        if last_header is None:
            last_header = self._walk(begin_pos)
        self._index.flush()
        self._checksums.flush()
        if self._index.count_mended:
            self.log.warn("{count} index entries made anew", count=self._index.count_mended)
        if begin is None or last_header is None:
            return RecoveredLedger()
        self._check_synced(last_header)
        return RecoveredLedger(
            begin.index,
            begin_pos,
            last_header.index,
            last_header.term,
            last_header.pos + last_header.size,
        )

    def _check_synced(self, last_header: EntryHeader) -> None:
        synced = self._synced
        if (
            synced is not None
            and last_header.index < synced.index
            and self._find_synced_entry(synced) is not None
        ):
            raise CorruptRecord(
                f"entry {last_header.index + 1} in {self._row.directories[0]} is damaged, though "
                f"everything up to entry {synced.index} was on the disk; while the others have a "
                "leader, empty this member's directory but for currterm: it then copies "
                "the leader's"
            )

    def _beginning(self) -> tuple[int, EntryHeader | None]:
        """
        Return position and header of the first entry. The header is None if no sound one was found.
        """
        pos = self._row.starts[0]
        header = self._files.header_at(pos)
        if header is None:
            other = self._first_written(pos)
            header = self._files.header_at(other)
            pos = other if header is not None else pos
        return pos, header

    def _first_written(self, start: int) -> int:
        """Return the position of the first entry in a file whose beginning was never written."""
        end = start + self._row.file_size
        for pos in range(start, end, _CHUNK):
            data = self._files.data.read(pos, min(_CHUNK, end - pos))
            zeros = len(data) - len(data.lstrip(b"\0"))
            if zeros < len(data):  # the first byte that is not zero is the last one of the magic
                return max(pos + zeros - 3, start)
        return start

    def _first_unsure(self, begin: EntryHeader | None) -> int:
        """
        Return the start of the file at which the walk has to begin; earlier files need no look.
        """
        starts = self._row.starts
        if begin is None:
            if len(starts) > 1 and (self._synced is None or self._synced.index >= 0):
                raise CorruptRecord(
                    f"{self._row.path(starts[0])} does not begin with an entry; restore it, or "
                    "empty this member's directory but for currterm, while the others have a "
                    "leader: it then copies the leader's"
                )
            return starts[0]
        if not self._is_indexed(begin):
            return starts[0]
        if self._synced is not None:
            header = self._find_synced_entry(self._synced)
            if header is not None and self._is_indexed(header):
                return self._row.start_of(header.pos)
            return starts[0]
        for start in reversed(starts[1 : max(1, len(starts) - _FILES_BACK + 1)]):
            header = self._files.header_at(start)
            if header is not None and self._is_indexed(header):
                return start
        return starts[0]

    def _find_synced_entry(self, synced: SyncedUpTo) -> EntryHeader | None:
        """
        Return the header of the entry up to which all was synced; None if it is not there any more.
        """
        header = self._files.header_at(synced.pos)
        if header is None or (header.index, header.term) != (synced.index, synced.term):
            return None
        return header

    def _is_indexed(self, header: EntryHeader) -> bool:
        return self._files.index.read(INDEX_UNIT * header.index, INDEX_UNIT) == _unit_of(header)

    def _walk(self, pos: int) -> EntryHeader | None:
        """
        Read entries from a position on, and mend their index entries and checksums.

        The walk ends before a torn entry: its stored checksums agree with its header, but not with
        its body. It also ends before an entry after `synced` whose checksums do not fit. An earlier
        entry whose checksums do not fit counts only if the walk meets the entry `synced` after it.

        :returns: the header of the last entry that counts; None: no entry does.
        """
        synced = self._synced
        last: EntryHeader | None = None
        known: EntryHeader | None = None  # the entry before the first without a checksum
        has_unknown = False
        for header, body in self._entries(pos):
            before = last.term if last is not None else -1
            unit = encode_checksums(header.encode(), body, before)
            stored = self._checksums[header.index]
            if last is None and header.index > 0 and stored[4:] == unit[4:]:
                pass  # the checksum covers the preceding term, which is not known
            elif stored != unit:
                if stored[:4] == unit[:4]:
                    self.log.warn(
                        "entry {index} at {pos} is torn: the ledger ends before it",
                        index=header.index,
                        pos=header.pos,
                    )
                    break
                if synced is None:
                    self._checksums.mend(header.index, unit)
                elif header.index > synced.index:
                    break  # not wholly written when the machine stopped
                elif not has_unknown:
                    has_unknown, known = True, last
            if synced is not None and (header.index, header.term) == synced[:2]:
                has_unknown = False
            last = header
            if self._index[header.index] != (index_unit := _unit_of(header)):
                self._index.mend(header.index, index_unit)
        return known if has_unknown else last

    def _entries(self, pos: int) -> Iterator[tuple[EntryHeader, memoryview]]:
        """
        Yield headers and bodies from a position on, as long as each entry follows the one before.
        """
        size = self._row.file_size
        last: EntryHeader | None = None
        while (start := self._row.start_of(pos)) in self._row.starts:
            for header, body in self._in_file(pos, start + size):
                if last is not None and (header.index != last.index + 1 or header.term < last.term):
                    return
                last = header
                yield header, body
                pos = header.pos + header.size
            blank = self._files.data.read(pos, BLANK_SIZE)
            remaining = start + size - pos
            if len(blank) < BLANK_SIZE or BLANK.unpack(blank) != (BLANK_MAGIC, remaining):
                return
            pos = start + size

    def _in_file(self, pos: int, end: int) -> Iterator[tuple[EntryHeader, memoryview]]:
        """Yield headers and bodies up to the end of one file, read in chunks."""
        read_size = _CHUNK
        while pos + ENTRY_HEADER_SIZE + BLANK_SIZE <= end:
            data = memoryview(self._files.data.read(pos, min(read_size, end - pos)))
            read_size = _CHUNK
            at = 0
            while at + ENTRY_HEADER_SIZE <= len(data):
                header = decode_header(data, at)
                fits = header.pos + header.size + BLANK_SIZE <= end
                if not header.is_sound or header.pos != pos + at or not fits:
                    return
                if at + header.size > len(data):
                    read_size = max(_CHUNK, header.size)
                    break
                yield header, data[at + ENTRY_HEADER_SIZE : at + header.size]
                at += header.size
            if not at and read_size == _CHUNK:
                return
            pos += at


def _unit_of(header: EntryHeader) -> bytes:
    """Return the index entry that belongs to a header."""
    return INDEX.pack(header.magic, header.pos, header.size, header.index, header.term)
