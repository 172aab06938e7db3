"""
The columns of messages, and Arrow arrays made of pieces of a buffer.

Text that is no UTF-8 becomes the text that clients make of it: each bad byte is U+FFFD.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.lake.scan.arrays import schema
from rmq_ha.lake.scan.log.shape import Bytes, Flags, Ints, inside_window, windows

_TIME = pa.timestamp("us", "UTC")
_MAX_MS = (1 << 63) // 1000 - 1

MESSAGE = (
    "topic:string queueId:int queueOffset:long commitLogOffset:long msgId:string keys:string"
    " tags:string body:binary properties:map flag:int sysFlag:int bornTimestamp:timestamp"
    " bornHost:string storeTimestamp:timestamp storeHost:string bodyCRC:int reconsumeTimes:int"
    " brokerName:string"
)
"""The columns of a read, in this order; `properties` only with `includeProperties`."""
ON_REQUEST = "storeSize:int crcOk:boolean uniqKey:string preparedTransactionOffset:long"
"""Further columns, which a user's schema may name."""
ARROW: dict[str, Any] = {field.name: field.type for field in schema(f"{MESSAGE} {ON_REQUEST}")}
"""Type of each column, exactly as Spark has it."""
COLUMNS: tuple[str, ...] = tuple(ARROW)


_HUMP = re.compile("(?=[A-Z])")


def snake_case(name: str) -> str:
    """Return a name like `queueId` as `queue_id`."""
    return _HUMP.sub("_", name).lower()


def schema_of(columns: Sequence[str]) -> Any:
    """
    Return the schema of a batch with these columns, in this order.

    :raises ProtocolViolation: a column does not exist.
    """
    unknown = [name for name in columns if name not in ARROW]
    if unknown:
        raise ProtocolViolation(
            f"no such column: {', '.join(unknown)}; there are {', '.join(COLUMNS)}"
        )
    return pa.schema([(name, ARROW[name]) for name in columns])


def times(ms: Ints) -> Any:
    """Return timestamps; a time out of Arrow's range becomes the nearest one in it."""
    return pa.array(np.clip(ms, -_MAX_MS, _MAX_MS) * 1000).cast(_TIME)


class NotUtf8(ValueError):
    """Bytes that are no UTF-8 text."""


def take_bytes(data: Bytes, starts: Ints, lengths: Ints) -> tuple[Bytes, Ints]:
    """Copy short pieces together; return them, and where each begins, followed by their end."""
    count = len(starts)
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    total = int(offsets[-1])
    if not total:
        return np.empty(0, np.uint8), offsets
    width = int(lengths.max())
    # Pieces of about equal length are gathered by rows, others byte by byte, which is slower.
    if count * width <= 4 * total + 4096 and int(starts.max()) + width <= len(data):
        table = windows(data, starts, width)
        if count * width == total:
            return table.ravel(), offsets
        return table[inside_window(lengths, width)], offsets
    index = np.repeat(starts - offsets[:-1], lengths)
    index += np.arange(total, dtype=np.int64)
    return data[index], offsets


def text(data: Bytes, starts: Ints, lengths: Ints, present: Flags | None = None) -> Any:
    """Return a text for each piece; null where `present` is false, and no bytes are."""
    return text_of(*take_bytes(data, starts, lengths), present)


def text_of(content: Bytes, offsets: Ints, present: Flags | None = None) -> Any:
    """
    Return texts of bytes that lie one after the other.

    :param offsets: where each text begins, followed by the end; less than 2 GiB together.
    """
    nulls = None if present is None or present.all() else present
    array = _make_unchecked(content, offsets, nulls)
    return array if _is_utf8(array, content) else _make_repaired(content, offsets, nulls)


def strict_text(data: Bytes, starts: Ints, lengths: Ints) -> Any:
    """
    Return a text for each piece.

    :raises NotUtf8: a piece is not UTF-8.
    """
    content, offsets = take_bytes(data, starts, lengths)
    array = _make_unchecked(content, offsets, None)
    if not _is_utf8(array, content):
        raise NotUtf8
    return array


def _make_unchecked(content: Bytes, offsets: Ints, present: Flags | None) -> Any:
    """Return texts of bytes that lie one after the other, without looking at the bytes."""
    bits = None if present is None else pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.StringArray.from_buffers(
        len(offsets) - 1, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(content), bits
    )


def _is_utf8(array: Any, content: Bytes) -> bool:
    if not len(content) or content.max() < 128:
        return True
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _make_repaired(content: Bytes, offsets: Ints, present: Flags | None) -> Any:
    """Return texts in which U+FFFD takes the place of bytes that are not UTF-8."""
    data = content.tobytes()
    texts: list[str | None] = [
        data[start:end].decode("utf-8", "replace") for start, end in pairwise(offsets.tolist())
    ]
    if present is not None:
        texts = [value if is_set else None for value, is_set in zip(texts, present, strict=True)]
    return pa.array(texts, pa.string())


def binary(content: Bytes, lengths: Ints) -> Any:
    """Return binary values of bytes that lie one after the other, less than 2 GiB together."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(lengths), buffers)


def repeated(value: str | None, count: int) -> Any:
    """Return the same text, or null, for each row."""
    return pa.repeat(pa.scalar(value, pa.string()), count)
