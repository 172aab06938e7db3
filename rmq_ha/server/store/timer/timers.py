"""The waiting timer messages of a store, and their delivery by the master."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum, auto
from struct import Struct
from typing import NamedTuple

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from rmq_ha.base.model.properties import REAL_TOPIC, TIMER_OUT_MS, TIMER_SRC, UNIQ_KEY
from rmq_ha.base.model.topics import TIMER_TOPIC
from rmq_ha.base.runs.face import Rows
from rmq_ha.base.seams import Times
from rmq_ha.base.store_format.commitlog import Record
from rmq_ha.base.store_format.timer_times import ms_in, timer_code
from rmq_ha.base.timing.last_second import LastSecond
from rmq_ha.base.timing.slices import in_slices
from rmq_ha.base.timing.timer import next_turn
from rmq_ha.server.store.delay.schedule import Put
from rmq_ha.server.store.index.index import IndexService
from rmq_ha.server.store.log.tail import Tail
from rmq_ha.server.store.timer.delivery import DeliveryTerms, TimerDelivery
from rmq_ha.server.store.timer.dispatch_waits import DispatchWaits
from rmq_ha.server.store.timer.records import recalled_key
from rmq_ha.server.store.timer.reports import BOUNDS_S, TimerReport, TimerWork, due_within
from rmq_ha.server.store.timer.scan import scan
from rmq_ha.server.store.timer.sources import TimerSource
from rmq_ha.server.store.timer.table import TimerLog, TimerTable
from rmq_ha.server.store.timer.topic_counts import TopicCounts

_UNITS = 4096
_RECORDS_A_SLICE = 256
_SCAN_AGAIN_S = 5.0
_LAST_TURNS = 200
_MOST_FOUND = 64
_DISPATCH_LIMIT_S = 2.0
"""Less than the 3 s for which clients wait for an answer."""
_SECOND_MS = 1000
_CHECKPOINT = Struct(">7q")


class TimerState(Enum):
    """The state of a timer message."""

    WAITING = auto()
    IN_FLIGHT = auto()
    """The delivery of the message is being stored, so it cannot be recalled any more."""
    RECALLING = auto()
    """A recall of the message is being stored."""
    RECALLED = auto()
    SETTLED = auto()
    """The message was delivered, or a rolled copy replaced it."""


class TimerMessage(NamedTuple):
    """
    A timer message that was found for a recall.

    :ivar due_ms: the time before which no consumer may see it.
    :ivar out_ms: its TIMER_OUT_MS; the recall record repeats the value.
    """

    source: TimerSource
    topic: str
    unique_key: str
    due_ms: int
    out_ms: int
    state: TimerState


class TimerMessageService:
    """
    Knows which timer messages wait, on every replica, and delivers them while the broker is master.

    A store has one as `store.timers`. With `timerWheelEnable=false` it only counts, at a start, the
    messages that wait in the log.

    :param log: access to the timer messages in the log.
    :param tail: the tail of the log.
    :param terms: the functions by which a delivery asks the store.
    :param put: stores messages; calls back once, with one result for each.
    :param index: the store's index; None without one.
    :ivar is_enabled: whether this store accepts timer messages: `timerWheelEnable`.
    """

    log = Logger()

    def __init__(
        self,
        times: Times,
        log: TimerLog,
        tail: Tail,
        terms: DeliveryTerms,
        put: Put,
        index: IndexService | None,
        *,
        is_enabled: bool,
    ) -> None:
        self._times = times
        self._log = log
        self._tail = tail
        self._terms = terms
        self._put = put
        self._index = index
        self.is_enabled = is_enabled
        self._table: TimerTable | None = None
        self._delivery: TimerDelivery | None = None
        self._delivers = False
        self._scans = 0
        self._again: IDelayedCall | None = None
        self._changes = 0
        self._added, self._settled = LastSecond(), LastSecond()
        self._waits = DispatchWaits(times.clock, terms.dispatched)
        self._left: tuple[int, int | None] = (0, None)
        self._topic_counts = TopicCounts(times.clock, self._count_topics)

    # Start, cuts and roles

    def begin(self) -> None:
        """
        Find the waiting messages, in slices, because the store opened or its log was cut.

        With timers off, the messages are only counted, to tell operators how many are left.
        """
        self._forget()
        self._scans += 1
        queue = self._log.queue
        if not self.is_enabled and (queue is None or queue.max_offset <= queue.min_offset):
            return
        in_slices(self._times.clock, self._scan(self._scans)).addErrback(self._scan_failed)

    def _scan(self, number: int) -> Iterator[None]:
        """Do the slices of one scan, until another scan begins."""
        for _ in scan(self._log, self._tail, self._terms.dispatched, self._scanned):
            yield
            if number != self._scans:
                return

    def _scanned(self, table: TimerTable) -> None:
        if not self.is_enabled:
            self._leave(table)
            return
        self._table = table
        if table.waiting.count:
            self.log.info("{count} timer messages wait", count=table.waiting.count)
        self._deliver()

    def _leave(self, table: TimerTable) -> None:
        """Keep the number of messages that wait while timers are off, and warn if there are any."""
        first = table.waiting.earliest()
        self._left = (table.waiting.count, None if first is None else first[0])
        if first is not None:
            self.log.warn(
                "{count} timer messages wait in the log and are not delivered, because "
                "timerWheelEnable is false. Set it to true and restart, before fileReservedTime "
                "deletes them",
                count=table.waiting.count,
            )

    def _scan_failed(self, failure: object) -> None:
        self.log.error(
            "the waiting timer messages are not known yet, and none is delivered: {failure}",
            failure=failure,
        )
        self._again = self._times.clock.callLater(_SCAN_AGAIN_S, self._on_again)

    def _on_again(self) -> None:
        self._again = None
        self.begin()

    def _forget(self) -> None:
        self._end_delivery()
        self._table = None
        if self._again is not None:
            self._again.cancel()
            self._again = None

    def start(self) -> None:
        """Deliver from now on, because this broker is the master."""
        self._delivers = True
        self._deliver()

    def _deliver(self) -> None:
        if self._delivers and self._table is not None and self._delivery is None:
            self._delivery = TimerDelivery(
                self._times, self._log, self._table, self._terms, self._put
            )

    def stop(self) -> None:
        """Deliver no more messages, because this broker is not the master any more."""
        self._delivers = False
        self._end_delivery()

    def _end_delivery(self) -> None:
        if self._delivery is not None:
            self._delivery.stop()
            self._delivery = None

    async def close(self) -> None:
        """Put the last frontier, before the store stops to take puts, and end everything."""
        delivery = self._delivery
        if delivery is not None:
            delivery.is_ending = True
            for _ in range(_LAST_TURNS):
                if not delivery.in_flight:
                    break
                await next_turn(self._times.clock)
            delivery.put_frontier()
        self._scans += 1
        self._forget()
        self._waits.stop()

    # Dispatching

    def take_rows(self, rows: Rows) -> None:
        """
        Take the timer messages, and their deliveries, among the records that were just dispatched.

        :param rows: the dispatched records; their units are written already.

        :raises StoreError: the disk refuses.
        """
        table, delivery = self._table, self._delivery
        if table is None:
            return
        if TIMER_TOPIC in rows.topics:
            self._take_units(table)
        # A master knows of the deliveries that it puts. Only those of an earlier master, or of its
        # own life before a crash, are looked for among other records.
        if delivery is not None and delivery.is_level and not delivery.in_flight:
            return
        if table.waiting.count:
            settled = table.take_deliveries(rows)
            self._changes += settled
            self._settled.add(settled, self._times.clock.seconds())

    def _take_units(self, table: TimerTable) -> None:
        queue = self._log.queue
        if queue is not None and queue.max_offset < table.next:
            self.begin()  # the queue begins anew
            return
        self._changes += 1
        while not table.is_level:
            added = table.take_units(_UNITS)
            self._added.add(len(added), self._times.clock.seconds())
            if self._delivery is not None and added:
                self._delivery.arrived(added)

    def dispatched(self, stored_ms: int) -> None:
        """
        Take note that the rows of the last `take_rows` are dispatched.

        :param stored_ms: store time of the last of them.
        """
        if self._table is None:
            return
        self._waits.look()
        if self._delivery is not None:
            self._delivery.dispatched()
        else:
            self._table.waiting.tidy(stored_ms)

    # For sends

    @property
    def waiting(self) -> int:
        """Number of messages that wait; `timerMaxWaiting` limits it."""
        return 0 if self._table is None else self._table.waiting.count

    def overdue_ms(self) -> int:
        """Return for how many ms the message that is due first has been due; 0 if none is."""
        first = None if self._table is None else self._table.waiting.earliest()
        return 0 if first is None else max(0, self._times.now_ms() - first[0])

    def waiting_in_second(self, due_ms: int) -> int:
        """Return how many messages wait for the second of a time, for `timerCongestNumEachSlot`."""
        return 0 if self._table is None else self._table.waiting.in_second(due_ms)

    # For the cleaner

    def releases(self, end: int) -> bool:
        """
        Return whether no message waits in the log below `end`, so that its files may be deleted.

        If messages wait there, a master puts copies of them at the end of the log.

        :raises StoreError: the disk refuses.
        """
        queue = self._log.queue
        if not self.is_enabled or queue is None or queue.max_physical_offset < 0:
            return True
        if self._table is None:
            return False
        waiting = self._table.waiting.offsets_below(queue.offset_by_place(end))
        if waiting and self._delivery is not None:
            self._delivery.roll(waiting)
        return not waiting

    # For recalls

    @property
    def is_ready(self) -> bool:
        """Whether the waiting messages are known: the scan after a start or a cut is over."""
        return self._table is not None

    def until_dispatched(self, source: TimerSource | None = None) -> "Deferred[bool]":
        """
        Wait until the queues have the message of a source, or, without a source, all records that
        are written now.

        A recall may come before its message is dispatched. The log of a replica set is dispatched
        only when enough brokers have it.

        :returns: fires with True then; with False after two seconds, or if the store stops.
        """
        end = self._terms.written()
        if source is not None:
            end = source.physical_offset + 1 if source.physical_offset < end else 0
        return self._waits.wait_until(end, _DISPATCH_LIMIT_S)

    def find_source(self, source: TimerSource) -> "Deferred[TimerMessage | None]":
        """
        Find the message that a recall handle names by its sixth item.

        The caller compares topic and unique key with those of the handle.

        :returns: fires with None if no timer message is stored there; fails with StoreError if the
            disk refuses.
        """
        messages: list[TimerMessage] = []

        def look() -> Iterator[None]:
            located = self._log.waiting_record(source)
            record = None if located is None else self._log.record(located[1])
            if located is not None and record is not None:
                yield from self._describe(record, source, located[0], messages)

        return in_slices(self._times.clock, look()).addCallback(
            lambda _: messages[0] if messages else None
        )

    def find_key(
        self, topic: str, unique_key: str, deliver_ms: int
    ) -> "Deferred[Sequence[TimerMessage]]":
        """
        Find the messages of a topic with a unique key and a time, for a handle of five items.

        :param deliver_ms: the handle's time; a message fits whose TIMER_OUT_MS is one ms less.
        :returns: fires with the messages; fails with StoreError if the disk refuses.
        """
        messages: list[TimerMessage] = []

        def look() -> Iterator[None]:
            records: list[tuple[TimerSource, Record]] = []
            yield from self._records_of_key(unique_key, records)
            for source, record in records:
                properties = record.properties
                is_named = properties.get(REAL_TOPIC) == topic
                if is_named and ms_in(properties, TIMER_OUT_MS) == deliver_ms - 1:
                    located = self._log.waiting_record(source)
                    if located is not None:
                        yield from self._describe(record, source, located[0], messages)

        return in_slices(self._times.clock, look()).addCallback(lambda _: messages)

    def _records_of_key(
        self, unique_key: str, records: list[tuple[TimerSource, Record]]
    ) -> Iterator[None]:
        """
        Collect the records of the timer topic with a unique key, recalls among them, in slices.

        :param records: gets each record behind its place.
        """
        index, places = self._index, list[int]()
        if index is None:
            return
        yield from index.find(TIMER_TOPIC, unique_key, _MOST_FOUND, 0, 1 << 62, places)
        for place in sorted(set(places)):
            record = self._log.record_starting_at(place)
            if record is not None and record.properties.get(UNIQ_KEY) == unique_key:
                records.append((TimerSource(place, record.queue_offset), record))

    def _describe(
        self, record: Record, source: TimerSource, due_ms: int, messages: list[TimerMessage]
    ) -> Iterator[None]:
        properties = record.properties
        key = properties.get(UNIQ_KEY, "")
        state = self._state(due_ms, source)
        if state is TimerState.SETTLED and key:
            records: list[tuple[TimerSource, Record]] = []
            yield from self._records_of_key(key, records)
            if any(_recalls(other, source) for _, other in records):
                state = TimerState.RECALLED
        topic, out = properties.get(REAL_TOPIC, ""), ms_in(properties, TIMER_OUT_MS)
        messages.append(TimerMessage(source, topic, key, due_ms, out or 0, state))

    def _state(self, due_ms: int, source: TimerSource) -> TimerState:
        table, delivery = self._table, self._delivery
        if table is None or not table.waiting.waits(due_ms, source):
            is_recalled = table is not None and table.waiting.was_recalled(
                due_ms, source.queue_offset
            )
            return TimerState.RECALLED if is_recalled else TimerState.SETTLED
        if delivery is not None and source.queue_offset in delivery.in_flight:
            return TimerState.IN_FLIGHT
        if delivery is not None and source in delivery.recalling:
            return TimerState.RECALLING
        return TimerState.WAITING

    def begin_recall(self, source: TimerSource) -> bool:
        """
        Keep a waiting message from being delivered, while its recall record is being stored.

        Store a recall record for it, with TIMER_SRC, in the same turn. The message stays recalled
        when that record reaches the queues. Call `undo_recall` only if the put was refused, so that
        the log does not have the record.

        :returns: False if the message does not wait any more, its recall has begun already, or this
            broker delivers no messages now.
        :raises StoreError: the disk refuses.
        """
        located = self._log.waiting_record(source)
        if self._delivery is None or located is None:
            return False
        if self._state(located[0], source) is not TimerState.WAITING:
            return False
        self._delivery.recalling[source] = located[0]
        return True

    def undo_recall(self, source: TimerSource) -> None:
        """Let a message be delivered after all, because the put of its recall was refused."""
        if self._delivery is not None:
            self._delivery.undo_recall(source)

    # For operators and Java replicas

    def report(self) -> TimerReport:
        """Return the state of the timer messages."""
        table, delivery = self._table, self._delivery
        if table is None:
            work = TimerWork.SCANNING if self.is_enabled else TimerWork.OFF
            return TimerReport(work, *self._left, 0)
        first, waiting = table.waiting.earliest(), table.waiting
        report = TimerReport(
            TimerWork.SLAVE, waiting.count, None if first is None else first[0], waiting.recalled
        )
        if delivery is None:
            return report
        return report._replace(
            work=delivery.work,
            clock_step_ms=delivery.clock_steps.step_ms,
            clock_step_at_ms=delivery.clock_steps.at_ms,
        )

    def due_within(self) -> "Deferred[Sequence[int]]":
        """
        Count the messages that are due within each of `reports.BOUNDS_S` from now, in slices.

        :returns: fires with a count for each bound.
        """
        table, counts = self._table, [0] * len(BOUNDS_S)
        if table is None:
            return succeed(counts)
        steps = due_within(table.waiting, self._times.now_ms(), counts)
        return in_slices(self._times.clock, steps).addCallback(lambda _: counts)

    def checkpoint_bytes(self, epoch: int = 0) -> bytes:
        """
        Return the body of the answer to GET_TIMER_CHECK_POINT (60): seven numbers in 56 bytes.

        :param epoch: the epoch of the master; 0 where no controller elects it.
        """
        now = self._times.now_ms()
        first = None if self._table is None else self._table.waiting.earliest()
        read_ms = now if first is None else min(now, first[0] - 1)
        end = 0 if self._table is None else self._table.next
        return _CHECKPOINT.pack(
            read_ms - read_ms % _SECOND_MS, 0, end, end, epoch, now, self._changes
        )

    def waiting_records(self) -> Iterator[tuple[Record, int]]:
        """Yield each waiting record with its size in bytes, by ascending queue offset."""
        table, queue = self._table, self._log.queue
        if table is None or queue is None:
            return
        for offset in table.waiting.offsets_below(queue.max_offset):
            unit = queue.unit(offset)
            record = None if unit is None else self._log.record(unit)
            if unit is not None and record is not None:
                yield record, unit[1]

    def last_record(self) -> tuple[tuple[Record, int] | None, int]:
        """
        Return the last record of the timer topic with its size in bytes, and the queue offset
        behind it. The record is None if the log lacks it.
        """
        queue = self._log.queue
        if queue is None:
            return None, 0
        unit = queue.unit(queue.max_offset - 1)
        record = None if unit is None else self._log.record(unit)
        return (None if unit is None or record is None else (record, unit[1])), queue.max_offset

    def waiting_by_topic(self) -> "Deferred[Mapping[str, int]]":
        """
        Count the waiting messages by their real topic, for GET_TIMER_METRICS (61).

        It reads the records of all waiting messages in slices, so it takes a while, and is not done
        again at once; see `TopicCounts`.

        :returns: fires with the counts; fails with StoreError if the disk refuses.
        """
        return self._topic_counts.get()

    def _count_topics(self, counts: Counter[str]) -> Iterator[None]:
        table, queue = self._table, self._log.queue
        if table is None or queue is None:
            return
        for number in table.waiting.minutes():
            for place, (_, offset) in enumerate(table.waiting.of_minute(number), 1):
                unit = queue.unit(offset)
                record = None if unit is None else self._log.record(unit)
                if record is not None:
                    counts[record.properties.get(REAL_TOPIC, "")] += 1
                if place % _RECORDS_A_SLICE == 0:
                    yield
            yield

    def runtime_info(self) -> dict[str, str]:
        """
        Return the five timer keys of GET_BROKER_RUNTIME_INFO (28); every value is a string.

        A broker without timer messages has none of them, as RocketMQ 4.9.
        """
        if not self.is_enabled:
            return {}
        table, seconds = self._table, self._times.clock.seconds()
        behind_s = self.overdue_ms() // _SECOND_MS
        queue = self._log.queue
        offsets = 0 if queue is None or table is None else queue.max_offset - table.next
        return {
            "timerReadBehind": str(behind_s),
            "timerOffsetBehind": str(offsets),
            "timerCongestNum": str(self.waiting),
            "timerEnqueueTps": f"{self._added.per_second(seconds):.1f}",
            "timerDequeueTps": f"{self._settled.per_second(seconds):.1f}",
        }


def _recalls(record: Record, source: TimerSource) -> bool:
    """Return whether a record is a recall of the message at a source."""
    properties = record.properties
    code = timer_code(properties)
    return (
        code is not None
        and bool(recalled_key(properties))
        and properties.get(TIMER_SRC) == source.text
    )
