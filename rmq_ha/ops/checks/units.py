"""
Compares the units of a queue with the units that the records of the log require.

A unit, also called entry, is an item of a queue. Every record says which queue and queue offset it
has, so its unit is looked up and compared. If every record of a queue has its unit, and there are
no more units than records, no unit is wrong. The records behind the units are read only if the
numbers differ.

The callers make the units that records require: `verify` with `rmq_ha.base.runs`, and
`rmq_ha.lake.scan.replica` with numpy.

Spec: store.md, sections 3.1 to 3.3, 3.6 and 6.2.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rmq_ha.base.store_format.consumequeue import (
    FILLER_SIZE,
    UNIT,
    UNIT_SIZE,
    is_extension_address,
)
from rmq_ha.ops.checks.codes import finding
from rmq_ha.ops.checks.found_records import columns_of, is_in_hole, record_at
from rmq_ha.ops.checks.sums import DelaySum
from rmq_ha.ops.offline.directory import StoreFiles
from rmq_ha.ops.offline.queues import OfflineQueue
from rmq_ha.ops.offsets.findings import Finding
from rmq_ha.ops.offsets.log_sample import is_in_several

MOST_FINDINGS = 10
"""Most findings of one kind that are reported for one queue."""
_CHUNK = 1 << 16
_AHEAD = 1 << 12
_BEYOND = 1 << 62

Unit = tuple[int, int, int, int]
"""Queue offset of a unit, physical offset and size of its record, and hash of the tags."""


def written_units(queue: OfflineQueue) -> Iterator[Unit]:
    """Yield the units of a queue that are written, without fillers."""
    start, stop = queue.bounds
    for at in range(start, stop, _CHUNK):
        data = queue.data(at, min(at + _CHUNK, stop)).rstrip(b"\0")  # most of a new file is zeros
        data = data.ljust(-(-len(data) // UNIT_SIZE) * UNIT_SIZE, b"\0")
        for number, (place, size, code) in enumerate(UNIT.iter_unpack(data), at):
            if size > 0 and size != FILLER_SIZE:
                yield number, place, size, code


class QueueScan(NamedTuple):
    """
    A summary of the entries of a queue, without a look at the records.

    :ivar entries: number of entries that point into the part of the log.
    :ivar end: physical offset behind the last record that the queue has an entry for.
    :ivar last: queue offset of that record.
    :ivar first: queue offset of the first entry that points into the part; -1 if none does.
    """

    entries: int
    end: int
    last: int
    first: int
    findings: tuple[Finding, ...] = ()


NO_SCAN = QueueScan(0, -1, -1, -1)


def scan_queue(queue: OfflineQueue, low: int, high: int, side: str) -> QueueScan:
    """Read all entries of a queue; those that point outside of [low, high) are not counted."""
    entries, end, last, previous, first = 0, -1, -1, -1, -1
    findings: list[Finding] = []
    for number, place, size, _ in written_units(queue):
        if low <= place and place + size <= high:
            entries += 1
            if first < 0:
                first = number
        # A unit that leads behind the end of the log is damaged if the queue goes on.
        if place + size > end or end > high >= place + size:
            end, last = place + size, number
        if place <= previous and len(findings) < MOST_FINDINGS:
            findings.append(
                _finding(
                    "CQ_ORDER",
                    queue,
                    side,
                    (number, place),
                    f"an offset above {previous}",
                    f"offset {place}",
                )
            )
        previous = place
    return QueueScan(entries, end, last, first, tuple(findings))


def scan_queues(
    store: StoreFiles, names: Sequence[tuple[str, int]], low: int, high: int, side: str
) -> Iterator[tuple[tuple[str, int], QueueScan]]:
    """Yield what all entries and the files of some queues are; see `scan_queue`."""
    queues = {key: store.queue(*key) for key in names}
    sizes = Counter(file.size for queue in queues.values() for file in queue.row)
    usual = max(sizes, key=sizes.__getitem__, default=0)
    for key, queue in queues.items():
        scan = scan_queue(queue, low, high, side)
        yield key, scan._replace(findings=(*check_files(queue, usual, side), *scan.findings))


def check_files(queue: OfflineQueue, usual: int, side: str) -> Iterator[Finding]:
    """Yield findings for missing files, and a last file without the `usual` number of bytes."""
    odd = [
        f"{file.path} has {file.size} bytes, those of other queues {usual}"
        for file in queue.row[-1:]
        if file.size != usual
    ]
    for fault in (*queue.faults, *odd):
        yield finding(
            "CQ_FILE", f"{fault}.", broker=side, topic=queue.topic, queue_id=queue.queue_id
        )


class UnitCheck:
    """
    Looks up the units of records of one queue, in the order of the log.

    :param dispatched: physical offset up to which the store's queues were certainly built.
    :ivar wrong: number of records whose entry points to another place.
    :ivar missing: number of records without an entry, although the queues were built beyond them.
    :ivar pending: number of records without an entry, because the queues were not built that far.
    :ivar old: number of records that are older than the queue's first entry.
    """

    def __init__(self, store: StoreFiles, queue: OfflineQueue, dispatched: int, side: str) -> None:
        self.matched = self.wrong = self.missing = self.pending = self.old = 0
        self._store = store
        self._queue = queue
        self._dispatched = dispatched
        self._side = side
        self._faults: dict[str, list[_FaultRun]] = {}
        self._delays: dict[tuple[int, int], DelaySum] = {}
        self._first: Unit | None = None
        self._ahead = 0, b""

    @property
    def counts(self) -> tuple[int, int, int, int, int]:
        return self.matched, self.wrong, self.missing, self.pending, self.old

    @property
    def delays(self) -> list[DelaySum]:
        return list(self._delays.values())

    @property
    def findings(self) -> list[Finding]:
        """The findings, one for each run of adjacent entries with the same kind of fault."""
        return [run.finding for runs in self._faults.values() for run in runs]

    def look(self, number: int, expected: bytes) -> None:
        """Compare entries from the queue offset `number` on with the units that records require."""
        count = len(expected) // UNIT_SIZE
        data = self._queue.data(number, number + count)
        if data == expected:
            self.matched += count
            return
        pairs = zip(UNIT.iter_unpack(expected), UNIT.iter_unpack(data), strict=True)
        for at, (required, stored_unit) in enumerate(pairs, number):
            self._compare((at, *required), stored_unit, required[2])

    def look_one(self, unit: Unit, other_code: int) -> None:
        """
        Compare one entry.

        :param other_code: another value that its last number may have. Where Java built the queue
            of the timer topic, the number is the hash of the tags and no due time.
        """
        self._compare(unit, self._unit_at(unit[0]), other_code)

    def look_delayed(self, unit: Unit, level: int, stored: int) -> None:
        """
        Compare the entry of a delayed message, and count it with its delay.

        :param unit: the unit that the record requires; its last number does not count.
        :param stored: when the message was stored, in ms.
        """
        number, place, _, _ = unit
        code = self._look_up(unit, self._unit_at(number))
        if code is None:
            return
        key = level, code - stored
        known = self._delays.get(key)
        if known is None:
            queue_id = self._queue.queue_id
            self._delays[key] = DelaySum(self._side, *key, 1, place, place, queue_id, number)
        else:
            self._delays[key] = known._replace(messages=known.messages + 1, last=place)

    def _unit_at(self, number: int) -> tuple[int, int, int]:
        """Return one unit; the units behind it are read with it, for the next calls."""
        begin, data = self._ahead
        at = (number - begin) * UNIT_SIZE
        if not 0 <= at < len(data):
            stop = max(number + 1, min(number + _AHEAD, self._queue.bounds[1]))
            data = self._queue.data(number, stop)
            self._ahead, at = (number, data), 0
        unit: tuple[int, int, int] = UNIT.unpack_from(data, at)
        return unit

    def _compare(self, required: Unit, stored_unit: tuple[int, int, int], other_code: int) -> None:
        code = self._look_up(required, stored_unit)
        if code not in (None, required[3], other_code) and not is_extension_address(code):
            self._note("CQ_TAGS", required, f"tagsCode {required[3]}", f"tagsCode {code}")

    def _look_up(self, required: Unit, stored_unit: tuple[int, int, int]) -> int | None:
        """
        Find the entry of a record, and count the record.

        :returns: the last number of the entry, usually the hash of the tags; None if there is no
            entry for the record.
        """
        number, place, size, _ = required
        is_written = stored_unit[1] > 0 and stored_unit[1] != FILLER_SIZE
        if is_written and stored_unit[0] == place:
            self.matched += 1
            if stored_unit[1] != size:
                self._note("CQ_SIZE", required, f"size {size}", f"size {stored_unit[1]}")
            return self._queue.tags_code(stored_unit[2])
        self._first = self._first or next(written_units(self._queue), (-1, _BEYOND, 0, 0))
        first, begin = self._first[:2]
        # An entry that was erased at the queue's start did exist; one that the queue never had left
        # no trace.
        low, high = self._queue.bounds
        is_wiped = low <= number < min(high, first) and not stored_unit[1]
        if place < begin and not is_wiped:
            self.old += 1
        elif is_written:
            self.wrong += 1
            self._note("CQ_OFFSET", required, f"offset {place}", f"offset {stored_unit[0]}")
        elif place >= self._dispatched:
            self.pending += 1
        else:
            self.missing += 1
            self._note("CQ_MISSING", required, f"offset {place}", "no entry")
        return None

    def _note(self, code: str, unit: tuple[int, ...], expected: str, actual: str) -> None:
        number, place = unit[:2]
        runs = self._faults.setdefault(code, [])
        if runs and runs[-1].first + runs[-1].count == number:
            runs[-1].count += 1
        elif len(runs) < MOST_FINDINGS:
            fault = _finding(code, self._queue, self._side, (number, place), expected, actual)
            message = columns_of(record_at(self._store, place)).get("msg_id")
            runs.append(_FaultRun(number, fault._replace(msg_id=message)))


class _FaultRun:
    """Adjacent entries with the same fault, from the queue offset `first` on."""

    def __init__(self, first: int, fault: Finding) -> None:
        self.first = first
        self.count = 1
        self._fault = fault

    @property
    def finding(self) -> Finding:
        """One finding for all of them: that of the first entry."""
        more = f", as are the {self.count - 1} behind it in the queue" if self.count > 1 else ""
        detail = f"Entry {self.first} is wrong{more}. {self._fault.detail}"
        return self._fault._replace(detail=detail)


def _finding(
    code: str,
    queue: OfflineQueue,
    side: str,
    place: tuple[int, int],
    expected: str,
    actual: str,
) -> Finding:
    return finding(
        code,
        broker=side,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=place[0],
        physical_offset=place[1],
        expected=expected,
        actual=actual,
    )


def dangling_units(
    store: StoreFiles, queue: OfflineQueue, stop: int, side: str
) -> Iterator[Finding]:
    """
    Yield findings for entries that do not point to a record of this queue.

    :param stop: end of the log; entries that point beyond it are ignored.
    """
    before, count = -2, 0
    for number, place, size, _ in written_units(queue):
        if place + size > stop or is_in_hole(store, place, size):
            continue
        record = record_at(store, place, size)
        actual = "no message of it"
        if record is not None and (record.topic, record.queue_id) == (queue.topic, queue.queue_id):
            actual = f"message {record.queue_offset} of it"
            if record.queue_offset == number:
                continue
        elif record is not None and is_in_several(record, queue.topic):
            continue
        follows, before = before == number - 1, number
        if follows:
            continue
        count += 1
        if count > MOST_FINDINGS:
            return
        expected = f"message {number} of the queue"
        fault = _finding("CQ_DANGLING", queue, side, (number, place), expected, actual)
        yield fault._replace(detail=f"Perhaps also some behind it. {fault.detail}")
