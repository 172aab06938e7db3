"""What keeps a broker's messages: a disk, a pair, a DLedger group, a set with controllers.

Store and broker know a `Journal` and its `Role`, never which of them it is. `LocalJournal`
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
from rmq_ha.server.store.log.append import Group
from rmq_ha.server.store.log.batch import BatchLayout
from rmq_ha.server.store.log.boot import BootMark, LeftByCrash
from rmq_ha.server.store.log.checkpoint import Checkpoint
from rmq_ha.server.store.log.dispatch import Dispatcher
from rmq_ha.server.store.log.flush import QueueFlusher
from rmq_ha.server.store.log.journal_log import JournalLog
from rmq_ha.server.store.log.setaside import TailAside
from rmq_ha.server.store.log.tail import Tail
from rmq_ha.server.store.queues.deleted_queues import DeletedQueues
from rmq_ha.server.store.queues.table import ConsumeQueueTable
from rmq_ha.server.store.statistics import StoreStatistics


class Electorate(Protocol):
    """Whoever elects the master of this broker's journal, as its own broker asks."""

    @property
    def slave_id(self) -> int:
        """The brokerId of this broker while it is a slave."""

    @property
    def epoch(self) -> int | None:
        """Of the last election that this broker heard of; None: name servers are told of none."""

    def leads(self, term: int) -> bool:
        """This broker is the leader of that term, still."""

    @property
    def is_sure_to_lead(self) -> bool:
        """This broker leads, and nobody else can have been elected."""

    def is_settled(self) -> bool:
        """All of the log is kept as promised."""

    def admit_puts(self, admitted: bool) -> None:
        """Let clients' messages into the log, or not."""


class RoleObserver(Protocol):
    """Who is told what the electorate wants this broker to be."""

    def follow(self) -> None: ...

    def stand(self) -> None:
        """Nobody leads; this broker is a candidate."""

    def lead(self, term: int) -> None:
        """This broker leads that term, once everything is kept and dispatched."""


class Role:
    """
    What a broker is: master or slave, for good or until the next election.

    `brokerRole` in the configuration is where it is written, as in Java; nobody keeps a copy.

    :ivar electorate: who elects; None: the configuration says it, until the next start.
    :ivar may_begin: a master delivers what is delayed, and numbers messages, from its start on.
    """

    def __init__(self, config: MessageStoreConfig, electorate: Electorate | None = None) -> None:
        self._config = config
        self._observer: RoleObserver | None = None
        self.electorate = electorate
        self.may_begin = electorate is None

    @property
    def is_slave(self) -> bool:
        """As it is now; a broker that is not elected to be anything yet is none."""
        return self._config.broker_role is BrokerRole.SLAVE

    @property
    def corrects_offsets(self) -> bool:
        """
        A consumer that asks for an offset that is not here may be told another one.

        Whoever is not sure to lead may lack messages that the master has, and that the consumer
        has read there.
        """
        if self.is_slave:
            return False
        return self.electorate is None or self.electorate.is_sure_to_lead

    @property
    def begins_as_master(self) -> bool:
        """It numbers and delivers messages from its start on, and waits for no election."""
        return self.may_begin and not self.is_slave

    def observe(self, observer: RoleObserver) -> None:
        """Have it told what the electorate wants, from now on."""
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
    What of a store its journal works with.

    When the journal is attached there is all but the last four, which are built on it.

    :ivar whole: after lost power: what was not lost of log, queues and index.
    """

    host: Host
    configuration: BrokerConfiguration
    root: str
    flags: RunningFlags
    queues: ConsumeQueueTable
    index: IndexService | None
    checkpoint: Checkpoint
    whole: CompletePositions
    boot: BootMark
    statistics: StoreStatistics
    deleted: DeletedQueues
    dispatcher: Dispatcher
    queue_flusher: QueueFlusher
    schedule: ScheduleMessageService

    def sure_until_ms(self) -> int:
        """After a crash: what was stored up to then is on the disk, in log, queues and index."""

    def log_flushed(self) -> None:
        """More of the log is on the disk."""

    def renumber(self) -> None:
        """Take the numbering and the first offsets of all queues from what is on the disk."""


class Masters(Protocol):
    """Which masters this broker may follow."""

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
    What of a broker its journal works with.

    :ivar calls: `rmq_ha.base.remoting.calls.Calls`, signed; not stopped by the journal.
    :ivar identity: of the broker, as it is now.
    :ivar tables: makes `rmq_ha.server.replication.epochs.tables.Tables`: the broker's, to be sent
        and taken.
    :ivar set_master_address: who is to be asked for the master's tables; None: nobody.
    :ivar masters: which masters may be followed.
    """

    calls: Any
    identity: Callable[[], BrokerIdentity]
    tables: Callable[[], Any]
    set_master_address: Callable[[str | None], None]
    masters: Masters


