"""Reads the committed entries of a ledger that are not dispatched yet.

Spec: dledger.md, sections 15.2 and 15.3.
"""

from typing import Protocol

from twisted.logger import Logger

from rmq_ha.base.errors import StoreError
from rmq_ha.base.model.message import Row
from rmq_ha.base.runs.face import Rows
from rmq_ha.base.runs.log_walk import READ_SIZE
from rmq_ha.base.runs.maker import concat, walk
from rmq_ha.base.runs.row_list import NO_ROWS, rows_of
from rmq_ha.base.runs.run import SLICE, SLICE_WORK, PendingRuns, Run
from rmq_ha.base.store_format.commitlog import row_at
from rmq_ha.base.store_format.dledger import BLANK, BLANK_MAGIC, BLANK_SIZE, decode_header
from rmq_ha.base.store_format.dledger_values import ENTRY_HEADER_SIZE, TERM_TOPIC
from rmq_ha.server.dledger.classic import ClassicPart


class CommittedLog(Protocol):
    """
    The parts of `DLedgerCommitLog` that `LedgerTail` uses. No byte after `max_offset` is read.

    :ivar classic: the classic commit log before the first entry.
    :ivar pending: the records that this leader appended; each run starts where the previous entry
        ends.
    """

    classic: ClassicPart
    pending: PendingRuns

    @property
    def file_size(self) -> int:
        """Return the size of a data file in bytes."""

    @property
    def delay_levels(self) -> list[int]:
        """Return the delays of level 1, 2, ... in milliseconds."""

    @property
    def max_offset(self) -> int:
        """Return the end of the last committed entry."""

    def read(self, physical_offset: int, limit: int) -> bytes:
        """
        Return bytes from an offset on: at most `limit`, and none beyond the data file that holds
        the offset.
        """


class LedgerTail:
    """
    The records of committed entries, for dispatching.

    Differs from 4.9.7 on purpose: an entry that holds no record is left out. Upstream would also
    leave out the rest of the log.
    """

    log = Logger()
    # Entries that are not committed are not read, and an unreadable one raises StoreError.
    unreadable_at: int | None = None

    def __init__(self, source: CommittedLog) -> None:
        self._source = source

    def next_slice(self, position: int, waits: bool) -> Run | None:
        """
        Return the next slice; see `rmq_ha.server.store.log.tail.Tail`. `waits` has no effect, since
        committed entries are complete.
        """
        classic = self._source.classic
        if position < classic.end:
            return classic.next_slice(position)
        source = self._source
        run = source.pending.take(position, source.max_offset)
        return self._read_slice(position) if run is None else run

    def _read_slice(self, position: int) -> Run:
        """
        Read the next records from the ledger, up to the end of the slice or of the file.

        Each round takes either all ordinary records that follow, or the one entry that `_records`
        does not take, for example the first entry of a term or an entry that holds no record.

        :raises StoreError: an entry is damaged, or the disk refuses.
        """
        source = self._source
        end = source.max_offset
        data = source.read(position, min(READ_SIZE, end - position))
        parts: list[Rows] = []
        at = work = count = 0
        next_file: int | None = None
        while count < SLICE and work < SLICE_WORK:
            records = self._records(data, at, position, SLICE - count, SLICE_WORK - work)
            if records is not None:
                parts.append(records)
                count += len(records)
                work += records.work
                at = records.end - position
                continue
            if len(data) - at >= BLANK_SIZE and BLANK.unpack_from(data, at)[0] == BLANK_MAGIC:
                next_file = position - position % source.file_size + source.file_size
                break
            if len(data) - at < ENTRY_HEADER_SIZE:
                break
            size = decode_header(data, at).size
            if size < ENTRY_HEADER_SIZE:
                raise unreadable(position + at)
            if at + size > len(data):
                if at:
                    break  # the next slice begins with this entry
                data = source.read(position, size)
                if len(data) < size:
                    raise unreadable(position)
            row = self._row(data, at, size, position)
            if row is not None:
                work += len(row[7])
                if row[0] != TERM_TOPIC:
                    parts.append(rows_of([row]))
            count += 1
            at += size
        if next_file is None and not at:
            raise unreadable(position)
        rows = concat(parts) if parts else NO_ROWS
        return Run(position, position + at if next_file is None else next_file, rows)

    @staticmethod
    def _records(data: bytes, at: int, position: int, max_count: int, max_work: int) -> Rows | None:
        """
        Return the ordinary records at the front of some entries, up to the first of a new term;
        None if there is none.

        :param at: place of the first entry in `data`, which begins at `position`.
        """
        gap = ENTRY_HEADER_SIZE
        rows = walk(data, at + gap, position + at + gap, max_count, max_work, False, gap)
        if rows is None or TERM_TOPIC not in rows.topics:
            return rows
        count = [row[0] for row in rows].index(TERM_TOPIC)
        return rows.part(0, count) if count else None

    def _row(self, data: bytes, at: int, size: int, position: int) -> Row | None:
        """Return the row of any entry; None if it holds no record that belongs there."""
        start = at + ENTRY_HEADER_SIZE
        row = row_at(data, start, at + size, self._source.delay_levels)
        if isinstance(row, int) or row[2] != position + start:
            self.log.error(
                "the entry at {position} holds no record that belongs there; it is left out",
                position=position + at,
            )
            return None
        return row


def unreadable(position: int) -> StoreError:
    """
    Return the exception for damage that recovery did not see: no later record is delivered, and
    none is lost.
    """
    return StoreError(
        f"the DLedger log cannot be read at {position}: stop this member and, while the others "
        "have a leader, empty its directory but for currterm: it then copies the leader's"
    )
