"""Sends a broker's tables to rmq-ha slaves, on the connection that carries the log.

RocketMQ's slaves copy topics, groups and offsets every 10 s, so after a fail-over a group may begin
where it was 10 s ago. Between two rmq-ha brokers every change follows within `PAUSE_S`. The slave
first gets all tables, then each changed entry in its state at sending time. Topics and groups are
sent before more of the log, so a slave knows the topic of every message that it has.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from rmq_ha.server.replication.epochs.frames import TablePiece, encode_piece

PAUSE_S = 0.05
"""Longest time from a change to its frame, in seconds."""


class TableEntry(NamedTuple):
    """
    The key of a table's entry that changed.

    :ivar precedes_log: whether later messages in the log cannot be used without this entry.
    """

    table: str
    name: str
    precedes_log: bool = False


class Tables(Protocol):
    """A broker's tables, as bytes that another rmq-ha broker can read."""

    def watch(self, changed: Callable[[TableEntry], None]) -> None:
        """Have `changed` called after each change, also while nobody follows."""

    def all_pieces(self) -> Iterable[bytes]:
        """Return all tables in their present state, in pieces."""

    def news(self, entries: Iterable[TableEntry]) -> Iterable[bytes]:
        """
        Return the present state of these entries, in pieces; a deleted entry is sent as deleted.
        """

    def take(self, piece: bytes) -> None:
        """
        Change a slave's tables to the master's.

        :raises ProtocolViolation: no rmq-ha broker sends this piece.
        """

    def awaited(self) -> None:
        """Stop a slave's own polling of tables, because it follows a master that may send them."""

    def absent(self) -> None:
        """Let a slave poll the tables, since this master sends none."""

    def ended(self) -> None:
        """Take note, at a slave, that no more pieces come on this connection."""


class TableFeed:
    """The tables and entries that one slave has yet to be sent; begins with all tables."""

    def __init__(self, tables: Tables, epoch: int) -> None:
        self._tables = tables
        self._epoch = epoch
        self._number = 0
        self._ready = deque(tables.all_pieces())
        self._changed: dict[
            TableEntry, None
        ] = {}  # a dict as a set that keeps the order of the changes
        self._precedes_log = False
        self._due: float | None = None

    @property
    def deadline(self) -> float | None:
        """Return when to ask for a frame, in seconds; None: there is nothing to send."""
        return self._due

    def changed(self, entry: TableEntry, now: float) -> bool:
        """
        Note a changed entry.

        :returns: whether the deadline has changed.
        """
        self._changed[entry] = None
        self._precedes_log |= entry.precedes_log
        if self._due is not None:
            return False
        self._due = now + PAUSE_S
        return True

    def next_frame(self, now: float) -> bytes:
        """Return the next frame that is due; empty: none."""
        if not self._ready and self._due is not None and now >= self._due:
            self._gather()
        return self._frame()

    def before_log(self) -> bytes:
        """Return the next frame that has to be sent before more of the log; empty: none."""
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
        return encode_piece(TablePiece(self._epoch, self._number, self._ready.popleft()))
