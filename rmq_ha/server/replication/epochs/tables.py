"""A broker's tables, on their way to a slave of ours beside the log.

RocketMQ's slaves copy topics, groups and offsets every 10 s, so that after a fail-over a group may
begin where it was 10 s ago. Between two of ours every change follows within `PAUSE_S`, on the
connection of the log: first everything, then what changed, as it is when it leaves. A topic or
group leaves before more of the log, so no message is on a slave that does not know its topic.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from rmq_ha.server.replication.epochs.frames import Piece, encode_piece

PAUSE_S = 0.05
"""From a change to its frame, at most."""


class Entry(NamedTuple):
    """
    Something of a table that changed.

    :ivar precedes_log: what comes after it in the log cannot be used without it.
    """

    table: str
    name: str
    precedes_log: bool = False


class Tables(Protocol):
    """A broker's tables, as bytes that another broker of ours can read."""

    def watch(self, changed: Callable[[Entry], None]) -> None:
        """Have this called after each change, also while nobody follows."""

    def whole(self) -> Iterable[bytes]:
        """Everything, as it is now, in pieces."""

    def news(self, entries: Iterable[Entry]) -> Iterable[bytes]:
        """Those entries, as they are now, in pieces; one that is gone is told as gone."""

    def take(self, piece: bytes) -> None:
        """
        As a slave: have what the master has.

        :raises ProtocolViolation: no broker of ours says this.
        """

    def awaited(self) -> None:
        """As a slave: a master is followed that may send them, so it is not asked for them."""

    def absent(self) -> None:
        """As a slave: this master sends none."""

    def ended(self) -> None:
        """As a slave: no more pieces come on this connection."""


class TableFeed:
    """What one slave has yet to be told; begins with everything."""

    def __init__(self, tables: Tables, epoch: int) -> None:
        self._tables = tables
        self._epoch = epoch
        self._number = 0
        self._ready = deque(tables.whole())
        self._changed: dict[Entry, None] = {}  # in the order of the changes, as a set has none
        self._precedes_log = False
        self._due: float | None = None

    @property
    def deadline(self) -> float | None:
        """When to ask for a frame; None: nothing is to be told."""
        return self._due

    def changed(self, entry: Entry, now: float) -> bool:
        """:returns: the deadline is another now."""
        self._changed[entry] = None
        self._precedes_log |= entry.precedes_log
        if self._due is not None:
            return False
        self._due = now + PAUSE_S
        return True

    def next_frame(self, now: float) -> bytes:
        """What is due; empty: nothing."""
        if not self._ready and self._due is not None and now >= self._due:
            self._gather()
        return self._frame()

    def before_log(self) -> bytes:
        """What has to leave before more of the log; empty: nothing."""
        if not self._ready and self._precedes_log:
            self._gather()
        return self._frame()

    def _gather(self) -> None:
        changed, self._changed = self._changed, {}
        self._precedes_log, self._due = False, None
        self._ready.extend(self._tables.news(changed))

    def _frame(self) -> bytes:
        if not self._ready:
            return b""
        self._number += 1
        return encode_piece(Piece(self._epoch, self._number, self._ready.popleft()))
