"""Cuts the end of a running slave's log, and all entries in queues and index for it.

Spec: store.md, sections 3.5 and 5.6.
"""

from collections import Counter
from collections.abc import Awaitable, Callable

from twisted.internet.defer import Deferred, fail
from twisted.logger import Logger

from rmq_ha.base.errors import StoreError
from rmq_ha.base.store_format.checkpoint import CheckpointTimes
from rmq_ha.base.store_format.commitlog import store_timestamp_of
from rmq_ha.server.store.journal import JournalStoreContext
from rmq_ha.server.store.local.refetch import RefetchLog
from rmq_ha.server.store.log.commitlog import CommitLog
from rmq_ha.server.store.log.flush import CommitLogFlusher
from rmq_ha.server.store.log.recovery import LogRecovery
from rmq_ha.server.store.log.setaside import Keeper, TailAside, folder_for
from rmq_ha.server.store.log.tail import LogTail

_HEAD = 96
_NOTHING = CheckpointTimes()


class TailCut:
    """
    Cuts the end of a running slave's log, with its entries in queues and index.

    It may also give the whole log up: a slave that was away for longer than its master keeps
    messages begins again.

    The order of the steps makes a crash between them harmless. First the bytes are copied on the
    disk. Then the checkpoint is set back, so that a start after a crash reads the log from before
    the cut. Then queues and index are cut; a start after a crash would rebuild both. The log is cut
    last.

    :ivar running: fires when the current cut is over; None if there is no current cut.
    """

    log = Logger()

    def __init__(
        self, store: JournalStoreContext, log: CommitLog, flusher: CommitLogFlusher, tail: LogTail
    ) -> None:
        self._store = store
        self._log = log
        self._flusher = flusher
        self._tail = tail
        self._keeper = Keeper(store.host.disk, store.root, log)
        self.running: Deferred[None] | None = None

    def set_aside(self, end: int, why: str) -> "Deferred[TailAside]":
        """See `StoreMaintenance.set_tail_aside`. Only one cut runs at a time."""
        if self.running is not None:
            return fail(StoreError("the end of the log is just being set aside"))
        log = self._log
        if not log.min_offset <= end < log.max_offset:
            reason = f"{end} is not inside the log, from {log.min_offset} to {log.max_offset}"
            return fail(StoreError(f"nothing can be set aside: {reason}"))
        return Deferred.fromCoroutine(self._run(self._cut, end, why))

    def set_all_aside(self, why: str) -> "Deferred[TailAside]":
        """See `StoreMaintenance.set_all_aside`. Only one cut runs at a time."""
        if self.running is not None:
            return fail(StoreError("the end of the log is just being set aside"))
        if not self._log.row.starts:
            return fail(StoreError("nothing can be set aside: the log has no file"))
        return Deferred.fromCoroutine(self._run(self._give_up_all, self._log.min_offset, why))

    async def _run(
        self, cut: Callable[[int, str], Awaitable[TailAside]], end: int, why: str
    ) -> TailAside:
        self.running = Deferred()
        store = self._store
        store.dispatcher.stop()
        store.boot.forget()  # queues and index do not follow the log in order any more
        try:
            aside = await cut(end, why)
        except OSError as error:
            raise StoreError(
                f"cannot set aside what the log holds from {end} on: {error}; free some disk "
                "space or repair the disk"
            ) from error
        finally:
            self._flusher.release()
            store.queue_flusher.release()
            store.dispatcher.start()
            for state in store.log_states:
                state.begin()
            running, self.running = self.running, None
            running.callback(None)
            store.dispatcher.run()
        store.statistics.set_aside_bytes += aside.end - aside.start
        store.statistics.set_aside_messages += aside.messages
        self.log.warn(
            "what the log held from {start} to {end}, {messages} whole messages, is set aside in "
            "{folder}: {why}; read it with rmqha-admin store dump {folder} --commit-log {folder}, "
            "and delete the folder when nobody needs it",
            why=why,
            **aside._asdict(),
        )
        return aside

    async def _cut(self, end: int, why: str) -> TailAside:
        store, log, worker = self._store, self._log, self._store.host.worker
        for start in self._touched_files(end):
            log.row.file(start)  # open the file here, so that the worker finds it open
        aside = await worker.call(
            self._keeper.keep, "diverged", end, log.max_offset, why, store.host.now_ms()
        )
        await self._flusher.hold()
        await store.queue_flusher.hold()
        try:
            times = await worker.call(self._set_back, end)
        except (OSError, StoreError):
            await worker.call(self._keeper.discard, aside.folder)
            raise
        store.checkpoint.set(times)
        store.queue_flusher.index_end = min(
            store.queue_flusher.index_end, times.index_msg_timestamp
        )
        store.queues.truncate(end)
        if store.index is not None:
            store.index.truncate(end)
        later = self._forget(end)
        self._renumber(end)
        try:
            await worker.call(self._cut_files, end, later)
        except (OSError, StoreError) as error:
            log.refuse_writes(f"what lies behind {end} cannot be wiped: {error}")
            raise
        # Else a start after a crash takes the next messages for messages of deleted topics.
        await store.deleted.persist_if_dirty()
        return aside

    async def _give_up_all(self, start: int, why: str) -> TailAside:
        """
        Move the log's files away, and remove all that was built on them.

        The newest file is moved first. If the disk refuses it, nothing is lost. A crash between two
        files leaves a log that ends earlier, and a start rebuilds its queues.
        """
        store, log, worker = self._store, self._log, self._store.host.worker
        counts = Counter[str]()
        for (topic, _), queue in store.queues.items():
            counts[topic] += queue.max_offset - queue.min_offset
        now_ms, end = store.host.now_ms(), log.max_offset
        await self._flusher.hold()
        await store.queue_flusher.hold()
        folder = folder_for(
            store.host.disk, _parent_directory(log.row.path(start)), f"all-{start}-{end}", now_ms
        )
        aside = TailAside(folder, start, end, counts.total())
        await worker.call(self._vouch_for_nothing)
        await worker.call(self._move, log.row.path(log.row.starts[-1]), folder)
        store.checkpoint.set(_NOTHING)
        store.queue_flusher.index_end = 0
        store.queues.remove_all()
        if store.index is not None:
            store.index.truncate(0)
        paths = self._forget(0) + [log.row.forget(start) for start in list(log.row.starts)]
        self._renumber(0)
        try:
            for path in paths[1:]:
                await worker.call(self._move, path, folder)
            await worker.call(self._keeper.tell, aside, counts, why, now_ms)
        except (OSError, StoreError) as error:
            log.refuse_writes(f"files of the old log cannot be moved to {folder}: {error}")
            raise
        await store.deleted.persist_if_dirty()
        return aside

    def _vouch_for_nothing(self) -> None:
        """
        Clear the checkpoint: otherwise a start would find no log files, and take them for lost.

        Runs in the worker.
        """
        self._store.checkpoint.write(_NOTHING)
        RefetchLog(self._store.host.disk, self._store.root).give_up()

    def _move(self, path: str, folder: str) -> None:
        self._store.host.disk.move(path, f"{folder}/{path.rsplit('/', 1)[1]}")

    def _touched_files(self, end: int) -> list[int]:
        """
        Return the starts of the files that are cut, and of a file that ends exactly at the cut.
        """
        log, size = self._log, self._log.file_size
        return [start for start in log.row.starts if end - size <= start < log.max_offset]

    def _set_back(self, end: int) -> CheckpointTimes:
        """
        Set the checkpoint back, so that it promises nothing in the files that are cut.

        Runs in the worker.

        Also the times are set back: later messages with the same times will be written in the place
        of the cut ones, and the checkpoint must not promise them. The stretches of a damaged log
        that this slave still wanted to fetch again are given up, because the master has another
        log.
        """
        row = self._log.row
        recovery = LogRecovery(self._log, True)
        firsts = [
            recovery.begun_at(start) for start in list(row.starts) if start + row.file_size >= end
        ]
        most = max(0, min(firsts) - 1)
        times = self._store.checkpoint.times.at_most(CheckpointTimes.ending(end, most))
        self._store.checkpoint.write(times)
        RefetchLog(self._store.host.disk, self._store.root).give_up()
        return times

    def _forget(self, end: int) -> list[str]:
        """
        End the log at `end` in memory; return the paths of the files after it, the last one first.
        """
        log, row = self._log, self._log.row
        later = [row.forget(start) for start in sorted(row.starts, reverse=True) if start > end]
        log.pending.clear()
        log.recovered(end, min(log.flushed_offset, end))
        self._tail.forget()
        self._store.deleted.cut(end)
        dispatcher = self._store.dispatcher
        dispatcher.position = min(dispatcher.position, end)
        return later

    def _renumber(self, end: int) -> None:
        store = self._store
        store.renumber()
        store.schedule.correct()
        last = store.queues.last_record()
        head = self._log.read(last[0], _HEAD) if last is not None else b""
        self._log.last_store_timestamp = store_timestamp_of(head)

    def _cut_files(self, end: int, later: list[str]) -> None:
        """Cut the files, the last one first, as the row must have no hole. Runs in the worker."""
        for path in later:
            self._store.host.disk.remove(path)
        row = self._log.row
        start = row.start_of(end)
        if start in row.starts:
            file = row.file(start)
            file.zero(end - start)
            file.sync()
        self._store.queues.sync()
        if self._store.index is not None:
            self._store.index.sync()


def _parent_directory(path: str) -> str:
    """Return the directory that holds a file's directory. It probably is on the same disk."""
    return path.rsplit("/", 2)[0]
