"""The commit log of a broker that is a member of a DLedger group.

Spec: dledger.md, chapters 4 and 15.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from twisted.logger import Logger

from rmq_ha.base.config.store import MessageStoreConfig
from rmq_ha.base.errors import StoreError
from rmq_ha.base.model.flags import TRANSACTION_ROLLBACK
from rmq_ha.base.model.message import Address, AppendResult, BrokerMessage, Draft, draft_of
from rmq_ha.base.model.status import PutMessageStatus
from rmq_ha.base.runs.run import PendingRuns, Run
from rmq_ha.base.store_format.commitlog import MAX_RECORD_SIZE, RECORD_OVERHEAD, record_size_at
from rmq_ha.base.store_format.dledger import BLANK_SIZE, HEADER, MAGIC
from rmq_ha.base.store_format.dledger_values import ENTRY_HEADER_SIZE, MAX_ENTRY_SIZE, TERM_TOPIC
from rmq_ha.base.store_format.record_checks import record_fits
from rmq_ha.server.dledger.classic import ClassicPart
from rmq_ha.server.dledger.ledger import Ledger
from rmq_ha.server.store.log.append import DraftGroup, GroupEncoder
from rmq_ha.server.store.log.batch import BatchLayout
from rmq_ha.server.store.log.files import FileRow

_BUSY = PutMessageStatus.OS_PAGECACHE_BUSY


class GroupLeadership(Protocol):
    """The group's answers to questions about appends."""

    def term_to_append(self) -> int | None:
        """Return the term in which this leader may append; None while it may not append."""

    def deletes_early(self) -> bool:
        """Return whether unexpired files may be deleted for want of disk space."""


