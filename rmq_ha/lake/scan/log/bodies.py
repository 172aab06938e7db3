"""Computes the CRCs of many bodies, and joins the bodies, in one pass."""

from typing import Any
from zlib import crc32

import numpy as np

from rmq_ha.lake.scan.log.shape import Bytes, Ints

_TOGETHER = 64
"""
How many bodies are handled together: few enough that their bytes stay in the processor's cache
between CRC and copy, and that their views do not live long enough for Python's garbage collector to
visit them.
"""


def crcs_of(buffer: Any, starts: Ints, ends: Ints) -> Any:
    """Return the CRC-32 of each body."""
    crcs: list[int] = []
    for views in _views(buffer, starts, ends):
        crcs += map(crc32, views)
    return np.array(crcs, np.uint32)


def joined(buffer: Any, starts: Ints, ends: Ints) -> Bytes:
    """Return the bodies, one after the other."""
    return _copy_bodies(buffer, starts, ends, None)


def joined_with_crcs(buffer: Any, starts: Ints, ends: Ints) -> tuple[Bytes, Any]:
    """Return the bodies, one after the other, and the CRC-32 of each."""
    crcs: list[int] = []
    content = _copy_bodies(buffer, starts, ends, crcs)
    return content, np.array(crcs, np.uint32)


def _copy_bodies(buffer: Any, starts: Ints, ends: Ints, crcs: list[int] | None) -> Bytes:
    """Return the bodies, one after the other; `crcs`, if it is a list, gets their CRC-32."""
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
    """Yield lists of views of the bodies, `_TOGETHER` bodies in each."""
    view, lows, highs = memoryview(buffer), starts.tolist(), ends.tolist()
    for at in range(0, len(lows), _TOGETHER):
        some = slice(at, at + _TOGETHER)
        yield [view[low:high] for low, high in zip(lows[some], highs[some], strict=True)]
