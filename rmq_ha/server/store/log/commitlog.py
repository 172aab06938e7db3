"""The commit log: every message of this broker, in the order of arrival.

Spec: store.md, section 2; ha.md, section 5.
"""

from collections.abc import Callable, Sequence

from twisted.logger import Logger

from rmq_ha.base.config.store import MessageStoreConfig
from rmq_ha.base.errors import DivergedLog, StoreError
from rmq_ha.base.model.message import AppendResult, Draft
from rmq_ha.base.model.status import PutMessageStatus
from rmq_ha.base.runs.run import PendingRuns, Run
from rmq_ha.base.store_flags import may_pass
from rmq_ha.base.store_format.commitlog import (
    BLANK_SIZE,
    MAX_RECORD_SIZE,
    RECORD_OVERHEAD,
    record_size_at,
)
from rmq_ha.base.store_format.record_checks import record_fits
from rmq_ha.server.store.log.append import DraftGroup, GroupEncoder
from rmq_ha.server.store.log.batch import BatchLayout
from rmq_ha.server.store.log.files import FileRow


class CommitLog:
    """
    Records in a row of files, appended at the end and read anywhere.

    :param configuration: `max_message_size` is read at every append, since it may change.
    :param delay_levels: delay of level 1, 2, ..., ms.
    :ivar row: the files, which recovery and cleaning use directly.
    :ivar encoder: limits and the next queue offsets.
    :ivar pending: rows of the newest records, until the dispatcher takes them.
    :ivar last_write: physical offset and bytes of the last write into one file, which slaves and
        the dispatcher get next. The log ends behind these bytes; after a cut there are none.
    :ivar last_store_timestamp: store time of the newest record, ms; appends never go below it.
    :ivar fault: why the log refuses writes; None while it accepts them.
    :ivar may_resume: the fault may pass, as a full disk or a lack of descriptors may.
    :ivar cuts: see `JournalLog`.
    """

    log = Logger()

    def __init__(
        self, configuration: MessageStoreConfig, row: FileRow, delay_levels: list[int]
    ) -> None:
        self._configuration = configuration
        self.row = row
        self.file_size = row.file_size
        self.delay_levels = delay_levels
        self.encoder = GroupEncoder(row.file_size, delay_levels)
        self.pending = PendingRuns()
        self.max_offset = 0
        self.last_write = 0, b""
        self.flushed_offset = 0
        self.last_store_timestamp = 0
        self.fault: str | None = None
        self.may_resume = False
        self._subscribers: list[Callable[[], None]] = []
        self.cuts = 0

    @property
    def directories(self) -> list[str]:
        return self.row.directories

    @property
    def min_offset(self) -> int:
        """Physical offset of the first file; -1 without files."""
        return self.row.starts[0] if self.row.starts else -1

    @property
    def readable_end(self) -> int:
        """End of what consumers may read, here the whole log."""
        return self.max_offset

    @property
    def written_end(self) -> int:
        return self.max_offset

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Have `callback` called after each append."""
        self._subscribers.append(callback)

    def recovered(self, end: int, safe: int) -> None:
        """
        Set the end of the log after recovery or a cut.

        :param safe: physical offset up to which the log is on the disk.
        """
        self.max_offset = end
        self.last_write = end, b""
        self.flushed_offset = safe
        self.cuts += 1

    def append_group(self, drafts: Sequence[Draft], now_ms: int) -> DraftGroup:
        """Append drafts with one write for each file."""
        if self.fault is not None:
            return DraftGroup.refused(len(drafts), PutMessageStatus.SERVICE_NOT_AVAILABLE)
        largest = self._configuration.max_message_size
        last = self.last_store_timestamp or 1
        stamp = now_ms if now_ms > last else last
        group = self.encoder.encode(drafts, self.max_offset, largest, stamp)
        if group.rows:
            self._write(group)
            if group.rows:
                self.last_store_timestamp = stamp
                for callback in self._subscribers:
                    callback()
        return group

    def append_batch(self, batch: BatchLayout, now_ms: int) -> AppendResult | PutMessageStatus:
        """
        Append all members side by side in one file, or none; the result has the first member's
        offsets.
        """
        if self.fault is not None:
            return PutMessageStatus.SERVICE_NOT_AVAILABLE
        if batch.fault is not None:
            return batch.fault
        if not batch.sizes or batch.size + BLANK_SIZE > self.file_size:
            return PutMessageStatus.MESSAGE_ILLEGAL
        stamp = max(now_ms, self.last_store_timestamp, 1)
        group, result = self.encoder.place_batch(batch, self.max_offset, stamp)
        refused = self._write(group)
        if refused is not None:
            return refused
        self.encoder.count_batch(batch)
        self.last_store_timestamp = stamp
        for callback in self._subscribers:
            callback()
        return result

    def _write(self, group: DraftGroup) -> PutMessageStatus | None:
        """
        Write each segment. If the disk refuses one, drop the rest of the group.

        :returns: why the rest was not written; None if all was written.
        """
        for number, segment in enumerate(group.segments):
            if not segment.data:
                continue
            start = segment.physical_offset - segment.physical_offset % self.file_size
            status = PutMessageStatus.CREATE_MAPEDFILE_FAILED
            try:
                file = self.row.create(start)
                status = PutMessageStatus.SERVICE_NOT_AVAILABLE
                data = segment.data
                file.pwrite(data, segment.physical_offset - start)
            except (OSError, StoreError) as error:
                self._refuse(segment.physical_offset, error)
                self.encoder.undo(group.give_up(number, status))
                return status
            self.max_offset = segment.end
            self.last_write = segment.physical_offset, data
            if segment.rows is not None:
                run = (segment.physical_offset, segment.end, segment.rows)
                self.pending.add(tuple.__new__(Run, run))
            if segment.physical_offset == start:
                self._file_began(start)
        return None

    def _file_began(self, start: int) -> None:
        """Create the next file ahead, when the first bytes of a file are written."""
        self.row.close_idle(self.flushed_offset)
        try:
            self.row.create(start + self.file_size)
        except (OSError, StoreError) as error:  # reported again when the file is needed
            self.log.warn(
                "cannot create the next commit log file after {start}: {error}",
                start=start,
                error=error,
            )

    def _refuse(self, physical_offset: int, error: Exception) -> None:
        """Refuse all further writes, and wipe what the failed write left if the disk allows it."""
        self.fault = f"cannot write at {physical_offset}: {error}"
        self.may_resume = may_pass(error)
        if self.may_resume:
            self.fault += "; free some disk space, and it goes on"
        else:
            self.fault += "; repair the disk and start this broker again"
        self.log.error("the commit log takes no more writes: {reason}", reason=self.fault)
        self._wipe_tail()

    def _wipe_tail(self) -> bool:
        """Wipe what a failed write left after the end; return whether the disk allowed it."""
        start = self.row.start_of(self.max_offset)
        if start in self.row.starts:
            try:
                self.row.file(start).zero(self.max_offset - start)
            except (OSError, StoreError) as error:
                self.log.warn("cannot wipe the end of the log: {error}", error=error)
                return False
        return True

    def refuse_writes(self, reason: str) -> None:
        """Refuse all further writes after a failed flush, as nobody knows what is on the disk."""
        if self.fault is None or self.may_resume:
            self.fault = reason
            self.may_resume = False
            self.log.error("the commit log takes no more writes: {reason}", reason=reason)

    def resume(self) -> None:
        """
        Accept writes again, if what the failed write left after the end can be wiped.

        Without the wipe, the next record would replace only the first of those bytes. A whole
        record of the failed write might follow it, although its sender was told of a failure.
        """
        if self._wipe_tail():
            self.log.info("the commit log takes writes again; before: {reason}", reason=self.fault)
            self.fault = None
            self.may_resume = False

    def append_raw(self, physical_offset: int, data: bytes) -> None:
        """
        Append a master's bytes unchanged at a slave.

        :raises DivergedLog: the offset is not the end of this (non-empty) log, or the bytes cross
            the end of a file.
        :raises StoreError: the disk refuses.
        """
        start = physical_offset - physical_offset % self.file_size
        try:
            if self.max_offset == 0 and (not data or physical_offset == start):
                self._begin_at(start)
                physical_offset = start
            if physical_offset != self.max_offset:
                raise DivergedLog(
                    f"bytes for {physical_offset}, but this log ends at {self.max_offset}"
                )
            if physical_offset + len(data) > start + self.file_size:
                raise DivergedLog(
                    f"{len(data)} bytes for {physical_offset} cross the end of a file of "
                    f"{self.file_size} bytes; master and slave need the same "
                    "mappedFileSizeCommitLog"
                )
            if not data:
                return
            if self.fault is not None:
                raise StoreError(f"the commit log takes no more writes: {self.fault}")
            file = self.row.create(start)
            file.pwrite(data, physical_offset - start)
        except OSError as error:
            self._refuse(physical_offset, error)
            raise StoreError(f"cannot write at {physical_offset}: {error}") from error
        self.max_offset = physical_offset + len(data)
        self.last_write = physical_offset, data
        if physical_offset == start:
            self.row.close_idle(self.flushed_offset)
        for callback in self._subscribers:
            callback()

    def _begin_at(self, start: int) -> None:
        """Create the first file of an empty log; delete empty files elsewhere that a crash left."""
        for other in [other for other in self.row.starts if other != start]:
            self.row.delete(other)
        self.row.create(start)
        self.recovered(start, start)

    def read(self, physical_offset: int, limit: int) -> bytes:
        """
        Return the bytes from an offset up to `limit` bytes, the end of that file or the end of the
        log, whichever comes first; empty outside the log.

        :raises StoreError: the disk cannot read them.
        """
        if not self.row.starts or not self.row.starts[0] <= physical_offset < self.max_offset:
            return b""
        written_at, written = self.last_write
        if physical_offset == written_at and self.max_offset - written_at <= limit:
            return written
        start = physical_offset - physical_offset % self.file_size
        end = min(physical_offset + limit, start + self.file_size, self.max_offset)
        try:
            return self.row.file(start).pread(end - physical_offset, physical_offset - start)
        except OSError as error:
            raise StoreError(f"cannot read the commit log at {physical_offset}: {error}") from error

    def record_at(self, physical_offset: int, size: int | None = None) -> bytes | None:
        """
        Return the bytes of one record.

        :param size: from its queue entry; None: read the size from the log.
        :returns: None if no record starts there, or the log does not hold all of it.
        :raises StoreError: the disk cannot read it.
        """
        if size is None:
            head = self.read(physical_offset, BLANK_SIZE)
            size = record_size_at(head, 0, len(head))
        if (
            not RECORD_OVERHEAD <= size <= MAX_RECORD_SIZE
            or physical_offset + size > self.max_offset
        ):
            return None
        data = self.read(physical_offset, size)
        return data if record_fits(data, physical_offset, size) else None

    def drop_oldest(self, count: int) -> list[str]:
        """Remove the oldest files from the log; return their paths, to be deleted in this order."""
        return [self.row.forget(start) for start in self.row.starts[:count]]

    def drop_spare(self) -> None:
        """Delete the file that was created ahead and never written."""
        while self.row.starts and self.row.starts[-1] > self.max_offset:
            self.row.delete(self.row.starts[-1])
