"""The interface of whatever keeps a broker's messages: one disk, a pair, a DLedger group, or a set
with controllers.

Store and broker know a `Journal` and its `Role`, and never which kind they have. `LocalJournal`
(`server/store/local/journal.py`) keeps messages on one disk. A broker can be told to use one of
three kinds: `server/replication/classic/journal.py`, `server/dledger/journal.py` and
`server/replication/epochs/journal.py`. A plugin may bring another one.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from twisted.internet.defer import Deferred

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.store import MessageStoreConfig
from rmq_ha.base.model.broker_identity import BrokerIdentity
from rmq_ha.base.model.message import AppendResult, Draft
from rmq_ha.base.model.status import BrokerRole, Decided, PutMessageStatus
from rmq_ha.base.seams import Host
from rmq_ha.base.store_flags import RunningFlags
from rmq_ha.base.store_format.checkpoint import CompletePositions
from rmq_ha.server.store.delay.schedule import ScheduleMessageService
from rmq_ha.server.store.index.index import IndexService
from rmq_ha.server.store.journal_statistics import JournalStatistics
from rmq_ha.server.store.log.append import DraftGroup
from rmq_ha.server.store.log.batch import BatchLayout
from rmq_ha.server.store.log.boot import BootMark, LastExit
from rmq_ha.server.store.log.checkpoint import StoreCheckpoint
from rmq_ha.server.store.log.dispatch import Dispatcher
from rmq_ha.server.store.log.flush import QueueFlusher
from rmq_ha.server.store.log.journal_log import JournalLog
from rmq_ha.server.store.log.setaside import TailAside
from rmq_ha.server.store.log.tail import Tail
from rmq_ha.server.store.queues.deleted_queues import DeletedQueues
from rmq_ha.server.store.queues.table import ConsumeQueueTable
from rmq_ha.server.store.statistics import StoreStatistics
from rmq_ha.server.store.timer.timers import TimerMessageService


class LogState(Protocol):
    """
    Something that is known from the log alone, such as the timer messages that wait.

    Every replica knows this state, and the master acts by it.
    """

    def begin(self) -> None:
        """Read the state from the log, because the store opened or its log was cut."""

    def start(self) -> None:
        """Act by the state from now on, because this broker is the master."""

    def stop(self) -> None:
        """Act no more, because this broker is not the master any more."""

    async def close(self) -> None:
        """End all work, while the store still takes puts."""


class Electorate(Protocol):
    """The elections of the master, as this broker's journal knows them."""

    @property
    def slave_id(self) -> int:
        """The brokerId of this broker while it is a slave."""

    @property
    def epoch(self) -> int | None:
        """
        Epoch of the last election that this broker heard of; None if name servers are told none.
        """

    def leads(self, term: int) -> bool:
        """Return whether this broker is still the leader of that term."""

    @property
    def is_sure_to_lead(self) -> bool:
        """Whether this broker leads, and no other broker can have been elected."""

    def is_settled(self) -> bool:
        """Return whether all messages of the log are kept as promised."""

    def admit_puts(self, admitted: bool) -> None:
        """Allow or forbid puts of clients' messages."""


class RoleObserver(Protocol):
    """Is told which role the electorate wants this broker to have."""

    def follow(self) -> None: ...

    def stand(self) -> None:
        """Make this broker a candidate, since no broker leads."""

    def lead(self, term: int) -> None:
        """
        Make this broker the master of that term, as soon as the whole log is kept and dispatched.
        """


class PairReplication(Protocol):
    """The replication of a classic pair, which can change its direction while the broker runs."""

    @property
    def is_following(self) -> bool:
        """Whether this slave's log is equal to its master's, up to the end of its own."""

    def replicated_offset(self) -> int:
        """Return the highest offset up to which a connected slave has proven its log; 0: none."""

    def follow(self) -> None:
        """Copy the log of the master that name servers tell, from now on."""

    def lead(self) -> "Deferred[None]":
        """
        Copy the log of no master any more.

        :returns: fires when no more byte of the former master can come; never fails.
        """


