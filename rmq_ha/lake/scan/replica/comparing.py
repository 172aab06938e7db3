"""
Compares two logs byte by byte, and says which records differ, and where the logs get out of step.

Two logs are in step where equal records have equal physical offsets. A record that only one log has
shifts all later records of that log: from there on the logs are out of step.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from rmq_ha.base.errors import CannotDecide, CorruptRecord
from rmq_ha.base.store_format.commitlog import Record, decode_record
from rmq_ha.lake.scan.replica.aligning import Change, Item, Step, align
from rmq_ha.lake.scan.replica.differing import describe, first_difference
from rmq_ha.lake.scan.replica.logs import ByteOwner, Extent, Log
from rmq_ha.ops.checks.codes import finding
from rmq_ha.ops.checks.found_records import columns_of
from rmq_ha.ops.offsets.findings import Finding

MORE = "MORE_DIFFERENCES"
MOST = 64
"""How many differences of one stretch are reported."""
_MOST_SEEN = 2000
"""After how many differences the comparison of one stretch ends."""
_MOST_RENUMBERED = 3
"""
How many renumbered records of a queue are reported: after one lost message all later ones have
other queue offsets.
"""
_RENUMBERED = "queueOffset differs."
_NEAR = 64
"""
How many records are compared to find out whether the logs are out of step. They are also out of
step if none of this many records in a row is equal: then some records are missing, and other
records of their sizes stand in their places.
"""
_BEFORE = 1 << 20
"""How many bytes before the first difference are read, to recognise a doubled message."""


class Comparison(NamedTuple):
    """
    The result of comparing one stretch.

    :ivar shift: offset of the record from which on the logs are out of step; -1: they are in step.
    :ivar blank: number of meaningless bytes that differ.
    :ivar end: physical offset at which the comparison ended; bytes after it were not compared,
        because of a shift or of too many differences.
    """

    findings: list[Finding]
    shift: int
    blank: int
    end: int


class Sides(NamedTuple):
    """The two logs, their names in findings, and how many bytes are read at once."""

    master: Log
    slave: Log
    master_name: str
    slave_name: str
    window: int


def compare(sides: Sides, low: int, high: int) -> Comparison:
    """
    Compare the bytes of `[low, high)`, which both logs have.

    The comparison goes on behind each record that differs. It ends early if the logs get out of
    step, or after too many differences.

    :raises CannotDecide: a file vanished, or cannot be read.
    """
    findings: list[Finding] = []
    renumbered: Counter[tuple[str | None, int | None]] = Counter()
    row: list[Finding] = []  # findings of adjacent records, up to `row_end`
    blank, seen, at, row_end = 0, 0, low, -1
    # One turn for each window that is equal, or for each place that differs in a window.
    while at < high:
        end = min(high, at + sides.window, sides.master.end_at(at), sides.slave.end_at(at))
        different = first_difference(
            sides.master.read(at, end - at), sides.slave.read(at, end - at)
        )
        if different < 0:
            at = end
            continue
        seen += 1
        if len(findings) >= MOST or seen > _MOST_SEEN:
            return Comparison(findings + row, -1, blank, at)
        place = _place(sides, at + different)
        if place.start != row_end:
            findings, row = findings + row, []
        if place.what is ByteOwner.BLANK:
            blank += place.size
        elif is_shifted(sides, place):
            return Comparison(findings + row, place.start, blank, place.start)
        else:
            difference = _changed_record_finding(sides, place)
            queue = difference.topic, difference.queue_id
            if difference.detail.startswith(_RENUMBERED):
                renumbered[queue] += 1
                if renumbered[queue] <= _MOST_RENUMBERED:
                    findings.append(difference)
            else:
                row.append(difference)
                row_end = place.start + place.size
            if len(row) >= _NEAR:
                start = row[0].physical_offset or 0
                return Comparison(findings, start, blank, start)
        at = place.start + place.size
    return Comparison(findings + row, -1, blank, high)


def _place(sides: Sides, offset: int) -> Extent:
    """Return the extent at an offset: the master's record, or else the slave's."""
    mine, theirs = sides.master.place_of(offset), sides.slave.place_of(offset)
    if mine.what is ByteOwner.BLANK and theirs.what is ByteOwner.BLANK:
        if mine.start == theirs.start and offset >= mine.start + 8:
            return mine
        return Extent(ByteOwner.OTHER, offset, 8)
    if mine.what is ByteOwner.RECORD or theirs.what is not ByteOwner.RECORD:
        return Extent(ByteOwner.OTHER, *mine[1:]) if mine.what is ByteOwner.BLANK else mine
    return theirs


def is_shifted(sides: Sides, place: Extent) -> bool:
    """Return whether the slave has the master's next records in other places."""
    if place.what is ByteOwner.OTHER:
        return False
    start = place.start
    left = list(islice(sides.master.items(start, sides.master.stop), _NEAR))
    right = list(islice(sides.slave.items(start, sides.slave.stop), _NEAR))
    if not left or not right:
        return False
    mine, theirs = left[0], right[0]
    if mine.identity != theirs.identity:
        if theirs.identity in {item.identity for item in left[1:]}:
            return True
        if mine.identity in {item.identity for item in right[1:]}:
            return True
    ends = {item.offset for item in left[1:]} | {left[-1].offset + left[-1].size}
    return not any(item.offset + item.size in ends for item in right)


