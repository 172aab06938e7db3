"""The commit log of one side, as the comparison reads it."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from enum import Enum
from operator import attrgetter
from typing import Any, NamedTuple

from rmq_ha.base.errors import CannotDecide
from rmq_ha.base.store_files import Files
from rmq_ha.lake.scan.log.records import Records
from rmq_ha.lake.scan.replica.aligning import Item, identity_of
from rmq_ha.lake.scan.replica.differing import is_blank
from rmq_ha.lake.scan.store.scanning import LOOK_BACK, Gap, pieces, splits_of
from rmq_ha.ops.offline.log_files import LogFile

_WHOLE = 1 << 62


class ByteOwner(Enum):
    """The kind of thing that a byte of a log belongs to."""

    RECORD = "a record"
    GAP = "something that is no record"
    BLANK = "the blank at the end of a file"
    OTHER = "what stands between records"


class Extent(NamedTuple):
    """A stretch of bytes with one owner: its start and its size."""

    what: ByteOwner
    start: int
    size: int


class Log:
    """
    The files of a log up to a bound, which stays while the log grows. It can be pickled for a task.

    :param stop: the bound, a physical offset: bytes from there on are not read.
    """

    def __init__(self, files: Files, row: Sequence[LogFile], stop: int) -> None:
        self.files = files
        self.row = list(row)
        self.stop = stop

    def number_at(self, offset: int) -> int:
        """Return the number of the last file that begins at or before an offset, or -1."""
        return bisect_right(self.row, offset, key=attrgetter("base")) - 1

    def file_at(self, offset: int) -> LogFile:
        """
        Return the file with the byte at a physical offset.

        :raises CannotDecide: no file has it.
        """
        number = self.number_at(offset)
        if number < 0 or offset >= self.row[number].end:
            raise CannotDecide(f"no file holds the offset {offset}: was it deleted meanwhile?")
        return self.row[number]

    def end_at(self, offset: int) -> int:
        """Return where the file with that offset ends, or the bound, whichever is first."""
        return min(self.file_at(offset).end, self.stop)

    def read(self, offset: int, length: int) -> Any:
        """
        Return bytes from a physical offset on; fewer where the file or the bound ends.

        :raises CannotDecide: the file vanished, or cannot be read.
        """
        file = self.file_at(offset)
        length = min(length, file.end - offset, self.stop - offset)
        try:
            data = self.files.window(file.path, offset - file.base, length)
        except FileNotFoundError:
            directory = file.path.rpartition("/")[0]
            if not self.files.list(directory):
                raise CannotDecide(
                    f"{directory} is not seen where this task ran: a store has to be at the same"
                    " path on every executor. Else keep facts of it with rmqha-scan, beside its"
                    " broker, and ask rmqha-spark verify-fleet"
                ) from None
            raise CannotDecide(
                f"{file.path} vanished while it was read: the broker deletes what is older than "
                "fileReservedTime. Compare again, with --from a higher offset, or compare copies"
            ) from None
        except OSError as error:
            raise CannotDecide(f"{file.path} cannot be read at {offset}: {error}") from None
        if len(data) < length:
            raise CannotDecide(f"{file.path} became shorter while it was read: compare again")
        return data

    def pieces(self, start: int, stop: int) -> Iterator[Records | Gap]:
        """Yield the records that start in [start, stop), and the gaps between them."""
        row = self.row[max(0, self.number_at(start)) : self.number_at(stop - 1) + 1]
        for split in splits_of(row, _WHOLE, start, min(stop, self.stop)):
            yield from pieces(self.files, split._replace(stop=self.stop))

    def items(self, start: int, stop: int) -> Iterator[Item]:
        """Yield records, and gaps as records without content, one by one, for `align`."""
        for piece in self.pieces(start, stop):
            if isinstance(piece, Gap):
                size = piece.end - piece.start
                yield Item(piece.start, size, b"gap at %d" % piece.start)
                continue
            view = memoryview(piece.buffer)
            sizes = piece.sizes.tolist()
            for position, size in zip(piece.positions.tolist(), sizes, strict=True):
                identity = identity_of(view[position : position + size])
                yield Item(piece.base + position, size, identity)

    def place_of(self, offset: int) -> Extent:
        """
        Return the extent that the byte at an offset belongs to.

        :raises CannotDecide: the file vanished, or cannot be read.
        """
        file = self.file_at(offset)
        end = low = max(file.base, offset - LOOK_BACK)
        for piece in self.pieces(low, offset + 1):
            if isinstance(piece, Gap):
                if piece.start <= offset < piece.end:
                    return Extent(ByteOwner.GAP, piece.start, piece.end - piece.start)
                continue
            at = int((piece.positions + piece.base).searchsorted(offset, "right")) - 1
            if at >= 0:
                start, size = int(piece.positions[at]) + piece.base, int(piece.sizes[at])
                if offset < start + size:
                    return Extent(ByteOwner.RECORD, start, size)
                end = start + size
        if is_blank(self.read(end, 8), file.layout):
            return Extent(ByteOwner.BLANK, end, self.end_at(offset) - end)
        return Extent(ByteOwner.OTHER, end, offset + 1 - end)

    def newest_time(self) -> int:
        """Return the newest store time near the end, in ms; clocks can be set back. 0: none."""
        low = max(self.row[0].base, self.stop - LOOK_BACK)
        newest = 0
        for piece in self.pieces(low, self.stop):
            if isinstance(piece, Records) and len(piece):
                newest = max(newest, int(piece.store_timestamp.max()))
        return newest
