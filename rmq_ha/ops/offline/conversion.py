"""
Makes the log of a DLedger member into the log of a broker without DLedger, and goes on with it
later.

The records stay as they are, but for their physical offsets. An entry has 48 bytes before its
record, which the new log lacks. Each data file becomes one file of the new log, so members whose
ledgers are equal get equal logs, whatever their oldest files are. The rest of a file is a blank.

All new physical offsets are above all old ones (`SHIFT`). So an old one, for example in a message
id, never names another message.

What was converted is compared with the ledger again, and is not written twice. So the conversion
can be killed at any time.

Spec: store.md, sections 1, 2.1 and 2.2; dledger.md, chapters 3 and 4.
"""

from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from rmq_ha.base.errors import CannotDecide
from rmq_ha.base.store_files import WINDOW, Files, window_of
from rmq_ha.base.store_format.commitlog import MESSAGE_MAGIC, encode_blank
from rmq_ha.base.store_format.dledger_values import ENTRY_HEADER_SIZE
from rmq_ha.ops.offline.chain import ChainEnding, Layout, chain
from rmq_ha.ops.offline.ledger import (
    NO_ENTRY,
    EntryPlace,
    EntryStretch,
    LedgerPaths,
    member_log,
    stretches,
)
from rmq_ha.ops.offline.log_files import LogFile

if TYPE_CHECKING:  # its interfaces need Twisted, which this package does not import
    from rmq_ha.base.seams import Disk, File

STATE_FILE = "conversion.json"
SHIFT = 1 << 52
"""
Added to each physical offset, and rounded up to whole files. A ledger of 4 PiB is not converted.
"""
_OFFSET_AT = 28
_QUEUE_OFFSET = Struct(">q").pack
_IDENTITY = Struct(">4xI20xq")
_OTHER = (
    "the new log has bytes at {} that are not of the ledger: a broker has written there. Begin "
    "anew in another directory"
)


class ConversionState(msgspec.Struct, rename="camel"):
    """
    The state of a conversion, in `conversion.json` of the new store.

    :ivar group: `dLegerGroup`.
    :ivar begin: physical offset where the new log begins; -1: nothing was converted.
    :ivar end: physical offset where the new log ends.
    :ivar source_end: position in the member's log after the last record that was converted.
    :ivar term: term of the last entry that was converted.
    :ivar entry: index of the last entry that was converted; -1: none.
    :ivar is_final: the whole ledger was converted, and the store may be used as a master's.
    :ivar compared: by `topic@queue`, the queue offset up to which the queue was compared with the
        member's.
    :ivar begun: by `topic@queue`, the physical offset in the new log below which records do not
        belong to the queue, because its topic was deleted.
    """

    group: str
    file_size: int
    begin: int = -1
    end: int = -1
    source_end: int = -1
    term: int = -1
    entry: int = -1
    is_final: bool = False
    compared: dict[str, int] = {}
    begun: dict[str, int] = {}

    @property
    def last_entry(self) -> EntryPlace:
        """Return the last entry that was converted."""
        return EntryPlace(self.term, self.entry)


def read_state(files: Files, target: str, group: str, file_size: int) -> ConversionState:
    """
    Return the state of a conversion; a new one if the directory is empty or missing.

    :raises CannotDecide: the directory holds something else.
    """
    try:
        state = msgspec.json.decode(files.read(f"{target}/{STATE_FILE}"), type=ConversionState)
    except FileNotFoundError:
        if files.list(target):
            raise CannotDecide(
                f"{target} holds files, but no {STATE_FILE}: name an empty or missing directory"
            ) from None
        return ConversionState(group, file_size)
    except msgspec.DecodeError as error:
        raise CannotDecide(f"{target}/{STATE_FILE} is damaged: {error}") from None
    if (state.group, state.file_size) != (group, file_size):
        raise CannotDecide(
            f"{target} is made from the group {state.group} with files of {state.file_size} "
            f"bytes, not from {group} with {file_size}: name another directory"
        )
    return state


def write_state(disk: "Disk", target: str, state: ConversionState) -> None:
    disk.replace(f"{target}/{STATE_FILE}", msgspec.json.encode(state))


