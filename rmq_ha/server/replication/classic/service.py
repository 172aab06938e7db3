"""HAService sends the log to slaves, follows the master, and tells when a put is replicated.

Spec: ha.md, sections 4 to 9 and 18.
"""

from math import inf

from twisted.internet.defer import Deferred, TimeoutError, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.errors import AheadOfMaster, ConfigurationError, ReplicationError
from rmq_ha.base.model.status import BrokerRole, Decided, PutMessageStatus
from rmq_ha.base.seams import Host
from rmq_ha.base.timing.timer import rearm
from rmq_ha.server.replication.classic.feed import Common, Feed
from rmq_ha.server.replication.classic.link import ClassicLink, TailOfStore
from rmq_ha.server.replication.classic.refused_slaves import (
    RefusedSlaves,
    SentTo,
    whom_to_turn_away,
)
from rmq_ha.server.replication.classic.replica import ReplicaStage
from rmq_ha.server.replication.feed import Stage
from rmq_ha.server.replication.listener import ReplicationListener
from rmq_ha.server.replication.protocol import FeedProtocol
from rmq_ha.server.replication.statistics import ReplicationStatistics
from rmq_ha.server.replication.waiting import GroupTransfer, status_without_waiting
from rmq_ha.server.store.log.journal_log import CopiedLog

MIN_ADDRESS_SIZE = 6
"""A haMasterAddress with fewer characters counts as none, as in the Java broker."""
KNOWN_COMPLAINTS = 256


