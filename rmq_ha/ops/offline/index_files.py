"""Reads the index files of a store on the disk.

Spec: store.md, section 4.
"""

from struct import Struct

from rmq_ha.base.errors import CannotDecide
from rmq_ha.base.store_files import Files
from rmq_ha.base.store_format.index import (
    HEADER_SIZE,
    ITEM,
    ITEM_SIZE,
    SLOT_SIZE,
    IndexHeader,
    index_file_size,
)

DEFAULT_SIZES = (5_000_000, 20_000_000)
"""The defaults of `maxHashSlotNum` and `maxIndexNum`."""
_GUESSABLE = 64 << 20
_GUESSES = 1000


class OfflineIndexFile:
    """
    One index file. Items are numbered from 1; the row of an item is its number less 1.

    :ivar items: number of items that the file has room for, including item 0.
    """

    def __init__(self, files: Files, path: str, size: int, sizes: tuple[int, int] | None) -> None:
        """
        :param size: bytes of the file.
        :param sizes: `maxHashSlotNum` and `maxIndexNum`. For None the defaults are taken if they
            fit, or else the numbers with which the content is sound.
        :raises CannotDecide: the file's size does not fit these numbers, or they cannot be found.
        """
        self._files = files
        self.path = path
        self.size = size
        self.header = IndexHeader.decode(files.read(path, 0, HEADER_SIZE).ljust(HEADER_SIZE, b"\0"))
        self.slots, self.items = sizes or self._sizes()
        if index_file_size(self.slots, self.items) != size:
            raise CannotDecide(
                f"{path} has {size} bytes, but with {self.slots} slots and {self.items} items it "
                f"would have {index_file_size(self.slots, self.items)}: give the broker's "
                "maxHashSlotNum and maxIndexNum"
            )

    @property
    def count(self) -> int:
        return max(0, min(self.header.index_count, self.items) - 1)

    def item_data(self, start: int, stop: int) -> bytes:
        """Return the bytes of the items of the rows [start, stop)."""
        count = max(0, min(stop, self.count) - start)
        at = HEADER_SIZE + SLOT_SIZE * self.slots + ITEM_SIZE * (start + 1)
        return bytes(self._files.window(self.path, at, count * ITEM_SIZE)) if count else b""

    def slot_numbers(self, start: int, stop: int) -> tuple[int, ...]:
        """Return for each of some slots the number of its newest item; 0 if the slot is empty."""
        count = max(0, min(stop, self.slots) - start)
        at = HEADER_SIZE + SLOT_SIZE * start
        data = self._files.window(self.path, at, SLOT_SIZE * count) if count else b""
        return Struct(f">{count}i").unpack(data)

    def previous_of(self, number: int) -> int:
        """Return the item before one in its slot; 0: none, or no lower number (damage)."""
        at = HEADER_SIZE + SLOT_SIZE * self.slots + ITEM_SIZE * number
        data = bytes(self._files.window(self.path, at, ITEM_SIZE))
        previous = int.from_bytes(data[16:], "big", signed=True)
        return previous if 0 < previous < number else 0

    def place_of(self, row: int) -> int:
        """Return the physical offset of the record of an item."""
        return int.from_bytes(self.item_data(row, row + 1)[4:12], "big", signed=True)

    def _sizes(self) -> tuple[int, int]:
        if self.size == index_file_size(*DEFAULT_SIZES):
            return DEFAULT_SIZES
        if self.header.index_count <= 1:  # the file is empty: any numbers that fit will do
            slots = (self.size - HEADER_SIZE) // SLOT_SIZE % 5
            return slots or 5, (self.size - HEADER_SIZE - SLOT_SIZE * (slots or 5)) // ITEM_SIZE
        guesses = self._guess_sizes() if self.size <= _GUESSABLE else []
        if len(guesses) != 1:
            raise CannotDecide(
                f"{self.path} has {self.size} bytes, which are not those of the default "
                "maxHashSlotNum=5000000 and maxIndexNum=20000000: give the broker's numbers"
            )
        return guesses[0]

    def _guess_sizes(self) -> list[tuple[int, int]]:
        """
        Return all numbers of slots and items with which the content of the file is sound.

        The header has the physical offset of the last item. Wherever those bytes stand, an item may
        be the last; then the slots fill the bytes before the items.
        """
        data = bytes(self._files.window(self.path, 0, self.size))
        last = self.header.end_physical_offset.to_bytes(8, "big", signed=True)
        before = HEADER_SIZE + ITEM_SIZE * (self.header.index_count - 1) + 4
        guesses: list[tuple[int, int]] = []
        at = before
        for _ in range(_GUESSES):
            at = data.find(last, at + 1)
            if at < 0 or len(guesses) > 1:
                break
            slots, rest = divmod(at - before, SLOT_SIZE)
            items, odd = divmod(self.size - HEADER_SIZE - SLOT_SIZE * slots, ITEM_SIZE)
            if slots and not rest and not odd and self._fits(data, slots):
                guesses.append((slots, items))
        return guesses

    def _fits(self, data: bytes, slots: int) -> bool:
        """Return whether slots and items agree, if the file has so many slots."""
        start = HEADER_SIZE + SLOT_SIZE * slots + ITEM_SIZE
        count = self.header.index_count - 1
        newest = [0] * slots
        rows = ITEM.iter_unpack(data[start : start + ITEM_SIZE * count])
        for number, (hashed, place, _, previous) in enumerate(rows, 1):
            if number == 1 and place != self.header.begin_physical_offset:
                return False
            if hashed < 0 or not 0 <= previous < number:
                return False
            newest[hashed % slots] = number
        heads = Struct(f">{slots}i").unpack_from(data, HEADER_SIZE)
        return heads == tuple(newest)
