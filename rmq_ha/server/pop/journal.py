"""Reads the records of the POP journal, and declares the parts of a store that this needs."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.errors import CorruptRecord
from rmq_ha.base.interfaces import IMessageFilter
from rmq_ha.base.model.message import Draft, GetMessageResult
from rmq_ha.base.model.topics import POP_TOPIC
from rmq_ha.base.runs.face import Rows
from rmq_ha.base.seams import Host
from rmq_ha.base.store_format.commitlog import Record, decode_record
from rmq_ha.base.store_format.consumequeue import FILLER_SIZE
from rmq_ha.server.pop.entries import Entry
from rmq_ha.server.pop.records import decode_entries
from rmq_ha.server.store.journal import Cleaner, LogState
from rmq_ha.server.store.log.append import DraftGroup
from rmq_ha.server.store.log.dispatch import Dispatcher
from rmq_ha.server.store.queues.table import ConsumeQueue, ConsumeQueueTable
from rmq_ha.server.store.settle import Done

Unit = tuple[int, int, int]


class PopLog(Protocol):
    """The part of a commit log that POP consumption asks."""

    @property
    def flushed_offset(self) -> int:
        """Physical offset up to which the log is on the disk."""


class PopStore(Protocol):
    """The parts of a store that POP consumption uses."""

    host: Host
    root: str
    configuration: BrokerConfiguration
    queues: ConsumeQueueTable

    @property
    def log(self) -> Any: ...

    @property
    def is_writable(self) -> bool: ...

    def is_page_cache_busy(self) -> bool: ...

    def record_at(self, physical_offset: int, size: int | None = None) -> bytes | None: ...

    def get_message(
        self,
        group: str,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_nums: int,
        message_filter: IMessageFilter | None,
    ) -> GetMessageResult | None: ...

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int: ...

    def is_in_disk(self, topic: str, queue_id: int, queue_offset: int) -> bool: ...

    def put_drafts(self, drafts: Sequence[Draft], wait: bool, done: Done) -> DraftGroup: ...


class FollowedStore(Protocol):
    """The parts of a store that tell POP consumption about the log."""

    dispatcher: Dispatcher
    cleaner: Cleaner
    log_states: list[LogState]

    def on_arrival(self, callback: Callable[[Rows], None]) -> None: ...


class PopJournal(NamedTuple):
    """
    The records of the POP journal in a log.

    :ivar record_at: returns the record at a physical offset with a size; None if the log lacks it.
    """

    queues: ConsumeQueueTable
    record_at: Callable[[int, int | None], bytes | None]

    @property
    def queue(self) -> ConsumeQueue | None:
        """The queue of the journal; None before its first record."""
        return self.queues.get(POP_TOPIC, 0)

    @property
    def end(self) -> int:
        """The queue offset behind the last record that is dispatched."""
        queue = self.queue
        return 0 if queue is None else queue.max_offset

    def entries_of(self, unit: Unit) -> list[Entry]:
        """
        Return the entries of the record that a unit leads to.

        :raises UnknownEntry: a newer broker wrote the record.
        :raises CorruptRecord: the log lacks the record, or it is damaged.
        """
        record = None if unit[1] == FILLER_SIZE else record_of(self.record_at(unit[0], unit[1]))
        if record is None or record.topic != POP_TOPIC:
            raise CorruptRecord("the log lacks it")
        return decode_entries(record.body)


def record_of(data: bytes | None) -> Record | None:
    """Decode a record of the log; return None if there are no bytes, or if they are damaged."""
    try:
        return None if data is None else decode_record(data)
    except CorruptRecord:
        return None


def message_at(
    store: PopStore, topic: str, queue_id: int, queue_offset: int
) -> tuple[bytes, Record] | None:
    """
    Return the record of a message, as bytes and decoded; None if the log lacks the message.

    :raises StoreError: the disk refuses.
    """
    queue = store.queues.get(topic, queue_id)
    unit = None if queue is None else queue.unit(queue_offset)
    if unit is None or unit[1] == FILLER_SIZE:
        return None
    data = store.record_at(unit[0], unit[1])
    record = record_of(data)
    if data is None or record is None:
        return None
    is_same = (record.topic, record.queue_id, record.queue_offset) == (
        topic,
        queue_id,
        queue_offset,
    )
    return (data, record) if is_same else None
