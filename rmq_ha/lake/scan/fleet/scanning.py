"""Scans a store and keeps its facts; it continues where the last scan ended."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import blake2b
from typing import Any, NamedTuple

import pyarrow as pa

from rmq_ha.base.errors import WrongUsage
from rmq_ha.base.host.files import listing
from rmq_ha.lake.scan.fleet.facts import (
    FINDINGS,
    HOUR,
    IDS,
    SCHEMAS,
    SUMS,
    WINDOW,
    WINDOWS,
    Replica,
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
from rmq_ha.lake.scan.replica.facts import Facts
from rmq_ha.lake.scan.replica.logs import ByteOwner, Log
from rmq_ha.lake.scan.replica.settings import Settings, StoreAt, opened
from rmq_ha.lake.scan.replica.verdicts import judge_holes
from rmq_ha.lake.scan.replica.verifying import verify
from rmq_ha.lake.scan.store.scanning import Gap
from rmq_ha.ops.offsets.findings import COLUMNS, Finding
from rmq_ha.ops.offsets.model import SLAVE_ROLE
from rmq_ha.ops.offsets.opening import store_of
from rmq_ha.ops.offsets.snapshot_history import append
from rmq_ha.ops.offsets.store_snapshot import StoredReplica

_CHUNK = 64 << 20
_ADDED = (("n", "sum"), ("bytes", "sum"), ("bad", "sum"), ("leastMs", "min"), ("mostMs", "max"))


class ScanRequest(NamedTuple):
    """
    A store to be scanned.

    :ivar broker_id: id of the broker; 0: the master.
    :ivar host: name of this machine.
    :ivar again: scan from the beginning, whatever is known.
    :ivar ids: keep a hash of each message's id, 16 bytes a message.
    :ivar checks: `queues`, `index`: parts to be compared with the log, as a whole in each scan.
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


def scan(
    asked: ScanRequest, now_ms: Callable[[], int], rest: Callable[[int], None] = lambda _: None
) -> State:
    """
    Read the new part of a store, and keep its facts.

    :param rest: called again and again with the number of bytes read; may wait.
    :raises CannotDecide: there is no store, or facts cannot be read or written.
    :raises WrongUsage: the known facts have windows of another size.
    """
    directory = directory_of(asked.to, asked.broker, asked.broker_id)
    known = None if asked.again else state_in(directory)
    if known is not None and known.window != asked.window:
        raise WrongUsage(
            f"{directory} has windows of {known.window} bytes: give --window {known.window}, or"
            " --again to begin anew"
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
    tables = []
    for is_tail, spans in ((False, whole), (True, windows[len(whole) :])):
        facts = _WindowContent(asked, is_tail)
        for low, high, chunk in _chunks(log, spans):
            facts.read(log, low, high, chunk)
            rest(high - low)
        if is_tail:
            facts.findings += judge_holes(asked.at.uri, replica.store.holes)
            facts.findings += _checked(asked)
        tables += facts.tables()
    now = now_ms()
    files = () if known is None else known.files
    end = whole[-1][1] if whole else start
    state = State(
        asked.broker, asked.broker_id, asked.at.uri, asked.host, asked.window, replica.low, end,
        replica.high, now, keep(directory, files, tables, f"{start}-{replica.high}-{now}"),
    )  # fmt: skip
    keep_state(directory, state)
    return state


def _keep_tables(asked: ScanRequest, directory: str, now_ms: Callable[[], int]) -> None:
    """Keep offsets and queues before the log is read, so that no offset is beyond the log."""
    seen = StoredReplica(store_of, listing, asked.at.uri, now_ms).snapshot()
    role = SLAVE_ROLE if asked.broker_id else "ASYNC_MASTER"
    named = replace(seen, broker=asked.broker, broker_id=asked.broker_id, role=role)
    append(named, f"{directory}/snapshots")


def _goes_on(known: State, directory: str, log: Log) -> bool:
    """
    Return whether the log is the one that was scanned: its last window still has the same digest.
    """
    table = Replica(directory, known).table(WINDOWS)
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
    """
    Group neighbouring windows of one file, so that a record's start is searched once for many
    windows.
    """
    at = 0
    while at < len(spans):
        low, stop = spans[at][0], at + 1
        end = min(log.file_at(low).end, low + _CHUNK)
        while stop < len(spans) and spans[stop][1] <= end and spans[stop][0] == spans[stop - 1][1]:
            stop += 1
        yield low, spans[stop - 1][1], spans[at:stop]
        at = stop


class _WindowContent:
    """The facts that are found in some windows."""

    def __init__(self, asked: ScanRequest, is_tail: bool) -> None:
        self._asked = asked
        self._is_tail = is_tail
        self._how = Reduction("", "uniqKey", HOUR)
        self._windows: list[tuple[int, int, bytes]] = []
        self._sums: list[Any] = []
        self._ids: list[Any] = []
        self.findings: list[Finding] = []

    def read(self, log: Log, low: int, high: int, spans: Spans) -> None:
        self._windows += [(*span, digest_of(log, *span)) for span in spans]
        name = self._asked.at.uri
        for piece in log.pieces(low, high):
            if isinstance(piece, Gap):
                self.findings.append(gap_finding(piece, name))
                continue
            if not len(piece):
                continue
            self.findings += bodies(piece, Facts(piece), name)
            for batch in self._how.batches(piece):
                kind = batch.column("kind")[0].as_py()
                if kind == SUM_ROW:
                    self._sums.append(batch)
                elif kind == ID_ROW and self._asked.ids:
                    columns = [batch.column(name).flatten() for name in ("hashes", "places")]
                    self._ids.append(pa.table(columns, SCHEMAS[IDS]))

    def tables(self) -> list[tuple[str, bool, Any]]:
        """Return the tables in the form that `keep` takes."""
        columns = zip(*self._windows, strict=True) if self._windows else ([], [], [])
        arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMAS[WINDOWS], strict=True)]
        rows = [dict(zip(COLUMNS, finding, strict=True)) for finding in self.findings]
        tables = {
            WINDOWS: pa.table(arrays, SCHEMAS[WINDOWS]),
            SUMS: self._summed(),
            FINDINGS: pa.Table.from_pylist(rows, SCHEMAS[FINDINGS]),
        }
        if self._ids:
            tables[IDS] = pa.concat_tables(self._ids)
        return [(kind, self._is_tail, table) for kind, table in tables.items()]

    def _summed(self) -> Any:
        if not self._sums:
            return SCHEMAS[SUMS].empty_table()
        every = pa.Table.from_batches(self._sums)
        every = every.filter(every["inQueue"])
        summed = every.group_by(["topic", "queueId", "window"]).aggregate(list(_ADDED))
        names = ["topic", "queueId", "window", *("_".join(added) for added in _ADDED)]
        return summed.select(names).rename_columns(SCHEMAS[SUMS].names).cast(SCHEMAS[SUMS])


def _checked(asked: ScanRequest) -> Iterator[Finding]:
    """Compare the store's queues and index with its log."""
    if asked.checks:
        told = verify(Settings(asked.at, asked.at, checks=asked.checks))
        yield from (finding for finding in told.findings if finding.code != "LOG_HOLE")
