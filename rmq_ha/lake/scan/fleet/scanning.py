"""
Scans a store and keeps its facts. A scan continues where the last one ended. It also reads a share
of the older log again, because a disk may damage bytes that nobody writes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmq_ha.base.errors import WrongUsage
from rmq_ha.base.host.files import identity_of, listing
from rmq_ha.lake.scan.fleet.facts import (
    FINDINGS,
    HOUR,
    IDS,
    SCHEMAS,
    SUMS,
    WINDOW,
    WINDOWS,
    ReplicaFacts,
    State,
    directory_of,
    keep,
    keep_state,
    state_in,
)
from rmq_ha.lake.scan.reducing import IDS as ID_ROW
from rmq_ha.lake.scan.reducing import SUMS as SUM_ROW
from rmq_ha.lake.scan.reducing import Reduction
from rmq_ha.lake.scan.replica.auditing import bodies, gap_finding
from rmq_ha.lake.scan.replica.logs import ByteOwner, Log
from rmq_ha.lake.scan.replica.settings import Settings, StoreAt, opened
from rmq_ha.lake.scan.replica.verifying import verify
from rmq_ha.lake.scan.store.scanning import Gap
from rmq_ha.ops.checks.codes import finding
from rmq_ha.ops.checks.store_rules import judge_holes
from rmq_ha.ops.offsets.findings import COLUMNS, Finding
from rmq_ha.ops.offsets.model import SLAVE_ROLE
from rmq_ha.ops.offsets.opening import store_of
from rmq_ha.ops.offsets.snapshot_history import append
from rmq_ha.ops.offsets.store_snapshot import StoredReplica

SHARE = 30
_CHUNK = 64 << 20
_ADDED = (("n", "sum"), ("bytes", "sum"), ("bad", "sum"), ("leastMs", "min"), ("mostMs", "max"))


class ScanRequest(NamedTuple):
    """
    A store to be scanned.

    :ivar to: the directory that has the facts of all brokers.
    :ivar again: whether to scan from the beginning, and to ignore the facts of earlier scans.
    :ivar checks: `queues`, `index`: parts to be compared with the log, as a whole in each scan.
    :ivar share: a divisor: of the windows of earlier scans one in `share` is read again; 0: none.
    """

    at: StoreAt
    to: str
    broker: str
    broker_id: int
    host: str = ""
    window: int = WINDOW
    again: bool = False
    ids: bool = False
    checks: frozenset[str] = frozenset()
    share: int = SHARE


def scan(
    asked: ScanRequest, now_ms: Callable[[], int], rest: Callable[[int], None] = lambda _: None
) -> State:
    """
    Read the new part of a store, and a share of the windows that were read before; keep the facts.

    :param rest: called after each part with the number of bytes that were read; it may wait, so
        that no more than some bytes a second are read.
    :raises CannotDecide: there is no store, or facts cannot be read or written.
    :raises WrongUsage: the known facts have windows of another size, or are of another broker.
    """
    directory = directory_of(asked.to, asked.broker, asked.broker_id)
    known = None if asked.again else state_in(directory)
    if known is not None and known.window != asked.window:
        raise WrongUsage(
            f"{directory} has windows of {known.window} bytes: give --window {known.window}, or"
            " --again to begin anew"
        )
    if known is not None and (known.broker, known.broker_id) != (asked.broker, asked.broker_id):
        raise WrongUsage(
            f"{directory} has the facts of broker {known.broker}, id {known.broker_id}: both names"
            " give the same directory; keep the facts of one of them elsewhere"
        )
    _keep_tables(asked, directory, now_ms)
    replica = opened(asked.at, None)
    log = replica.log
    if known is not None and not _goes_on(known, directory, log):
        known = None
    start = replica.low if known is None else max(replica.low, known.end)
    windows = list(windows_of(log, start, replica.high, asked.window))
    # Only windows that are full are kept for good. The last one grows, so its facts are made anew
    # by the next scan.
    whole = [span for span in windows if span[1] < replica.high or span[1] % asked.window == 0]
    old, again = _read_again(asked, directory, known, log, now_ms(), rest)
    tables = []
    for is_tail, spans in ((False, whole), (True, windows[len(whole) :])):
        facts = _WindowContent(asked, is_tail, now_ms())
        for low, high, chunk in _chunks(log, spans):
            facts.read(log, low, high, chunk)
            rest(high - low)
        if is_tail:
            facts.findings += judge_holes(asked.at.uri, replica.store.holes)
            facts.findings += _check_queues_and_index(asked)
        else:
            facts.findings += again.findings
        tables += facts.tables(None if is_tail else pa.concat_tables([old, again.windows()]))
    now = now_ms()
    files = () if known is None else known.files
    end = whole[-1][1] if whole else start
    state = State(
        asked.broker, asked.broker_id, asked.at.uri, asked.host, asked.window, replica.low, end,
        replica.high, now, keep(directory, files, tables, f"{start}-{replica.high}-{now}"),
        identity=identity_of(asked.at.uri), oldest_look=_oldest_look(tables),
        read_again=again.windows().num_rows,
    )  # fmt: skip
    keep_state(directory, state, files)
    return state


def _read_again(
    asked: ScanRequest,
    directory: str,
    known: State | None,
    log: Log,
    now: int,
    rest: Callable[[int], None],
) -> tuple[Any, "_WindowContent"]:
    """
    Read those windows of earlier scans again that have not been read for longest.

    :param known: what the last scan left; None: nothing that can be used.
    :returns: the rows of the windows that were not read again, and the content of the others.
    """
    again = _WindowContent(asked, False, now)
    table = SCHEMAS[WINDOWS].empty_table() if known is None else kept_windows(directory, known, log)
    if not asked.share or not table.num_rows:
        return table, again
    order = pc.sort_indices(table["readAt"].fill_null(0))
    count = -(-table.num_rows // asked.share)
    for row in table.take(order[:count]).sort_by("low").to_pylist():
        low, high = row["low"], row["high"]
        again.look(log, low, high, row["digest"])
        rest(high - low)
    return table.take(order[count:]).sort_by("low"), again


def kept_windows(directory: str, known: State, log: Log) -> Any:
    """Return the whole windows of earlier scans whose bytes the log still has, each once."""
    table = ReplicaFacts(directory, known).table(WINDOWS, tail=False)
    lows, highs = (table[name].to_numpy() for name in ("low", "high"))
    _, last = np.unique(lows[::-1], return_index=True)  # of a window that was read twice the newest
    rows = len(lows) - 1 - last
    is_there = np.zeros(len(rows), np.bool_)
    for file in log.row:
        is_there |= (lows[rows] >= file.base) & (highs[rows] <= min(file.end, log.stop))
    return table.take(pa.array(rows[is_there]))


def _oldest_look(tables: Sequence[tuple[str, bool, Any]]) -> int:
    """Return when the window was read that has not been read for longest, in ms; 0: not known."""
    times = [table["readAt"] for kind, _, table in tables if kind == WINDOWS and table.num_rows]
    if not times or any(column.null_count for column in times):
        return 0
    return min(int(pc.min(column).as_py()) for column in times)


def _keep_tables(asked: ScanRequest, directory: str, now_ms: Callable[[], int]) -> None:
    """Keep offsets and queues before the log is read, so that no offset is beyond the log."""
    seen = StoredReplica(store_of, listing, asked.at.uri, now_ms).snapshot()
    role = SLAVE_ROLE if asked.broker_id else "ASYNC_MASTER"
    named = replace(seen, broker=asked.broker, broker_id=asked.broker_id, role=role)
    append(named, f"{directory}/snapshots")


def _goes_on(known: State, directory: str, log: Log) -> bool:
    """Return whether the log is the one that was scanned, by its last window's digest."""
    table = ReplicaFacts(directory, known).table(WINDOWS)
    if log.stop < known.end or not table.num_rows:
        return False
    rows = table.slice(max(0, table.num_rows - 64)).to_pylist()
    mine = [row for row in rows if log.row[0].base <= row["low"] and row["high"] <= known.end]
    last = max(mine, key=lambda row: int(row["low"]), default=None)
    return last is None or digest_of(log, last["low"], last["high"]) == last["digest"]