def shift_of(file_size: int) -> int:
    """Return the number by which the offset of each file rises."""
    return -(-SHIFT // file_size) * file_size


class LogPiece(NamedTuple):
    """
    Consecutive records of the new log, or the blank that ends a file.

    :ivar position: physical offset in the new log.
    :ivar end: physical offset after it in the new log.
    :ivar source_end: position after it in the member's log.
    :ivar last: the last entry; `NO_ENTRY` for classic records and blanks.
    """

    position: int
    data: bytes
    end: int
    source_end: int
    last: EntryPlace = NO_ENTRY


def pieces(
    files: Files, row: Sequence[LogFile], state: ConversionState, up_to: int
) -> Iterator[LogPiece]:
    """
    Yield the part of the new log that follows what the state names.

    :param row: the member's log.
    :param up_to: index of the last entry that is wanted.
    :raises CannotDecide: the log is damaged, or lacks what has to follow.
    """
    begin, shift = state.source_end, shift_of(row[0].size)
    if begin >= 0 and row[0].base > begin:
        raise CannotDecide(
            f"the member has deleted its files up to {row[0].base}, and the conversion was at "
            f"{begin}: begin anew in another directory"
        )
    if row[-1].end > shift:
        raise CannotDecide(f"the ledger reaches to {row[-1].end}: more than {shift} is too much")
    last = state.last_entry
    unfinished: tuple[LogFile, int] | None = None
    for file in row:
        if file.end <= begin:
            continue
        start, position = file.base, file.base + shift
        is_begun = file.base < begin
        if is_begun:
            start, position = begin, state.end
        if file.layout is Layout.CLASSIC:
            yield from _classic(files, file, start, shift)
            continue
        if is_begun:
            unfinished = file, position
        next_index = None if last is NO_ENTRY or last.index < 0 else last.index + 1
        for stretch in stretches(files, file, start, next_index, last.term):
            count = min(len(stretch.places), up_to - stretch.first_index + 1)
            if count <= 0:
                return
            if unfinished is not None and unfinished[0] is not file:
                yield _blank(*unfinished)
            data = _records(stretch, count, position)
            last = EntryPlace(_term_at(stretch, count), stretch.first_index + count - 1)
            source_end = stretch.position + stretch.places[count - 1] + ENTRY_HEADER_SIZE
            source_end += stretch.sizes[count - 1]
            yield LogPiece(position, data, position + len(data), source_end, last)
            position += len(data)
            unfinished, is_begun = (file, position), True
        if not is_begun:
            return


def _term_at(stretch: EntryStretch, count: int) -> int:
    place = stretch.places[count - 1] + 16
    return int.from_bytes(stretch.data[place : place + 8], "big")


def _records(stretch: EntryStretch, count: int, position: int) -> bytes:
    data = stretch.data
    parts: list[Any] = []
    for place, size in zip(stretch.places[:count], stretch.sizes, strict=False):
        at = place + ENTRY_HEADER_SIZE
        parts += (
            data[at : at + _OFFSET_AT],
            _QUEUE_OFFSET(position),
            data[at + _OFFSET_AT + 8 : at + size],
        )
        position += size
    return b"".join(parts)


def _blank(file: LogFile, position: int) -> LogPiece:
    end = file.end + shift_of(file.size)
    return LogPiece(position, encode_blank(end - position), end, file.end)


def _classic(files: Files, file: LogFile, start: int, shift: int) -> Iterator[LogPiece]:
    """Yield the records of a classic file, and the blank after them, if there is one."""
    position, want = start, WINDOW
    while position < file.end:
        length = min(want, file.end - position)
        data = window_of(files, file.path, position - file.base, length)
        walked = chain(data, position)
        if walked.end:
            end = position + walked.end
            yield LogPiece(
                position + shift, _with_moved_offsets(data, walked.end, shift), end + shift, end
            )
            position, want = end, WINDOW
        elif walked.tail is ChainEnding.BLANK:
            yield _blank(file, position + shift)
            return
        elif walked.tail is ChainEnding.MORE and length < walked.needed <= file.end - position:
            want = walked.needed
        else:
            raise CannotDecide(
                f"{file.path} has no record at {position}: {walked.tail.value}; convert at another "
                "member"
            )


def _with_moved_offsets(data: Any, end: int, shift: int) -> bytes:
    moved = bytearray(data[:end])
    at = 0
    while at < end:
        offset = int.from_bytes(moved[at + _OFFSET_AT : at + _OFFSET_AT + 8], "big")
        moved[at + _OFFSET_AT : at + _OFFSET_AT + 8] = _QUEUE_OFFSET(offset + shift)
        at += int.from_bytes(moved[at : at + 4], "big")
    return bytes(moved)


def convert(
    files: Files,
    paths: LedgerPaths,
    disk: "Disk",
    target: str,
    state: ConversionState,
    up_to: int,
    tell: Callable[[int], object] = lambda count: None,
) -> int:
    """
    Write the part of the new log that is missing, sync it, and note that in the state.

    :param up_to: index of the last entry to convert.
    :param tell: called with numbers of bytes that were compared or written.
    :returns: the number of bytes that were written.
    :raises CannotDecide: the ledger cannot be converted, or the new log has other records.
    """
    row = member_log(files, paths)
    write_state(disk, target, state)
    log = _NewLog(disk, f"{target}/commitlog", paths.file_size)
    try:
        for piece in pieces(files, row, state, up_to):
            if log.put(piece):
                write_state(disk, target, state)  # all before this piece is synced
            tell(len(piece.data))
            if state.begin < 0:
                state.begin = piece.position
            state.end, state.source_end = piece.end, piece.source_end
            if piece.last is not NO_ENTRY:
                state.term, state.entry = piece.last
        log.must_end_at(state.end)
    finally:
        log.close()
    if state.entry < up_to:
        raise CannotDecide(
            f"entry {state.entry + 1} of the ledger is damaged or missing, and later ones are "
            "there: convert at another member"
        )
    write_state(disk, target, state)
    return log.written


class _NewLog:
    """
    The files of the new log; only what differs from them is written.

    :ivar written: bytes that were written.
    """

    def __init__(self, disk: "Disk", directory: str, file_size: int) -> None:
        self._disk = disk
        self._directory = directory
        self._size = file_size
        self._file: File | None = None
        self._base = -1
        self.written = 0

    def put(self, piece: LogPiece) -> bool:
        """
        Write a piece, unless it is there.

        :returns: whether the piece is the first one in another file than the piece before it.
        :raises CannotDecide: a record of another origin is there.
        """
        file, is_next = self._file_at(piece.position)
        at = piece.position - self._base
        present = file.pread(len(piece.data), at)
        if present != piece.data:
            same = _common(present, piece.data)
            _must_be_free(present, same, piece)
            file.pwrite(memoryview(piece.data)[same:], at + same)
            self.written += len(piece.data) - same
        return is_next

    def _file_at(self, position: int) -> "tuple[File, bool]":
        base = position - position % self._size
        if self._file is not None and base == self._base:
            return self._file, False
        is_next = self._file is not None
        self.close()
        self._file = self._disk.open(f"{self._directory}/{base:020}", self._size)
        self._base = base
        return self._file, is_next

    def must_end_at(self, end: int) -> None:
        """
        Check that no record follows the end.

        :raises CannotDecide: a record follows.
        """
        if end < 0 or not end % self._size:
            return
        file, _ = self._file_at(end)
        data = file.pread(_IDENTITY.size, end - self._base)
        if len(data) == _IDENTITY.size:
            magic, offset = _IDENTITY.unpack(data)
            if magic == MESSAGE_MAGIC and offset == end:
                raise CannotDecide(_OTHER.format(end))

    def close(self) -> None:
        """Sync and close the file."""
        if self._file is not None:
            self._file.sync()
            self._file.close()
            self._file = None


def _must_be_free(present: bytes, same: int, piece: LogPiece) -> None:
    """
    Check that only zeros differ from a piece: what a killed run did not write. A broker would have
    written other bytes.

    :raises CannotDecide: other bytes are there.
    """
    for at in range(same, len(present)):
        if present[at] and present[at] != piece.data[at]:
            raise CannotDecide(_OTHER.format(piece.position + at))


def _common(data: bytes, other: bytes) -> int:
    """Return how many leading bytes are equal."""
    low, high = 0, min(len(data), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if data[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def moved_offset(files: Files, row: Sequence[LogFile], state: ConversionState, offset: int) -> int:
    """
    Return where the first record at or after a physical offset of the member's log is in the new
    log.

    An offset after the converted part becomes the end of the new log.
    """
    if offset >= state.source_end:
        return state.end
    shift = shift_of(state.file_size)
    file = next((file for file in row if file.base <= offset < file.end), None)
    if file is None or file.layout is Layout.CLASSIC:
        return offset + shift
    position = file.base + shift
    for stretch in stretches(files, file, file.base, None):
        for place, size in zip(stretch.places, stretch.sizes, strict=True):
            if stretch.position + place + ENTRY_HEADER_SIZE >= offset:
                return position
            position += size
    return file.end + shift
