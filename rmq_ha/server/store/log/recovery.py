"""Finds the end of the commit log after a stop, clean or not.

Spec: store.md, sections 5.4 and 5.6.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from twisted.logger import Logger

from rmq_ha.base.model.message import Row
from rmq_ha.base.runs.face import Rows
from rmq_ha.base.runs.log_walk import MORE, READ_SIZE, walk
from rmq_ha.base.store_format.commitlog import BLANK
from rmq_ha.server.store.log.commitlog import CommitLog

_BATCH = 1024


class RecoveredLog(NamedTuple):
    """
    The end of the log, and the records that recovery read.

    :ivar end: physical offset after the last good record.
    :ivar last_store_timestamp: store time of the last good record read, ms; 0 if none was read.
    :ivar records: number of records read.
    :ivar last: the row of the last record.
    :ivar before: the newest store time of the records before the last one, ms; 0 without such
        records.
    """

    end: int
    last_store_timestamp: int
    records: int
    last: Row | None = None
    before: int = 0


class LogRecovery:
    """
    Finds the end of a log, and cuts the log there.

    :param check_crc: `checkCRCOnRecover`.
    """

    log = Logger()

    def __init__(self, log: CommitLog, check_crc: bool) -> None:
        self._log = log
        self._row = log.row
        self._check_crc = check_crc

    def normal(self, *last: tuple[int, int] | None, dispatched: int = 0) -> RecoveredLog:
        """
        Find the end after a clean stop: read on from the last message that the queues know.

        :param last: candidates for this message, each with physical offset and size. If the log has
            a whole record at none of them, its last three files are read.
        :param dispatched: physical offset below which no record is torn. A slave may stop in the
            middle of a record that its master sends.
        """
        recovered = self._read_on(last)
        return recovered if recovered.end <= dispatched else self._without_torn(recovered)

    def _read_on(self, last: Iterable[tuple[int, int] | None]) -> RecoveredLog:
        for offset, size in filter(None, last):
            if self.stands(offset, size):
                return self._read_from(offset, None)
        starts = self._row.starts
        return self._read_from(starts[max(0, len(starts) - 3)] if starts else 0, None)

    def stands(self, offset: int, size: int) -> bool:
        """Return whether a whole record is at that physical offset."""
        start = self._row.start_of(offset)
        if start not in self._row.starts:
            return False
        data = self._row.file(start).pread(size, offset - start)
        return walk(data, offset, self._log.delay_levels, 1, self._check_crc).size == size

    def first_unsure(self, timestamp: int) -> int:
        """
        Return where to begin reading after a crash: everything before is on the disk, in log and
        queues.

        :param timestamp: ms; the checkpoint confirms all that was stored up to this time.
        :returns: the start of a file; 0 without files.
        """
        starts = self._row.starts
        for start in reversed(starts[1:]):
            if 0 < self.begun_at(start) <= timestamp:
                return start
        return starts[0] if starts else 0

    def abnormal(self, start: int, dispatch: Callable[[Rows], None]) -> RecoveredLog:
        """
        Find the end after a crash: read from `start`, which is `first_unsure` or the start of a
        record.

        :param dispatch: called with all good records again.
        """
        if not self._row.starts:
            return RecoveredLog(0, 0, 0)
        return self._without_torn(self._read_from(start, dispatch))

    def _without_torn(self, recovered: RecoveredLog) -> RecoveredLog:
        if recovered.last is not None and self._is_torn(recovered.last):
            self.log.warn(
                "the record at {offset} lost its end in the stop or crash",
                offset=recovered.last[2],
            )
            end, newest = recovered.last[2], recovered.before
            if not newest and end > self._row.starts[0]:
                newest = recovered.last_store_timestamp  # no record before it was read
            return recovered._replace(end=end, last_store_timestamp=newest)
        return recovered

    def _is_torn(self, row: Row) -> bool:
        """
        Return whether the last record's properties end in zeros, because the disk did not get their
        end.

        The CRC covers only the body, so it does not show this damage. Only the last record is
        checked, because a power failure that loses the end of a record hardly keeps records that
        were written later.
        """
        return row[11].endswith("\0")

    def begun_at(self, start: int) -> int:
        """
        Return the store time of a file's first record, ms; 0 if that record is damaged, so that its
        time may be wrong.
        """
        needed = READ_SIZE
        while needed:
            data = self._row.file(start).pread(needed, 0)
            walked = walk(data, start, self._log.delay_levels, 1, True)
            if walked.run.rows:
                return walked.run.rows[0][5]
            needed = walked.needed if len(data) < walked.needed <= self._row.file_size else 0
        return 0

    def _read_from(self, begin: int, dispatch: Callable[[Rows], None] | None) -> RecoveredLog:
        """
        Read records from a physical offset on, file by file. A file that ends with a blank is
        followed by the next file; anything else that is no record ends the log.

        :param dispatch: called with the rows of the records that were read.
        """
        end, newest, before, records, last = 0, 0, 0, 0, None
        position = begin - self._row.start_of(begin)
        for start in self._row.starts:
            if start + self._row.file_size <= begin:
                continue
            needed, verdict = READ_SIZE, MORE
            while verdict == MORE:
                data = self._row.file(start).pread(needed, position)
                walked = walk(
                    data, start + position, self._log.delay_levels, _BATCH, self._check_crc
                )
                if rows := walked.run.rows:
                    before = max(newest, rows[-2][5]) if len(rows) > 1 else newest
                    last = rows[-1]
                    newest = max(newest, last[5])
                    records += len(rows)
                    if dispatch is not None:
                        dispatch(rows)
                verdict, needed = walked.verdict, max(walked.needed, READ_SIZE)
                if not walked.size and position + len(data) >= self._row.file_size:
                    break  # a record there would end after the end of the file
                position += walked.size
            end = start + position
            position = 0
            if verdict != BLANK:
                break
        return RecoveredLog(end, newest, records, last, before)

    def cut(self, end: int, safe: int) -> None:
        """
        End the log at `end`: delete later files, and fill the rest of this file with zeros.

        :param safe: physical offset up to which the log is surely on the disk, not only in its
            cache.
        """
        # Delete the last file first, as a crash in between must not leave a hole in the row.
        for start in reversed([start for start in self._row.starts if start > end]):
            self.log.info("deleting {path}, which lies behind the end", path=self._row.path(start))
            self._row.delete(start)
        start = self._row.start_of(end)
        if start in self._row.starts:
            file = self._row.file(start)
            if any(file.pread(8, end - start)):
                self.log.warn(
                    "the commit log ends at {end}: what {path} holds behind it is wiped",
                    end=end,
                    path=self._row.path(start),
                )
            file.zero(end - start)
            # Sync now. Else, after a second crash, old bytes may show in the torn parts of newer
            # messages.
            file.sync()
        self._log.recovered(end, min(safe, end))