def windows_of(log: Log, low: int, high: int, size: int) -> Iterator[tuple[int, int]]:
    """
    Yield windows on a grid that does not depend on where a log begins, each inside one file.

    The meaningless bytes after a file's last record are in no window.
    """
    for file in log.row:
        at, end = max(low, file.base), min(high, file.end)
        if at >= end:
            continue
        last = log.place_of(end - 1)
        if last.what is ByteOwner.BLANK:
            end = min(end, last.start + 8)
        while at < end:
            stop = min((at // size + 1) * size, end)
            yield at, stop
            at = stop


def digest_of(log: Log, low: int, high: int) -> bytes:
    """
    Return the digest of a window, 16 bytes.

    :raises CannotDecide: a file vanished, or cannot be read.
    """
    return blake2b(log.read(low, high - low), digest_size=16).digest()


Spans = list[tuple[int, int]]


def _chunks(log: Log, spans: Spans) -> Iterator[tuple[int, int, Spans]]:
    """Group neighbouring windows of a file, so that a record's start is searched once."""
    at = 0
    while at < len(spans):
        low, stop = spans[at][0], at + 1
        end = min(log.file_at(low).end, low + _CHUNK)
        while stop < len(spans) and spans[stop][1] <= end and spans[stop][0] == spans[stop - 1][1]:
            stop += 1
        yield low, spans[stop - 1][1], spans[at:stop]
        at = stop


class _WindowContent:
    """Collects the facts of some windows."""

    def __init__(self, asked: ScanRequest, is_tail: bool, now: int) -> None:
        self._asked = asked
        self._is_tail = is_tail
        self._now = now
        self._how = Reduction("", "uniqKey", HOUR)
        self._windows: list[tuple[int, int, bytes, int]] = []
        self._sums: list[Any] = []
        self._ids: list[Any] = []
        self.findings: list[Finding] = []

    def look(self, log: Log, low: int, high: int, digest: bytes) -> None:
        """
        Read a window again, and compare it with its former digest. If they differ, note findings
        for the window and for the damaged records in it.
        """
        present = digest_of(log, low, high)
        self._windows.append((low, high, present, self._now))
        if present == digest:
            return
        self.findings.append(
            finding(
                "WINDOW_CHANGED",
                f"[{low}, {high}).",
                broker=self._asked.at.uri,
                physical_offset=low,
                expected=f"digest {digest.hex()}",
                actual=f"digest {present.hex()}",
            )
        )
        for piece in log.pieces(low, high):
            if isinstance(piece, Gap):
                self.findings.append(gap_finding(piece, self._asked.at.uri))
            elif len(piece):
                self.findings += bodies(piece, self._asked.at.uri)

    def read(self, log: Log, low: int, high: int, spans: Spans) -> None:
        """Read new windows, from `low` to `high`: digests, faults, sums and ids."""
        self._windows += [(*span, digest_of(log, *span), self._now) for span in spans]
        name = self._asked.at.uri
        for piece in log.pieces(low, high):
            if isinstance(piece, Gap):
                self.findings.append(gap_finding(piece, name))
                continue
            if not len(piece):
                continue
            self.findings += bodies(piece, name)
            for batch in self._how.batches(piece):
                kind = batch.column("kind")[0].as_py()
                if kind == SUM_ROW:
                    self._sums.append(batch)
                elif kind == ID_ROW and self._asked.ids:
                    columns = [batch.column(name).flatten() for name in ("hashes", "places")]
                    self._ids.append(pa.table(columns, SCHEMAS[IDS]))

    def windows(self) -> Any:
        columns = zip(*self._windows, strict=True) if self._windows else ([], [], [], [])
        arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMAS[WINDOWS], strict=True)]
        return pa.table(arrays, SCHEMAS[WINDOWS])

    def tables(self, old: Any = None) -> list[tuple[str, bool, Any]]:
        """Return the tables as `keep` takes them, with the `old` rows of windows."""
        rows = [dict(zip(COLUMNS, finding, strict=True)) for finding in self.findings]
        windows = self.windows()
        if old is not None:
            windows = pa.concat_tables([old, windows]).sort_by("low")
        tables = {
            WINDOWS: windows,
            SUMS: self._sums_table(),
            FINDINGS: pa.Table.from_pylist(rows, SCHEMAS[FINDINGS]),
        }
        if self._ids:
            tables[IDS] = pa.concat_tables(self._ids)
        return [(kind, self._is_tail, table) for kind, table in tables.items()]

    def _sums_table(self) -> Any:
        """Return the counts of records with a place in their queue, by queue and hour of birth."""
        if not self._sums:
            return SCHEMAS[SUMS].empty_table()
        every = pa.Table.from_batches(self._sums)
        every = every.filter(every["inQueue"])
        summed = every.group_by(["topic", "queueId", "window"]).aggregate(list(_ADDED))
        names = ["topic", "queueId", "window", *("_".join(added) for added in _ADDED)]
        return summed.select(names).rename_columns(SCHEMAS[SUMS].names).cast(SCHEMAS[SUMS])


def _check_queues_and_index(asked: ScanRequest) -> Iterator[Finding]:
    if asked.checks:
        told = verify(Settings(asked.at, asked.at, checks=asked.checks))
        yield from (finding for finding in told.findings if finding.code != "LOG_HOLE")
