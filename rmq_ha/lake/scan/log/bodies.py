"""Bodies of many records: their CRCs, and the bodies one behind the other, in one pass."""

from typing import Any

import numpy as np

from rmq_ha.base.store_format.commitlog import crc32
from rmq_ha.lake.scan.log.shape import Bytes, Ints

_TOGETHER = 64
"""So few that their bytes stay in the cache between CRC and copy, and Python's garbage collector,
which looks at every view that lives for long, sees none of them."""


def crcs_of(buffer: Any, starts: Ints, ends: Ints) -> Any:
    """CRC-32 of each body."""
    crcs: list[int] = []
    for views in _views(buffer, starts, ends):
        crcs += map(crc32, views)
    return np.array(crcs, np.uint32)


def joined(buffer: Any, starts: Ints, ends: Ints) -> Bytes:
    """The bodies one behind the other."""
    return _copied(buffer, starts, ends, None)


def joined_with_crcs(buffer: Any, starts: Ints, ends: Ints) -> tuple[Bytes, Any]:
    crcs: list[int] = []
    content = _copied(buffer, starts, ends, crcs)
    return content, np.array(crcs, np.uint32)


def _copied(buffer: Any, starts: Ints, ends: Ints, crcs: list[int] | None) -> Bytes:
    content = np.empty(int((ends - starts).sum()), np.uint8)
    target: Any = content.data
    at = 0
    for views in _views(buffer, starts, ends):
        if crcs is not None:
            crcs += map(crc32, views)
        part = b"".join(views)
        target[at : at + len(part)] = part
        at += len(part)
    return content


def _views(buffer: Any, starts: Ints, ends: Ints) -> Any:
    view, lows, highs = memoryview(buffer), starts.tolist(), ends.tolist()
    for at in range(0, len(lows), _TOGETHER):
        some = slice(at, at + _TOGETHER)
        yield [view[low:high] for low, high in zip(lows[some], highs[some], strict=True)]
