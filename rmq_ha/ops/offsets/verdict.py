"""Answers from the pairings whether a failover is safe."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rmq_ha.ops.offsets.codes import MEANINGS
from rmq_ha.ops.offsets.findings import Finding, Outcome, Severity
from rmq_ha.ops.offsets.judgement import JudgedKey, WorstGroup, findings, judged, sums, worst_groups
from rmq_ha.ops.offsets.model import DELAY, NUMBERS, TEXTS, Snapshot
from rmq_ha.ops.offsets.pairing import Forecast, Pairing, is_pair
from rmq_ha.ops.offsets.snapshot_history import is_slave

_GROUPS = 200
"""How many of the worst groups a verdict has."""


class Limits(NamedTuple):
    """
    The limits within which a failover is safe.

    :ivar max_lag: messages that a queue of a slave may lack.
    :ivar max_repeats: messages that may be repeated; None: any number.
    """

    max_lag: int = 0
    max_repeats: int | None = None


@dataclass(frozen=True)
class PairVerdict:
    """The answer for one master and its slaves; `rows` has every key of every slave."""

    rows: Sequence[JudgedKey]
    findings: Sequence[Finding]
    by_slave: Mapping[str, Forecast]
    worst: Sequence[WorstGroup]
    outcome: Outcome
    verdict: str
    numbers: Mapping[str, Any]


def answer(pairings: Sequence[Pairing], limits: Limits, past: int = 0) -> PairVerdict:
    """Judge every slave, and give one answer; `past` is how many violations a history holds."""
    rows = judged(pairings, limits.max_lag)
    by_slave = {pairing.slave.place: Forecast() for pairing in pairings} | sums(rows)
    groups = worst_groups(rows, _GROUPS)
    heads = list(
        dict.fromkeys(head for item in pairings for head in (*head_findings(item), *_untold(item)))
    )
    for item in heads:
        if item.severity == Severity.ERROR:
            # The master's right value is not known, which concerns every slave.
            for slave in [item.broker] if item.broker in by_slave else list(by_slave):
                known = by_slave[slave]
                by_slave[slave] = known._replace(errors=known.errors + 1)
    outcome, verdict = decided(by_slave, groups, limits, past)
    best = best_of(by_slave, limits)[0]
    verdict += _looked_at(next(item for item in pairings if item.slave.place == best))
    numbers = {
        "safe": verdict.startswith(_SAFE),
        "slaves": {name: item._asdict() for name, item in by_slave.items()},
        "worst": [item._asdict() for item in groups[:10]],
        "messagesRead": {item.slave.place: item.slave.messages_read for item in pairings},
        "notCompared": {item.slave.place: not_compared(item) for item in pairings},
        "historyViolations": past,
    }
    return PairVerdict(rows, [*findings(rows), *heads], by_slave, groups, outcome, verdict, numbers)


def _looked_at(pairing: Pairing) -> str:
    """Return the words that name the samples on which the numbers of a verdict rest."""
    queues = len(pairing.bounds_of(pairing.slave))
    read = pairing.slave.messages_read
    messages = f"{read} messages" if read else "no message"
    return f"; compared the ends of {queues} queues, read {messages} of the slave"


def not_compared(pairing: Pairing) -> list[str]:
    """Return the kinds of facts that one side does not tell."""
    return sorted({*NUMBERS, *TEXTS} - pairing.kinds)


def _untold(pairing: Pairing) -> list[Finding]:
    """Return a finding if one side lacks kinds of facts, and no damage explains that."""
    faults = {code for side in (pairing.masters[-1], pairing.slave) for code, _ in side.faults}
    missing = [kind for kind in not_compared(pairing) if kind != DELAY]
    if not missing or "TABLE_DAMAGED" in faults:
        return []
    head = _head("NOT_TOLD", pairing.slave, None, None)
    return [head._replace(detail=f"{', '.join(missing)}: {head.detail}")]


# The verdict

_SAFE = "safe to fail over: yes"
_UNSAFE = "safe to fail over: no"


def decided(
    by_slave: dict[str, Forecast],
    worst: Sequence[WorstGroup],
    limits: Limits,
    past: int,
) -> tuple[Outcome, str]:
    """Return the outcome and its text; of several slaves the best one counts."""
    name, best = best_of(by_slave, limits)
    reasons = _reasons(best, limits)
    says = (
        f"; {best.repeats} messages would be repeated, {best.skipped} skipped, {best.lost} lost"
        f"{_worst_of(name, worst)}"
    )
    if best.delay_repeats:
        says += f"; {best.delay_repeats} delayed messages delivered again"
    if len(by_slave) > 1:
        says += f" (with {name}, the best of {len(by_slave)} slaves)"
    if past:
        says += f"; the history holds {past} violations"
    others = sum(item.errors for item in by_slave.values()) - best.errors
    if reasons:
        pending = best.unsettled or best.lost or best.skipped
        is_open = bool(pending) and not (best.errors or past)
        text = f"{_UNSAFE}: {', '.join(reasons)}{says}"
        return (Outcome.UNDECIDED if is_open else Outcome.VIOLATED), text
    is_violated = bool(past or others)
    return (Outcome.VIOLATED if is_violated else Outcome.HOLDS), _SAFE + says


def best_of(by_slave: Mapping[str, Forecast], limits: Limits) -> tuple[str, Forecast]:
    """Return the slave to fail over to."""
    return min(by_slave.items(), key=lambda item: _badness(item[1], limits))


def _badness(totals: Forecast, limits: Limits) -> tuple[bool, int, int]:
    """Return the sort key of a slave: the best slave to fail over to has the least."""
    bad = bool(_reasons(totals, limits))
    return bad, totals.errors + totals.lost + totals.skipped, totals.repeats


def _reasons(totals: Forecast, limits: Limits) -> list[str]:
    """Return why a failover to a slave is not safe; empty: it is safe."""
    reasons = []
    if totals.errors:
        reasons.append("1 error" if totals.errors == 1 else f"{totals.errors} errors")
    if totals.skipped and not totals.errors:
        reasons.append("messages would be skipped")
    if totals.lost and not totals.errors and not limits.max_lag:
        reasons.append("the slave's log is still being copied")
    if totals.unsettled and not totals.errors:
        reasons.append(f"{totals.unsettled} differences that may still go away")
    if limits.max_repeats is not None and totals.repeats > limits.max_repeats:
        reasons.append(f"more than {limits.max_repeats} repeats")
    return reasons


def _worst_of(slave: str, worst: Sequence[WorstGroup]) -> str:
    """Return the words that name the worst group of a slave; empty: no group is harmed."""
    first = next((item for item in worst if item.slave == slave), None)
    if first is None:
        return ""
    return f"; worst: group {first.group}, queue {first.queue_id} of {first.topic}"


# What the replicas report about themselves


def head_findings(pairing: Pairing) -> list[Finding]:
    """Return findings about a pair as a whole: roles, names and damage."""
    master, slave = pairing.masters[-1], pairing.slave
    heads = []
    if master.role is not None and is_slave(master):
        heads.append(_head("NOT_THE_MASTER", master, "a master", master.role))
    if slave.role is not None and not is_slave(slave):
        heads.append(_head("NOT_A_SLAVE", slave, "SLAVE", slave.role))
    if not is_pair(pairing):
        is_other = master.broker != slave.broker
        code = "OTHER_BROKER" if is_other else "SAME_BROKER"
        expected = str(master.broker) if is_other else f"another id than {master.broker_id}"
        actual = str(slave.broker) if is_other else f"{slave.broker}, id {slave.broker_id}"
        heads.append(_head(code, slave, expected, actual))
    for snapshot in (master, slave):
        for code, where in snapshot.faults:
            head = _head(code, snapshot, None, None)
            if snapshot is master and code == "STORE_DAMAGED":  # the slave is as safe as before
                head = head._replace(severity=str(Severity.WARN))
            heads.append(head._replace(detail=f"{where}: {head.detail}"))
    return heads


def _head(code: str, snapshot: Snapshot, expected: str | None, actual: str | None) -> Finding:
    meaning = MEANINGS[code]
    return Finding(
        str(meaning.severity),
        code,
        meaning.sentence,
        broker=snapshot.place,
        expected=expected,
        actual=actual,
    )
