"""Finds the whole records in a stretch of the log, whatever bytes lie between them.

Spec: store.md, sections 2.1 and 5.6.
"""

from collections.abc import Callable, Iterator

from rmq_ha.base.runs.face import Rows
from rmq_ha.base.runs.log_walk import MORE, READ_SIZE, walk
from rmq_ha.base.store_format.commitlog import MESSAGE_MAGIC

_BATCH = 1024
_MAGIC = MESSAGE_MAGIC.to_bytes(4, "big")
_MAGIC_AT = 4
_PLACE_AT = 28
_HEAD = 36
"""Bytes at the start of a record up to the end of its physical offset."""

Read = Callable[[int, int], bytes]
"""Returns bytes of one file; the parameters are their number, and the physical offset of the
first."""


def whole_records(
    read: Read,
    begin: int,
    end: int,
    delay_levels: list[int],
    *,
    check_crc: bool = True,
    next_data: Callable[[int], int] = lambda position: position,
) -> Iterator[Rows]:
    """
    Yield every record with the right magic, size and physical offset, in order and in batches.

    :param begin: physical offset where the search begins; no record need begin there.
    :param end: physical offset where the search ends, at most the end of the same file.
    :param check_crc: leave out records whose body is damaged.
    :param next_data: takes a physical offset, and returns the first offset from there on whose byte
        may not be zero. So zeros need not be read: the rest of a new file is a gibibyte of them.
    """
    position, needed = begin, READ_SIZE
    while position < end:
        data = read(min(needed, end - position), position)
        if not data:
            return
        walked = walk(data, position, delay_levels, _BATCH, check_crc)
        if walked.run.rows:
            yield walked.run.rows
        position += walked.size
        needed = max(READ_SIZE, walked.needed)
        if walked.verdict == MORE and (walked.size or len(data) < walked.needed <= end - position):
            continue
        needed = READ_SIZE
        position = _next_candidate(read, position + 1, end, next_data)


def _next_candidate(read: Read, position: int, end: int, next_data: Callable[[int], int]) -> int:
    """
    Return where the next record may start that names its own physical offset; `end` if there is
    none.

    A record begins with its size, whose first bytes may be zeros. So it may start some bytes before
    the place that `next_data` returns.
    """
    while (position := max(position, next_data(position) - _MAGIC_AT)) + _HEAD <= end:
        data = read(min(READ_SIZE, end - position), position)
        if len(data) < _HEAD:
            break
        at = data.find(_MAGIC, _MAGIC_AT)
        while at >= 0 and at - _MAGIC_AT + _HEAD <= len(data):
            start = at - _MAGIC_AT
            place = data[start + _PLACE_AT : start + _HEAD]
            if int.from_bytes(place, "big") == position + start:
                return position + start
            at = data.find(_MAGIC, at + 1)
        position += len(data) - _HEAD + 1
    return end
