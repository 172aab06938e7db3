"""
Finds the end of a log on the disk.

Spec: store.md, sections 5.4, 5.6 and 14.2.
"""

from collections.abc import Sequence
from typing import Any

from rmq_ha.base.store_files import OVERLAP, WINDOW, Files, window_of
from rmq_ha.ops.offline.chain import ChainEnding, chain, first_record
from rmq_ha.ops.offline.log_files import LogFile

REACH = 16 << 20
"""Bytes after damage or zeros within which the log may continue: room for several large records."""


def end_of_log(files: Files, row: Sequence[LogFile], window: int = WINDOW) -> int:
    """
    Return the physical offset where the last whole record ends, or the end of a file that is filled
    up with a blank behind its last record.

    After damage or zeros the log continues only if a sound record follows within `REACH` that
    was stored no earlier than the record before. Otherwise records that an old truncation left
    after the end would come back.
    """
    for file in reversed(row):
        end = _EndSearch(files, file, window).find()
        if end > file.base:
            return end
    return row[0].base


class _EndSearch:
    """The search in one file; `end` is where the last record ends, a physical offset."""

    def __init__(self, files: Files, file: LogFile, window: int) -> None:
        self._files = files
        self._file = file
        self._size = window
        self.end = file.base
        self._stored = 0

    def find(self) -> int:
        """Return the end of the log in this file; the start of the file if it has no record."""
        position, want = self._file.base, self._size
        while position >= 0 and position + 8 <= self._file.end:
            buffer = self._window(position, want)
            records = chain(buffer, position, self._file.layout)
            position += records.end
            if records.end:
                self.end = position
            if records.last >= 0:
                self._stored = records.last
            want = self._size
            if records.tail is ChainEnding.BLANK:
                return self._file.end
            if records.tail is ChainEnding.MORE and position + records.needed <= self._file.end:
                want = max(want, records.needed)
            else:
                position = self._next_position(position + 1)
        return self.end

    def _next_position(self, position: int) -> int:
        """Return the physical offset where the log continues behind damage; -1 if it does not."""
        limit = min(position + REACH, self._file.end)
        while position + 8 <= limit:
            length = min(self._size, limit - position)
            buffer = self._window(position, length)
            start = first_record(buffer, position, 0, self._file.layout)
            if start >= 0 and self._is_later(position + start):
                return position + start
            if start >= 0:
                position += start + 1
            else:
                position += max(1, length - OVERLAP)
        return -1

    def _is_later(self, position: int) -> bool:
        """Return whether a whole record begins there, stored no earlier than the last one."""
        buffer = self._window(position, self._size)
        records = chain(buffer, position, self._file.layout)
        if records.first < 0 and self._size < records.needed <= self._file.end - position:
            records = chain(self._window(position, records.needed), position, self._file.layout)
        return records.first >= max(0, self._stored)

    def _window(self, position: int, length: int) -> Any:
        length = min(length, self._file.end - position)
        return window_of(self._files, self._file.path, position - self._file.base, length)
