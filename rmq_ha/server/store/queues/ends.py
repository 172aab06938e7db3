"""queueEnds: the ends of log and queues at a clean stop. Java ignores the file.

The first line is the CRC-32 of the rest in hexadecimal; the rest is JSON.
"""

from typing import Any, NamedTuple
from zlib import crc32

from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.seams import Disk
from rmq_ha.base.wire import fastjson

FILE_NAME = "queueEnds"


class QueueEnd(NamedTuple):
    """
    The bounds of one queue.

    :ivar first: queue offset of the first unit in its first file.
    :ivar end: the queue offset that the next message gets.
    :ivar reached: physical offset after the last record that the queue knows; -1 if it knows none.
    """

    first: int
    end: int
    reached: int


class QueueEnds(NamedTuple):
    """
    The content of the file: the ends of the log and of all consume queues at a clean stop.

    :ivar log_min: physical offset where the log begins.
    :ivar log_end: physical offset where the log ends.
    :ivar last: physical offset and size of the last record that is in a queue; None without a
        record.
    :ivar queues: the bounds by topic and queue id.
    """

    log_min: int
    log_end: int
    last: tuple[int, int] | None
    queues: dict[tuple[str, int], QueueEnd]

    def encode(self) -> bytes:
        topics: dict[str, dict[str, list[int]]] = {}
        for (topic, queue_id), end in sorted(self.queues.items()):
            topics.setdefault(topic, {})[str(queue_id)] = list(end)
        last = list(self.last) if self.last is not None else []
        text = fastjson.encode(
            {"log": [self.log_min, self.log_end], "last": last, "queues": topics}
        )
        return f"{crc32(text):08x}\n".encode() + text

    @classmethod
    def decode(cls, data: bytes) -> "QueueEnds | None":
        """Read a file's bytes; None if they are damaged or incomplete."""
        head, _, text = data.partition(b"\n")
        if head != f"{crc32(text):08x}".encode():
            return None
        try:
            document: Any = fastjson.parse(text, None)
            log_min, log_end = document["log"]
            last = document["last"]
            queues = {
                (topic, int(queue_id)): QueueEnd(*end)
                for topic, ends in document["queues"].items()
                for queue_id, end in ends.items()
            }
            place = (last[0], last[1]) if last else None
        except (ProtocolViolation, TypeError, LookupError, ValueError, AttributeError):
            return None
        return cls(log_min, log_end, place, queues)


def read_ends(disk: Disk, root: str) -> QueueEnds | None:
    """Return the ends that the last clean stop of rmq-ha wrote; None if they cannot be read."""
    try:
        return QueueEnds.decode(disk.read_bytes(f"{root}/{FILE_NAME}"))
    except OSError:
        return None
