"""A journal on one broker's disk: RocketMQ's commit log with its flusher, its cleaner and its
recovery.

Spec: store.md, section 5.
"""

from collections.abc import Iterator

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rmq_ha.base.config.store import MessageStoreConfig
from rmq_ha.base.errors import StoreError
from rmq_ha.server.store.journal import JournalStoreContext, Role
from rmq_ha.server.store.journal_base import JournalBase
from rmq_ha.server.store.local.absent_log import AbsentLog, tell_lost_files
from rmq_ha.server.store.local.damaged_log import DamagedLog, Promise
from rmq_ha.server.store.local.rebuild import QueueRebuild
from rmq_ha.server.store.local.refetch import RefetchLog
from rmq_ha.server.store.local.tailcut import TailCut
from rmq_ha.server.store.log.boot import LastExit
from rmq_ha.server.store.log.clean import CleaningLimits, LogCleaner
from rmq_ha.server.store.log.commitlog import CommitLog
from rmq_ha.server.store.log.flush import CommitLogFlusher
from rmq_ha.server.store.log.recovery import LogRecovery, RecoveredLog
from rmq_ha.server.store.log.setaside import Keeper, TailAside
from rmq_ha.server.store.log.tail import LogTail
from rmq_ha.server.store.queues.ends import FILE_NAME, QueueEnd, QueueEnds, read_ends

_FOR_EVER = 1 << 62
_HOUR_MS = 3_600_000
_HOW = {
    LastExit.CLEAN: "a clean stop",
    LastExit.KILLED: "a kill of the process",
    LastExit.CRASHED: "an abnormal stop",
}


