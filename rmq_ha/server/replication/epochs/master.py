"""What a broker does while the controllers have it lead: it feeds slaves and ends puts.

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
from rmq_ha.server.replication.epochs.tables import Entry
from rmq_ha.server.replication.listener import ReplicationListener
from rmq_ha.server.replication.places import chain_to
from rmq_ha.server.replication.protocol import FeedProtocol
from rmq_ha.server.replication.waiting import GroupTransfer

_LOOK_AGAIN_S = 1.0
"""At a set that the controllers were asked for."""


class _WaitingPut(NamedTuple):
    """:ivar came: when the put came, in seconds."""

    came: float
    decided: Decided


class MasterRole:
    """
    The master's side of controller mode; between two reigns it does nothing.

    A put is kept when as many brokers of the set hold it as the configuration says. A producer of
    RocketMQ takes FLUSH_SLAVE_TIMEOUT (12) for a success and does not send again. So a put gets 12
    only while the controllers say that this broker leads: the message is in the log and stays
    there unless this broker dies. All other puts that cannot be kept get SERVICE_NOT_AVAILABLE
    (14): the next master cuts them off, and the producer sends again.

    :ivar state: of the epoch that this broker leads; None: it leads none.
    :ivar listener: the replication port; it lets slaves in while this broker leads.
    :ivar stranded: ids of slaves that need what is deleted here.
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
        Lead an epoch, once the disk has it.

        :returns: false: a newer decision has come meanwhile.
        :raises StoreError: the end of the log cannot be set aside, nor on `OSError`.
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
        """A slave's log may end within a record; what is torn was acknowledged by nobody."""
        journal, log = self._context.broker.journal, self._log
        end = int(log.max_offset)
        low = max(int(journal.dispatched_to), int(log.min_offset))
        chain = chain_to(log, low, end)
        whole = low if chain is None else chain.end
        if whole < end:
            await journal.set_aside(whole, "the end of a record that never came")

    def end(self, why: str) -> None:
        """Whatever a put waits for, nobody will say that it is there."""
        self.state = None
        self.stranded.clear()
        self._timer = rearm(self._context.host.clock, self._timer, None, self.settle)
        self.listener.close_connections(why)
        now = self._context.now()
        for put in self._puts.drain():
            put.decided(PutMessageStatus.SERVICE_NOT_AVAILABLE, now)

    def adopt(self, decision: Adopt) -> None:
        """The controllers say what the set is."""
        state = self.state
        if state is None:
            return
        state.adopt(decision.known)
        if decision.is_final:  # before anything else is proposed, which would be dropped here
            state.refused(self._context.now(), lacks_heartbeat=decision.lacks_heartbeat)
        self.settle()

    def complete(self) -> frozenset[int]:
        """Ids of the slaves that are in sync and have the whole log."""
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
        tables = None if context.attached is None else context.attached.tables
        return EpochFeed(self._log, self.state, context.settings, context.now(), tables)

    def slave_connected(self, connection: FeedProtocol[EpochFeed]) -> None:
        """As `FeedOwner` says; a slave counts when it has said who it is."""

    def slave_introduced(self, connection: FeedProtocol[EpochFeed]) -> None:
        """As `FeedOwner` says: of the connections of one broker the newest counts."""
        broker_id = connection.feed.broker_id
        if self.state is not None and broker_id is not None:
            before = self.state.connected(broker_id, connection, self._context.now())
            if isinstance(before, FeedProtocol):
                before.close("it connected anew")

    def slave_reported(
        self, connection: FeedProtocol[EpochFeed], reports: list[Report], now: float
    ) -> None:
        """As `FeedOwner` says."""
        for report in reports:
            if self.state is not None and connection.is_open:
                self.state.reported(connection, report, now)
                self._look_at_stranded(connection, report.broker_id)
                self.settle()

    def _look_at_stranded(self, connection: FeedProtocol[EpochFeed], broker_id: int) -> None:
        """Said once: such a slave comes back every few seconds."""
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
        """As `FeedOwner` says."""
        self._feeds.remove(connection)
        broker_id = connection.feed.broker_id
        tell = self.log.debug if connection.feed.is_stranded else self.log.info
        tell("slave {peer} left: {why}", peer=connection.peer, why=why)
        if broker_id is not None and self.state is not None:
            self.state.closed(broker_id, connection)
            self.settle()

    def table_changed(self, entry: Entry) -> None:
        """Slaves have to hear of it in time."""
        now = self._context.now()
        for connection in self._feeds[:]:
            if connection.is_open and connection.feed.table_changed(entry, now):
                connection.push()

    # ------------------------------------------------------------ the log and puts

    def flushed(self) -> None:
        """More of the log is on the disk."""
        if self.state is not None:
            self.state.flushed()
            self.settle()

    def appended(self) -> None:
        """The log grew: send what is new."""
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
        """As many as have to hold it, do."""
        return self.state is not None and self.state.is_kept(next_offset)

    def replicated_offset(self) -> int:
        """The highest offset that a slave holds; 0 with none."""
        return max((connection.feed.acked for connection in self._feeds), default=0)

    @property
    def waiting(self) -> int:
        """Number of puts that wait."""
        return len(self._puts)

    def settle(self) -> None:
        """Something changed: who has to be in sync, what may be read, which puts are kept?"""
        state, context = self.state, self._context
        if state is None:
            return  # whoever heard of its put has ended the leadership
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
