"""Bodies of many records in one pass: 64 at once, and what is behind them."""

from zlib import crc32

import numpy as np
import pytest

from rmq_ha.lake.scan.log.bodies import crcs_of, joined, joined_with_crcs


@pytest.mark.parametrize("count", [0, 1, 64, 65, 130])
def test_bodies_lie_one_behind_the_other_and_each_has_its_crc(count: int) -> None:
    data = bytes(range(256)) * 4
    starts = np.arange(count, dtype=np.int64) * 5 + 1
    ends = starts + np.arange(count) % 7
    parts = [data[at:end] for at, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    crcs = [crc32(part) for part in parts]
    assert crcs_of(data, starts, ends).tolist() == crcs
    assert joined(data, starts, ends).tobytes() == b"".join(parts)
    content, found = joined_with_crcs(data, starts, ends)
    assert (content.tobytes(), found.tolist()) == (b"".join(parts), crcs)
