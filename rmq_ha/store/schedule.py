"""ScheduleMessageService: gives delayed messages to their topics when they are due.

Spec: store.md, section 10.
"""

from collections.abc import Callable, Sequence

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from rmq_ha.errors import CorruptRecord, StoreError
from rmq_ha.model.message import Message, PutMessageResult
from rmq_ha.model.properties import DELAY, REAL_QID, REAL_TOPIC, WAIT
from rmq_ha.model.topics import HALF_TOPIC, SCHEDULE_TOPIC
from rmq_ha.seams import Disk, Worker
from rmq_ha.store.consumequeue import ConsumeQueue, ConsumeQueueTable
from rmq_ha.store.delay_offsets import DelayOffsets
from rmq_ha.store.format.commitlog import decode_record, store_timestamp_of
from rmq_ha.store.format.consumequeue import FILLER_SIZE, is_extension_address

_FIRST_DELAY_S = 1.0
_RETRY_S = 0.1
_RETRY_AFTER_FAULT_S = 10.0
# A sleeper wakes now and then, in case that somebody set the machine's clock.
_LONGEST_SLEEP_S = 30.0
# Messages of one level that are delivered in one turn.
_BATCH = 32


class _Level:
    """
    One delay level, whose queue is in the order of delivery.

    :ivar offset: queue offset of the next message.
    :ivar timer: for that message; None while the level is idle or a put is under way.
    :ivar failed_at: queue offset of the last put that failed, so as to tell of it once.
    """

    __slots__ = ("delay_ms", "failed_at", "is_putting", "number", "offset", "timer")

    def __init__(self, number: int, delay_ms: int, offset: int) -> None:
        self.number = number
        self.delay_ms = delay_ms
        self.offset = offset
        self.timer: IDelayedCall | None = None
        self.is_putting = False
        self.failed_at = -1


