"""What of a commit log is not dispatched yet, slice by slice.

Spec: store.md, section 6.
"""

from typing import Protocol

from twisted.logger import Logger

from rmq_ha.base.store_format.commitlog import BLANK
from rmq_ha.base.store_format.run import SLICE, SLICE_WORK, Run
from rmq_ha.base.store_format.walk import IDENTITY_SIZE, MORE, walk
from rmq_ha.server.store.log.commitlog import CommitLog
from rmq_ha.server.store.log.search import whole_records

_READ_SIZE = 5 << 16
"""Bytes: a slice of messages of 1 KiB. What is read beyond a slice is read once more."""


class Tail(Protocol):
    """
    Where a dispatcher gets records from.

    :ivar unreadable_at: physical offset of bytes that can never become a record, where the tail
        waits; None while what is there can be read, or may still be completed.
    """

    unreadable_at: int | None

    def next_slice(self, position: int, waits: bool) -> Run | None:
        """
        What follows in the log: SLICE records or SLICE_WORK at most.

        :param position: physical offset below the end of the log.
        :param waits: do not skip bytes that cannot be read: stay in front of them.
        :returns: None when more of the log is needed first.
        :raises StoreError: the disk refuses.
        """


class LogTail:
    """
    The tail of the built-in commit log.

    Where no record follows there are three cases. The log ends there, or before the record does:
    that is no damage, and what is missing comes with the next bytes. A blank ends the file. All
    else can never become a record: a master skips it, a slave stays in front of it, as its master
    may send that place anew; `unreadable_at` tells whoever vouches for this log.
    """

    log = Logger()

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._told_at = -1
        self.unreadable_at: int | None = None

    def forget(self) -> None:
        """The log was cut: what stood in it is not waited for."""
        self._told_at = -1
        self.unreadable_at = None

    def next_slice(self, position: int, waits: bool) -> Run | None:
        log = self._log
        run = log.pending.take(position, log.readable_end)
        return self._read_slice(position, waits) if run is None else run

    def _read_slice(self, position: int, waits: bool) -> Run | None:
        """From the log: the records, and the position behind them."""
        log = self._log
        next_file = log.row.start_of(position) + log.file_size
        self.unreadable_at = None
        is_far = log.max_offset - position > _READ_SIZE
        data = log.read(position, IDENTITY_SIZE if is_far else _READ_SIZE)
        walked = walk(data, position, log.delay_levels, SLICE, max_work=SLICE_WORK)
        if walked.verdict == MORE and not walked.run.rows:
            if waits and log.max_offset < position + walked.needed <= next_file:
                return None
            data = log.read(position, max(_READ_SIZE, walked.needed))
            walked = walk(data, position, log.delay_levels, SLICE, max_work=SLICE_WORK)
        if walked.verdict == BLANK:
            return walked.run._replace(end=next_file)
        if walked.run.rows:
            return walked.run
        if walked.verdict > 0:
            what = f"a record of {walked.verdict} bytes whose parts do not fit; skipped"
            self._tell(position, what)
            return Run(position, position + walked.verdict, [])
        if waits:
            self.unreadable_at = position
            self._tell(position, "what is there can never become a record; waiting in front of it")
            return None
        end = self._next_record(position + 1, min(next_file, log.max_offset))
        self._tell(position, f"{end - position} bytes that are no record; skipped")
        return Run(position, end, [])

    def _next_record(self, begin: int, end: int) -> int:
        """The physical offset of the next whole record in a stretch of one file; else its end."""
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
