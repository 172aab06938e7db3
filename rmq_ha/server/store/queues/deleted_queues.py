"""deletedQueues.json: where in the log the present lives of deleted queues begin.

The log keeps the messages of a queue that was deleted. Whoever reads it again, after a crash or
because other queues end further in front, would build the queue of old, and number new messages
behind it. RocketMQ does; it ignores this file.
"""

from collections.abc import Iterable

from twisted.internet.defer import Deferred

from rmq_ha.base.persisted_table import PersistedTable
from rmq_ha.base.seams import Disk, Worker
from rmq_ha.base.store_format.deleted_queues import NAME, decode_beginnings, encode_beginnings


class DeletedQueues(PersistedTable):
    """
    By topic and queue id the physical offset below which records are none of the queue's any more.

    An entry lasts as long as the log has such records.

    :ivar table: always the same dict; to be read only.
    """

    without_file = "may bring messages back of topics that were deleted"

    def __init__(self, disk: Disk, worker: Worker, store_path: str) -> None:
        super().__init__(disk, worker, f"{store_path}/config/{NAME}.json")
        self.table: dict[tuple[str, int], int] = {}

    def add(self, keys: Iterable[tuple[str, int]], physical_offset: int) -> "Deferred[bool]":
        """These queues are deleted, and the log ends there; as `persist`."""
        self.table.update(dict.fromkeys(keys, physical_offset))
        return self.persist()

    def cut(self, end: int) -> None:
        """The log was cut and ends there: what comes now is new."""
        for key, begin in self.table.items():
            if begin > end:
                self.table[key] = end
                self.is_dirty = True

    def expire(self, min_physical_offset: int) -> None:
        """The log begins there; what no record lies below is forgotten, in the file later on."""
        for key, begin in list(self.table.items()):
            if begin <= min_physical_offset:
                del self.table[key]
                self.is_dirty = True

    def encode(self) -> bytes:
        """`deletedQueues.json`: topic to queue id to physical offset."""
        return encode_beginnings(self.table)

    def decode(self, data: bytes) -> None:
        """
        Take over a file's entries, all or none.

        :raises ProtocolViolation: it is not such a file.
        """
        self.table.update(decode_beginnings(data))