class Cleaner(Protocol):
    """
    Deletes what is old, and refuses puts while the disk is full.

    :ivar forced_deletions: files that were deleted before they expired.
    """

    forced_deletions: int

    def clean_manually(self) -> None:
        """The next rounds delete what is expired, whatever the hour."""

    def log_ratio(self) -> float:
        """How full the log's disk is, 0 to 1."""

    def queue_ratio(self) -> float:
        """How full the queues' disk is, 0 to 1."""

    def check_disk(self) -> None:
        """Refuse puts while the disk is full; take them again when it is not."""

    def clean(self) -> "Deferred[int]":
        """One round; fires with the number of files that were deleted."""


class Replication(Protocol):
    """Brings a journal's log to other machines, and says what is there."""

    def start(self) -> "Deferred[None]":
        """Listen and, on a slave, connect."""

    def stop(self) -> "Deferred[None]":
        """Close everything; every waiting put fires."""

    def appended(self) -> None:
        """The log grew. Called once a turn, after all appends of that turn."""

    def when_replicated(
        self, next_offset: int, start_offset: int, decided: Decided
    ) -> PutMessageStatus | None:
        """
        Are the records there, from `start_offset` up to `next_offset`, their end?

        :returns: a status at once where nothing needs waiting; None: `decided` hears it. It is
            PUT_OK, FLUSH_SLAVE_TIMEOUT or SLAVE_NOT_AVAILABLE; where masters are elected also
            SERVICE_NOT_AVAILABLE: the next master is expected not to have the records.
        """

    def is_replicated(self, start_offset: int, next_offset: int) -> bool:
        """What lies between these offsets is there."""

    def replicated_offset(self) -> int:
        """Up to where the log is there; 0: nobody has any of it."""

    def set_master_address(self, address: str | None) -> None:
        """A slave's registration learned `host:port` of the master's HA listener."""

    def statistics(self) -> JournalStatistics:
        """Connections with their lag, for metrics and the log."""


class Flusher(Protocol):
    """Brings a journal's log to this disk."""

    def when_flushed(self, next_offset: int, decided: Decided) -> PutMessageStatus | None:
        """A status where nothing needs waiting; None: `decided` hears it."""

    def appended(self) -> None:
        """The log grew; called once a turn."""

    async def stop(self) -> None:
        """Flush what is left; every waiter has fired afterwards."""


