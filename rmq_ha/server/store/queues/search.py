"""Searches a unit in a consume queue: by store time, by physical offset, or the last one.

Positions are bytes in the queue; `unit` returns the physical offset, size and tag code of the unit
at a position.

Spec: store.md, sections 3.4, 3.5 and 3.9.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rmq_ha.base.store_format.consumequeue import (
    FILLER_SIZE,
    UNIT,
    UNIT_SIZE,
    count_valid,
    is_torn_filler,
)

WALK_SIZE = 800 * UNIT_SIZE
_UNREADABLE_IN_A_ROW = 16
"""After so many records whose store time cannot be read, a search treats them as new."""

UnitAt = Callable[[int], tuple[int, int, int]]
BehindFillers = Callable[[int, int], int]
"""
Takes two positions. Returns the position of the first unit from the first position on that is no
filler; the second position if all units before it are fillers.
"""
StoreTimeOf = Callable[[int, int], int]
"""
Takes physical offset and size of a record. Returns its store time, ms; negative if it is gone.
"""


class Bounds(NamedTuple):
    """
    The positions of a queue's units.

    :ivar starts: positions of its files, ascending; at least one.
    :ivar first: position of the first unit that may be read.
    :ivar end: position after the last unit.
    """

    starts: Sequence[int]
    file_size: int
    first: int
    end: int


def nearest_in_time(
    bounds: Bounds,
    unit: UnitAt,
    behind_fillers: BehindFillers,
    ms: int,
    store_time_of: StoreTimeOf,
    min_physical_offset: int,
) -> int:
    """
    Return the position of the message whose store time is nearest to a time, as RocketMQ 4.9 does.

    If several messages have the same time, it may be any of them, so that a reader which begins
    there misses some.

    :param store_time_of: returns a record's store time by physical offset and size; negative if the
        record is gone.
    :param min_physical_offset: physical offset where the CommitLog begins.
    """
    start = _file_by_time(bounds, unit, ms, store_time_of)
    low = max(start, bounds.first)
    high = min(start + bounds.file_size, bounds.end) - UNIT_SIZE
    before, before_time, after, after_time = start, -1, -1, -1
    while low <= high:
        middle = _middle(low, high)
        at = behind_fillers(middle, high + UNIT_SIZE)
        # Only fillers follow from `middle` on, so the search goes on below it.
        if at > high:
            high = middle - UNIT_SIZE
            continue
        physical_offset, size, _ = unit(at)
        if physical_offset < min_physical_offset:
            low = at + UNIT_SIZE
            before = at
            continue
        time = store_time_of(physical_offset, size)
        # As in RocketMQ, a single record that cannot be read ends the search at queue offset 0.
        if time < 0:
            return 0
        if time == ms:
            return at
        if time > ms:
            high = middle - UNIT_SIZE
            after, after_time = at, time
        else:
            low = at + UNIT_SIZE
            before, before_time = at, time
    if after >= 0 and (before_time < 0 or ms - before_time > after_time - ms):
        return after
    return before


def _file_by_time(bounds: Bounds, unit: UnitAt, ms: int, store_time_of: StoreTimeOf) -> int:
    """
    Return the start of the first file whose last message is not older than `ms`, or of the last
    file.
    """
    low, high = 0, len(bounds.starts) - 1
    while low < high:
        middle = (low + high) // 2
        physical_offset, size, _ = unit(bounds.starts[middle] + bounds.file_size - UNIT_SIZE)
        if size != FILLER_SIZE and store_time_of(physical_offset, size) >= ms:
            high = middle
        else:
            low = middle + 1
    return bounds.starts[low]


def first_since(
    bounds: Bounds,
    unit: UnitAt,
    behind_fillers: BehindFillers,
    ms: int,
    store_time_of: StoreTimeOf,
    min_physical_offset: int,
) -> int:
    """
    Return the position of the first message that was stored at a time or later; the end if there is
    none.

    :param store_time_of: see `nearest_in_time`.
    :param min_physical_offset: physical offset where the CommitLog begins.
    """

    def is_older(at: int, limit: int) -> bool:
        """
        Return whether a message is older than `ms`.

        If its record cannot be read, the next ones decide; if none can be read, it counts as new,
        so that no message is missed.
        """
        for _ in range(_UNREADABLE_IN_A_ROW):
            physical_offset, size, _ = unit(at)
            if physical_offset < min_physical_offset:
                return True
            time = store_time_of(physical_offset, size)
            at = behind_fillers(at + UNIT_SIZE, limit) if time < 0 else at
            if time >= 0 or at >= limit:
                return 0 <= time < ms
        return False

    def span(number: int) -> tuple[int, int]:
        """
        Return the position of a file's first message and the end of its units; twice the end if it
        has no message.
        """
        start = bounds.starts[number]
        limit = min(start + bounds.file_size, bounds.end)
        low = max(start, bounds.first)
        return (behind_fillers(low, limit) if low < limit else limit), limit

    def first_in(number: int) -> int:
        low, limit = span(number)
        return _first_that_is_not(lambda at: is_older(at, limit), behind_fillers, low, limit)

    def has_some(number: int) -> bool:
        _, limit = span(number)
        last = limit - UNIT_SIZE
        if unit(last)[1] != FILLER_SIZE:
            return not is_older(last, limit)
        return first_in(number) < limit

    # Search the files first, by the last message of each: a queue of many files costs few records
    # that way. Only the file that is found is searched by its units.
    left, right = 0, len(bounds.starts)
    while left < right:
        middle = number = (left + right) // 2
        while number > left and span(number)[0] == span(number)[1]:  # this file holds only fillers
            number -= 1
        low, limit = span(number)
        if low < limit and has_some(number):
            right = number
        else:
            left = middle + 1
    return first_in(left) if left < len(bounds.starts) else bounds.end


def first_from(
    unit: UnitAt, behind_fillers: BehindFillers, low: int, high: int, physical_offset: int
) -> int:
    """
    Return the position of the first message at or after a physical offset; `high` if there is none.
    """

    def is_before(at: int) -> bool:
        offset, size, _ = unit(at)
        # A hole, which lost power may leave, counts as after all records that are surely there.
        return offset < physical_offset and size > 0

    return _first_that_is_not(is_before, behind_fillers, low, high)


def _first_that_is_not(
    is_before: Callable[[int], bool], behind_fillers: BehindFillers, low: int, high: int
) -> int:
    """
    Return the first position in a file whose message is not before the place that is searched for.

    Fillers replace the units before a queue that began late, and units of damaged records. The
    message after a filler decides for it.
    """
    end = high
    while low < high:
        middle = _middle(low, high)
        at = behind_fillers(middle, high)
        if at < high and is_before(at):
            low = at + UNIT_SIZE
        else:
            high = middle
    return behind_fillers(low, end)


def valid_part(read: Callable[[int, int], bytes], file_size: int) -> tuple[int, int]:
    """
    Return how many bytes of a file are valid units, and the physical offset after the last record;
    -1 if there is no record.

    :param read: returns so many bytes of the file; the second parameter is their position.
    """
    position, reached = 0, -1
    while position < file_size:
        data = read(WALK_SIZE, position)
        valid = count_valid(data) * UNIT_SIZE
        for at in range(valid - UNIT_SIZE, -1, -UNIT_SIZE):
            physical_offset, size, _ = UNIT.unpack_from(data, at)
            if at == valid - UNIT_SIZE and is_torn_filler(size):
                valid = at
            elif size != FILLER_SIZE:
                reached = physical_offset + size
                break
        position += valid
        if not valid or valid < len(data):
            break
    return position, reached


def _middle(low: int, high: int) -> int:
    return (low + high) // (2 * UNIT_SIZE) * UNIT_SIZE
