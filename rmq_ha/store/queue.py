"""One consume queue: where the messages of one queue of a topic are in the CommitLog.

Spec: store.md, section 3.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from errno import EIO
from functools import partial
from struct import error as struct_error

from twisted.logger import Logger

from rmq_ha.errors import StoreError
from rmq_ha.model.message import DispatchRequest
from rmq_ha.store.format.commitlog import RECORD_OVERHEAD
from rmq_ha.store.format.consumequeue import (
    FILLER,
    FILLER_SIZE,
    UNIT,
    UNIT_SIZE,
    decode_units,
    is_extension_address,
)
from rmq_ha.store.format.consumequeue_ext import ExtensionUnit
from rmq_ha.store.queue_ext import QueueExtension
from rmq_ha.store.queue_files import QueueFiles
from rmq_ha.store.queue_search import WALK_SIZE, Bounds, first_from, nearest_in_time, valid_part

_MAX_POSITION = 1 << 62

Restarted = Callable[[str, int, int], object]


class ConsumeQueue:
    """
    One queue of one topic.

    Positions are bytes in the queue (20 times a queue offset); files start at multiples of the
    file size. Writing fails without a trace: the same requests may be put again.

    :param extension: where store times and bit maps go; None: nowhere.
    :param restarted: called with topic, queue id and queue offset when a new life begins there.
    :ivar max_physical_offset: end of the last record that the queue knows; -1 for none.
    :ivar damage: what loading and recovery found that should not be; empty: nothing.
    """

    log = Logger()

    __slots__ = (
        "_directory",
        "_end",
        "_extension",
        "_files",
        "_min",
        "_min_is_good_for",
        "_restarted",
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
        restarted: Restarted = lambda topic, queue_id, queue_offset: None,
    ) -> None:
        self._files = files
        self._extension = extension
        self._restarted = restarted
        self._size = files.file_size
        self._directory = directory
        self.topic = topic
        self.queue_id = queue_id
        self.damage = ""
        self._clear(-1)

    def _clear(self, reached: int) -> None:
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
        """The queue offset of its first file's first unit."""
        return self._starts[0] // UNIT_SIZE if self._starts else 0

    def first_record(self) -> int:
        """
        Physical offset that its first file's first unit points to; very high for none.

        :raises StoreError: the disk refuses.
        """
        offset, size, _ = self._unit(self._starts[0]) if self._starts else (0, 0, 0)
        return offset if 0 < size < FILLER_SIZE else _MAX_POSITION

    @property
    def first_file(self) -> str:
        """The path of its first file; empty without any."""
        return self._path(self._starts[0]) if self._starts else ""

    def next_file_offset(self, queue_offset: int) -> int:
        """The first queue offset of the file after the one that holds this offset."""
        units = self._size // UNIT_SIZE
        return queue_offset + units - queue_offset % units

    # Reading

    def _path(self, start: int) -> str:
        return f"{self._directory}/{start:020d}"

    def _start_of(self, position: int) -> int:
        """The start of the file that holds a position; -1 if there is none."""
        starts = self._starts
        if not starts:
            return -1
        start = starts[-1]
        if position < start:
            start = starts[bisect_right(starts, position) - 1]
        return start if start <= position < start + self._size else -1

    def unit_bytes(self, queue_offset: int, max_bytes: int) -> bytes:
        """
        Whole units from an offset on, at most to the end of their file; empty outside the bounds.

        :raises StoreError: the disk refuses.
        """
        position = queue_offset * UNIT_SIZE
        if not self._min <= position < self._end:
            return b""
        start = self._start_of(position)
        if start < 0:
            return b""
        room = min(start + self._size, self._end) - position
        wanted = min(room, max_bytes) // UNIT_SIZE * UNIT_SIZE
        return self._files.read(self._path(start), wanted, position - start)

    def units(self, queue_offset: int, count: int) -> list[tuple[int, int, int]]:
        """
        Up to `count` units (physical offset, size, tag code) from an offset on, of one file.

        A size of `FILLER_SIZE` is no message.

        :raises StoreError: the disk refuses.
        """
        return decode_units(self.unit_bytes(queue_offset, count * UNIT_SIZE))

    def extended(self, address: int) -> ExtensionUnit | None:
        """
        What the extension has for a unit's tag code that is an address; None: nothing, any more.

        :raises StoreError: the disk refuses.
        """
        return None if self._extension is None else self._extension.get(address)

    @property
    def is_extended(self) -> bool:
        """Tag codes may be addresses that `extended` knows."""
        return self._extension is not None

    def _unit(self, position: int) -> tuple[int, int, int]:
        start = self._start_of(position)
        units = decode_units(self._files.read(self._path(start), UNIT_SIZE, position - start))
        return units[0] if units else (0, 0, 0)

    def offset_by_time(
        self, ms: int, store_time_of: Callable[[int, int], int], min_physical_offset: int
    ) -> int:
        """
        The queue offset of the message that was stored nearest to a time.

        :param store_time_of: of a record, by physical offset and size; negative if it is gone.
        :param min_physical_offset: of the CommitLog.
        :raises StoreError: the disk refuses.

        Spec: store.md, section 3.9, with the file chosen by the store time of its last unit.
        """
        if not self._starts:
            return 0
        bounds = Bounds(self._starts, self._size, self._min, self._end)
        position = nearest_in_time(bounds, self._unit, ms, store_time_of, min_physical_offset)
        return position // UNIT_SIZE

    # Writing

    def append(self, requests: Sequence[DispatchRequest]) -> None:
        """
        Add one unit for each record that is not there yet.

        A record behind all that the queue knows, but with a number that is taken, begins a new
        life: the topic was deleted and made again, or its master gave numbers anew. From there on
        the old units are of no use, as the master does not have them either. Numbers that are left
        out stay left out, where the log has the room in which their records were lost: every later
        message keeps its number. Where it has none the unit comes next, as with RocketMQ, and so
        it does when only one record has a strange number.

        :param requests: of this queue, in log order.
        :raises StoreError: the disk refuses.

        Spec: store.md, section 3.2.
        """
        units: list[bytes] = []
        first = end = self._end
        reached = self.max_physical_offset
        pack = UNIT.pack
        extension = self._extension
        if extension is not None:
            extension.begin()
        for index, request in enumerate(requests):
            physical_end = request[2] + request[3]
            if physical_end <= reached:
                continue  # built already
            position = request[6] * UNIT_SIZE
            if position != end:
                is_new = not units and self._is_empty()
                if not is_new and _is_slip(requests, index, end // UNIT_SIZE):
                    self._complain(request, end)
                elif not 0 <= position < _MAX_POSITION:
                    self._complain(request, end)
                    continue
                elif is_new:
                    first = end = self._begin_at(position)
                elif position < end:
                    self._put(units, first, reached)
                    units = []
                    first = end = self._begin_anew(request, position)
                else:
                    self._complain(request, end)
                    missing = (position - end) // UNIT_SIZE
                    if missing * RECORD_OVERHEAD <= request[2] - reached:
                        units.append(FILLER * missing)
                        end = position
            try:
                code = request[4] if extension is None else extension.stage(request)
                units.append(pack(request[2], request[3], code))
            except struct_error:  # a delivery time beyond the 64 bits, as only a foe sends it
                units.append(pack(request[2], request[3], 0))
            end += UNIT_SIZE
            reached = physical_end
        self._put(units, first, reached)

    def _put(self, units: list[bytes], first: int, reached: int) -> None:
        """
        Write units at the end of the queue.

        :param first: position of the first one.
        :param reached: end of the last one's record.
        """
        if units:
            if self._extension is not None:
                self._extension.write()
            data = b"".join(units)
            self._write(data, first)
            self._end = first + len(data)
            self.max_physical_offset = reached

    def _begin_anew(self, request: DispatchRequest, position: int) -> int:
        """A new life begins at this position, below the end; crash-safe, as the log has it all."""
        self.log.warn(
            "{topic} {queue_id} begins anew at queue offset {found}: the record at "
            "{physical_offset} has that number, although the queue, built up to {reached} of the "
            "log, ends at {end}; the topic was deleted and made again, and the old messages from "
            "that number on are not served any more",
            topic=self.topic,
            queue_id=self.queue_id,
            found=request.queue_offset,
            physical_offset=request.physical_offset,
            reached=self.max_physical_offset,
            end=self._end // UNIT_SIZE,
        )
        if position <= self._min:
            self._begin_at(position)
        else:
            self._cut(position)
        self._restarted(self.topic, self.queue_id, request.queue_offset)
        return position

    def _cut(self, position: int) -> None:
        """Forget the units from a position on; there are some before it."""
        for start in [start for start in self._starts if start >= position]:
            self._files.remove(self._path(start))
            self._starts.remove(start)
        start = self._starts[-1]
        if position < start + self._size:
            self._files.zero(self._path(start), position - start)
        self._end = position
        self._settle_extension()

    def mend(self, queue_offset: int, unit: tuple[int, int, int]) -> None:
        """
        Write a unit within the bounds anew.

        :param unit: physical offset, size and tag code.
        :raises StoreError: the disk refuses.
        """
        position = queue_offset * UNIT_SIZE
        start = self._start_of(position)
        self._files.write(self._path(start), UNIT.pack(*unit), position - start, False)

    def _complain(self, request: DispatchRequest, end: int) -> None:
        self.log.warn(
            "the record at {physical_offset} of {topic} {queue_id} has queue offset {found}, but "
            "{expected} comes next",
            topic=self.topic,
            queue_id=self.queue_id,
            physical_offset=request.physical_offset,
            found=request.queue_offset,
            expected=end // UNIT_SIZE,
        )

    def _is_empty(self) -> bool:
        return not self._starts or (len(self._starts) == 1 and self._starts[0] == self._end)

    def _begin_at(self, position: int) -> int:
        """
        Start an empty queue in the middle, with fillers in the place of the missing history.

        Java does so in a fresh file only; a file that truncation left empty is as good.
        """
        self._empty(self.max_physical_offset)
        start = position - position % self._size
        if position > start:
            self._write(FILLER * ((position - start) // UNIT_SIZE), start)
        self._end = self._min = position
        return position

    def _write(self, data: bytes, position: int) -> None:
        """Write units, over as many files as they take, which are created if missing."""
        done = 0
        while done < len(data):
            start = position - position % self._size
            size = min(len(data) - done, start + self._size - position)
            piece = data if size == len(data) else data[done : done + size]
            is_new = not self._starts or self._starts[-1] < start
            self._files.write(self._path(start), piece, position - start, is_new)
            if is_new:
                self._starts.append(start)
            done += size
            position += size

    # Recovery and cleaning

    def load(self, starts: list[int]) -> None:
        """The files that were found; they count as full until `recover`."""
        self._clear(-1)
        self._starts = sorted(starts)
        if starts:
            self._min = self._starts[0]
            self._end = self._starts[-1] + self._size

    def drop_from(self, start: int) -> None:
        """
        After `load`: the file that starts there is lost; those behind it go.

        :raises StoreError: the disk refuses.
        """
        for later in [other for other in self._starts if other >= start]:
            self._files.remove(self._path(later))
        damage = self.damage
        self.load([other for other in self._starts if other < start])
        self.damage = damage

    def recover(self, last_exit_ok: bool) -> None:
        """
        Find the end of the valid units in the last three files; what is behind it goes.

        If these hold no message, as lost power may leave them, the files before have the end.

        :param last_exit_ok: False: leave nothing but zeros behind the end, however far away.
        :raises StoreError: the disk refuses.

        Spec: store.md, section 3.4.
        """
        before = self.damage
        try:
            self._find_end(last_exit_ok)
            if not last_exit_ok:
                self.damage = before  # such traces are what a crash leaves
        except StoreError as error:
            if getattr(error.__cause__, "errno", 0) != EIO:
                raise
            self.damage = f"cannot be read ({error.__cause__}) and is removed"
            self._empty(-1)

    def _find_end(self, last_exit_ok: bool) -> None:
        self._drop_behind_damage()
        first = max(0, len(self._starts) - 3)
        self._walk(first)
        while self.max_physical_offset < 0 and first > 0:
            first -= 1
            self._walk(first)
        for start in [start for start in self._starts if start > self._end]:
            self._note(start, "lies behind a gap")
            self._files.remove(self._path(start))
            self._starts.remove(start)
        if self.max_physical_offset < 0 and self._starts and self._end > self._starts[0]:
            self._empty(-1)
            return
        start = self._start_of(self._end)
        if start >= 0:
            rest = self._files.read(self._path(start), WALK_SIZE, self._end - start)
            if rest != bytes(len(rest)):
                self.damage = self.damage or f"has something behind its end at {self.max_offset}"
            if not last_exit_ok or rest != bytes(len(rest)):
                self._files.zero(self._path(start), self._end - start)
        self._settle_extension()

    def _drop_behind_damage(self) -> None:
        """A file is missing, or one with others behind it does not begin or end with a unit."""
        for index, start in enumerate(self._starts[:-1]):
            last = start + self._size - UNIT_SIZE
            is_next = self._starts[index + 1] == start + self._size
            if not is_next or min(self._unit(start)[1], self._unit(last)[1]) <= 0:
                for later in self._starts[index + 1 :]:
                    self._note(later, "lies behind a gap")
                    self._files.remove(self._path(later))
                del self._starts[index + 1 :]
                return

    def _note(self, start: int, what: str) -> None:
        """Remember what is wrong with a file, unless it holds nothing and was made ahead."""
        if self._unit(start)[1] > 0:
            self.damage = self.damage or f"has a file, {self._path(start)}, that {what}"

    def _walk(self, first: int) -> None:
        """Find the end of the valid units from a file on."""
        self.max_physical_offset = -1
        for start in self._starts[first:]:
            valid, reached = valid_part(partial(self._files.read, self._path(start)), self._size)
            self._end = start + valid
            if reached >= 0:
                self.max_physical_offset = reached
            if valid < self._size:
                break

    def _settle_extension(self) -> None:
        """The queue was cut, or found as it is: its extension goes on behind its last address."""
        if self._extension is None:
            return
        start = self._start_of(self._end - UNIT_SIZE)
        codes: list[int] = []
        if start >= 0 and self._end > self._starts[0]:
            first = max(start, self._end - WALK_SIZE)
            data = self._files.read(self._path(start), self._end - first, first - start)
            codes = [code for *_, code in decode_units(data) if is_extension_address(code)]
        self._extension.settle(max(codes, default=None))

    def empty(self) -> None:
        """
        Forget everything; the next message says where the queue begins.

        :raises StoreError: the disk refuses.
        """
        self._empty(-1)

    def cut_back(self, fits: Callable[[int, int, int], bool]) -> None:
        """
        Forget the last units, up to one that fits.

        :param fits: told queue offset, physical offset and size.
        :raises StoreError: the disk refuses.
        """
        end = self._end
        while self._starts and end > self._starts[0]:
            physical_offset, size, _ = self._unit(end - UNIT_SIZE)
            if size == FILLER_SIZE or fits(end // UNIT_SIZE - 1, physical_offset, size):
                break
            end -= UNIT_SIZE
        if not self._starts or end <= self._starts[0] or size == FILLER_SIZE:
            self._empty(-1)
        elif end < self._end:
            self._cut(end)
            self.max_physical_offset = physical_offset + size

    def last_record(self) -> tuple[int, int] | None:
        """
        Physical offset and size of the last message that the queue knows; None without one.

        :raises StoreError: the disk refuses.
        """
        if not self._starts or self._end <= self._starts[0]:
            return None
        offset, size, _ = self._unit(self._end - UNIT_SIZE)
        return None if size == FILLER_SIZE else (offset, size)

    def truncate(self, physical_offset: int) -> None:
        """
        Forget the records at and behind a physical offset, the new end of the log.

        :raises StoreError: the disk refuses.

        Spec: store.md, section 3.5.
        """
        # -1: the files that `recover` looked at hold nothing; the older ones may need the cut
        if not self._starts or 0 <= self.max_physical_offset <= physical_offset:
            return
        while self._starts:
            start = self._starts[-1]
            limit = min(start + self._size, self._end)
            cut = first_from(self._unit, start, limit, physical_offset)
            self._end = cut
            if cut > start:
                break
            self._files.remove(self._path(start))
            self._starts.pop()
        if not self._starts:
            self._empty(physical_offset)
            return
        if cut < start + self._size:
            self._files.zero(self._path(start), cut - start)
        self._min = min(self._min, cut)
        self._min_is_good_for = -1
        offset, size, _ = self._unit(cut - UNIT_SIZE)
        if size == FILLER_SIZE:
            self._empty(physical_offset)
        else:
            self.max_physical_offset = offset + size
            self._settle_extension()

    def _empty(self, reached: int) -> None:
        """
        Be empty: no message is left, and lost power may have kept only some of the fillers.

        The next message then says with its own number where the queue begins.
        """
        for start in self._starts:
            self._files.remove(self._path(start))
        self._clear(reached)
        if self._extension is not None:
            self._extension.clear()

    def correct_min_offset(self, min_physical_offset: int) -> None:
        """
        Let the bounds start at the first message of the first file that the log still has.

        :raises StoreError: the disk refuses.

        Spec: store.md, section 3.3, without taking fillers for messages.
        """
        if not self._starts or self._min_is_good_for >= max(0, min_physical_offset):
            return
        start = self._starts[0]
        self._min = max(self._min, start)
        limit = min(start + self._size, self._end)
        position = first_from(self._unit, start, limit, min_physical_offset)
        if position < limit:
            self._min = position
            # it stays the first one until the log starts behind it
            self._min_is_good_for = self._unit(position)[0]

    def delete_expired(self, min_physical_offset: int) -> int:
        """
        Delete files, never the last, whose last message the log has no more; returns how many.

        :raises StoreError: the disk refuses.

        Spec: store.md, section 9.3.
        """
        deleted = 0
        while len(self._starts) > 1:
            start = self._starts[0]
            if self._unit(start + self._size - UNIT_SIZE)[0] >= min_physical_offset:
                break
            self._files.remove(self._path(start))
            del self._starts[0]
            deleted += 1
        if deleted:
            self._min_is_good_for = -1
        self.correct_min_offset(min_physical_offset)
        if deleted and self._extension is not None:
            code = self._unit(self._min)[2]
            if is_extension_address(code):
                self._extension.delete_before(code)
        return deleted

    def destroy(self) -> None:
        """
        Delete all files; numbering restarts at 0.

        :raises StoreError: the disk refuses.
        """
        self._files.remove_tree(self._directory)
        self._clear(-1)
        if self._extension is not None:
            self._extension.destroy()


def _is_slip(requests: Sequence[DispatchRequest], index: int, expected: int) -> bool:
    """Only this record has another number than the expected one: the next one goes on behind it."""
    return index + 1 < len(requests) and requests[index + 1][6] == expected + 1
