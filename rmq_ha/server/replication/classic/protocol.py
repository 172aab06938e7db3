"""The two ends of a 4.9 replication connection, in their shells. Spec: ha.md."""

from enum import Enum
from typing import Any
from typing import Protocol as Interface

from twisted.internet.interfaces import IReactorTime
from twisted.internet.tcp import Connection

from rmq_ha.base.errors import ReplicationError, StoreError
from rmq_ha.base.tls.transport import TlsTransport
from rmq_ha.server.replication.classic.feed import Feed
from rmq_ha.server.replication.classic.replica import Replica, ReplicaStage
from rmq_ha.server.replication.shell import FeedShell, ReplicaShell
from rmq_ha.server.replication.statistics import STRANDED, SlaveStatistics

READ_SIZE = 1 << 18
"""A slave reads in chunks of this many bytes; measured: 64 KiB and 1 MiB are slower by half."""

TLS_HELLO = b"\x16\x03"
SPEAKS_TLS = "it speaks TLS, and tls.ha.mode=disabled"


class Stage(Enum):
    """How far a slave has come, for those who look at it."""

    NEW = "connected"
    CATCHING_UP = "catching up"
    CAUGHT_UP = "caught up"
    STRANDED = STRANDED


class FeedOwner(Interface):
    """What a FeedProtocol tells the service."""

    def met(self, connection: "FeedProtocol") -> None:
        """Somebody is there; nothing was said yet."""

    def compared(self, connection: "FeedProtocol") -> None:
        """A slave of ours said what it has: it is known what the two logs have in common."""

    def reported(self, connection: "FeedProtocol", now: float) -> None:
        """A complete report came and was believed; `now`: by the clock."""

    def left(self, connection: "FeedProtocol", error: ReplicationError | None, why: str) -> None:
        """The connection does not count any more; `error`: we closed it because of that."""

    def gone(self, connection: "FeedProtocol") -> None:
        """The socket is closed."""


class FeedProtocol(FeedShell):
    """The master's end, around a `Feed`."""

    feed: Feed

    def __init__(self, feed: Feed, owner: FeedOwner, clock: IReactorTime) -> None:
        super().__init__(clock)
        self.feed = feed
        self.stage = Stage.NEW
        self._has_heard = False
        self._owner = owner

    def met(self) -> None:
        """As `FeedShell` says."""
        self._owner.met(self)

    def dataReceived(self, data: bytes) -> None:
        """Reports; what they free for sending leaves before anybody hears of them."""
        if not self._is_open:
            return
        if not self._has_heard and data.startswith(TLS_HELLO):  # as an offset: 1.5 million TB
            self.close(SPEAKS_TLS, ReplicationError(SPEAKS_TLS))
            return
        self._has_heard = True
        before, now = self.feed.common, self._clock.seconds()
        try:
            is_report = self.feed.receive_data(data, now)
        except ReplicationError as error:
            self.close(str(error), error)
            return
        except (OSError, StoreError) as error:
            self.cannot_read(error)
            return
        if self.feed.common is not before:
            self._owner.compared(self)
        self.push(now)
        if is_report:
            self._owner.reported(self, now)

    def left(self, error: ReplicationError | None, why: str) -> None:
        """As `FeedShell` says."""
        self._owner.left(self, error, why)

    def gone(self) -> None:
        """As `FeedShell` says."""
        self._owner.gone(self)

    @property
    def peer_host(self) -> str:
        """The slave's machine."""
        return self.peer.rpartition(":")[0]

    def statistics(self, lag_seconds: float) -> SlaveStatistics:
        feed = self.feed
        return SlaveStatistics(
            address=self.peer,
            stage=self.stage.value,
            requested=feed.requested,
            acked=feed.acked,
            lag=feed.lag,
            lag_seconds=lag_seconds,
        )


class ReplicaOwner(Interface):
    """What a ReplicaProtocol tells the link to the master."""

    def followed(self, connection: "ReplicaProtocol") -> None:
        """What the master sends continues our log."""

    def lost(self, connection: "ReplicaProtocol", error: Exception | None, why: str) -> None:
        """The connection is closed; `error`: we closed it because of that."""


class ReplicaProtocol(ReplicaShell):
    """The slave's end, around a `Replica`."""

    replica: Replica

    def __init__(self, replica: Replica, owner: ReplicaOwner, clock: IReactorTime) -> None:
        super().__init__(clock)
        self.replica = replica
        self._owner = owner
        self._follows = False

    def connectionMade(self) -> None:
        """Read in large chunks; report at once."""
        below: Any = self.transport
        if isinstance(below, TlsTransport):
            below = below.raw
        if isinstance(below, Connection):
            below.bufferSize = READ_SIZE
        super().connectionMade()

    def stepped(self) -> None:
        """As `ReplicaShell` says."""
        if not self._follows and self.replica.stage is ReplicaStage.FOLLOWING:
            self._follows = True
            self._owner.followed(self)

    def look(self) -> None:
        """Leave if our log cannot be vouched for any more."""
        self.step(self.replica.look)

    def lost(self, error: Exception | None, why: str) -> None:
        """As `ReplicaShell` says."""
        self._owner.lost(self, error, why)
