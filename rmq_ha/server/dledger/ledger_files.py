"""The files of a ledger. They write and read bytes, but do not judge whether entries fit.

Spec: dledger.md, chapter 3.
"""

from collections.abc import Iterator, Sequence
from zlib import crc32

from rmq_ha.base.errors import CorruptRecord
from rmq_ha.base.seams import Disk, File
from rmq_ha.base.store_format.dledger import (
    BLANK,
    BLANK_MAGIC,
    CHECKSUM_UNIT,
    CHECKSUMS,
    HEADER,
    INDEX,
    INDEX_FILE_SIZE,
    INDEX_UNIT,
    MAGIC,
    PREVIOUS_TERM,
    EntryHeader,
    IndexEntry,
    decode_entry,
    decode_header,
    decode_index,
    encode_checksums,
)
from rmq_ha.base.store_format.dledger_values import ENTRY_HEADER_SIZE, MAX_ENTRY_SIZE, Entry
from rmq_ha.server.store.log.files import FileRow


class DirtyRow:
    """
    A row of files, and the set of those that have to be synced.

    :ivar row: the files.
    :ivar dirty: starts of the files that were written since the last call of `taken`.
    :ivar gone: starts of the files that were closed for good since the last call of `taken`.
    """

    def __init__(self, row: FileRow) -> None:
        self.row = row
        self.dirty: set[int] = set()
        self.gone: set[int] = set()

    def write(self, position: int, data: bytes) -> None:
        """
        Write data at a position, into as many files as it needs. Missing files are made.

        :raises OSError: the disk refuses; any part of the data may have been written.
        """
        size = self.row.file_size
        done = 0
        while done < len(data):
            start = self.row.start_of(position + done)
            offset = position + done - start
            piece = (
                data if not done and offset + len(data) <= size else data[done:][: size - offset]
            )
            file = self.row.create(start)
            self.dirty.add(start)
            file.pwrite(piece, offset)
            done += len(piece)

    def read(self, position: int, size: int) -> bytes:
        """Read bytes of one file; fewer at its end, and none if the file is missing."""
        start = self.row.start_of(position)
        if start not in self.row.starts[-2:] and start not in self.row.starts:
            return b""
        return self.row.file(start).pread(size, position - start)

    def read_over(self, position: int, size: int) -> bytes:
        """Read bytes across the ends of files; fewer if a file is missing."""
        data = self.read(position, size)
        while len(data) < size:
            more = self.read(position + len(data), size - len(data))
            if not more:
                break
            data += more
        return data

    def cut(self, position: int) -> None:
        """
        Remove everything from a position on: later files are deleted, the rest of this file reads
        as zero.
        """
        for start in reversed([start for start in self.row.starts if start >= position]):
            self.dirty.discard(start)
            self.gone.add(start)
            self.row.delete(start)
        start = self.row.start_of(position)
        if start in self.row.starts:
            self.dirty.add(start)
            self.row.file(start).zero(position - start)

    def all_dirty_from(self, position: int) -> None:
        """
        Count all files from a position on as dirty, since nobody knows whether they are on the
        disk.
        """
        size = self.row.file_size
        self.dirty.update(start for start in self.row.starts if start + size > position)

    def drop_before(self, position: int) -> list[str]:
        """
        Drop files that end at or before a position. Return their paths, oldest first, for deletion.
        """
        size = self.row.file_size
        old = [start for start in self.row.starts[:-1] if start + size <= position]
        self.dirty.difference_update(old)
        self.gone.update(old)
        return [self.row.forget(start) for start in old]

    def opened(self) -> list[tuple[int, File]]:
        """
        Return the start of each dirty file and the opened file, which a sync needs.

        :raises OSError: a file cannot be opened.
        """
        return [(start, self.row.file(start)) for start in sorted(self.dirty)]

    def taken(self) -> None:
        """Count all files as clean, since a sync of them begins."""
        self.dirty.clear()
        self.gone.clear()

    def close_idle(self) -> None:
        """Close the descriptors of clean files when many are open."""
        self.row.close_idle(min(self.dirty, default=self.row.starts[-1] if self.row.starts else 0))


