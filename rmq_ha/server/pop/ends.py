"""Ends leases that are due, while this broker is the master.

The message is copied to a retry or dead-letter topic, and a `MoveEntry` follows in the journal.

Messages of an orderly pop are not copied. They become *visible*: the next pop may hand them out
again, although they are still out.

Spec: pop.md, section 13.4, rules 4 and 5.
"""

from collections.abc import Callable, Iterator, Sequence

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from rmq_ha.base.errors import StoreError
from rmq_ha.base.model.message import BrokerMessage, draft_of
from rmq_ha.base.model.pop_topics import original_topic, retry_topic
from rmq_ha.base.model.status import PutMessageStatus
from rmq_ha.base.model.topics import DLQ_PREFIX
from rmq_ha.server.pop.copies import LeaseSource, copy_for, source_of
from rmq_ha.server.pop.due import DueIndex, DueLeases
from rmq_ha.server.pop.entries import Entry, MoveEntry, MoveReason
from rmq_ha.server.pop.journal import PopJournal, PopStore, message_at
from rmq_ha.server.pop.leases import QueueLeases
from rmq_ha.server.pop.state import PopState, QueueName
from rmq_ha.server.pop.terms import PopTerms

_MOST_MESSAGES = 200
_MOST_BYTES = 1 << 20
_NOT_NOW_S = 0.5
_LEAST_PAUSE_MS, _MOST_PAUSE_MS = 1000, 60_000
_LONGEST_MS = 24 * 3_600_000
_LEASES_A_SLICE = 20_000

Moved = Callable[[Entry], object]


