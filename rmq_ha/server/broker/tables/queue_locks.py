"""RebalanceLockManager: decides which client of a group consumes a queue in order.

Spec: remoting.md, section 7.3.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

Queue = TypeVar("Queue", bound=Hashable)

LOCK_MAX_LIVE_MS = 60_000
LOCK_ORPHAN_LIVE_MS = 30_000


@dataclass(slots=True)
class _HeldLock:
    """
    A lock on one queue.

    :ivar is_orphan: the connection that took or renewed the lock was closed.
    """

    client_id: str
    renewed_ms: int
    is_orphan: bool = False


class RebalanceLockManager(Generic[Queue]):
    """
    Locks on message queues by consumer group, in memory only.

    A client gives its locks up 30 s after it renewed them last, and then handles no further
    message. So others have to wait that long once its connection is closed, whether the client died
    or is only cut off. `now_ms` comes from a clock that nobody sets.

    :param max_live_ms: a lock that was not renewed for this long may be taken by another client.
    :param orphan_live_ms: the same for a lock whose client's connection was closed.
    """

    def __init__(
        self, max_live_ms: int = LOCK_MAX_LIVE_MS, orphan_live_ms: int = LOCK_ORPHAN_LIVE_MS
    ) -> None:
        self._max_live_ms = max_live_ms
        self._orphan_live_ms = min(orphan_live_ms, max_live_ms)
        self._groups: dict[str, dict[Queue, _HeldLock]] = {}

    def lock_batch(
        self, group: str, queues: Iterable[Queue], client_id: str, now_ms: int
    ) -> list[Queue]:
        """
        Take or renew locks that are free, expired, or the client's own.

        :returns: those of `queues` that the client owns now, in their order.
        """
        table = self._groups.setdefault(group, {})
        owned: dict[Queue, None] = {}
        for queue in queues:
            held = table.get(queue)
            if held is None or held.client_id == client_id or self._is_expired(held, now_ms):
                table[queue] = _HeldLock(client_id, now_ms)
                owned[queue] = None
        if not table:
            del self._groups[group]
        return list(owned)

    def unlock_batch(self, group: str, queues: Iterable[Queue], client_id: str) -> None:
        """Release those of `queues` that the client owns, and leave the others."""
        table = self._groups.get(group)
        if table is None:
            return
        for queue in queues:
            held = table.get(queue)
            if held is not None and held.client_id == client_id:
                del table[queue]
        if not table:
            del self._groups[group]

    def orphan(self, group: str, client_id: str) -> None:
        """
        Mark a client's locks after its connection was closed; renewing a lock removes the mark.
        """
        for held in self._groups.get(group, {}).values():
            if held.client_id == client_id:
                held.is_orphan = True

    def owner(self, group: str, queue: Queue, now_ms: int) -> str | None:
        """Return the client id that holds a live lock; None if there is none."""
        held = self._groups.get(group, {}).get(queue)
        return None if held is None or self._is_expired(held, now_ms) else held.client_id

    def expire(self, now_ms: int) -> int:
        """
        Forget expired locks, so that groups that are gone use no memory.

        :returns: number of locks.
        """
        dropped = 0
        for group, table in list(self._groups.items()):
            stale = [queue for queue, held in table.items() if self._is_expired(held, now_ms)]
            for queue in stale:
                del table[queue]
            dropped += len(stale)
            if not table:
                del self._groups[group]
        return dropped

    def _is_expired(self, held: _HeldLock, now_ms: int) -> bool:
        limit = self._orphan_live_ms if held.is_orphan else self._max_live_ms
        return now_ms - held.renewed_ms > limit
