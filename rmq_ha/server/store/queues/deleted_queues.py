"""deletedQueues.json: the physical offsets from which on records belong to queues that were deleted
and may exist again.

The log keeps the messages of a deleted queue. A start may read them again, after a crash or because
another queue lacks messages. Without this file it would rebuild the deleted queue, and number new
messages after the old ones. RocketMQ does so; it ignores this file.
"""

from collections.abc import Iterable

from twisted.internet.defer import Deferred

from rmq_ha.base.persisted_table import PersistedTable
from rmq_ha.base.seams import Disk, Worker
from rmq_ha.base.store_format.deleted_queues import NAME, decode_beginnings, encode_beginnings


class DeletedQueues(PersistedTable):
    """
    The physical offset, by topic and queue id, below which records do not belong to the queue any
    more.

    An entry is kept as long as the log has such records.

    :ivar table: always the same dict; only read it.
    """

    without_file = "may bring messages back of topics that were deleted"

    def __init__(self, disk: Disk, worker: Worker, store_path: str) -> None:
        super().__init__(disk, worker, f"{store_path}/config/{NAME}.json")
        self.table: dict[tuple[str, int], int] = {}

    def add(self, keys: Iterable[tuple[str, int]], physical_offset: int) -> "Deferred[bool]":
        """
        Note that these queues are deleted and that the log ends at this offset.

        Returns what `persist` does.
        """
        self.table.update(dict.fromkeys(keys, physical_offset))
        return self.persist()

    def cut(self, end: int) -> None:
        """
        Lower the entries above `end`, because the log was cut there and later records are new.
        """
        for key, begin in self.table.items():
            if begin > end:
                self.table[key] = end
                self.is_dirty = True

    def expire(self, min_physical_offset: int) -> None:
        """
        Forget the entries below which the log has no record any more.

        The file is written later.
        """
        for key, begin in list(self.table.items()):
            if begin <= min_physical_offset:
                del self.table[key]
                self.is_dirty = True

    def encode(self) -> bytes:
        """Return the text of `deletedQueues.json`: by topic and queue id the physical offset."""
        return encode_beginnings(self.table)

    def decode(self, data: bytes) -> None:
        """
        Take over a file's entries, all or none.

        :raises ProtocolViolation: the text does not hold such entries.
        """
        self.table.update(decode_beginnings(data))
