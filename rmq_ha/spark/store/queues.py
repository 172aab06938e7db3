"""Consume queues as they lie on the disk.

Spec: store.md, sections 3.1 to 3.6.
"""

from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from rmq_ha.spark.host.files import Files
from rmq_ha.spark.result import CannotDecide
from rmq_ha.store.format.consumequeue import (
    FILLER_SIZE,
    UNIT,
    UNIT_SIZE,
    is_extension_address,
)
from rmq_ha.store.format.consumequeue_ext import decode_extension, position_of
from rmq_ha.store.queue_search import first_from

UNITS = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tagsCode", ">i8")])
NATIVE_UNITS = UNITS.newbyteorder("=")
_CHUNK = 3200 * UNIT_SIZE
_MAX_EXTENSION = 1 << 15


class RowFile(NamedTuple):
    """A file of a queue, or of its extension; `base` is its first byte's place in the row."""

    path: str
    base: int
    size: int


class LogBounds(NamedTuple):
    """What a queue has to know of the log."""

    min_offset: int
    max_offset: int


class Queue:
    """
    One queue; offsets count messages.

    :param files: how to read.
    :param row: its files in order.
    :param extension: those of its extension in order.
    :param log: None: units are not compared with the log.
    """

    def __init__(
        self,
        files: Files,
        topic: str,
        queue_id: int,
        row: Sequence[RowFile],
        extension: Sequence[RowFile] = (),
        log: LogBounds | None = None,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.row = tuple(row)
        self._extension = tuple(extension)
        self._files = files
        self._log = log
        self._chunk: tuple[int, bytes] = (0, b"")
        for one, following in pairwise(self.row):
            if one.size % UNIT_SIZE:
                raise CannotDecide(
                    f"{one.path} has {one.size} bytes, which are no whole units of {UNIT_SIZE}: it"
                    " was cut; copy it from a replica"
                )
            if one.base + one.size != following.base:
                raise CannotDecide(
                    f"queue {queue_id} of {topic} lacks the file between {one.path} and "
                    f"{following.path}: copy it from a replica, or let the broker build the queue "
                    "again (move its directory away and start it)"
                )

    @cached_property
    def written_offset(self) -> int:
        """Behind the last unit that was written, whatever the log holds."""
        if not self.row:
            return 0
        last = self.row[-1]
        at = 0
        while at < last.size:
            units = self._window(last, at, min(_CHUNK, last.size - at))
            written = (units["offset"] >= 0) & (units["size"] > 0)
            if not written.all():
                return (last.base + at) // UNIT_SIZE + int(written.argmin())
            if not len(units):
                break
            at += len(units) * UNIT_SIZE
        return (last.base + at) // UNIT_SIZE

    @cached_property
    def max_offset(self) -> int:
        """Behind the last message that the log holds, too; as the broker finds after a start."""
        end = self.written_offset
        first = self.row[0].base // UNIT_SIZE if self.row else 0
        while self._log is not None and end > first:
            begin = max(first, end - _CHUNK // UNIT_SIZE)
            units = self.units(begin, end)
            held = (units["size"] == FILLER_SIZE) | (
                units["offset"] + units["size"] <= self._log.max_offset
            )
            if held.any():
                return begin + len(held) - int(held[::-1].argmax())
            end = begin
        return end

    @cached_property
    def min_offset(self) -> int:
        """Of the first message that the log still holds."""
        if not self.row:
            return 0
        low, high = self.row[0].base, self.max_offset * UNIT_SIZE
        minimum = 0 if self._log is None else self._log.min_offset
        return first_from(self._unit, self._behind_fillers, low, high, minimum) // UNIT_SIZE

    def _behind_fillers(self, position: int, end: int) -> int:
        count = 1  # a message is there, mostly
        while position < end:
            first = position // UNIT_SIZE
            is_message = (
                self.units(first, min(first + count, end // UNIT_SIZE))["size"] != FILLER_SIZE
            )
            if is_message.any():
                return position + int(is_message.argmax()) * UNIT_SIZE
            position += count * UNIT_SIZE
            count = _CHUNK // UNIT_SIZE
        return end

    def units(self, start: int, stop: int) -> Any:
        """
        The units of `[start, stop)`: a structured array `offset, size, tagsCode`.

        :raises CannotDecide: a file vanished.
        """
        parts = []
        for file in self.row:
            low = max(start * UNIT_SIZE, file.base)
            high = min(stop * UNIT_SIZE, file.base + file.size)
            if low < high:
                parts.append(self._window(file, low - file.base, high - low))
        found = np.concatenate(parts) if parts else np.empty(0, UNITS)
        return found.astype(NATIVE_UNITS)

    def tags_codes(self, units: Any) -> Any:
        """
        The hashes of the tags (or times of delivery), looked up where they are in the extension.

        What cannot be looked up stays an address: any tag may be meant.
        """
        codes = units["tagsCode"].copy()
        for index in np.flatnonzero(codes <= -2147483649):
            found = self._extended(int(codes[index]))
            if found is not None:
                codes[index] = found
        return codes

    def _unit(self, position: int) -> tuple[int, int, int]:
        start, data = self._chunk
        if not start <= position < start + len(data):
            file = self.row[bisect_right(self.row, position, key=lambda file: file.base) - 1]
            at = (position - file.base) // _CHUNK * _CHUNK
            data = bytes(self._bytes(file, at, min(_CHUNK, file.size - at)))
            start = file.base + at
            self._chunk = start, data
        found: tuple[int, int, int] = UNIT.unpack_from(data, position - start)
        return found

    def _window(self, file: RowFile, at: int, length: int) -> Any:
        data = self._bytes(file, at, length)
        return np.frombuffer(data, UNITS, len(data) // UNIT_SIZE)

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

    def _extended(self, address: int) -> int | None:
        if not is_extension_address(address):
            return None
        position = position_of(address)
        index = bisect_right(self._extension, position, key=lambda file: file.base) - 1
        if index < 0:
            return None
        file = self._extension[index]
        data = bytes(self._bytes(file, position - file.base, _MAX_EXTENSION))
        found = decode_extension(data)
        return None if found is None else found[0].tags_code
