"""MessageReader: finds the messages of a pull in a queue.

Spec: store.md, section 8.
"""

from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate

from rmq_ha.base.config.store import MessageStoreConfig
from rmq_ha.base.interfaces import IMessageFilter
from rmq_ha.base.model.message import GetMessageResult
from rmq_ha.base.model.status import BrokerRole, GetMessageStatus
from rmq_ha.base.store_format.commitlog import MAX_RECORD_SIZE, store_timestamp_of
from rmq_ha.base.store_format.consumequeue import (
    FILLER_SIZE,
    UNIT_SIZE,
    decode_places,
    is_extension_address,
)
from rmq_ha.server.store.log.windows import LogWindows, WindowLog
from rmq_ha.server.store.queues.table import ConsumeQueue, ConsumeQueueTable
from rmq_ha.server.store.reading.damage import ReadDamage

# Most bytes of units that a pull reads, unless it asks for more messages.
_MAX_FILTER_SIZE = 16000
# Most bytes from the start of a record to its store timestamp, with room for an IPv6 host.
_RECORD_HEAD = 91 + 24
# Most seconds of a reactor turn for filters or damage; after them the consumer asks again at once.
_BUDGET_S = 0.1

_Unit = tuple[int, int, int]
"""A unit of a queue: physical offset of its record, size of the record in bytes, tag code."""

_Limits = tuple[int, int]
"""The most messages and the most bytes of a pull."""


_Start = tuple[ConsumeQueue, int, int]
"""Where a scan begins: the queue, the queue offset, and the first physical offset of the log."""

_Portion = tuple[int, _Limits, _Limits]
"""
What a pull may take: the physical offset from which records count as being in memory, the limits
of records in memory, and the limits of records on the disk.
"""