class LocalJournal(JournalBase):
    """
    RocketMQ's commit log on this broker's disk, with its flusher, its cleaner and its recovery.

    :param role: the role of the broker; None: the role that the configuration gives.
    :ivar log: the commit log.
    """

    logger = Logger()
    goes_on_after_kill = True
    log: CommitLog
    flusher: CommitLogFlusher
    tail: LogTail

    def __init__(
        self, log: CommitLog, config: MessageStoreConfig, role: Role | None = None
    ) -> None:
        super().__init__(log, config, role or Role(config))
        self._rebuild: QueueRebuild | None = None

    def attach(self, store: JournalStoreContext) -> None:
        host, configuration, log = store.host, store.configuration, self.log
        config = configuration.store
        self._store = store
        self.tail = self._make_tail()
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
            host,
            config,
            log,
            f"{store.root}/consumequeue",
            store.flags,
            CleaningLimits.from_config(configuration.ours),
        )
        self._tail_cut = TailCut(store, log, self.flusher, self.tail)
        super().attach(store)

    def _make_tail(self) -> LogTail:
        return LogTail(self.log)

    def set_aside(self, end: int, why: str) -> "Deferred[TailAside]":
        return self._tail_cut.set_aside(end, why)

    def set_all_aside(self, why: str) -> "Deferred[TailAside]":
        return self._tail_cut.set_all_aside(why)

    async def is_whole(self) -> None:
        while self._tail_cut.running is not None:
            await self._tail_cut.running

    def log_flushed(self) -> None:
        """Tell the store that more of the log is on the disk."""
        self._store.log_flushed()

    def load(self) -> None:
        self.log.row.load()

    def check_presence(self) -> None:
        store = self._store
        if not self.log.row.starts:
            AbsentLog(store.host.disk, store.root, self.log).settle(
                store.queues,
                store.checkpoint,
                may_start=store.configuration.ours.start_without_commit_log,
                now_ms=store.host.now_ms(),
            )

    def recover(self, left: LastExit) -> None:
        """
        Find the end of the log, set whole records after it aside, and cut log, queues and index to
        it; see `Journal`.

        After a clean stop, reading goes on at the last record that the queues know; `mend` then
        rebuilds queues that do not fit the log. After a kill, all writes exist, so `mend` only adds
        the records that were not dispatched to all targets. After a crash, the records that may be
        missing in queues and index are dispatched again at once.
        """
        store, log = self._store, self.log
        config, queues = store.configuration.store, store.queues
        recovery = LogRecovery(log, config.check_crcon_recover)
        ends = read_ends(store.host.disk, store.root)
        rebuild = QueueRebuild(log, queues, store.index)
        if left is LastExit.CLEAN:
            verify = store.configuration.ours.verify_log_at_start
            lasts = () if verify else (ends.last if ends else None, queues.last_record())
            recovered = recovery.normal(*lasts, dispatched=queues.max_physical_offset)
            safe = recovered.end
        elif left is LastExit.KILLED:
            begin = self._whole_to()
            queues.truncate(begin)  # a unit that is written in part would pass for a good one
            if store.index is not None:
                store.index.truncate(begin)
            recovered = recovery.normal(queues.last_record(), dispatched=queues.max_physical_offset)
            safe = recovered.end
            rebuild.again_from(begin)
        else:
            safe = self._sure_to(recovery)
            queues.truncate(safe)  # a torn unit there would pass for a good one
            rebuild.look()
            if ends is not None:
                rebuild.compare(ends, is_exact=False)
            rebuild.audit(safe)
            rebuild.begin_again(safe)
            recovered = recovery.abnormal(safe, rebuild.dispatch_again)
            store.checkpoint.logics = max(store.checkpoint.logics, recovered.last_store_timestamp)
        self.logger.info(
            "the commit log ends at {end} after {how}; {records} records read",
            end=recovered.end,
            how=_HOW[left],
            records=recovered.records,
        )
        # The order counts: whole records after the end are set aside while they are still in the
        # log, then the log is cut, and only then queues and index are cut to the log's final end.
        self._settle(recovered, self._promise(ends, left is LastExit.CLEAN))
        store.checkpoint.give_up(recovered.end, recovered.last_store_timestamp)
        recovery.cut(recovered.end, safe)
        log.last_store_timestamp = recovered.last_store_timestamp
        if queues.max_physical_offset >= recovered.end:
            queues.truncate(recovered.end)
        if store.index is not None:  # an index file may be flushed before the log
            store.index.truncate(recovered.end)
        kept_ms = config.file_reserved_time * _HOUR_MS
        tell_lost_files(log, queues, kept_ms, store.host.now_ms())
        if left is LastExit.CLEAN:
            self._compare(rebuild, ends, recovered.end)
        elif left is LastExit.KILLED:
            rebuild.look()
            self._rebuild = rebuild

    def _sure_to(self, recovery: LogRecovery) -> int:
        """
        Return, after lost power, the physical offset below which log, queues and index are on the
        disk.

        The checkpoint may hold positions that were complete. Then the last record of the queues
        below them is read again. It must be where the queues say, else the positions belong to
        another log.
        """
        store = self._store
        if store.whole.offset:
            store.queues.truncate(store.whole.offset)
            last = store.queues.last_record()
            if last is not None and recovery.stands(*last):
                if store.index is not None:
                    store.index.truncate(last[0])
                return last[0]
        return recovery.first_unsure(store.sure_until_ms())

    def _whole_to(self) -> int:
        """
        Return, after a kill, the physical offset below which queues and index have all records.

        Slices are dispatched in order, each to the queues first, and each lies within one file. So
        the queues have all records before the last key of the index. They also have all records
        before the file in which their last record lies.
        """
        queues, index, low = self._store.queues, self._store.index, self.log.min_offset
        reached = queues.max_physical_offset
        begin = self.log.row.start_of(reached - 1)
        if index is not None:
            begin = max(begin, min(index.reached, reached))
        return max(begin, low, 0)

    def _compare(self, rebuild: QueueRebuild, ends: QueueEnds | None, end: int) -> None:
        """Find the queues that do not fit the log, after a clean stop."""
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
        """Return which part of the log was surely on the disk."""
        times = self._store.checkpoint.times
        if last_exit_ok:
            return Promise(ends.log_end if ends else 0, _FOR_EVER, "the clean stop before")
        return Promise(times.flushed_offset, times.physic_msg_timestamp, "the checkpoint")

    def _settle(self, recovered: RecoveredLog, promise: Promise) -> None:
        """
        Judge the bytes after the end of the log, and set whole records there aside, before the log
        is cut.
        """
        store = self._store
        damaged = DamagedLog(
            self.log,
            Keeper(store.host.disk, store.root, self.log),
            is_slave=self.role.is_slave,
            may_cut=not store.configuration.ours.keep_damaged_log,
        )
        damaged.settle_owed(recovered.end, RefetchLog(store.host.disk, store.root))
        newest = recovered.last_store_timestamp
        aside = damaged.settle(recovered.end, newest, promise, store.host.now_ms())
        if aside is not None:
            store.statistics.set_aside_bytes += aside.end - aside.start
            store.statistics.set_aside_messages += aside.messages

    def note_ends(self) -> None:
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
        self.log.drop_spare()

    def close(self) -> None:
        self.log.row.close()
