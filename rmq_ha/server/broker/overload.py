"""When sends are refused with SYSTEM_BUSY, so that those that are taken are answered in time.

Requests do not queue for threads here. What queues are puts that wait for flush and replica, and
requests in the sockets while a turn of the reactor lasts; both are measured.

Spec: remoting.md, section 1.8.
"""

from collections.abc import Hashable
from typing import Protocol

from rmq_ha.base.config.broker import BrokerConfig
from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.server.store.statistics import StoreStatistics
from rmq_ha.server.store.turns import TurnWatch


class LoadedStore(Protocol):
    """
    What tells how busy a store is; a send reads what whoever changes it has left here.

    :ivar slow_until: appends take too long, perhaps until then; 0: they do not.
    :ivar statistics: messages that are appended and wait for flush or replica are counted there.
    :ivar turns: how long the reactor's took.
    """

    slow_until: float
    statistics: StoreStatistics
    turns: TurnWatch

    def is_page_cache_busy(self) -> bool:
        """Appends take too long."""

    def waited_ms(self, sender: Hashable, sends: int) -> int:
        """
        How long sends that are handled now may have waited in their socket.

        :param sends: how many this sender brings, to be counted; 0 only asks.
        """


class SendOverload:
    """
    Decides before anything else about a send, a consumer's giving back included.

    `osPageCacheBusyTimeOutMills`, `sendThreadPoolQueueCapacity`, `waitTimeMillsInSendQueue` and
    `brokerFastFailureEnable` have the meaning that RocketMQ gives them.
    """

    def __init__(self, config: BrokerConfig, store: LoadedStore) -> None:
        self._config = config
        self._store = store

    def reason(self, sender: Hashable, sends: int = 1) -> str | None:
        """
        Why a send is refused now; None: it is not.

        :param sender: its connection: one that waits for each answer has never waited too long.
        :param sends: how many it brings; 0 only asks.
        """
        store, config = self._store, self._config
        if store.slow_until and store.is_page_cache_busy():
            return "[REJECTREQUEST]system busy, start flow control for a while: the disk is slow"
        waiting = store.statistics.outcomes.waiting
        if waiting >= config.send_thread_pool_queue_capacity:
            return (
                f"[OVERLOAD]system busy, start flow control for a while: {waiting} "
                "messages wait for flush or replica (sendThreadPoolQueueCapacity)"
            )
        if config.broker_fast_failure_enable and (sends or store.turns.shortest):
            waited = store.waited_ms(sender, sends)
            if waited > config.wait_time_mills_in_send_queue:
                return (
                    "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in "
                    f"queue: {waited}ms, size of queue: {waiting}"
                )
        return None

    def check(self, sender: Hashable) -> None:
        """:raises RequestRejected: sends of this connection are refused now."""
        reason = self.reason(sender)
        if reason is not None:
            raise RequestRejected(ResponseCode.SYSTEM_BUSY, reason)
