"""
Finds where the parts of many records are, all at once.

Spec: store.md, sections 2.1 and 2.3; the layout is in `rmq_ha.base.store_format.commitlog`.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from rmq_ha.base.store_format.commitlog import MAX_TOPIC_SIZE

Ints = np.ndarray[Any, np.dtype[np.int64]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]

HEAD_V4 = 88
"""Bytes before the body with two IPv4 hosts; 12 more for each IPv6 host."""
_MAX_PROPERTIES = 32767
_BODY_LENGTH_AT = 84


class Shape(NamedTuple):
    """
    Positions in the buffer, one for each record.

    :ivar heads: the first 88 bytes of each record, one row each.
    :ivar hosts: a number from 0 to 3: bit 0 is set if the born host is IPv6, bit 1 if the store
        host is.
    :ivar topic: start of the topic, after the byte with its length.
    :ivar properties: start of the properties, after the two bytes with their length.
    :ivar fits: whether the parts add up to the record's size; otherwise the other positions mean
        nothing.
    """

    heads: Bytes
    hosts: Bytes
    body: Ints
    body_end: Ints
    topic: Ints
    topic_end: Ints
    properties: Ints
    end: Ints
    fits: Flags

    def select(self, some: Any) -> "Shape":
        """Return the shape of some of the records, by flags or a slice."""
        return Shape(*(part[some] for part in self))


def as_bytes(buffer: Any) -> Bytes:
    """Return the buffer as an array of bytes, without a copy."""
    return np.frombuffer(buffer, dtype=np.uint8)


def slices(buffer: Any, starts: Ints, ends: Ints) -> list[Any]:
    """Return views of the buffer, one for each piece."""
    view = memoryview(buffer)
    return list(map(view.__getitem__, map(slice, starts.tolist(), ends.tolist())))


def inside_window(lengths: Ints, width: int) -> Flags:
    """Return flags by piece: whether each byte of a window of this width belongs to it."""
    small: Any = np.uint16 if width < 1 << 16 else np.int64  # halves the time of the whole gather
    mask: Flags = np.arange(width, dtype=small) < lengths.astype(small)[:, None]
    return mask


def windows(data: Bytes, at: Ints, width: int) -> Bytes:
    """Return `width` bytes, all of them inside `data`, from each position, one row for each."""
    if not len(at):
        return np.empty((0, width), np.uint8)
    return sliding_window_view(data, width)[at]


def fields(data: Bytes, at: Ints, dtype: str) -> Any:
    """
    Return one number from each position.

    :param dtype: big-endian type, like `>i4`; the result is in the machine's order.
    """
    kind = np.dtype(dtype)
    return windows(data, at, kind.itemsize).view(kind).ravel().astype(kind.newbyteorder("="))


def head_field(heads: Bytes, at: int, dtype: str) -> Any:
    """Return one number from each head; for dtypes see `fields`."""
    kind = np.dtype(dtype)
    column = heads[:, at : at + kind.itemsize].view(kind)
    return column[:, 0].astype(kind.newbyteorder("="))


def shape_of(data: Bytes, at: Ints, sizes: Ints) -> Shape:
    """
    Return the shape of records whose size and magic code are checked and that are wholly in `data`.

    :param sizes: size of each record, at least `RECORD_OVERHEAD`.
    """
    heads = windows(data, at, HEAD_V4)
    hosts: Bytes = heads[:, 39] >> np.uint8(4) & np.uint8(3)
    end = at + sizes
    # A part that would lie outside its record gets any position inside, so that no byte elsewhere
    # is read; `fits` is false then.
    body = at + HEAD_V4
    if hosts.any():
        more = (12 * ((hosts & 1) + (hosts >> 1))).astype(np.int64)
        fits = sizes >= HEAD_V4 + 3 + more
        body = np.where(fits, body + more, body)
        length = fields(data, body - 4, ">i4").astype(np.int64)
    else:
        fits = np.ones(len(at), np.bool_)
        length = head_field(heads, _BODY_LENGTH_AT, ">i4").astype(np.int64)
    body_end = body + length
    fits &= (length >= 0) & (body_end < end)
    body_end = np.where(fits, body_end, at)
    topic_end: Any = body_end + 1 + data[body_end]
    properties = topic_end + 2
    fits &= (topic_end - body_end <= MAX_TOPIC_SIZE + 1) & (properties <= end)
    if not fits.all():
        properties = np.where(fits, properties, end)
    size = data[properties - 2].astype(np.int64) << 8 | data[properties - 1]
    fits &= (size <= _MAX_PROPERTIES) & (properties + size == end)
    return Shape(heads, hosts, body, body_end, body_end + 1, properties - 2, properties, end, fits)
