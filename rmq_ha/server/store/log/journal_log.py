"""The records of a journal, as store and broker read them.

Spec: store.md, section 2.
"""

from collections.abc import Callable, Sequence, Sized
from typing import Protocol

from rmq_ha.base.model.message import AppendResult, Draft
from rmq_ha.base.model.status import PutMessageStatus
from rmq_ha.server.store.log.append import Group, GroupEncoder
from rmq_ha.server.store.log.batch import BatchLayout


class LogBytes(Protocol):
    """The bytes of a log by physical offset, as replication sends, compares and takes them."""

    @property
    def min_offset(self) -> int:
        """Start of the first file; -1 without files."""

    @property
    def max_offset(self) -> int:
        """End of what may be read; 0 without files."""

    @property
    def flushed_offset(self) -> int:
        """Everything below is on this disk."""

    @property
    def file_size(self) -> int:
        """Size of one file in bytes."""

    def read(self, physical_offset: int, limit: int) -> bytes:
        """
        Bytes from an offset up to `limit`, the end of that file or the end of the log, whichever
        comes first; empty outside the log.
        """


class CopiedLog(LogBytes, Protocol):
    """A log that takes another one's bytes."""

    def append_raw(self, physical_offset: int, data: bytes | memoryview) -> None:
        """
        A slave's append: take bytes as they are, at the end of the log.

        An empty log starts a file at `physical_offset` rounded down to a multiple of
        `file_size`, even for no bytes.

        :raises DivergedLog: the offset is not the end of this (non-empty) log, or the bytes
            cross the end of a file.
        :raises StoreError: the disk refuses.
        """


class JournalLog(LogBytes, Protocol):
    """
    The records of a journal, by their physical offset.

    Readers ask it thousands of times a second: that is why it stands beside the journal, and not
    behind it.

    :ivar encoder: limits and the numbering of queues.
    :ivar last_store_timestamp: of the newest record, ms.
    :ivar cuts: how often its end was set back: what was read before may be something else by now.
    """

    encoder: GroupEncoder
    last_store_timestamp: int
    cuts: int

    @property
    def delay_levels(self) -> list[int]:
        """Ms of level 1, 2, ..."""

    @property
    def directories(self) -> Sequence[str]: ...

    @property
    def pending(self) -> Sized:
        """Appended records whose meaning is kept for the dispatcher."""

    @property
    def fault(self) -> str | None:
        """Why it takes no more writes; None while it does."""

    @property
    def readable_end(self) -> int:
        """Where what consumers may read ends; not behind `max_offset`."""

    @property
    def written_end(self) -> int:
        """
        The end of all that is written, also of what consumers may not read yet. At least
        `max_offset`.
        """

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Have `callback` called when there is more of it."""

    def append_group(self, drafts: Sequence[Draft], now_ms: int) -> Group:
        """Append what is drafted; the group says what became of each."""

    def append_batch(self, batch: BatchLayout, now_ms: int) -> AppendResult | PutMessageStatus:
        """Append all of a batch or nothing; one result for all of it."""

    def record_at(self, physical_offset: int, size: int | None = None) -> bytes | None:
        """The bytes of one record; None where there is none."""
