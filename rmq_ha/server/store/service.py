"""Loading, start, reactor turns, periodic rounds and stop of a store.

Spec: store.md, sections 5.3 to 5.5, 5.7 and 9.
"""

from collections.abc import Callable
from typing import Protocol

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger

from rmq_ha.base.errors import StoreError
from rmq_ha.base.seams import Lock
from rmq_ha.base.store_flags import Flag
from rmq_ha.base.store_format.checkpoint import NOTHING_WHOLE
from rmq_ha.base.store_format.commitlog import store_timestamp_of
from rmq_ha.base.timing.periodic import Periodic
from rmq_ha.base.timing.timer import next_turn
from rmq_ha.server.store.journal import Cleaner, Journal, JournalStoreContext
from rmq_ha.server.store.log.boot import LastExit
from rmq_ha.server.store.log.files import is_file_name
from rmq_ha.server.store.log.journal_log import JournalLog
from rmq_ha.server.store.statistics import SAMPLE_S
from rmq_ha.server.store.turns import TurnWatch

_SLICES_AT_ONCE = 64
_DISK_CHECK_S = 10.0
_FIRST_CLEANING_S = 60.0
_CATCH_UP_S = 5.0
_HEAD_SIZE = 96


class LivingStore(JournalStoreContext, Protocol):
    """
    The parts of a store that its service uses.

    :ivar is_open: the store takes puts and answers reads.
    :ivar turns: durations of the reactor's turns.
    :ivar is_whole: queues and index lack no dispatched record.
    :ivar on_forced_deletion: called when messages were deleted before they expired.
    """

    journal: Journal
    log: JournalLog
    cleaner: Cleaner
    turns: TurnWatch
    is_open: bool
    is_whole: bool
    on_forced_deletion: Callable[[], None]

    def tell_new_lives(self) -> None:
        """Report deleted queues that recovery and catching up found to exist again."""

    def close(self) -> None:
        """Close all files and release the lock of the store."""