class DLedgerCommitLog:
    """
    A commit log whose records are the bodies of ledger entries, each after a header of 48 bytes.

    The physical offset of a record is the position of its entry plus 48. `max_offset` is the end of
    the last committed entry; `record_at` also reads single records after it.

    :param configuration: `max_message_size` is read at every append, since it may change.
    :param delay_levels: delays of level 1, 2, ... in milliseconds.
    :ivar classic: the classic commit log before the ledger's first entry.
    :ivar ledger: the entries.
    :ivar leadership: the group's permission to append; None: nothing is appended.
    :ivar encoder: encodes records, knows their size limits and numbers the queues.
    :ivar pending: the records that this leader appended and nobody has dispatched; each run starts
        where the previous entry ends.
    :ivar last_store_timestamp: store time of the newest record in milliseconds; later appends never
        use an earlier time.
    :ivar flushed_offset: everything below this offset is on this member's disk.
    :ivar fault: the reason why the log takes no more writes; None while it takes them.
    :ivar admits: whether the log takes clients' messages; the broker's role decides.
    """

    log = Logger()
    may_resume = False
    cuts = 0  # committed entries are never cut

    def __init__(
        self,
        configuration: MessageStoreConfig,
        ledger: Ledger,
        delay_levels: list[int],
        classic: ClassicPart,
    ) -> None:
        self._configuration = configuration
        self.ledger = ledger
        self.classic = classic
        self.delay_levels = delay_levels
        self.leadership: GroupLeadership | None = None
        self.encoder = GroupEncoder(
            ledger.file_size,
            delay_levels,
            ENTRY_HEADER_SIZE,
            MAX_ENTRY_SIZE - ENTRY_HEADER_SIZE,
        )
        self.pending = PendingRuns()
        self.last_store_timestamp = 0
        self.flushed_offset = 0
        self.fault: str | None = None
        self.admits = False
        self._refused = ""
        self._subscribers: list[Callable[[], None]] = []

    @property
    def file_size(self) -> int:
        """Return the size of a data file in bytes."""
        return self.ledger.file_size

    @property
    def directories(self) -> Sequence[str]:
        return self.row.directories

    @property
    def row(self) -> FileRow:
        """The data files that expire next: the classic files, as long as any are left."""
        return self.classic.log.row if self.classic.is_there else self.ledger.files.data.row

    def drop_oldest(self, count: int) -> list[str]:
        """Take files out of the log. Return their paths; the caller deletes them in this order."""
        if self.classic.is_there:
            return self.classic.log.drop_oldest(count)
        return self.ledger.drop_files(count)

    def resume(self) -> None:
        """Do nothing: once the disk has room again, the ledger finds out by itself."""

    @property
    def min_offset(self) -> int:
        """Return the start of the first data file; -1 without entries."""
        if self.classic.is_there:
            return self.classic.log.min_offset
        return self.ledger.begin_pos if self.ledger.end_index >= 0 else -1

    @property
    def max_offset(self) -> int:
        """Return the end of the last committed entry; without one, the begin of the data files."""
        ledger = self.ledger
        return ledger.committed_pos if ledger.committed_index >= 0 else ledger.begin_pos

    @property
    def readable_end(self) -> int:
        """Return `max_offset`: nobody may read entries that are not committed."""
        return self.max_offset

    @property
    def written_end(self) -> int:
        """
        Return the end of the last entry. After a crash it may take long until that entry is known
        to be committed.
        """
        return max(self.ledger.end_pos, self.max_offset)

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Have `callback` called whenever the log grows or more of it is committed."""
        self._subscribers.append(callback)

    def grown(self) -> None:
        """Tell the subscribers that the log has grown, or that more of it is committed."""
        for callback in self._subscribers:
            callback()

    # Appending

    def append_group(self, drafts: Sequence[Draft], now_ms: int) -> DraftGroup:
        """
        Append the drafts, each as one entry, with one write for each data file.

        Spec: dledger.md, sections 10.1 and 10.5.
        """
        term = self._term()
        if isinstance(term, PutMessageStatus):
            return DraftGroup.refused(len(drafts), term)
        after = self.ledger.end_pos
        group = self._append(drafts, now_ms, term)
        if rows := group.rows:
            self.pending.add(Run(after, rows.end, rows))
            self.grown()
        return group

    def append_batch(self, batch: BatchLayout, now_ms: int) -> AppendResult | PutMessageStatus:
        """
        Append all members of a batch, each as one entry, or none. Return the result of the first.
        """
        term = self._term()
        if isinstance(term, PutMessageStatus):
            return term
        if batch.fault is not None or not batch.sizes:
            return batch.fault or PutMessageStatus.MESSAGE_ILLEGAL
        ledger, encoder = self.ledger, self.encoder
        stamp = max(now_ms, self.last_store_timestamp, 1)
        places = ledger.places(batch.sizes)
        records = [place + ENTRY_HEADER_SIZE for place in places]
        result = batch.place(records, encoder.next_number(batch), stamp)
        if not self._write(term, batch.records(), records[-1], places):
            return PutMessageStatus.SERVICE_NOT_AVAILABLE
        encoder.count_batch(batch)
        self.last_store_timestamp = stamp
        self.grown()
        return result

    def _term(self) -> int | PutMessageStatus:
        """Return the term to append in, or the status that says why nothing is appended."""
        term = self.leadership.term_to_append() if self.leadership and self.admits else None
        if self.fault is not None:
            return PutMessageStatus.SERVICE_NOT_AVAILABLE
        return _BUSY if term is None else term

    def begin_term(self, term: int, host: Address, now_ms: int) -> bool:
        """
        Write this leader's first entry: a record that no dispatcher delivers, neither Java's nor
        this one.

        Its flags say that it is a rolled-back transaction, so it comes into no queue and no index.

        :param host: this broker's address.
        :returns: false when the disk refuses.

        Spec: dledger.md, section 18.2 (the rule of figure 8 needs this entry).
        """
        mark = BrokerMessage(
            TERM_TOPIC, 0, b"term %d" % term, host, host, now_ms, sys_flag=TRANSACTION_ROLLBACK
        )
        if self.fault is not None:
            return False
        is_written = bool(self._append([draft_of(mark)], now_ms, term).rows)
        self.grown()
        return is_written

    def _append(self, drafts: Sequence[Draft], now_ms: int, term: int) -> DraftGroup:
        stamp = max(now_ms, self.last_store_timestamp, 1)
        largest = self._configuration.max_message_size
        after = self.ledger.end_pos
        group = self.encoder.encode(drafts, after + ENTRY_HEADER_SIZE, largest, stamp)
        if not group.rows:
            return group
        if self._write(term, group.records(), group.rows[-1][2]):
            self.last_store_timestamp = stamp
        else:
            self.encoder.undo(group.give_up(0, PutMessageStatus.SERVICE_NOT_AVAILABLE))
        return group

    def _write(
        self, term: int, records: list[bytes], last: int, places: list[int] | None = None
    ) -> bool:
        """
        Append one entry for each record.

        :param last: the physical offset for which the last record was encoded.
        :param places: positions of the entries; None: the ledger computes them.
        :returns: whether the ledger took the entries.
        """
        try:
            entries = self.ledger.append(term, records, places)
        except StoreError as error:
            self._tell_refused(str(error))
            return False
        self._refused = ""
        came_to = entries[-1].pos + ENTRY_HEADER_SIZE
        if came_to != last:
            self.fault = f"a record came to {came_to}, not {last}; this is a mistake in rmq-ha"
        return True

    def _tell_refused(self, reason: str) -> None:
        """
        Log a reason once, not for every put. Nothing has to be reset: the ledger takes entries
        again as soon as the disk can be written.
        """
        if reason != self._refused:
            self._refused = reason
            self.log.error("messages are refused: {reason}", reason=reason)

    # Reading

    def read(self, physical_offset: int, limit: int) -> bytes:
        """
        Return bytes from an offset on, whether committed or not; empty outside the log.

        They end after `limit` bytes, at the end of the file or at the end of the log, whichever
        comes first.

        :raises StoreError: the disk cannot read them.
        """
        if physical_offset < self.classic.end:
            return self.classic.log.read(physical_offset, limit)
        room = self.file_size - physical_offset % self.file_size
        return self.ledger.read(physical_offset, min(limit, room))

    def record_at(self, physical_offset: int, size: int | None = None) -> bytes | None:
        """
        Return the bytes of one record.

        :param size: the record's size from its queue entry; None: read it from the log.
        :returns: None when the log does not hold the whole record, or no record starts there.
        :raises StoreError: the disk cannot read the record.
        """
        if physical_offset < self.classic.end:
            return self.classic.log.record_at(physical_offset, size)
        if size is None:
            size = self._size_at(physical_offset)
        if not RECORD_OVERHEAD <= size <= MAX_RECORD_SIZE:
            return None
        data = self.read(physical_offset, size)
        return data if record_fits(data, physical_offset, size) else None

    def _size_at(self, physical_offset: int) -> int:
        """Return the size of the record at an offset in bytes; 0 where no entry holds a record."""
        begin = physical_offset - ENTRY_HEADER_SIZE
        head = self.read(begin, ENTRY_HEADER_SIZE + BLANK_SIZE)
        if len(head) < ENTRY_HEADER_SIZE + BLANK_SIZE:
            return 0
        values = HEADER.unpack_from(head)
        if values[0] != MAGIC or values[4] != begin:
            return 0
        return record_size_at(head, ENTRY_HEADER_SIZE, len(head))
