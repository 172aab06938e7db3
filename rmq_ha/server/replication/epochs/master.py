"""A broker's work while it is the elected master: it sends the log to slaves and ends puts.

Spec: controller.md, chapters 7 and 8.
"""

from typing import NamedTuple

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from rmq_ha.base.errors import ReplicationError
from rmq_ha.base.model.status import Decided, PutMessageStatus
from rmq_ha.base.timing.timer import rearm
from rmq_ha.server.replication.epochs.context import RoleContext
from rmq_ha.server.replication.epochs.feed import EpochFeed, Report
from rmq_ha.server.replication.epochs.roles.actions import Adopt, Lead
from rmq_ha.server.replication.epochs.sync_state import SyncState
from rmq_ha.server.replication.epochs.tables import TableEntry
from rmq_ha.server.replication.listener import ReplicationListener
from rmq_ha.server.replication.places import chain_to
from rmq_ha.server.replication.protocol import FeedProtocol
from rmq_ha.server.replication.waiting import GroupTransfer

_LOOK_AGAIN_S = 1.0
"""Pause between two looks at a set that was proposed to the controllers, in seconds."""


class _WaitingPut(NamedTuple):
    """
    A put that waits for slaves.

    :ivar came: when the put came, in seconds.
    """

    came: float
    decided: Decided


