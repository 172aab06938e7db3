"""
Judges one broker by the facts of its replicas. Of the logs only windows that differ are read.

A window that differs is fetched from both stores, if they can be opened on this machine.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from rmq_ha.base.errors import CannotDecide
from rmq_ha.lake.scan.fleet.facts import FINDINGS, IDS, SUMS, WINDOWS, ReplicaFacts, State
from rmq_ha.lake.scan.replica.comparing import LogPart, Sides, align_part, compare, is_shifted
from rmq_ha.lake.scan.replica.logs import Log
from rmq_ha.lake.scan.replica.settings import StoreAt, opened
from rmq_ha.lake.scan.replica.verdicts import judge_bounds
from rmq_ha.ops.checks.codes import finding
from rmq_ha.ops.offsets.findings import Finding, Outcome, Severity
from rmq_ha.ops.offsets.snapshot_history import kept_pairing
from rmq_ha.ops.offsets.verdict import Limits, answer

_MOST_FETCHED = 16
"""How many windows of one replica are fetched; the others are only named."""
_MOST_ALIGNED = 64
_MINUTE_MS = 60_000
DAY_MS = 86_400_000
LOOK_MS = 45 * DAY_MS
"""
A window is expected to have been read within this time. A daily scan that reads a thirtieth of the
log again has read each window in the last 31 days.
"""
_UNDECIDED = (
    "FACTS_DAMAGED", "FACTS_OLD", "GRID_DIFFERS", "NOT_COMPARED", "NO_REPLICA", "NO_MASTER",
)  # fmt: skip
"""Codes of findings that leave it undecided whether the broker can fail over."""


class JudgingLimits(NamedTuple):
    """
    The limits and options of a check.

    :ivar alone: names of brokers that have no slave on purpose.
    :ivar ids: whether the facts about ids have to be whole.
    """

    skew_ms: int = 20_000
    age_ms: int = DAY_MS
    fetches: bool = True
    alone: frozenset[str] = frozenset()
    ids: bool = False


class BrokerVerdict(NamedTuple):
    """
    The verdict on one broker.

    :ivar is_safe: whether one of its slaves can take over; None: it has no slave, or this cannot be
        decided.
    :ivar compared: bytes of the logs that were compared, because two replicas have digests of them.
    :ivar left: bytes of which only one side has a digest, like the end of a log that grows.
    :ivar oldest_look: when the window was read that has not been read for longest, in ms since the
        epoch; 0: not known.
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
    oldest_look: int = 0

    def plus(self, findings: Iterable[Finding]) -> "BrokerVerdict":
        """Return this verdict with more findings."""
        return self._replace(findings=[*self.findings, *findings])

    @property
    def outcome(self) -> Outcome:
        """Outcome of a job that judges this broker alone."""
        if any(finding.severity == Severity.ERROR for finding in self.findings):
            return Outcome.VIOLATED
        is_alone = any(finding.code == "ALONE" for finding in self.findings)
        if self.is_safe is None and not is_alone:
            return Outcome.UNDECIDED
        return Outcome.VIOLATED if self.is_safe is False else Outcome.HOLDS


def scanned_twice(replicas: Sequence[ReplicaFacts]) -> frozenset[str]:
    """Return the directories of facts whose store was scanned under several names."""
    twice = set()
    for replica, other in combinations([store for store in replicas if not store.fault], 2):
        if replica.state.is_same_store(other.state):
            twice |= {replica.directory, other.directory}
    return frozenset(twice)


def judge(
    replicas: Sequence[ReplicaFacts],
    limits: Limits,
    patience: JudgingLimits,
    now_ms: int,
    twice: Collection[str] = (),
) -> BrokerVerdict:
    """
    Compare the slaves of one broker with its master.

    :param replicas: the replicas of the broker, its master first.
    :param patience: how old the facts may be, and options of the check.
    :param twice: result of `scanned_twice` for the whole fleet.
    """
    damage = {store.directory: _damage(store, patience) for store in replicas}
    result = BrokerVerdict(replicas[0].state.broker, len(replicas), None, "", [])
    for replica in replicas:
        result = result.plus([*damage[replica.directory], *_findings_of(replica)])
    replicas = [store for store in replicas if not damage[store.directory]]
    is_damaged = any(damage.values())
    if not replicas:
        return result._replace(verdict="could not decide: FACTS_DAMAGED; nothing was compared")
    master, slaves = replicas[0], replicas[1:]
    looks = [replica.state.oldest_look for replica in replicas]
    result = result._replace(oldest_look=min(looks) if all(looks) else 0)
    # Each step adds its findings to `result`, so that a step that cannot decide loses none of them.
    try:
        for replica in replicas:
            result = result.plus(_age_findings(replica, patience, now_ms))
        names = _name_findings(replicas, patience, twice, is_damaged=is_damaged)
        result = result.plus(names)
        if master.state.broker_id:
            what = "FACTS_DAMAGED" if is_damaged else "there are no facts of the master"
            return result._replace(verdict=f"could not decide: {what}")
        for slave in slaves:
            result = _add_log_comparison(result, master, slave, patience)
        safe, verdict, offsets = _judge_failover(master, slaves, limits, patience)
    except CannotDecide as error:
        result = result.plus([finding("FACTS_DAMAGED", f"{error}.", broker=master.state.broker)])
        return result._replace(verdict=f"could not decide: {error}")
    if is_damaged and not slaves:
        verdict = "no facts of another store can be read"
    findings = [*result.findings, *offsets]
    errors = [finding for finding in findings if finding.severity == Severity.ERROR]
    is_open = [finding.code for finding in findings if finding.code in _UNDECIDED]
    if errors:
        also = ", FACTS_DAMAGED" if is_damaged else ""
        verdict = f"{len(errors)} errors, first {errors[0].code}{also}; {verdict}"
    elif is_open:
        verdict = f"could not decide: {', '.join(dict.fromkeys(is_open))}; {verdict}"
    elif slaves:
        verdict += f"; {_last_look_text(result.oldest_look, now_ms)}"
    is_safe = False if errors else None if is_open else safe
    return result._replace(findings=findings, is_safe=is_safe, verdict=verdict)


