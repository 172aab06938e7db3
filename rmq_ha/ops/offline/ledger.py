"""
Reads the ledger of a DLedger member from the disk, entry by entry. The member may run or be
stopped.

Entries that are committed never change, so they can be read while the member appends others.

Spec: dledger.md, sections 3, 4 and 15.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Any, NamedTuple
from zlib import crc32

from rmq_ha.base.errors import CannotDecide, CorruptRecord
from rmq_ha.base.store_files import WINDOW, Files, window_of
from rmq_ha.base.store_format.commitlog import CRC_MASK, HEADS, MESSAGE_MAGIC
from rmq_ha.base.store_format.dledger import HEADER, DLedgerCheckpoint, decode_checkpoint
from rmq_ha.base.store_format.dledger_values import ENTRY_HEADER_SIZE
from rmq_ha.ops.offline.chain import ChainEnding, Layout, entry_tail, sound_entries
from rmq_ha.ops.offline.log_files import LogFile, files_in

_ENTRY = Struct(HEADER.format + "iIi16xqi")
"""The header of an entry, and of its record: size, magic, CRC, physical offset, sysFlag."""
_INT = Struct(">i").unpack_from
_HEAD_SIZES = tuple(head.size for head in HEADS)


class LedgerPaths(NamedTuple):
    """
    The directories of a member's store.

    :ivar member: `dLegerSelfId`.
    :ivar data: directories of the ledger's data files.
    :ivar classic: directories of the commit log from before the group; usually empty.
    :ivar file_size: bytes of each file: `mappedFileSizeCommitLog`.
    """

    root: str
    member: str
    data: tuple[str, ...]
    classic: tuple[str, ...]
    file_size: int

    @property
    def directory(self) -> str:
        """Directory of the member's small files."""
        return f"{self.root}/dledger-{self.member}"


class EntryStretch(NamedTuple):
    """
    Consecutive entries of one data file.

    :ivar position: position of the first byte of `data` in the ledger.
    :ivar places: where in `data` each entry begins.
    :ivar sizes: bytes of each record.
    :ivar first_index: index of the first entry; the others follow it.
    :ivar last_term: term of the last entry.
    """

    position: int
    data: Any
    places: list[int]
    sizes: list[int]
    first_index: int
    last_term: int

    @property
    def last_index(self) -> int:
        return self.first_index + len(self.places) - 1


class EntryPlace(NamedTuple):
    """
    An entry, as members compare their ledgers: the later term wins, then the higher index.

    :ivar term: -1: there is no entry.
    """

    term: int = -1
    index: int = -1  # type: ignore[assignment]  # hides tuple.index

    def __str__(self) -> str:
        """Return the place as commands show and take it: `7.1234`."""
        return f"{self.term}.{self.index}"


NO_ENTRY = EntryPlace()


def member_log(files: Files, paths: LedgerPaths) -> list[LogFile]:
    """
    Return the files of a member's log in order: classic files, if any are left, then data files.

    :raises CannotDecide: there are none, a file is missing, or a file has another size.
    """
    row = files_in(files, paths.classic, Layout.CLASSIC)
    row += files_in(files, paths.data, Layout.DLEDGER)
    if not row:
        raise CannotDecide(f"{', '.join(paths.data)} holds no ledger")
    for at, file in enumerate(row):
        if file.size != paths.file_size or file.base != row[0].base + at * paths.file_size:
            raise CannotDecide(
                f"{file.path} with {file.size} bytes does not follow the file before it, or is not "
                f"of mappedFileSizeCommitLog={paths.file_size}: convert at another member"
            )
    return row


def checkpoint_of(files: Files, paths: LedgerPaths) -> DLedgerCheckpoint:
    """
    Return the checkpoint that the member writes every three seconds, and when it stops.

    :raises CannotDecide: it is missing or damaged.
    """
    faults = []
    for path in (f"{paths.directory}/checkpoint", f"{paths.directory}/checkpoint.bak"):
        try:
            return decode_checkpoint(files.read(path))
        except (OSError, CorruptRecord) as error:
            faults.append(f"{path}: {error}")
    raise CannotDecide(f"how far the group has committed is not known: {'; '.join(faults)}")


def stretches(
    files: Files, file: LogFile, start: int, next_index: int | None, term: int = -1
) -> Iterator[EntryStretch]:
    """
    Yield the entries of one data file up to the first place without a whole entry.

    :param start: position of the first entry that is wanted.
    :param next_index: its index; None: any.
    :param term: no entry has an earlier term.
    :raises CannotDecide: the file vanished.
    """
    position, want = start, WINDOW
    while position < file.end:
        length = min(want, file.end - position)
        data = window_of(files, file.path, position - file.base, length)
        places, end = sound_entries(data, position)
        stretch = _whole_entries(data, position, places, next_index, term)
        if stretch is not None:
            next_index, term = stretch.last_index + 1, stretch.last_term
            yield stretch
        if stretch is None or len(stretch.places) < len(places):
            kind, _, needed = entry_tail(data, position, end)
            if places or kind is not ChainEnding.MORE or needed <= length:
                return
            want = needed
            if want > file.end - position:
                return
            continue
        position, want = position + end, WINDOW


def _whole_entries(
    data: Any, position: int, places: list[int], next_index: int | None, term: int
) -> EntryStretch | None:
    """
    Return the leading entries that follow each other and hold whole records; None if there is none.
    """
    good: list[int] = []
    sizes: list[int] = []
    first = next_index
    limit = len(data) - _ENTRY.size
    for place in places:
        if place > limit:
            break
        head = _ENTRY.unpack_from(data, place)
        index, own_term, length = head[2], head[3], head[8]
        size, magic, crc, offset, flags = head[9:]
        if first is None:
            first = index
        at = place + ENTRY_HEADER_SIZE
        if index != first + len(good) or own_term < term:
            break
        if size != length or magic != MESSAGE_MAGIC or offset != position + at:
            break
        body = at + _HEAD_SIZES[flags >> 4 & 3]
        if body > at + size:
            break
        (count,) = _INT(data, body - 4)
        if not 0 <= count <= at + size - body:
            break
        if crc32(data[body : body + count]) & CRC_MASK != crc & CRC_MASK:
            break
        term = own_term
        good.append(place)
        sizes.append(size)
    if not good or first is None:
        return None
    return EntryStretch(position, data, good, sizes, first, term)


def end_of_ledger(
    files: Files, row: Sequence[LogFile], start: int = -1, before: EntryPlace = NO_ENTRY
) -> EntryPlace:
    """
    Return the last whole entry of a log; `NO_ENTRY` if it has none.

    :param start: position of the entry after `before`; -1: it is not known.
    :param before: an entry that is known to be whole.
    """
    for file in reversed(row):
        if file.layout is not Layout.DLEDGER or file.end <= start:
            break
        last = NO_ENTRY
        for stretch in stretches(files, file, max(file.base, start), None):
            last = EntryPlace(stretch.last_term, stretch.last_index)
        if last is not NO_ENTRY:
            return last
    return before
