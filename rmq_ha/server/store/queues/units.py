"""The units of one consume queue, in its files.

Spec: store.md, section 3.
"""

from bisect import bisect_right
from collections.abc import Callable

from rmq_ha.base.model.extension_unit import ExtensionUnit
from rmq_ha.base.store_format.consumequeue import (
    FILLER_SIZE,
    UNIT,
    UNIT_SIZE,
    decode_units,
    is_extension_address,
)
from rmq_ha.server.store.queues.ext import QueueExtension
from rmq_ha.server.store.queues.files import QueueFiles
from rmq_ha.server.store.queues.search import (
    WALK_SIZE,
    Bounds,
    first_from,
    first_since,
    nearest_in_time,
)

MAX_POSITION = 1 << 62
_NOTHING = (0, 0, 0)


class QueueUnits:
    """
    The bounds of a queue, and how its units are read, written and cut.

    Positions are bytes in the queue (20 times a queue offset); files start at multiples of the file
    size.

    :param extension: stores store times and bit maps; None: they are not stored.
    :ivar max_physical_offset: physical offset after the last record that the queue knows; -1 if it
        knows none.
    :ivar damage: the damage that loading and recovery found; empty if none.
    """

    __slots__ = (
        "_directory",
        "_end",
        "_extension",
        "_files",
        "_min",
        "_min_is_good_for",
        "_size",
        "_starts",
        "damage",
        "max_physical_offset",
        "queue_id",
        "topic",
    )

    def __init__(
        self,
        files: QueueFiles,
        directory: str,
        topic: str,
        queue_id: int,
        extension: QueueExtension | None = None,
    ) -> None:
        self._files = files
        self._extension = extension
        self._size = files.file_size
        self._directory = directory
        self.topic = topic
        self.queue_id = queue_id
        self.damage = ""
        self._clear()

    def _clear(self, reached: int = -1) -> None:
        self._starts: list[int] = []
        self._end = 0
        self._min = 0
        self._min_is_good_for = -1
        self.max_physical_offset = reached

    # Bounds

    @property
    def max_offset(self) -> int:
        """The queue offset that the next message gets."""
        return self._end // UNIT_SIZE

    @property
    def min_offset(self) -> int:
        """The first queue offset that may be read."""
        return self._min // UNIT_SIZE

    @property
    def first_offset(self) -> int:
        """The queue offset of the first unit in its first file."""
        return self._starts[0] // UNIT_SIZE if self._starts else 0

    def first_record(self) -> int:
        """
        Return the physical offset in the first unit of the first file; a very high number if it has
        none.

        :raises StoreError: the disk refuses.
        """
        offset, size, _ = self._unit(self._starts[0]) if self._starts else _NOTHING
        return offset if 0 < size < FILLER_SIZE else MAX_POSITION

    @property
    def first_file(self) -> str:
        """The path of its first file; empty without files."""
        return self._path(self._starts[0]) if self._starts else ""

    def next_file_offset(self, queue_offset: int) -> int:
        """Return the first queue offset of the file after the one that holds this offset."""
        units = self._size // UNIT_SIZE
        return queue_offset + units - queue_offset % units

    # Reading

    def _path(self, start: int) -> str:
        return f"{self._directory}/{start:020d}"

    def _start_of(self, position: int) -> int:
        """Return the start of the file that holds a position; -1 if no file does."""
        starts = self._starts
        if not starts:
            return -1
        start = starts[-1]
        if position < start:
            start = starts[bisect_right(starts, position) - 1]
        return start if start <= position < start + self._size else -1

    def unit_bytes(self, queue_offset: int, max_bytes: int) -> bytes:
        """
        Return the bytes of whole units from a queue offset on, at most to the end of their file;
        empty outside the bounds.

        :raises StoreError: the disk refuses.
        """
        position = queue_offset * UNIT_SIZE
        if not (self._starts and self._min <= position < self._end):
            return b""
        start, end = self._starts[-1], self._end  # mostly the last file
        if position < start:
            start = self._start_of(position)
            if start < 0:
                return b""
            end = start + self._size
        room = end - position
        length = (room if room < max_bytes else max_bytes) // UNIT_SIZE * UNIT_SIZE
        return self._files.read(f"{self._directory}/{start:020d}", length, position - start)

    def units(self, queue_offset: int, count: int) -> list[tuple[int, int, int]]:
        """
        Return up to `count` units (physical offset, size, tag code) of one file, from a queue
        offset on.

        A unit whose size is `FILLER_SIZE` is not a message.

        :raises StoreError: the disk refuses.
        """
        return decode_units(self.unit_bytes(queue_offset, count * UNIT_SIZE))

    def unit(self, queue_offset: int) -> tuple[int, int, int] | None:
        """Return the unit at a queue offset; None if the queue does not have it."""
        for unit in self.units(queue_offset, 1):
            return unit
        return None

    def extended(self, address: int) -> ExtensionUnit | None:
        """
        Return the extension's unit for a tag code that is an address; None if the extension has
        lost it.

        :raises StoreError: the disk refuses.
        """
        return None if self._extension is None else self._extension.get(address)

    @property
    def is_extended(self) -> bool:
        """Whether tag codes may be addresses for `extended`."""
        return self._extension is not None

    def _unit(self, position: int) -> tuple[int, int, int]:
        start = self._start_of(position)
        data = self._files.read(self._path(start), UNIT_SIZE, position - start)
        (unit,) = decode_units(data) or [_NOTHING]
        return unit

    def _behind_fillers(self, position: int, end: int) -> int:
        """
        Return the position of the first unit from `position` on that is no filler; `end` if all
        units before `end` are fillers. Both positions are in one file.
        """
        start = self._start_of(position)
        size = UNIT_SIZE  # the first unit mostly is a message
        while position < end:
            data = self._files.read(self._path(start), min(size, end - position), position - start)
            for _, unit_size, _ in decode_units(data):
                if unit_size != FILLER_SIZE:
                    return position
                position += UNIT_SIZE
            size = WALK_SIZE
        return end

    def offset_by_time(
        self,
        ms: int,
        store_time_of: Callable[[int, int], int],
        min_physical_offset: int,
        *,
        nearest: bool = False,
    ) -> int:
        """
        Return the queue offset of the first message that was stored at a time or later; the end if
        none was.

        :param store_time_of: returns a record's store time by physical offset and size; negative if
            the record is gone.
        :param min_physical_offset: physical offset where the CommitLog begins.
        :param nearest: return the message whose store time is nearest to the time instead.
        :raises StoreError: the disk refuses.

        Spec: store.md, section 3.9, with the file chosen by the store time of its last unit.
        """
        if not self._starts:
            return 0
        bounds = Bounds(self._starts, self._size, self._min, self._end)
        look = nearest_in_time if nearest else first_since
        position = look(
            bounds, self._unit, self._behind_fillers, ms, store_time_of, min_physical_offset
        )
        return position // UNIT_SIZE

    def offset_by_place(self, physical_offset: int) -> int:
        """
        Return the first queue offset whose message is at or after a physical offset; the end if
        there is none.

        :raises StoreError: the disk refuses.
        """
        earliest = self._end
        for start in reversed(self._starts):
            limit = min(start + self._size, self._end)
            low = self._behind_fillers(max(start, self._min), limit)
            if low >= limit:
                continue
            first = first_from(self._unit, self._behind_fillers, low, limit, physical_offset)
            if first < limit:
                earliest = first
            if first > low:
                break
        return earliest // UNIT_SIZE

    def last_record(self) -> tuple[int, int] | None:
        """
        Return physical offset and size of the last message that the queue knows; None without a
        message.

        :raises StoreError: the disk refuses.
        """
        last = self._behind_last_message(self._end)
        return None if last < 0 else self._unit(last - UNIT_SIZE)[:2]

    def _behind_last_message(self, position: int) -> int:
        """
        Return the position after the last message that ends at or before `position`; -1 if there is
        none.
        """
        while self._starts and position > self._starts[0]:
            start = self._start_of(position - UNIT_SIZE)
            size = min(WALK_SIZE, position - start)
            data = self._files.read(self._path(start), size, position - size - start)
            for _, unit_size, _ in reversed(decode_units(data)):
                if unit_size != FILLER_SIZE:
                    return position
                position -= UNIT_SIZE
        return -1

    # Writing and cutting

    def mend(self, queue_offset: int, unit: tuple[int, int, int]) -> None:
        """
        Overwrite a unit within the bounds.

        :param unit: physical offset, size and tag code.
        :raises StoreError: the disk refuses.
        """
        position = queue_offset * UNIT_SIZE
        start = self._start_of(position)
        self._files.write(self._path(start), UNIT.pack(*unit), position - start, False)

    def _write(self, data: bytes, position: int) -> int:
        """
        Write units over as many files as they need; missing files are created.

        :returns: the position behind the last unit.
        """
        done, length = 0, len(data)
        while done < length:
            start = position - position % self._size
            size = start + self._size - position
            if size > length - done:
                size = length - done
            piece = data if size == length else data[done : done + size]
            is_new = not self._starts or self._starts[-1] < start
            path = f"{self._directory}/{start:020d}"
            self._files.write(path, piece, position - start, is_new)
            if is_new:
                self._starts.append(start)
            done += size
            position += size
        return position

    def _cut(self, position: int) -> None:
        """Forget the units from a position on; at least one unit is before it."""
        while self._starts[-1] >= position:  # the last file first: a crash must leave no hole
            self._files.remove(self._path(self._starts[-1]))
            self._starts.pop()
        start = self._starts[-1]
        self._files.zero(self._path(start), position - start)
        self._end = position
        self._settle_extension()

    def _empty(self, reached: int = -1) -> None:
        """
        Delete all files, because no message is left in them. A power loss may have left only some
        of the fillers, so the files are of no use.

        The queue begins again at the queue offset of its next message.

        :param reached: physical offset up to which the queue knows the log; -1: it knows none.
        """
        for start in self._starts:
            self._files.remove(self._path(start))
        self._clear(reached)
        if self._extension is not None:
            self._extension.clear()

    def _settle_extension(self) -> None:
        """
        Let the extension continue after its last address in the queue, after the queue was cut or
        loaded.
        """
        if self._extension is None:
            return
        start = self._start_of(self._end - UNIT_SIZE)
        codes: list[int] = []
        if start >= 0 and self._end > self._starts[0]:
            first = max(start, self._end - WALK_SIZE)
            data = self._files.read(self._path(start), self._end - first, first - start)
            codes = [code for *_, code in decode_units(data) if is_extension_address(code)]
        self._extension.settle(max(codes, default=None))