def _damage(replica: ReplicaFacts, patience: JudgingLimits) -> list[Finding]:
    kinds = (WINDOWS, FINDINGS, SUMS, *((IDS,) if patience.ids else ()))
    faults = [replica.fault] if replica.fault else replica.faults(kinds)
    return [finding("FACTS_DAMAGED", f"{fault}.", broker=replica.directory) for fault in faults]


def _findings_of(replica: ReplicaFacts) -> list[Finding]:
    """Return the faults that the scan found in the store; none if their file is damaged."""
    try:
        return list(replica.findings())
    except CannotDecide:
        return []


def _last_look_text(oldest_look: int, now_ms: int) -> str:
    if not oldest_look:
        return "it is not known when each window of the logs was read"
    days = max(0, now_ms - oldest_look) // DAY_MS + 1
    return f"each window of the logs was read in the last {days} d"


def _age_findings(replica: ReplicaFacts, patience: JudgingLimits, now_ms: int) -> Iterator[Finding]:
    state = replica.state
    age, host = now_ms - state.scanned_at, state.host or "an unnamed host"
    if age > patience.age_ms:
        note = f"Scanned {age // 60_000} minutes ago on {host}."
        yield finding("FACTS_OLD", note, broker=state.place)
    elif -age > max(patience.skew_ms, _MINUTE_MS):
        note = f"Scanned {-age // 60_000} minutes from now on {host}."
        yield finding("FACTS_OLD", note, broker=state.place)
    if state.oldest_look and now_ms - state.oldest_look > LOOK_MS:
        days = (now_ms - state.oldest_look) // DAY_MS
        yield finding("LOOK_OLD", f"A window was last read {days} days ago.", broker=state.place)


def _name_findings(
    replicas: Sequence[ReplicaFacts],
    patience: JudgingLimits,
    twice: Collection[str],
    *,
    is_damaged: bool,
) -> Iterator[Finding]:
    """Yield findings about the names under which the stores of a broker were scanned."""
    master = replicas[0].state
    mine = scanned_twice(replicas)
    numbers = Counter(replica.state.broker_id for replica in replicas)
    for replica in replicas:
        state = replica.state
        if replica.directory in mine or replica.directory in twice:
            note = f"{state.place} on {state.host or 'an unnamed host'}."
            yield finding("SAME_STORE", note, broker=state.place)
        elif numbers[state.broker_id] > 1:
            note = f"Several directories of facts have the id {state.broker_id}."
            yield finding("SAME_STORE", note, broker=state.place)
    if is_damaged:
        return
    if master.broker_id:
        yield finding("NO_MASTER", broker=master.broker)
    elif len(replicas) == 1:
        is_alone = master.broker in patience.alone
        yield finding("ALONE" if is_alone else "NO_REPLICA", broker=master.broker)


def _judge_failover(
    master: ReplicaFacts, slaves: Sequence[ReplicaFacts], limits: Limits, patience: JudgingLimits
) -> tuple[bool | None, str, Sequence[Finding]]:
    """Decide by the tables that both sides kept with their facts whether a failover is safe."""
    if not slaves:
        return None, "no slave", []
    seen = [f"{replica.directory}/snapshots" for replica in (master, *slaves)]
    result = answer(
        [kept_pairing(seen[0], of_slave, patience.skew_ms) for of_slave in seen[1:]], limits
    )
    is_open = result.outcome is Outcome.UNDECIDED
    return None if is_open else bool(result.numbers["safe"]), result.verdict, result.findings


# The logs


