"""Locks of ordered consumers on their queues: codes 41 and 42.

Spec: remoting.md, section 7.3.
"""

from collections import Counter
from collections.abc import Callable

from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.wire.bodies import LockBatch, LockedQueues, MessageQueue
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.broker.frame_limits import QUEUES, FrameLimits
from rmq_ha.server.broker.processors.fields import Handler
from rmq_ha.server.broker.tables.queue_locks import RebalanceLockManager

_MOST_LOCKERS = 1024
"""
How many pairs of group and client id are remembered of one connection. Their locks end soon after
the connection is closed; locks of further pairs end only after `lockMaxLiveTime`.
"""


class LockProcessor:
    """
    Gives queues to one client of a group at a time.

    :param steady_ms: returns the ms of a clock that nobody sets.
    """

    def __init__(
        self,
        *,
        queue_locks: "RebalanceLockManager[MessageQueue]",
        limits: FrameLimits,
        steady_ms: Callable[[], int],
    ) -> None:
        self._limits = limits
        self._queue_locks = queue_locks
        self._steady_ms = steady_ms
        self._lockers: dict[Channel, set[tuple[str, str]]] = {}
        self._connections: Counter[tuple[str, str]] = Counter()

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.LOCK_BATCH_MQ: self.lock_batch,
            RequestCode.UNLOCK_BATCH_MQ: self.unlock_batch,
        }

    def lock_batch(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer LOCK_BATCH_MQ (41) with the queues that the client owns now."""
        batch = self._read(request)
        owned = self._queue_locks.lock_batch(
            batch.consumer_group, batch.queues, batch.client_id, self._steady_ms()
        )
        if owned:
            self._note(channel, batch.consumer_group, batch.client_id)
        return request.response(body=LockedQueues(owned).encode())

    def unlock_batch(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer UNLOCK_BATCH_MQ (42): unlock only queues that the client owns."""
        batch = self._read(request)
        self._queue_locks.unlock_batch(batch.consumer_group, batch.queues, batch.client_id)
        return request.response()

    def _read(self, request: RemotingCommand) -> LockBatch:
        batch = request.read(LockBatch.decode)
        self._limits.check(QUEUES, len(batch.queues))
        return batch

    def _note(self, channel: Channel, group: str, client_id: str) -> None:
        """
        Note the connection by which a client took or renewed locks. The locks end soon after the
        client's last such connection is closed.
        """
        lockers = self._lockers.get(channel)
        if lockers is None:
            self._lockers[channel] = lockers = set()
            channel.on_close(self._closed)
        locker = (group, client_id)
        if locker not in lockers and len(lockers) < _MOST_LOCKERS:
            lockers.add(locker)
            self._connections[locker] += 1

    def _closed(self, channel: Channel) -> None:
        connections = self._connections
        for locker in self._lockers.pop(channel, ()):
            connections[locker] -= 1
            if not connections[locker]:
                del connections[locker]
                self._queue_locks.orphan(*locker)