class HAService:
    """
    The replication of one broker. Each broker listens on listenPort + 1, also a slave, since it may
    have slaves itself. A slave has a link to its master, too.

    Differs from 4.9.7 on purpose. A connection counts as a slave after its first valid report, but
    acknowledges only bytes that it was sent. The watermark counts live connections only, so it can
    fall. Each put has its own deadline. New bytes are sent at the end of the turn, whatever the
    role. Bytes are also sent before they are on this disk. Under SYNC_FLUSH the answer to a put
    waits for this disk and for a slave. After this broker lost power, a slave may have more of the
    log than this broker; such a slave sets the surplus aside (`LogComparison`).

    :ivar listener: the replication port and the slaves that are connected to it.
    """

    log = Logger()

    def __init__(self, host: Host, configuration: BrokerConfiguration, log: CopiedLog) -> None:
        self._host = host
        self._configuration = configuration
        self._commit_log = log
        self._waiting: GroupTransfer[Decided] = GroupTransfer()
        self._timer: IDelayedCall | None = None
        self._due = inf
        self.listener = ReplicationListener(host, configuration, self._make_feed, self)
        self._feeds = self.listener.connections
        self._pushed = -1
        self._best_acked: int | None = None
        self._ahead = RefusedSlaves()
        self._verified = 0
        self._different = 0
        self._within = 0
        self._sent_to = SentTo()
        self._turned_away = 0
        self._told: dict[str, str] = {}
        self._caught_up: Deferred[None] | None = None
        self._stopping: Deferred[None] | None = None
        self._link: ClassicLink | None = None
        self._has_fixed_address = False
        self._tail = TailOfStore()
        if configuration.store.broker_role is BrokerRole.SLAVE:
            self._link = self._make_link()
            self._fix_address(configuration.store.ha_master_address)

    def _make_link(self) -> ClassicLink:
        connector = self.listener.connector()
        link = ClassicLink(
            self._host, self._configuration, self._commit_log, connector, self._note_cut
        )
        link.tail = self._tail
        return link

    def _fix_address(self, address: str | None) -> None:
        if self._link is None or address is None or len(address) < MIN_ADDRESS_SIZE:
            return
        try:
            self._link.set_address(address)
        except ValueError as error:
            raise ConfigurationError(f"haMasterAddress: {error}") from error
        self._has_fixed_address = True

    def attach_tail(self, tail: TailOfStore) -> None:
        """
        Give the link to a master the calls that set the end of its store aside. A master gets such
        a link when it hands over.
        """
        self._tail = tail
        if self._link is not None:
            self._link.tail = tail

    def follow(self) -> None:
        """
        Copy the log of the master that name servers tell, from now on. An address in
        `haMasterAddress` counts no more.
        """
        self._has_fixed_address = False
        if self._link is None:
            self._link = self._make_link()
            self._link.start()

    def lead(self) -> "Deferred[None]":
        """
        Copy the log of no master any more.

        :returns: fires when no more byte of the former master can come; never fails.
        """
        link, self._link = self._link, None
        return succeed(None) if link is None else link.stop()

    def start(self) -> "Deferred[None]":
        """
        Listen and, on a slave, connect.

        :returns: fires when listening; fails with CannotListenError.
        """
        return self.listener.listen().addCallback(self._started)

    def _started(self, _: None) -> None:
        self.listener.times.note(self._commit_log.max_offset, self._host.clock.seconds())
        self.log.info("replication listens on port {port}", port=self.listener.port)
        if self._link is not None:
            self._link.start()

    def stop(self) -> "Deferred[None]":
        """
        Let the slaves receive the bytes that they lack (for slaveTimeout at most), then close
        everything.

        :returns: fires when every connection is closed; puts that still waited got
            FLUSH_SLAVE_TIMEOUT. A second call returns the same Deferred.
        """
        if self._stopping is None:
            self._stopping = Deferred.fromCoroutine(self._stop())
        return self._stopping

    async def _stop(self) -> None:
        await self.listener.stop_listening()
        if self._link is not None:
            await self._link.stop()
        await self._let_slaves_catch_up()
        self._wait_until(None)
        now = self._host.clock.seconds()
        for decided in self._waiting.drain():
            decided(PutMessageStatus.FLUSH_SLAVE_TIMEOUT, now)
        self.listener.close_connections("this broker stops")
        await self.listener.wait_closed()

    def _lacks_anything(self) -> bool:
        return any(c.feed.is_serving and c.feed.lag for c in self._feeds)

    async def _let_slaves_catch_up(self) -> None:
        if not self._lacks_anything():
            return
        self._caught_up = Deferred()
        self._caught_up.addTimeout(self._configuration.store.slave_timeout / 1000, self._host.clock)
        try:
            await self._caught_up
        except TimeoutError:
            self.log.warn("stopping before every slave has everything")
        finally:
            self._caught_up = None

    def appended(self) -> None:
        """
        Send new bytes after the log grew. Bytes that cannot be sent now are sent at the slave's
        next report.
        """
        if self._commit_log.max_offset != self._pushed:
            self._push(self._host.clock.seconds())
        if self._link is not None:
            self._link.look()

    def _push(self, now: float) -> None:
        self._pushed = end = self._commit_log.max_offset
        self.listener.times.note(end, now)
        for connection in self._feeds[:]:
            connection.push(now)

    def _note_cut(self) -> None:
        """
        Close the connections of slaves after this log became shorter; they begin anew, and compare.
        """
        for connection in self._feeds[:]:
            connection.close("this broker's log was cut")

    def wait_replicated(
        self, next_offset: int, start_offset: int
    ) -> PutMessageStatus | Deferred[PutMessageStatus]:
        """
        Return `when_replicated` as a Deferred, which never fails, or the status if it is known at
        once.
        """
        later: Deferred[PutMessageStatus] = Deferred()
        status = self.when_replicated(
            next_offset, start_offset, lambda status, now: later.callback(status)
        )
        return later if status is None else status

    def when_replicated(
        self, next_offset: int, start_offset: int, decided: Decided
    ) -> PutMessageStatus | None:
        """
        See `Replication.when_replicated`.

        Spec: ha.md, section 7.2.
        """
        config = self._configuration.store
        if config.broker_role is not BrokerRole.SYNC_MASTER:
            return PutMessageStatus.PUT_OK
        # A slave's own report says how far behind it is. Only a proven offset ends a put.
        best_reported, best_proven = None, 0
        for connection in self._feeds:
            feed = connection.feed
            if feed.has_sent_all or feed.is_serving:
                if best_reported is None or feed.acked > best_reported:
                    best_reported = feed.acked
                if feed.proven > best_proven:
                    best_proven = feed.proven
        status = status_without_waiting(config, next_offset, best_reported, best_proven)
        if status is not None:
            return status
        now = self._host.clock.seconds()
        deadline = now + config.slave_timeout / 1000
        self._waiting.add(next_offset, deadline, decided, start_offset)
        if deadline < self._due:
            self._wait_until(deadline)
        # Send in this turn, not in the next one. Bytes that cannot be sent now go with the next
        # acknowledgement.
        if self._commit_log.max_offset != self._pushed:
            self._push(now)
        return None

    def _wait_until(self, deadline: float | None) -> None:
        """Have the timer fire at a deadline; None: not at all."""
        self._timer = rearm(self._host.clock, self._timer, deadline, self._on_time)
        self._due = inf if deadline is None else deadline

    def _on_time(self) -> None:
        now = self._host.clock.seconds()
        expired = self._waiting.on_time(now)
        self._timer = None
        self._wait_until(self._waiting.deadline())
        for decided in expired:
            decided(PutMessageStatus.FLUSH_SLAVE_TIMEOUT, now)

    def is_replicated(self, start_offset: int, next_offset: int) -> bool:
        """Whether a connected slave has proven that it holds the log between these offsets."""
        feeds = [connection.feed for connection in self._feeds]
        return any(
            feed.is_serving and feed.base <= start_offset and next_offset <= feed.proven
            for feed in feeds
        )

    def replicated_offset(self) -> int:
        """Return the highest offset up to which a connected slave has proven its log; 0: none."""
        return max((c.feed.proven for c in self._feeds if c.feed.is_serving), default=0)

    @property
    def is_following(self) -> bool:
        """
        Whether this slave is connected to its master, and both logs are equal up to the end of its
        own.
        """
        return self._link is not None and self._link.state == ReplicaStage.FOLLOWING.value

    def set_master_address(self, address: str | None) -> None:
        """
        Take the master's address from the name server. A configured address stays; None changes
        nothing.
        """
        if self._link is None or self._has_fixed_address or not address:
            return
        try:
            self._link.set_address(address)
        except ValueError as error:
            self.log.warn("the name server's HA address is no use: {error}", error=error)

    def statistics(self) -> ReplicationStatistics:
        best, end = self._best_acked, int(self._commit_log.max_offset)
        return ReplicationStatistics(
            waiting=len(self._waiting),
            refused=self.listener.entrance.refused,
            replicated_offset=self.replicated_offset(),
            slaves=self.listener.statistics(),
            master=None if self._link is None else self._link.statistics(),
            verified=self._verified,
            different=self._different,
            within_record=self._within,
            refused_ahead=self._ahead.hosts,
            turned_away=self._turned_away,
            unacknowledged=None if best is None else max(0, end - best),
            unacknowledged_seconds=None if best is None else self._seconds_behind(best),
        )

    def _seconds_behind(self, offset: int) -> float:
        return self.listener.times.seconds_behind(offset, self._host.clock.seconds())

    def _make_feed(self) -> Feed:
        return Feed(self._commit_log, self._configuration, self._host.clock.seconds())

    def slave_connected(self, connection: FeedProtocol[Feed]) -> None:
        """
        Take a new connection: limit its first report if its machine's slave was ahead, and close a
        surplus connection.
        """
        connection.feed.ceiling = self._ahead.ceiling(connection.peer_host)
        most = self._configuration.ours.ha_max_slaves
        surplus = whom_to_turn_away(self._feeds, most)
        if surplus is None:
            return
        self._turned_away += 1
        more = self.listener.refusals.admit(surplus.peer_host, "haMaxSlaves")
        if more is not None:
            self.log.warn(
                "connection {peer} has to leave: {most} may replicate (haMaxSlaves){more}",
                peer=surplus.peer,
                most=most,
                more=more,
            )
        surplus.close("one too many (haMaxSlaves)")

    def slave_introduced(self, connection: FeedProtocol[Feed]) -> None:
        """Count the greeting of a rmq-ha slave, and log if its log differs from this broker's."""
        feed = connection.feed
        if feed.common is Common.VERIFIED:
            self._verified += 1
            if self._host.connections is not None:
                self._host.connections.know(connection.peer_host)
            return
        self._different += 1
        self.log.warn(
            "the log of slave {peer} differs from this broker's below {place}; this broker's ends "
            "at {end}. The slave is sent this broker's log from {physical_offset} on, to compare",
            peer=connection.peer,
            place=feed.requested,
            end=self._commit_log.max_offset,
            physical_offset=feed.sent,
        )

    def slave_reported(self, connection: FeedProtocol[Feed], reports: bool, now: float) -> None:
        """Act on a report that was believed: end the puts that waited for it."""
        feed = connection.feed
        if feed.stage is Stage.NEW and feed.is_within:
            self._warn_of_doubt(connection)
        if feed.ceiling is not None and feed.common is Common.UNKNOWN:
            feed.ceiling = None
            self._ahead.forget(connection.peer_host)
        if is_serving := feed.has_sent_all or feed.is_serving:
            if self._best_acked is None or feed.acked > self._best_acked:
                self._best_acked = feed.acked
            for decided in self._waiting.reached(feed.proven, feed.base):
                decided(PutMessageStatus.PUT_OK, now)
        if not (is_serving and feed.stage is Stage.CAUGHT_UP) and feed.advance_stage():
            self._tell_stage(connection)
        if self._caught_up is not None:
            self._see_who_lags()

    def _warn_of_doubt(self, connection: FeedProtocol[Feed]) -> None:
        """
        Warn of a slave that cannot compare, and whose log does not end where a record of this
        broker ends.
        """
        feed = connection.feed
        if self._sent_to.covers(connection.peer_host, feed.requested or 0):
            return
        self._within += 1
        self.log.warn(
            "slave {peer} asks for {physical_offset}, in the middle of a record, which it was not "
            "sent since this broker started: either a frame ended there before the start, or the "
            "slave's log differs and cannot be read there. If the slave was a master, or this "
            "broker lost messages, empty the slave's store",
            peer=connection.peer,
            physical_offset=feed.requested,
        )

    def _tell_stage(self, connection: FeedProtocol[Feed]) -> None:
        """Log a changed stage of a slave, once."""
        feed = connection.feed
        host = connection.peer_host
        was_told = self._told.pop(host, "") == Stage.STRANDED.value
        if feed.stage is Stage.STRANDED:
            self._told[host] = Stage.STRANDED.value
            if was_told:  # such a slave comes back every few seconds
                return
            self.log.error(
                "slave {peer} needs the log from {physical_offset}, but this broker's begins at "
                "{start}: it gets nothing. Set haRefetchStrandedPair=true at a slave of rmq-ha, or "
                "move the store of that slave away and start it again",
                peer=connection.peer,
                physical_offset=feed.sent,
                start=self._commit_log.min_offset,
            )
            return
        self.log.info(
            "slave {peer} {stage}: it holds {physical_offset}, {lag} bytes behind",
            peer=connection.peer,
            stage=feed.stage.value,
            physical_offset=feed.acked,
            lag=feed.lag,
        )

    def slave_left(
        self, connection: FeedProtocol[Feed], error: ReplicationError | None, why: str
    ) -> None:
        """Forget a slave whose connection is over, and log why it left."""
        self._feeds.remove(connection)
        host = connection.peer_host
        if isinstance(error, AheadOfMaster):
            self._ahead.remember(host, error.end)
        if connection.feed.requested is not None:
            self._sent_to.note(host, connection.feed.sent)
        if error is not None and self._told.get(host) != type(error).__name__:
            if len(self._told) >= KNOWN_COMPLAINTS:
                self._told.clear()
            self._told[host] = type(error).__name__
            self.log.warn("slave {peer} dropped: {error}", peer=connection.peer, error=why)
        elif error is None and connection.feed.stage is not Stage.NEW:
            self.log.info("slave {peer} left: {error}", peer=connection.peer, error=why)
        else:
            self.log.debug("connection {peer} ended: {error}", peer=connection.peer, error=why)
        self._see_who_lags()

    def _see_who_lags(self) -> None:
        if self._caught_up is not None and not self._lacks_anything():
            self._caught_up.callback(None)
