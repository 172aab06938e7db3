"""From pairings to the job's answer."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from rmq_ha.spark.findings import FINDINGS, Finding, Severity
from rmq_ha.spark.offsets import frames, history
from rmq_ha.spark.offsets.codes import MEANINGS
from rmq_ha.spark.offsets.model import DELAY, OFFSET, Snapshot
from rmq_ha.spark.offsets.pairing import Forecast, Pairing, is_pair
from rmq_ha.spark.offsets.repair import steps
from rmq_ha.spark.offsets.report import Worst, not_compared, sections_of
from rmq_ha.spark.result import JobResult, Outcome

_GROUPS = 200
_ERRORS = [name for name, item in MEANINGS.items() if item.severity is Severity.ERROR]


class Limits(NamedTuple):
    """
    What still is safe.

    :ivar max_lag: messages that a queue of a slave may lack.
    :ivar max_repeats: messages that may be repeated; None: any number.
    """

    max_lag: int = 0
    max_repeats: int | None = None


def verify(
    spark: SparkSession,
    pairings: Sequence[Pairing],
    limits: Limits,
    history_directory: str | None = None,
) -> JobResult:
    """
    Judge every slave.

    :param history_directory: of snapshots, to look at the past as well.
    """
    facts = frames.frame_of(spark, frames.facts_of(pairings))
    rows = frames.judged(facts, limits.max_lag)
    by_slave, worst = _summed(rows, len(pairings))
    found = frames.findings(rows, pairings[0].masters[-1].place)
    heads = [finding for pairing in pairings for finding in head_findings(pairing)]
    if heads:
        found = found.unionByName(spark.createDataFrame(heads, FINDINGS))
    past, trend = 0, None
    if history_directory is not None:
        frames.compile_queries(spark)
        over_time = history.offsets_over_time(history.read(spark, history_directory))
        before = history.findings(over_time)
        past = before.filter(F.col("severity") == "ERROR").count()
        trend = history.trend(over_time)
        found = found.unionByName(before)
    for item in heads:
        if item.severity == Severity.ERROR and item.broker in by_slave:
            known = by_slave[item.broker]
            by_slave[item.broker] = known._replace(errors=known.errors + 1)
    outcome, verdict = decided(by_slave, worst, limits, past)
    return JobResult(
        findings=found,
        outcome=outcome,
        verdict=verdict,
        numbers={
            "safe": verdict.startswith(_SAFE),
            "slaves": {name: item._asdict() for name, item in by_slave.items()},
            "worst": [item._asdict() for item in worst[:10]],
            "notCompared": {item.slave.place: not_compared(item) for item in pairings},
            "historyViolations": past,
        },
        sections=sections_of(
            pairings, by_slave, worst, trend, [steps(item, limits.max_lag) for item in pairings]
        ),
        frames={"lag": _lag(rows)},
    )


def _summed(rows: DataFrame, slaves: int) -> tuple[dict[str, Forecast], list[Worst]]:
    """By slave, and the groups with most repeats and skips, in one query."""
    is_delay = F.col("kind") == DELAY
    codes, none = F.col("codes"), F.lit(0)
    moved = F.when(F.col("kind") == OFFSET, F.col("repeats") + F.col("skipped")).otherwise(none)

    def total(value: Column) -> Column:
        return F.coalesce(F.sum(value), none)

    errors = F.size(F.array_intersect(codes, F.array(*map(F.lit, _ERRORS))))
    summed = rows.rollup("slave", "group").agg(
        F.grouping_id().alias("grouping"),
        total(F.when(~is_delay, F.col("repeats"))).alias("repeats"),
        total(F.col("skipped")).alias("skipped"),
        total(F.col("lost")).alias("lost"),
        total(F.when(is_delay, F.col("repeats"))).alias("delayRepeats"),
        total(errors).alias("errors"),
        total(F.array_contains(codes, "UNSETTLED").cast("int")).alias("unsettled"),
        F.max_by(F.struct("topic", "queueId", moved.alias("moved")), moved).alias("queue"),
    )
    is_group = F.col("group").isNotNull() & (F.col("repeats") + F.col("skipped") > 0)
    found: list[Any] = (
        summed.filter((F.col("grouping") == 1) | ((F.col("grouping") == 0) & is_group))
        .orderBy(F.desc("grouping"), F.desc(F.col("repeats") + F.col("skipped")), "slave", "group")
        .limit(slaves + _GROUPS)
        .collect()
    )
    by_slave = {
        row.slave: Forecast(
            row.repeats, row.skipped, row.lost, row.delayRepeats, row.errors, row.unsettled
        )
        for row in found
        if row.grouping == 1
    }
    worst = [
        Worst(row.slave, row.group, row.repeats, row.skipped, row.queue.topic, row.queue.queueId)
        for row in found
        if row.grouping == 0
    ]
    return by_slave, worst


def _lag(rows: DataFrame) -> DataFrame:
    """Every group's queue, both sides beside each other."""
    master, slave = F.col("master"), F.col("slaveValue")
    return rows.filter(F.col("kind") == OFFSET).select(
        "slave",
        "topic",
        "group",
        "queueId",
        master.alias("masterOffset"),
        slave.alias("slaveOffset"),
        F.col("slaveFirst").alias("slaveMinOffset"),
        F.col("slaveEnd").alias("slaveMaxOffset"),
        (master - slave).alias("diff"),
        "repeats",
        "skipped",
        F.when(F.size("codes") == 0, F.lit("IN_SYNC"))
        .otherwise(F.element_at("codes", 1))
        .alias("status"),
    )


