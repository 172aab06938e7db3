"""Reads lines of stdin as they come, without blocking the reactor."""

from collections import deque
from itertools import islice
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.stdio import StandardIO
from twisted.protocols.basic import LineReceiver

_LONGEST = 4 << 20
_MOST_WAITING = 1024


class StdinLines(LineReceiver):
    """
    Reads stdin a little ahead of its user.

    :ivar too_long: whether a line of more than 4 MiB ended the reading.
    """

    delimiter = b"\n"
    MAX_LENGTH = _LONGEST

    def __init__(self, reactor: Any) -> None:
        self.too_long = False
        self._lines: deque[bytes] = deque()
        self._ended = False
        self._paused = False
        self._waiting: Deferred[None] | None = None
        StandardIO(self, reactor=reactor)  # type: ignore[no-untyped-call]

    async def batch(self, most: int) -> list[bytes]:
        """
        Return at most `most` lines that are not empty, as soon as there is one; no line at the end.
        """
        while not self._lines and not self._ended:
            self._waiting = Deferred()
            await self._waiting
        lines = list(islice(self._lines, most))
        for _ in lines:
            self._lines.popleft()
        if self._paused and not self._ended:  # fewer wait now than those that made it pause
            self._paused = False
            self.resumeProducing()  # type: ignore[no-untyped-call]
        return lines

    def end(self) -> None:
        self._ended = True
        self._wake()

    def lineReceived(self, line: bytes) -> None:
        line = line.removesuffix(b"\r")
        if line:
            self._lines.append(line)
            if len(self._lines) >= _MOST_WAITING and not self._paused:
                self._paused = True
                self.pauseProducing()  # type: ignore[no-untyped-call]
            self._wake()

    def lineLengthExceeded(self, line: bytes) -> None:
        self.too_long = True
        self.end()

    def connectionLost(self, reason: Any = None) -> None:
        """Take a last line that lacks its line end; see `LineReceiver`."""
        rest = self.clearLineBuffer()  # type: ignore[no-untyped-call]
        if rest and not self.too_long:
            self.lineReceived(rest)
        self.end()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.callback(None)
