"""Shells around the two halves of a connection in controller mode: a socket and one timer each.

Spec: controller.md, chapter 7.
"""

from collections.abc import Callable
from typing import Protocol as Interface

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IPushProducer, IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from rmq_ha.autoswitch.feed import EpochFeed, Report
from rmq_ha.autoswitch.replica import Cut, EpochReplica, Remember
from rmq_ha.autoswitch.tables import Entry
from rmq_ha.errors import ReplicationError, StoreError
from rmq_ha.ha.protocol import (
    CLOSE_SECONDS,
    FRAMES_PER_TURN,
    ITransport,
    address_text,
    prepare,
    reason_text,
)
from rmq_ha.timing.timer import LastTurn, rearm


class EpochFeedOwner(Interface):
    """What an `EpochFeedProtocol` tells whoever leads."""

    def greeted(self, connection: "EpochFeedProtocol", broker_id: int) -> None:
        """A slave said who it is."""

    def reported(self, connection: "EpochFeedProtocol", report: Report) -> None:
        """A slave said what it has, and may be believed."""

    def left(self, connection: "EpochFeedProtocol", why: str) -> None:
        """The connection counts no more; said once."""


@implementer(IPushProducer)
class EpochFeedProtocol(Protocol):
    """
    The master's end, around an `EpochFeed`.

    :ivar peer: `host:port` of the slave.
    """

    log = Logger()
    transport: ITransport

    def __init__(self, feed: EpochFeed, owner: EpochFeedOwner, clock: IReactorTime) -> None:
        self.feed = feed
        self.peer = ""
        self._owner = owner
        self._clock = clock
        self._timer: IDelayedCall | None = None
        self._last_turn = LastTurn()
        self._is_open = True

    def connectionMade(self) -> None:
        """A peer that says nothing is dropped in time."""
        self.peer = address_text(self.transport.getPeer())
        prepare(self.transport)
        self.transport.registerProducer(self, True)
        self.push()

    def dataReceived(self, data: bytes) -> None:
        """What the slave says; what that frees for sending leaves before anybody hears of it."""
        if not self._is_open:
            return
        before = self.feed.slave
        try:
            reports = self.feed.receive_data(data, self._clock.seconds())
        except ReplicationError as error:
            self.close(str(error))
            return
        if before is None and self.feed.slave is not None:
            self._owner.greeted(self, self.feed.slave.broker_id)
        self.push()
        for report in reports:
            if self._is_open:
                self._owner.reported(self, report)

    def push(self) -> None:
        """Send what there is to send, and see to the timer."""
        if not self._is_open:
            return
        try:
            deadline = self._send(self._clock.seconds())
        except (OSError, StoreError) as error:
            self.log.failure("cannot read the log for slave {peer}", peer=self.peer)
            self.close(f"our log cannot be read: {error}")
            return
        except ReplicationError as error:
            self.close(str(error))
            return
        if self._is_open:
            self._timer = rearm(self._clock, self._timer, deadline, self._on_time)

    def table_changed(self, entry: Entry) -> None:
        """The slave has to hear of it in time."""
        if self._is_open and self.feed.table_changed(entry, self._clock.seconds()):
            self.push()

    def _send(self, now: float) -> float:
        """Write what may be written; returns when to look again."""
        for _ in range(FRAMES_PER_TURN):
            frame = self.feed.next_frame(now)
            if not frame:
                return self.feed.deadline()
            self.transport.write(frame)
        return now

    def _on_time(self) -> None:
        try:
            self.feed.on_time(self._clock.seconds())
        except ReplicationError as error:
            self._timer = self._last_turn.again(self._clock, self._on_time)
            if self._timer is None:
                self.close(str(error))
        else:
            self._last_turn.reset()
            self.push()

    def pauseProducing(self) -> None:
        """The transport holds more than it likes."""
        self.feed.pause()

    def resumeProducing(self) -> None:
        """The transport is empty."""
        self.feed.resume()
        self.push()

    def stopProducing(self) -> None:
        """The connection is being lost; connectionLost follows."""

    def close(self, why: str) -> None:
        """Leave; what was written may still go out for a moment."""
        if self._is_open:
            self._leave(why)
            self.transport.unregisterProducer()
            self.transport.loseConnection()
            self._timer = self._clock.callLater(CLOSE_SECONDS, self.transport.abortConnection)

    def _leave(self, why: str) -> None:
        self._is_open = False
        self._timer = rearm(self._clock, self._timer, None, self._on_time)
        self._owner.left(self, why)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Whatever the reason, the owner hears of it once."""
        if self._is_open:
            self._leave(reason_text(reason))
        self._timer = rearm(self._clock, self._timer, None, self._on_time)


class IReplicaTransport(ITransport, IPushProducer):
    """What a slave's end needs besides: that nothing more is read for a while."""


