"""Reads the part of a commit log that is not dispatched yet, slice by slice.

Spec: store.md, section 6.
"""

from typing import Protocol

from twisted.logger import Logger

from rmq_ha.base.runs.log_walk import IDENTITY_SIZE, MORE, walk
from rmq_ha.base.runs.row_list import NO_ROWS
from rmq_ha.base.runs.run import SLICE, SLICE_WORK, Run
from rmq_ha.base.store_format.commitlog import BLANK
from rmq_ha.server.store.log.commitlog import CommitLog
from rmq_ha.server.store.log.search import whole_records

_READ_SIZE = 5 << 16
"""Bytes of one read, enough for a slice of messages of 1 KiB. Bytes after the slice are read again
for the next one."""


class Tail(Protocol):
    """
    The source of a dispatcher's records.

    :ivar unreadable_at: physical offset of bytes that can never become a record, where the tail
        waits; None while the next bytes are readable or incomplete.
    """

    unreadable_at: int | None

    def next_slice(self, position: int, waits: bool) -> Run | None:
        """
        Return the next records of the log, at most SLICE records or SLICE_WORK.

        :param position: physical offset below the end of the log.
        :param waits: wait before bytes that cannot be read, instead of skipping them.
        :returns: None if more of the log is needed first.
        :raises StoreError: the disk refuses.
        """


class LogTail:
    """
    The tail of the built-in commit log.

    A slave gets its master's log in pieces that may end within a record. So the tail keeps the end
    of the last write in memory, beginning with the first record that it has not returned yet. It
    joins these bytes with the next write. It reads the disk only for other bytes: those of long
    records, and those of a slave that gets bytes faster than it dispatches them.

    Where no whole record follows, there are three cases. If the log ends before the record does,
    nothing is damaged, and the next bytes complete it. A blank ends the file. Any other bytes can
    never become a record: a master skips them. A slave waits before them, as its master may send
    that place again, and `unreadable_at` says so.
    """

    log = Logger()

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._told_at = -1
        # The kept bytes of the last write with their physical offset, and `log.cuts` at that time.
        self._kept_at, self._kept, self._cuts = 0, b"", log.cuts
        self._begun_at = self._whole_at = -1
        self.unreadable_at: int | None = None

    def forget(self) -> None:
        """Forget the unreadable bytes, because the log was cut."""
        self._told_at = -1
        self.unreadable_at = None

    def next_slice(self, position: int, waits: bool) -> Run | None:
        log = self._log
        run = log.pending.take(position, log.readable_end)
        return self._read_slice(position, waits) if run is None else run

    def _read_slice(self, position: int, waits: bool) -> Run | None:
        """
        Read the next records from memory or from the disk. The three cases without a whole record
        are those of the class.

        :returns: the records, with the position after them; None if the slave has to wait.
        """
        log = self._log
        next_file = log.row.start_of(position) + log.file_size
        self.unreadable_at = None
        start, data = self._from_memory(position)
        if waits and position == self._begun_at and log.max_offset < self._whole_at <= next_file:
            return None
        if not data:
            is_far = log.max_offset - position > _READ_SIZE
            data = log.read(position, IDENTITY_SIZE if is_far else _READ_SIZE)
        walked = walk(
            data, start, log.delay_levels, SLICE, max_work=SLICE_WORK, at=position - start
        )
        # If the log ends within a record, the record begins at `_begun_at`. It is not looked at
        # again before the log has all of it, up to `_whole_at`.
        self._begun_at, self._whole_at = walked.run.end, walked.run.end + walked.needed
        size = 0
        # The first bytes of a record may tell only how many are needed to know its size.
        while walked.verdict == MORE and not walked.run.rows:
            self._whole_at = walked.run.end + walked.needed
            if waits and log.max_offset < self._whole_at <= next_file:
                return None
            if walked.needed <= size:
                break
            self._kept, size = b"", max(_READ_SIZE, walked.needed)
            data = log.read(position, size)
            walked = walk(data, position, log.delay_levels, SLICE, max_work=SLICE_WORK)
        if not walked.run.rows:
            self._kept = b""  # what is wrong with these bytes may be mended on the disk
        if walked.verdict == BLANK:
            return walked.run._replace(end=next_file)
        if walked.run.rows:
            return walked.run
        if walked.verdict > 0:
            what = f"a record of {walked.verdict} bytes whose parts do not fit; skipped"
            self._tell(position, what)
            return Run(position, position + walked.verdict, NO_ROWS)
        if waits:
            self.unreadable_at = position
            self._tell(position, "what is there can never become a record; waiting in front of it")
            return None
        end = self._next_record(position + 1, min(next_file, log.max_offset))
        self._tell(position, f"{end - position} bytes that are no record; skipped")
        return Run(position, end, NO_ROWS)

    def _from_memory(self, position: int) -> tuple[int, bytes]:
        """
        Return a stretch of the log that holds the byte at `position`: the physical offset of the
        stretch, and its bytes. There are no bytes if that byte is not in memory.
        """
        log = self._log
        if self._cuts != log.cuts:
            self._cuts, self._kept, self._begun_at = log.cuts, b"", -1
        kept_at, kept = self._kept_at, self._kept
        written_at, written = log.last_write
        rest = kept_at + len(kept) - position
        if position < kept_at or rest <= 0:
            is_written = written_at <= position < written_at + len(written)
            self._kept_at, self._kept = (written_at, written) if is_written else (position, b"")
        elif position + rest == written_at and rest < _READ_SIZE and written_at % log.file_size:
            self._kept_at, self._kept = position, kept[-rest:] + written
        return self._kept_at, self._kept

    def _next_record(self, begin: int, end: int) -> int:
        """
        Return the physical offset of the next whole record in a stretch of one file, or the
        stretch's end.
        """
        log = self._log
        records = whole_records(
            lambda size, position: log.read(position, size), begin, end, log.delay_levels
        )
        return next((batch[0][2] for batch in records), end)

    def _tell(self, offset: int, what: str) -> None:
        if offset != self._told_at:
            self._told_at = offset
            self.log.error(
                "the commit log at {physical_offset}: {what}", physical_offset=offset, what=what
            )