class StoreService:
    """Runs a `DefaultMessageStore` from its loading to its stop."""

    log = Logger()

    def __init__(self, store: LivingStore) -> None:
        self._store = store
        self._locks: dict[str, Lock] = {}
        self._is_poked = False
        self._rounds: list[Periodic] = []
        self._is_running = False
        self._is_stopping = False
        self._cleaned_to = -1
        self._poked_at = 0.0

    def load(self) -> None:
        store = self._store
        self._check_root()
        self._take_lock(f"{store.root}/lock")
        try:
            self._lock_logs()
            self._load()
            for directory in store.log.directories:  # from now on nobody finds it without a lock
                store.host.disk.make_dirs(directory)
            self._lock_logs()
        except OSError as error:
            self._unlock()
            raise StoreError(f"cannot load the store at {store.root}: {error}") from error
        except StoreError:
            self._unlock()
            raise

    def _take_lock(self, path: str) -> None:
        if path not in self._locks:
            self._locks[path] = self._store.host.disk.lock(path)

    def _check_root(self) -> None:
        """
        Write nothing beside the files of a log: its own store would not open any more.

        :raises StoreError: the store's path is the folder of a log.
        """
        root = self._store.root
        for name in self._store.host.disk.list_dir(root):
            if is_file_name(name):
                raise StoreError(
                    f"{root}/{name} is a file of a commit log: storePathRootDir has to name the "
                    "folder above the log's folder"
                )

    def _lock_logs(self) -> None:
        """
        Lock the log's folders: another store may name them, too, and has a lock file of its own.

        :raises StoreLocked: another store has the log open.
        """
        for directory in self._store.log.directories:
            if self._store.host.disk.exists(directory):
                self._take_lock(directory)

    def _load(self) -> None:
        store = self._store
        disk = store.host.disk
        left = store.boot.how_it_was_left(store.log.directories)
        if left is LastExit.KILLED and not store.journal.goes_on_after_kill:
            left = LastExit.CRASHED
        store.journal.load()
        store.queues.load()
        store.checkpoint.load()
        whole = store.checkpoint.take_whole()
        verify = store.configuration.ours.verify_log_at_start
        if left is LastExit.CRASHED and store.journal.goes_on_after_kill and not verify:
            store.whole = whole
        store.deleted.load()
        store.journal.check_presence()
        disk.remove(store.boot.path)  # a kill during recovery counts as a crash
        if store.index is not None:
            store.index.load(
                left is not LastExit.CRASHED,
                store.checkpoint.index,
                is_killed=left is LastExit.KILLED,
                whole=store.whole,
            )
            if not store.index.is_whole:
                store.whole = NOTHING_WHOLE
        store.queues.recover(left is LastExit.CLEAN)
        store.journal.recover(left)
        self._finish_deletions()
        store.renumber()
        store.schedule.load()
        mark = f"{store.root}/abort"
        # RocketMQ 5 writes its process id into the file, and leaves it behind when it is killed.
        abort = disk.open(mark, disk.size(mark) if disk.exists(mark) else 0)
        abort.sync()  # the file must be on the disk before the first write
        abort.close()

    def _finish_deletions(self) -> None:
        """Delete queues again that were noted as deleted, if a crash came before their deletion."""
        store = self._store
        store.deleted.cut(store.log.written_end)
        for key, begin in store.deleted.table.items():
            queue = store.queues.get(*key)
            if queue is not None and queue.max_physical_offset <= begin:
                store.queues.remove_queue(*key)

    def poke(self) -> None:
        """Have the log's new records replicated, flushed and dispatched at the end of this turn."""
        if self._is_running and not self._is_poked:
            self._is_poked = True
            host = self._store.host
            self._poked_at = host.clock.seconds()
            host.soon(self._on_turn)

    def _on_turn(self) -> None:
        self._is_poked = False
        if not self._is_running:
            return  # the store stops, which dispatches the rest
        store = self._store
        now = store.host.clock.seconds()
        store.turns.end_turn(now - self._poked_at, now)
        for tell in store.journal.once_a_turn:
            tell()
        store.dispatcher.run(now)

    async def start(self) -> None:
        """
        Dispatch the rest of the log, then open the store.

        :raises StoreError: the disk refuses, or `stop` was called meanwhile.

        Spec: store.md, section 5.5.
        """
        store = self._store
        log = store.log
        await store.deleted.persist_if_dirty()  # `cut` lowered entries above the log's end
        # Dispatching begins after the last record of the queues. It begins earlier if `mend` fails,
        # or if the index lacks records and is needed to recognize duplicates.
        store.dispatcher.position = max(log.min_offset, store.queues.max_physical_offset, 0)
        await self._mend()
        if store.journal.dispatch_from is not None:
            store.dispatcher.position = min(store.dispatcher.position, store.journal.dispatch_from)
        if store.configuration.ours.duplicate_window_millis:
            store.dispatcher.position = min(store.dispatcher.position, self._unindexed_from())
        await self._catch_up()
        # Only now do the queues have all records, so the next queue offsets are right.
        self._number()
        self._is_running = True
        store.dispatcher.start()
        await store.journal.start()
        self._check_wanted()
        store.tell_new_lives()
        store.is_open = True
        if store.journal.dispatch_from is None:
            # If `mend` failed, queues lack records. Without the mark the next start counts as one
            # after a crash, and builds them again.
            store.boot.set()
            store.is_whole = store.journal.goes_on_after_kill
        for state in store.log_states:
            state.begin()
        if store.journal.role.begins_as_master:
            store.schedule.start()
            for state in store.log_states:
                state.start()
        store.queue_flusher.dispatched()  # recovery and catching up may have written queues
        self._start_rounds()
        self.log.info(
            "store at {root} is open: {content}",
            root=store.root,
            content=_content(log.min_offset, log.max_offset, store.dispatcher.position),
            low=log.min_offset,
            high=log.max_offset,
            position=store.dispatcher.position,
        )
        self.poke()

    async def _mend(self) -> None:
        """Write the units that damaged queues lack; other work runs between the pieces."""
        for _ in self._store.journal.mend():
            await next_turn(self._store.host.clock)
            self._check_wanted()

    async def _catch_up(self) -> None:
        """Dispatch records that the queues lack; other work runs between the slices."""
        slices = 0
        while self._store.dispatcher.run_slice():
            slices += 1
            if slices % _SLICES_AT_ONCE == 0:
                await next_turn(self._store.host.clock)
                self._check_wanted()

    def _unindexed_from(self) -> int:
        """
        Return the physical offset from which on the index must be filled, to know all messages in
        the window for duplicates.

        An index that is new or lost files is filled only as far back as that. Queues ignore records
        that they have.
        """
        store, log = self._store, self._store.log
        index = store.index
        if index is None or not log.max_offset or (index.reached and not index.damage):
            return log.max_offset
        since = store.host.now_ms() - store.configuration.ours.duplicate_window_millis
        low = max(log.min_offset, 0)
        for start in reversed(range(low, log.max_offset, log.file_size)):
            head = log.read(start + log.encoder.gap, _HEAD_SIZE)
            if 0 < store_timestamp_of(head) < since:
                return start
        return low

    def _number(self) -> None:
        """
        Take the next queue offsets from the queues, or refuse puts while the queues lack records of
        the log.

        A put that takes its queue offset from such a queue would get that of an older message. An
        elected master checks this itself (`RoleSwitch`), and a slave gives no queue offsets.
        """
        store = self._store
        trouble = store.dispatcher.trouble
        numbers = store.journal.role.begins_as_master
        if trouble and numbers and store.dispatcher.bytes_behind > 0:
            store.flags.hoist(Flag.QUEUES_BEHIND, trouble)
        else:
            store.renumber()

    def _check_disk(self) -> None:
        store = self._store
        store.cleaner.check_disk()
        if store.flags.is_up(Flag.QUEUES_BEHIND) and store.dispatcher.bytes_behind <= 0:
            store.renumber()
            store.flags.lower(Flag.QUEUES_BEHIND)
            self.log.info("the queues know all of the log: puts are taken")

    def _check_wanted(self) -> None:
        if self._is_stopping:
            raise StoreError("the store was stopped while it started")

    def _start_rounds(self) -> None:
        store, clock = self._store, self._store.host.clock
        every = max(store.configuration.store.clean_resource_interval, 100) / 1000
        self._rounds = [
            Periodic(clock, "store statistics", self._sample, SAMPLE_S),
            Periodic(clock, "disk check", self._check_disk, _DISK_CHECK_S, 1.0),
            Periodic(clock, "cleaning", self.clean, every, _FIRST_CLEANING_S),
        ]
        for periodic in self._rounds:
            periodic.start()

    def _sample(self) -> None:
        host = self._store.host
        self._store.statistics.sample(host.now_ms(), host.steady_ms())

    def clean(self) -> "Deferred[None]":
        """Run one cleaning round: log files first, then the files that point to them."""
        forced = self._store.cleaner.forced_deletions
        return self._store.cleaner.clean().addCallback(self._clean_queues, forced)

    def _clean_queues(self, _: int, forced: int) -> None:
        store = self._store
        lowest = store.log.min_offset
        if lowest <= self._cleaned_to:
            return
        self._cleaned_to = lowest
        store.queues.delete_expired(lowest)
        store.deleted.expire(lowest)
        if store.index is not None:
            store.index.delete_expired(lowest)
        if store.cleaner.forced_deletions > forced:
            store.on_forced_deletion()

    async def stop(self) -> None:
        """
        Close the store, so that the next start is a normal one if everything could be written.

        Spec: store.md, section 5.7.
        """
        store = self._store
        if self._is_stopping:
            return
        self._is_stopping = True
        for state in store.log_states:
            await state.close()
        store.is_open = False
        for periodic in self._rounds:
            await maybeDeferred(periodic.stop)
        self._rounds = []
        await store.schedule.stop()
        await store.journal.stop()
        await store.journal.is_whole()
        was_running, self._is_running = self._is_running, False
        if was_running:
            await self._drain()
        if self._is_poked:  # nothing of this store is called after its stop
            await next_turn(store.host.clock)
        store.dispatcher.stop()
        await store.journal.flush()
        await store.queue_flusher.stop()
        await store.deleted.persist_if_dirty()
        await self._close(was_running)

    async def _drain(self) -> None:
        """Dispatch the rest of the log, for at most five seconds."""
        clock = self._store.host.clock
        deadline = clock.seconds() + _CATCH_UP_S
        while self._store.dispatcher.run_slice() and clock.seconds() < deadline:
            await next_turn(clock)

    async def _note_ends(self) -> None:
        """Note where log and queues end; without the note the next start compares them itself."""
        store = self._store
        try:
            await store.host.worker.call(store.journal.note_ends)
        except (OSError, StoreError) as error:
            self.log.warn("cannot note where the queues end: {error}", error=error)

    async def _close(self, was_running: bool) -> None:
        store = self._store
        is_clean = (
            was_running
            and store.dispatcher.bytes_behind <= 0
            and store.log.max_offset <= store.log.flushed_offset
            and store.flags.may_be_closed_cleanly
            and not store.queue_flusher.is_broken
        )
        store.journal.stopped()
        store.boot.forget()
        if is_clean:
            await self._note_ends()
            store.host.disk.remove(f"{store.root}/abort")
        else:
            self.log.warn(
                "store at {root} closes with work left: the next start repairs it",
                root=store.root,
            )
        store.close()
        self.log.info("store at {root} is closed", root=store.root)

    def close(self) -> None:
        store = self._store
        store.journal.close()
        store.queues.close()
        if store.index is not None:
            store.index.close()
        store.checkpoint.close()
        self._unlock()

    def _unlock(self) -> None:
        for lock in self._locks.values():
            lock.release()
        self._locks.clear()


def _content(low: int, high: int, dispatched: int) -> str:
    """Describe for the log which bytes a store holds when it opens."""
    if low < 0 or low == high:
        return "its log is empty"
    done = "all of it" if dispatched >= high else f"bytes up to {dispatched} of it"
    return f"its log holds bytes {low} to {high}, and its queues cover {done}"
