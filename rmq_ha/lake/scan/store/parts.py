"""
Consume queues and index files as they lie on the disk, for numpy.

Spec: store.md, sections 3.1 to 3.6, and 4.
"""

from typing import Any, NamedTuple

import numpy as np

from rmq_ha.base.store_format.consumequeue import UNIT_SIZE
from rmq_ha.ops.offline.index_files import OfflineIndexFile
from rmq_ha.ops.offline.queues import OfflineQueue, RowFile

UNITS = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tagsCode", ">i8")])
NATIVE_UNITS = UNITS.newbyteorder("=")


class Queue(OfflineQueue):
    """A consume queue whose units are read as arrays."""

    def units(self, start: int, stop: int) -> Any:
        """
        Return the units of `[start, stop)`: a structured array `offset, size, tagsCode`.

        :raises CannotDecide: a file vanished.
        """
        parts = []
        for file in self.row:
            low = max(start * UNIT_SIZE, file.base)
            high = min(stop * UNIT_SIZE, file.base + file.size)
            if low < high:
                parts.append(self._window(file, low - file.base, high - low))
        units = np.concatenate(parts) if parts else np.empty(0, UNITS)
        return units.astype(NATIVE_UNITS)

    def tags_codes(self, units: Any) -> Any:
        """
        Return the hashes of the tags (for delayed messages the times of delivery). A hash that is
        kept in the consume queue's extension file is read from there.

        An address that cannot be looked up stays as it is, and may stand for any tag.
        """
        codes = units["tagsCode"].copy()
        for index in np.flatnonzero(codes <= -2147483649):
            codes[index] = self.tags_code(int(codes[index]))
        return codes

    def _window(self, file: RowFile, at: int, length: int) -> Any:
        data = self._bytes(file, at, length)
        return np.frombuffer(data, UNITS, len(data) // UNIT_SIZE)


ITEMS = np.dtype([("hash", ">i4"), ("phyOffset", ">i8"), ("timeDiff", ">i4"), ("prev", ">i4")])


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


class StoredIndexFile(OfflineIndexFile):
    """An index file whose items are read as arrays."""

    def entries(self, start: int = 0, stop: int | None = None) -> IndexEntries:
        """Return the items of the rows [start, stop); item numbers are one more."""
        raw = np.frombuffer(self.item_data(start, self.count if stop is None else stop), ITEMS)
        hashes = raw["hash"].astype(np.int64)
        return IndexEntries(
            hashes % self.slots,
            hashes,
            raw["phyOffset"].astype(np.int64),
            raw["timeDiff"].astype(np.int64),
            raw["prev"].astype(np.int64),
        )
