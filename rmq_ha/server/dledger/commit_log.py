"""The commit log of a broker whose log is a DLedger group's.

Spec: dledger.md, chapters 4 and 15.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from twisted.logger import Logger

from rmq_ha.base.config.store import MessageStoreConfig
from rmq_ha.base.errors import StoreError
from rmq_ha.base.model.flags import TRANSACTION_ROLLBACK
from rmq_ha.base.model.message import Address, AppendResult, Draft, Message, draft_of
from rmq_ha.base.model.status import PutMessageStatus
from rmq_ha.base.store_format.commitlog import RECORD_OVERHEAD, record_size_at
from rmq_ha.base.store_format.dledger import BLANK_SIZE, HEADER, MAGIC
from rmq_ha.base.store_format.dledger_values import ENTRY_HEADER_SIZE, MAX_ENTRY_SIZE, TERM_TOPIC
from rmq_ha.base.store_format.record_checks import record_fits
from rmq_ha.base.store_format.run import PendingRuns, Run, work_of
from rmq_ha.base.store_format.walk import MAX_RECORD_SIZE
from rmq_ha.server.dledger.classic import ClassicPart
from rmq_ha.server.dledger.ledger import Ledger
from rmq_ha.server.store.log.append import Group, GroupEncoder
from rmq_ha.server.store.log.batch import BatchLayout
from rmq_ha.server.store.log.files import FileRow

_BUSY = PutMessageStatus.OS_PAGECACHE_BUSY


class Leadership(Protocol):
    """What the group says about appends."""

    def term_to_append(self) -> int | None:
        """The term of this leader; None while it may not append."""

    def deletes_early(self) -> bool:
        """Whether files that have not expired may be deleted for want of disk space."""


class DLedgerCommitLog:
    """
    Records in the entries of a ledger, 48 bytes apart.

    A physical offset is that of a record: its entry's position and 48. `max_offset` is where the
    last committed entry ends; single records can be read beyond it.

    :param configuration: `max_message_size` is read at every append, since it may change.
    :param delay_levels: ms of level 1, 2, ...
    :ivar classic: what lies before the first entry.
    :ivar ledger: the entries.
    :ivar leadership: None: nothing is appended.
    :ivar encoder: limits and the numbering of queues.
    :ivar pending: what this leader appended; each run starts where the entry before ends.
    :ivar last_store_timestamp: of the newest record, ms; appends never go below it.
    :ivar flushed_offset: everything below is on this disk.
    :ivar fault: why the log takes no more writes; None while it does.
    :ivar admits: clients' messages are taken; by role.
    """

    log = Logger()
    may_resume = False
    cuts = 0  # what is committed never is

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
        self.leadership: Leadership | None = None
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
        """Size of a data file in bytes."""
        return self.ledger.file_size

    @property
    def directories(self) -> Sequence[str]:
        return self.row.directories

    @property
    def row(self) -> FileRow:
        """The data files that expire next: the classic ones, as long as there are any."""
        return self.classic.log.row if self.classic.is_there else self.ledger.files.data.row

    def drop_oldest(self, count: int) -> list[str]:
        """Take files out of the log; their paths are returned, for deletion in this order."""
        if self.classic.is_there:
            return self.classic.log.drop_oldest(count)
        return self.ledger.drop_files(count)

    def resume(self) -> None:
        """The disk has room: the ledger finds out by itself."""

    @property
    def min_offset(self) -> int:
        """Start of the first data file; -1 without entries."""
        if self.classic.is_there:
            return self.classic.log.min_offset
        return self.ledger.begin_pos if self.ledger.end_index >= 0 else -1

    @property
    def max_offset(self) -> int:
        """Where the last committed entry ends; without one, where the data files begin."""
        ledger = self.ledger
        return ledger.committed_pos if ledger.committed_index >= 0 else ledger.begin_pos

    @property
    def readable_end(self) -> int:
        """The same: what is not committed is read by nobody."""
        return self.max_offset

    @property
    def written_end(self) -> int:
        """Where the last entry ends: after a crash it may be long before one knows it committed."""
        return max(self.ledger.end_pos, self.max_offset)

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Have `callback` called when there is more of the log, or more of it is committed."""
        self._subscribers.append(callback)

    def grown(self) -> None:
        """There is more of the log, or more of it is committed."""
        for callback in self._subscribers:
            callback()

    # Appending

    def append_group(self, drafts: Sequence[Draft], now_ms: int) -> Group:
        """
        Append what is drafted, an entry each, with one write a file.

        Spec: dledger.md, sections 10.1 and 10.5.
        """
        term = self._term()
        if isinstance(term, PutMessageStatus):
            return Group.refused(len(drafts), term)
        after = self.ledger.end_pos
        group = self._append(drafts, now_ms, term)
        if rows := group.rows:
            end = rows[-1][2] + rows[-1][3]
            self.pending.add(Run(after, end, rows, sum(map(work_of, rows))))
            self.grown()
        return group

    def append_batch(self, batch: BatchLayout, now_ms: int) -> AppendResult | PutMessageStatus:
        """Append all members, an entry each, or none; the result is the first's."""
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
        """To append in, or why nothing is appended."""
        term = self.leadership.term_to_append() if self.leadership and self.admits else None
        if self.fault is not None:
            return PutMessageStatus.SERVICE_NOT_AVAILABLE
        return _BUSY if term is None else term

    def begin_term(self, term: int, host: Address, now_ms: int) -> bool:
        """
        Write this leader's first entry: a record that dispatchers leave out, Java's as ours.

        It counts as the half of a transaction that was rolled back: no queue and no index has it.

        :param host: this broker's address.
        :returns: false when the disk refuses.

        Spec: dledger.md, section 18.2 (the rule of figure 8 needs it).
        """
        mark = Message(
            TERM_TOPIC, 0, b"term %d" % term, host, host, now_ms, sys_flag=TRANSACTION_ROLLBACK
        )
        if self.fault is not None:
            return False
        is_written = bool(self._append([draft_of(mark)], now_ms, term).rows)
        self.grown()
        return is_written

    def _append(self, drafts: Sequence[Draft], now_ms: int, term: int) -> Group:
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
        Append an entry for each record; whether the ledger took them.

        :param last: physical offset that the last record was made for.
        :param places: of the entries, where they are known.
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
        """Once, not for every put; the ledger takes entries again as soon as the disk does."""
        if reason != self._refused:
            self._refused = reason
            self.log.error("messages are refused: {reason}", reason=reason)

    # Reading

    def read(self, physical_offset: int, limit: int) -> bytes:
        """
        Bytes from an offset up to `limit`, the end of that file or the end of the log, whichever
        comes first, committed or not; empty outside the log.

        :raises StoreError: the disk cannot read them.
        """
        if physical_offset < self.classic.end:
            return self.classic.log.read(physical_offset, limit)
        room = self.file_size - physical_offset % self.file_size
        return self.ledger.read(physical_offset, min(limit, room))

    def record_at(self, physical_offset: int, size: int | None = None) -> bytes | None:
        """
        The bytes of one record.

        :param size: from its queue entry; asked of the log when None.
        :returns: None when the log does not hold all of it, or no record starts there.
        :raises StoreError: the disk cannot read it.
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
        """0 where no entry holds a record."""
        begin = physical_offset - ENTRY_HEADER_SIZE
        head = self.read(begin, ENTRY_HEADER_SIZE + BLANK_SIZE)
        if len(head) < ENTRY_HEADER_SIZE + BLANK_SIZE:
            return 0
        values = HEADER.unpack_from(head)
        if values[0] != MAGIC or values[4] != begin:
            return 0
        return record_size_at(head, ENTRY_HEADER_SIZE, len(head))