class ScheduleMessageService:
    """
    One timer a level, set to the time when its next message is due; an idle level has none.

    :param store_path: the store's root directory.
    :param levels_ms: delay of level 1, 2, ..., ms.
    :param record_at: the record at a physical offset with a size; None if the log has it not.
    :param put: stores a message; its Deferred fires with a `PutMessageResult` and never fails.
    :param flush_interval_ms: from a delivery to the write of delayOffset.json.
    """

    log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        now_ms: Callable[[], int],
        disk: Disk,
        worker: Worker,
        store_path: str,
        levels_ms: Sequence[int],
        queues: ConsumeQueueTable,
        record_at: Callable[[int, int], bytes | None],
        put: Callable[[Message], "Deferred[PutMessageResult]"],
        flush_interval_ms: int = 10000,
    ) -> None:
        self._clock = clock
        self._now_ms = now_ms
        self._levels_ms = tuple(levels_ms)
        self._queues = queues
        self._record_at = record_at
        self._put = put
        self._offsets = DelayOffsets(clock, disk, worker, store_path, flush_interval_ms)
        self._levels: dict[int, _Level] = {}

    @property
    def offset_table(self) -> dict[int, int]:
        """The next queue offset by level, of the levels that delivered something."""
        return self._offsets.table

    def runtime_info(self) -> dict[str, str]:
        """`scheduleMessageOffset_<level>`: next queue offset and end of the queue."""
        info: dict[str, str] = {}
        for level, offset in sorted(self.offset_table.items()):
            queue = self._queue(level)
            end = queue.max_offset if queue else 0
            info[f"scheduleMessageOffset_{level}"] = f"{offset},{end}"
        return info

    def _queue(self, level: int) -> ConsumeQueue | None:
        return self._queues.get(SCHEDULE_TOPIC, level - 1)

    def load(self) -> None:
        """
        Read delayOffset.json; offsets outside their queue become its nearest end.

        :raises StoreError: neither the file nor its backup can be read.
        """
        self._offsets.load()
        for level in range(1, len(self._levels_ms) + 1):
            if level in self.offset_table:
                self.offset_table[level] = self._corrected(level, self.offset_table[level])

    def _corrected(self, level: int, offset: int) -> int:
        queue = self._queue(level)
        low, high = (queue.min_offset, queue.max_offset) if queue else (0, 0)
        return max(low, min(high, offset))

    def start(self) -> None:
        """
        Read delayOffset.json, now that the queues are complete, and begin to deliver in 1 s.

        :raises StoreError: neither the file nor its backup can be read.
        """
        if self._levels:
            return
        self.load()
        for number, delay_ms in enumerate(self._levels_ms, 1):
            level = _Level(number, delay_ms, self.offset_table.get(number, 0))
            self._levels[number] = level
            self._wake(level, _FIRST_DELAY_S)

    def stop(self) -> "Deferred[bool]":
        """Deliver no more; fires when delayOffset.json is written (or the disk refused)."""
        for level in self._levels.values():
            if level.timer is not None:
                level.timer.cancel()
        self._levels.clear()
        return self._offsets.stop()

    def arrived(self, level: int) -> None:
        """Its queue got a message; harmless before `start`."""
        found = self._levels.get(level)
        if found is not None and found.timer is None and not found.is_putting:
            self._wake(found, 0)

    def _wake(self, level: _Level, seconds: float) -> None:
        level.timer = self._clock.callLater(seconds, self._on_time, level)

    def _on_time(self, level: _Level) -> None:
        level.timer = None
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
        if pause is not None and self._levels.get(level.number) is level:
            self._wake(level, pause)

    def _deliver(self, level: _Level) -> float | None:
        """
        Put what is due, a batch at most.

        :returns: seconds until the next look; None when something else will wake the level.
        """
        queue = self._queue(level.number)
        level.offset = self._corrected(level.number, level.offset)
        if queue is None or level.offset >= queue.max_offset:
            return None
        units = queue.units(level.offset, _BATCH)
        if not units:
            return self._over_gap(level, queue)
        now = self._now_ms()
        for physical_offset, size, tags_code in units:
            if size != FILLER_SIZE:
                wait = self._due(level, physical_offset, size, tags_code, now) - now
                if wait > 0:
                    return min(wait / 1000, _LONGEST_SLEEP_S)
                message = self._message_at(physical_offset, size)
                if message is not None:
                    pause = self._put_one(level, message)
                    if pause != 0:
                        return pause
                    continue
            level.offset += 1
        return 0 if level.offset < queue.max_offset else None

    def _over_gap(self, level: _Level, queue: ConsumeQueue) -> float:
        """A file of the queue is missing: go on behind it."""
        self.log.error(
            "delay level {delay_level} has no consume queue file at queue offset {queue_offset}",
            delay_level=level.number,
            queue_offset=level.offset,
        )
        level.offset = queue.next_file_offset(level.offset)
        return _RETRY_S

    def _due(self, level: _Level, physical_offset: int, size: int, tags_code: int, now: int) -> int:
        """When to deliver, ms; at once if that is farther off than the level's delay."""
        due = tags_code
        if is_extension_address(tags_code):
            due = store_timestamp_of(self._record_at(physical_offset, size) or b"") + level.delay_ms
        return due if due <= now + level.delay_ms else now

    def _put_one(self, level: _Level, message: Message) -> float | None:
        """Put the level's next message; 0 when it is stored already, else as `_deliver`."""
        outcome: list[object] = []
        done = self._put(message).addBoth(outcome.append)
        if outcome:
            return self._after_put(level, outcome[0])
        level.is_putting = True
        done.addCallback(lambda _: self._on_put(level, outcome[0]))
        return None

    def _on_put(self, level: _Level, outcome: object) -> None:
        level.is_putting = False
        pause = self._after_put(level, outcome)
        if self._levels.get(level.number) is level:
            self._wake(level, pause)

    def _after_put(self, level: _Level, outcome: object) -> float:
        """How a put ended; 0 when the next message may follow, else seconds to wait."""
        if isinstance(outcome, PutMessageResult) and outcome.status.is_stored:
            level.offset += 1
            if self._levels.get(level.number) is level:
                self._offsets.delivered(level.number, level.offset)
            return 0
        if level.failed_at != level.offset:
            level.failed_at = level.offset
            self.log.error(
                "delay level {delay_level} cannot deliver queue offset {queue_offset} and tries "
                "again every 100 ms: {outcome}",
                delay_level=level.number,
                queue_offset=level.offset,
                outcome=outcome,
            )
        return _RETRY_S

    def _message_at(self, physical_offset: int, size: int) -> Message | None:
        """The message to put; None for one that must be left out."""
        data = self._record_at(physical_offset, size)
        if data is None:
            return None  # the log has lost it to age
        try:
            return message_to_deliver(data)
        except CorruptRecord as error:
            self.log.error(
                "the delayed message at {physical_offset} is left out: {error}",
                physical_offset=physical_offset,
                error=error,
            )
            return None


def message_to_deliver(data: bytes) -> Message:
    """
    The message for the real topic, from a record of the schedule topic.

    Its property string is kept as it is, with DELAY, REAL_TOPIC, REAL_QID and WAIT.

    :raises CorruptRecord: it is not such a record, or meant for the half topic.

    Spec: store.md, sections 2.4 and 10.3.
    """
    record = decode_record(data)
    properties = record.properties
    topic, queue_id = properties.get(REAL_TOPIC, ""), properties.get(REAL_QID, "")
    if not topic or topic == HALF_TOPIC:
        raise CorruptRecord(f"its {REAL_TOPIC} is {topic!r}")
    if not (queue_id.isascii() and queue_id.isdigit() and len(queue_id) < 10):
        raise CorruptRecord(f"its {REAL_QID} is {queue_id!r}")
    properties.pop(DELAY, None)
    properties[WAIT] = "false"
    return Message(
        topic=topic,
        queue_id=int(queue_id),
        body=record.body,
        born_host=record.born_host,
        store_host=record.store_host,
        born_timestamp=record.born_timestamp,
        flag=record.flag,
        sys_flag=record.sys_flag,
        reconsume_times=record.reconsume_times,
        properties=properties,
        properties_string=record.properties_string,
        wait_store_ok=False,
    )
