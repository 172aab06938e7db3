"""
Compares all parts of a store that no broker writes to with its log.

First it reads the queues and index files alone, to learn how far the queues were built. Then it
reads the log once, and looks up the queue entry and the index items of each record.

Spec: store.md, sections 3, 4 and 5.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from rmq_ha.base.errors import CannotDecide
from rmq_ha.base.model.java_hash import tags_code
from rmq_ha.base.model.message import Row
from rmq_ha.base.model.properties import TAGS, decode_properties
from rmq_ha.base.model.topics import HOLD_TIMES, SCHEDULE_TOPIC
from rmq_ha.base.runs.face import QueueKey, Rows
from rmq_ha.base.runs.row_list import NO_ROWS, NOT_FOR_CONSUMERS
from rmq_ha.base.store_format.delay_levels import delay_level_in
from rmq_ha.ops.checks.codes import finding
from rmq_ha.ops.checks.found_records import columns_of, record_at
from rmq_ha.ops.checks.index_items import Counts, Index, check_items, check_structure, items_of
from rmq_ha.ops.checks.store_rules import (
    checkpoint_state,
    judge_checkpoint,
    judge_holes,
    judge_tables,
    queue_beginnings,
    tail_findings,
)
from rmq_ha.ops.checks.sums import IndexState, QueueSum, judge_sums, topics_of
from rmq_ha.ops.checks.timers import TimerCheck
from rmq_ha.ops.checks.units import NO_SCAN, QueueScan, UnitCheck, dangling_units, scan_queues
from rmq_ha.ops.offline.directory import StoreFiles
from rmq_ha.ops.offline.records import Damage, LogStretch, stretches
from rmq_ha.ops.offsets.findings import Finding

_STEP = 1000
_OF_LOG = ("LOG_HOLE", "RECORD_UNREADABLE", "BODY_CRC")


class StoreVerdict(NamedTuple):
    """The findings of `verify`, and how many messages the log has."""

    findings: list[Finding]
    records: int


def verify(store: StoreFiles, step: Callable[[], object] = lambda: None) -> StoreVerdict:
    """
    Read all of the log, and compare the files that are built from it with it.

    :param step: called after every 1000 records, to show progress.
    :raises CannotDecide: there is no log, or it cannot be read.
    """
    return _StoreCheck(store).run(step)


class _StoreCheck:
    def __init__(self, store: StoreFiles) -> None:
        self._store = store
        self._name = store.uri
        self._low, self._high = store.min_offset(), store.max_offset()
        self._findings = [
            *judge_holes(self._name, store.holes), *judge_tables(self._name, store),
        ]  # fmt: skip
        self._scans: dict[QueueKey, QueueScan] = {}
        self._dispatched = 0
        self._queues: dict[QueueKey, UnitCheck] = {}
        self._index = Index([])
        self._keys = Counts(0, 0, 0)
        self._beginnings: Mapping[QueueKey, int] = {}
        self._timers = TimerCheck()

    def run(self, step: Callable[[], object]) -> StoreVerdict:
        store, name = self._store, self._name
        try:
            self._beginnings = queue_beginnings(store)
        except CannotDecide:
            pass  # `judge_tables` has the finding
        self._findings += self._scan_queues()
        files, faults = store.index_parts()
        for file in files:
            self._findings += check_structure(file, name)
        self._index = Index(files)
        count, newest = self._read_log(step)
        is_whole = not any(fault.code in _OF_LOG for fault in self._findings)
        self._findings += self._timers.findings(name, is_log_whole=is_whole)
        # A restored backup has the log, the tables and `abort` only. What is built from the log is
        # absent there, which is no damage.
        checkpoint = checkpoint_state(store, self._high, newest)
        if store.abort and not self._scans and checkpoint.size < 0:
            note = f"{len(self._queues)} queues, the index and the checkpoint are not built yet."
            self._findings.append(finding("RESTORED", note, broker=name))
            return StoreVerdict(self._findings, count)
        index = IndexState(name, [*map(str, faults)], self._index.spans, self._low, self._high)
        self._findings += self._sum_findings(index)
        self._findings += judge_checkpoint(name, checkpoint)
        ends = ((scan.end, key, scan.last) for key, scan in self._scans.items())
        self._findings += tail_findings(name, store, ends)
        return StoreVerdict(self._findings, count)

    # The queues by themselves

    def _scan_queues(self) -> Iterator[Finding]:
        store, names = self._store, self._store.topics_on_disk()
        for key, scan in scan_queues(store, names, self._low, self._high, self._name):
            self._scans[key] = scan
            yield from scan.findings
        ends = [scan.end for scan in self._scans.values()]
        self._dispatched = min(self._high, max(ends, default=0))

    # The log

    def _read_log(self, step: Callable[[], object]) -> tuple[int, int]:
        """Return how many messages the log has, and the store time of its newest message."""
        count = newest = 0
        at, last = self._low, NO_ROWS
        for stretch in stretches(self._store):
            if isinstance(stretch, Damage):
                self._findings.append(_damage_finding(stretch, self._name))
                at = stretch.end
                continue
            rows = stretch.run.rows
            at = max([at, *(hole.end for hole in self._store.holes if hole.end <= rows.start)])
            if not stretch.has_right_crc:
                self._findings.append(self._crc_finding(stretch))
            self._timers.take(stretch)
            self._look_up(rows)
            self._check_index(rows, at, rows.end)
            at, last = rows.end, rows
            newest = max(newest, rows[-1][5])
            before, count = count, count + len(rows)
            for _ in range(before // _STEP, count // _STEP):
                step()
        if at < self._high:
            self._check_index(NO_ROWS, at, self._high)
        return count, max([newest, *(row[5] for row in last)])

    def _crc_finding(self, stretch: LogStretch) -> Finding:
        place = stretch.run.start
        return finding(
            "BODY_CRC",
            broker=self._name,
            physical_offset=place,
            expected="the CRC of the body",
            actual="another one",
            **columns_of(record_at(self._store, place)),
        )

    def _check_index(self, rows: Rows, low: int, high: int) -> None:
        if self._index.files:
            items = items_of(rows) if len(rows) else b""
            counts, more = check_items(self._store, self._index, items, low, high, self._name)
            self._keys = Counts(*map(sum, zip(self._keys, counts, strict=True)))
            self._findings += more

    def _look_up(self, rows: Rows) -> None:
        """Look up the queue entries of some records, as many at once as possible."""
        runs = rows.units()
        odd = {key for key in rows.names if key[0] in HOLD_TIMES or key in self._beginnings}
        if runs is None:
            odd = set(rows.names)
        for key, number, units, *_ in runs or ():
            if key not in odd:
                self._check_of(key).look(number, units)
        for row in rows if odd else ():
            if row[:2] in odd:
                self._look_up_row(row)

    def _look_up_row(self, row: Row) -> None:
        key = row[0], row[1]
        # Messages from before the beginning of a queue's present life are of a deleted topic.
        if row[9] & NOT_FOR_CONSUMERS or row[2] < self._beginnings.get(key, 0):
            return
        unit = row[6], row[2], row[3], row[4]
        level = delay_level_in(row[11]) if row[0] == SCHEDULE_TOPIC else 0
        if level is not None and level > 0:
            self._check_of(key).look_delayed(unit, level, row[5])
        else:
            tags = decode_properties(row[11]).get(TAGS, "") if row[0] in HOLD_TIMES else None
            self._check_of(key).look_one(unit, row[4] if tags is None else tags_code(tags))

    def _check_of(self, key: QueueKey) -> UnitCheck:
        check = self._queues.get(key)
        if check is None:
            queue = self._store.queue(*key)
            check = UnitCheck(self._store, queue, self._dispatched, self._name)
            self._queues[key] = check
        return check

    # The sums

    def _sum_findings(self, index: IndexState) -> Iterator[Finding]:
        store, name = self._store, self._name
        sums = []
        for key in sorted({*self._scans, *self._queues}):
            check, scan = self._check_of(key), self._scans.get(key, NO_SCAN)
            yield from check.findings
            total = QueueSum(name, *key, scan.entries, *check.counts, first=scan.first)
            sums.append(total)
            if total.surplus > 0:
                yield from dangling_units(store, store.queue(*key), self._high, name)
        delays = [delay for check in self._queues.values() for delay in check.delays]
        keys, tables = [(name, self._keys.pending)], {name: topics_of(store)}
        yield from judge_sums(sums, delays, keys, [index], tables, is_pair=False)


def _damage_finding(damage: Damage, name: str) -> Finding:
    return finding(
        "RECORD_UNREADABLE",
        f"{damage.end - damage.start} bytes of {damage.path}.",
        broker=name,
        physical_offset=damage.start,
        expected="a record",
        actual="other bytes",
    )
