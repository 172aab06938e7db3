"""
Compares index files with the log: each key of each record must be found, and nothing else.

The files of two stores are never compared with each other: each broker begins a new file when its
own is full, and a file's name is the time at which that happened.

Spec: store.md, section 4.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from rmq_ha.lake.scan.log.shape import Flags, Ints
from rmq_ha.lake.scan.replica.codes import finding
from rmq_ha.lake.scan.replica.facts import Facts
from rmq_ha.lake.scan.store.index_files import StoredIndexFile
from rmq_ha.ops.offsets.findings import Finding

MOST = 20
"""How many findings of one kind are reported for one stretch of the log, or one file."""
_CHUNK = 1 << 20
_HASH_BITS = 31
_STEP = 1 << 13
_NOWHERE = -1


class IndexStretch(NamedTuple):
    """
    Items of index files that point into one stretch of the log, in the order of the files.

    :ivar times: store time of the message in ms, with the precision of a second; -1 if the file
        does not tell.
    """

    offsets: Ints
    hashes: Ints
    times: Ints


class Counts(NamedTuple):
    """
    The numbers of keys of one stretch of the log.

    :ivar keys: how many keys the index should have.
    :ivar before: how many of them are older than the index.
    :ivar pending: how many of them are newer than the index.
    """

    keys: int
    before: int
    pending: int


class Index:
    """
    All index files of a store, in the order of the log.

    :param files: the files in any order.
    """

    def __init__(self, files: Sequence[StoredIndexFile]) -> None:
        filled = [file for file in files if file.count]
        self.files = sorted(filled, key=lambda file: file.header.begin_physical_offset)
        self.begins = [file.header.begin_physical_offset for file in self.files]
        self.ends = [file.header.end_physical_offset for file in self.files]
        self._rows: dict[tuple[int, int], int] = {}

    def stretch(self, low: int, high: int) -> IndexStretch:
        """Return the items that point into `[low, high)`."""
        parts: list[IndexStretch] = []
        known, self._rows = self._rows, {}
        for number, file in enumerate(self.files):
            if self.begins[number] < high and self.ends[number] >= low:
                start = known.get((number, low))  # where the stretch before it ended
                if start is None:
                    start = _row_of(file, low, 0)
                stop = self._rows[number, high] = _row_of(file, high, start)
                parts.append(_items(file, start, stop))
        if not parts:
            nothing = np.zeros(0, np.int64)
            return IndexStretch(nothing, nothing, nothing)
        return IndexStretch(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def covered(self, offsets: Ints) -> Flags:
        """
        Return for each record whether it lies between the first and the last record of an index
        file.
        """
        is_covered: Flags = np.zeros(len(offsets), np.bool_)
        for begin, end in zip(self.begins, self.ends, strict=True):
            is_covered |= (offsets >= begin) & (offsets <= end)
        return is_covered


def _row_of(file: StoredIndexFile, offset: int, start: int) -> int:
    """Return the first row from `start` on whose record is at or after an offset, in log order."""
    low, step = start, _STEP
    while low + step < file.count:
        if int(file.entries(low + step, low + step + 1).physical_offset[0]) >= offset:
            break
        low, step = low + step, 2 * step
    high = min(low + step, file.count)
    while low < high:
        middle = (low + high) // 2
        if int(file.entries(middle, middle + 1).physical_offset[0]) < offset:
            low = middle + 1
        else:
            high = middle
    return low


def _items(file: StoredIndexFile, start: int, stop: int) -> IndexStretch:
    items = file.entries(start, stop)
    begin = file.header.begin_timestamp
    times = begin + items.time_diff * 1000
    # The first item of a file may have the seconds since the file before it.
    times[(items.time_diff <= 0) | (np.arange(start, stop) == 0) | (begin <= 0)] = -1
    return IndexStretch(items.physical_offset, items.hash, times)


def check_index(
    facts: Facts, index: Index, low: int, high: int, side: str
) -> tuple[Counts, list[Finding]]:
    """
    Check the keys of the records of a stretch of the log, and the items that point into it.

    :param low: physical offset of the start of the stretch; `facts` has all its records.
    :param high: physical offset of the end of the stretch.
    """
    rows, hashes = facts.keys
    offsets = facts.offsets[rows]
    expected = (offsets - low) << _HASH_BITS | hashes
    items = index.stretch(low, high)
    # A damaged offset may be any number: its key must not overflow into that of another item.
    is_inside = (items.offsets >= low) & (items.offsets < high)
    places = np.where(is_inside, items.offsets - low, _NOWHERE)
    stored = places << _HASH_BITS | items.hashes & 0x7FFFFFFF
    findings: list[Finding] = []
    if np.array_equal(np.sort(expected), np.sort(stored)):
        findings += _late(facts, items, np.ones(len(stored), np.bool_), side)
        return Counts(len(expected), 0, 0), findings
    lost = ~np.isin(expected, stored)
    foreign = ~np.isin(stored, expected)
    before = pending = 0
    if lost.any():
        missing = offsets[lost]
        first, last = index.begins[0], max(index.ends)
        before, pending = int((missing < first).sum()), int((missing > last).sum())
        holes = lost & index.covered(offsets)
        findings += _holes("INDEX_HOLE", facts, rows, hashes, holes, side)
        gaps = lost & ~holes & (offsets > first) & (offsets < last)
        findings += _gaps(offsets[gaps], side)
    findings += _foreign(items, foreign, side)
    findings += _late(facts, items, ~foreign, side)
    return Counts(len(expected), before, pending), findings


def _holes(
    code: str, facts: Facts, rows: Ints, hashes: Ints, holes: Flags, side: str
) -> Iterator[Finding]:
    for number in np.flatnonzero(holes)[:MOST].tolist():
        row = int(rows[number])
        record = facts.records.select(slice(row, row + 1))
        yield finding(
            code,
            f"{int(holes.sum())} keys in this stretch." if int(holes.sum()) > MOST else "",
            broker=side,
            topic=facts.topics[row].as_py(),
            queue_id=int(record.queue_id[0]),
            queue_offset=int(facts.queue_offsets[row]),
            physical_offset=int(facts.offsets[row]),
            msg_id=record.msg_id[0].as_py(),
            expected=f"an entry with hash {hashes[number]}",
            actual="none",
        )


def _gaps(missing: Ints, side: str) -> Iterator[Finding]:
    if len(missing):
        yield finding(
            "INDEX_GAP",
            f"{len(missing)} keys, up to offset {missing.max()}.",
            broker=side,
            physical_offset=int(missing.min()),
        )


def _foreign(items: IndexStretch, foreign: Flags, side: str) -> Iterator[Finding]:
    for number in np.flatnonzero(foreign)[:MOST].tolist():
        yield finding(
            "INDEX_WRONG",
            broker=side,
            physical_offset=int(items.offsets[number]),
            expected="a key of the message there",
            actual=f"hash {items.hashes[number]}",
        )


def _late(facts: Facts, items: IndexStretch, known: Flags, side: str) -> Iterator[Finding]:
    """Yield findings for items whose time is not that of their record."""
    mine = np.flatnonzero(known & (items.times >= 0))
    rows = np.searchsorted(facts.offsets, items.offsets[mine])
    stored = facts.store_timestamps[rows]
    late = mine[np.abs(items.times[mine] + 500 - stored) > 1500]
    for number in late[:MOST].tolist():
        row = int(np.searchsorted(facts.offsets, items.offsets[number]))
        yield finding(
            "INDEX_TIME",
            broker=side,
            topic=facts.topics[row].as_py(),
            physical_offset=int(items.offsets[number]),
            expected=f"storeTimestamp {facts.store_timestamps[row]}",
            actual=f"about {items.times[number]}",
        )


def check_structure(file: StoredIndexFile, side: str) -> list[Finding]:
    """
    Check a file by itself: header, order, and whether every item is found from its slot.

    It takes about 150 MB for a full file of the default size.
    """
    count = file.count
    if not count:
        return []
    findings: list[Finding] = []
    first, last = (int(file.entries(row, row + 1).physical_offset[0]) for row in (0, count - 1))
    header = file.header
    said = header.begin_physical_offset, header.end_physical_offset
    if said != (first, last):
        findings.append(
            finding(
                "INDEX_HEADER",
                file.path,
                broker=side,
                physical_offset=last,
                expected=f"records {first} to {last}",
                actual=f"records {said[0]} to {said[1]}",
            )
        )
    slots, disorder, links = _links(file, count)
    if disorder >= 0:
        findings.append(finding("INDEX_ORDER", file.path, broker=side, physical_offset=disorder))
    return [*findings, *_unreachable(file, slots, links, side)]


def _links(file: StoredIndexFile, count: int) -> tuple[Any, int, Any]:
    """
    Return the slot of each item, the first physical offset that is out of order (-1: there is
    none), and the number of links that lead to each item.
    """
    slots = np.full(count + 1, -1, np.int32)
    links = np.zeros(count + 1, np.int16)
    disorder, previous = -1, -1
    for start in range(0, count, _CHUNK):
        items = file.entries(start, min(start + _CHUNK, count))
        numbers = np.arange(start + 1, start + 1 + len(items.slot))
        slots[numbers] = items.slot
        good = (items.previous > 0) & (items.previous < numbers)
        back = items.previous[good]
        np.add.at(links, back[slots[back] == items.slot[good]], 1)
        steps = np.diff(items.physical_offset, prepend=previous)
        if disorder < 0 and (steps < 0).any():
            disorder = int(items.physical_offset[int((steps < 0).argmax())])
        previous = int(items.physical_offset[-1])
    for start in range(0, file.slots, _CHUNK):
        heads = file.heads(start, min(start + _CHUNK, file.slots))
        here = np.flatnonzero((heads > 0) & (heads <= count))
        numbers = heads[here]
        np.add.at(links, numbers[slots[numbers] == here + start], 1)
    return slots, disorder, links


def _unreachable(file: StoredIndexFile, slots: Any, links: Any, side: str) -> Iterator[Finding]:
    """
    Yield findings for items to which no link leads, and for those to which only such items lead.
    """
    lost = (np.flatnonzero(links[1:] == 0)[: 10 * MOST] + 1).tolist()
    for number in lost:
        if len(lost) >= 10 * MOST:
            break
        back = int(file.entries(number - 1, number).previous[0])
        if 0 < back < number and slots[back] == slots[number]:
            links[back] -= 1
            if links[back] == 0:
                lost.append(back)
    for number in lost[:MOST]:
        item = file.entries(number - 1, number)
        yield finding(
            "INDEX_CHAIN",
            f"Entry {number} of {file.path}, one of {len(lost)} or more.",
            broker=side,
            physical_offset=int(item.physical_offset[0]),
            expected=f"found from slot {item.slot[0]}",
            actual="nothing leads to it",
        )
