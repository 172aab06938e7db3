"""What of a commit log is not dispatched yet, slice by slice.

Spec: store.md, section 6.
"""

from typing import NamedTuple, Protocol

from twisted.logger import Logger

from rmq_ha.model.message import DispatchRequest
from rmq_ha.store.commitlog import CommitLog
from rmq_ha.store.format.commitlog import BLANK
from rmq_ha.store.scan import MORE, READ_SIZE, scan

SLICE = 256


class Slice(NamedTuple):
    """
    A stretch of the log.

    :ivar requests: its records, SLICE at most; none where it holds nothing to dispatch.
    :ivar end: physical offset behind it.
    :ivar more: what follows may be looked at now.
    """

    requests: list[DispatchRequest]
    end: int
    more: bool


class Tail(Protocol):
    """Where a dispatcher gets records from."""

    def next_slice(self, position: int, waits: bool) -> Slice | None:
        """
        What follows in the log.

        :param position: physical offset below the end of the log.
        :param waits: bytes that cannot be read may still come: do not skip them.
        :returns: None when more of the log is needed first.
        :raises StoreError: the disk refuses.
        """


class LogTail:
    """The tail of the built-in commit log."""

    log = Logger()

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._told_at = -1
        self._needed_end = 0

    def next_slice(self, position: int, waits: bool) -> Slice | None:
        """As `Tail` says."""
        if self._needed_end > self._log.max_offset:
            return None
        requests = self._pending_slice(position)
        if requests:
            return Slice(requests, requests[-1].physical_offset + requests[-1].size, True)
        return self._read_slice(position, waits)

    def _pending_slice(self, position: int) -> list[DispatchRequest]:
        """From what the append left behind, if that starts exactly here and is contiguous."""
        pending = self._log.pending
        while pending and pending[0].physical_offset < position:
            pending.popleft()
        requests: list[DispatchRequest] = []
        while pending and len(requests) < SLICE and pending[0].physical_offset == position:
            request = pending.popleft()
            requests.append(request)
            position += request.size
        return requests

    def _read_slice(self, position: int, waits: bool) -> Slice:
        """From the log: the records, the position behind them, and whether to go on at once."""
        size = max(READ_SIZE, self._needed_end - position)
        found = scan(self._log.read(position, size), position, self._log.delay_levels, SLICE)
        end = position + found.size
        next_file = self._log.row.start_of(position) + self._log.file_size
        self._needed_end = 0
        if found.verdict == BLANK:
            return Slice(found.requests, next_file, True)
        if found.verdict == MORE:
            needed_end = end + found.needed
            is_here = needed_end <= self._log.max_offset
            if is_here or (waits and needed_end <= next_file):
                self._needed_end = needed_end
                return Slice(found.requests, end, is_here)
        if found.verdict > 0:
            self._tell(end, f"a record of {found.verdict} bytes whose parts do not fit; skipped")
            return Slice(found.requests, end + found.verdict, True)
        if waits:
            self._tell(end, "unreadable; waiting for more from the master")
            return Slice(found.requests, end, False)
        self._tell(end, "unreadable; skipping to the next file or the end of the log")
        return Slice(found.requests, min(next_file, self._log.max_offset), True)

    def _tell(self, offset: int, what: str) -> None:
        if offset != self._told_at:
            self._told_at = offset
            self.log.error(
                "the commit log at {physical_offset}: {what}", physical_offset=offset, what=what
            )
