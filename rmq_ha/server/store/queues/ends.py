"""queueEnds: where log and queues ended at a clean stop. Java ignores the file.

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
    One queue's bounds.

    :ivar first: queue offset of its first file's first unit.
    :ivar end: the queue offset that the next message gets.
    :ivar reached: physical offset behind the last record that it knows; -1 for none.
    """

    first: int
    end: int
    reached: int


class QueueEnds(NamedTuple):
    """
    What is written at a clean stop.

    :ivar log_min: physical offset where the log begins.
    :ivar log_end: and where it ends.
    :ivar last: physical offset and size of the last record that is in a queue; None without one.
    :ivar queues: by topic and queue id.
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
        """From a file's bytes; None for anything that is not whole."""
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
    """What the last clean stop of ours wrote; None when there is nothing that can be read."""
    try:
        return QueueEnds.decode(disk.read_bytes(f"{root}/{FILE_NAME}"))
    except OSError:
        return None
