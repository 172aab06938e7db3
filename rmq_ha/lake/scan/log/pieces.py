"""
The properties of many records at once.

A property string is cut at 0x02, and each piece at its first 0x01; a piece without a name or
without a value is ignored, and of several with one name the last one counts. So a name is found
only at the start of a piece, not inside a value that contains the word TAGS.

Spec: store.md, section 2.4; the rule is `rmq_ha.base.model.properties.decode_properties`.
"""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rmq_ha.base.model.properties import decode_properties
from rmq_ha.lake.scan.log.columns import ARROW, NotUtf8, strict_text, text
from rmq_ha.lake.scan.log.shape import Bytes, Flags, Ints, as_bytes, inside_window, slices, windows

_CUT = 2
_NAME_END = 1
_SPARE = 8
"""Spare bytes after each string, so that reading 8 bytes of a name stays inside the data."""
_AROUND = 2 + _SPARE
"""Spare bytes, and the cuts before and after each string."""
_FEW = 32


class Pieces(NamedTuple):
    """
    The pieces of property strings; each piece begins and ends with a cut.

    :ivar data: the strings, with other bytes between them.
    :ivar lengths: bytes of each string.
    :ivar rows: for each piece the number of its record, ascending.
    :ivar heads: the first 8 bytes of each piece as a number.
    """

    data: Bytes
    strings: Ints
    lengths: Ints
    rows: Ints
    starts: Ints
    stops: Ints
    heads: Any


def pieces_of(buffer: Any, begins: Ints, ends: Ints) -> Pieces:
    """Return the pieces of the property strings between these positions, one string a record."""
    data = as_bytes(buffer)
    lengths = ends - begins
    count = len(begins)
    width = int(lengths.max(initial=0)) + _AROUND
    total = int(lengths.sum())
    if count and count * width < 4 * total + 4096 and int(begins.max()) + width <= len(data):
        flat, strings = _side_by_side(data, begins, lengths, width)
    else:
        flat, strings = _join_strings(buffer, begins, ends)
    is_cut = flat == _CUT
    cuts = np.flatnonzero(is_cut)
    numbers = np.searchsorted(cuts, strings - 1)
    is_first = np.zeros(len(cuts) + 1, np.bool_)
    is_first[numbers] = True
    is_first[-1] = True
    # A cut opens a piece unless it is the last one of its string: the next cut, if any, then begins
    # the next string.
    opens = ~is_first[1:]
    starts = cuts[opens] + 1
    stops = cuts[np.flatnonzero(opens) + 1]
    counts = np.diff(numbers, append=len(cuts)) - 1
    rows = np.repeat(np.arange(count), counts)
    heads = windows(flat, starts, 8).view("<u8").ravel()
    return Pieces(flat, strings, lengths, rows, starts, stops, heads)


def _side_by_side(data: Bytes, begins: Ints, lengths: Ints, width: int) -> tuple[Bytes, Ints]:
    """Copy each string into a row of one width: quick if they are about equally long."""
    table = windows(data, begins - 1, width)
    table *= inside_window(lengths + 1, width)  # zero the bytes that are not of the string
    table[:, 0] = _CUT
    firsts = np.arange(len(begins)) * width
    flat = table.ravel()
    flat[firsts + lengths + 1] = _CUT
    return flat, firsts + 1


def _join_strings(buffer: Any, begins: Ints, ends: Ints) -> tuple[Bytes, Ints]:
    """Join strings with a cut before and after each; return them, and where each begins."""
    cut = bytes((_CUT,))
    parts = slices(buffer, begins, ends)
    held = (cut, (cut + cut).join(parts), cut) if parts else ()
    flat = as_bytes(b"".join((*held, bytes(_SPARE))))
    strings = np.ones(len(begins) + 1, np.int64)
    np.cumsum(ends - begins + 2, out=strings[1:])
    strings[1:] += 1
    return flat, strings[:-1]


def values_of(pieces: Pieces, name: bytes) -> tuple[Ints, Ints]:
    """
    Return start and length of a property's value by record, both 0 where it has none.

    :param name: name of the property, ASCII.
    """
    count = len(pieces.strings)
    starts, lengths = np.zeros(count, np.int64), np.zeros(count, np.int64)
    prefix = name + bytes((_NAME_END,))
    mask = (1 << 8 * min(len(prefix), 8)) - 1
    named = np.flatnonzero(
        pieces.heads & np.uint64(mask) == np.uint64(int.from_bytes(prefix[:8], "little"))
    )
    for index in range(8, len(prefix)):  # a shorter piece ends with a cut, which no name contains
        named = named[pieces.data[pieces.starts[named] + index] == prefix[index]]
    begin = pieces.starts[named] + len(prefix)
    length = pieces.stops[named] - begin
    filled = length > 0
    rows = pieces.rows[named[filled]]
    starts[rows] = begin[filled]  # of several values the last one stays
    lengths[rows] = length[filled]
    return starts, lengths


