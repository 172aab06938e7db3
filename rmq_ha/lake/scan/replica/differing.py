"""Finds where bytes or records differ, and describes the difference for people."""

from typing import Any, NamedTuple

import numpy as np

from rmq_ha.base.errors import CorruptRecord
from rmq_ha.base.store_format.commitlog import BLANK_MAGIC, Record, body_crc, decode_record
from rmq_ha.base.store_format.dledger import BLANK_MAGIC as ENTRY_BLANK
from rmq_ha.ops.offline.chain import Layout

_CHUNK = 1 << 18
"""
How many bytes are compared at once: both stretches and the result fit into a processor's cache.
"""
_SHOWN = 16
_PLACES = ("queueOffset", "commitLogOffset")
_BLANK = BLANK_MAGIC.to_bytes(4, "big")
_ENTRY_BLANK = ENTRY_BLANK.to_bytes(4, "big", signed=True)

# Name in the data source, position and length of the parts before the first host.
_FIXED = (
    ("storeSize", 0, 4),
    ("magic", 4, 8),
    ("bodyCRC", 8, 12),
    ("queueId", 12, 16),
    ("flag", 16, 20),
    ("queueOffset", 20, 28),
    ("commitLogOffset", 28, 36),
    ("sysFlag", 36, 40),
    ("bornTimestamp", 40, 48),
)
_COMPARED = {
    "bodyCRC": "body_crc", "queueId": "queue_id", "flag": "flag", "queueOffset": "queue_offset",
    "commitLogOffset": "physical_offset", "sysFlag": "sys_flag", "bornTimestamp": "born_timestamp",
    "bornHost": "born_host", "storeTimestamp": "store_timestamp", "storeHost": "store_host",
    "reconsumeTimes": "reconsume_times",
    "preparedTransactionOffset": "prepared_transaction_offset",
}  # fmt: skip
"""Name in the data source, and attribute of a `Record`, of the fields that are compared as such."""


class Difference(NamedTuple):
    """
    How one record differs from the bytes in its place on the other side.

    :ivar field: the field's name in the data source.
    :ivar verdict: a text that says which side's body matches its CRC; empty: both do.
    """

    field: str
    expected: str
    actual: str
    others: tuple[str, ...]
    verdict: str


def first_difference(buffer: Any, other: Any) -> int:
    """
    Return the first position at which two buffers differ; -1 if they are equal.

    A buffer that is the beginning of the other one differs at its end.
    """
    length = min(len(buffer), len(other))
    left, right = np.frombuffer(buffer, np.uint8), np.frombuffer(other, np.uint8)
    for start in range(0, length, _CHUNK):
        end = min(start + _CHUNK, length)
        words = (end - start) // 8 * 8
        a, b = left[start : start + words], right[start : start + words]
        if words and not np.array_equal(a.view(np.uint64), b.view(np.uint64)):
            return start + int((a != b).argmax())
        a, b = left[start + words : end], right[start + words : end]
        if end - start > words and not np.array_equal(a, b):
            return start + words + int((a != b).argmax())
    return -1 if len(buffer) == len(other) else length


def is_blank(data: Any, layout: Layout) -> bool:
    """Return whether the bytes begin with the blank that fills up a file."""
    if layout is Layout.DLEDGER:
        return bytes(data[:4]) == _ENTRY_BLANK
    return bytes(data[4:8]) == _BLANK


def describe(master: bytes, slave: bytes, *, shifted: bool = False) -> Difference:
    """
    Describe the difference of two records in one place; one of them may be damaged.

    :param slave: as many bytes of the other side, which differ.
    :param shifted: the logs are out of step, so the offsets in the records are not compared.
    """
    expected, actual = _decode(master), _decode(slave)
    if actual is None or expected is None:
        return _describe_broken(master, slave, expected, actual)
    fields = [
        (name, _text(left), _text(right))
        for name, left, right in _fields(expected, actual)
        if left != right and not (shifted and name in _PLACES)
    ]
    if not fields:
        return Difference("record", master[:_SHOWN].hex(), slave[:_SHOWN].hex(), (), "")
    name, left, right = fields[0]
    # The CRC differs because the body does, so the body is described.
    if name == "bodyCRC" and any(field[0] == "body" for field in fields):
        name, left, right = next(field for field in fields if field[0] == "body")
    others = tuple(field[0] for field in fields if field[0] != name)
    return Difference(name, left, right, others, _witness(expected, actual))


