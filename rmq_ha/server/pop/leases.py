"""The leases of one queue for one group: two arrays of numbers over a range of queue offsets.

The arrays, here called columns, have the lease name (`pop_ms`) and the due time of each message.
"""

from array import array
from collections.abc import Iterator
from enum import Enum, auto
from itertools import groupby

from rmq_ha.server.pop.entries import (
    AckEntry,
    ChangeEntry,
    ImageEntry,
    ImageRun,
    MoveEntry,
    PopEntry,
    SkipEntry,
)

MOST_SPAN = 1 << 22
"""Most offsets from the first one that is not consumed to the last one that was handed out."""
_MOST_MOVED = 1024
_MOST_EARLIER = 4
_TRIM = 4096


class LeaseMatch(Enum):
    """Whether a lease name, as a receipt has it, is that of a message's present lease."""

    CURRENT = auto()
    """The message is out under this lease name."""
    REPEATED = auto()
    """The message is consumed already, and never comes again."""
    UNKNOWN = auto()
    """The message was not handed out yet, was moved, or is out under another lease name."""


class QueueLeases:
    """
    Which messages of one queue are out with a group, and which of the earlier ones are consumed.

    A message takes 16 bytes from its first lease until it and all messages before it are consumed.
    Their memory is freed in larger pieces.

    :param committed: the queue offset where the group begins.
    :param last_pop_ms: only greater lease names are given.
    :ivar out: number of messages that are out.
    :ivar last_pop_ms: the greatest lease name that was given; it never decreases.
    :ivar is_orderly: whether the last pop was an orderly one.
    :ivar batch_pop_ms: lease name of the last orderly pop.
    :ivar attempt_id: the client's name for the attempt of the last orderly pop.
    :ivar counts: by queue offset, how often an orderly pop handed a message out before its present
        lease.
    """

    __slots__ = (
        "_base",
        "_dues",
        "_earlier",
        "_head",
        "_moved",
        "_moved_floor",
        "_pops",
        "attempt_id",
        "batch_pop_ms",
        "counts",
        "is_orderly",
        "last_pop_ms",
        "out",
    )

    def __init__(self, committed: int, last_pop_ms: int = 0) -> None:
        self._base = committed
        self._head = 0
        self._pops = array("q")
        self._dues = array("q")
        self._moved: set[int] = set()
        self._moved_floor = 0
        self._earlier: tuple[int, ...] = ()
        self.out = 0
        self.last_pop_ms = last_pop_ms
        self.is_orderly = False
        self.batch_pop_ms = 0
        self.attempt_id = ""
        self.counts: dict[int, int] = {}

    @property
    def committed(self) -> int:
        """The first queue offset that is not consumed."""
        return self._base + self._head

    @property
    def next(self) -> int:
        """The first offset that was never handed out."""
        return self._base + len(self._dues)

    @property
    def slots(self) -> int:
        """Number of messages that take memory, 16 bytes each."""
        return len(self._dues)

    # Applying entries. Each method returns how many messages it changed; 0 if the entry does not
    # fit the leases.

    def pop(self, entry: PopEntry) -> int:
        """
        Give messages a lease.

        An orderly pop may also give messages a new lease that are out already.
        """
        if entry.pop_ms <= self.last_pop_ms or entry.invisible_ms < 0 or not entry.offsets:
            return 0
        if not entry.start <= entry.offsets[0] <= entry.offsets[-1] < entry.end:
            return 0
        next_offset = self.next
        if entry.is_orderly:
            fits = entry.end - self.committed <= MOST_SPAN or not self.out
            offsets = [
                offset for offset in entry.offsets if offset >= next_offset or self._is_out(offset)
            ]
        else:
            fits = entry.start >= next_offset
            offsets = list(entry.offsets)
        if not fits or not offsets or not self._reach(entry.start, entry.end):
            return 0
        if entry.is_orderly:
            self._name_batch(entry, offsets)
        self.is_orderly = entry.is_orderly
        self.last_pop_ms = entry.pop_ms
        due = entry.pop_ms + entry.invisible_ms
        base, pops, dues = self._base, self._pops, self._dues
        for offset in offsets:
            place = offset - base
            if not dues[place]:
                self.out += 1
            pops[place] = entry.pop_ms
            dues[place] = due
        self._advance()
        return len(offsets)

    def _name_batch(self, entry: PopEntry, offsets: list[int]) -> None:
        """
        Count the messages that an orderly pop hands out again; if it repeats an attempt, keep the
        attempt's earlier lease name instead.
        """
        if entry.is_again:
            self._earlier = (*self._earlier, self.batch_pop_ms)[-_MOST_EARLIER:]
        else:
            self._earlier = ()
            for offset in offsets:
                if self._is_out(offset):
                    self.counts[offset] = self.counts.get(offset, 0) + 1
        self.batch_pop_ms = entry.pop_ms
        self.attempt_id = entry.attempt_id

    def _reach(self, start: int, end: int) -> bool:
        """Extend the columns to an offset; return False if they would be too long."""
        if end <= self.next:
            return True
        if not self.out:
            if start > self.next:
                self._begin_at(start)
        elif end - self.committed > MOST_SPAN:
            return False
        more = end - self.next
        if more > MOST_SPAN:
            return False
        self._pops.frombytes(bytes(8 * more))
        self._dues.frombytes(bytes(8 * more))
        return True

    def _begin_at(self, offset: int) -> None:
        """Forget the columns, in which nothing is out, and go on at an offset."""
        self._base, self._head = offset, 0
        self._pops, self._dues = array("q"), array("q")
        self.counts.clear()

    def skip(self, entry: SkipEntry) -> int:
        """Count messages as consumed that the group's filter does not want."""
        if entry.start < self.next or entry.end <= entry.start:
            return 0
        if not self.out:
            self._begin_at(entry.end)
        elif not self._reach(entry.start, entry.end):
            return 0
        self._advance()
        return entry.end - entry.start

    def ack(self, entry: AckEntry) -> int:
        """End the leases of acknowledged messages, which count as consumed."""
        count = 0
        for offset in entry.offsets:
            if self.match(offset, entry.pop_ms) is LeaseMatch.CURRENT:
                self._end(offset)
                count += 1
        self._advance()
        return count

    def change(self, entry: ChangeEntry) -> int:
        """Begin a new lease of a message that is out."""
        if (
            entry.due_ms <= 0
            or self.match(entry.offset, entry.old_pop_ms) is not LeaseMatch.CURRENT
        ):
            return 0
        place = entry.offset - self._base
        if entry.pop_ms != entry.old_pop_ms:
            if entry.pop_ms <= self.last_pop_ms:
                return 0
            self._pops[place] = entry.pop_ms
            self.last_pop_ms = entry.pop_ms
        self._dues[place] = entry.due_ms
        return 1

    def move(self, entry: MoveEntry) -> int:
        """End the leases of messages that were moved to another topic, or are gone."""
        count = 0
        for offset, pop_ms in entry.leases:
            if self.match(offset, pop_ms) is LeaseMatch.CURRENT:
                self._end(offset)
                self._moved.add(offset)
                count += 1
        while len(self._moved) > _MOST_MOVED:
            lowest = min(self._moved)
            self._moved.remove(lowest)
            self._moved_floor = max(self._moved_floor, lowest + 1)
        self._advance()
        return count

    def reset(self, offset: int) -> int:
        """Let the group go on at a queue offset, and end all leases; always returns 1."""
        self.out = 0
        self._begin_at(offset)
        self._moved = {moved for moved in self._moved if moved < offset}
        self._moved_floor = min(self._moved_floor, offset)
        self._earlier, self.batch_pop_ms, self.attempt_id = (), 0, ""
        return 1

    def _is_out(self, offset: int) -> bool:
        place = offset - self._base
        return 0 <= place < len(self._dues) and self._dues[place] != 0

    def _end(self, offset: int) -> None:
        place = offset - self._base
        self._pops[place] = self._dues[place] = 0
        self.out -= 1
        self.counts.pop(offset, None)

    def _advance(self) -> None:
        """
        Move `committed` to the first message that is out, or behind the columns if none is.

        The memory before it is freed if nothing is out. Otherwise that waits until half of the
        columns, and 4096 items, are consumed, because it copies the rest.
        """
        dues, head = self._dues, self._head
        end = len(dues)
        if not self.out:
            head = end
        else:
            while head < end and not dues[head]:
                head += 1
        if head and (not self.out or (head >= _TRIM and 2 * head >= end)):
            del self._pops[:head], self._dues[:head]
            self._base += head
            head = 0
        self._head = head

    # Questions

    def match(self, offset: int, pop_ms: int) -> LeaseMatch:
        """
        Return whether a lease name is that of the present lease of a message.

        Once an orderly attempt was repeated, its last four earlier names count, too.
        """
        place = offset - self._base
        if place >= len(self._dues):
            return LeaseMatch.UNKNOWN
        if place < self._head or not self._dues[place]:
            is_moved = offset in self._moved or offset < self._moved_floor
            return LeaseMatch.UNKNOWN if is_moved else LeaseMatch.REPEATED
        known = self._pops[place]
        is_earlier = self.is_orderly and known == self.batch_pop_ms and pop_ms in self._earlier
        return LeaseMatch.CURRENT if pop_ms == known or is_earlier else LeaseMatch.UNKNOWN

    def lease(self, offset: int) -> tuple[int, int] | None:
        """Return name and due time of the lease of a message; None if it is not out."""
        place = offset - self._base
        if not 0 <= place < len(self._dues) or not self._dues[place]:
            return None
        return self._pops[place], self._dues[place]

    def leases(self, first: int = 0) -> Iterator[tuple[int, int, int]]:
        """Yield offset, lease name and due time of the messages that are out, from an offset on."""
        base = self._base
        for place in range(max(self._head, first - base), len(self._dues)):
            if self._dues[place]:
                yield base + place, self._pops[place], self._dues[place]

    def oldest(self) -> tuple[int, int, int]:
        """
        Return the least lease name of all messages that are out, the first queue offset with it,
        and the first due time of all; three zeros if none is out.
        """
        if not self.out:
            return 0, 0, 0
        pops = self._pops[self._head :]
        least = min(filter(None, pops))
        first_due = min(filter(None, self._dues[self._head :]))
        return least, self.committed + pops.index(least), first_due

    # Images

    def image(self, name: int, queue_id: int, group: str, topic: str) -> ImageEntry:
        """Return an entry with the whole state of the queue; `restored` turns it back."""
        pairs = zip(self._pops[self._head :], self._dues[self._head :], strict=True)
        runs = [
            ImageRun(sum(1 for _ in same), pop_ms, due) for (pop_ms, due), same in groupby(pairs)
        ]
        return ImageEntry(
            name,
            queue_id,
            group,
            topic,
            self.committed,
            self.last_pop_ms,
            self.is_orderly,
            self.batch_pop_ms,
            self.attempt_id,
            self._earlier,
            dict(sorted(self.counts.items())),
            sorted(self._moved),
            self._moved_floor,
            runs,
        )


def restored(entry: ImageEntry) -> QueueLeases | None:
    """Return the leases of an image; None if it has more than `MOST_SPAN` messages."""
    if sum(run.length for run in entry.runs) > MOST_SPAN:
        return None
    leases = QueueLeases(entry.committed, entry.last_pop_ms)
    pops, dues = leases._pops, leases._dues
    for run in entry.runs:
        pops.extend(_column_of(run.pop_ms, run.length))
        dues.extend(_column_of(run.due_ms, run.length))
        if run.due_ms:
            leases.out += run.length
    leases._moved = set(entry.moved)
    leases._moved_floor = entry.moved_floor
    leases._earlier = tuple(entry.earlier)
    leases.is_orderly = entry.is_orderly
    leases.batch_pop_ms = entry.batch_pop_ms
    leases.attempt_id = entry.attempt_id
    leases.counts = dict(entry.counts)
    leases._advance()
    return leases


def _column_of(number: int, count: int) -> "array[int]":
    return array("q", (number,)) * count
