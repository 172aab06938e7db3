"""Finds from where on two logs have nothing in common: written separately, or unrelated."""

from datetime import UTC, datetime
from typing import NamedTuple

from rmq_ha.lake.scan.log.records import Records
from rmq_ha.lake.scan.reducing import known_times
from rmq_ha.lake.scan.replica.aligning import identity_of
from rmq_ha.lake.scan.replica.comparing import Sides
from rmq_ha.lake.scan.replica.logs import Log
from rmq_ha.ops.checks.codes import finding
from rmq_ha.ops.offsets.findings import Finding

_WINDOW = 1 << 20
_MOST = 64 << 20
"""How many bytes after the parting are read; messages after these bytes are not counted."""
_LEAST = 3
"""
How many messages each side must have after the parting. Fewer differing messages may be damaged
records.
"""


class Parting(NamedTuple):
    """
    The place from which on the logs have nothing in common.

    :ivar stored: when the master's first record there was stored, in ms.
    :ivar messages: how many messages master and slave have from there to where both end.
    :ivar hosts: hosts that stored the first of them.
    :ivar is_all: whether the logs have nothing in common before the parting either.
    """

    offset: int
    stored: int
    messages: tuple[int, int]
    hosts: tuple[str, str]
    is_all: bool


class _SideRecords(NamedTuple):
    """
    The records of one side.

    :ivar is_sound: whether there are only records, without gaps, and each fits its CRC.
    """

    at: dict[int, bytes]
    pieces: list[Records]
    is_sound: bool


def parting(sides: Sides, low: int, high: int) -> Parting | None:
    """
    Find the parting; None: the logs end alike, are damaged, or are out of step.

    :raises CannotDecide: a file vanished, or cannot be read.
    """
    left, right = low, max(low, high - _WINDOW)
    equal = _last_equal(sides, right, high)
    if equal is None:
        while right - left > _WINDOW:
            middle = (left + right) // 2
            is_equal = _last_equal(sides, middle, middle + _WINDOW) is not None
            left, right = (middle, right) if is_equal else (left, middle)
        equal = _last_equal(sides, left, right + _WINDOW)
    start = low if equal is None else equal
    master, slave = (
        _records_between(log, start, min(high, start + _MOST))
        for log in (sides.master, sides.slave)
    )
    if not (master.is_sound and slave.is_sound) or min(len(master.at), len(slave.at)) < _LEAST:
        return None
    if _contents(master) & _contents(slave):
        return None
    first, other = master.pieces[0], slave.pieces[0]
    return Parting(
        min(master.at),
        int(first.store_timestamp[0]),
        (len(master.at), len(slave.at)),
        (first.store_host[0].as_py(), other.store_host[0].as_py()),
        equal is None,
    )


def _last_equal(sides: Sides, low: int, high: int) -> int | None:
    """Return the end of the last record that both logs have between these offsets, or None."""
    master, slave = (
        _records_between(sides.master, low, high),
        _records_between(sides.slave, low, high),
    )
    ends = [at + len(data) for at, data in master.at.items() if slave.at.get(at) == data]
    return max(ends, default=None)


def _records_between(log: Log, low: int, high: int) -> _SideRecords:
    """Return the whole records that lie in `[low, high)`."""
    at: dict[int, bytes] = {}
    pieces: list[Records] = []
    is_sound = True
    for piece in log.pieces(low, high):
        if not isinstance(piece, Records):
            is_sound = False
            continue
        view = memoryview(piece.buffer)
        for position, size in zip(piece.positions.tolist(), piece.sizes.tolist(), strict=True):
            if piece.base + position + size <= high:
                at[piece.base + position] = bytes(view[position : position + size])
        if len(piece):
            pieces.append(piece)
            is_sound = is_sound and bool(piece.crc_ok().all())
    return _SideRecords(at, pieces, is_sound)


def _contents(seen: _SideRecords) -> set[bytes]:
    """Return the identities of the records, which do not depend on their offsets."""
    return {identity_of(data) for data in seen.at.values()}


def parting_finding(parted: Parting, slave: str) -> Finding:
    """Return the parting as a finding, whose first sentence says what happened."""
    of_master, of_slave = parted.messages
    at = datetime.fromtimestamp(float(known_times(parted.stored)) / 1000, UTC)
    stored = at.isoformat(sep=" ", timespec="seconds")
    count = (
        f"{of_master} messages on each side"
        if of_master == of_slave
        else f"{of_master} and {of_slave} messages"
    )
    mine, theirs = parted.hosts
    if parted.is_all and mine != theirs:
        code = "NOT_ITS_SLAVE"
        note = (
            f"not its slave: stored by {theirs}, the master's by {mine}, and no message is the same"
        )
    else:
        code = "DIVERGED"
        note = f"diverged from offset {parted.offset} ({stored}) to the end, {count}"
    return finding(
        code,
        f"{note}.",
        broker=slave,
        physical_offset=parted.offset,
        expected=f"{of_master} messages stored by {mine}",
        actual=f"{of_slave} stored by {theirs}",
    )
