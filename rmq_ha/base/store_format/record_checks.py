"""Checks whether bytes are the record that is expected at a place of the log.

Spec: store.md, sections 2.1 and 3.1.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from struct import Struct
from struct import error as struct_error
from zlib import crc32

from rmq_ha.base.model.flags import BORN_HOST_V6, STORE_HOST_V6
from rmq_ha.base.model.topics import LMQ_PREFIX
from rmq_ha.base.store_format.commitlog import (
    CRC_MASK,
    HEADS,
    MAX_TOPIC_SIZE,
    MESSAGE_MAGIC,
    RECORD_OVERHEAD,
    cuts_at,
    topic_part,
)

Checks = Callable[[Sequence[bytes], Iterable[int], Iterable[int], Iterable[int]], int]
"""
Gets the bytes, physical offsets, sizes and queue offsets of some records. Returns how many of them,
from the first on, are the expected records.
"""

_IDENTITY = Struct(">iI20xq")
_PLACE = Struct(">iI4xi4xqqi44xI").unpack_from
_HOSTS_V6 = BORN_HOST_V6 | STORE_HOST_V6


def head_fits(head: bytes, physical_offset: int, size: int) -> bool:
    """
    Return whether a record of that physical offset and size begins with these bytes.

    :param head: at least 36 bytes; fewer bytes do not fit.
    """
    return (
        len(head) >= _IDENTITY.size
        and size >= RECORD_OVERHEAD
        and _IDENTITY.unpack_from(head) == (size, MESSAGE_MAGIC, physical_offset)
    )


def record_fits(data: bytes, physical_offset: int, size: int) -> bool:
    """
    Return whether bytes are the record of that physical offset and size, with parts that add up.

    A client's decoder goes from part to part. A record that does not end where the next one begins
    costs the client the rest of the batch. The content of the body is not checked (`body_fits`).
    """
    if len(data) < size or not head_fits(data, physical_offset, size):
        return False
    body_at = _body_at(data)
    length = int.from_bytes(data[body_at - 4 : body_at], "big", signed=True)
    cuts = cuts_at(data, size, body_at, length)
    return cuts is not None and cuts[3] == size


def message_check(topic: str, queue_id: int) -> Callable[[bytes, int, int, int], bool]:
    """
    Return the check of one record, by its bytes, physical offset, size and queue offset; see
    `message_checks`.
    """
    checks = message_checks(topic, queue_id)
    return lambda data, *place: checks((data,), *[(value,) for value in place]) == 1


@lru_cache(maxsize=1024)
def message_checks(topic: str, queue_id: int) -> Checks:
    """
    Return the check of a queue's records: each fits as in `record_fits`, and is the message with
    the expected number in this queue.

    Every message that is read passes the check, so what the messages of a queue have in common is
    prepared once. Light queues, as RocketMQ's multi dispatch builds them, lead to records of other
    topics.
    """
    if topic.startswith(LMQ_PREFIX):
        return _count_whole
    name = topic_part(topic.encode())
    tail = _tail(len(name))
    rest = RECORD_OVERHEAD - 1 + len(name)

    def count(
        records: Sequence[bytes],
        physical_offsets: Iterable[int],
        sizes: Iterable[int],
        queue_offsets: Iterable[int],
    ) -> int:
        good = 0
        try:
            # Every message that is read passes here. The zip itself unpacks each head and takes its
            # length, without a call of the loop. Numbers of the fixed head are compared first,
            # since they need no slice of the bytes.
            for head, data, length, physical_offset, size, queue_offset in zip(
                map(_PLACE, records),
                records,
                map(len, records),
                physical_offsets,
                sizes,
                queue_offsets,
                strict=True,
            ):
                total_size, magic, number, offset, place, sys_flag, body_size = head
                if (
                    offset != queue_offset
                    or place != physical_offset
                    or total_size != size
                    or number != queue_id
                    or magic != MESSAGE_MAGIC
                ):
                    break
                if sys_flag & _HOSTS_V6:
                    if not (record_fits(data, place, size) and _topic_is(data, name)):
                        break
                else:
                    said, properties_size = tail(data, 88 + body_size)
                    if said != name or not (rest + body_size + properties_size == size == length):
                        break
                good += 1
        except struct_error:  # it ends before
            pass
        return good

    return count


def _count_whole(
    records: Sequence[bytes],
    physical_offsets: Iterable[int],
    sizes: Iterable[int],
    queue_offsets: Iterable[int],
) -> int:
    good = 0
    for place in zip(records, physical_offsets, sizes, strict=True):
        if not record_fits(*place):
            break
        good += 1
    return good


@lru_cache(maxsize=128)
def _tail(size: int) -> Callable[[bytes, int], tuple[bytes, int]]:
    """
    Return a function that reads a topic part of that size and the length of the properties after
    it.
    """
    return Struct(f">{size}sh").unpack_from


def is_of_topic(data: bytes, topic: str) -> bool:
    """Return whether a record, which passed `record_fits`, has this topic."""
    name = topic.encode("utf-8", "replace")
    return len(name) <= MAX_TOPIC_SIZE and _topic_is(data, topic_part(name))


def _topic_is(data: bytes, name: bytes) -> bool:
    """Return whether a record, which passed `record_fits`, has this topic part."""
    at = _body_at(data)
    at += int.from_bytes(data[at - 4 : at], "big")
    return data.startswith(name, at)


def _body_at(data: bytes) -> int:
    """Return where the body starts, by the kinds of the two hosts."""
    return HEADS[data[39] >> 4 & 3].size


def with_queue_offset(data: bytes, queue_offset: int) -> bytes:
    """Return a record with another queue offset."""
    return data[:20] + queue_offset.to_bytes(8, "big") + data[28:]


def body_fits(data: bytes) -> bool:
    """
    Return whether the CRC of a record's body is right, for a record that passed `record_fits`.
    """
    at = _body_at(data)
    end = at + int.from_bytes(data[at - 4 : at], "big")
    said = int.from_bytes(data[8:12], "big")
    return bool(crc32(memoryview(data)[at:end]) & CRC_MASK == said) or end == at