# The verdict

_SAFE = "safe to fail over: yes"
_UNSAFE = "safe to fail over: no"


def decided(
    by_slave: dict[str, Forecast],
    worst: Sequence[Worst],
    limits: Limits,
    past: int,
) -> tuple[Outcome, str]:
    """The outcome, and the line that says it; of several slaves the best one counts."""
    name, best = min(by_slave.items(), key=lambda item: _badness(item[1], limits))
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


def _badness(totals: Forecast, limits: Limits) -> tuple[bool, int, int]:
    bad = bool(_reasons(totals, limits))
    return bad, totals.errors + totals.lost + totals.skipped, totals.repeats


def _reasons(totals: Forecast, limits: Limits) -> list[str]:
    found = []
    if totals.errors:
        found.append("1 error" if totals.errors == 1 else f"{totals.errors} errors")
    if totals.skipped and not totals.errors:
        found.append("messages would be skipped")
    if totals.lost and not totals.errors and not limits.max_lag:
        found.append("the slave's log is still being copied")
    if totals.unsettled and not totals.errors:
        found.append(f"{totals.unsettled} differences that may still go away")
    if limits.max_repeats is not None and totals.repeats > limits.max_repeats:
        found.append(f"more than {limits.max_repeats} repeats")
    return found


def _worst_of(slave: str, worst: Sequence[Worst]) -> str:
    first = next((item for item in worst if item.slave == slave), None)
    if first is None:
        return ""
    return f"; worst: group {first.group}, queue {first.queue_id} of {first.topic}"


# What the replicas say of themselves


def head_findings(pairing: Pairing) -> list[Finding]:
    """Is this a pair?"""
    master, slave = pairing.masters[-1], pairing.slave
    found = []
    if master.role is not None and history.is_slave(master):
        found.append(_head("NOT_THE_MASTER", master, "a master", master.role))
    if slave.role is not None and not history.is_slave(slave):
        found.append(_head("NOT_A_SLAVE", slave, "SLAVE", slave.role))
    if not is_pair(pairing):
        is_other = master.broker != slave.broker
        code = "OTHER_BROKER" if is_other else "SAME_BROKER"
        expected = str(master.broker) if is_other else f"another id than {master.broker_id}"
        actual = str(slave.broker) if is_other else f"{slave.broker}, id {slave.broker_id}"
        found.append(_head(code, slave, expected, actual))
    return found


def _head(code: str, snapshot: Snapshot, expected: str, actual: str) -> Finding:
    meaning = MEANINGS[code]
    return Finding(
        str(meaning.severity),
        code,
        meaning.sentence,
        broker=snapshot.place,
        expected=expected,
        actual=actual,
    )