def _decode(data: bytes) -> Record | None:
    """Return the record that fills these bytes; None: they are no such record."""
    try:
        record = decode_record(data)
    except CorruptRecord:
        return None
    return record if record.size == len(data) else None


def _fields(master: Record, slave: Record) -> list[tuple[str, Any, Any]]:
    """Return name and both values of the fields; body and properties only if they differ."""
    pairs: list[tuple[str, Any, Any]] = [
        (name, getattr(master, own), getattr(slave, own)) for name, own in _COMPARED.items()
    ]
    if master.body != slave.body:
        at = first_difference(master.body, slave.body)
        pairs.append(("body", _bytes_at(master.body, at), _bytes_at(slave.body, at)))
    pairs.append(("topic", master.topic, slave.topic))
    if master.properties_string != slave.properties_string:
        pairs.append(("properties", *_properties(master, slave)))
    return pairs


def _properties(master: Record, slave: Record) -> tuple[str, str]:
    """Return the properties that differ; the whole strings if only their form does."""
    left, right = master.properties, slave.properties
    names = [name for name in {**left, **right} if left.get(name) != right.get(name)]
    if not names:
        return repr(master.properties_string)[:200], repr(slave.properties_string)[:200]
    return tuple(  # type: ignore[return-value]
        ", ".join(f"{name}={properties.get(name)!r}" for name in names[:4])[:200]
        for properties in (left, right)
    )


def _bytes_at(data: bytes, at: int) -> str:
    return f"byte {at}: {data[at : at + _SHOWN].hex() or 'end'}"


def _text(value: Any) -> str:
    return str(value)


def _witness(master: Record, slave: Record) -> str:
    """Return a text that says whose body does not match its CRC; empty: both match."""
    right = [
        not record.body or body_crc(record.body) == record.body_crc for record in (master, slave)
    ]
    if right == [True, False]:
        return "the slave's body does not match its CRC, the master's does"
    if right == [False, True]:
        return "the master's body does not match its CRC, the slave's does"
    if right == [False, False]:
        return "no side's body matches its CRC"
    return ""


def _describe_broken(
    master: bytes, slave: bytes, expected: Record | None, actual: Record | None
) -> Difference:
    """Describe a place where one side has no record, by the first byte that differs."""
    at = max(0, first_difference(master, slave))
    witness = ""
    if expected is not None:
        witness = "only the master has a sound record there"
    elif actual is not None:
        witness = "only the slave has a sound record there"
    if not any(slave):
        return Difference("record", "a record", f"{len(slave)} zeros", (), witness)
    if not any(master):
        return Difference("record", f"{len(master)} zeros", "a record", (), witness)
    for name, start, end in _FIXED:
        if start <= at < end:
            left, right = _number(master[start:end]), _number(slave[start:end])
            return Difference(name, left, right, (), witness)
    return Difference(
        _part(expected or actual, at), _bytes_at(master, at), _bytes_at(slave, at), (), witness
    )


def _number(data: bytes) -> str:
    return str(int.from_bytes(data, "big", signed=True))


def _part(record: Record | None, at: int) -> str:
    """Return which part of a record a position after its fixed fields is in."""
    if record is None:
        return "record"
    topic, properties = len(record.topic.encode()), len(record.properties_string.encode())
    behind = record.size - at
    if behind <= properties + 2:
        return "properties"
    if behind <= properties + 3 + topic:
        return "topic"
    return "body" if behind <= properties + 3 + topic + len(record.body) else "header"
