"""
Checks of the logs, queues and indexes of a pair; `promises` judges what clients were told.

The promises of a pair, and their limits:

- PUT_OK of a SYNC_MASTER: at that moment a slave holds the same bytes (in memory; ha.md, section
  6). So the message survives the loss of one machine; both may lose it when the power of both fails
  under ASYNC_FLUSH.
- PUT_OK under SYNC_FLUSH: the master's own disk holds it.
- A process that is killed loses nothing that it wrote.
- Through any sequence of fail-overs, losses of power and returns: a master that comes back with
  less than its slave has, and a member that returns with records at its end that the other member
  never had, end with equal logs. What an operator may lose on the way stands in `judge`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rmq_ha.base.model.java_hash import tags_code
from rmq_ha.testing.images import LogImage, LogRecord, QueueImage, is_seen_as, parse_record
from tests.sim_kit.promises import numbering_fault


def compare_logs(log: LogImage, other: LogImage) -> int | None:
    """
    Compare two logs byte by byte where both have bytes.

    :returns: the physical offset of the first difference; None when there is none.
    """
    start, end = max(log.start, other.start), min(log.end, other.end)
    if start >= end:
        return None
    a, b = log.slice(start, end), other.slice(start, end)
    if a == b:
        return None
    return start + next(i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y)


Key = tuple[str, int]


def check_numbering(records: Iterable[LogRecord], made_again: Mapping[str, int]) -> str | None:
    """
    Check that the queue offsets of each queue are consecutive in log order.

    :param made_again: topics that were deleted: their queues may begin at 0 again.
    :returns: what is wrong, or None.
    """
    return numbering_fault(
        (
            ((record.topic, record.queue_id), record.queue_offset, record.offset)
            for record in records
        ),
        lambda queue: queue[0] in made_again,
    )


def last_lives(
    records: Iterable[LogRecord], deletions: Mapping[str, int]
) -> dict[Key, list[LogRecord]]:
    """
    Return the records that have to be served, in order, by queue.

    For a topic that was deleted and created again these are the records since its deletion, without
    those of a life that a later one has ended.

    :param deletions: where the log ended when the topic was last deleted, by topic.
    """
    lives: dict[Key, list[LogRecord]] = {}
    for record in records:
        if record.offset < deletions.get(record.topic, 0):
            continue
        life = lives.setdefault((record.topic, record.queue_id), [])
        if life and not record.queue_offset:
            life.clear()
        life.append(record)
    return lives


def check_queues(
    records: Iterable[LogRecord],
    lives: Mapping[Key, list[LogRecord]],
    queues: dict[Key, QueueImage],
    start: int,
) -> str | None:
    """
    Compare consume queues with the records of the log.

    :param lives: the result of `last_lives`.
    :param start: where the log starts; units of records that were deleted before it are ignored.
    :returns: what is wrong, or None.
    """
    allowed: dict[Key, set[tuple[int, tuple[int, int, int]]]] = {}
    for record in records:
        key = record.topic, record.queue_id
        allowed.setdefault(key, set()).add((record.queue_offset, _unit(record)))
    for key, life in lives.items():
        image = queues.get(key, QueueImage())
        for record in life:
            unit = _unit(record)
            stored = image.units.get(record.queue_offset)
            if stored != unit:
                return f"{key} unit {record.queue_offset} is {stored} instead of {unit}"
        if life and image.end > life[-1].queue_offset + 1:
            return f"{key} goes on to {image.end}, the log ends with {life[-1]}"
    for key, image in queues.items():
        known = allowed.get(key, set())
        for number, unit in image.units.items():
            if (number, unit) not in known and unit[0] >= start:
                return f"{key} has unit {number} {unit}, but the log has no such record"
    return None


def _unit(record: LogRecord) -> tuple[int, int, int]:
    return record.offset, record.size, tags_code(record.tags)


def check_reading(
    store: Any,
    lives: Mapping[Key, list[LogRecord]],
    image: LogImage,
    may_lack: Callable[[LogRecord], bool],
) -> str | None:
    """
    Read every queue from its first message to its last, as a consumer does.

    :param store: a `DefaultMessageStore`.
    :param lives: the result of `last_lives`.
    :param image: the log of these records.
    :param may_lack: tells whether a record may be missing.
    :returns: what is wrong, or None.
    """
    for (topic, queue_id), life in lives.items():
        number, read = life[0].queue_offset, 0
        while read < len(life):
            result = store.get_message("checker", topic, queue_id, number, 32, None)
            messages = [] if result is None else result.messages
            if not messages:
                if not may_lack(life[read]):
                    status = None if result is None else result.status
                    return f"{topic} {queue_id}: {status} at {number}, {len(life) - read} left"
                number = life[read].queue_offset + 1
                read += 1
                continue
            for message in messages:
                while read < len(life) and not _is_same(message, life[read], image, may_lack):
                    if not may_lack(life[read]):
                        record = parse_record(message, 0, len(message))
                        return f"{topic} {queue_id}: read {record} instead of {life[read]}"
                    read += 1
                read += 1
            number = result.next_begin_offset
        if read > len(life):
            return f"{topic} {queue_id}: read more than the log has"
    return None


def _is_same(
    message: bytes | memoryview,
    record: LogRecord,
    image: LogImage,
    may_lack: Callable[[LogRecord], bool],
) -> bool:
    """
    Return whether a message equals its record. A damaged record counts as equal if only bytes
    without a checksum differ.
    """
    good = image.slice(record.offset, record.offset + record.size)
    return good == message or (may_lack(record) and is_seen_as(good, bytes(message)))


def check_index(store: Any, records: Iterable[LogRecord]) -> str | None:
    """
    Check that each record's unique id leads to it.

    :returns: what is wrong, or None.
    """
    for record in [record for record in records if record.unique_id][::7]:
        answer = store.query(record.topic, record.unique_id, 32, 0, 1 << 62)
        ids = [parse_record(data, 0, len(data)) for data in answer.records]
        if record not in ids:
            return f"a query for {record.unique_id} finds {ids} instead of {record}"
    return None