def _add_log_comparison(
    result: BrokerVerdict, master: ReplicaFacts, slave: ReplicaFacts, patience: JudgingLimits
) -> BrokerVerdict:
    """Return the verdict together with the comparison of a slave's log with its master's."""
    findings = list(result.findings)
    mine, theirs = master.state, slave.state
    names = mine.place, theirs.place
    if theirs.scanned_at <= mine.scanned_at or theirs.high <= mine.high:
        ranges = (mine.low, mine.high), (theirs.low, theirs.high)
        findings += judge_bounds(names, ranges, is_quorum=False)
    low, high = max(mine.low, theirs.low), min(mine.high, theirs.high)
    match = matching(master, slave, low, high)
    findings += _coverage_findings(mine, theirs, match, low, high)
    fetched, shifted = 0, False
    for number, span in enumerate(match.spans):
        if number >= _MOST_FETCHED or not patience.fetches:
            findings.append(_digest_finding(names, span, "it was not fetched"))
            continue
        more, why, shifted = _compare_in_stores(names, span, shifted)
        fetched += 0 if why else 2 * (span[1] - span[0])
        findings += more or [_digest_finding(names, span, why)]
    return result._replace(
        findings=findings,
        compared=result.compared + match.compared,
        differing=result.differing + len(match.spans),
        fetched=result.fetched + fetched,
        left=result.left + match.covered - match.compared,
    )


def _coverage_findings(
    mine: State, theirs: State, match: "Match", low: int, high: int
) -> Iterator[Finding]:
    """
    Yield findings if much of the log was not compared. Windows at its end are no fault: one of the
    sides has grown since the other was scanned.
    """
    if mine.window != theirs.window:
        sizes = f"Windows of {mine.window} and of {theirs.window} bytes."
        yield finding("GRID_DIFFERS", sizes, broker=theirs.place)
    elif (match.settled - match.settled_compared) * 100 > match.settled or (
        low < high and not match.compared
    ):
        missing = max(match.covered, 1) - match.compared
        note = f"{missing} of {max(match.covered, high - low)} bytes."
        yield finding("NOT_COMPARED", note, broker=theirs.place)


class Match(NamedTuple):
    """
    The result of comparing the digests of a master and a slave.

    :ivar compared: bytes of the windows of which both have a digest.
    :ivar covered: bytes of the log of which at least one side has a digest.
    :ivar settled: bytes of those windows that both logs had as a whole when they were scanned.
    """

    compared: int
    spans: list[tuple[int, int]]
    covered: int
    settled: int
    settled_compared: int


def matching(master: ReplicaFacts, slave: ReplicaFacts, low: int, high: int) -> Match:
    """Compare the digests of two replicas, from `low` to `high`, which both have."""
    left, right = (_columns(replica, low, high) for replica in (master, slave))
    end = min(master.state.end, slave.state.end)
    _, mine, theirs = np.intersect1d(left[0], right[0], assume_unique=True, return_indices=True)
    comparable = left[1][mine] == right[1][theirs]
    mine, theirs = mine[comparable], theirs[comparable]
    equal = (left[2][mine] == right[2][theirs]).all(axis=1)
    odd = mine[~equal]
    spans = list(zip(left[0][odd].tolist(), left[1][odd].tolist(), strict=True))
    sizes = [side[1] - side[0] for side in (left, right)]
    settled = max(
        int(size[side[1] <= end].sum()) for size, side in zip(sizes, (left, right), strict=True)
    )
    compared = sizes[0][mine]
    return Match(
        int(compared.sum()),
        sorted(spans),
        max(int(size.sum()) for size in sizes),
        settled,
        int(compared[left[1][mine] <= end].sum()),
    )


def _columns(replica: ReplicaFacts, low: int, high: int) -> tuple[Any, Any, Any]:
    """Return start, end and newest digest of each window."""
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


def _digest_finding(names: Sequence[str], span: tuple[int, int], why: str) -> Finding:
    """Return the finding for a window that differs, and `why` it was not compared itself."""
    return finding(
        "DIGEST_DIFFERS",
        f"[{span[0]}, {span[1]}) of {names[0]} and {names[1]}; {why}.",
        broker=names[1],
        physical_offset=span[0],
    )


def _compare_in_stores(
    names: Sequence[str], span: tuple[int, int], was_shifted: bool
) -> tuple[list[Finding], str, bool]:
    """
    Compare one window in the stores themselves.

    :param was_shifted: whether the records were shifted at the end of the window before it.
    :returns: findings; if there are none, the reason: the window cannot be compared here, or both
        sides have the same bytes by now; and whether the records after the window are shifted.
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
            part = LogPart(span, span, result.shift, is_last=True)
            findings += [change.finding for change in align_part(sides, part, _MOST_ALIGNED)]
        is_apart = sides.master.place_of(span[1] - 1) != sides.slave.place_of(span[1] - 1)
    except CannotDecide as error:
        return [], f"it could not be read ({error})", was_shifted
    return findings, "" if findings else "both sides have the same there now", is_apart
