"""Interfaces of a log's bytes and records, for store, broker and replication.

Spec: store.md, section 2.
"""

from collections.abc import Callable, Sequence, Sized
from typing import Protocol

from rmq_ha.base.model.message import AppendResult, Draft
from rmq_ha.base.model.status import PutMessageStatus
from rmq_ha.server.store.log.append import DraftGroup, GroupEncoder
from rmq_ha.server.store.log.batch import BatchLayout


class LogBytes(Protocol):
    """The bytes of a log by physical offset, as replication sends, compares and stores them."""

    @property
    def min_offset(self) -> int:
        """Physical offset of the first file; -1 without files."""

    @property
    def max_offset(self) -> int:
        """
        Physical offset where the log ends, confirmed or not; 0 without files.

        Consumers read up to `readable_end`.
        """

    @property
    def flushed_offset(self) -> int:
        """Physical offset up to which the log is on this disk."""

    @property
    def file_size(self) -> int:
        """Size of one file in bytes."""

    def read(self, physical_offset: int, limit: int) -> bytes:
        """
        Return the bytes from an offset up to `limit` bytes, the end of that file or the end of the
        log, whichever comes first; empty outside the log.
        """


class CopiedLog(LogBytes, Protocol):
    """A log that copies the bytes of another log."""

    def append_raw(self, physical_offset: int, data: bytes) -> None:
        """
        Append a master's bytes unchanged at a slave.

        An empty log starts a file at `physical_offset` rounded down to a multiple of `file_size`,
        even for no bytes.

        :raises DivergedLog: the offset is not the end of this (non-empty) log, or the bytes cross
            the end of a file.
        :raises StoreError: the disk refuses.
        """


class JournalLog(LogBytes, Protocol):
    """
    The records of a journal, by their physical offset.

    Readers call it directly, not through the journal, because they call it thousands of times a
    second.

    :ivar encoder: limits and the next queue offsets.
    :ivar last_store_timestamp: store time of the newest record, ms.
    :ivar cuts: how often the end was set back; bytes that were read before may be others now.
    """

    encoder: GroupEncoder
    last_store_timestamp: int
    cuts: int

    @property
    def delay_levels(self) -> list[int]:
        """Delay of level 1, 2, ..., ms."""

    @property
    def directories(self) -> Sequence[str]: ...

    @property
    def pending(self) -> Sized:
        """Appended records whose rows are kept for the dispatcher."""

    @property
    def fault(self) -> str | None:
        """Why the log refuses writes; None while it accepts them."""

    @property
    def readable_end(self) -> int:
        """End of what consumers may read; not above `max_offset`."""

    @property
    def written_end(self) -> int:
        """
        End of all that is written, also of records that consumers may not read yet.

        At least `max_offset`.
        """

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Have `callback` called after the log grew."""

    def append_group(self, drafts: Sequence[Draft], now_ms: int) -> DraftGroup:
        """Append drafts; the group has the result of each."""

    def append_batch(self, batch: BatchLayout, now_ms: int) -> AppendResult | PutMessageStatus:
        """Append all members of a batch or none; return one result for all."""

    def record_at(self, physical_offset: int, size: int | None = None) -> bytes | None:
        """Return the bytes of one record; None if no record is there."""
