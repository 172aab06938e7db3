"""Reading a commit log record by record, in large steps.

Spec: store.md, sections 5.4 and 6.3.
"""

import sys
from typing import NamedTuple

from rmq_ha.model.message import DispatchRequest
from rmq_ha.store.format.commitlog import (
    BLANK_SIZE,
    UNREADABLE,
    dispatch_request_at,
    record_size_at,
)
from rmq_ha.store.run import work_of

READ_SIZE = 1 << 20
MAX_RECORD_SIZE = 64 << 20
"""A record that claims more is damage; remoting frames end at 16 MiB."""

IDENTITY_SIZE = 36
"""So much of a record tells its size, and whether it belongs to its place in the log."""

MORE = -2


class Scan(NamedTuple):
    """
    What a stretch of the log holds.

    :ivar requests: the records, in order.
    :ivar size: bytes of these records.
    :ivar verdict: what stands behind them: `MORE` (look again from there), `BLANK`, `UNREADABLE`,
        or the size of a record whose parts do not add up.
    :ivar needed: with `MORE`: bytes that the next look has to see to get any further.
    """

    requests: list[DispatchRequest]
    size: int
    verdict: int
    needed: int = 0


def scan(
    data: bytes,
    physical_offset: int,
    delay_levels: list[int],
    max_count: int,
    check_crc: bool = False,
    max_work: int = sys.maxsize,
) -> Scan:
    """
    Read records from the start of `data`.

    :param data: bytes of one file, cut off anywhere.
    :param physical_offset: where `data` begins; a record that says otherwise is unreadable.
    :param max_work: ends behind the record with which all of them reach it; see `work_of`.
    """
    requests: list[DispatchRequest] = []
    position = work = 0
    limit = len(data)
    while len(requests) < max_count and work < max_work:
        found = dispatch_request_at(data, position, limit, delay_levels, check_crc)
        if isinstance(found, int):
            if found != UNREADABLE:
                return Scan(requests, position, found)
            size = record_size_at(data, position, limit)
            if position + size > limit and size <= MAX_RECORD_SIZE:
                if limit - position >= IDENTITY_SIZE and not _belongs(
                    data, position, physical_offset
                ):
                    return Scan(requests, position, UNREADABLE)
                return Scan(requests, position, MORE, size)
            if limit - position < BLANK_SIZE:
                return Scan(requests, position, MORE, BLANK_SIZE)
            return Scan(requests, position, UNREADABLE)
        if found.physical_offset != physical_offset + position:
            return Scan(requests, position, UNREADABLE)
        requests.append(found)
        position += found.size
        work += work_of(found)
    return Scan(requests, position, MORE)


def _belongs(data: bytes, position: int, physical_offset: int) -> bool:
    """The record at `position` says that it is where it is; see `IDENTITY_SIZE`."""
    said = int.from_bytes(data[position + 28 : position + IDENTITY_SIZE], "big")
    return said == physical_offset + position
