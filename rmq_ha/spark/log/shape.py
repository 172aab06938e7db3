"""Where the parts of many records are, all at once.

Spec: store.md, sections 2.1 and 2.3; the layout is in `rmq_ha.store.format.commitlog`.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from rmq_ha.store.format.commitlog import MAX_TOPIC_SIZE

Ints = np.ndarray[Any, np.dtype[np.int64]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]

HEAD_V4 = 88
"""Bytes before the body with two IPv4 hosts; 12 more for each IPv6 host."""
_MAX_PROPERTIES = 32767


class Shape(NamedTuple):
    """
    Positions in the buffer, one for each record.

    :ivar hosts: 0 to 3: bit 0: the born host is IPv6, bit 1: the store host is.
    :ivar fits: the parts add up to the record's size; the others mean nothing where they do not.
    """

    hosts: Ints
    body: Ints
    body_end: Ints
    topic: Ints
    topic_end: Ints
    properties: Ints
    end: Ints
    fits: Flags


def as_bytes(buffer: Any) -> Bytes:
    """The buffer as numbers, without a copy."""
    return np.frombuffer(buffer, dtype=np.uint8)


def fields(data: Bytes, at: Ints, dtype: str) -> Any:
    """
    One number from each position.

    :param dtype: big-endian, as `>i4`; the result is in the machine's order.
    """
    kind = np.dtype(dtype)
    if not len(at):
        return np.empty(0, kind.newbyteorder("="))
    gathered = sliding_window_view(data, kind.itemsize)[at]
    return gathered.view(kind).ravel().astype(kind.newbyteorder("="))


def shape_of(data: Bytes, at: Ints, sizes: Ints) -> Shape:
    """
    The shape of records of which size and magic are known and that are wholly in `data`.

    :param sizes: at least `RECORD_OVERHEAD` each.
    """
    hosts = (data[at + 39] >> 4 & 3).astype(np.int64)
    head = HEAD_V4 + 12 * ((hosts & 1) + (hosts >> 1))
    end = at + sizes
    # Where a part lies outside its record, any position inside stands for it: nothing may be
    # read elsewhere, and `fits` says that it means nothing.
    fits = sizes >= head + 3
    body = np.where(fits, at + head, at + HEAD_V4)
    length = fields(data, body - 4, ">i4").astype(np.int64)
    fits &= (length >= 0) & (body + length < end)
    body_end = np.where(fits, body + length, at)
    topic_size = data[body_end].astype(np.int64)
    properties = body_end + 3 + topic_size
    fits &= (topic_size <= MAX_TOPIC_SIZE) & (properties <= end)
    properties = np.where(fits, properties, at + 2)
    property_size = data[properties - 2].astype(np.int64) << 8 | data[properties - 1]
    fits &= (property_size <= _MAX_PROPERTIES) & (properties + property_size == end)
    return Shape(hosts, body, body_end, body_end + 1, properties - 2, properties, end, fits)
