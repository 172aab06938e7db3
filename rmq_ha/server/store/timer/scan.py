"""Finds the waiting timer messages of a log at a start, and after the log was cut."""

from collections.abc import Callable, Iterator

from twisted.logger import Logger

from rmq_ha.base.errors import CorruptRecord
from rmq_ha.base.model.topics import TIMER_PROGRESS_TOPIC
from rmq_ha.base.store_format.commitlog import decode_record
from rmq_ha.server.store.log.tail import Tail
from rmq_ha.server.store.timer.frontier import NO_FRONTIER, Frontier, decode_frontier
from rmq_ha.server.store.timer.table import TimerLog, TimerTable

_UNITS = 8192
_SLICES = 4
_FRONTIERS = 16
"""Most frontiers that are tried, the last one first, if their records are damaged."""

_log = Logger()


def last_frontier(log: TimerLog) -> Frontier:
    """
    Return the last frontier in the log; `NO_FRONTIER` without a readable one.

    :raises StoreError: the disk refuses.
    """
    queue = log.queues.get(TIMER_PROGRESS_TOPIC, 0)
    if queue is None:
        return NO_FRONTIER
    last = queue.max_offset - 1
    for number in range(last, max(queue.min_offset, last - _FRONTIERS) - 1, -1):
        unit = queue.unit(number)
        data = None if unit is None else log.record_at(unit[0], unit[1])
        if unit is None or data is None:
            continue
        try:
            record = decode_record(data)
            if record.topic == TIMER_PROGRESS_TOPIC:
                return decode_frontier(record.body, unit[0])
        except CorruptRecord as error:
            _log.warn("{error}; the one before it counts", error=error)
    return NO_FRONTIER


def scan(
    log: TimerLog, tail: Tail, dispatched: Callable[[], int], done: Callable[[TimerTable], object]
) -> Iterator[None]:
    """
    Make the table of waiting messages of a log in slices. Records may be dispatched meanwhile.

    First all units of the timer topic are read. Then the log is read from the last frontier on,
    for deliveries that the frontier does not cover. Without a frontier it is read from the file
    of the first waiting message on, because a record certainly begins at the start of a file.

    :param tail: the tail of the log.
    :param dispatched: returns the physical offset up to which records are dispatched.
    :param done: called with the table in the last slice, when it has all that is dispatched.
    :raises StoreError: the disk refuses.
    """
    frontier = last_frontier(log)
    table = TimerTable(log, frontier)
    position = -1
    while True:
        while not table.is_level:
            table.take_units(_UNITS)
            yield
        # Only with all units taken is it known which messages a delivery may be of.
        if position < 0:
            position = _begin(log, table)
        for _ in range(_SLICES):
            end = dispatched()
            if position >= end or not table.waiting.count:
                position = max(position, end)
                break
            run = tail.next_slice(position, False)
            if run is None:
                position = end
                break
            rows = run.rows
            if rows:
                table.take_deliveries([row for row in rows if row[2] < end])
            position = min(run.end, end)
        if position >= dispatched() and table.is_level:
            done(table)
            return
        yield


def _begin(log: TimerLog, table: TimerTable) -> int:
    """
    Return the physical offset from which on the log has to be searched for deliveries.

    The frontier covers all deliveries before its own record, so none is between its end and it.
    """
    frontier = table.waiting.frontier
    if frontier is not NO_FRONTIER:
        return max(frontier.end, log.file_start(frontier.place))
    queue = log.queue
    first = min((number for _, number in table.waiting), default=None)
    unit = None if queue is None or first is None else queue.unit(first)
    return 0 if unit is None else log.file_start(unit[0])
