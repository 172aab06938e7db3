"""Decides when sends are refused with SYSTEM_BUSY, so that accepted sends are answered in time.

Requests do not queue for threads here. Puts queue for flush and replication, and requests queue in
the sockets while a turn of the reactor lasts. Both are measured.

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
    The parts of a store that tell how busy it is.

    :ivar slow_until: time in seconds until which appends may take too long; 0 if they do not.
    :ivar statistics: counts the messages that are appended and wait for flush or replication.
    :ivar turns: the durations of the reactor's turns.
    """

    slow_until: float
    statistics: StoreStatistics
    turns: TurnWatch

    def is_page_cache_busy(self) -> bool:
        """Return whether appends take too long."""

    def waited_ms(self, sender: Hashable, sends: int) -> int:
        """
        Return for how many ms sends of this turn may have waited in their socket.

        :param sends: number of this sender's sends, to be counted; 0: count none.
        """


class SendOverload:
    """
    Decides before anything else whether a send, or a message that a consumer sends back, is
    refused.

    `osPageCacheBusyTimeOutMills`, `sendThreadPoolQueueCapacity`, `waitTimeMillsInSendQueue` and
    `brokerFastFailureEnable` have the same meaning as in RocketMQ.
    """

    def __init__(self, config: BrokerConfig, store: LoadedStore) -> None:
        self._config = config
        self._store = store

    def reason(self, sender: Hashable, sends: int = 1) -> str | None:
        """
        Return why a send is refused now; None if it is accepted.

        :param sender: its connection. A connection that sends one message, and waits for its
            answer, has never waited too long in its socket.
        :param sends: number of its sends in this turn, to be counted; 0: count none.
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
        """
        Refuse a send if the broker is overloaded.

        :raises RequestRejected: sends of this connection are refused now.
        """
        reason = self.reason(sender)
        if reason is not None:
            raise RequestRejected(ResponseCode.SYSTEM_BUSY, reason)
