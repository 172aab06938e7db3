"""Index files as they lie on the disk, for numpy.

Spec: store.md, section 4.
"""

from typing import Any, NamedTuple

import numpy as np

from rmq_ha.ops.offline.index_files import OfflineIndexFile

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
