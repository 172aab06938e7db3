"""ScheduleMessageService: puts delayed messages into their real topics when they are due.

Spec: store.md, section 10.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from rmq_ha.base.errors import CorruptRecord, StoreError
from rmq_ha.base.model.message import BrokerMessage, PutMessageResult
from rmq_ha.base.model.topics import SCHEDULE_TOPIC
from rmq_ha.base.seams import Times
from rmq_ha.base.store_format.commitlog import Record, decode_record, store_timestamp_of
from rmq_ha.base.store_format.consumequeue import FILLER_SIZE, is_extension_address
from rmq_ha.server.store.delay.level import DelayLevel, check_deliverable, message_of
from rmq_ha.server.store.delay.lookback import LookBack, Unit
from rmq_ha.server.store.delay.offsets import DelayOffsets
from rmq_ha.server.store.queues.table import ConsumeQueue, ConsumeQueueTable

Put = Callable[[list[BrokerMessage], Callable[[list[PutMessageResult]], None]], None]
Delivered = Callable[[int, list[BrokerMessage], list[PutMessageResult]], None]

_FIRST_DELAY_S = 1.0
_RETRY_S = 0.1
_RETRY_AFTER_FAULT_S = 10.0
# The service wakes at least this often, in case somebody set the machine's clock.
_LONGEST_SLEEP_S = 1.0
# Most messages that are delivered in one turn, by all levels together.
_BATCH = 64
_UNKNOWN_DELAY_MS = 1 << 62


class DelayedLog(NamedTuple):
    """
    Access to the delayed messages in the log.

    :ivar queues: the queues of the log; each delay level has one.
    :ivar record_at: returns the record at a physical offset with a size; None if the log lacks it.
    :ivar find: searches the record of a damaged unit that does not lead to it; None without a
        record.
    :ivar newest_ms: the store time of the newest record of the log; 0 if the log is empty.
    """

    queues: ConsumeQueueTable
    record_at: Callable[[int, int], bytes | None]
    find: Callable[[ConsumeQueue, int, Unit], bytes | None]
    newest_ms: Callable[[], int] = lambda: 0


class ScheduleMessageService:
    """
    Delivers delayed messages with one timer for all levels.

    The timer is set to the time when the next message is due; while all levels are idle there is no
    timer.

    A turn delivers a batch of one level; levels that are due take turns.

    :param offsets: the next queue offset of each level.
    :param levels_ms: delay of level 1, 2, ..., ms.
    :param log: access to the delayed messages in the log.
    :param put: stores messages; calls back once, with one result for each.
    :ivar on_progress: called when `offset_table` has changed.
    :ivar on_delivered: called after each batch with the level's number, the messages, and their put
        results.
    """

    log = Logger()

    def __init__(
        self,
        times: Times,
        offsets: DelayOffsets,
        levels_ms: Sequence[int],
        log: DelayedLog,
        put: Put,
    ) -> None:
        self._clock, self._now_ms = times
        self._levels_ms = tuple(levels_ms)
        self._queues = log.queues
        self._record_at = log.record_at
        self._find = log.find
        self._put = put
        self._newest_ms = log.newest_ms
        self.on_progress: Callable[[], None] = lambda: None
        self.on_delivered: Delivered = lambda level, messages, results: None
        self._offsets = offsets
        self._levels: dict[int, DelayLevel] = {}
        self._timer: IDelayedCall | None = None
        self._look_back = LookBack(log.queues, log.record_at, self._delivery_time)

    @property
    def offset_table(self) -> dict[int, int]:
        """The next queue offset by level; it has only levels that delivered a message."""
        return self._offsets.table

    @property
    def levels(self) -> list[int]:
        """Numbers of the configured levels, and of former levels whose queues still exist."""
        return sorted({*range(1, len(self._levels_ms) + 1), *self._levels})

    def runtime_info(self) -> dict[str, str]:
        """Return `scheduleMessageOffset_<level>` with next queue offset and end of the queue."""
        info: dict[str, str] = {}
        for level, offset in sorted(self.offset_table.items()):
            queue = self._queue(level)
            end = queue.max_offset if queue else 0
            info[f"scheduleMessageOffset_{level}"] = f"{offset},{end}"
        return info

    def _queue(self, level: int) -> ConsumeQueue | None:
        return self._queues.get(SCHEDULE_TOPIC, level - 1)

    # Beginning and end

    def load(self) -> None:
        """
        Read delayOffset.json, and move offsets into their queues as `correct` does.

        :raises StoreError: neither the file nor its backup can be read.
        """
        self._offsets.load()
        self.correct()

    def correct(self) -> None:
        """Move each offset that is outside its queue to the nearest end of the queue."""
        for level in range(1, len(self._levels_ms) + 1):
            if level in self.offset_table:
                self.offset_table[level] = self._correct_offset(level, self.offset_table[level])

    def _correct_offset(self, level: int, offset: int) -> int:
        queue = self._queue(level)
        low, high = (queue.min_offset, queue.max_offset) if queue else (0, 0)
        return max(low, min(high, offset))

    def start(self) -> None:
        """
        Read delayOffset.json, after the queues are complete, and begin to deliver in 1 s.

        :raises StoreError: neither the file nor its backup can be read, or a queue cannot be read.
        """
        if self._levels:
            return
        self.load()
        for number, delay_ms in enumerate(self._levels_ms, 1):
            self._add_level(number, delay_ms)
        for topic, queue_id in [key for key, _ in self._queues.items()]:
            if topic == SCHEDULE_TOPIC and queue_id >= len(self._levels_ms):
                self._add_forgotten_level(queue_id + 1)
        self._look_back.begin(self._levels.values(), self._newest_ms())
        for level in self._levels.values():
            self._wake(level, _FIRST_DELAY_S)

    def _add_level(self, number: int, delay_ms: int) -> DelayLevel:
        offset = self._correct_offset(number, self.offset_table.get(number, 0))
        level = self._levels[number] = DelayLevel(number, delay_ms, offset)
        return level

    def _add_forgotten_level(self, number: int) -> None:
        """
        Deliver the messages of a level that messageDelayLevel no longer has, when they are due as
        promised.
        """
        level = self._add_level(number, _UNKNOWN_DELAY_MS)
        queue = self._queue(number)
        if queue is not None and level.offset < queue.max_offset:
            self.log.warn(
                "messageDelayLevel has no level {delay_level} any more; {count} messages wait in it"
                " and are delivered when they are due",
                delay_level=number,
                count=queue.max_offset - level.offset,
            )

    def stop(self) -> "Deferred[bool]":
        """Stop delivering. Fires when delayOffset.json is written, or when the disk refused."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._levels.clear()
        self._look_back.end()
        return self._offsets.stop()

    # Turns

    def arrived(self, level: int) -> None:
        """Take note that the queue of a level got a message. Before `start` this does nothing."""
        delay_level, queue = self._levels.get(level), self._queue(level)
        if delay_level is None or queue is None:
            return
        delay_level.mark(queue.max_offset, self._clock.seconds())
        if delay_level.wake_at is None and not delay_level.is_putting:
            self._wake(delay_level, 0)

    def _wake(self, level: DelayLevel, seconds: float) -> None:
        if self._levels.get(level.number) is not level:
            return
        when = level.wake_at = self._clock.seconds() + seconds
        if self._timer is not None:
            if self._timer.getTime() <= when:
                return
            self._timer.cancel()
        self._timer = self._clock.callLater(seconds, self._on_time)

    def _on_time(self) -> None:
        """
        Deliver one batch of the level that is due first, then set the timer for the next level.
        """
        self._timer = None
        level = self._next_level()
        if level is not None and _wake_time(level) <= self._clock.seconds():
            level.wake_at = None
            self._turn(level)
            level = self._next_level()
        if level is not None:
            if self._timer is not None:
                self._timer.cancel()
            pause = max(0.0, _wake_time(level) - self._clock.seconds())
            self._timer = self._clock.callLater(pause, self._on_time)

    def _next_level(self) -> DelayLevel | None:
        waiting = [level for level in self._levels.values() if level.wake_at is not None]
        return min(waiting, key=_wake_time, default=None)

    def _turn(self, level: DelayLevel) -> None:
        try:
            pause = self._deliver(level)
        except (StoreError, OSError) as error:
            self.log.error(
                "delay level {delay_level} has to wait at queue offset {queue_offset}: {error}",
                delay_level=level.number,
                queue_offset=level.offset,
                error=error,
            )
            pause = _RETRY_AFTER_FAULT_S
        if pause is not None:
            self._wake(level, pause)

    # Delivery

    def _deliver(self, level: DelayLevel) -> float | None:
        """
        Put the messages that are due, at most one batch.

        :returns: seconds until the next look; None if another event will wake the level.
        """
        if not self._look_back.find_beginning(level):
            return 0.0
        queue = self._queue(level.number)
        level.offset = self._correct_offset(level.number, level.offset)
        if queue is None or level.offset >= queue.max_offset:
            return None
        units = queue.units(level.offset, 1 if level.failed_at == level.offset else _BATCH)
        if not units:
            return self._over_gap(level, queue)
        messages: list[BrokerMessage] = []
        offsets: list[int] = []
        end, pause = level.offset, 0.0
        for unit in units:
            wait = self._wait(level, queue, end, unit)
            if wait > 0:
                pause = min(wait / 1000, _LONGEST_SLEEP_S)
                level.mark(queue.max_offset, self._clock.seconds())
                break
            record = None if end in level.stored_ahead else self._record(queue, end, unit)
            is_done = record is None or self._look_back.is_delivered(level, end, record)
            if is_done is None:
                break  # the next turn will know it
            if record is not None and not is_done:
                messages.append(message_of(record))
                offsets.append(end)
            end += 1
        if messages:
            return self._put_batch(level, messages, offsets, end, pause)
        self._reached(level, end)
        return pause if end < queue.max_offset else None

    def _over_gap(self, level: DelayLevel, queue: ConsumeQueue) -> float:
        """Continue after a gap, where a file of the queue is missing."""
        self.log.error(
            "delay level {delay_level} has no consume queue file at queue offset {queue_offset}",
            delay_level=level.number,
            queue_offset=level.offset,
        )
        level.offset = queue.next_file_offset(level.offset)
        return _RETRY_S

    def _delivery_time(self, level: DelayLevel, unit: Unit) -> int:
        """Return the delivery time of a unit's message, ms."""
        physical_offset, size, tags_code = unit
        if not is_extension_address(tags_code):
            return tags_code
        stored = store_timestamp_of(self._record_at(physical_offset, size) or b"")
        return stored + level.delay_ms

    def _wait(self, level: DelayLevel, queue: ConsumeQueue, offset: int, unit: Unit) -> int:
        """
        Return the ms until a message is delivered.

        It cannot be more than the level's delay, unless the clock was set back or the levels were
        changed. Then the delay counts from the message's arrival. Java delivers all such messages
        at once.
        """
        if unit[1] == FILLER_SIZE:
            return 0
        wait = self._delivery_time(level, unit) - self._now_ms()
        if wait <= level.delay_ms:
            return wait
        return level.longest_wait_ms(offset, queue.max_offset, self._clock.seconds())

    def _record(self, queue: ConsumeQueue, offset: int, unit: Unit) -> Record | None:
        """
        Return the delayed message; None if it must be left out.

        :raises StoreError: its unit was damaged and has just been mended, so only now the unit
            holds the delivery time.
        """
        physical_offset, size, _ = unit
        data = None if size == FILLER_SIZE else self._record_at(physical_offset, size)
        if data is None:
            if self._find(queue, offset, unit) is not None:
                raise StoreError("its place in the queue was damaged, and is mended")
            return None  # the log lost the record to age or damage
        try:
            record = decode_record(data)
            check_deliverable(record)
            return record
        except CorruptRecord as error:
            self.log.error(
                "the delayed message at {physical_offset} is left out: {error}",
                physical_offset=physical_offset,
                error=error,
            )
            return None

    def _put_batch(
        self,
        level: DelayLevel,
        messages: list[BrokerMessage],
        offsets: list[int],
        end: int,
        pause: float,
    ) -> float | None:
        outcome: list[float] = []

        def stored(results: list[PutMessageResult]) -> None:
            self.on_delivered(level.number, messages, results)
            again = self._after_put(level, offsets, end, pause, results)
            outcome.append(again)
            if level.is_putting:
                level.is_putting = False
                self._wake(level, again)

        self._put(messages, stored)
        if outcome:
            return outcome[0]
        level.is_putting = True
        return None

    def _after_put(
        self,
        level: DelayLevel,
        offsets: list[int],
        end: int,
        pause: float,
        results: list[PutMessageResult],
    ) -> float:
        """Handle the results of a put; return the seconds until the level continues."""
        failed = [
            offset
            for offset, result in zip(offsets, results, strict=True)
            if not result.status.is_stored
        ]
        if not failed:
            self._reached(level, end)
            return pause
        first = failed[0]
        level.stored_ahead.update(set(offsets) - set(failed))
        if level.failed_at != first:
            self.log.error(
                "delay level {delay_level} cannot deliver queue offset {queue_offset} and tries "
                "again every 100 ms: {status}",
                delay_level=level.number,
                queue_offset=first,
                status=results[offsets.index(first)].status.name,
            )
        self._reached(level, first)
        level.failed_at = first
        return _RETRY_S

    def _reached(self, level: DelayLevel, offset: int) -> None:
        """Take note that all messages of the level below `offset` are delivered."""
        if offset == level.offset or self._levels.get(level.number) is not level:
            return
        level.offset = offset
        if level.stored_ahead:
            level.stored_ahead = {ahead for ahead in level.stored_ahead if ahead >= offset}
        # Record `offset` even if it is below the file's: a crash now must not lose the messages
        # between.
        self._offsets.delivered(level.number, offset)
        self.on_progress()
        self._look_back.note_progress(level, offset)


def _wake_time(level: DelayLevel) -> float:
    return -1.0 if level.wake_at is None else level.wake_at