class MasterRole:
    """
    The master's side of controller mode; while another broker leads, it does nothing.

    A put is kept when as many brokers of the set hold it as the configuration says. A producer of
    RocketMQ takes FLUSH_SLAVE_TIMEOUT (12) for a success and does not send again. So a put whose
    time is over gets 12 in two cases only. In the first case, a heartbeat that was sent after the
    put came has proven that this broker still led. In the second case, the newest proof is older
    than the put, but at most two heartbeat intervals old (`ReplicasManager.led_until`); another
    master may have been elected since. The message of such a put is in the log, and stays there
    unless this broker dies or loses the lead. All other puts that too few brokers keep get
    SERVICE_NOT_AVAILABLE (14). Their messages may be missing on the next master, and the producer
    sends them again.

    :ivar state: the state of the epoch that this broker leads; None: it leads none.
    :ivar listener: the replication port; it lets slaves in while this broker leads.
    :ivar stranded: ids of slaves that need bytes which are deleted here.
    """

    log = Logger()

    def __init__(self, context: RoleContext) -> None:
        self.state: SyncState | None = None
        self.stranded: set[int] = set()
        self.listener = ReplicationListener(
            context.host,
            context.configuration,
            self._make_feed,
            self,
            lambda: self.state is not None,
        )
        self._context = context
        self._log = context.log
        self._feeds = self.listener.connections
        self._puts: GroupTransfer[_WaitingPut] = GroupTransfer()
        self._timer: IDelayedCall | None = None

    # ------------------------------------------------------------ a reign

    async def begin(self, decision: Lead) -> bool:
        """
        Lead an epoch, once the epoch is on the disk.

        :returns: false: a newer decision has come meanwhile.
        :raises StoreError: the incomplete record at the log's end cannot be set aside.
        :raises OSError: the disk refuses.
        :raises ProtocolViolation: the log has a newer epoch already.
        """
        context, log = self._context, self._log
        await self._drop_torn_record()
        epochs = context.history.epochs.led(decision.epoch, int(log.max_offset))
        await context.history.write(epochs)
        if decision is not context.decision:
            return False
        assert context.broker_id is not None
        now = context.now()
        self.state = SyncState(
            context.broker_id,
            log,
            epochs,
            decision.known,
            context.settings,
            now,
            log.confirm_offset,
        )
        self.listener.times.note(int(log.max_offset), now)
        context.broker.on_master(None)
        log.poke()
        self.settle()
        return True

    async def _drop_torn_record(self) -> None:
        """
        Set aside a last record that is incomplete. A slave's log may end within a record, which
        nobody has acknowledged.
        """
        journal, log = self._context.broker.journal, self._log
        end = int(log.max_offset)
        low = max(int(journal.dispatched_to), int(log.min_offset))
        chain = chain_to(log, low, end)
        whole = low if chain is None else chain.end
        if whole < end:
            await journal.set_aside(whole, "the end of a record that never came")

    def end(self, why: str) -> None:
        """End the leadership: close all connections and refuse the puts that wait."""
        self.state = None
        self.stranded.clear()
        self._timer = rearm(self._context.host.clock, self._timer, None, self.settle)
        self.listener.close_connections(why)
        now = self._context.now()
        for put in self._puts.drain():
            put.decided(PutMessageStatus.SERVICE_NOT_AVAILABLE, now)

    def adopt(self, decision: Adopt) -> None:
        """Take over the set that the controllers have."""
        state = self.state
        if state is None:
            return
        state.adopt(decision.known)
        if decision.is_final:  # must come before the next proposal, which would be dropped here
            state.refused(self._context.now(), lacks_heartbeat=decision.lacks_heartbeat)
        self.settle()

    def complete(self) -> frozenset[int]:
        """Return the ids of the slaves that are in sync and have the whole log."""
        state, end = self.state, int(self._log.max_offset)
        if state is None:
            return frozenset()
        feeds = [connection.feed for connection in self._feeds]
        whole = {feed.slave.broker_id for feed in feeds if feed.slave and feed.acked >= end}
        return frozenset(whole & set(state.known.members))

    # ------------------------------------------------------------ slaves

    def _make_feed(self) -> EpochFeed:
        assert self.state is not None
        context = self._context
        return EpochFeed(
            self._log, self.state, context.settings, context.now(), context.broker.tables
        )

    def slave_connected(self, connection: FeedProtocol[EpochFeed]) -> None:
        """See `FeedOwner`. A slave counts only when it has said who it is."""

    def slave_introduced(self, connection: FeedProtocol[EpochFeed]) -> None:
        """See `FeedOwner`. Of several connections of one broker, the newest counts."""
        broker_id = connection.feed.broker_id
        if self.state is not None and broker_id is not None:
            before = self.state.connected(broker_id, connection, self._context.now())
            if isinstance(before, FeedProtocol):
                before.close("it connected anew")

    def slave_reported(
        self, connection: FeedProtocol[EpochFeed], reports: list[Report], now: float
    ) -> None:
        for report in reports:
            if self.state is not None and connection.is_open:
                self.state.reported(connection, report, now)
                self._look_at_stranded(connection, report.broker_id)
                self.settle()

    def _look_at_stranded(self, connection: FeedProtocol[EpochFeed], broker_id: int) -> None:
        """
        Keep `stranded` up to date. A stranded slave comes back every few seconds, so it is logged
        once.
        """
        feed = connection.feed
        if not feed.is_stranded:
            self.stranded.discard(broker_id)
        elif broker_id not in self.stranded:
            self.stranded.add(broker_id)
            self.log.error(
                "slave {broker_id} at {peer} cannot follow: {why}",
                broker_id=broker_id,
                peer=connection.peer,
                why=feed.why_stranded,
            )

    def slave_left(
        self, connection: FeedProtocol[EpochFeed], error: ReplicationError | None, why: str
    ) -> None:
        self._feeds.remove(connection)
        broker_id = connection.feed.broker_id
        tell = self.log.debug if connection.feed.is_stranded else self.log.info
        tell("slave {peer} left: {why}", peer=connection.peer, why=why)
        if broker_id is not None and self.state is not None:
            self.state.closed(broker_id, connection)
            self.settle()

    def table_changed(self, entry: TableEntry) -> None:
        """Tell each slave's feed of a changed entry, and send it when it is due."""
        now = self._context.now()
        for connection in self._feeds[:]:
            if connection.is_open and connection.feed.table_changed(entry, now):
                connection.push()

    # ------------------------------------------------------------ the log and puts

    def flushed(self) -> None:
        """Take note that more of the log is on the disk."""
        if self.state is not None:
            self.state.flushed()
            self.settle()

    def appended(self) -> None:
        """Send new bytes after the log grew."""
        if self.state is not None:
            now = self._context.now()
            self.listener.times.note(int(self._log.max_offset), now)
            self.state.appended(now)
            for connection in self._feeds[:]:
                connection.push()
            self.settle()

    def when_replicated(
        self, next_offset: int, start_offset: int, decided: Decided
    ) -> PutMessageStatus | None:
        """
        See `Replication.when_replicated`.

        Spec: controller.md, section 8.6.
        """
        state = self.state
        if state is None:
            return PutMessageStatus.SERVICE_NOT_AVAILABLE
        if state.is_kept(next_offset):
            return PutMessageStatus.PUT_OK
        now = self._context.now()
        deadline = now + self._context.configuration.store.slave_timeout / 1000
        self._puts.add(next_offset, deadline, _WaitingPut(now, decided))
        self.appended()
        return None

    def is_replicated(self, start_offset: int, next_offset: int) -> bool:
        """Whether as many brokers as the configuration demands hold the log up to `next_offset`."""
        return self.state is not None and self.state.is_kept(next_offset)

    def replicated_offset(self) -> int:
        """Return the highest offset that a slave holds; 0 without slaves."""
        return max((connection.feed.acked for connection in self._feeds), default=0)

    @property
    def waiting(self) -> int:
        """Return the number of puts that wait."""
        return len(self._puts)

    def settle(self) -> None:
        """
        Act on any change: propose a new set, raise the confirm offset, and end puts that are kept.
        """
        state, context = self.state, self._context
        if state is None:
            return  # the answer to a put has ended the leadership
        now = context.now()
        proposal = state.proposal(now)
        if proposal is not None:
            context.conversation.propose(proposal)
        self._log.confirmed(state.confirm_offset)
        context.shared.note_leadership(self.replicated_offset())
        self._end_puts(state, now)
        times = [
            state.deadline(now),
            None if state.wanted is None else now + _LOOK_AGAIN_S,
            self._puts.deadline(),
        ]
        deadline = min((time for time in times if time is not None), default=None)
        if self.state is state:
            self._timer = rearm(context.host.clock, self._timer, deadline, self.settle)

    def _end_puts(self, state: SyncState, now: float) -> None:
        """End the puts that are kept, and those whose time is over."""
        if not self._puts:
            return
        led_until = self._context.conversation.led_until
        for put in self._puts.take_kept(state.is_kept):
            put.decided(PutMessageStatus.PUT_OK, now)
        for put in self._puts.on_time(now):
            status = PutMessageStatus.FLUSH_SLAVE_TIMEOUT
            if led_until < put.came:
                status = PutMessageStatus.SERVICE_NOT_AVAILABLE
            put.decided(status, now)
