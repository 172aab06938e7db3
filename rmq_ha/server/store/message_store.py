"""DefaultMessageStore: log, queues, index, and the services that maintain them.

Spec: store.md.
"""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from zope.interface import implementer

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.interfaces import IMessageStore
from rmq_ha.base.model.message import (
    AppendResult,
    BrokerMessage,
    Draft,
    MessageBatch,
    PutMessageResult,
    Row,
    draft_of,
)
from rmq_ha.base.model.status import BrokerRole, PutMessageStatus
from rmq_ha.base.model.topics import SCHEDULE_TOPIC
from rmq_ha.base.runs.face import Rows
from rmq_ha.base.seams import Host
from rmq_ha.base.store_flags import Flag, RunningFlags
from rmq_ha.base.store_format.checkpoint import NO_INDEX, NOTHING_WHOLE, CompletePositions
from rmq_ha.base.store_format.delay_levels import parse_delay_levels
from rmq_ha.base.timing.slices import Lane
from rmq_ha.server.store.delay.offsets import DelayOffsets
from rmq_ha.server.store.delay.redirect import asks_for_delay, redirect_delayed
from rmq_ha.server.store.delay.schedule import DelayedLog, ScheduleMessageService
from rmq_ha.server.store.index.index import IndexService
from rmq_ha.server.store.journal import Journal, LogState
from rmq_ha.server.store.journal_base import JournalBase
from rmq_ha.server.store.local.journal import LocalJournal
from rmq_ha.server.store.log.append import DraftGroup
from rmq_ha.server.store.log.batch import MEMBERS_A_TURN, BatchLayout
from rmq_ha.server.store.log.boot import BootMark
from rmq_ha.server.store.log.checkpoint import StoreCheckpoint
from rmq_ha.server.store.log.dispatch import Dispatcher
from rmq_ha.server.store.log.flush import FlushedFiles, QueueFlusher
from rmq_ha.server.store.log.layout import make_commit_log, store_root
from rmq_ha.server.store.maintenance import StoreMaintenance
from rmq_ha.server.store.queues.deleted_queues import DeletedQueues
from rmq_ha.server.store.queues.files import most_queue_files
from rmq_ha.server.store.queues.queue import Restarted
from rmq_ha.server.store.queues.table import ConsumeQueueTable
from rmq_ha.server.store.reading.damage import ReadDamage
from rmq_ha.server.store.reading.pulls import MessageReader
from rmq_ha.server.store.reading.starts import record_starting_at, unqueued_record_at
from rmq_ha.server.store.service import StoreService
from rmq_ha.server.store.settle import Done, Others, PutSettler, PutTerms, results_of
from rmq_ha.server.store.statistics import StoreStatistics
from rmq_ha.server.store.timer.delivery import DeliveryTerms
from rmq_ha.server.store.timer.table import TimerLog
from rmq_ha.server.store.timer.timers import TimerMessageService
from rmq_ha.server.store.turns import TurnWatch

DEFAULT_MEMORY = 8 << 30
KEYS_AT_ONCE = 1024
"""Most keys that the index gets in one turn, which takes a few ms. One record may have 16,000 keys,
a batch 800,000."""
_BUSY_AT_MOST_MS = 10_000_000


