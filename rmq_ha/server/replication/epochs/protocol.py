"""The two ends of a connection in controller mode, in their shells.

Spec: controller.md, chapter 7.
"""

from typing import Protocol as Interface

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure

from rmq_ha.base.errors import ReplicationError, StoreError
from rmq_ha.server.replication.epochs.feed import EpochFeed, Report
from rmq_ha.server.replication.epochs.replica import Cut, EpochReplica, Remember
from rmq_ha.server.replication.epochs.tables import Entry
from rmq_ha.server.replication.shell import FeedShell, ReplicaShell


class EpochFeedOwner(Interface):
    """What an `EpochFeedProtocol` tells whoever leads."""

    def greeted(self, connection: "EpochFeedProtocol", broker_id: int) -> None:
        """A slave said who it is."""

    def reported(self, connection: "EpochFeedProtocol", report: Report) -> None:
        """A slave said what it has, and may be believed."""

    def left(self, connection: "EpochFeedProtocol", why: str) -> None:
        """The connection counts no more; said once."""

    def gone(self, connection: "EpochFeedProtocol") -> None:
        """The socket is closed."""


class EpochFeedProtocol(FeedShell):
    """The master's end, around an `EpochFeed`."""

    feed: EpochFeed

    def __init__(self, feed: EpochFeed, owner: EpochFeedOwner, clock: IReactorTime) -> None:
        super().__init__(clock)
        self.feed = feed
        self._owner = owner

    def dataReceived(self, data: bytes) -> None:
        """What the slave says; what that frees for sending leaves before anybody hears of it."""
        if not self._is_open:
            return
        before = self.feed.slave
        try:
            reports = self.feed.receive_data(data, self._clock.seconds())
        except ReplicationError as error:
            self.close(str(error), error)
            return
        if before is None and self.feed.slave is not None:
            self._owner.greeted(self, self.feed.slave.broker_id)
        self.push()
        for report in reports:
            if self._is_open:
                self._owner.reported(self, report)

    def table_changed(self, entry: Entry) -> None:
        """The slave has to hear of it in time."""
        if self._is_open and self.feed.table_changed(entry, self._clock.seconds()):
            self.push()

    def left(self, error: ReplicationError | None, why: str) -> None:
        """As `FeedShell` says."""
        self._owner.left(self, why)

    def gone(self) -> None:
        """As `FeedShell` says."""
        self._owner.gone(self)


class EpochReplicaOwner(Interface):
    """What an `EpochReplicaProtocol` needs of whoever follows."""

    def fulfil(self, task: Cut | Remember) -> "Deferred[None]":
        """Do it, and have it on the disk; fails with `StoreError` or `OSError`."""

    def confirmed(self, offset: int) -> None:
        """What lies below may be read, as the master says; it follows from each step."""

    def lost(self, connection: "EpochReplicaProtocol", error: Exception | None, why: str) -> None:
        """The connection is over; `error`: we closed it because of that."""


class EpochReplicaProtocol(ReplicaShell):
    """The slave's end, around an `EpochReplica`."""

    replica: EpochReplica

    def __init__(
        self, replica: EpochReplica, owner: EpochReplicaOwner, clock: IReactorTime
    ) -> None:
        super().__init__(clock)
        self.replica = replica
        self._owner = owner
        self._is_busy = False

    def flushed(self) -> None:
        """More of our log is on the disk."""
        self.step(self.replica.flushed)

    def stepped(self) -> None:
        """Begin the task that the step brought about; nothing more is read before it is done."""
        if self.replica.is_following:
            self._owner.confirmed(self.replica.confirm_offset)
        task = self.replica.task
        if task is not None and not self._is_busy:
            self._is_busy = True
            self.transport.pauseProducing()
            self._owner.fulfil(task).addCallbacks(self._fulfilled, self._unfulfilled)

    def _fulfilled(self, _: None) -> None:
        self._is_busy = False
        if self._is_open:
            self.transport.resumeProducing()
            self.step(self.replica.done)

    def _unfulfilled(self, failure: Failure) -> None:
        self.fail(StoreError(failure.getErrorMessage()))

    def close(self) -> None:
        """As `ReplicaShell` says; a transport that reads nothing would not see the end."""
        if self._is_open:
            self.transport.resumeProducing()
        super().close()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """As `ReplicaShell` says."""
        self.replica.closed()
        super().connectionLost(reason)

    def lost(self, error: Exception | None, why: str) -> None:
        """As `ReplicaShell` says."""
        self._owner.lost(self, error, why)
