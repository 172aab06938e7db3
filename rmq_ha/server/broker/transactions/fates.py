"""Knows the fates of half messages since this broker is the master, and which of them are just
being settled.

Memory has the fate of every half message from some physical offset on; `lookup` finds the fates of
earlier ones in the op queue. The first that claims a half message settles its transaction.
"""

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from twisted.internet.defer import Deferred

from rmq_ha.base.store_format.commitlog import Record

WINDOW = 1 << 22
"""Half messages of a queue whose fate is in memory, a byte each."""
COPIES = 1 << 16
"""Places of copies in memory; forgotten ones are found again in the half queue."""

_NOWHERE = 1 << 63


class HalfMessageFate(IntEnum):
    """
    The fate of a half message by its op messages.

    :ivar OPEN: nobody has settled it.
    :ivar MOVED: a copy replaced it, or the broker gave it up.
    :ivar ENDED: its producer committed it or rolled it back.
    """

    OPEN = 0
    MOVED = 1
    ENDED = 2


class HalfPlace(NamedTuple):
    queue_offset: int
    physical_offset: int


class _HalfQueue:
    """The fates of one half queue."""

    def __init__(self, window: int, begins_at: int) -> None:
        self.window = window
        self.begins_at = begins_at
        self.start = 0
        self.fates = bytearray()
        self.known_from = 0

    def note(self, offset: int, fate: HalfMessageFate) -> None:
        """Note a fate; ENDED is never replaced. Without room the oldest fates are forgotten."""
        if not self.fates:
            self.start = offset
        index = offset - self.start
        if index < 0:
            if len(self.fates) - index > self.window:
                self.known_from = max(self.known_from, self.start)
                return
            self.fates[:0] = bytes(-index)
            self.start, index = offset, 0
        elif index >= self.window:
            self._forget(index + 1 - self.window // 2)
            index = offset - self.start
        if index >= len(self.fates):
            self.fates.extend(bytes(index + 1 - len(self.fates)))
        self.fates[index] = max(self.fates[index], fate)

    def _forget(self, count: int) -> None:
        del self.fates[:count]
        self.start += count
        self.known_from = self.start

    def may_hold(self, offset: int) -> bool:
        """
        Return whether all fates of this half message and later ones fit, so that none is forgotten.
        """
        return self.start + len(self.fates) - offset <= self.window // 2

    def open_from(self, low: int, high: int) -> tuple[int, int]:
        """
        Return how many half messages of a part of the queue are open, and the offset of the first;
        `high` if none is.
        """
        if low >= high:
            return 0, high
        start = min(max(self.start, low), high)
        end = max(start, min(self.start + len(self.fates), high))
        begin, stop = start - self.start, end - self.start
        count = (start - low) + self.fates.count(0, begin, stop) + (high - end)
        if start > low:
            return count, low
        first = self.fates.find(0, begin, stop)
        return count, end if first < 0 else self.start + first

    def open_offsets(self, low: int, high: int) -> Iterator[int]:
        """Yield the queue offsets of open half messages in a part of the queue."""
        start = min(max(self.start, low), high)
        end = max(start, min(self.start + len(self.fates), high))
        yield from range(low, start)
        at = self.fates.find(0, start - self.start, end - self.start)
        while at >= 0:
            yield self.start + at
            at = self.fates.find(0, at + 1, end - self.start)
        yield from range(end, high)

    def fate(self, offset: int) -> HalfMessageFate:
        index = offset - self.start
        return (
            HalfMessageFate(self.fates[index])
            if 0 <= index < len(self.fates)
            else HalfMessageFate.OPEN
        )


class Fates:
    """
    The fates of all half messages that this broker settled since it became the master.

    :param window: most half messages of a queue that are remembered.
    :ivar lives: how often this broker has become the master.
    """

    def __init__(self, window: int = WINDOW) -> None:
        self._window = window
        self._queues: dict[int, _HalfQueue] = {}
        self._copies: dict[tuple[int, int], HalfPlace] = {}
        self._claims: dict[tuple[int, int], list[Deferred[None]]] = {}
        self._begins_at = _NOWHERE
        self.lives = 0

    def begin(self, log_end: int) -> None:
        """
        Begin a life as the master.

        Only this broker settles half messages from now on; others may have settled older ones.
        """
        self._queues.clear()
        self._copies.clear()
        self._begins_at = log_end
        self.lives += 1

    def _queue(self, queue_id: int) -> _HalfQueue:
        queue = self._queues.get(queue_id)
        if queue is None:
            queue = self._queues[queue_id] = _HalfQueue(self._window, self._begins_at)
        return queue

    # ------------------------------------------------------------ what is known

    def knows(self, half: Record) -> bool:
        """Return whether `fate_of` is certain for this half message."""
        queue = self._queue(half.queue_id)
        return half.physical_offset >= queue.begins_at and half.queue_offset >= queue.known_from

    def knows_from(self, half: Record, life: int) -> None:
        """
        Take note that all op messages about this half message and later ones are noted.

        :param life: value of `lives` when the first of them was noted; those of another life are
            forgotten.
        """
        queue = self._queue(half.queue_id)
        if life == self.lives and queue.may_hold(half.queue_offset):
            queue.begins_at = min(queue.begins_at, half.physical_offset)
            queue.known_from = min(queue.known_from, half.queue_offset)

    def fate_of(self, queue_id: int, queue_offset: int) -> HalfMessageFate:
        """Return the fate of a known half message; OPEN unless another one was noted."""
        return self._queue(queue_id).fate(queue_offset)

    def open_from(self, queue_id: int, low: int, high: int) -> tuple[int, int]:
        """
        Return how many half messages from one queue offset to another are OPEN as far as memory
        knows, and the offset of the first of them; `high` if none is.
        """
        return self._queue(queue_id).open_from(low, high)

    def open_offsets(self, queue_id: int, low: int, high: int) -> Iterator[int]:
        """Yield the queue offsets that `open_from` counts; look at no more than are needed."""
        return self._queue(queue_id).open_offsets(low, high)

    def copy_of(self, half: Record) -> HalfPlace | None:
        """
        Return the place of the copy that replaced this half message; None if it is not in memory.
        """
        return self._copies.get((half.queue_id, half.queue_offset))

    def note(self, queue_id: int, queue_offset: int, fate: HalfMessageFate) -> None:
        """Note the fate of a half message, after the log has the messages that settle it."""
        if queue_offset >= 0:
            self._queue(queue_id).note(queue_offset, fate)

    def note_copy(self, half: Record, copy: HalfPlace) -> None:
        """Note the copy that replaced this half message."""
        if len(self._copies) >= COPIES:
            del self._copies[next(iter(self._copies))]
        self._copies[half.queue_id, half.queue_offset] = copy

    # ------------------------------------------------------------ claims

    def claim(self, half: Record) -> "Deferred[None] | None":
        """
        Claim a half message, so that nobody else settles it until `release`.

        :returns: None if it is claimed now; else a Deferred that fires when it is worth trying
            again.
        """
        key = half.queue_id, half.queue_offset
        waiting = self._claims.get(key)
        if waiting is None:
            self._claims[key] = []
            return None
        later: Deferred[None] = Deferred()
        waiting.append(later)
        return later

    def is_claimed(self, half: Record) -> bool:
        """Return whether the half message is just being settled."""
        return (half.queue_id, half.queue_offset) in self._claims

    def release(self, half: Record) -> None:
        """End a claim, and let those try again that wait for it."""
        for waiting in self._claims.pop((half.queue_id, half.queue_offset)):
            waiting.callback(None)
