"""
Reads consume queues on the disk, and finds where they begin and end.

Spec: store.md, sections 3.1 to 3.6.
"""

from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

from rmq_ha.base.errors import CannotDecide
from rmq_ha.base.store_files import Files
from rmq_ha.base.store_format.consumequeue import (
    FILLER,
    FILLER_SIZE,
    UNIT,
    UNIT_SIZE,
    count_valid,
    is_extension_address,
)
from rmq_ha.base.store_format.consumequeue_ext import decode_extension, position_of
from rmq_ha.server.store.queues.search import first_from

_CHUNK = 3200 * UNIT_SIZE
_MAX_EXTENSION = 1 << 15


class RowFile(NamedTuple):
    """A file of a queue or its extension; `base` is the offset of its first byte in the row."""

    path: str
    base: int
    size: int


class LogBounds(NamedTuple):
    """The bounds of the log, with which a queue compares its units."""

    min_offset: int
    max_offset: int


class OfflineQueue:
    """
    One queue. Its offsets are queue offsets, which count messages.

    :param log: bounds of the log; None if units are not compared with the log.
    :param damaged: whether to accept missing files. Then only the files after the last gap are
        read, or the files before it, if nothing is written after it.
    :ivar faults: a sentence for each fault of the queue's files.
    :ivar is_end_known: False if a file is missing behind which nothing is written: how many entries
        the missing file had is not known.
    :raises CannotDecide: files are missing, and `damaged` is false.
    """

    def __init__(
        self,
        files: Files,
        topic: str,
        queue_id: int,
        row: Sequence[RowFile],
        extension: Sequence[RowFile] = (),
        log: LogBounds | None = None,
        damaged: bool = False,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        starts, self.faults = _faults_of(row, f"queue {queue_id} of {topic}")
        if self.faults and not damaged:
            raise CannotDecide(self.faults[0])
        self._extension = tuple(extension)
        self._files = files
        self._log = log
        self._chunk: tuple[int, bytes] = (0, b"")
        parts = [tuple(row[start:stop]) for start, stop in pairwise((*starts, len(row)))]
        self.row = parts[-1] if len(parts) == 1 else self._last_written(parts)
        self.is_end_known = self.row == parts[-1]

    def _last_written(self, parts: Sequence[tuple[RowFile, ...]]) -> tuple[RowFile, ...]:
        """Return the last part whose first unit is written; if there is none, the last part."""
        for part in reversed(parts):
            if count_valid(bytes(self._bytes(part[0], 0, UNIT_SIZE))):
                return part
        return parts[-1]

    @cached_property
    def written_offset(self) -> int:
        """Offset behind the last unit that was written, also if the log lacks its record."""
        ends = (self._written_in(file) for file in reversed(self.row))
        first = self.row[0].base // UNIT_SIZE if self.row else 0
        return next((end for end in ends if end is not None), first)

    def _written_in(self, file: RowFile) -> int | None:
        """Return the offset behind a file's last unit; None if nothing is written in the file."""
        at = 0
        while at < file.size:
            data = bytes(self._bytes(file, at, min(_CHUNK, file.size - at)))
            written = count_valid(data)
            at += written * UNIT_SIZE
            if not written or written < len(data) // UNIT_SIZE:
                break
        return (file.base + at) // UNIT_SIZE if at else None

    @cached_property
    def max_offset(self) -> int:
        """Offset after the last message of the log, as the broker finds it after a start."""
        first = self.row[0].base if self.row else 0
        position = self.written_offset * UNIT_SIZE
        while self._log is not None and position > first:
            offset, size, _ = self._unit(position - UNIT_SIZE)
            if size == FILLER_SIZE or offset + size <= self._log.max_offset:
                break
            position -= UNIT_SIZE
        return position // UNIT_SIZE

    @cached_property
    def min_offset(self) -> int:
        """Offset of the first message that the log still holds."""
        if not self.row:
            return 0
        low, high = self.row[0].base, self.max_offset * UNIT_SIZE
        minimum = 0 if self._log is None else self._log.min_offset
        return first_from(self._unit, self._behind_fillers, low, high, minimum) // UNIT_SIZE

    def unit(self, offset: int) -> tuple[int, int, int] | None:
        """Return physical offset, size and tags' code of an entry; None: it is not written."""
        first = self.row[0].base if self.row else 0
        if not first <= offset * UNIT_SIZE < self.written_offset * UNIT_SIZE:
            return None
        return self._unit(offset * UNIT_SIZE)

    @property
    def bounds(self) -> tuple[int, int]:
        """The first offset of the first file, and the offset behind the end of the last file."""
        if not self.row:
            return 0, 0
        last = self.row[-1]
        return self.row[0].base // UNIT_SIZE, (last.base + last.size) // UNIT_SIZE

    def data(self, start: int, stop: int) -> bytes:
        """Return the bytes of the units of `[start, stop)`; zeros for those that no file has."""
        parts: list[bytes] = []
        at, end = start * UNIT_SIZE, stop * UNIT_SIZE
        for file in self.row:
            low, high = max(at, file.base), min(end, file.base + file.size)
            if low < high:
                parts += (bytes(low - at), bytes(self._bytes(file, low - file.base, high - low)))
                at = high
        return b"".join(parts).ljust((stop - start) * UNIT_SIZE, b"\0")

    def tags_code(self, code: int) -> int:
        """
        Return the hash of the tags for the last number of a unit. A hash that is kept in the
        consume queue's extension file is read from there; an address that cannot be looked up stays
        as it is.
        """
        if not is_extension_address(code):
            return code
        position = position_of(code)
        index = bisect_right(self._extension, position, key=lambda file: file.base) - 1
        if index < 0:
            return code
        file = self._extension[index]
        unit = decode_extension(bytes(self._bytes(file, position - file.base, _MAX_EXTENSION)))
        return code if unit is None else unit[0].tags_code

    def _behind_fillers(self, position: int, end: int) -> int:
        while position < end and self._unit(position)[1] == FILLER_SIZE:
            start, data = self._chunk
            is_whole = start == position and data == FILLER * (len(data) // UNIT_SIZE)
            position += len(data) if is_whole else UNIT_SIZE
        return min(position, end)

    def _unit(self, position: int) -> tuple[int, int, int]:
        start, data = self._chunk
        if not start <= position < start + len(data):
            file = self.row[bisect_right(self.row, position, key=lambda file: file.base) - 1]
            at = (position - file.base) // _CHUNK * _CHUNK
            data = bytes(self._bytes(file, at, min(_CHUNK, file.size - at)))
            start = file.base + at
            self._chunk = start, data
        unit: tuple[int, int, int] = UNIT.unpack_from(data, position - start)
        return unit

    def _bytes(self, file: RowFile, at: int, length: int) -> Any:
        try:
            return self._files.window(file.path, at, length)
        except FileNotFoundError:
            raise CannotDecide(
                f"{file.path} vanished while it was read: the broker deletes what the log does not "
                "hold any more. Read again, or from a copy"
            ) from None
        except OSError as error:
            raise CannotDecide(f"{file.path} cannot be read: {error}") from None


def _faults_of(row: Sequence[RowFile], name: str) -> tuple[list[int], list[str]]:
    """Return the index of each file that does not follow the one before it, and the faults."""
    starts, faults = [0], []
    for at, (file, following) in enumerate(pairwise(row), 1):
        if file.size % UNIT_SIZE:
            starts.append(at)
            faults.append(
                f"{file.path} has {file.size} bytes, which are no whole units of {UNIT_SIZE}: it"
                " was cut; copy it from a replica"
            )
        elif file.base + file.size != following.base:
            starts.append(at)
            faults.append(
                f"{name} lacks the file between {file.path} and {following.path}: copy it from a"
                " replica, or let the broker build the queue again (move its directory away and"
                " start it)"
            )
    return starts, faults
