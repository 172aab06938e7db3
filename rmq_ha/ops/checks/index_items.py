"""
Compares index files with the log: each key of each record must be found, and nothing else.

The files of two stores are never compared with each other: each broker begins a new file when its
own is full, and a file's name is the time at which that happened.

Spec: store.md, section 4.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from operator import sub
from struct import Struct
from typing import NamedTuple

from rmq_ha.base.runs.face import Rows
from rmq_ha.base.store_format.index import HEADER_SIZE, ITEM, ITEM_SIZE, SLOT_SIZE
from rmq_ha.ops.checks.codes import finding
from rmq_ha.ops.checks.found_records import columns_of, record_at
from rmq_ha.ops.offline.directory import StoreFiles
from rmq_ha.ops.offline.index_files import OfflineIndexFile
from rmq_ha.ops.offsets.findings import Finding

MOST_FINDINGS = 20
"""Most findings of one kind that are reported for one stretch of the log, or for one file."""
_CHUNK = 1 << 16
_STEP = 1 << 13
_PLACE_BYTES = 12
ORIGIN_MS = 1000
"""
The times of required items count from one second after 1970, because a file that begins in 1970
does not tell its time.
"""
_EARLY, _LATE = -2, 1
"""Bounds in seconds of the difference that the time of an item may have from that of its record."""
_FIRST_ITEM = HEADER_SIZE + SLOT_SIZE + 2 * ITEM_SIZE


class Counts(NamedTuple):
    """
    Numbers of keys in one stretch of the log.

    :ivar before: keys that the index lacks, because their records are before its first file.
    :ivar pending: keys that the index lacks, because their records are behind its last item.
    """

    keys: int
    before: int
    pending: int


class Index:
    """All index files of a store, in the order of the log."""

    def __init__(self, files: Sequence[OfflineIndexFile]) -> None:
        filled = [file for file in files if file.count]
        self.files = sorted(filled, key=lambda file: file.header.begin_physical_offset)
        self.spans = [
            (file.header.begin_physical_offset, file.header.end_physical_offset)
            for file in self.files
        ]
        self._rows: dict[tuple[int, int], int] = {}

    def stretch(self, low: int, high: int) -> list[tuple[OfflineIndexFile, int, bytes]]:
        """Return by file the items that point into `[low, high)`: file, first row, and bytes."""
        parts = []
        known, self._rows = self._rows, {}
        for number, (file, span) in enumerate(zip(self.files, self.spans, strict=True)):
            if span[0] < high and span[1] >= low:
                start = known.get((number, low))  # where the stretch before it ended
                if start is None:
                    start = _row_of(file, low, 0)
                stop = self._rows[number, high] = _row_of(file, high, start)
                if start < stop:
                    parts.append((file, start, file.item_data(start, stop)))
        return parts

    def covers(self, place: int) -> bool:
        """Return whether a record lies between the first and the last record of an index file."""
        return any(begin <= place <= end for begin, end in self.spans)


def _row_of(file: OfflineIndexFile, offset: int, start: int) -> int:
    """
    Return the first row from `start` on whose record is at or after a physical offset.

    The rows are in the order of the log, so the search doubles its step and then halves it.
    """
    low, step = start, _STEP
    while low + step < file.count and file.place_of(low + step) < offset:
        low, step = low + step, 2 * step
    high = min(low + step, file.count)
    while low < high:
        middle = (low + high) // 2
        if file.place_of(middle) < offset:
            low = middle + 1
        else:
            high = middle
    return low


def items_of(rows: Rows) -> bytes:
    """Return the bytes of the index items that records require, as `check_items` takes them."""
    room = rows.work + 2 * len(rows)
    buffer = bytearray(_FIRST_ITEM + ITEM_SIZE * (room + 1))
    header = rows.index_put(buffer, 1, room, (ORIGIN_MS, 0, 0, 0, 0, 2), 0)
    stop = 2 if header is None else header[5]
    return bytes(buffer[_FIRST_ITEM : _FIRST_ITEM + ITEM_SIZE * (stop - 2)])


def check_items(
    store: StoreFiles, index: Index, expected: bytes, low: int, high: int, side: str
) -> tuple[Counts, list[Finding]]:
    """
    Check the keys of the records of a stretch of the log, and the items that point into it.

    :param expected: the items that the records require, in any order. Their times count from
        `ORIGIN_MS` on, and their last number does not count.
    """
    count = len(expected) // ITEM_SIZE
    parts = index.stretch(low, high)
    stored = b"".join(data for *_, data in parts)
    # Nearly always the bytes are equal, and no item has to be decoded.
    is_equal = _have_equal_places(stored, expected)
    if is_equal and len(parts) < 2 and _have_equal_times(parts, expected):
        return Counts(count, 0, 0), []
    origin = ORIGIN_MS // 1000
    required = {item[:2]: item[2] + origin for item in ITEM.iter_unpack(expected)}
    findings = list(_late(store, parts, required, side))
    if is_equal:
        return Counts(count, 0, 0), findings
    stored_keys = {(hashed, place) for hashed, place, *_ in ITEM.iter_unpack(stored)}
    before = pending = 0
    holes, gaps = [], []
    first, last = index.spans[0][0], max(end for _, end in index.spans)
    for hashed, place, *_ in ITEM.iter_unpack(expected):
        if (hashed, place) not in stored_keys:
            if index.covers(place):
                holes.append((hashed, place))
            elif place < first:
                before += 1
            elif place > last:
                pending += 1
            else:
                gaps.append(place)
    findings += _holes(store, holes, side)
    if gaps:
        note = f"{len(gaps)} keys, up to offset {max(gaps)}."
        findings.append(finding("INDEX_GAP", note, broker=side, physical_offset=min(gaps)))
    for hashed, place in sorted(stored_keys - required.keys())[:MOST_FINDINGS]:
        findings.append(
            finding(
                "INDEX_WRONG",
                broker=side,
                physical_offset=place,
                expected="a key of the message there",
                actual=f"hash {hashed}",
            )
        )
    return Counts(count, before, pending), findings


def _have_equal_places(stored: bytes, expected: bytes) -> bool:
    """Return whether items have equal hashes and physical offsets, in the same order."""
    return len(stored) == len(expected) and all(
        stored[at::ITEM_SIZE] == expected[at::ITEM_SIZE] for at in range(_PLACE_BYTES)
    )


def _have_equal_times(
    parts: Sequence[tuple[OfflineIndexFile, int, bytes]], expected: bytes
) -> bool:
    """Return whether items in the order of their records have the right times."""
    for file, _, data in parts:
        begin = (file.header.begin_timestamp - ORIGIN_MS) // 1000
        apart = set(map(sub, _seconds_in(expected), _seconds_in(data)))
        if not all(_EARLY <= begin - seconds <= _LATE for seconds in apart):
            return False
    return True


def _seconds_in(data: bytes) -> Sequence[int]:
    column = bytearray(len(data) // ITEM_SIZE * 4)
    for at in range(4):
        column[at::4] = data[_PLACE_BYTES + at :: ITEM_SIZE]
    return Struct(f">{len(column) // 4}i").unpack(column)


def _holes(store: StoreFiles, holes: Sequence[tuple[int, int]], side: str) -> Iterator[Finding]:
    note = f"{len(holes)} keys in this stretch." if len(holes) > MOST_FINDINGS else ""
    for hashed, place in holes[:MOST_FINDINGS]:
        columns = columns_of(record_at(store, place))
        yield finding(
            "INDEX_HOLE",
            note,
            broker=side,
            physical_offset=place,
            expected=f"an entry with hash {hashed}",
            actual="none",
            **columns,
        )


def _late(
    store: StoreFiles,
    parts: Sequence[tuple[OfflineIndexFile, int, bytes]],
    required: dict[tuple[int, int], int],
    side: str,
) -> Iterator[Finding]:
    """Yield findings for items whose time is not that of their record."""
    count = 0
    for file, start, data in parts:
        begin = file.header.begin_timestamp
        if begin <= 0:
            continue
        for row, (hashed, place, seconds, _) in enumerate(ITEM.iter_unpack(data), start):
            stored = required.get((hashed, place))
            # The first item of a file may have the seconds since the file before it.
            if stored is None or seconds <= 0 or row == 0:
                continue
            told = begin // 1000 + seconds
            if not _EARLY <= told - stored <= _LATE and count < MOST_FINDINGS:
                count += 1
                yield finding(
                    "INDEX_TIME",
                    broker=side,
                    physical_offset=place,
                    expected=f"stored in second {stored}",
                    actual=f"second {told}",
                    **columns_of(record_at(store, place)),
                )


def check_structure(file: OfflineIndexFile, side: str) -> list[Finding]:
    """
    Check a file by itself: header, order, and whether every item is found from its slot.

    It takes about 20 MB for a full file of the default size.
    """
    count = file.count
    if not count:
        return []
    findings: list[Finding] = []
    # `heads` has the newest item of each slot so far, which the next item of the slot has to name.
    heads = array("i", bytes(4 * file.slots))
    first = previous_place = file.place_of(0)
    is_ordered, chains = True, list[tuple[int, int, int]]()
    for start in range(0, count, _CHUNK):
        rows = ITEM.iter_unpack(file.item_data(start, start + _CHUNK))
        for number, (hashed, place, _, previous) in enumerate(rows, start + 1):
            slot = hashed % file.slots
            if previous != heads[slot] and len(chains) < MOST_FINDINGS:
                chains.append((number, heads[slot], previous))
            heads[slot] = number
            if place < previous_place and is_ordered:
                is_ordered = False
                findings.append(
                    finding("INDEX_ORDER", file.path, broker=side, physical_offset=place)
                )
            previous_place = place
    header = file.header
    said = header.begin_physical_offset, header.end_physical_offset
    if said != (first, previous_place):
        findings.append(
            finding(
                "INDEX_HEADER",
                file.path,
                broker=side,
                physical_offset=previous_place,
                expected=f"records {first} to {previous_place}",
                actual=f"records {said[0]} to {said[1]}",
            )
        )
    broken = [*chains, *_broken_slots(file, heads, count)]
    return [*findings, *_unreachable(file, broken, side)]


def _broken_slots(
    file: OfflineIndexFile, heads: Sequence[int], count: int
) -> Iterator[tuple[int, int, int]]:
    """
    Yield the slots that do not lead to their newest item.

    :returns: for each a tuple of 0, the number of that item, and the number that the slot has.
    """
    for start in range(0, file.slots, _CHUNK):
        numbers = file.slot_numbers(start, start + _CHUNK)
        required = tuple(heads[start : start + len(numbers)])
        if numbers == required:
            continue
        for newest, number in zip(required, numbers, strict=True):
            # A slot may lead to items that the header does not count yet: the broker wrote them
            # last, and writes the header behind them.
            while count < number <= file.items:
                number = file.previous_of(number)
            if newest != number:
                yield 0, newest, number


def _unreachable(
    file: OfflineIndexFile, broken: Iterable[tuple[int, int, int]], side: str
) -> Iterator[Finding]:
    """
    Yield findings for the items to which nothing leads any more.

    :param broken: numbers of the item with a wrong link (0: a slot), of the item to which it should
        lead, and of the item to which it leads.
    """
    lost: dict[int, None] = {}
    for number, required, previous in broken:
        if not required:
            lost[number] = None
        at = required
        while at and at != previous and len(lost) < MOST_FINDINGS:
            lost[at] = None
            at = file.previous_of(at)
        if len(lost) >= MOST_FINDINGS:
            break
    for number in filter(None, lost):
        yield finding(
            "INDEX_CHAIN",
            f"Entry {number} of {file.path}.",
            broker=side,
            physical_offset=file.place_of(number - 1),
            expected="reached from its slot",
            actual="nothing leads to it, or it leads elsewhere",
        )
