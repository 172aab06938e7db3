"""Stretches of the log that the pulls of several queues share.

Messages of queues that are written at once lie between each other, and whoever consumes a topic
reads all of its queues at about one pace: the bytes between the messages of one pull are those of
the next ones. A read of one record costs more than all that is done with it afterwards.
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
"""Bytes of other queues' records that are read along rather than reading once more: a read costs
about as much as taking in so many."""


class WindowLog(LogBytes, Protocol):
    """
    A log below whose end nothing changes but by a cut.

    :ivar cuts: how many there were.
    """

    cuts: int


class _Window(NamedTuple):
    start: int
    end: int
    data: bytes


class LogWindows:
    """
    Reads records, and remembers some of the log around them.

    The first pull from a stretch reads its own records and nothing else. A second one from about
    the same place is a sign of more to come: it reads a window from there on, which serves the
    others until they get to its end. Whoever crosses that reads the next one.
    """

    def __init__(self, log: WindowLog) -> None:
        self._log = log
        self._cuts = log.cuts
        self._windows: deque[_Window] = deque(maxlen=_MOST_WINDOWS)
        self._missed: deque[tuple[int, int]] = deque(maxlen=_MOST_MISSED)

    def records(self, places: Sequence[int], sizes: Sequence[int]) -> list[bytes]:
        """
        The bytes at these places, rising; fewer, or none, where the log has not as many.

        :param places: physical offsets.
        :param sizes: positive.
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

    def _open(self, start: int, end: int) -> _Window | None:
        """A window for a span that was not the first one here; None: it is."""
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
            return None  # the file ends within
        window = _Window(start, start + len(data), data)
        self._windows.append(window)
        return window

    def _pieces(self, places: Sequence[int], sizes: Sequence[int]) -> list[bytes]:
        """Those that lie close together by one read."""
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
