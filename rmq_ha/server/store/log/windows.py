"""Reads stretches of the log that the pulls of several queues share.

The messages of queues that are written at the same time are mixed in the log, and a consumer of a
topic reads all its queues at about the same pace. So the bytes between the messages of one pull are
the messages of the next pulls. One read costs more than all other work for a record.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from rmq_ha.server.store.log.journal_log import LogBytes

WINDOW_SIZE = 1 << 20
_WIDEST = WINDOW_SIZE // 2
_MOST_WINDOWS = 4
_MOST_MISSED = 8
MAX_GAP = 2048
"""Most bytes of other queues' records that are read to save another read: a read costs about as
much as this many bytes."""


class WindowLog(LogBytes, Protocol):
    """
    A log whose bytes below the end only change when it is cut.

    :ivar cuts: number of cuts so far.
    """

    cuts: int


class _MappedWindow(NamedTuple):
    start: int
    end: int
    data: bytes


class LogWindows:
    """
    Reads records, and keeps some of the log around them in memory.

    The first pull from a stretch reads only its own records. A second pull near that place
    announces more, so it reads a window from there on. The window serves the other pulls until they
    reach its end, and the pull that crosses the end reads the next window.
    """

    def __init__(self, log: WindowLog) -> None:
        self._log = log
        self._cuts = log.cuts
        self._windows: deque[_MappedWindow] = deque(maxlen=_MOST_WINDOWS)
        self._missed: deque[tuple[int, int]] = deque(maxlen=_MOST_MISSED)

    def records(self, places: Sequence[int], sizes: Sequence[int]) -> list[bytes]:
        """
        Return the bytes at these places; fewer, or none, where the log ends earlier.

        :param places: physical offsets, rising.
        :param sizes: size of each record in bytes, positive.
        :raises StoreError: the disk refuses.
        """
        start, end = places[0], places[-1] + sizes[-1]
        log = self._log
        if self._cuts != log.cuts:
            self._cuts = log.cuts
            self._windows.clear()
        for window in self._windows:
            if window.start <= start and end <= window.end:
                break
        else:
            if end - start > _WIDEST or end - start <= sum(sizes) + MAX_GAP:
                return self._pieces(places, sizes)
            opened = self._open(start, end)
            if opened is None:
                return self._pieces(places, sizes)
            window = opened
        first, _, data = window
        return [
            data[place - first : place - first + size]
            for place, size in zip(places, sizes, strict=True)
        ]

    def _open(self, start: int, end: int) -> _MappedWindow | None:
        """Open a window for a span near an earlier one; None if this span is the first one here."""
        if not any(window.start <= start <= window.end for window in self._windows):
            for missed in self._missed:
                if missed[0] < end and start < missed[1]:
                    break
            else:
                self._missed.append((start, end))
                return None
            self._missed.remove(missed)
        data = self._log.read(start, min(WINDOW_SIZE, self._log.max_offset - start))
        if end - start > len(data):
            return None  # the file ends within the span
        window = _MappedWindow(start, start + len(data), data)
        self._windows.append(window)
        return window

    def _pieces(self, places: Sequence[int], sizes: Sequence[int]) -> list[bytes]:
        """Read the records without a window; one read for those that lie close together."""
        read, file_size = self._log.read, self._log.file_size
        records: list[bytes] = []
        first = 0
        start, end = places[0], places[0] + sizes[0]
        for number, place in enumerate((*places[1:], -1), 1):
            if 0 <= place - end <= MAX_GAP and start // file_size == place // file_size:
                end = place + sizes[number]
                continue
            data = read(start, end - start)
            records += [
                data[at - start : at - start + size]
                for at, size in zip(places[first:number], sizes[first:number], strict=True)
            ]
            if place >= 0:
                first, start, end = number, place, place + sizes[number]
        return records