class Role:
    """
    A broker's role, master or slave: fixed by the configuration, or valid until the next election.

    This object has no copy of the role: it reads `brokerRole` of the configuration, as Java does.

    :ivar electorate: the elections; None if the configuration fixes the role.
    :ivar pair: the replication of a classic pair; None with another kind of journal.
    :ivar may_begin: whether a master delivers and numbers messages from its start on, without being
        elected first.
    """

    def __init__(self, config: MessageStoreConfig, electorate: Electorate | None = None) -> None:
        self._config = config
        self._observer: RoleObserver | None = None
        self.electorate = electorate
        self.pair: PairReplication | None = None
        self.may_begin = electorate is None

    @property
    def is_slave(self) -> bool:
        """
        Whether the broker is a slave now; a broker that was not elected to any role yet is not.
        """
        return self._config.broker_role is BrokerRole.SLAVE

    @property
    def corrects_offsets(self) -> bool:
        """
        Whether a consumer that asks for an offset outside the queue may be told another one.

        A broker that is not sure to lead may lack messages that the consumer read at the master.
        """
        if self.is_slave:
            return False
        return self.electorate is None or self.electorate.is_sure_to_lead

    @property
    def begins_as_master(self) -> bool:
        """Whether the broker numbers and delivers messages from its start on, without elections."""
        return self.may_begin and not self.is_slave

    def observe(self, observer: RoleObserver) -> None:
        """Tell `observer` now and at each change which role the electorate wants."""
        self._observer = observer

    def follow(self) -> None:
        if self._observer is not None:
            self._observer.follow()

    def stand(self) -> None:
        if self._observer is not None:
            self._observer.stand()

    def lead(self, term: int) -> None:
        if self._observer is not None:
            self._observer.lead(term)


class JournalStoreContext(Protocol):
    """
    The parts of a store that its journal uses.

    When the journal is attached, all exist but the last five, which are built on the journal.

    :ivar whole: positions in log, queues and index up to which lost power lost nothing.
    :ivar log_states: begin, start, stop and close with the store, in this order.
    """

    host: Host
    configuration: BrokerConfiguration
    root: str
    flags: RunningFlags
    queues: ConsumeQueueTable
    index: IndexService | None
    checkpoint: StoreCheckpoint
    whole: CompletePositions
    boot: BootMark
    statistics: StoreStatistics
    deleted: DeletedQueues
    dispatcher: Dispatcher
    queue_flusher: QueueFlusher
    schedule: ScheduleMessageService
    timers: TimerMessageService
    log_states: list[LogState]

    def sure_until_ms(self) -> int:
        """Return, after a crash, the store time up to which no record was lost, in ms."""

    def log_flushed(self) -> None:
        """Take note that more of the log is on the disk."""

    def renumber(self) -> None:
        """Read the next and the first offsets of all queues from the disk."""


class Masters(Protocol):
    """Decides which masters this broker may follow."""

    @property
    def text(self) -> str:
        """`haTrustedMasters`, as the operator wrote it."""

    def trusts(self, address: str, named_by: str) -> bool:
        """
        Whether the broker at `host:port` may be followed; a refusal is counted and logged.

        :param named_by: the server that named the address, for the log.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalBrokerContext:
    """
    The parts of a broker that its journal uses.

    :ivar calls: `rmq_ha.base.remoting.calls.Calls`, which signs requests; the broker stops it.
    :ivar identity: returns the broker's identity as it is now.
    :ivar tables: makes a `rmq_ha.server.replication.epochs.tables.Tables` of the broker's tables.
    :ivar set_master_address: sets the master whose tables the broker asks for; None for no master.
    :ivar masters: decides which masters may be followed.
    """

    calls: Any
    identity: Callable[[], BrokerIdentity]
    tables: Callable[[], Any]
    set_master_address: Callable[[str | None], None]
    masters: Masters


class Cleaner(Protocol):
    """
    Deletes old files, and refuses puts while the disk is full.

    :ivar forced_deletions: number of files that were deleted before they expired.
    :ivar releases: is asked with a physical offset before files below it are deleted; False keeps
        them for now.
    """

    forced_deletions: int
    releases: Callable[[int], bool]

    def clean_manually(self) -> None:
        """Have the next rounds delete expired files at any hour."""

    def log_ratio(self) -> float:
        """Return how full the log's disk is, 0 to 1."""

    def queue_ratio(self) -> float:
        """Return how full the queues' disk is, 0 to 1."""

    def check_disk(self) -> None:
        """Refuse puts while the disk is full; take them again when it is not."""

    def clean(self) -> "Deferred[int]":
        """Run one round; fires with the number of deleted files."""


