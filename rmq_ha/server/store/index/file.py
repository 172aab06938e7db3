"""One IndexFile: a hash table from keys to physical offsets and store times.

Spec: store.md, section 4.
"""

import sys
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

from rmq_ha.base.errors import CorruptRecord, NotNow, StoreError
from rmq_ha.base.runs.face import IndexNumbers, Rows
from rmq_ha.base.seams import Disk, File
from rmq_ha.base.store_flags import may_pass
from rmq_ha.base.store_format.index import (
    HEADER,
    HEADER_SIZE,
    ITEM,
    ITEM_SIZE,
    SLOT,
    SLOT_SIZE,
    Entry,
    IndexHeader,
    index_file_size,
    put_entries,
)

# Disk space is reserved for this many items at once. When they are full, their pages are released.
_ITEMS_STEP = (1 << 20) // ITEM_SIZE

ITEMS_AT_ONCE = 1000
"""How many items of a chain a search reads without a pause, which takes some ms."""


class IndexFile:
    """
    A file of slots and items, written through a memory map and read with `pread`.

    The first use opens the file; `close` releases its descriptor and map.

    :param slots: number of hash slots.
    :param items: number of items that the file has room for, plus 1, as item 0 is not used.
    :ivar header: the header as it is in the file.
    :ivar is_dirty: the file was written since the last `sync`.
    """

    def __init__(self, disk: Disk, path: str, slots: int, items: int) -> None:
        self._disk = disk
        self.path = path
        self._slots = slots
        self._items = items
        self._items_at = HEADER_SIZE + SLOT_SIZE * slots
        self._file: File | None = None
        self._reserved = 0
        self._slots_are_reserved = False
        self.header = IndexHeader()
        self.is_dirty = False

    @property
    def room(self) -> int:
        """How many items still fit into the file."""
        return max(0, self._items - self.header.index_count)

    def _open(self) -> File:
        if self._file is None:
            size = index_file_size(self._slots, self._items)
            try:
                self._file = self._disk.open(self.path, size)
            except OSError as error:
                kind = NotNow if may_pass(error) else StoreError
                raise kind(f"cannot open {self.path}: {error}") from error
        return self._file

    def _read(self, size: int, position: int) -> bytes:
        try:
            return self._open().pread(size, position)
        except OSError as error:
            raise StoreError(f"cannot read {self.path}: {error}") from error

    def load(self) -> None:
        """
        Read the header.

        :raises StoreError: the file has another size, or the disk refuses.
        """
        self.header = IndexHeader.decode(self._read(HEADER_SIZE, 0))
        self._reserved = min(self._items, self.header.index_count) // _ITEMS_STEP * _ITEMS_STEP

    def create(self, previous: IndexHeader | None) -> None:
        """
        Make the file.

        :param previous: header of the previous file, whose end becomes the begin of this one.
        :raises StoreError: the disk refuses.
        """
        if previous is not None:
            end, offset = previous.end_timestamp, previous.end_physical_offset
            self.header = IndexHeader(end, end, offset, offset)
        self.reserve(1)
        self._open().map()[:HEADER_SIZE] = self.header.encode()
        self.is_dirty = True

    def reserve(self, count: int) -> None:
        """
        Reserve disk space for `count` more items, so that they cannot meet a full disk.

        :raises StoreError: the disk refuses.
        """
        needed = self.header.index_count + count
        if needed <= self._reserved and self._slots_are_reserved:
            return
        step = min(self._items, -(-needed // _ITEMS_STEP) * _ITEMS_STEP)
        file = self._open()
        try:
            if not self._slots_are_reserved:
                file.reserve(0, self._items_at)
                self._slots_are_reserved = True
            position = self._items_at + self._reserved * ITEM_SIZE
            if step > self._reserved:
                file.reserve(position, (step - self._reserved) * ITEM_SIZE)
        except OSError as error:
            raise StoreError(
                f"cannot make room in {self.path}: {error}; free some disk space"
            ) from error
        self._reserved = max(self._reserved, step)

    def put(self, entries: Sequence[Entry]) -> None:
        """
        Insert items, for which the file has room.

        :param entries: in log order, at least one.
        :raises StoreError: the disk refuses, and no item was inserted.
        """
        if self.header.index_count + len(entries) > self._reserved or not self._slots_are_reserved:
            self.reserve(len(entries))
        buffer = self._open().map()
        self._note(buffer, put_entries(buffer, self._slots, self.header, entries))

    def put_rows(self, rows: Rows, most: int) -> int:
        """
        Insert the keys of all records after the last indexed one, if there is room reserved.

        :param most: most keys.
        :returns: how many were inserted; -1 if `put` has to make room first.
        :raises StoreError: the disk refuses, and no item was inserted.
        """
        header = self.header
        if not self._slots_are_reserved:
            return -1
        room = min(most, self._reserved - header.index_count)
        buffer = self._open().map()
        try:
            after = rows.index_put(buffer, self._slots, room, header, header.end_physical_offset)
        except RuntimeError:  # the maker failed, perhaps between two items
            self.undo_half_put()
            after = None
        if after is None:
            return -1
        count = after[5] - header[5]
        if count:
            self._note(buffer, after)
        return count

    def _note(self, buffer: Any, header: IndexNumbers) -> None:
        """Write the header after the items."""
        count, number = self.header.index_count, header[5]
        self.header = tuple.__new__(IndexHeader, header)
        HEADER.pack_into(buffer, 0, *header)
        self.is_dirty = True
        if number // _ITEMS_STEP > count // _ITEMS_STEP or number >= self._items:
            # Release the pages; otherwise the whole file counts as memory of this process.
            size = self._items_at + number * ITEM_SIZE
            self._open().forget(0, size)

    def undo_half_put(self) -> None:
        """
        Repair the file after the process died in `put`, or the maker of runs failed in it.

        Slots that lead to items which the header does not count get back their older item, else the
        older items of their chains would be lost.

        :raises CorruptRecord: the header does not belong to the last item.
        :raises StoreError: the disk refuses.
        """
        count, put = self.header.index_count, []
        if not 0 <= count <= self._items:
            raise CorruptRecord(f"the header of {self.path} tells of {count} items")
        if count > 1 and self._item(count - 1)[1] != self.header.end_physical_offset:
            raise CorruptRecord(f"the header of {self.path} does not fit its last item")
        for number in range(count, self._items):
            key_hash, _, _, previous = self._item(number)
            slot_at = HEADER_SIZE + key_hash % self._slots * SLOT_SIZE
            (slot,) = SLOT.unpack(self._read(SLOT_SIZE, slot_at))
            if slot < count:
                break
            put.append((number, slot_at, previous))
        if not put:
            return
        buffer = self._open().map()
        for number, slot_at, previous in reversed(put):
            if SLOT.unpack_from(buffer, slot_at)[0] == number:
                SLOT.pack_into(buffer, slot_at, previous)
        self.is_dirty = True

    def restore(self, count: int) -> None:
        """
        Shorten the file after lost power to its first items, which are on the disk with their
        slots.

        Items after them may be on the disk or not, so they are removed. A slot that leads to a
        removed item gets the newest remaining item of its chain.

        :param count: `index_count` of the header at the time of that sync; more than 1.
        :raises CorruptRecord: the file has fewer items.
        :raises StoreError: the disk refuses.
        """
        begin, end, begin_offset, _, _, said = self.header
        if not 1 < count <= said <= self._items:
            raise CorruptRecord(f"{self.path} has {said} items instead of {count} at least")
        slots = array("i", self._read(SLOT_SIZE * self._slots, HEADER_SIZE))
        if sys.byteorder == "little":
            slots.byteswap()
        newest = {slot: 0 for slot, number in enumerate(slots) if not 0 <= number < count}
        if newest:
            for number, key_hash in self._hashes(count):
                if (slot := key_hash % self._slots) in newest:
                    newest[slot] = number
            buffer = self._open().map()
            for slot, number in newest.items():
                SLOT.pack_into(buffer, HEADER_SIZE + slot * SLOT_SIZE, number)
        used = len(slots) - slots.count(0) - list(newest.values()).count(0)
        _, end_offset, seconds, _ = self._item(count - 1)
        end = min(end, begin + seconds * 1000 + 999)
        self.header = IndexHeader(begin, end, begin_offset, end_offset, used, count)
        self._open().map()[:HEADER_SIZE] = self.header.encode()
        self.is_dirty = True

    def _hashes(self, count: int) -> Iterator[tuple[int, int]]:
        """Yield number and key hash of each item."""
        for first in range(1, count, _ITEMS_STEP):
            size = min(_ITEMS_STEP, count - first) * ITEM_SIZE
            data = self._read(size, self._items_at + first * ITEM_SIZE)
            for number, (key_hash, *_) in enumerate(ITEM.iter_unpack(data), first):
                yield number, key_hash

    def _item(self, number: int) -> tuple[int, int, int, int]:
        data = self._read(ITEM_SIZE, self._items_at + number * ITEM_SIZE)
        if len(data) < ITEM_SIZE:
            raise CorruptRecord(f"{self.path} has no item {number}")
        item: tuple[int, int, int, int] = ITEM.unpack(data)
        return item

    def truncate(self, physical_offset: int) -> None:
        """
        Remove the items whose physical offset is at or after `physical_offset`, the newest first.

        :raises StoreError: the disk refuses.
        """
        begin, end, begin_offset, end_offset, used, number = self.header
        if end_offset < physical_offset:
            return
        buffer = self._open().map()
        while number > 1:
            position = self._items_at + (number - 1) * ITEM_SIZE
            key_hash, end_offset, seconds, previous = ITEM.unpack_from(buffer, position)
            if end_offset < physical_offset:
                end = min(end, begin + seconds * 1000 + 999)
                break
            number -= 1
            SLOT.pack_into(buffer, HEADER_SIZE + key_hash % self._slots * SLOT_SIZE, previous)
            used -= previous == 0
        self.header = IndexHeader(begin, end, begin_offset, end_offset, used, number)
        buffer[:HEADER_SIZE] = self.header.encode()
        self.is_dirty = True

    def overlaps(self, begin: int, end: int) -> bool:
        """Return whether an item may have its store time in this span, ms."""
        return begin <= self.header.end_timestamp and end >= self.header.begin_timestamp

    def find(
        self, key_hash: int, most: int, begin: int, end: int, places: list[int]
    ) -> Iterator[None]:
        """
        Collect the physical offsets of items with a hash and a time in a span, newest first.

        A chain may have millions of items of other times and keys, so each step reads
        `ITEMS_AT_ONCE` of them.

        :param most: stop when `places` has this many.
        :param begin: store time, ms. The times in the file are whole seconds after its first one.
        :param places: gets the physical offsets.
        :raises CorruptRecord: the chain is broken.
        :raises StoreError: the disk refuses.

        Spec: store.md, section 4.4.
        """
        count, begin_timestamp = self.header.index_count, self.header.begin_timestamp
        slot = self._read(SLOT_SIZE, HEADER_SIZE + key_hash % self._slots * SLOT_SIZE)
        (number,) = SLOT.unpack(slot)
        seen = 0
        while 0 < number < count and len(places) < most:
            seen += 1
            if seen % ITEMS_AT_ONCE == 0:
                yield
            item_hash, physical_offset, seconds, previous = self._item(number)
            time = begin_timestamp + seconds * 1000
            if seconds < 0 or time < begin:
                break
            if item_hash == key_hash and time <= end:
                places.append(physical_offset)
            if previous >= number:
                break  # chains that we wrote only go backwards
            number = previous

    def sync(self) -> None:
        """
        Bring all that was written to the disk. Blocks.

        :raises NotNow: the file cannot be opened just now.
        :raises StoreError: the disk refuses, and it is not known which writes it kept.
        """
        file = self._open()
        self.is_dirty = False
        try:
            file.sync()
        except OSError as error:
            self.is_dirty = True
            raise StoreError(f"cannot flush {self.path}: {error}") from error

    def close(self) -> None:
        """Release descriptor and map; the next use opens them again."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