class EpochReplicaOwner(Interface):
    """What an `EpochReplicaProtocol` needs of whoever follows."""

    def fulfil(self, task: Cut | Remember) -> "Deferred[None]":
        """Do it, and have it on the disk; fails with `StoreError` or `OSError`."""

    def confirmed(self, offset: int) -> None:
        """What lies below may be read, as the master says; it follows from each step."""

    def lost(self, connection: "EpochReplicaProtocol", error: Exception | None, why: str) -> None:
        """The connection is over; `error`: we closed it because of that."""


class EpochReplicaProtocol(Protocol):
    """
    The slave's end, around an `EpochReplica`.

    :ivar is_lost: the owner was told that it is over.
    """

    transport: IReplicaTransport

    def __init__(
        self, replica: EpochReplica, owner: EpochReplicaOwner, clock: IReactorTime
    ) -> None:
        self.replica = replica
        self._owner = owner
        self._clock = clock
        self._timer: IDelayedCall | None = None
        self._last_turn = LastTurn()
        self._error: Exception | None = None
        self._is_busy = False
        self._is_open = True
        self.is_lost = False

    def connectionMade(self) -> None:
        """Say who we are at once."""
        prepare(self.transport)
        self._step(self.replica.connected)

    def dataReceived(self, data: bytes) -> None:
        """What the master says."""
        self._step(self.replica.receive_data, data)

    def _on_time(self) -> None:
        if self.replica.is_overdue(self._clock.seconds()):
            self._timer = self._last_turn.again(self._clock, self._on_time)
            if self._timer is not None:
                return
        else:
            self._last_turn.reset()
        self._step(self.replica.on_time)

    def _step(self, step: Callable[..., bytes], *args: bytes) -> None:
        """Run one step of the core, send its answer, begin the task that it brings about."""
        if not self._is_open:
            return
        try:
            answer = step(*args, self._clock.seconds())
        except (ReplicationError, StoreError) as error:
            self._fail(error)
            return
        if answer:
            self.transport.write(answer)
        if self.replica.is_following:
            self._owner.confirmed(self.replica.confirm_offset)
        task = self.replica.task
        if task is not None and not self._is_busy:
            self._is_busy = True
            self.transport.pauseProducing()
            self._owner.fulfil(task).addCallbacks(self._fulfilled, self._unfulfilled)
        if self._is_open:
            self._timer = rearm(self._clock, self._timer, self.replica.deadline(), self._on_time)

    def _fulfilled(self, _: None) -> None:
        self._is_busy = False
        if self._is_open:
            self.transport.resumeProducing()
            self._step(self.replica.done)

    def _unfulfilled(self, failure: Failure) -> None:
        self._is_busy = False
        self._fail(StoreError(failure.getErrorMessage()))

    def _fail(self, error: Exception) -> None:
        if self._is_open:
            self._error = error
            self.close()

    def close(self) -> None:
        """Leave; our last report may still go out for a moment."""
        if self._is_open:
            self._is_open = False
            self.transport.resumeProducing()
            self.transport.loseConnection()
            self._timer = rearm(self._clock, self._timer, None, self._on_time)
            self._timer = self._clock.callLater(CLOSE_SECONDS, self.transport.abortConnection)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The owner decides when to come back."""
        self._is_open = False
        self.is_lost = True
        self.replica.closed()
        self._timer = rearm(self._clock, self._timer, None, self._on_time)
        self._owner.lost(self, self._error, str(self._error or reason_text(reason)))
