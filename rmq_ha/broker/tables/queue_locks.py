"""RebalanceLockManager: which client of a group consumes a queue in order.

Spec: remoting.md, section 7.3.
"""

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

Queue = TypeVar("Queue", bound=Hashable)

LOCK_MAX_LIVE_MS = 60_000


class RebalanceLockManager(Generic[Queue]):
    """
    Locks on message queues, by consumer group; in memory only.

    :param max_live_ms: a lock that was not renewed for this long may be taken by another client.
    """

    def __init__(self, max_live_ms: int = LOCK_MAX_LIVE_MS) -> None:
        self._max_live_ms = max_live_ms
        self._groups: dict[str, dict[Queue, tuple[str, int]]] = {}

    def lock_batch(
        self, group: str, queues: Iterable[Queue], client_id: str, now_ms: int
    ) -> list[Queue]:
        """
        Take or renew what is free, one's own or expired.

        :returns: those of `queues` that the client owns now, in their order.
        """
        table = self._groups.setdefault(group, {})
        owned: dict[Queue, None] = {}
        for queue in queues:
            held = table.get(queue)
            if held is None or held[0] == client_id or self._is_expired(held, now_ms):
                table[queue] = (client_id, now_ms)
                owned[queue] = None
        if not table:
            del self._groups[group]
        return list(owned)

    def unlock_batch(self, group: str, queues: Iterable[Queue], client_id: str) -> None:
        """Give up those of `queues` that the client owns; the others stay as they are."""
        table = self._groups.get(group)
        if table is None:
            return
        for queue in queues:
            held = table.get(queue)
            if held is not None and held[0] == client_id:
                del table[queue]
        if not table:
            del self._groups[group]

    def owner(self, group: str, queue: Queue, now_ms: int) -> str | None:
        """The client id that holds a live lock."""
        held = self._groups.get(group, {}).get(queue)
        return None if held is None or self._is_expired(held, now_ms) else held[0]

    def expire(self, now_ms: int) -> int:
        """
        Forget locks that anybody may take, so that departed groups cost no memory.

        :returns: how many.
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

    def _is_expired(self, held: tuple[str, int], now_ms: int) -> bool:
        return now_ms - held[1] > self._max_live_ms
