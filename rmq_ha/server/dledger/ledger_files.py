"""The files of a ledger: where bytes go, without a say about what may be there.

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
    Header,
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
    A row of files, and which of them have to be synced.

    :ivar row: the files.
    :ivar dirty: starts of files that were written since `taken`.
    :ivar gone: starts of files that were closed for good since then.
    """

    def __init__(self, row: FileRow) -> None:
        self.row = row
        self.dirty: set[int] = set()
        self.gone: set[int] = set()

    def write(self, position: int, data: bytes) -> None:
        """
        Write, over the ends of files where need be; missing files are made.

        :raises OSError: the disk refuses; any part may have been written.
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
        """Bytes of one file; fewer at its end, none where there is no file."""
        start = self.row.start_of(position)
        if start not in self.row.starts[-2:] and start not in self.row.starts:
            return b""
        return self.row.file(start).pread(size, position - start)

    def read_over(self, position: int, size: int) -> bytes:
        """Bytes over the ends of files; fewer where there is no file."""
        data = self.read(position, size)
        while len(data) < size:
            more = self.read(position + len(data), size - len(data))
            if not more:
                break
            data += more
        return data

    def cut(self, position: int) -> None:
        """Nothing is left from a position on: later files are deleted, the rest reads as zero."""
        for start in reversed([start for start in self.row.starts if start >= position]):
            self.dirty.discard(start)
            self.gone.add(start)
            self.row.delete(start)
        start = self.row.start_of(position)
        if start in self.row.starts:
            self.dirty.add(start)
            self.row.file(start).zero(position - start)

    def all_dirty_from(self, position: int) -> None:
        """Nobody knows what from there on is on the disk."""
        size = self.row.file_size
        self.dirty.update(start for start in self.row.starts if start + size > position)

    def drop_before(self, position: int) -> list[str]:
        """Let go of whole files below a position; their paths, oldest first, for deletion."""
        size = self.row.file_size
        old = [start for start in self.row.starts[:-1] if start + size <= position]
        self.dirty.difference_update(old)
        self.gone.update(old)
        return [self.row.forget(start) for start in old]

    def opened(self) -> list[tuple[int, File]]:
        """
        The files to sync.

        :raises OSError: one cannot be opened.
        """
        return [(start, self.row.file(start)) for start in sorted(self.dirty)]

    def taken(self) -> None:
        """They are being synced: they count as clean now."""
        self.dirty.clear()
        self.gone.clear()

    def close_idle(self) -> None:
        """Give descriptors of clean files back when many are open."""
        self.row.close_idle(min(self.dirty, default=self.row.starts[-1] if self.row.starts else 0))


class LedgerFiles:
    """
    Data, index and checksums.

    :param directory: `dledger-<selfId>`.
    :param data_directories: where data files are found and made.
    :param index_file_size: bytes; upstream knows only one size.
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
        Look which files there are.

        :raises StoreError: some do not fit.
        """
        for part in (self.data, self.index, self.checksums):
            part.row.load()

    def write(self, entries: Sequence[Entry], end_pos: int, term: int) -> None:
        """
        Write consecutive entries: one write a data file, the data last.

        :param end_pos: where the entry before them ends.
        :param term: of that entry; -1: there is none.
        :raises OSError: the disk refuses; `cut` what is there.
        """
        parts: list[bytes] = []
        segments = [(end_pos, parts)]
        checksums: list[bytes] = []
        units: list[bytes] = []
        position, before = end_pos, PREVIOUS_TERM.pack(term)
        for index, own_term, pos, body, magic, channel in entries:  # up to 20,000 in a turn
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
        """Nothing is left from a position, and from an entry, on."""
        self.data.cut(pos)
        self.index.cut(INDEX_UNIT * index)
        self.checksums.cut(CHECKSUM_UNIT * index)

    def drop_before(self, pos: int, index: int) -> list[str]:
        """Let go of files below a position and an entry; their paths, for deletion in order."""
        return [
            *self.data.drop_before(pos),
            *self.index.drop_before(INDEX_UNIT * index),
            *self.checksums.drop_before(CHECKSUM_UNIT * index),
        ]

    def take(self, with_index: bool) -> list[tuple[DirtyRow, int, File]]:
        """
        The files to sync, which count as clean now; without the index, which the data can replace.

        :raises OSError: one cannot be opened; all are as dirty as before.
        """
        parts = [self.data, self.checksums]
        if with_index:
            parts.append(self.index)
        taken = [(part, start, file) for part in parts for start, file in part.opened()]
        for part in parts:
            part.taken()
        return taken

    def all_dirty_from(self, pos: int, index: int) -> None:
        """Nobody knows what from a position, and from an entry, on is on the disk."""
        self.data.all_dirty_from(pos)
        self.index.all_dirty_from(INDEX_UNIT * index)
        self.checksums.all_dirty_from(CHECKSUM_UNIT * index)

    def close_idle(self) -> None:
        """Give descriptors of clean files back when many are open."""
        for part in (self.data, self.index, self.checksums):
            part.close_idle()

    def header_at(self, pos: int) -> Header | None:
        """The sound header that says it stands there; None: something else does."""
        data = self.data.read(pos, ENTRY_HEADER_SIZE)
        if len(data) < ENTRY_HEADER_SIZE:
            return None
        header = decode_header(data)
        return header if header.is_sound and header.pos == pos else None

    def located(self, index: int, count: int = 1) -> list[IndexEntry]:
        """
        What the index says about consecutive entries; fewer where it ends.

        :raises CorruptRecord: it says something else.
        """
        data = self.index.read_over(INDEX_UNIT * index, INDEX_UNIT * count)
        entries = []
        for at in range(len(data) // INDEX_UNIT):
            unit = decode_index(data, INDEX_UNIT * at)
            fits = ENTRY_HEADER_SIZE <= unit.size <= MAX_ENTRY_SIZE
            if unit.index != index + at or unit.magic != MAGIC or not fits:
                raise CorruptRecord(
                    f"{self.index.row.directories[0]} does not know entry {index + at}: {unit}; "
                    "stop this member and delete the directory: a start makes it anew"
                )
            entries.append(unit)
        return entries

    def read_entries(self, located: Sequence[IndexEntry], term: int | None) -> list[Entry]:
        """
        Consecutive entries: one read for those that stand side by side.

        :param term: of the entry before; None: not known.
        :raises CorruptRecord: one is damaged.
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
    """Those that stand side by side."""
    begin = 0
    for end in range(1, len(located)):
        before = located[end - 1]
        if located[end].pos != before.pos + before.size:
            yield located[begin:end]
            begin = end
    yield located[begin:]


def check_body(known: bytes, computed: bytes, unit: IndexEntry) -> None:
    """
    See that an entry is what was written.

    :param known: its checksums; those of another entry, or none, say nothing.
    :raises CorruptRecord: only the body differs.
    """
    if known != computed and known[:4] == computed[:4]:
        raise CorruptRecord(
            f"entry {unit.index} at {unit.pos} is damaged: the disk returns another body than was "
            "written; while the others have a leader, empty this member's directory but for "
            "currterm: it then copies the leader's"
        )