class Replication(Protocol):
    """Sends a journal's log to other machines, and knows how much of it they have."""

    def start(self) -> "Deferred[None]":
        """Listen and, on a slave, connect."""

    def stop(self) -> "Deferred[None]":
        """Close everything; every waiting put gets its answer."""

    def appended(self) -> None:
        """Take note that the log grew; called once a turn, after all appends of that turn."""

    def when_replicated(
        self, next_offset: int, start_offset: int, decided: Decided
    ) -> PutMessageStatus | None:
        """
        Ask whether the records from `start_offset` to `next_offset`, their end, are replicated.

        :returns: a status if it is known at once; None if `decided` will be called with it. It is
            PUT_OK, FLUSH_SLAVE_TIMEOUT or SLAVE_NOT_AVAILABLE. Where masters are elected, it may be
            SERVICE_NOT_AVAILABLE, because the next master may lack the records. In a DLedger group
            it is OS_PAGECACHE_BUSY if no quorum stored the records in time.
        """

    def is_replicated(self, start_offset: int, next_offset: int) -> bool:
        """Return whether the records between these offsets are replicated."""

    def replicated_offset(self) -> int:
        """Return up to where the log is replicated; 0 if no other machine has any of it."""

    def set_master_address(self, address: str | None) -> None:
        """Take `host:port` of the master's HA listener, which a slave's registration learned."""

    def statistics(self) -> JournalStatistics:
        """Return the connections with their lag, for metrics and the log."""


class Flusher(Protocol):
    """Writes a journal's log through to this machine's disk."""

    @property
    def never_waits(self) -> bool:
        """Whether `when_flushed` is PUT_OK at once, until the configuration changes."""

    def when_flushed(self, next_offset: int, decided: Decided) -> PutMessageStatus | None:
        """Return a status if it is known at once; None if `decided` will be called with it."""

    def appended(self) -> None:
        """Take note that the log grew; called once a turn."""

    async def stop(self) -> None:
        """Flush the rest of the log. Afterwards every waiter has its answer."""


