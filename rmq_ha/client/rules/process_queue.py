"""ProcessQueue: what was pulled of one queue and is not consumed yet, and when to pull no more.

Spec: remoting.md, sections 11.4 and 11.5.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rmq_ha.client.rules.messages import MessageExt

PULL_EXPIRED_MS = 120_000
LOCK_EXPIRED_MS = 30_000


@dataclass(frozen=True)
class FlowLimits:
    """
    When a queue holds enough.

    :ivar messages: cached ones.
    :ivar size: of their bodies, bytes.
    :ivar span: between the first and the last queue offset of them; 0: any.
    """

    messages: int = 1000
    size: int = 100 << 20
    span: int = 2000


class ProcessQueue:
    """
    The cache of one queue; messages leave it in any order, the offset to commit only grows.

    :ivar dropped: this member lost the queue: what is still running here counts no more.
    :ivar locked: the broker promised that no other member consumes it (orderly).
    :ivar last_pull_ms: when it was last asked for, ms of a clock that nobody sets.
    :ivar last_consume_ms: when the listener last had something of it, of the same clock.
    :ivar last_lock_ms: when the broker last confirmed the lock, of the same clock.
    :ivar size: bytes of the cached bodies.
    :ivar max_offset: of the queue as of the last pull, exclusive; 0 unknown.
    """

    def __init__(self, now_ms: int = 0) -> None:
        self.dropped = False
        self.locked = False
        self.last_pull_ms = self.last_consume_ms = self.last_lock_ms = now_ms
        self.size = 0
        self.max_offset = 0
        self._end = 0  # behind the highest offset that was ever put
        self._messages: dict[int, MessageExt] = {}
        self._order: deque[int] = deque()  # offsets, those of removed messages among them
        self._taken: dict[int, MessageExt] = {}  # orderly: with the listener, not committed

    @property
    def count(self) -> int:
        """Messages that are pulled and not consumed; those with the listener among them."""
        return len(self._messages) + len(self._taken)

    @property
    def span(self) -> int:
        """From the first to the last message that waits."""
        first = self._first_offset()
        return 0 if first is None else self._order[-1] - first

    def put(self, messages: Iterable[MessageExt]) -> list[MessageExt]:
        """
        Add what a pull found.

        :returns: those that were not there already.
        """
        added = []
        for message in messages:
            offset = message.queue_offset
            if offset in self._messages or offset in self._taken:
                continue
            self._insert(offset, message)
            self.size += len(message.body)
            if offset >= self._end:
                self._end = offset + 1
            added.append(message)
        return added

    def remove(self, messages: Iterable[MessageExt]) -> int:
        """
        Take out what is consumed.

        :returns: the offset to commit, everything below it is consumed; -1: it was empty.
        """
        if not self._messages:
            return -1
        for message in messages:
            if self._messages.pop(message.queue_offset, None) is not None:
                self.size -= len(message.body)
        first = self._first_offset()
        return self._end if first is None else first

    def go_on_at(self, offset: int) -> None:
        """
        The queue does not have what was to come next, but goes on here, which may be lower.

        What is cached is still consumed, but says no more how far the queue is.
        """
        self._end = offset

    # Orderly

    def take(self, count: int) -> list[MessageExt]:
        """The next messages, which are now with the listener until commit or rollback."""
        taken: list[MessageExt] = []
        while len(taken) < count:
            first = self._first_offset()
            if first is None:
                break
            message = self._taken[first] = self._messages.pop(first)
            taken.append(message)
        return taken

    def commit(self) -> int:
        """
        What was taken is consumed.

        :returns: the offset to commit; -1: nothing was taken.
        """
        if not self._taken:
            return -1
        offset = max(self._taken) + 1
        self.size -= sum([len(message.body) for message in self._taken.values()])
        self._taken.clear()
        return offset

    def rollback(self) -> None:
        """What was taken waits again, before the rest."""
        self.give_back(list(self._taken.values()))

    def give_back(self, messages: Sequence[MessageExt]) -> None:
        """Some of what was taken waits again, before the rest."""
        for message in messages:
            if self._taken.pop(message.queue_offset, None) is not None:
                self._insert(message.queue_offset, message)

    @property
    def has_taken(self) -> bool:
        """Messages are with the listener, or were and are not committed."""
        return bool(self._taken)

    # Judgements

    def is_full(self, limits: FlowLimits) -> str | None:
        """Why nothing should be pulled now, or None."""
        if self.count > limits.messages:
            return f"{self.count} messages are cached"
        if self.size > limits.size:
            return f"{self.size >> 20} MiB are cached"
        if limits.span and self.span > limits.span:
            return f"the cached messages span {self.span} offsets"
        return None

    def is_pull_expired(self, now_ms: int) -> bool:
        """Nothing asked for it for two minutes: something is broken."""
        return now_ms - self.last_pull_ms > PULL_EXPIRED_MS

    def is_lock_expired(self, now_ms: int) -> bool:
        """The lock was not renewed for so long that the broker may have given it to another."""
        return now_ms - self.last_lock_ms > LOCK_EXPIRED_MS

    def first_waiting(self) -> MessageExt | None:
        """The message with the lowest offset."""
        first = self._first_offset()
        return None if first is None else self._messages[first]

    def info(
        self, commit_offset: int, try_unlock_times: int = 0, epoch_ms: int = 0
    ) -> dict[str, Any]:
        """
        ProcessQueueInfo, as operators see it (B13).

        :param epoch_ms: the time of day when the clock of our stamps began.
        """
        first = self._first_offset()
        taken = self._taken
        return {
            "cachedMsgCount": len(self._messages),
            "cachedMsgMaxOffset": self._order[-1] if first is not None else 0,
            "cachedMsgMinOffset": first or 0,
            "cachedMsgSizeInMiB": self.size >> 20,
            "commitOffset": commit_offset,
            "droped": self.dropped,
            "lastConsumeTimestamp": epoch_ms + self.last_consume_ms,
            "lastLockTimestamp": epoch_ms + self.last_lock_ms,
            "lastPullTimestamp": epoch_ms + self.last_pull_ms,
            "locked": self.locked,
            "transactionMsgCount": len(taken),
            "transactionMsgMaxOffset": max(taken, default=0),
            "transactionMsgMinOffset": min(taken, default=0),
            "tryUnlockTimes": try_unlock_times,
        }

    def _first_offset(self) -> int | None:
        order, messages = self._order, self._messages
        while order and order[0] not in messages:
            order.popleft()
        if not order:
            return None
        while order[-1] not in messages:
            order.pop()
        return order[0]

    def _insert(self, offset: int, message: MessageExt) -> None:
        order = self._order
        self._messages[offset] = message
        if not order or offset > order[-1]:
            order.append(offset)
        elif offset < order[0]:
            order.appendleft(offset)
        else:
            rest = sorted({*order, offset} & self._messages.keys())
            order.clear()
            order.extend(rest)
