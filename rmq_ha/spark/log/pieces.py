"""
The properties of many records at once.

A property string is cut at 0x02, and each piece at its first 0x01; a piece without a name or
without a value does not count, and of several of one name the last one does. So a name counts
only at the start of a piece: a value that holds the word TAGS fools nobody.

Spec: store.md, section 2.4; the rule is `rmq_ha.model.properties.decode_properties`.
"""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rmq_ha.model.properties import decode_properties
from rmq_ha.spark.log.columns import ARROW, text
from rmq_ha.spark.log.shape import Bytes, Ints, as_bytes

_END = b"\x02"
_NAME_END = b"\x01"


class Pieces(NamedTuple):
    """
    The property strings one behind the other, each with 0x02 before and behind it.

    :ivar data: these bytes, and 16 more, so that a look at a name does not leave them.
    :ivar starts: where each record's string begins.
    :ivar cuts: where the 0x02 are.
    """

    data: Bytes
    starts: Ints
    cuts: Ints


def pieces_of(buffer: Any, begins: Ints, ends: Ints) -> Pieces:
    """The property strings that lie between these positions of the buffer."""
    view = memoryview(buffer)
    parts = [view[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
    data = as_bytes(b"".join((_END, _END.join(parts), _END, bytes(16))))
    starts = np.ones(len(begins) + 1, np.int64)
    np.cumsum(ends - begins + 1, out=starts[1:])
    starts[1:] += 1
    return Pieces(data, starts[:-1], np.flatnonzero(data[:-16] == 2))


def values_of(pieces: Pieces, name: bytes) -> tuple[Ints, Ints]:
    """
    Where the values of one property are: start and length by record; -1 and 0 without it.

    :param name: ASCII.
    """
    count = len(pieces.starts)
    starts, lengths = np.full(count, -1, np.int64), np.zeros(count, np.int64)
    wanted = as_bytes(name + _NAME_END)
    cuts = pieces.cuts[:-1]
    hits = np.ones(len(cuts), np.bool_)
    for index, byte in enumerate(wanted):
        hits &= pieces.data[cuts + 1 + index] == byte
    found = np.flatnonzero(hits)
    begin = cuts[found] + 1 + len(wanted)
    length = pieces.cuts[found + 1] - begin
    filled = length > 0
    begin, length = begin[filled], length[filled]
    rows = np.searchsorted(pieces.starts, begin, "right") - 1
    starts[rows] = begin  # of several the last one stays
    lengths[rows] = length
    return starts, lengths


def text_values(pieces: Pieces, name: bytes) -> Any:
    """The values of one property as an Arrow array; null without it."""
    starts, lengths = values_of(pieces, name)
    return text(pieces.data, np.maximum(starts, 0), lengths, starts >= 0)


def maps_of(pieces: Pieces) -> Any:
    """All properties as an Arrow array of maps."""
    data = pieces.data[:-16].tobytes()
    ends = [*(pieces.starts[1:] - 1).tolist(), len(data) - 1]
    rows = [
        list(decode_properties(data[start:end].decode("utf-8", "replace")).items())
        for start, end in zip(pieces.starts.tolist(), ends, strict=True)
    ]
    return pa.array(rows, ARROW["properties"])
