"""What a store puts around its commit log: the seam between the two kinds of logs there are.

Spec: store.md, section 5; dledger.md, chapter 15.
"""

from collections.abc import Callable, Iterator, Sequence, Sized
from typing import Protocol, runtime_checkable

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rmq_ha.config.broker_configuration import BrokerConfiguration
from rmq_ha.errors import StoreError
from rmq_ha.model.message import AppendResult, Message
from rmq_ha.model.status import BrokerRole, PutMessageStatus
from rmq_ha.seams import Host
from rmq_ha.store.append import GroupEncoder
from rmq_ha.store.batch import BatchLayout
from rmq_ha.store.boot import BootMark, Left
from rmq_ha.store.checkpoint import Checkpoint
from rmq_ha.store.clean import LogCleaner
from rmq_ha.store.commitlog import CommitLog
from rmq_ha.store.consumequeue import ConsumeQueueTable
from rmq_ha.store.damage import DamagedLog, Promise
from rmq_ha.store.flags import RunningFlags
from rmq_ha.store.flush import CommitLogFlusher
from rmq_ha.store.index import IndexService
from rmq_ha.store.owed import OwedLog
from rmq_ha.store.presence import AbsentLog, tell_lost_files
from rmq_ha.store.puts import MaybeLater
from rmq_ha.store.queue_ends import FILE_NAME, QueueEnd, QueueEnds, read_ends
from rmq_ha.store.rebuild import QueueRebuild
from rmq_ha.store.recovery import LogRecovery, RecoveredLog
from rmq_ha.store.setaside import Keeper
from rmq_ha.store.statistics import StoreStatistics
from rmq_ha.store.tail import LogTail, Tail

_FOR_EVER = 1 << 62
_HOUR_MS = 3_600_000
_HOW = {
    Left.CLEAN: "a clean stop",
    Left.KILLED: "a kill of the process",
    Left.CRASHED: "an abnormal stop",
}


class Surroundings(Protocol):
    """What of a store the parts work with; it may be read when the store is built."""

    host: Host
    configuration: BrokerConfiguration
    root: str
    flags: RunningFlags
    queues: ConsumeQueueTable
    index: IndexService | None
    checkpoint: Checkpoint
    boot: BootMark
    statistics: StoreStatistics

    def sure_until_ms(self) -> int:
        """After a crash: what was stored up to then is on the disk, in log, queues and index."""

    def log_flushed(self) -> None:
        """More of the log is on the disk."""