class LeaseEnds:
    """
    Waits for the ends of leases, and then moves their messages or makes them visible.

    :param do: applies an entry to the state, and adds it to the journal record of this turn.
    :param may_put: returns whether the journal takes entries now.
    :param freed: called with a queue and the number of its messages that became visible.
    :ivar visible: by queue, the offsets of messages that are out and visible.
    :ivar retried: number of messages that went to a retry topic.
    :ivar dead: number of messages that went to a dead-letter topic.
    :ivar gone: number of messages that the log did not have any more when their leases ended.
    """

    log = Logger()

    def __init__(
        self,
        store: PopStore,
        state: PopState,
        terms: PopTerms,
        do: Moved,
        may_put: Callable[[], bool],
        freed: Callable[[QueueName, int], object],
    ) -> None:
        self._store = store
        self._clock = store.host.clock
        self._state = state
        self._terms = terms
        self._do = do
        self._may_put = may_put
        self._freed = freed
        self._index = DueIndex()
        self._timer: IDelayedCall | None = None
        self._tries: dict[tuple[QueueName, int], int] = {}
        self._is_stopped = False
        self.visible: dict[QueueName, set[int]] = {}
        self.retried = self.dead = self.gone = 0

    def stop(self) -> None:
        """Stop to wait: no lease ends any more."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Leases

    def fill(self) -> Iterator[None]:
        """
        Note the ends of all leases of the state, each `popFailoverGrace` later than its due time.

        :returns: an iterator that does one slice of the work for each item.
        """
        host, grace = self._store.host, self._terms.grace_ms()
        offset_ms = host.steady_ms() - host.now_ms() + grace
        count = 0
        for key in sorted(self._state.queues):
            leases = self._state.queues.get(key)
            if leases is None:
                continue
            first = last = due = -1
            for offset, _, ends in list(leases.leases()):
                count += 1
                if ends == due and offset - last == 1:
                    last = offset
                    continue
                self._take_over(key, first, last, due, offset_ms)
                first = last = offset
                due = ends
            self._take_over(key, first, last, due, offset_ms)
            if count >= _LEASES_A_SLICE:
                count = 0
                yield

    def _take_over(self, key: QueueName, first: int, last: int, due: int, offset_ms: int) -> None:
        if due < 0:
            return
        steady = self._store.host.steady_ms()
        deadline = min(max(due + offset_ms, steady + self._terms.grace_ms()), steady + _LONGEST_MS)
        self._index.add(deadline, DueLeases(key, first, last, due))

    def begin(self) -> None:
        """Begin to wait for the ends that `fill` noted."""
        self._arm()

    def leased(
        self, key: QueueName, offsets: Sequence[int], due_ms: int, invisible_ms: int
    ) -> None:
        """
        Note the end of leases that begin now.

        :param offsets: queue offsets of the messages of one pop, ascending.
        :param due_ms: when the leases end by the wall clock, as the journal has it.
        :param invisible_ms: how long the leases last, ms.
        """
        visible = self.visible.get(key)
        if visible:
            visible.difference_update(offsets)
        deadline = self._store.host.steady_ms() + invisible_ms
        self._index.add(deadline, DueLeases(key, offsets[0], offsets[-1], due_ms))
        self._arm()

    def drop(self, key: QueueName) -> None:
        """Forget which messages of a queue were visible, because all its leases ended."""
        self.visible.pop(key, None)

    def unhide(self, key: QueueName) -> None:
        """Move the visible messages of a queue soon, because it is not popped in order any more."""
        leases = self._state.queues.get(key)
        for offset in sorted(self.visible.pop(key, ())):
            lease = None if leases is None else leases.lease(offset)
            if lease is not None:
                self._add_again(key, offset, lease[1], 0)
        self._arm()

    def _arm(self) -> None:
        next_ms = self._index.next_ms()
        if next_ms is None or self._is_stopped:
            return
        pause = max(0, next_ms - self._store.host.steady_ms()) / 1000
        if self._timer is not None:
            if self._timer.getTime() <= self._clock.seconds() + pause:
                return
            self._timer.cancel()
        self._timer = self._clock.callLater(pause, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        if not self._may_put():
            self._timer = self._clock.callLater(_NOT_NOW_S, self._on_time)
            return
        moves = _Moves(self._store, self._state, self._terms)
        for item in self._index.take(self._store.host.steady_ms(), _MOST_MESSAGES):
            self._end(item, moves)
        self._finish(moves)
        self._arm()

    def _end(self, item: DueLeases, moves: "_Moves") -> None:
        leases = self._state.queues.get(item.queue)
        if leases is None:
            return
        visible = 0
        for offset in range(item.first, item.last + 1):
            lease = leases.lease(offset)
            if lease is None or lease[1] != item.due_ms:
                continue
            if leases.is_orderly:
                seen = self.visible.setdefault(item.queue, set())
                visible += offset not in seen
                seen.add(offset)
            elif moves.size >= _MOST_BYTES:
                self._add_again(item.queue, offset, item.due_ms, 0)
            elif not moves.take(item.queue, leases, offset, lease[0]):
                self._try_again(item.queue, offset, item.due_ms)
        if visible:
            self._freed(item.queue, visible)

    def _add_again(self, key: QueueName, offset: int, due_ms: int, pause_ms: int) -> None:
        deadline = self._store.host.steady_ms() + pause_ms
        self._index.add(deadline, DueLeases(key, offset, offset, due_ms))

    def _try_again(self, key: QueueName, offset: int, due_ms: int) -> None:
        """Try to move a message again after 1, 2, 4 s and so on, at most 60 s, for ever."""
        tries = self._tries[key, offset] = self._tries.get((key, offset), 0) + 1
        pause = min(_LEAST_PAUSE_MS << min(tries - 1, 6), _MOST_PAUSE_MS)
        self._add_again(key, offset, due_ms, pause)

    def _finish(self, moves: "_Moves") -> None:
        """Append the copies to the log, and a `MoveEntry` for each copy that the log took."""
        faults = moves.put()
        done: dict[tuple[QueueName, MoveReason], list[tuple[int, int]]] = {}
        for place, (source, reason) in enumerate(moves.sources):
            key = source.name, source.queue_id
            fault = faults.get(place)
            if fault is not None:
                lease = self._state.queues[key].lease(source.queue_offset)
                if lease is not None:
                    self._tell_refused(key, source, fault)
                    self._try_again(key, source.queue_offset, lease[1])
                continue
            self._tries.pop((key, source.queue_offset), None)
            done.setdefault((key, reason), []).append((source.queue_offset, source.pop_ms))
        for (key, offset), pop_ms in moves.gone:
            done.setdefault((key, MoveReason.GONE), []).append((offset, pop_ms))
        for (key, reason), leases in done.items():
            self._count(reason, len(leases))
            self._do(MoveEntry(*key, reason, sorted(leases)))

    def _tell_refused(self, key: QueueName, source: LeaseSource, fault: PutMessageStatus) -> None:
        if self._tries.get((key, source.queue_offset), 0) == 0:
            group, topic = self._state.names[key[0]]
            self.log.error(
                "message {offset} of queue {queue_id} of {topic} cannot be moved for {group}, and "
                "is tried again: {fault}",
                offset=source.queue_offset,
                queue_id=source.queue_id,
                topic=topic,
                group=group,
                fault=fault.name,
            )

    def _count(self, reason: MoveReason, count: int) -> None:
        if reason is MoveReason.RETRY:
            self.retried += count
        elif reason is MoveReason.DEAD:
            self.dead += count
        else:
            self.gone += count
            self.log.warn(
                "{count} messages that were out are not in the log any more: retention deleted "
                "them before they were consumed",
                count=count,
            )


class _Moves:
    """
    The copies that are appended together, and the messages of which none can be made.

    :ivar sources: the lease that ended and the reason, for each copy in order.
    :ivar gone: messages that the log has no more, as ((queue, queue offset), lease name).
    :ivar size: bytes of the bodies and properties of the copies.
    """

    log = Logger()

    def __init__(self, store: PopStore, state: PopState, terms: PopTerms) -> None:
        self._store = store
        self._state = state
        self._terms = terms
        self._copies: list[BrokerMessage] = []
        self._known: set[tuple[QueueName, int]] = set()
        self.sources: list[tuple[LeaseSource, MoveReason]] = []
        self.gone: list[tuple[tuple[QueueName, int], int]] = []
        self.size = 0

    def take(self, key: QueueName, leases: QueueLeases, offset: int, pop_ms: int) -> bool:
        """
        Make the copy of a message whose lease has ended.

        :returns: False if that has to be tried again later: the group does not exist, or the disk
            refuses.
        """
        if (key, offset) in self._known:
            return True  # a changed lease may end with the one before it
        self._known.add((key, offset))
        group, topic = self._state.names[key[0]]
        retries = self._terms.retries(group)
        if retries is None:
            return False
        try:
            stored = message_at(self._store, topic, key[1], offset)
        except (StoreError, OSError) as error:
            self.log.error("a message that is due cannot be read yet: {error}", error=error)
            return False
        if stored is None:
            self.gone.append(((key, offset), pop_ms))
            return True
        record = stored[1]
        source = LeaseSource(*key, offset, pop_ms)
        is_dead = self._terms.uses_dead_letters() and record.reconsume_times >= retries
        if is_dead:
            target = DLQ_PREFIX + group
        elif original_topic(group, topic) != topic:
            target = topic
        else:
            target = retry_topic(group, topic, v2=self._terms.is_v2())
        self._terms.make_topic(target)
        copy = copy_for(record, target, source)
        self._copies.append(copy)
        self.sources.append((source, MoveReason.DEAD if is_dead else MoveReason.RETRY))
        self.size += len(copy.body) + len(copy.properties_string)
        return True

    def put(self) -> dict[int, PutMessageStatus]:
        """
        Append the copies.

        :returns: why a copy is not in the log, by its number; copies that are there have no item.
        """
        if not self._copies:
            return {}
        drafts = [draft_of(copy) for copy in self._copies]
        return self._store.put_drafts(drafts, False, lambda *_: None).faults


def orphans(store: PopStore, journal: PopJournal, state: PopState) -> list[MoveEntry]:
    """
    Return the moves whose copies are in the log, but whose journal record a crash prevented.

    Copies and the journal record behind them are appended in one turn. So such copies lie behind
    the last record of the journal, and each queue is read backwards down to that place.

    :raises StoreError: the disk refuses.
    """
    queue = journal.queue
    last = None if queue is None else queue.unit(queue.max_offset - 1)
    if last is None or not state.out:
        return []
    topics: set[str] = set()
    for name, _ in {key: None for key in state.queues if state.queues[key].out}:
        group, topic = state.names[name]
        topics.add(DLQ_PREFIX + group)
        if original_topic(group, topic) != topic:
            topics.add(topic)
        else:
            topics.update(retry_topic(group, topic, v2=is_v2) for is_v2 in (False, True))
    moves: list[MoveEntry] = []
    for topic in sorted(topics):
        copies = store.queues.get(topic, 0)
        if copies is None:
            continue
        for offset in range(copies.max_offset - 1, copies.min_offset - 1, -1):
            unit = copies.unit(offset)
            if unit is None or unit[0] < last[0]:
                break
            stored = message_at(store, topic, 0, offset)
            source = None if stored is None else source_of(stored[1].properties)
            leases = None if source is None else state.queues.get(source[:2])
            lease = None if leases is None or source is None else leases.lease(source.queue_offset)
            if source is not None and lease is not None and lease[0] == source.pop_ms:
                is_dead = topic.startswith(DLQ_PREFIX)
                reason = MoveReason.DEAD if is_dead else MoveReason.RETRY
                lease_name = source.queue_offset, source.pop_ms
                moves.append(MoveEntry(source.name, source.queue_id, reason, [lease_name]))
    return moves
