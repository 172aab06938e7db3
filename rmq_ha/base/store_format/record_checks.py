"""
Whether bytes are the record that somebody was told to find there.

Spec: store.md, sections 2.1 and 3.1.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from struct import Struct
from struct import error as struct_error

from rmq_ha.base.model.flags import BORN_HOST_V6, STORE_HOST_V6
from rmq_ha.base.model.topics import LMQ_PREFIX
from rmq_ha.base.store_format.commitlog import (
    CRC_MASK,
    HEADS,
    MAX_TOPIC_SIZE,
    MESSAGE_MAGIC,
    RECORD_OVERHEAD,
    crc32,
    cuts_at,
    topic_part,
)

Checks = Callable[[Sequence[bytes], Iterable[int], Iterable[int], Iterable[int]], int]
"""Of the bytes, physical offsets, sizes and queue offsets of as many records: how many of them are
what they should be, up to the first that is not."""

_IDENTITY = Struct(">iI20xq")
_PLACE = Struct(">iI4xi4xqqi44xI").unpack_from
_HOSTS_V6 = BORN_HOST_V6 | STORE_HOST_V6


def head_fits(head: bytes, physical_offset: int, size: int) -> bool:
    """
    A record of that physical offset and size begins so.

    :param head: 36 bytes at least, or it does not.
    """
    return (
        len(head) >= _IDENTITY.size
        and size >= RECORD_OVERHEAD
        and _IDENTITY.unpack_from(head) == (size, MESSAGE_MAGIC, physical_offset)
    )


def record_fits(data: bytes, physical_offset: int, size: int) -> bool:
    """
    These bytes are the record of that physical offset and size, and its parts add up.

    A client's decoder goes from part to part: one that does not end where the next record begins
    costs it the rest of the batch. What the body holds is not looked at (`body_fits`).
    """
    if len(data) < size or not head_fits(data, physical_offset, size):
        return False
    body_at = _body_at(data)
    length = int.from_bytes(data[body_at - 4 : body_at], "big", signed=True)
    cuts = cuts_at(data, size, body_at, length)
    return cuts is not None and cuts[3] == size


def message_check(topic: str, queue_id: int) -> Callable[[bytes, int, int, int], bool]:
    """`message_checks` of one: of its bytes, physical offset, size and queue offset."""
    checks = message_checks(topic, queue_id)
    return lambda data, *place: checks((data,), *[(value,) for value in place]) == 1


@lru_cache(maxsize=1024)
def message_checks(topic: str, queue_id: int) -> Checks:
    """
    As `record_fits`, and the record is the message with that number in this queue.

    On the way of every message that is read, so what those of a queue have in common is bound
    once. Light queues, as RocketMQ's multi dispatch builds them, lead to other topics' records.
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
            for data, physical_offset, size, queue_offset in zip(
                records, physical_offsets, sizes, queue_offsets, strict=True
            ):
                total_size, magic, number, offset, place, sys_flag, body_size = _PLACE(data)
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
                    if said != name or not (
                        rest + body_size + properties_size == size == len(data)
                    ):
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
    """Reads a topic part of that size and the properties' length behind it."""
    return Struct(f">{size}sh").unpack_from


def is_of_topic(data: bytes, topic: str) -> bool:
    """A record's topic; `record_fits` came first."""
    name = topic.encode("utf-8", "replace")
    return len(name) <= MAX_TOPIC_SIZE and _topic_is(data, topic_part(name))


def _topic_is(data: bytes, name: bytes) -> bool:
    """`record_fits` came first."""
    at = _body_at(data)
    at += int.from_bytes(data[at - 4 : at], "big")
    return data.startswith(name, at)


def _body_at(data: bytes) -> int:
    """Where the body starts, by the kinds of the two hosts."""
    return HEADS[data[39] >> 4 & 3].size


def with_queue_offset(data: bytes, queue_offset: int) -> bytes:
    """A record as if it had that number in its queue."""
    return data[:20] + queue_offset.to_bytes(8, "big") + data[28:]


def body_fits(data: bytes) -> bool:
    """The CRC of a record's body is what the record says; `record_fits` came first."""
    at = _body_at(data)
    end = at + int.from_bytes(data[at - 4 : at], "big")
    said = int.from_bytes(data[8:12], "big")
    return bool(crc32(memoryview(data)[at:end]) & CRC_MASK == said) or end == at
