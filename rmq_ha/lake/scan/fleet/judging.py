"""
Judges one broker by the facts of its replicas. Of the logs only windows that differ are read.

A window that differs is fetched from both stores, if they can be opened on this machine.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from rmq_ha.base.errors import CannotDecide
from rmq_ha.lake.scan.fleet.facts import WINDOWS, Replica
from rmq_ha.lake.scan.replica.codes import finding
from rmq_ha.lake.scan.replica.comparing import Part, Sides, align_part, compare, is_shifted
from rmq_ha.lake.scan.replica.logs import Log
from rmq_ha.lake.scan.replica.settings import StoreAt, opened
from rmq_ha.lake.scan.replica.verdicts import judge_bounds
from rmq_ha.ops.offsets.findings import Finding, Outcome, Severity
from rmq_ha.ops.offsets.snapshot_history import kept_pairing
from rmq_ha.ops.offsets.verdict import Limits, answer

_MOST_FETCHED = 16
"""How many windows of one replica are fetched; the others are only named."""
_MOST_ALIGNED = 64


class Patience(NamedTuple):
    """
    The limits and wishes of a check.

    :ivar skew_ms: how old a slave's tables may be, in ms.
    :ivar age_ms: how old facts may be, in ms.
    :ivar fetches: fetch windows that differ from the stores.
    """

    skew_ms: int = 20_000
    age_ms: int = 86_400_000
    fetches: bool = True


class BrokerVerdict(NamedTuple):
    """
    The verdict on one broker.

    :ivar is_safe: one of its slaves is right; None: it has no slave, or that cannot be decided.
    :ivar compared: bytes of logs of which two replicas have digests.
    :ivar differing: number of windows that differ.
    :ivar fetched: bytes that were read from stores.
    :ivar left: bytes of which only one side has a digest, like the end of a log that grows.
    """

    broker: str
    replicas: int
    is_safe: bool | None
    verdict: str
    findings: Sequence[Finding]
    compared: int = 0
    differing: int = 0
    fetched: int = 0
    left: int = 0

    @property
    def outcome(self) -> Outcome:
        """Outcome of a job that judges this broker alone."""
        if any(finding.severity == Severity.ERROR for finding in self.findings):
            return Outcome.VIOLATED
        return Outcome.UNDECIDED if self.is_safe is None and self.replicas > 1 else Outcome.HOLDS


def judge(
    replicas: Sequence[Replica], limits: Limits, patience: Patience, now_ms: int
) -> BrokerVerdict:
    """
    Compare the slaves of one broker with its master.

    :param replicas: the replicas of the broker, its master first.
    """
    master, slaves = replicas[0], replicas[1:]
    told = BrokerVerdict(master.state.broker, len(replicas), None, "", [])
    try:
        for replica in replicas:
            more = [*replica.findings(), *_old(replica, patience, now_ms)]
            told = told._replace(findings=[*told.findings, *more])
        for slave in slaves:
            told = _compared(told, master, slave, patience)
        safe, verdict, offsets = _offsets(master, slaves, limits, patience)
    except CannotDecide as error:
        return told._replace(verdict=f"could not decide: {error}")
    findings = [*told.findings, *offsets]
    errors = [finding for finding in findings if finding.severity == Severity.ERROR]
    if errors:
        verdict = f"{len(errors)} errors, first {errors[0].code}; {verdict}"
    return told._replace(findings=findings, is_safe=safe and not errors, verdict=verdict)


def _old(replica: Replica, patience: Patience, now_ms: int) -> Iterator[Finding]:
    age = now_ms - replica.state.scanned_at
    if age > patience.age_ms:
        note = f"Scanned {age // 60_000} minutes ago on {replica.state.host or 'an unnamed host'}."
        yield finding("FACTS_OLD", note, broker=replica.state.place)


def _offsets(
    master: Replica, slaves: Sequence[Replica], limits: Limits, patience: Patience
) -> tuple[bool | None, str, Sequence[Finding]]:
    """Decide by the tables that both sides kept with their facts whether a failover is safe."""
    if not slaves:
        return None, "no slave", [finding("NO_REPLICA", broker=master.state.broker)]
    seen = [f"{replica.directory}/snapshots" for replica in (master, *slaves)]
    told = answer(
        [kept_pairing(seen[0], of_slave, patience.skew_ms) for of_slave in seen[1:]], limits
    )
    is_open = told.outcome is Outcome.UNDECIDED
    return None if is_open else bool(told.numbers["safe"]), told.verdict, told.findings


# The logs


def _compared(
    told: BrokerVerdict, master: Replica, slave: Replica, patience: Patience
) -> BrokerVerdict:
    findings = list(told.findings)
    mine, theirs = master.state, slave.state
    names = mine.place, theirs.place
    if theirs.scanned_at <= mine.scanned_at or theirs.high <= mine.high:
        ranges = (mine.low, mine.high), (theirs.low, theirs.high)
        findings += judge_bounds(names, ranges, is_quorum=False)
    low, high = max(mine.low, theirs.low), min(mine.high, theirs.high)
    same, spans = differing(master, slave, low, high)
    fetched, shifted = 0, False
    for number, span in enumerate(spans):
        if number >= _MOST_FETCHED or not patience.fetches:
            findings.append(_named(names, span, "it was not fetched"))
            continue
        more, why, shifted = _fetched(names, span, shifted)
        fetched += 0 if why else 2 * (span[1] - span[0])
        findings += more or [_named(names, span, why)]
    compared = same + sum(end - begin for begin, end in spans)
    return told._replace(
        findings=findings,
        compared=told.compared + compared,
        differing=told.differing + len(spans),
        fetched=told.fetched + fetched,
        left=told.left + max(0, high - low - compared),
    )


def differing(
    master: Replica, slave: Replica, low: int, high: int
) -> tuple[int, list[tuple[int, int]]]:
    """
    Return how many bytes are equal on both sides, and the windows that differ.

    :param low: where the part of the log begins that both have.
    :param high: where that part ends.
    """
    left, right = (_columns(replica, low, high) for replica in (master, slave))
    _, mine, theirs = np.intersect1d(left[0], right[0], assume_unique=True, return_indices=True)
    comparable = left[1][mine] == right[1][theirs]
    mine, theirs = mine[comparable], theirs[comparable]
    equal = (left[2][mine] == right[2][theirs]).all(axis=1)
    sizes = left[1][mine] - left[0][mine]
    odd = mine[~equal]
    spans = list(zip(left[0][odd].tolist(), left[1][odd].tolist(), strict=True))
    return int(sizes[equal].sum()), sorted(spans)


def _columns(replica: Replica, low: int, high: int) -> tuple[Any, Any, Any]:
    """Return low, high and digest of the windows; of a window that was read twice, the newest."""
    table = replica.table(WINDOWS).combine_chunks()
    if not table.num_rows:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, 16), np.uint8)
    lows, highs = (table[name].to_numpy() for name in ("low", "high"))
    digests = table["digest"].combine_chunks()
    raw = np.frombuffer(digests.buffers()[1], np.uint8)
    rows = raw[16 * digests.offset :][: 16 * len(digests)].reshape(-1, 16)
    inside = np.flatnonzero((lows >= low) & (highs <= high))
    _, first = np.unique(lows[inside][::-1], return_index=True)
    kept = inside[len(inside) - 1 - first]
    return lows[kept], highs[kept], rows[kept]


def _named(names: Sequence[str], span: tuple[int, int], why: str) -> Finding:
    return finding(
        "DIGEST_DIFFERS",
        f"[{span[0]}, {span[1]}) of {names[0]} and {names[1]}; {why}.",
        broker=names[1],
        physical_offset=span[0],
    )


def _fetched(
    names: Sequence[str], span: tuple[int, int], was_shifted: bool
) -> tuple[list[Finding], str, bool]:
    """
    Return the findings of a window, or the reason why it cannot be compared here; and whether the
    records after it are shifted.

    :param was_shifted: the window before it ended shifted.
    """
    logs = []
    for place in names:
        try:
            log = opened(StoreAt(place), None).log
        except CannotDecide as error:
            return [], f"the store {place} is not seen from here ({error})", was_shifted
        logs.append(Log(log.files, log.row, min(log.stop, span[1])))
    sides = Sides(logs[0], logs[1], names[0], names[1], span[1] - span[0])
    try:
        first = sides.master.place_of(span[0])
        if (was_shifted or first.start < span[0]) and is_shifted(sides, first):
            return [], "the logs are out of step since before it", True
        result = compare(sides, *span)
        findings = result.findings
        if result.shift >= 0:
            part = Part(span, span, result.shift, is_last=True)
            findings += [change.finding for change in align_part(sides, part, _MOST_ALIGNED)]
        is_apart = sides.master.place_of(span[1] - 1) != sides.slave.place_of(span[1] - 1)
    except CannotDecide as error:
        return [], f"it could not be read ({error})", was_shifted
    return findings, "" if findings else "both sides have the same there now", is_apart