class LedgerFiles:
    """
    The data files, index files and checksum files of a ledger.

    :param directory: `dledger-<selfId>`.
    :param data_directories: directories in which data files are found and made.
    :param index_file_size: size of an index file in bytes; upstream knows only the default size.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        data_directories: Sequence[str],
        file_size: int,
        index_file_size: int = INDEX_FILE_SIZE,
    ) -> None:
        self.file_size = file_size
        self.data = DirtyRow(FileRow(disk, data_directories, file_size))
        self.index = DirtyRow(FileRow(disk, [f"{directory}/index"], index_file_size))
        checksum_size = index_file_size // INDEX_UNIT * CHECKSUM_UNIT
        self.checksums = DirtyRow(FileRow(disk, [f"{directory}/checksums"], checksum_size))

    def load(self) -> None:
        """
        List the files that are on the disk.

        :raises StoreError: some files do not fit their row.
        """
        for part in (self.data, self.index, self.checksums):
            part.row.load()

    def write(self, entries: Sequence[Entry], end_pos: int, term: int) -> None:
        """
        Write consecutive entries: first checksums and index, then the data with one write for each
        file.

        :param end_pos: end of the preceding entry.
        :param term: term of the preceding entry; -1: the ledger is empty.
        :raises OSError: the disk refuses; the caller has to `cut` the part that was written.
        """
        parts: list[bytes] = []
        segments = [(end_pos, parts)]
        checksums: list[bytes] = []
        units: list[bytes] = []
        position, before = end_pos, PREVIOUS_TERM.pack(term)
        for index, own_term, pos, body, magic, channel in entries:  # a turn has up to 20,000
            if pos != position:
                parts.append(BLANK.pack(BLANK_MAGIC, pos - position))
                parts = []
                segments.append((pos, parts))
            length = len(body)
            size = ENTRY_HEADER_SIZE + length
            header = HEADER.pack(magic, size, index, own_term, pos, channel, 0, 0, length)
            parts += (header, body)
            units.append(INDEX.pack(magic, pos, size, index, own_term))
            checksums.append(CHECKSUMS.pack(crc32(before, crc32(header)), crc32(body)))
            if own_term != term:
                term, before = own_term, PREVIOUS_TERM.pack(own_term)
            position = pos + size
        first = entries[0].index
        self.checksums.write(CHECKSUM_UNIT * first, b"".join(checksums))
        self.index.write(INDEX_UNIT * first, b"".join(units))
        for pos, parts in segments:
            self.data.write(pos, b"".join(parts))

    def cut(self, pos: int, index: int) -> None:
        """Remove all data from a position on, and index and checksums from an entry on."""
        self.data.cut(pos)
        self.index.cut(INDEX_UNIT * index)
        self.checksums.cut(CHECKSUM_UNIT * index)

    def drop_before(self, pos: int, index: int) -> list[str]:
        """
        Drop the files before a position and an entry. Return their paths; delete them in this
        order.
        """
        return [
            *self.data.drop_before(pos),
            *self.index.drop_before(INDEX_UNIT * index),
            *self.checksums.drop_before(CHECKSUM_UNIT * index),
        ]

    def take(self, with_index: bool) -> list[tuple[DirtyRow, int, File]]:
        """
        Return the files to sync and count them as clean. The index may be left out: the data can
        replace it.

        :raises OSError: a file cannot be opened; all files are as dirty as before.
        """
        parts = [self.data, self.checksums]
        if with_index:
            parts.append(self.index)
        taken = [(part, start, file) for part in parts for start, file in part.opened()]
        for part in parts:
            part.taken()
        return taken

    def all_dirty_from(self, pos: int, index: int) -> None:
        """
        Count all files from a position and an entry on as dirty: nobody knows whether they are on
        the disk.
        """
        self.data.all_dirty_from(pos)
        self.index.all_dirty_from(INDEX_UNIT * index)
        self.checksums.all_dirty_from(CHECKSUM_UNIT * index)

    def close_idle(self) -> None:
        """Close the descriptors of clean files when many are open."""
        for part in (self.data, self.index, self.checksums):
            part.close_idle()

    def header_at(self, pos: int) -> EntryHeader | None:
        """
        Return the header at a position; None unless it is sound and names this position itself.
        """
        data = self.data.read(pos, ENTRY_HEADER_SIZE)
        if len(data) < ENTRY_HEADER_SIZE:
            return None
        header = decode_header(data)
        return header if header.is_sound and header.pos == pos else None

    def located(self, index: int, count: int = 1) -> list[IndexEntry]:
        """
        Return the index entries of consecutive entries; fewer where the index ends.

        :raises CorruptRecord: an index entry is not the one of its entry.
        """
        data = self.index.read_over(INDEX_UNIT * index, INDEX_UNIT * count)
        entries = []
        for at in range(len(data) // INDEX_UNIT):
            unit = decode_index(data, INDEX_UNIT * at)
            fits = ENTRY_HEADER_SIZE <= unit.size <= MAX_ENTRY_SIZE
            if unit.index != index + at or unit.magic != MAGIC or not fits:
                raise CorruptRecord(
                    f"{self.index.row.directories[0]} does not know entry {index + at}: it has "
                    f"{unit}; stop this member and delete the directory: a start makes it anew"
                )
            entries.append(unit)
        return entries

    def read_entries(self, located: Sequence[IndexEntry], term: int | None) -> list[Entry]:
        """
        Read consecutive entries, with one read for each group that stands side by side.

        :param term: term of the preceding entry; None: it is not known, so the first is not
            checked.
        :raises CorruptRecord: an entry is damaged.
        """
        first = located[0].index
        checksums = self.checksums.read_over(CHECKSUM_UNIT * first, CHECKSUM_UNIT * len(located))
        entries: list[Entry] = []
        for run in _runs(located):
            pos = run[0].pos
            data = self.data.read(pos, run[-1].pos + run[-1].size - pos)
            for unit in run:
                offset = unit.pos - pos
                entry = decode_entry(data, offset)
                if (entry.index, entry.pos) != (unit.index, unit.pos):
                    raise CorruptRecord(f"at {unit.pos} is not entry {unit.index}: {entry.index}")
                if term is not None:
                    header = data[offset : offset + ENTRY_HEADER_SIZE]
                    known = checksums[CHECKSUM_UNIT * (unit.index - first) :][:CHECKSUM_UNIT]
                    check_body(known, encode_checksums(header, entry.body, term), unit)
                term = unit.term
                entries.append(entry)
        return entries

    def close(self) -> None:
        for part in (self.data, self.index, self.checksums):
            part.row.close()


def _runs(located: Sequence[IndexEntry]) -> Iterator[Sequence[IndexEntry]]:
    """Split entries into groups that stand side by side in the data."""
    begin = 0
    for end in range(1, len(located)):
        before = located[end - 1]
        if located[end].pos != before.pos + before.size:
            yield located[begin:end]
            begin = end
    yield located[begin:]


def check_body(known: bytes, computed: bytes, unit: IndexEntry) -> None:
    """
    Check that an entry has the body that was written.

    :param known: the stored checksums. If the header's part differs, they are of another entry or
        missing, and prove nothing.
    :param computed: the checksums of the entry that was read.
    :raises CorruptRecord: only the body differs.
    """
    if known != computed and known[:4] == computed[:4]:
        raise CorruptRecord(
            f"entry {unit.index} at {unit.pos} is damaged: the disk returns another body than was "
            "written; while the others have a leader, empty this member's directory but for "
            "currterm: it then copies the leader's"
        )