class Journal(Protocol):
    """
    Keeps messages; says when they are kept as promised, what may be read, and what this broker
    is: master or slave.

    Life: `attach` (a store was built around it), `join` (a broker was), `load`, `check_presence`,
    `recover`, `mend`, `start`, `stop`, `flush`, and then `close`.

    Messages come in runs, and all of a run is kept when its end is: so `kept` is asked once for
    each run, by physical offsets, and no record needs an object that waits for it.

    :ivar log: what may be read, by physical offset: up to `log.readable_end`. What a broker reads
        most it reads there, without a call in between.
    :ivar role: what this broker is.
    :ivar tail: what of the log is not in the queues yet, a slice at a time.
    :ivar cleaner: deletes what is old.
    :ivar always_waits: every put waits until it is kept, also one that does not ask for it.
    :ivar goes_on_after_kill: `recover` knows what `Left.KILLED` means.
    :ivar dispatch_from: after `mend`: queues still lack messages from that physical offset on;
        None: nothing before their end.
    :ivar once_a_turn: to be called in the turn after there is more of the log, in this order.
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

    def append(self, drafts: Sequence[Draft], now_ms: int) -> Group:
        """Append what is drafted; the group says what became of each."""

    def append_batch(self, batch: BatchLayout, now_ms: int) -> AppendResult | PutMessageStatus:
        """Append all of a batch or nothing; one result for all of it."""

    def kept(
        self, start_offset: int, next_offset: int, since: float, decided: Decided
    ) -> PutMessageStatus | None:
        """
        Is what was just appended, between these physical offsets, kept as promised?

        :param since: when the append ended; how long disk and replicas take counts from there.
        :returns: a status where nothing needs waiting; None: `decided` hears it.
        """

    def is_kept(self, start_offset: int, next_offset: int) -> bool:
        """The same, now, of a part of a run that as a whole was not kept in time."""

    @property
    def replicated_end(self) -> int:
        """Up to where others hold the log, too; the log's end where there are no others to be."""

    def why_no_puts(self) -> str:
        """
        Why messages are not taken, as far as other machines are the reason, and what to do.

        Empty: they are not the reason.
        """

    def why_not_kept(self) -> str:
        """As `why_no_puts`, of a message that is in the log and was not kept in time."""

    # Beginning and end

    def attach(self, store: JournalStoreContext) -> None:
        """A store is being built around it."""

    def join(self, broker: JournalBrokerContext) -> None:
        """A broker is being built around the store."""

    def load(self) -> None:
        """
        Look which files there are.

        :raises StoreError: they are not as they must be.
        """

    def check_presence(self) -> None:
        """
        Nothing is changed yet, and files are all that is loaded of queues and checkpoint.

        :raises StoreError: there is no log where there was one.
        """

    def recover(self, left: LeftByCrash) -> None:
        """
        Find the end of the log, and cut queues that reach behind it; they are loaded.

        :raises StoreError: the disk refuses.
        """

    def mend(self) -> Iterator[None]:
        """After `recover`: give queues what they lack, a piece a step; never fails."""

    def start(self) -> "Deferred[None]":
        """Meet the others; fires when that can begin, fails with what keeps it from."""

    def stop(self) -> "Deferred[None]":
        """Leave the others; every waiting put has fired then. Harmless without `start`."""

    async def flush(self) -> None:
        """After `stop`: bring what is left to the disk, for the last time."""

    def note_ends(self) -> None:
        """
        All is written: note where log and queues end, for the next start. For the worker.

        :raises OSError: the disk refuses.
        """

    def stopped(self) -> None:
        """Nothing will be written any more; `close` follows."""

    def close(self) -> None: ...

    # What others want of it

    def set_aside(self, end: int, why: str) -> "Deferred[TailAside]": ...

    def set_all_aside(self, why: str) -> "Deferred[TailAside]": ...

    async def is_whole(self) -> None:
        """Wait for `set_aside`, if that is under way."""

    def set_master_address(self, address: str | None) -> None:
        """A slave's registration learned `host:port` of the master's HA listener."""

    @property
    def has_masters_log(self) -> bool:
        """
        A slave's log is a part of its master's, as far as they were compared, or holds nothing.

        Only then the master's tables belong to it. Those of a master whose log is another, or
        empty, would take the topics and groups of the messages away that this slave has.
        """

    def routes(self) -> dict[int, Any]:
        """Request code to handler: what only brokers with such a journal are asked."""

    def reloadable(self) -> list[Any]:
        """`rmq_ha.base.tls.reload.Part`: what is to be read again when its files change."""

    def info(self) -> dict[str, Any]:
        """How its pair is, in short, as `rmqha-admin` is told."""

    def statistics(self) -> JournalStatistics:
        """Connections with their lag, for metrics, health and the log."""
