"""ProcessQueue: the pulled messages of one queue that are not consumed yet, and flow control.

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
    How much of one queue may be cached before pulling stops.

    :ivar messages: how many messages.
    :ivar size: how many bytes their bodies have.
    :ivar span: the largest difference between their queue offsets; 0 for no limit.
    """

    messages: int = 1000
    size: int = 100 << 20
    span: int = 2000


class ProcessQueue:
    """
    The cached messages of one queue. They leave it in any order. The offset to commit only grows,
    except after `go_on_at`.

    :ivar dropped: whether this member has lost the queue; results of calls with its messages are
        then ignored.
    :ivar locked: whether the broker has promised that no other member consumes the queue (orderly).
    :ivar last_pull_ms: when the queue was last pulled, in ms of a steady clock.
    :ivar last_consume_ms: when a call with its messages last began, in ms of the same clock.
    :ivar last_lock_ms: when the broker last confirmed the lock, in ms of the same clock.
    :ivar size: bytes of the cached bodies.
    :ivar max_offset: the offset after the queue's last message at the last pull; 0 if not known.
    """

    def __init__(self, now_ms: int = 0) -> None:
        self.dropped = False
        self.locked = False
        self.last_pull_ms = self.last_consume_ms = self.last_lock_ms = now_ms
        self.size = 0
        self.max_offset = 0
        self._end = 0  # one more than the highest offset that was ever put
        self._messages: dict[int, MessageExt] = {}
        self._order: deque[int] = deque()  # offsets, those of removed messages among them
        self._taken: dict[int, MessageExt] = {}  # orderly: taken, not committed yet

    @property
    def count(self) -> int:
        """How many messages are pulled and not consumed, including those with the listener."""
        return len(self._messages) + len(self._taken)

    @property
    def span(self) -> int:
        """The difference between the offsets of the last and the first waiting message."""
        first = self._first_offset()
        return 0 if first is None else self._order[-1] - first

    def put(self, messages: Iterable[MessageExt]) -> list[MessageExt]:
        """
        Add the messages of a pull.

        :returns: the messages that were not in the cache already.
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
        Take consumed messages out.

        :returns: the offset to commit, below which all messages are consumed; -1 if the cache was
            empty.
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
        Go on at an offset, which may be lower, as the queue does not have the next offset.

        Cached messages are still consumed, but the end for `remove` is now this offset.
        """
        self._end = offset

    # Orderly

    def take(self, count: int) -> list[MessageExt]:
        """Take the next messages for the listener; they stay taken until commit or rollback."""
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
        Note that all taken messages are consumed.

        :returns: the offset to commit; -1 if no message was taken.
        """
        if not self._taken:
            return -1
        offset = max(self._taken) + 1
        self.size -= sum([len(message.body) for message in self._taken.values()])
        self._taken.clear()
        return offset

    def rollback(self) -> None:
        """Let all taken messages wait again, before the others."""
        self.give_back(list(self._taken.values()))

    def give_back(self, messages: Sequence[MessageExt]) -> None:
        """Let some taken messages wait again, before the others."""
        for message in messages:
            if self._taken.pop(message.queue_offset, None) is not None:
                self._insert(message.queue_offset, message)

    @property
    def has_taken(self) -> bool:
        """Whether messages are with the listener, or were and are not committed yet."""
        return bool(self._taken)

    # Judgements

    def is_full(self, limits: FlowLimits) -> str | None:
        """Return the reason why nothing should be pulled now; None if there is room."""
        if self.count > limits.messages:
            return f"{self.count} messages are cached"
        if self.size > limits.size:
            return f"{self.size >> 20} MiB are cached"
        if limits.span and self.span > limits.span:
            return f"the cached messages span {self.span} offsets"
        return None

    def is_pull_expired(self, now_ms: int) -> bool:
        """Whether the queue was not pulled for two minutes, so that its loop must be broken."""
        return now_ms - self.last_pull_ms > PULL_EXPIRED_MS

    def is_lock_expired(self, now_ms: int) -> bool:
        """
        Whether the lock was not renewed for so long that the broker may have given it to another
        member.
        """
        return now_ms - self.last_lock_ms > LOCK_EXPIRED_MS

    def first_waiting(self) -> MessageExt | None:
        """Return the waiting message with the lowest offset."""
        first = self._first_offset()
        return None if first is None else self._messages[first]

    def info(
        self, commit_offset: int, try_unlock_times: int = 0, epoch_ms: int = 0
    ) -> dict[str, Any]:
        """
        Return the fields of a ProcessQueueInfo, as operators see it (spec: B13).

        :param epoch_ms: when the steady clock began, in ms since the epoch.
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
        # Offsets of removed messages stay in the deque until they are at one of its ends. Taking
        # them out of the middle would cost a walk for each consumed message.
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