def _changed_record_finding(sides: Sides, place: Extent) -> Finding:
    """Return the finding for a record that differs, where the logs are in step."""
    mine = _bytes(sides.master, place.start, place.size)
    theirs = _bytes(sides.slave, place.start, place.size)
    return _difference(sides, mine, theirs, place.start, shifted=False)


def _bytes(log: Log, offset: int, size: int) -> bytes:
    return bytes(log.read(offset, size))


def _difference(sides: Sides, mine: bytes, theirs: bytes, offset: int, *, shifted: bool) -> Finding:
    """
    Return the finding for a record that differs. It names the store whose record is the damaged
    one, and the slave if this cannot be told.

    :param shifted: the logs are out of step, so the offsets in the records are not compared.
    """
    difference = describe(mine, theirs, shifted=shifted)
    also = f", and also {', '.join(difference.others)}" if difference.others else ""
    witness = f" ({difference.verdict})" if difference.verdict else ""
    blames_master = difference.verdict.startswith(("the master's", "only the slave"))
    return finding(
        "LOG_DIFFERS",
        f"{difference.field} differs{also}{witness}.",
        broker=sides.master_name if blames_master else sides.slave_name,
        physical_offset=offset,
        expected=f"{difference.field} {difference.expected}",
        actual=f"{difference.field} {difference.actual}",
        **columns_of(_record(mine) or _record(theirs)),
    )


def _record(data: bytes) -> Record | None:
    """Return the record that these bytes begin with; None: it is damaged."""
    try:
        return decode_record(data)
    except CorruptRecord:
        return None


class LogPart(NamedTuple):
    """
    The part between two places from which both logs continue alike.

    :ivar slave: start and end of the same records in the slave's log.
    :ivar shift: physical offset up to which both logs are in step; -1: not known.
    """

    master: tuple[int, int]
    slave: tuple[int, int]
    shift: int
    is_last: bool


class ReportedDifference(NamedTuple):
    """A difference; `identity` is that of a record that only one log has in this part."""

    finding: Finding
    identity: bytes = b""


def align_part(sides: Sides, part: LogPart, most: int) -> list[ReportedDifference]:
    """
    Find the differences in a part: where the logs are in step byte by byte, elsewhere record by
    record.

    :raises CannotDecide: a file vanished, or cannot be read.
    """
    (at, end), (other, other_end), shift, is_last = part
    told: list[ReportedDifference] = []
    while at < end or other < other_end:
        if shift < 0 and at == other:
            rest = compare(sides, at, min(end, other_end))
            told += map(ReportedDifference, rest.findings)
            if rest.shift < 0 and (is_last or end == other_end):
                break
            shift = rest.end
        past: Iterator[Item] = iter(())
        if at == other:
            at = other = max(at, _context_start(sides.master, shift))
        else:
            past = sides.master.items(_context_start(sides.master, at), at)
        room = max(0, most - len(told))
        left, right = sides.master.items(at, end), sides.slave.items(other, other_end)
        result = align(left, right, room, past, is_last=is_last)
        steps = result.steps[:room]
        told += [difference for step in steps for difference in _differences_of(sides, step)]
        if not result.complete or len(steps) < len(result.steps):
            more = finding(MORE, broker=sides.slave_name, physical_offset=result.end)
            told.append(ReportedDifference(more))
        if not result.in_step:
            break
        at, other, shift = result.end, result.end, -1
    return told


def _context_start(log: Log, at: int) -> int:
    """Return where to read from to know the records before `at`: near it, in the same file."""
    return max(at - _BEFORE, log.row[max(0, log.number_at(at))].base)


def _differences_of(sides: Sides, step: Step) -> Iterator[ReportedDifference]:
    """Yield the difference that a step describes; none if the step is about gaps."""
    master, slave = step.master, step.slave
    mine = _read(sides.master, master)
    theirs = _read(sides.slave, slave)
    if step.change is Change.CHANGED and master is not None:
        yield ReportedDifference(_difference(sides, mine, theirs, master.offset, shifted=True))
        return
    record = _record(mine) or _record(theirs)
    if record is None:
        return  # a gap: it is reported with the log itself
    difference = finding(
        step.change.value,
        broker=sides.slave_name,
        physical_offset=master.offset if master is not None else slave and slave.offset,
        expected=f"at offset {master.offset}" if master is not None else "no such message",
        actual=f"at offset {slave.offset}" if slave is not None else "nowhere near",
        **columns_of(record),
    )
    alone = {Change.LOST: master}.get(step.change, None if step.change is Change.MOVED else slave)
    yield ReportedDifference(difference, alone.identity if alone is not None else b"")


def _read(log: Log, item: Item | None) -> bytes:
    """Return the bytes of a record; empty: it is None, or cannot be read."""
    if item is None:
        return b""
    try:
        return _bytes(log, item.offset, item.size)
    except CannotDecide:
        return b""
