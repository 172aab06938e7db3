"""POP consumption of one broker: the methods that processors call, and the journal behind them.

A request changes the state at once, so that the next request of the same turn sees the change. The
entries of a turn become one journal record at the end of the turn. The request is answered when the
log keeps that record as the configuration asks. A broker that stops being the master forgets its
state and loads it again, because the log may lose its last records.

Spec: pop.md, sections 13 and 14.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmq_ha.base.errors import StoreError
from rmq_ha.base.model.message import GetMessageResult
from rmq_ha.base.model.pop_topics import original_topic, retry_topic
from rmq_ha.base.model.topics import POP_TOPIC
from rmq_ha.base.runs.face import Rows
from rmq_ha.base.store_flags import Flag
from rmq_ha.base.timing.slices import in_slices
from rmq_ha.server.pop.ends import LeaseEnds, orphans
from rmq_ha.server.pop.entries import (
    AckEntry,
    ChangeEntry,
    DropEntry,
    Entry,
    ImagesEntry,
    MoveEntry,
    MoveReason,
    NameEntry,
    PopEntry,
    ResetEntry,
    SkipEntry,
)
from rmq_ha.server.pop.face import (
    ORDERLY_REVIVE_QUEUE,
    POP_REVIVE_QUEUE,
    GroupOut,
    LeaseChange,
    LeaseStatus,
    LeaseView,
    PopAnswer,
    PopCounters,
    PopPart,
    PopQueue,
    PopStatus,
    PopWish,
    QueueInFlight,
    Receipt,
    WakeListener,
)
from rmq_ha.server.pop.java_leases import JavaPopsRefusal
from rmq_ha.server.pop.java_store import JavaMark, JavaSearch, refusal_without_pops
from rmq_ha.server.pop.java_takeover import java_entries
from rmq_ha.server.pop.journal import FollowedStore, PopJournal, PopStore, message_at
from rmq_ha.server.pop.leases import LeaseMatch, QueueLeases
from rmq_ha.server.pop.look import QueueLook, look, look_in_order
from rmq_ha.server.pop.replica import PopReplica
from rmq_ha.server.pop.snapshots import PopSnapshots
from rmq_ha.server.pop.state import PopState, QueueName
from rmq_ha.server.pop.tallies import GroupTopic, PopTallies, PopTally
from rmq_ha.server.pop.terms import PopTerms
from rmq_ha.server.pop.writer import Keeping, PopWriter

_IMAGES_BYTES = 256 << 10
_PATIENCE = 30


class PopService:
    """
    Implements `face.Pops` on a store.

    :param path: path of the snapshot of the state.
    :param is_enabled: `popEnable`.
    """

    log = Logger()

    def __init__(self, store: PopStore, terms: PopTerms, path: str, *, is_enabled: bool) -> None:
        self.is_enabled = is_enabled
        self._store = store
        self._host = store.host
        self._terms = terms
        self._journal = PopJournal(store.queues, store.record_at)
        self._replica = PopReplica(store.host, self._journal, path, self._loaded)
        self._replica.on_failure = self._end_first_try
        self._writer = PopWriter(
            store, self._appended, self._disordered, lambda: self._replica.next
        )
        self._snapshots = PopSnapshots(
            store.host,
            self._journal,
            self._replica,
            lambda: store.log,
            path,
            lambda: self._writer.is_idle,
        )
        self._path = path
        self._wants_lead = False
        self._leads = 0
        self._has_tried = False
        self._first_try: Deferred[None] | None = None
        self._refusal: JavaPopsRefusal | None = None
        self._ends: LeaseEnds | None = None
        self._when_loaded: Callable[[], object] = self._lead
        self._woken: list[WakeListener] = []
        self._lead_listeners: list[Callable[[bool], None]] = []
        self._retry_topics: dict[str, tuple[str, str]] = {}
        self._changed: set[QueueName] = set()
        self._images: Iterator[None] | None = None
        self._popped = self._acked = self._changes = self._stale = 0
        self._retried = self._dead = self._gone = 0
        self._tallies = PopTallies()

    def follow(self, store: FollowedStore) -> None:
        """
        Have a store, which is not loaded yet, tell this service of its records.

        The store's cleaner then also asks `releases` before it deletes files.
        """
        store.dispatcher.add_target(Flag.CONSUME_QUEUE, self.take_rows, _PATIENCE)
        store.on_arrival(self.arrived)
        store.log_states.append(self)
        released = store.cleaner.releases
        store.cleaner.releases = lambda end: released(end) and self.releases(end)

    # ------------------------------------------------------------ roles and the log

    def begin(self) -> None:
        """Load the state, because the store opened or its log was cut."""
        if self.is_enabled:
            self._end_lead()
            self._snapshots.forget()
            self._replica.begin()

    def start(self) -> None:
        """Hand messages out as soon as the state is loaded, because this broker is the master."""
        self._wants_lead = True
        self._lead()

    async def take_over_java(self) -> None:
        """
        Wait until this broker, which just opened its store, has what a Java broker left out there.

        A broker that is not the master waits for nothing; it takes over when it becomes the master.

        :raises JavaPopsRefusal: that cannot be done, or `popEnable` is false and a Java broker left
            something out. The broker must not serve clients.
        """
        if not self.is_enabled:
            await self._refuse_java()
        elif self._wants_lead and not self._has_tried:
            self._first_try = Deferred()
            await self._first_try
        if self._refusal is not None:
            raise self._refusal

    async def _refuse_java(self) -> None:
        """Fail if a Java broker left something out, and this broker never took it over."""
        if not await self._count_java(JavaMark()):
            return
        since = JavaMark()
        if self._journal.end:
            loaded: Deferred[None] = Deferred()
            self._when_loaded = lambda: loaded.callback(None)
            self._replica.begin()
            await loaded
            state = self._replica.state
            if state is not None:
                since = JavaMark(state.java_end, state.java_born_ms)
            self._replica.end()
        count = await self._count_java(since)
        if count:
            raise refusal_without_pops(count, self._store.root)

    async def _count_java(self, since: JavaMark) -> int:
        search = JavaSearch(self._store, self._terms, self._path, since, reads_all=False)
        await in_slices(self._host.clock, search.run())
        return len(search.pops)

    def stop(self) -> None:
        """Hand out no more messages, because this broker is not the master any more."""
        self._wants_lead = False
        self._end_first_try()
        if self._leads and self.is_enabled:
            self.begin()

    async def close(self) -> None:
        """Append the entries that wait, and end all work, before the store stops to take puts."""
        if not self.is_enabled:
            return
        if self._ends is not None and not self._writer.is_refused:
            self._writer.flush()
        self._wants_lead = False
        self._end_first_try()
        self._end_lead()
        self._replica.end()
        await self._snapshots.stop()

    def _loaded(self) -> None:
        self._when_loaded()

    def _lead(self) -> None:
        state = self._replica.state
        if self._wants_lead and state is not None and not self._leads:
            self._leads = 1
            ends = LeaseEnds(
                self._store, state, self._terms, self._enter, self._may_write, self._freed
            )
            work = self._take_over(state, ends)
            in_slices(self._host.clock, work).addCallbacks(self._end_first_try, self._cannot_lead)

    def _take_over(self, state: PopState, ends: LeaseEnds) -> Iterator[None]:
        search = JavaSearch(
            self._store,
            self._terms,
            self._path,
            JavaMark(state.java_end, state.java_born_ms),
            reads_all=True,
        )
        for _ in chain(search.run(), self._take_java(search, state), ends.fill()):
            yield
            if self._replica.state is not state or not self._wants_lead:
                return
        moves = orphans(self._store, self._journal, state)
        self._retry_topics.clear()
        for group, topic in state.names.values():
            self._know(group, topic)
        self._ends = ends
        self._leads = 2
        for move in moves:
            self._enter(move)
        for key in sorted(state.queues):
            self._changed.add(key)
        self._publish(self._take_committed())
        ends.begin()
        for told in self._lead_listeners:
            told(True)

    def _take_java(self, search: JavaSearch, state: PopState) -> Iterator[None]:
        """Begin to write the journal, with what a Java broker left out."""
        self._writer.start()
        before = state.out
        for entry in java_entries(search, state, self._terms, self._host.now_ms()):
            state.apply(entry)
            self._writer.add(entry)
            yield
        if search.has_found:
            self.log.info(
                "{count} messages that a Java broker left out with pop consumers are out with "
                "this broker now",
                count=state.out - before,
            )

    def _end_first_try(self, _: object = None) -> None:
        """Let `take_over_java` go on, because the first try to lead is over."""
        self._has_tried = True
        waiting, self._first_try = self._first_try, None
        if waiting is not None:
            waiting.callback(None)

    def _cannot_lead(self, failure: Failure) -> None:
        self._leads = 0
        if isinstance(failure.value, JavaPopsRefusal):
            self.log.error("this broker serves no pops: {error}", error=failure.value)
            self._refusal = failure.value
            self._end_first_try()
            return
        self._end_first_try()
        self.log.error(
            "this broker is the master and hands no message out yet, but tries again: {failure}",
            failure=failure,
        )
        self._host.clock.callLater(1.0, self._lead)

    def _end_lead(self) -> None:
        led, self._leads = self._leads, 0
        self._images = None
        if self._ends is not None:
            self._ends.stop()
            self._retried += self._ends.retried
            self._dead += self._ends.dead
            self._gone += self._ends.gone
            self._ends = None
        self._changed.clear()
        self._writer.stop()
        if led == 2:
            for told in self._lead_listeners:
                told(False)

    @property
    def is_leading(self) -> bool:
        return self._ends is not None

    def on_lead(self, changed: Callable[[bool], None]) -> None:
        self._lead_listeners.append(changed)

    def on_wake(self, woken: WakeListener) -> None:
        self._woken.append(woken)

    def take_rows(self, rows: Rows) -> None:
        """
        Apply the journal records among the records that were just dispatched.

        :param rows: the dispatched records; the units of the journal's queue are written already.

        :raises StoreError: the disk refuses.
        """
        if POP_TOPIC in rows.topics and self._replica.state is not None:
            self._replica.follow()

    def arrived(self, rows: Rows) -> None:
        """Tell the listeners of new messages in retry topics; look whether a snapshot is due."""
        if not self.is_enabled:
            return
        if POP_TOPIC in rows.topics:
            self._snapshots.look()
        if self._ends is not None and self._retry_topics:
            for topic in rows.topics:
                known = self._retry_topics.get(topic)
                if known is not None:
                    count = sum(1 for row in rows if row[0] == topic)
                    self._wake(*known, -1, count)

    def _wake(self, group: str, topic: str, queue_id: int, messages: int) -> None:
        for woken in self._woken:
            woken(group, original_topic(group, topic), queue_id, messages)

    def _freed(self, key: QueueName, messages: int) -> None:
        state = self._replica.state
        known = None if state is None else state.names.get(key[0])
        if known is not None:
            is_retry = original_topic(*known) != known[1]
            self._wake(*known, -1 if is_retry else key[1], messages)

    def _know(self, group: str, topic: str) -> None:
        """Remember a group's retry topics of a topic, to tell of messages that arrive there."""
        real = original_topic(group, topic)
        for is_v2 in (False, True):
            self._retry_topics[retry_topic(group, real, v2=is_v2)] = group, real

    # ------------------------------------------------------------ writing

    def _may_write(self) -> bool:
        """Whether entries would be appended at the end of this turn."""
        return (
            self._ends is not None
            and not self._writer.is_refused
            and self._store.is_writable
            and not self._store.is_page_cache_busy()
        )

    def _enter(self, entry: Entry) -> int:
        """
        Apply an entry to the state, and add it to the journal record of this turn.

        :returns: the number of messages that the entry changed; 0 if this broker does not lead.
        """
        state = self._replica.state
        if state is None or self._ends is None:
            return 0
        known = state.names.get(getattr(entry, "name", -1))
        count = state.apply(entry)
        self._writer.add(entry)
        if isinstance(entry, MoveEntry) and known is not None:
            self._tallies.moved(known, entry.reason, count)
        elif isinstance(entry, DropEntry) and known is not None:
            self._tallies.forget(known)
        if isinstance(entry, (PopEntry, AckEntry, MoveEntry, SkipEntry, ResetEntry)):
            self._changed.add((entry.name, entry.queue_id))
        return count

    def _call_when_kept(self, told: Callable[[Keeping], object]) -> None:
        """
        Have a function called when the log keeps all entries so far, or certainly does not in time.

        The groups' new offsets are set just before, unless the entries may be lost.
        """
        committed = self._take_committed()

        def settled(keeping: Keeping) -> None:
            if keeping is not Keeping.LOST:
                self._publish(committed)
            told(keeping)

        state = self._replica.state
        if not self._writer.wait(settled) and state is not None:
            # Nobody knows whether the last record is kept. One behind it will say so.
            self._enter(state.numbers_entry())
            self._writer.wait(settled)

    def _take_committed(self) -> list[tuple[str, str, int, int]]:
        """Return the offsets that changed, as `PopTerms.commit` takes them."""
        state, changed = self._replica.state, self._changed
        self._changed = set()
        offsets: list[tuple[str, str, int, int]] = []
        for key in changed:
            leases = None if state is None else state.queues.get(key)
            known = None if state is None else state.names.get(key[0])
            if leases is not None and known is not None:
                offsets.append((*known, key[1], leases.committed))
        return offsets

    def _publish(self, committed: Sequence[tuple[str, str, int, int]]) -> None:
        for offset in committed:
            self._terms.commit(*offset)

    def _appended(self, records: int, size: int) -> None:
        self._replica.appended(records, size)
        if self._changed:  # by moves, for which no request waits
            committed = self._take_committed()
            self._writer.wait(lambda keeping: self._publish(committed))
        if self._images is not None:
            self._host.clock.callLater(0, self._next_images)

    def _disordered(self) -> None:
        self.log.error(
            "the POP journal has records that this broker did not write: it is read again"
        )
        self._host.soon(self.begin)

    # ------------------------------------------------------------ pops

    def pop(self, wish: PopWish) -> "Deferred[PopAnswer]":
        state, ends = self._replica.state, self._ends
        if state is None or ends is None:
            return succeed(PopAnswer(PopStatus.NOT_LEADING))
        if not self._may_write():
            return succeed(PopAnswer(PopStatus.NOT_KEPT))
        if state.out >= self._terms.most_out():
            return succeed(PopAnswer(PopStatus.FULL))
        # The lease name has to be greater than all earlier ones of the queues, also when the clock
        # was set back.
        pop_ms = max(self._host.now_ms(), 1 + self._last_pop_ms(state, wish))
        parts, rest, left, is_full = list[PopPart](), 0, wish.max_messages, False
        for queue in wish.queues:
            try:
                seen = self._pop_queue(state, ends, wish, queue, left, pop_ms)
            except (StoreError, OSError) as error:
                self.log.error(
                    "queue {queue_id} of {topic} gives a pop nothing: {error}",
                    queue_id=queue.queue_id,
                    topic=queue.topic,
                    error=error,
                )
                continue
            rest += seen.rest
            is_full = is_full or seen.is_full
            if seen.part is not None:
                parts.append(seen.part)
                left -= len(seen.part.offsets)
        if not parts:
            status = PopStatus.FULL if is_full else PopStatus.EMPTY
            return succeed(PopAnswer(status, rest=rest))
        revive_queue = ORDERLY_REVIVE_QUEUE if wish.is_orderly else POP_REVIVE_QUEUE
        answer = PopAnswer(
            PopStatus.FOUND, pop_ms, wish.invisible_ms, revive_queue, rest, tuple(parts)
        )
        self._popped += wish.max_messages - left
        done: Deferred[PopAnswer] = Deferred()

        def settled(keeping: Keeping) -> None:
            is_lost = keeping is Keeping.LOST or (wish.is_orderly and keeping is not Keeping.KEPT)
            done.callback(PopAnswer(PopStatus.NOT_KEPT) if is_lost else answer)

        self._call_when_kept(settled)
        return done

    def _last_pop_ms(self, state: PopState, wish: PopWish) -> int:
        """Return the greatest lease name of the queues of a wish."""
        last = state.least_pop_ms
        for queue in wish.queues:
            leases = state.find(wish.group, queue.topic, queue.queue_id)
            if leases is not None and leases.last_pop_ms > last:
                last = leases.last_pop_ms
        return last

    def _pop_queue(
        self,
        state: PopState,
        ends: LeaseEnds,
        wish: PopWish,
        queue: PopQueue,
        most: int,
        pop_ms: int,
    ) -> QueueLook:
        """
        Hand out messages of one queue: enter what the look found, and note the new leases.

        :param most: most messages to hand out.
        :param pop_ms: the lease name.
        :raises StoreError: the disk refuses.
        """
        leases = state.find(wish.group, queue.topic, queue.queue_id)
        if leases is None:
            leases = self._begin_queue(state, wish, queue)
        key = state.numbers[wish.group, queue.topic], queue.queue_id
        end = self._end_of(queue.topic, queue.queue_id)
        seen = self._look(leases, ends, key, wish, queue, most, end)
        if seen.reset_to is not None:
            self._enter(ResetEntry(*key, seen.reset_to))
            ends.drop(key)
            return QueueLook(end=seen.reset_to)
        if seen.gone:
            gone = [(offset, lease[0]) for offset in seen.gone if (lease := leases.lease(offset))]
            ends.gone += self._enter(MoveEntry(*key, MoveReason.GONE, gone))
        if seen.skips and seen.part is None:
            self._enter(SkipEntry(*key, leases.next, seen.end))
        part = seen.part
        if part is None:
            return seen
        if leases.is_orderly and not wish.is_orderly:
            ends.unhide(key)
        entry = PopEntry(
            *key,
            part.start,
            seen.end,
            part.offsets,
            pop_ms,
            wish.invisible_ms,
            wish.is_orderly,
            seen.is_again,
            wish.attempt_id if wish.is_orderly else "",
        )
        if not self._enter(entry):
            self.log.error("a pop of {topic} did not fit, and is empty", topic=queue.topic)
            return seen._replace(part=None)
        due_ms = pop_ms + wish.invisible_ms
        ends.leased(key, part.offsets, due_ms, wish.invisible_ms)
        again = len(part.counts)
        self._tallies.popped(state, key, pop_ms, part.offsets, again, wish.client)
        return seen

    def _look(
        self,
        leases: QueueLeases,
        ends: LeaseEnds,
        key: QueueName,
        wish: PopWish,
        queue: PopQueue,
        most: int,
        end: int,
    ) -> QueueLook:
        store = self._store

        def read(offset: int, count: int) -> GetMessageResult:
            result = store.get_message(
                wish.group, queue.topic, queue.queue_id, offset, count, queue.message_filter
            )
            if result is None:
                raise StoreError("the store is not open")
            return result

        def read_one(offset: int) -> bytes | None:
            stored = message_at(store, queue.topic, queue.queue_id, offset)
            return None if stored is None else stored[0]

        if wish.is_orderly:
            visible = ends.visible.get(key, set())
            return look_in_order(leases, queue, wish, most, read, read_one, visible, end)
        return look(leases, queue, most, read, self._terms.threshold(), end)

    def _begin_queue(self, state: PopState, wish: PopWish, queue: PopQueue) -> QueueLeases:
        """
        Make the leases of a queue that the group has not popped yet. They begin at the group's
        offset, or without one at the end of the queue that the wish names.
        """
        offset = self._terms.offset(wish.group, queue.topic, queue.queue_id)
        if offset < 0:
            offset = self._first_offset(wish, queue)
        name = self._name(state, wish.group, queue.topic)
        self._enter(ResetEntry(name, queue.queue_id, offset))
        return state.queues[name, queue.queue_id]

    def _first_offset(self, wish: PopWish, queue: PopQueue) -> int:
        known = self._store.queues.get(queue.topic, queue.queue_id)
        if known is None:
            return 0
        low = self._store.min_offset_in_queue(queue.topic, queue.queue_id)
        high = known.max_offset
        is_young = low <= 0 and not self._store.is_in_disk(queue.topic, queue.queue_id, 0)
        if not wish.from_max or is_young or original_topic(wish.group, queue.topic) != queue.topic:
            return low
        return max(low, high - 1)

    def _name(self, state: PopState, group: str, topic: str) -> int:
        name = state.numbers.get((group, topic))
        if name is None:
            name = state.next_name
            self._enter(NameEntry(name, group, topic))
            self._know(group, topic)
        return name

    def _end_of(self, topic: str, queue_id: int) -> int:
        queue = self._store.queues.get(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    # ------------------------------------------------------------ acknowledgements and changes

    def ack(self, receipts: Sequence[Receipt]) -> "Deferred[LeaseStatus]":
        state, ends = self._replica.state, self._ends
        if state is None or ends is None:
            return succeed(LeaseStatus.NOT_LEADING)
        if not self._may_write():
            return succeed(LeaseStatus.NOT_KEPT)
        current, repeated, foreign = 0, 0, 0
        for receipt in receipts:
            leases = state.find(receipt.group, receipt.topic, receipt.queue_id)
            if leases is None:
                continue
            offsets: list[int] = []
            for offset in sorted(set(receipt.offsets)):
                match = leases.match(offset, receipt.pop_ms)
                if match is LeaseMatch.CURRENT:
                    offsets.append(offset)
                elif match is LeaseMatch.REPEATED:
                    repeated += 1
                elif leases.is_orderly and offset >= leases.next:
                    foreign += 1
            if offsets:
                current += len(offsets)
                name = state.numbers[receipt.group, receipt.topic]
                self._ack(state, leases, (name, receipt.queue_id), receipt.pop_ms, offsets)
        self._acked += current
        if not current and not repeated:
            self._stale += 1
            return succeed(LeaseStatus.NOT_IN_BATCH if foreign else LeaseStatus.UNKNOWN)
        return self._when_kept()

    def _ack(
        self,
        state: PopState,
        leases: QueueLeases,
        key: QueueName,
        pop_ms: int,
        offsets: list[int],
    ) -> None:
        self._enter(AckEntry(*key, pop_ms, offsets))
        ends = self._ends
        if ends is None or not leases.is_orderly:
            return
        visible = ends.visible.get(key)
        if visible:
            visible.difference_update(offsets)
        is_open = leases.out == (0 if not visible else len(visible))
        messages = leases.out + self._end_of(state.names[key[0]][1], key[1]) - leases.next
        if is_open and messages > 0:
            self._freed(key, messages)

    def _when_kept(self) -> "Deferred[LeaseStatus]":
        done: Deferred[LeaseStatus] = Deferred()

        def settled(keeping: Keeping) -> None:
            is_kept = keeping is Keeping.KEPT
            done.callback(LeaseStatus.DONE if is_kept else LeaseStatus.NOT_KEPT)

        self._call_when_kept(settled)
        return done

    def change(self, receipt: Receipt, invisible_ms: int) -> "Deferred[LeaseChange]":
        state, ends = self._replica.state, self._ends
        if state is None or ends is None:
            return succeed(LeaseChange(LeaseStatus.NOT_LEADING))
        if not self._may_write():
            return succeed(LeaseChange(LeaseStatus.NOT_KEPT))
        (offset,) = receipt.offsets
        leases = state.find(receipt.group, receipt.topic, receipt.queue_id)
        if leases is None or leases.match(offset, receipt.pop_ms) is not LeaseMatch.CURRENT:
            self._stale += 1
            return succeed(LeaseChange(LeaseStatus.UNKNOWN))
        key = state.numbers[receipt.group, receipt.topic], receipt.queue_id
        now = self._host.now_ms()
        pop_ms, revive_queue = receipt.pop_ms, ORDERLY_REVIVE_QUEUE
        due_ms = now + invisible_ms
        if not leases.is_orderly:
            pop_ms, revive_queue = max(now, leases.last_pop_ms + 1), POP_REVIVE_QUEUE
            due_ms = pop_ms + invisible_ms
        self._enter(ChangeEntry(*key, offset, receipt.pop_ms, pop_ms, due_ms))
        self._tallies.renamed(key, offset, receipt.pop_ms, pop_ms)
        self._changes += 1
        ends.leased(key, [offset], due_ms, invisible_ms)
        done: Deferred[LeaseChange] = Deferred()

        def settled(keeping: Keeping) -> None:
            if keeping is Keeping.KEPT:
                done.callback(LeaseChange(LeaseStatus.DONE, pop_ms, due_ms - pop_ms, revive_queue))
            else:
                done.callback(LeaseChange(LeaseStatus.NOT_KEPT))

        self._call_when_kept(settled)
        return done

    # ------------------------------------------------------------ resets and deletions

    def reset(self, group: str, topic: str, offsets: Mapping[int, int]) -> "Deferred[LeaseStatus]":
        state, ends = self._replica.state, self._ends
        if state is None or ends is None:
            return succeed(LeaseStatus.NOT_LEADING)
        if not self._may_write():
            return succeed(LeaseStatus.NOT_KEPT)
        name = self._name(state, group, topic)
        for queue_id, offset in sorted(offsets.items()):
            self._enter(ResetEntry(name, queue_id, offset))
            ends.drop((name, queue_id))
            self._freed((name, queue_id), max(1, self._end_of(topic, queue_id) - offset))
        return self._when_kept()

    def to_pull(self, group: str, topic: str) -> "Deferred[LeaseStatus]":
        state = self._replica.state
        if state is None or self._ends is None:
            return succeed(LeaseStatus.NOT_LEADING)
        if not self._may_write():
            return succeed(LeaseStatus.NOT_KEPT)
        retries = [retry_topic(group, topic, v2=is_v2) for is_v2 in (False, True)]
        for name in (topic, *retries):
            self._drop(state, state.names_of(group, name))
        return self._when_kept()

    def forget_group(self, group: str) -> None:
        state = self._replica.state
        if state is not None and self._ends is not None:
            self._drop(state, state.names_of(group))

    def forget_topic(self, topic: str) -> None:
        state = self._replica.state
        if state is None or self._ends is None:
            return
        names = [
            name
            for name, (group, known) in state.names.items()
            if topic in (known, original_topic(group, known))
        ]
        self._drop(state, names)

    def begin_anew(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """
        Forget the leases of a queue that was deleted and begins again, if they are of the old one.

        :param queue_offset: end of the new queue; leases beyond it are of the old one.
        """
        state = self._replica.state
        if state is None or self._ends is None:
            return
        for name in state.names_of(topic=topic):
            leases = state.queues.get((name, queue_id))
            if leases is not None and leases.next > queue_offset:
                self._drop(state, [name])

    def _drop(self, state: PopState, names: Sequence[int]) -> None:
        for name in names:
            for queue_id, _ in state.queues_of(name):
                self._changed.add((name, queue_id))
                if self._ends is not None:
                    self._ends.drop((name, queue_id))
        committed = self._take_committed()
        for name in names:
            self._enter(DropEntry(name))
        if names:
            self._writer.wait(lambda keeping: self._publish(committed))

    # ------------------------------------------------------------ questions

    def knows(self, group: str, topic: str) -> bool:
        state = self._replica.state
        return state is not None and (group, topic) in state.numbers

    def has_something(self, group: str, queue: PopQueue, *, is_orderly: bool) -> bool:
        state, ends = self._replica.state, self._ends
        if state is None or ends is None:
            return False
        end = self._end_of(queue.topic, queue.queue_id)
        leases = state.find(group, queue.topic, queue.queue_id)
        if leases is None:
            return end > max(0, self._terms.offset(group, queue.topic, queue.queue_id))
        if is_orderly and leases.out:
            key = state.numbers[group, queue.topic], queue.queue_id
            return leases.out == len(ends.visible.get(key, ()))
        return end > leases.next

    def next_offset(self, group: str, topic: str, queue_id: int) -> int:
        state = self._replica.state
        leases = None if state is None else state.find(group, topic, queue_id)
        if leases is not None:
            return leases.next
        return max(0, self._terms.offset(group, topic, queue_id))

    def in_flight(self, group: str, topic: str = "") -> Iterator[QueueInFlight]:
        state = self._replica.state
        if state is None:
            return
        names = {name: state.names[name][1] for name in state.names_of(group, topic or None)}
        for key in sorted(key for key in state.queues if key[0] in names):
            leases = state.queues.get(key)
            if leases is None:  # dropped since the caller took the last item
                continue
            oldest, offset, first_due = leases.oldest()
            yield QueueInFlight(
                group,
                names[key[0]],
                key[1],
                leases.committed,
                leases.next,
                leases.out,
                oldest,
                first_due,
                leases.is_orderly,
                offset,
                leases.counts.get(offset, 0),
                self._tallies.client_of(key, oldest) if oldest else "",
            )

    def out_of(self, group: str, topic: str, queue_id: int) -> int | None:
        state = self._replica.state
        leases = None if state is None else state.find(group, topic, queue_id)
        return None if leases is None else leases.out

    def out_by_group(self) -> Mapping[GroupTopic, GroupOut]:
        state = self._replica.state
        totals: dict[GroupTopic, GroupOut] = {}
        for (name, _), leases in () if state is None else state.queues.items():
            lease = leases.lease(leases.committed) if leases.out else None
            if state is None or lease is None:
                continue
            group, topic = state.names[name]
            pair = group, original_topic(group, topic)
            before = totals.get(pair, GroupOut(0, lease[0]))
            totals[pair] = GroupOut(before.out + leases.out, min(before.first_pop_ms, lease[0]))
        return totals

    def tallies(self) -> Mapping[GroupTopic, PopTally]:
        return self._tallies.counts

    def leases(
        self, group: str, topic: str, queue_id: int, first: int, most: int
    ) -> Sequence[LeaseView]:
        state = self._replica.state
        queue = None if state is None else state.find(group, topic, queue_id)
        views: list[LeaseView] = []
        for offset, pop_ms, due_ms in () if queue is None else queue.leases(first):
            if len(views) >= most:
                break
            counts = {} if queue is None else queue.counts
            views.append(LeaseView(offset, pop_ms, due_ms, counts.get(offset, 0)))
        return views

    def counters(self) -> PopCounters:
        state, ends = self._replica.state, self._ends
        return PopCounters(
            0 if state is None else state.out,
            self._popped,
            self._acked,
            self._changes,
            self._retried + (0 if ends is None else ends.retried),
            self._dead + (0 if ends is None else ends.dead),
            self._gone + (0 if ends is None else ends.gone),
            self._stale,
            self._replica.lost + (0 if state is None else state.ignored),
            self._replica.read_bytes,
        )

    # ------------------------------------------------------------ retention

    def releases(self, end: int) -> bool:
        """
        Return whether POP consumption does not need the log below `end`, so that the cleaner may
        delete its files.

        It needs that part while journal records there are the only ones that have some lease. Then
        a master appends images of all queues, which replace the older records.

        :raises StoreError: the disk refuses.
        """
        queue = self._journal.queue
        if not self.is_enabled or queue is None or queue.max_offset == queue.min_offset:
            return True
        state = self._replica.state
        if state is None:
            return False
        if queue.offset_by_place(end) <= max(state.images_begin, queue.min_offset):
            return True
        if self._ends is not None and self._images is None and self._may_write():
            self._images = self._make_images(state)
            self._next_images()
        return False

    def _next_images(self) -> None:
        """Add the next images to the journal record of this turn, if no other entry waits."""
        if self._images is None or not self._may_write() or not self._writer.is_idle:
            return  # the next append goes on
        if next(self._images, False) is False:
            self._images = None

    def _make_images(self, state: PopState) -> Iterator[None]:
        begin = self._replica.next
        size = 0
        self._enter(state.numbers_entry())
        for key in sorted(state.queues):
            image = state.image(key)
            if image is None:
                continue
            self._enter(image)
            size += 16 * len(image.runs) + 64
            if size >= _IMAGES_BYTES:
                size = 0
                yield
        self._enter(state.numbers_entry())
        self._enter(ImagesEntry(begin))