def text_values(pieces: Pieces, name: bytes) -> Any:
    """Return the values of one property as an Arrow array; null for a record without it."""
    starts, lengths = values_of(pieces, name)
    return text(pieces.data, starts, lengths, lengths > 0)


def maps_of(pieces: Pieces) -> Any:
    """Return all properties as an Arrow array of maps."""
    name_ends = _name_ends(pieces)
    good = (name_ends > pieces.starts) & (name_ends + 1 < pieces.stops)
    rows, starts, stops = pieces.rows[good], pieces.starts[good], pieces.stops[good]
    name_ends = name_ends[good]
    last = _last_of_name(pieces, rows, starts, name_ends, pieces.heads[good])
    if not last.all():
        rows, starts, stops = rows[last], starts[last], stops[last]
        name_ends = name_ends[last]
    try:
        names = strict_text(pieces.data, starts, name_ends - starts)
    except NotUtf8:
        return _slow_maps(pieces)  # two names may become equal when bad bytes are replaced
    values = text(pieces.data, name_ends + 1, stops - name_ends - 1)
    offsets = np.zeros(len(pieces.strings) + 1, np.int32)
    np.cumsum(np.bincount(rows, minlength=len(pieces.strings)), out=offsets[1:])
    return pa.MapArray.from_arrays(pa.array(offsets), names, values).cast(ARROW["properties"])


def _name_ends(pieces: Pieces) -> Ints:
    """Return where each piece's first 0x01 is; for a piece without one, any position after it."""
    ends = np.flatnonzero(pieces.data == _NAME_END)
    if len(ends) == len(pieces.starts):
        inside = (pieces.starts <= ends) & (ends < pieces.stops)
        if inside.all():  # exactly one each
            return ends
    ends = np.append(ends, len(pieces.data))
    firsts: Ints = ends[np.searchsorted(ends, pieces.starts)]
    return firsts


def _last_of_name(pieces: Pieces, rows: Ints, starts: Ints, name_ends: Ints, heads: Any) -> Flags:
    """Return for each piece whether no later piece of its record has the same name."""
    last = np.ones(len(rows), np.bool_)
    lengths = name_ends - starts
    # A mark is a hash of record and name: pieces with one name in one record have equal marks.
    marks = heads & _MASKS[np.minimum(lengths, 8)]
    marks = (marks ^ lengths.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
    marks += rows.astype(np.uint64)
    longest = int(np.bincount(rows).max(initial=0))
    if longest <= _FEW:
        for step in range(1, longest):
            same = np.flatnonzero(marks[step:] == marks[:-step])
            if len(same):
                last[same[_are_same(pieces, rows, starts, name_ends, same, same + step)]] = False
        return last
    order = np.argsort(marks, kind="stable")
    seen: set[tuple[int, bytes]] = set()
    same = np.flatnonzero(marks[order][1:] == marks[order][:-1])
    for index in sorted({*order[same].tolist(), *order[same + 1].tolist()}, reverse=True):
        name = int(rows[index]), pieces.data[starts[index] : name_ends[index]].tobytes()
        last[index] = name not in seen
        seen.add(name)
    return last


def _are_same(
    pieces: Pieces, rows: Ints, starts: Ints, name_ends: Ints, earlier: Ints, later: Ints
) -> Flags:
    """Return for pairs of pieces whether they have the same record and the same name."""
    lengths = name_ends[earlier] - starts[earlier]
    equal: Flags = (rows[earlier] == rows[later]) & (lengths == name_ends[later] - starts[later])
    longest = int(lengths[equal].max(initial=0))
    for index in range(longest):
        at = np.minimum(index, lengths)
        equal &= pieces.data[starts[earlier] + at] == pieces.data[starts[later] + at]
    return equal


_MASKS = np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)


def _slow_maps(pieces: Pieces) -> Any:
    """Return all properties as an Arrow array of maps, one record after the other."""
    data = pieces.data.tobytes()
    rows = [
        list(decode_properties(data[start : start + length].decode("utf-8", "replace")).items())
        for start, length in zip(pieces.strings.tolist(), pieces.lengths.tolist(), strict=True)
    ]
    return pa.array(rows, ARROW["properties"])
