"""A slave's connection to its master: the part that is the same in both dialects."""

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmq_ha.base.seams import Host
from rmq_ha.base.timing.masterless_time import MasterlessTime
from rmq_ha.base.timing.timer import rearm
from rmq_ha.server.replication.connector import MasterConnector
from rmq_ha.server.replication.protocol import ReplicaProtocol

R = TypeVar("R", bound=Any)


class MasterLink(ABC, Generic[R]):
    """
    Keeps up one connection at a time, from `start` to `stop`.

    The dialects differ in how they learn the master's address, in how they treat a log that is not
    the master's, and in how long they wait. A pair's slave whose master is gone has no other
    master; a slave in controller mode is soon told of one.

    :param connector: opens the connections.
    :ivar connection: the connection to the master; None while there is none.
    """

    log = Logger()

    def __init__(self, host: Host, connector: MasterConnector) -> None:
        self.connection: ReplicaProtocol[R] | None = None
        self._host = host
        self._connector = connector
        self._attempt: Deferred[Any] | None = None
        self._task: Deferred[Any] | None = None
        self._timer: IDelayedCall | None = None
        self._is_running = False
        self._gone: Deferred[None] | None = None
        self._last_reason = ""
        self._alone = MasterlessTime(host.clock, self._tell_alone)

    @abstractmethod
    def _open(self) -> "Deferred[Any]":
        """Find the master and connect; fires with the protocol."""

    @abstractmethod
    def _failed(self, failure: Failure) -> None:
        """Take a failure of `_open`: set `_attempt` to None, and connect again later."""

    @abstractmethod
    def _come_back(self, connection: ReplicaProtocol[R], error: Exception | None, why: str) -> None:
        """Decide when to connect again, since a connection is over while this link runs."""

    @abstractmethod
    def _tell_alone(self) -> None:
        """Log that no master has been followed for a minute."""

    def start(self) -> None:
        """Connect as soon as an address is known."""
        self._is_running = True
        self._alone.begin()
        self._connect()

    def stop(self) -> "Deferred[None]":
        """
        Stop. Fires when the connection is closed, and nothing is done to this slave's log any more.
        """
        self._is_running = False
        self._alone.end()
        self._timer = rearm(self._host.clock, self._timer, None, self._connect)
        if self._attempt is not None:
            self._attempt.cancel()
        done: Deferred[None] = Deferred()
        self._gone = done
        if self.connection is not None:
            self.connection.close()
        self._see_whether_gone()
        return done

    def _see_whether_gone(self) -> None:
        if self._gone is not None and self.connection is None and self._task is None:
            gone, self._gone = self._gone, None
            gone.callback(None)

    def _connect(self) -> None:
        self._attempt = self._open()
        self._attempt.addCallbacks(self._connected, self._failed)

    def _connected(self, connection: ReplicaProtocol[R]) -> None:
        self._attempt = None
        if connection.is_lost:
            return  # `lost` was told, and has set the timer
        self.connection = connection
        if not self._is_running:
            connection.close()

    def _connect_after(self, seconds: float) -> None:
        clock = self._host.clock
        self._timer = rearm(clock, self._timer, clock.seconds() + seconds, self._connect)

    def lost(self, connection: ReplicaProtocol[R], error: Exception | None, why: str) -> None:
        self.connection = None
        if self._is_running:
            self._alone.begin()
            self._come_back(connection, error, why)
        self._see_whether_gone()

    def _run_task(self, task: "Deferred[Any]") -> "Deferred[Any]":
        """Run a task on this slave's log; `stop` waits for it."""
        self._task = task
        return task.addBoth(self._task_done)

    def _task_done(self, result: Any) -> Any:
        self._task = None
        self._see_whether_gone()
        return result
