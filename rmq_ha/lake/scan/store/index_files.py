"""Index files as they lie on the disk.

Spec: store.md, section 4.
"""

from typing import Any, NamedTuple

import numpy as np

from rmq_ha.base.errors import CannotDecide
from rmq_ha.base.store_files import Files
from rmq_ha.base.store_format.index import (
    HEADER_SIZE,
    ITEM_SIZE,
    SLOT_SIZE,
    IndexHeader,
    index_file_size,
)

DEFAULT_SIZES = (5_000_000, 20_000_000)
"""The defaults of `maxHashSlotNum` and `maxIndexNum`."""
ITEMS = np.dtype([("hash", ">i4"), ("phyOffset", ">i8"), ("timeDiff", ">i4"), ("prev", ">i4")])
_GUESSABLE = 64 << 20
_GUESSES = 1000


class IndexEntries(NamedTuple):
    """
    The items of an index file in the order in which they were written; item `n` is row `n - 1`.

    :ivar slot: number of the slot of the key's hash.
    :ivar time_diff: seconds since the header's begin time.
    :ivar previous: number of the previous item of the same slot; 0: none.
    """

    slot: Any
    hash: Any
    physical_offset: Any
    time_diff: Any
    previous: Any


class StoredIndexFile:
    """
    One index file.

    :ivar slots: number of slots.
    :ivar items: number of items that the file has room for, including item 0.
    """

    def __init__(self, files: Files, path: str, size: int, sizes: tuple[int, int] | None) -> None:
        """
        :param sizes: `maxHashSlotNum` and `maxIndexNum`; None: the defaults, or numbers that fit.
        :raises CannotDecide: the sizes do not fit, or cannot be found.
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

    def entries(self, start: int = 0, stop: int | None = None) -> IndexEntries:
        """
        Return the items of the file.

        :param start: row of the first one; item numbers are one more.
        :param stop: row after the last one.
        """
        stop = self.count if stop is None else min(stop, self.count)
        count = max(0, stop - start)
        at = HEADER_SIZE + SLOT_SIZE * self.slots + ITEM_SIZE * (start + 1)
        raw = np.frombuffer(
            self._files.window(self.path, at, count * ITEM_SIZE) if count else b"", ITEMS
        )
        hashes = raw["hash"].astype(np.int64)
        return IndexEntries(
            hashes % self.slots,
            hashes,
            raw["phyOffset"].astype(np.int64),
            raw["timeDiff"].astype(np.int64),
            raw["prev"].astype(np.int64),
        )

    def heads(self, start: int = 0, stop: int | None = None) -> Any:
        """Return the number of each slot's newest item; 0: none."""
        stop = self.slots if stop is None else min(stop, self.slots)
        data = self._files.window(
            self.path, HEADER_SIZE + SLOT_SIZE * start, SLOT_SIZE * (stop - start)
        )
        return np.frombuffer(data, ">i4").astype(np.int64)

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
        """Return the sizes with which the items fit the header."""
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
            if not rest and not odd and self._fits(data, slots):
                guesses.append((slots, items))
        return guesses

    def _fits(self, data: bytes, slots: int) -> bool:
        count = self.header.index_count - 1  # the last one was found in the file
        start = HEADER_SIZE + SLOT_SIZE * slots + ITEM_SIZE
        item = np.frombuffer(data, ITEMS, count, start)
        hashes, previous = item["hash"].astype(np.int64), item["prev"].astype(np.int64)
        heads = np.frombuffer(data, ">i4", slots, HEADER_SIZE).astype(np.int64)
        if (hashes < 0).any() or (previous > np.arange(count)).any() or (previous < 0).any():
            return False
        newest = np.zeros(slots, np.int64)
        newest[hashes % slots] = np.arange(1, count + 1)
        first = item["phyOffset"][0] == self.header.begin_physical_offset
        return bool(first and (heads == newest).all())
