"""
Store files as the checkers see them: read raw, with a parser of their own.

Code that judges the store must not share the store's code, so nothing here comes from
`rmq_ha.server.store`.

Spec: store.md, sections 2.1, 2.2 and 3.1.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import Struct, error
from typing import NamedTuple
from zlib import crc32

from rmq_ha.base.seams import Disk

_MESSAGE = 0xDAA320A7
_BLANK = 0xCBD43194
_HEAD = Struct(">iIiiiqqiq")
_UNIT = Struct(">qiq")
_FILLER = 0x7FFFFFFF


class LogRecord(NamedTuple):
    """One record of a commit log."""

    offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    unique_id: str
    tags: str
    store_timestamp: int


@dataclass
class LogImage:
    """
    A commit log's bytes.

    :ivar start: offset of its first byte.
    :ivar end: where the broker says that it ends; bytes beyond do not count.
    """

    start: int
    data: bytes
    end: int
    file_size: int

    def slice(self, start: int, end: int) -> bytes:
        """Return the bytes between two physical offsets."""
        return self.data[start - self.start : end - self.start]

    def records(self) -> Iterator[LogRecord]:
        """Yield records from the start to the end, or to the first place without a record."""
        position = self.start
        while position + 8 <= self.end:
            record = parse_record(self.data, position - self.start, self.end - self.start)
            if record is None:
                if not self._is_blank(position):
                    return
                position += self.file_size - position % self.file_size
                continue
            if record.offset != position:
                return
            yield record
            position += record.size

    def readable_end(self, records: list[LogRecord] | None = None) -> int:
        """
        Return where reading records stops.

        :param records: the records of this log, if they are known.
        """
        position = self.start
        for record in self.records() if records is None else records[-1:]:
            position = record.offset + record.size
        while position + 8 <= self.end and self._is_blank(position):
            position += self.file_size - position % self.file_size
        return position

    def _is_blank(self, position: int) -> bool:
        at = position - self.start
        return int.from_bytes(self.data[at + 4 : at + 8], "big") == _BLANK


def parse_record(data: bytes, position: int, end: int) -> LogRecord | None:
    """
    Return the record at a position; None if no whole and sound record begins there.

    :param end: position in `data` beyond which the record may not reach.
    """
    try:
        size, magic, crc, queue_id, _, queue_offset, offset, flag, _ = _HEAD.unpack_from(
            data, position
        )
        if magic != _MESSAGE or size < 91 or position + size > end:
            return None
        at = position + 48 + (20 if flag & 0x10 else 8)
        store_timestamp = int.from_bytes(data[at : at + 8], "big")
        at += 8 + (20 if flag & 0x20 else 8) + 12
        length = int.from_bytes(data[at : at + 4], "big")
        body = data[at + 4 : at + 4 + length]
        at += 4 + length
        topic_end = at + 1 + data[at]
        topic = data[at + 1 : topic_end].decode()
        tail = topic_end + 2 + int.from_bytes(data[topic_end : topic_end + 2], "big")
        properties = data[topic_end + 2 : tail].decode()
    except (error, IndexError, UnicodeDecodeError):
        return None
    if tail != position + size or (body and crc32(body) & 0x7FFFFFFF != crc):
        return None
    if "\0" in topic + properties:  # no CRC covers these, but such bytes were never written
        return None
    pairs = dict(piece.split("\x01", 1) for piece in properties.split("\x02") if "\x01" in piece)
    return LogRecord(
        offset,
        size,
        topic,
        queue_id,
        queue_offset,
        pairs.get("UNIQ_KEY", ""),
        pairs.get("TAGS", ""),
        store_timestamp,
    )


def is_seen_as(good: bytes, read: bytes) -> bool:
    """
    Return whether a reader cannot tell `read` from the record `good`: they differ only in bytes
    that nothing verifies.

    A reader knows the size, magic, queue, queue offset, physical offset and topic that it expects,
    the lengths of the parts have to add up, and the body has a CRC. Nothing verifies flag,
    transaction, timestamps, hosts and properties: any bytes there may have been written so.
    """
    return len(read) == len(good) and _vouched_for(read) == _vouched_for(good)


def _vouched_for(record: bytes) -> tuple[bytes, ...]:
    hosts = sum(20 if record[39] & bit else 8 for bit in (0x10, 0x20))
    length_at = 68 + hosts
    body_at = length_at + 4
    body_end = body_at + int.from_bytes(record[length_at:body_at], "big")
    topic_end = body_end + 1 + int.from_bytes(record[body_end : body_end + 1], "big")
    crc = record[8:12] if body_end > body_at else b""
    head = record[:8], crc, record[12:16], record[20:36]
    return *head, record[length_at : topic_end + 2]


def read_log(disk: Disk, directory: str, file_size: int, end: int | None = None) -> LogImage:
    """
    Read a commit log from a disk.

    :param end: end of the log; None: as far as it can be read.
    """
    names = disk.list_dir(directory)
    start = int(names[0]) if names else 0
    data = b""
    for name in names:
        hole = int(name) - start - len(data)  # a file was lost, or cut short
        data += bytes(hole) + disk.read_bytes(f"{directory}/{name}")
    image = LogImage(start, data, start + len(data), file_size)
    image.end = image.readable_end() if end is None else end
    return image


@dataclass
class QueueImage:
    """
    A consume queue's units by queue offset, fillers left out.

    :ivar end: the queue offset after the last unit.
    """

    units: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    end: int = 0


def read_queues(disk: Disk, directory: str) -> dict[tuple[str, int], QueueImage]:
    """Read all consume queues below a directory."""
    images: dict[tuple[str, int], QueueImage] = {}
    for topic in disk.list_dir(directory):
        for queue_id in disk.list_dir(f"{directory}/{topic}"):
            images[topic, int(queue_id)] = _read_queue(disk, f"{directory}/{topic}/{queue_id}")
    return images


def _read_queue(disk: Disk, directory: str) -> QueueImage:
    image = QueueImage()
    for name in disk.list_dir(directory):
        number = int(name) // _UNIT.size
        for unit in _UNIT.iter_unpack(disk.read_bytes(f"{directory}/{name}")):
            if unit[1] > 0:
                image.end = number + 1
                if unit[1] != _FILLER:
                    image.units[number] = unit
            number += 1
    return image