class StoreLog(Protocol):
    """
    A commit log as a store uses it.

    :ivar encoder: limits and the numbering of queues.
    :ivar last_store_timestamp: of the newest record, ms.
    """

    encoder: GroupEncoder
    last_store_timestamp: int

    @property
    def file_size(self) -> int:
        """Bytes of one file."""

    @property
    def delay_levels(self) -> list[int]:
        """Ms of level 1, 2, ..."""

    @property
    def directories(self) -> Sequence[str]:
        """Where it may grow."""

    @property
    def pending(self) -> Sized:
        """Appended records whose meaning is kept for the dispatcher."""

    @property
    def fault(self) -> str | None:
        """Why it takes no more writes; None while it does."""

    @property
    def min_offset(self) -> int:
        """Start of the first file; -1 without files."""

    @property
    def max_offset(self) -> int:
        """End of what may be read; 0 without files."""

    @property
    def readable_end(self) -> int:
        """Where what consumers may read ends; not behind `max_offset`."""

    @property
    def written_end(self) -> int:
        """Where all ends that is there, also what may not be read yet; not before `max_offset`."""

    @property
    def flushed_offset(self) -> int:
        """Everything below is on this disk."""

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Have `callback` called when there is more of it."""

    def append_group(
        self, messages: list[Message], now_ms: int
    ) -> list[AppendResult | PutMessageStatus]:
        """Append messages; one result for each."""

    def append_batch(self, batch: BatchLayout, now_ms: int) -> AppendResult | PutMessageStatus:
        """Append all of a batch or nothing; one result for all of it."""

    def read(self, physical_offset: int, limit: int) -> bytes:
        """Bytes from an offset on, up to the end of that file at most."""

    def record_at(self, physical_offset: int, size: int | None = None) -> bytes | None:
        """The bytes of one record; None where there is none."""


class Flusher(Protocol):
    """Brings the log to the disk."""

    @property
    def waiting(self) -> int:
        """How many puts wait for the disk."""

    def wait_flushed(self, next_offset: int) -> MaybeLater:
        """A status where nothing needs waiting, else a Deferred of one that never fails."""

    def appended(self) -> None:
        """The log grew; called once a turn."""

    async def stop(self) -> None:
        """Flush what is left; every waiter has fired afterwards."""


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


class LogParts(Protocol):
    """
    One kind of log's own ways.

    :ivar always_waits: every put waits for replicas, also one that does not ask for it.
    :ivar is_elected: an election says whether the broker is a slave; else the configuration.
    :ivar goes_on_after_kill: `recover` knows what `Left.KILLED` means.
    :ivar dispatch_from: after `mend`: queues still lack messages from that physical offset on;
        None: nothing before their end.
    """

    always_waits: bool
    is_elected: bool
    goes_on_after_kill: bool
    dispatch_from: int | None

    @property
    def tail(self) -> Tail:
        """For the dispatcher."""

    @property
    def flusher(self) -> Flusher:
        """For puts."""

    @property
    def cleaner(self) -> Cleaner:
        """For rounds and operators."""

    def load(self) -> None:
        """
        Look which files there are.

        :raises StoreError: they are not as they must be.
        """

    def look_for_it(self) -> None:
        """
        Nothing is changed yet, and files are all that is loaded of queues and checkpoint.

        :raises StoreError: there is no log where there was one.
        """

    def recover(self, left: Left) -> None:
        """
        Find the end of the log, and cut queues that reach behind it; they are loaded.

        :raises StoreError: the disk refuses.
        """

    def mend(self) -> Iterator[None]:
        """After `recover`: give queues what they lack, a piece a step; never fails."""

    def note_ends(self) -> None:
        """
        All is written: note where log and queues end, for the next start. For the worker.

        :raises OSError: the disk refuses.
        """

    def stopped(self) -> None:
        """Nothing will be written any more; `close` follows."""

    def close(self) -> None:
        """Give up the files."""


@runtime_checkable
class KeepsItself(Protocol):
    """A log that is not kept as the built-in one is."""

    def make_parts(self, store: Surroundings) -> LogParts:
        """What the store shall put around it."""


class ClassicParts:
    """
    What is around the built-in commit log.

    :ivar log: that log.
    :ivar dispatch_from: as `LogParts` says.
    """

    logger = Logger()
    always_waits = False
    is_elected = False
    goes_on_after_kill = True

    def __init__(self, store: Surroundings, log: CommitLog) -> None:
        host, configuration = store.host, store.configuration
        config = configuration.store
        self._store = store
        self.log = log
        self.dispatch_from: int | None = None
        self._rebuild: QueueRebuild | None = None
        self.tail = LogTail(log)
        self.flusher = CommitLogFlusher(
            host.clock,
            host.worker,
            config,
            log,
            store.checkpoint,
            self.log_flushed,
            store.boot.forget,
        )
        self.cleaner = LogCleaner(
            config,
            host.disk,
            host.worker,
            log,
            f"{store.root}/consumequeue",
            store.flags,
            host.now_ms,
            full_ratio=configuration.ours.disk_space_warning_level_ratio / 100,
            force_ratio=configuration.ours.disk_space_clean_forcibly_ratio / 100,
        )

    def log_flushed(self) -> None:
        """More of the log is on the disk."""
        self._store.log_flushed()

    def load(self) -> None:
        """As `LogParts` says."""
        self.log.row.load()

    def look_for_it(self) -> None:
        """As `LogParts` says."""
        store = self._store
        if not self.log.row.starts:
            AbsentLog(store.host.disk, store.root, self.log).settle(
                store.queues,
                store.checkpoint,
                may_start=store.configuration.ours.start_without_commit_log,
                now_ms=store.host.now_ms(),
            )

    def recover(self, left: Left) -> None:
        """As `LogParts` says; after a crash what was not surely written is dispatched again."""
        store, log = self._store, self.log
        config, queues = store.configuration.store, store.queues
        recovery = LogRecovery(log, config.check_crcon_recover)
        ends = read_ends(store.host.disk, store.root)
        rebuild = QueueRebuild(log, queues, store.index)
        if left is Left.CLEAN:
            verify = store.configuration.ours.verify_log_at_start
            lasts = () if verify else (ends.last if ends else None, queues.last_record())
            found = recovery.normal(*lasts, dispatched=queues.max_physical_offset)
            safe = found.end
        elif left is Left.KILLED:
            begin = self._whole_to()
            queues.truncate(begin)  # a unit that is written in part would pass for a good one
            if store.index is not None:
                store.index.truncate(begin)
            found = recovery.normal(queues.last_record(), dispatched=queues.max_physical_offset)
            safe = found.end
            rebuild.again_from(begin)
        else:
            safe = recovery.first_unsure(store.sure_until_ms())
            queues.truncate(safe)  # a torn unit there would pass for a good one
            rebuild.look()
            if ends is not None:
                rebuild.compare(ends, is_exact=False)
            rebuild.audit(safe)
            rebuild.begin_again(safe)
            found = recovery.abnormal(safe, rebuild.again)
            store.checkpoint.logics = max(store.checkpoint.logics, found.last_store_timestamp)
        self.logger.info(
            "the commit log ends at {end} after {how}; {records} records read",
            end=found.end,
            how=_HOW[left],
            records=found.records,
        )
        self._settle(found, self._promise(ends, left is Left.CLEAN))
        store.checkpoint.give_up(found.end, found.last_store_timestamp)
        recovery.cut(found.end, safe)
        log.last_store_timestamp = found.last_store_timestamp
        if queues.max_physical_offset >= found.end:
            queues.truncate(found.end)
        kept_ms = config.file_reserved_time * _HOUR_MS
        tell_lost_files(log, queues, kept_ms, store.host.now_ms())
        if left is Left.CLEAN:
            self._compare(rebuild, ends, found.end)
        elif left is Left.KILLED:
            rebuild.look()
            self._rebuild = rebuild

    def _whole_to(self) -> int:
        """
        After a kill: what lies below this physical offset is in the queues and in the index.

        Slices are dispatched one after the other, to the queues first; the one in which the
        process died lies within one file. So all before the last key of the index is in the
        queues, and in any case all before the file that they reach.
        """
        queues, index, low = self._store.queues, self._store.index, self.log.min_offset
        reached = queues.max_physical_offset
        if reached <= low:
            return max(low, 0)
        begin = self.log.row.start_of(reached - 1)
        if index is not None:
            begin = max(begin, min(index.reached, reached))
        return max(begin, low)

    def _compare(self, rebuild: QueueRebuild, ends: QueueEnds | None, end: int) -> None:
        """After a clean stop: find the queues that do not fit the log."""
        log = self.log
        rebuild.look()
        if ends is not None and ends.log_end == end:
            if log.min_offset > ends.log_min:
                self.logger.warn(
                    "the commit log begins at {now}, and began at {before} when it was stopped: "
                    "what lay between is gone",
                    now=log.min_offset,
                    before=ends.log_min,
                )
            rebuild.compare(ends, is_exact=True)
        else:
            rebuild.audit(end)
        self._rebuild = rebuild

    def mend(self) -> Iterator[None]:
        """As `LogParts` says."""
        rebuild, self._rebuild = self._rebuild, None
        if rebuild is None:
            return
        try:
            yield from rebuild.steps(self.log.readable_end)
            rebuild.leave_out()
        except (OSError, StoreError) as error:
            self.dispatch_from = rebuild.begin
            self.logger.error(
                "queues cannot be built anew from {begin} on, which is tried again: {error}",
                begin=rebuild.begin,
                error=error,
            )

    def _promise(self, ends: QueueEnds | None, last_exit_ok: bool) -> Promise:
        """What of the log was surely on the disk."""
        times = self._store.checkpoint.times
        if last_exit_ok:
            return Promise(ends.log_end if ends else 0, _FOR_EVER, "the clean stop before")
        return Promise(times.flushed_offset, times.physic_msg_timestamp, "the checkpoint")

    def _settle(self, found: RecoveredLog, promise: Promise) -> None:
        """What lies behind the end, before it is cut."""
        store = self._store
        damaged = DamagedLog(
            self.log,
            Keeper(store.host.disk, store.root, self.log),
            is_slave=store.configuration.store.broker_role is BrokerRole.SLAVE,
            may_cut=not store.configuration.ours.keep_damaged_log,
        )
        damaged.settle_owed(found.end, OwedLog(store.host.disk, store.root))
        newest = found.last_store_timestamp
        aside = damaged.settle(found.end, newest, promise, store.host.now_ms())
        if aside is not None:
            store.statistics.set_aside_bytes += aside.end - aside.start
            store.statistics.set_aside_messages += aside.messages

    def note_ends(self) -> None:
        """As `LogParts` says."""
        store = self._store
        queues = {
            key: QueueEnd(queue.first_offset, queue.max_offset, queue.max_physical_offset)
            for key, queue in store.queues.items()
            if queue.max_offset
        }
        ends = QueueEnds(
            self.log.min_offset, self.log.max_offset, store.queues.last_record(), queues
        )
        store.host.disk.replace(f"{store.root}/{FILE_NAME}", ends.encode())

    def stopped(self) -> None:
        """As `LogParts` says."""
        self.log.drop_spare()

    def close(self) -> None:
        """As `LogParts` says."""
        self.log.row.close()