class MessageReader:
    """
    Reads messages by queue offset.

    :param log: the log that holds the records.
    :param memory_bytes: memory of this machine. Records farther before the log's end than the
        configured share of it count as cold, and are given in smaller batches.
    :param seconds: a clock that never jumps, for filters that take long.
    """

    def __init__(
        self,
        config: MessageStoreConfig,
        log: WindowLog,
        queues: ConsumeQueueTable,
        damage: ReadDamage,
        memory_bytes: int,
        seconds: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._config = config
        self._log = log
        self._queues = queues
        self.damage = damage
        self.memory_bytes = memory_bytes
        self._seconds = seconds
        self._windows = LogWindows(log)

    def get_message(
        self,
        group: str,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_nums: int,
        message_filter: IMessageFilter | None,
    ) -> GetMessageResult:
        """
        Return the messages from a queue offset on, at most to the end of that consume queue file.

        :param group: not used here; other stores that wrap this one may use it.
        :param message_filter: None for all messages.
        :raises StoreError: the disk refuses.

        Spec: store.md, section 8.1.
        """
        queue = self._queues.get(topic, queue_id)
        low, high = (queue.min_offset, queue.max_offset) if queue else (0, 0)
        if queue is None or high == 0:
            status, next_offset = GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0
        elif queue_offset < low:
            status, next_offset = GetMessageStatus.OFFSET_TOO_SMALL, low
        elif queue_offset == high:
            status, next_offset = GetMessageStatus.OFFSET_OVERFLOW_ONE, queue_offset
        elif queue_offset > high:
            status, next_offset = GetMessageStatus.OFFSET_OVERFLOW_BADLY, high
        else:
            config = self._config
            ratio = config.access_message_in_memory_max_ratio / 100.0
            hot_from = self._log.max_offset - int(self.memory_bytes * ratio)
            hot: _Limits = (
                min(max_nums, config.max_transfer_count_on_message_in_memory),
                config.max_transfer_bytes_on_message_in_memory,
            )
            cold: _Limits = (
                min(max_nums, config.max_transfer_count_on_message_in_disk),
                config.max_transfer_bytes_on_message_in_disk,
            )
            scan = _PullScan(
                (queue, queue_offset, self._log.min_offset),
                (hot_from, hot, cold),
                self._windows,
                self.damage,
                message_filter,
                self._seconds,
            )
            scan.run(max(_MAX_FILTER_SIZE // UNIT_SIZE, max_nums))
            if scan.seen:
                return GetMessageResult(
                    GetMessageStatus.FOUND if scan.messages else scan.status,
                    queue_offset + scan.consumed,
                    low,
                    high,
                    scan.messages,
                    0 <= scan.last_physical < hot_from,
                )
            # The offset is in the queue, but the file with its unit is gone. As in RocketMQ, the
            # consumer goes on with the next file.
            status = GetMessageStatus.OFFSET_FOUND_NULL
            next_offset = min(queue.next_file_offset(queue_offset), high)
        is_slave = self._config.broker_role is BrokerRole.SLAVE
        if is_slave and not self._config.offset_check_in_slave:
            next_offset = queue_offset
        return GetMessageResult(status, next_offset, low, high, [])

    def store_timestamp_at(self, physical_offset: int, size: int) -> int:
        """
        Return the store time of a record, ms; -1 if the log does not have it.

        :param size: size of the record, from the consume queue.
        """
        log = self._log
        if physical_offset < log.min_offset or physical_offset + size > log.max_offset:
            return -1
        return store_timestamp_of(log.read(physical_offset, _RECORD_HEAD)) or -1


class _PullScan:
    """
    One scan along a queue for one pull.

    All records that the pull can take are read before the first one is judged. A unit that leads to
    no record is left out alone, or repaired. Searching the log for its record takes time, so the
    pull ends there.

    :ivar consumed: number of units that the next pull need not read again.
    :ivar seen: whether any unit could be read.
    :ivar last_physical: physical offset of the last unit that was read.
    """

    __slots__ = (
        "_ahead",
        "_checks",
        "_cold",
        "_damage",
        "_filter",
        "_first",
        "_hot",
        "_hot_from",
        "_is_late",
        "_low",
        "_matches",
        "_queue",
        "_seconds",
        "_size",
        "_until",
        "_windows",
        "consumed",
        "last_physical",
        "messages",
        "seen",
        "status",
    )

    def __init__(
        self,
        start: _Start,
        portion: _Portion,
        windows: LogWindows,
        damage: ReadDamage,
        message_filter: IMessageFilter | None,
        seconds: Callable[[], float],
    ) -> None:
        self._queue, self._first, self._low = start
        self._hot_from, self._hot, self._cold = portion
        self._windows = windows
        self._damage = damage
        self._checks = damage.checks_for(self._queue)
        self._filter = message_filter
        self._seconds = seconds
        self._until = 0.0
        self._is_late = False
        self._matches: Callable[[int], bool] | None = None
        self._ahead: dict[int, bytes] = {}
        self._size = 0
        self.messages: list[bytes] = []
        self.status = GetMessageStatus.NO_MATCHED_MESSAGE
        self.consumed = 0
        self.seen = False
        self.last_physical = -1

    def run(self, most: int) -> None:
        """Take units until the pull is full, the file or the time ends, or `most` were read."""
        queue = self._queue
        if self._filter is not None:
            self._until = self._seconds() + _BUDGET_S
            self._matches = unit_matcher(queue, self._filter)
        elif self._take_plain():
            return
        step = self._hot[0] + 8
        while most > self.consumed:
            asked = max(1, min(step, most - self.consumed))
            units = queue.units(self._first + self.consumed, asked)
            if not units:
                return
            self.seen = True
            if self._take(units) or len(units) < asked or self._crosses():
                return
            step = 800  # with a filter few messages match

    def _crosses(self) -> bool:
        """Return whether the last unit that was taken is the last one of its file."""
        offset = self._first + self.consumed
        return self._queue.next_file_offset(offset - 1) == offset

    def _take(self, units: list[_Unit]) -> bool:
        """Take messages from units; return True if the pull is full, or its time is over."""
        matches, checks, messages, ahead = self._matches, self._checks, self.messages, self._ahead
        passes = None if self._filter is None else self._filter.matches_record
        queue_offset = self._first + self.consumed
        ahead.clear()
        for index, (physical_offset, size, tags_code) in enumerate(units):
            most, room = self._hot if physical_offset >= self._hot_from else self._cold
            # The first message goes whatever its size. Else a consumer could never get past a
            # message that is larger than the limit.
            if messages and (len(messages) >= most or self._size + size > room):
                return True
            record: bytes | None = None
            if size == FILLER_SIZE:  # the log or only the queue has lost the message
                record = self._find_record(queue_offset, units[index])
            else:
                self.last_physical = physical_offset
                if matches is not None and not matches(tags_code):
                    self.status = GetMessageStatus.NO_MATCHED_MESSAGE
                else:
                    if index not in ahead:
                        self._read_ahead(units, index)
                    record = ahead.pop(index, b"")
                    if not checks((record,), (physical_offset,), (size,), (queue_offset,)):
                        record = self._find_record(queue_offset, units[index])
            self.consumed += 1
            queue_offset += 1
            if record is not None:
                if passes is None or passes(record):
                    messages.append(record)
                    self._size += len(record)
                else:
                    # Only a refused record asks the clock: accepted records end the pull by its
                    # limits.
                    self._is_late = self._is_late or self._seconds() > self._until
                    self.status = GetMessageStatus.NO_MATCHED_MESSAGE
            if self._is_late:
                return True
        return False

    def _take_plain(self) -> bool:
        """
        Take units in order in one step, up to the limits; return True if the pull has enough.

        It ends at the first unit that is a filler or does not lead to its record.
        """
        first, asked = self._first, max(1, self._hot[0])
        data = self._queue.unit_bytes(first, asked * UNIT_SIZE)
        if not data:
            return False
        self.seen = True
        places, sizes = decode_places(data)
        units_read, low, hot_from = len(places), places[0], self._hot_from
        if low < self._low or min(sizes) <= 0 or sizes[0] > MAX_RECORD_SIZE:
            return False
        if low < hot_from <= places[-1]:
            return False  # some records are in memory and some are not
        most, room = self._hot if low >= hot_from else self._cold
        count = units_read
        if count > most or sum(sizes) > room:
            count = max(1, min(most, bisect_right(list(accumulate(sizes)), room)))
            places, sizes = places[:count], sizes[:count]
        records = self._windows.records(places, sizes)
        good = self._checks(records, places, sizes, range(first, first + len(records)))
        self.consumed = good
        if good:
            self.last_physical = places[good - 1]
        if good == count and (count < units_read or count == most or units_read < asked):
            self.messages = records
            return True
        self.messages = records[:good]
        self._size = sum(sizes[:good])
        return False

    def _find_record(self, queue_offset: int, unit: _Unit) -> bytes | None:
        """
        Return the record of a unit that does not lead to it; None if it has expired or is damaged.
        """
        searches = self._damage.searches
        self._until = self._until or self._seconds() + _BUDGET_S
        record = self._damage.find(self._queue, queue_offset, unit)
        self._is_late = self._damage.searches > searches or self._seconds() > self._until
        if record is None:
            self.status = GetMessageStatus.MESSAGE_WAS_REMOVING
        return record

    def _read_ahead(self, units: list[_Unit], index: int) -> None:
        """
        Read the record of a unit, and those of the units after it that the pull can still take.

        They are read together, because records of one pull mostly lie close together in the log.
        `_ahead` keeps them by their index in `units`. If the unit cannot lead to a record, nothing
        is read, and `_take` searches for the record.
        """
        start, size, _ = units[index]
        if not 0 < size <= MAX_RECORD_SIZE or start < self._low:
            return
        most, room = self._hot if start >= self._hot_from else self._cold
        messages_left = most - len(self.messages) - 1
        bytes_left = room - self._size - size
        end_of_last = start + size
        matches = self._matches
        chosen = [index]
        for later in range(index + 1, len(units)):
            physical_offset, later_size, tags_code = units[later]
            # A damaged unit may point back in the log. `_take` judges it when it comes to it.
            is_behind = physical_offset < end_of_last
            if messages_left <= 0 or is_behind or not 0 < later_size <= bytes_left:
                break
            if matches is None or matches(tags_code):
                end_of_last = physical_offset + later_size
                bytes_left -= later_size
                messages_left -= 1
                chosen.append(later)
        places, sizes, _ = zip(*[units[place] for place in chosen], strict=True)
        self._ahead.update(zip(chosen, self._windows.records(places, sizes), strict=True))


def unit_matcher(queue: ConsumeQueue, message_filter: IMessageFilter) -> Callable[[int], bool]:
    """
    Return a function that applies a filter to a unit's tag code, or to the extension unit at its
    address.
    """
    matches_unit: Callable[[int], bool] = message_filter.matches_unit
    if not queue.is_extended:
        return matches_unit

    def matches(code: int) -> bool:
        if not is_extension_address(code):
            return matches_unit(code)
        unit = queue.extended(code)
        return unit is None or bool(message_filter.matches_extension(*unit))

    return matches