class Journal(Protocol):
    """
    Keeps messages, says when they are kept as promised, and knows the broker's role.

    Its calls in order: `attach` (a store is being built around it), `join` (a broker is), `load`,
    `check_presence`, `recover`, `mend`, `start`, `stop`, `flush`, and then `close`.

    Messages come in runs, and a run is kept when its last record is. So `when_kept` is called once
    for each run, with physical offsets, and no record needs an object that waits for it.

    :ivar log: the log, readable up to `log.readable_end`; a broker reads it directly.
    :ivar role: the role of this broker.
    :ivar tail: the part of the log that is not in the queues yet, in slices.
    :ivar cleaner: deletes old files.
    :ivar always_waits: every put waits until it is kept, even if its message does not ask for that.
    :ivar goes_on_after_kill: `recover` accepts `LastExit.KILLED`; else a kill counts as a crash.
    :ivar dispatch_from: set by `mend`: queues lack messages from this offset on; None if they do
        not.
    :ivar once_a_turn: callables for the turn after the log grew, in this order.
    """

    always_waits: bool
    goes_on_after_kill: bool
    dispatch_from: int | None

    @property
    def log(self) -> JournalLog: ...

    @property
    def role(self) -> Role: ...

    @property
    def tail(self) -> Tail: ...

    @property
    def once_a_turn(self) -> Sequence[Callable[[], None]]: ...

    @property
    def cleaner(self) -> Cleaner: ...

    # Keeping

    def append(self, drafts: Sequence[Draft], now_ms: int) -> DraftGroup:
        """Append messages; the group has the result of each."""

    def append_batch(self, batch: BatchLayout, now_ms: int) -> AppendResult | PutMessageStatus:
        """Append all members of a batch or none; return one result for all."""

    def when_kept(
        self, start_offset: int, next_offset: int, since: float, decided: Decided
    ) -> PutMessageStatus | None:
        """
        Ask whether the records just appended between these physical offsets are kept as promised.

        :param since: time in seconds when the append ended; the durations of flush and replication
            count from it.
        :returns: a status if it is known at once; None if `decided` will be called with it.
        """

    def sole_keeper(self) -> Replication | None:
        """
        Return the replication, if `when_kept` asks nothing but its `when_replicated`.

        Callers may then ask it themselves, until the configuration changes. A journal that adds
        conditions to `when_kept` returns None.
        """

    def is_kept(self, start_offset: int, next_offset: int) -> bool:
        """Return whether a part of a run is kept now, after the whole run was not kept in time."""

    @property
    def replicated_end(self) -> int:
        """Physical offset up to which others have the log; the log's end if there are no others."""

    def why_no_puts(self) -> str:
        """
        Return why no messages are taken, and how to mend that.

        Empty if other machines are not the reason.
        """

    def why_not_kept(self) -> str:
        """Return why a message that is in the log was not kept in time, and how to mend that."""

    # Beginning and end

    def attach(self, store: JournalStoreContext) -> None:
        """Take the parts of the store that is being built around this journal."""

    def join(self, broker: JournalBrokerContext) -> None:
        """Take the parts of the broker that is being built around the store."""

    def load(self) -> None:
        """
        Find the files of the log.

        :raises StoreError: a file is missing or has a wrong size.
        """

    def check_presence(self) -> None:
        """
        Check that the log exists.

        Nothing is changed yet; of queues and checkpoint only the files are loaded.

        :raises StoreError: there is no log, although there was one before.
        """

    def recover(self, left: LastExit) -> None:
        """
        Find the end of the log, and cut the loaded queues that reach beyond it.

        :raises StoreError: the disk refuses.
        """

    def mend(self) -> Iterator[None]:
        """After `recover`, write the units that queues lack, a piece in each step; never fails."""

    def start(self) -> "Deferred[None]":
        """
        Connect to the other machines.

        :returns: fires when connections can be made; fails with the error that prevents them.
        """

    def hand_over(self) -> "Deferred[None]":
        """
        Have another broker become the master, if this one is, because it stops soon. Its clients
        are still served meanwhile.

        :returns: fires when that is done, or cannot be; never fails.
        """

    def stop(self) -> "Deferred[None]":
        """
        Disconnect from the others; every waiting put has its answer then.

        Harmless without `start`.
        """

    async def flush(self) -> None:
        """After `stop`, bring the rest of the log to the disk for the last time."""

    def note_ends(self) -> None:
        """
        Note where log and queues end, for the next start, after all is written.

        This call blocks: call it in the worker.

        :raises OSError: the disk refuses.
        """

    def stopped(self) -> None:
        """Take note that nothing will be written any more; `close` follows."""

    def close(self) -> None: ...

    # Calls of the broker

    def set_aside(self, end: int, why: str) -> "Deferred[TailAside]": ...

    def set_all_aside(self, why: str) -> "Deferred[TailAside]": ...

    async def is_whole(self) -> None:
        """Wait until a `set_aside` that is under way has ended."""

    def set_master_address(self, address: str | None) -> None:
        """Take `host:port` of the master's HA listener, which a slave's registration learned."""

    @property
    def has_masters_log(self) -> bool:
        """
        Whether a slave's log is a part of its master's log, as far as they were compared, or is
        empty.

        Only then do the master's tables belong to the slave's log. Otherwise the slave would lose
        the topics and groups of its own messages by taking the tables over.
        """

    def routes(self) -> dict[int, Any]:
        """
        Return handlers by request code, for requests that only brokers with such a journal get.
        """

    def reloadable(self) -> list[Any]:
        """
        Return each `rmq_ha.base.tls.reload.Part` that is to be read again when its files change.
        """

    def info(self) -> dict[str, Any]:
        """Return the state of the pair in short, for `rmqha-admin`."""

    def statistics(self) -> JournalStatistics:
        """Return the connections with their lag, for metrics, health and the log."""
