"""What became of half messages in this life of the broker, and who is busy with one.

Memory knows of every half message from a place in the log on; `lookup` finds in the op queue what
became of those before it. Each transaction is settled by whoever claims its half message first.
"""

from enum import IntEnum
from typing import NamedTuple

from twisted.internet.defer import Deferred

from rmq_ha.base.store_format.commitlog import Record

WINDOW = 1 << 22
"""Half messages of a queue, a byte each, that memory knows of."""
COPIES = 1 << 16
"""Places of copies; what is forgotten is found in the half queue."""

_NOWHERE = 1 << 63


class Fate(IntEnum):
    """
    What the op messages say of a half message.

    :ivar MOVED: a copy took its place, or it was given up.
    :ivar ENDED: its producer committed it or rolled it back.
    """

    OPEN = 0
    MOVED = 1
    ENDED = 2


class HalfPlace(NamedTuple):
    queue_offset: int
    physical_offset: int


class _Queue:
    """The fates of one half queue."""

    def __init__(self, window: int, begins_at: int) -> None:
        self.window = window
        self.begins_at = begins_at
        self.start = 0
        self.fates = bytearray()
        self.known_from = 0

    def note(self, offset: int, fate: Fate) -> None:
        """Ended stays ended. What does not fit is forgotten, the oldest first."""
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
        """Nothing that was noted about this half message or a later one can be forgotten."""
        return self.start + len(self.fates) - offset <= self.window // 2

    def fate(self, offset: int) -> Fate:
        index = offset - self.start
        return Fate(self.fates[index]) if 0 <= index < len(self.fates) else Fate.OPEN


class Fates:
    """
    The fates of all half messages that were settled by this broker since it became master.

    :param window: half messages of a queue that are remembered at most.
    :ivar lives: how often this broker has begun to be the master.
    """

    def __init__(self, window: int = WINDOW) -> None:
        self._window = window
        self._queues: dict[int, _Queue] = {}
        self._copies: dict[tuple[int, int], HalfPlace] = {}
        self._claims: dict[tuple[int, int], list[Deferred[None]]] = {}
        self._begins_at = _NOWHERE
        self.lives = 0

    def begin(self, log_end: int) -> None:
        """Only this broker settles half messages from now on; what is older, others may have."""
        self._queues.clear()
        self._copies.clear()
        self._begins_at = log_end
        self.lives += 1

    def _queue(self, queue_id: int) -> _Queue:
        queue = self._queues.get(queue_id)
        if queue is None:
            queue = self._queues[queue_id] = _Queue(self._window, self._begins_at)
        return queue

    # ------------------------------------------------------------ what is known

    def knows(self, half: Record) -> bool:
        """Whether `of` is the whole truth about this one."""
        queue = self._queue(half.queue_id)
        return half.physical_offset >= queue.begins_at and half.queue_offset >= queue.known_from

    def knows_from(self, half: Record, life: int) -> None:
        """
        All that the op queue says of this half message and later ones is noted.

        :param life: of `lives`, when the first of it was: what another one noted is forgotten.
        """
        queue = self._queue(half.queue_id)
        if life == self.lives and queue.may_hold(half.queue_offset):
            queue.begins_at = min(queue.begins_at, half.physical_offset)
            queue.known_from = min(queue.known_from, half.queue_offset)

    def of(self, queue_id: int, queue_offset: int) -> Fate:
        """The fate of a half message that is known; open unless something was noted."""
        return self._queue(queue_id).fate(queue_offset)

    def copy_of(self, half: Record) -> HalfPlace | None:
        """Where the copy is that took the place of this one; None if that is forgotten."""
        return self._copies.get((half.queue_id, half.queue_offset))

    def note(self, queue_id: int, queue_offset: int, fate: Fate) -> None:
        """Something is in the log that settles this one."""
        if queue_offset >= 0:
            self._queue(queue_id).note(queue_offset, fate)

    def note_copy(self, half: Record, copy: HalfPlace) -> None:
        """A copy took the place of this one."""
        if len(self._copies) >= COPIES:
            del self._copies[next(iter(self._copies))]
        self._copies[half.queue_id, half.queue_offset] = copy

    # ------------------------------------------------------------ who is busy with it

    def claim(self, half: Record) -> "Deferred[None] | None":
        """
        Be the only one that settles this half message, until `release`.

        :returns: None when it is claimed; fires when it is worth trying again otherwise.
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
        """Somebody is about to settle it."""
        return (half.queue_id, half.queue_offset) in self._claims

    def release(self, half: Record) -> None:
        """Let those go on that wait for this one."""
        for waiting in self._claims.pop((half.queue_id, half.queue_offset)):
            waiting.callback(None)
