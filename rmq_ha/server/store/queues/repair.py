"""Recovers one consume queue after a stop, cuts it to the log, and cleans it.

Spec: store.md, sections 3.3 to 3.5 and 9.3.
"""

from collections.abc import Callable
from errno import EIO
from functools import partial

from rmq_ha.base.errors import StoreError
from rmq_ha.base.store_format.consumequeue import UNIT_SIZE, is_extension_address
from rmq_ha.server.store.queues.search import WALK_SIZE, first_from, valid_part
from rmq_ha.server.store.queues.units import QueueUnits


class QueueRepair(QueueUnits):
    """The part of a queue that adjusts its bounds to its files and to the log."""

    __slots__ = ()

    # Recovery

    def load(self, starts: list[int]) -> None:
        """Take the files that were found; they count as full until `recover`."""
        self._clear()
        self._starts = sorted(starts)
        if starts:
            self._min = self._starts[0]
            self._end = self._starts[-1] + self._size

    def drop_from(self, start: int) -> None:
        """
        Remove the lost file that starts at a position, and all later files. Call this after `load`.

        :raises StoreError: the disk refuses.
        """
        for later in [other for other in self._starts if other >= start]:
            self._files.remove(self._path(later))
        self.load([other for other in self._starts if other < start])

    def recover(self, last_exit_ok: bool) -> None:
        """
        Find the end of the valid units in the last three files, and delete what follows.

        Lost power may leave these files without a message; then the end is in earlier files.

        :param last_exit_ok: False: fill everything after the end with zeros, however far away.
        :raises StoreError: the disk refuses.

        Spec: store.md, section 3.4.
        """
        before = self.damage
        try:
            self._find_end(last_exit_ok)
            if not last_exit_ok:
                self.damage = before  # a crash leaves such traces, so they are no damage
        except StoreError as error:
            if getattr(error.__cause__, "errno", 0) != EIO:
                raise
            self.damage = f"cannot be read ({error.__cause__}) and is removed"
            self._empty()

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
        if self.max_physical_offset < 0 and self._starts:
            self._empty()
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
        """
        Remove the files after a missing file, or after one that does not begin and end with a unit.
        """
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
        """Note the damage of a file, unless it is empty because it was created ahead."""
        if self._unit(start)[1] > 0:
            self.damage = self.damage or f"has a file, {self._path(start)}, that {what}"

    def _walk(self, first: int) -> None:
        """Find the end of the valid units, beginning with the file of number `first`."""
        self.max_physical_offset = -1
        for start in self._starts[first:]:
            valid, reached = valid_part(partial(self._files.read, self._path(start)), self._size)
            self._end = start + valid
            if reached >= 0:
                self.max_physical_offset = reached
            if valid < self._size:
                break

    # Cutting and cleaning

    def empty(self) -> None:
        """
        Forget all units; the next message says where the queue begins.

        :raises StoreError: the disk refuses.
        """
        self._empty()

    def cut_back(self, fits: Callable[[int, int, int], bool]) -> None:
        """
        Forget the last units, down to one that fits.

        :param fits: called with queue offset, physical offset and size of a unit, also of a filler.
        :raises StoreError: the disk refuses.
        """
        end = self._end
        while self._starts and end > self._starts[0]:
            if fits(end // UNIT_SIZE - 1, *self._unit(end - UNIT_SIZE)[:2]):
                break
            end -= UNIT_SIZE
        if end < self._end:
            self._end_at(end, -1)

    def _end_at(self, position: int, reached: int) -> None:
        """
        Forget the units from a position on.

        :param reached: physical offset up to which the queue knows the log if no message is left.
        """
        last = self._behind_last_message(position)
        if last < 0:
            self._empty(reached)
            return
        self._cut(position)
        offset, size, _ = self._unit(last - UNIT_SIZE)
        self.max_physical_offset = offset + size
        self._min = min(self._min, position)
        self._min_is_good_for = -1

    def truncate(self, physical_offset: int) -> None:
        """
        Forget the records at and after a physical offset, the new end of the log.

        :raises StoreError: the disk refuses.

        Spec: store.md, section 3.5.
        """
        # -1: the files that `recover` read have no message, but older files may need the cut.
        if not self._starts or 0 <= self.max_physical_offset <= physical_offset:
            return
        last = -1
        for start in reversed(self._starts):
            limit = min(start + self._size, self._end)
            cut = first_from(self._unit, self._behind_fillers, start, limit, physical_offset)
            last = self._behind_last_message(cut)
            if last < 0 or self._unit(last - UNIT_SIZE)[0] < physical_offset:
                break
        # Fillers before the cut are removed as well: the next record has its own queue offset.
        self._end_at(last, physical_offset)

    def correct_min_offset(self, min_physical_offset: int) -> None:
        """
        Let the bounds start at the first file's first message that the log still has.

        :raises StoreError: the disk refuses.

        Spec: store.md, section 3.3, without taking fillers for messages.
        """
        if not self._starts or self._min_is_good_for >= min_physical_offset:
            return
        start = self._starts[0]
        self._min = max(self._min, start)
        limit = min(start + self._size, self._end)
        position = first_from(self._unit, self._behind_fillers, start, limit, min_physical_offset)
        if position < limit:
            self._min = position
            # It stays the first message until the log starts after it.
            self._min_is_good_for = self._unit(position)[0]

    def delete_expired(self, min_physical_offset: int) -> int:
        """
        Delete the files of which the log has deleted all messages, but never the last file.

        :returns: number of deleted files.

        :raises StoreError: the disk refuses.

        Spec: store.md, section 9.3.
        """
        deleted = 0
        while len(self._starts) > 1:
            start = self._starts[0]
            last = self._behind_last_message(start + self._size) - UNIT_SIZE
            if last >= start and self._unit(last)[0] >= min_physical_offset:
                break
            self._files.remove(self._path(start))
            del self._starts[0]
            deleted += 1
        self.correct_min_offset(min_physical_offset)
        if deleted and self._extension is not None:
            code = self._unit(self._min)[2]
            if is_extension_address(code):
                self._extension.delete_before(code)
        return deleted

    def destroy(self) -> None:
        """
        Delete all files; queue offsets restart at 0.

        :raises StoreError: the disk refuses.
        """
        self._files.remove_tree(self._directory)
        self._clear()
        if self._extension is not None:
            self._extension.destroy()