@implementer(IMessageStore)
class DefaultMessageStore(StoreMaintenance):
    """
    The store of one broker.

    Call `load`, then `start`, and `stop` at the end. The records that one reactor turn appends are
    replicated, flushed and dispatched together in the next turn.

    :param journal: keeps the messages; None for a journal on this disk alone.
    :param memory_bytes: memory of this machine.
    :ivar on_new_life: called with topic, queue id and queue offset when a deleted queue begins
        again. No consumer can be beyond that offset yet, whatever it committed before.
    :ivar slow_until: time in seconds until which `is_page_cache_busy` is True; usually 0.
    :ivar turns: measures the turns for `waited_ms`.
    :ivar on_forced_deletion: called when messages were deleted before they expired.
    :ivar log_states: see `JournalStoreContext`.
    :ivar on_renumbered: called when the next queue offsets were read again from the disk.
    """

    logger = Logger()

    def __init__(
        self,
        host: Host,
        configuration: BrokerConfiguration,
        journal: Journal | None = None,
        memory_bytes: int = DEFAULT_MEMORY,
    ) -> None:
        config = configuration.store
        self.root = root = store_root(config)
        self.host = host
        self.configuration = configuration
        self.delay_levels = parse_delay_levels(config.message_delay_level)
        flags = RunningFlags()
        if journal is None:
            journal = LocalJournal(make_commit_log(host.disk, config), config)
        self.journal = journal
        log = journal.log
        extension_size = config.mapped_file_size_consume_queue_ext
        self.deleted = DeletedQueues(host.disk, host.worker, root)
        queues = ConsumeQueueTable(
            host.disk,
            root,
            config.mapped_file_size_consume_queue,
            most_queue_files(host.open_files),
            extension_file_size=extension_size if config.enable_consume_queue_ext else None,
            begins=self.deleted.table,
        )
        index = None
        if config.message_index_enable:
            index = IndexService(
                host.disk, root, config.max_hash_slot_num, config.max_index_num, host.now_ms
            )
        damage = ReadDamage(log, configuration.ours.check_crc_on_read)
        super().__init__(
            config,
            log,
            queues,
            index,
            MessageReader(config, log, queues, damage, memory_bytes, host.clock.seconds),
            flags,
            StoreStatistics(host.now_ms(), host.steady_ms()),
        )
        self.checkpoint = StoreCheckpoint(host.disk, f"{root}/checkpoint")
        self.whole, self.is_whole = NOTHING_WHOLE, False
        is_wanted = configuration.ours.trust_page_cache_after_kill
        self.boot = BootMark(host.disk, root, is_wanted=is_wanted)
        # The journal takes the checkpoint, the flags and the boot mark from the store, so all of
        # them are made above. The settler and the dispatcher below take parts that the journal
        # makes here.
        journal.attach(self)
        self.cleaner = journal.cleaner
        self._settler = PutSettler(journal, self.statistics)
        self.queue_flusher = QueueFlusher(
            host.clock,
            host.worker,
            config,
            self.checkpoint,
            FlushedFiles(
                queues.sync, index.sync if index is not None else lambda: None, self._complete
            ),
            self.boot.forget,
        )
        if index is not None:
            index.on_file_full = self.queue_flusher.index_file_full
        self.dispatcher = Dispatcher(
            host.clock,
            log,
            config,
            self._dispatched,
            flags,
            journal.tail,
        )
        # Queues come before the index. After a kill the recovery relies on it that the queues have
        # each record of which the index has a key (`LocalJournal._whole_to`).
        self.dispatcher.add_target(Flag.CONSUME_QUEUE, queues.put_rows, 30)
        if index is not None:
            put_rows = partial(index.put_rows, most=KEYS_AT_ONCE)
            self.dispatcher.add_target(Flag.INDEX_FILE, put_rows, 3)
        self.schedule = ScheduleMessageService(
            host.times,
            DelayOffsets(
                host.clock, host.disk, host.worker, root, config.flush_delay_offset_interval
            ),
            self.delay_levels,
            DelayedLog(queues, self.record_at, damage.find, lambda: log.last_store_timestamp),
            self.put_many,
        )
        self.timers = TimerMessageService(
            host.times,
            TimerLog(
                queues,
                self.record_at,
                lambda place: max(place - place % log.file_size, log.min_offset),
            ),
            journal.tail,
            DeliveryTerms(
                lambda: self.dispatcher.position,
                lambda: log.written_end,
                lambda: self.is_writable,
                lambda: configuration.ours.timer_stop_dequeue,
                lambda: configuration.store_host,
                lambda: configuration.ours.timer_progress_interval_ms,
            ),
            self.put_many,
            index,
            is_enabled=configuration.ours.timer_wheel_enable,
        )
        self.log_states: list[LogState] = [self.timers]
        if self.timers.is_enabled:
            self.dispatcher.add_target(Flag.CONSUME_QUEUE, self.timers.take_rows, 30)
            self.cleaner.releases = self.timers.releases
        self.on_new_life: Restarted = lambda topic, queue_id, queue_offset: None
        self.on_forced_deletion: Callable[[], None] = lambda: None
        self.on_renumbered: Callable[[], None] = lambda: None
        self._new_lives: set[tuple[str, int]] = set()
        queues.restarted = self._restarted
        self._arrivals: list[Callable[[Rows], None]] = []
        self._service = StoreService(self)
        self.slow_until = 0.0
        self.turns = TurnWatch()
        self._lane = Lane(host.clock)
        log.subscribe(self._service.poke)

    # Assembling

    @property
    def is_slave(self) -> bool:
        """Whether this broker is a slave now; an election changes it (`RoleSwitch`)."""
        return self.journal.role.is_slave

    def on_arrival(self, callback: Callable[[Rows], None]) -> None:
        """
        Have `callback` called with the rows of newly readable records, on a slave as on a master.

        An exception of the callback is logged and does no harm.
        """
        self._arrivals.append(callback)

    # Reading

    def record_starting_at(self, physical_offset: int) -> bytes | None:
        return record_starting_at(self, physical_offset)

    def unqueued_record_at(self, physical_offset: int) -> bytes | None:
        return unqueued_record_at(self, physical_offset)

    # Putting

    @property
    def is_writable(self) -> bool:
        """Whether messages may be put now."""
        return self.why_not_writable() == ""

    def why_not_writable(self) -> str:
        """Return for people why puts are refused; empty if they are accepted."""
        if not self.is_open:
            return "the store is not started, or it is stopping"
        if self._configuration.broker_role is BrokerRole.SLAVE:
            return "this broker is a slave"
        if self.log.fault is not None:
            return self.log.fault
        return "" if self.flags.is_writable else "; ".join(self.flags.reasons)

    def is_page_cache_busy(self) -> bool:
        """Return whether the last write took too long a moment ago."""
        if self.slow_until and self.host.clock.seconds() >= self.slow_until:
            self.slow_until = 0.0
        return self.slow_until > 0

    def waited_ms(self, sender: Hashable, sends: int) -> int:
        """
        Return for how many ms the sends of this turn may have waited in their socket.

        :param sender: identifies one connection; 0 is returned while it waits for each answer.
        :param sends: number of sends in this turn, to be counted; 0: count none.
        """
        if not self.turns.count_sends(sender, sends) or not self.turns.shortest:
            return 0
        return self.turns.waiting_ms(self.host.clock.seconds())

    def put_terms(self) -> PutTerms:
        """
        Return the answers of the store about puts; they hold until its flags or its configuration
        change.
        """
        config = self._configuration
        journal = self.journal
        is_refused = not self.flags.is_writable or config.broker_role is BrokerRole.SLAVE
        # One call less for each run of a journal whose log alone appends.
        is_plain = getattr(type(journal), "append", None) is JournalBase.append
        return PutTerms(
            PutMessageStatus.SERVICE_NOT_AVAILABLE if is_refused else None,
            journal.sole_keeper(),
            config.os_page_cache_busy_time_out_mills / 1000,
            self.log.append_group if is_plain else journal.append,
        )

    def _refusal(self, terms: PutTerms) -> PutMessageStatus | None:
        if not self.is_open or self.log.fault is not None:
            return PutMessageStatus.SERVICE_NOT_AVAILABLE
        is_busy = not terms.refusal and self.slow_until and self.is_page_cache_busy()
        return PutMessageStatus.OS_PAGECACHE_BUSY if is_busy else terms.refusal

    def put_message(self, message: BrokerMessage) -> "Deferred[PutMessageResult]":
        """Store one message. The Deferred fires once with the result, and never fails."""
        result: Deferred[PutMessageResult] = Deferred()
        self.put_many([message], lambda results: result.callback(results[0]))
        return result

    def put_batch(self, batch: MessageBatch) -> "Deferred[PutMessageResult]":
        """
        Store several messages side by side, all or none; many messages are laid out over several
        turns.
        """
        layout = self.lay_out(batch)
        if len(batch.members) <= MEMBERS_A_TURN:
            layout.add(batch.members)
            return self.put_layout(layout)
        slices = layout.add_in_slices(batch.members)
        laid_out: Deferred[Any] = self._lane.run(batch.born_host.ip.hex(), slices)
        return laid_out.addCallback(lambda _: self.put_layout(layout))

    def lay_out(self, batch: MessageBatch) -> BatchLayout:
        """
        Return an empty layout of a batch for `put_layout`, which is filled over several turns.
        """
        return self.log.encoder.lay_out(batch, self._configuration.max_message_size)

    def put_layout(self, batch: BatchLayout) -> "Deferred[PutMessageResult]":
        """Do what `put_batch` does, for the members that were added to the layout."""
        result: Deferred[PutMessageResult] = Deferred()
        began = ended = self.host.clock.seconds()
        whole: AppendResult | PutMessageStatus | None = self._refusal(self.put_terms())
        if whole is None:
            whole = self.journal.append_batch(batch, self.host.now_ms())
            ended = self.host.clock.seconds()
            self._was_slow(began, ended)
        wait = batch.batch.wait_store_ok
        self._settler.settle_batch(whole, wait, result.callback, began, ended)
        return result

    def put_many(
        self, messages: list[BrokerMessage], done: Callable[[list[PutMessageResult]], None]
    ) -> None:
        """
        Store messages with one write; each may be stored or refused alone.

        :param messages: at least one. All wait for flush and replication, or none.
        :param done: called once, with one result for each, when the last result is known.
        """
        ready: Sequence[BrokerMessage | None] = messages
        if asks_for_delay(messages):
            ready = redirect_delayed(messages, len(self.delay_levels))
        drafts = [draft_of(message) for message in ready if message is not None]
        if len(drafts) < len(ready):
            self._settler.refused(PutMessageStatus.MESSAGE_ILLEGAL, len(ready) - len(drafts))

        def settled(
            status: PutMessageStatus, rows: Sequence[Row | None], others: Others, now: float
        ) -> None:
            done(results_of(ready, status, rows, others))

        self.put_drafts(drafts, messages[0].wait_store_ok, settled)

    def put_drafts(
        self,
        drafts: Sequence[Draft],
        wait: bool,
        done: Done,
        began: float | None = None,
        terms: PutTerms | None = None,
    ) -> DraftGroup:
        """
        Do what `put_many` does, for messages without a delay. This is the hot path.

        :param wait: whether to wait for flush and replication.
        :param began: the time in seconds, if the caller has just read the clock.
        :param terms: what `put_terms` returns now, if the caller knows it.
        :returns: which drafts the log took. `done` says whether they are safe.
        """
        clock = self.host.clock
        ended = began = clock.seconds() if began is None else began
        if terms is None:
            terms = self.put_terms()
        refusal, keeper, slow_s, append = terms
        if refusal or self.slow_until or not self.is_open or self.log.fault is not None:
            refusal = self._refusal(terms)
        if refusal is None:
            group = append(drafts, self.host.now_ms())
            ended = clock.seconds()
            if ended - began > slow_s:
                self._was_slow(began, ended)
        else:
            group = DraftGroup.refused(len(drafts), refusal)
        self._settler.settle_group(group, wait, done, began, ended, keeper)
        return group

    def _was_slow(self, began: float, ended: float) -> None:
        """Refuse puts for a while if a write took too long."""
        took_ms = int((ended - began) * 1000)
        limit = self._configuration.os_page_cache_busy_time_out_mills
        if limit < took_ms < _BUSY_AT_MOST_MS:
            self.slow_until = ended + limit / 1000

    # Dispatching

    def _dispatched(self, rows: Rows) -> None:
        newest = rows[-1][5]
        self.checkpoint.logics = newest
        self.queue_flusher.dispatched()
        if self.timers.is_ready:
            self.timers.dispatched(newest)
        if self._configuration.broker_role is BrokerRole.SLAVE:
            self.log.last_store_timestamp = newest
            self.statistics.put_times += len(rows)
            self.statistics.put_size += rows.size
        else:
            for topic, queue_id in rows.names:
                if topic == SCHEDULE_TOPIC:
                    self.schedule.arrived(queue_id + 1)
        for callback in self._arrivals:
            try:
                callback(rows)
            except Exception:
                name = getattr(callback, "__qualname__", type(callback).__qualname__)
                self.logger.failure("{callback} failed at new messages", callback=name)

    def _restarted(self, topic: str, queue_id: int, queue_offset: int) -> None:
        if self.is_open:
            self.on_new_life(topic, queue_id, queue_offset)
        else:
            self._new_lives.add((topic, queue_id))

    def tell_new_lives(self) -> None:
        """
        Call `on_new_life` for queues that recovery or catching up has found.

        Consumers may have read all of such a queue by now.
        """
        for topic, queue_id in self._new_lives:
            self.on_new_life(topic, queue_id, self.max_offset_in_queue(topic, queue_id))
        self._new_lives.clear()

    def log_flushed(self) -> None:
        """Have the checkpoint written, because more of the log is on the disk."""
        self.queue_flusher.log_flushed()

    # Beginning and end

    def load(self) -> None:
        """
        Lock the store, find its files, and repair what a crash left.

        :raises StoreLocked: another broker uses the store.
        :raises StoreError: the store cannot be used; the message says which file and why.
        """
        self._service.load()

    def sure_until_ms(self) -> int:
        """
        Return, after a crash, the store time up to which no record was lost, in ms.

        Records up to it are on the disk in log and queues. They are in the index, too, if
        `messageIndexSafe` or a window for duplicates asks for that.
        """
        config, times = self._configuration, self.checkpoint.times
        is_safe = config.message_index_safe or self.configuration.ours.duplicate_window_millis > 0
        with_index = config.message_index_enable and is_safe
        return times.min_timestamp_index if with_index else times.min_timestamp

    def _complete(self) -> CompletePositions:
        """
        Return the positions that are complete as soon as queues and index are flushed; the log is
        already.
        """
        if not self.is_whole:
            return NOTHING_WHOLE
        end = min(self.dispatcher.position, self.log.flushed_offset)
        return CompletePositions(end, *((NO_INDEX, 0) if self.index is None else self.index.place))

    def renumber(self) -> None:
        """Read the next and the first offsets of all queues from the disk."""
        self.log.encoder.queue_offsets.clear()
        self.log.encoder.queue_offsets.update(self.queues.topic_queue_table())
        if self.log.min_offset >= 0:
            self.queues.correct_min_offsets(self.log.min_offset)
        self.on_renumbered()

    def start(self) -> "Deferred[None]":
        """
        Dispatch the rest of the log, start replication, and accept puts.

        :returns: fires when all of that is done; fails if the disk refuses.
        """
        return Deferred.fromCoroutine(self._service.start())

    def stop(self) -> "Deferred[None]":
        """Refuse puts, bring everything to the disk, and close; fires when that is done."""
        return Deferred.fromCoroutine(self._service.stop())

    def close(self) -> None:
        """Close all files and release the lock of the store."""
        self._service.close()
