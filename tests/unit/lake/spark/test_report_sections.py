"""What reports show of an answer, and the lines over whole fleets: without any session."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import Row

from rmq_ha.lake.scan.replica.tasks import TaskResult
from rmq_ha.lake.scan.replica.verifying import ReplicaComparison
from rmq_ha.lake.spark.audit import job as audit
from rmq_ha.lake.spark.fleet import decided
from rmq_ha.lake.spark.offsets import report as of_offsets
from rmq_ha.lake.spark.offsets.history import Trend
from rmq_ha.lake.spark.replica import report as of_replica
from rmq_ha.lake.spark.result import Plot, Table
from rmq_ha.ops.checks.sums import QueueSum
from rmq_ha.ops.offsets.findings import Outcome
from rmq_ha.ops.offsets.judgement import WorstGroup
from rmq_ha.ops.offsets.model import NUMBERS, TEXTS, Fact, Snapshot
from rmq_ha.ops.offsets.pairing import Forecast, Pairing
from rmq_ha.ops.offsets.repair import RepairStep

ALL = frozenset({*NUMBERS, *TEXTS})


# verify-replica


def verified(
    queues: list[QueueSum], along: list[tuple[int, int]], **sums: Any
) -> ReplicaComparison:
    ranges = [(0, 100), (10, 90)]
    return ReplicaComparison(
        ["m", "s"], ranges, (10, 90), [], TaskResult(**sums), queues, None, 0, 0, along, False
    )


def test_of_two_logs_each_ones_figures_are_shown() -> None:
    told = verified(
        [], [], compared=80, records={0: [7, 700], 1: [6, 600]}, keys={0: [9, 1, 2], 1: [8, 3, 4]}
    )
    (logs,) = of_replica.sections_of(told)
    assert isinstance(logs, Table)
    assert [dict(zip(logs.columns, row, strict=True)) for row in logs.rows] == [
        {
            "role": role, "store": store, "from": low, "to": high, "messages": count, "bytes": size,
            "keys": keys, "older than the index": before, "newer than the index": pending,
        }
        for role, store, low, high, count, size, keys, before, pending in (
            ("master", "m", 0, 100, 7, 700, 9, 1, 2),
            ("slave", "s", 10, 90, 6, 600, 8, 3, 4),
        )
    ]  # fmt: skip
    assert logs.note == "Compared byte by byte: [10, 90), 80 bytes."
    (unread,) = of_replica.sections_of(verified([], []))
    assert isinstance(unread, Table)
    assert [row[4:] for row in unread.rows] == [(0, 0, 0, 0, 0)] * 2


def test_errors_are_drawn_along_the_log_and_the_worst_queues_come_first() -> None:
    def queue(number: int, entries: int, **more: int) -> QueueSum:
        counts = {"matched": entries, "wrong": 0, "missing": 0, "pending": 0, "old": 0} | more
        return QueueSum("s", "t", number, entries, **counts)

    queues = [
        queue(0, 5),
        queue(1, 9),
        queue(2, 4, wrong=1, matched=3),
        queue(3, 4, missing=2),
        queue(4, 9, matched=6),  # three without a message
        queue(5, 1, matched=3),  # fewer than there should be are in `missing`
    ]
    logs, plot, table = of_replica.sections_of(verified(queues, [(10, 2), (50, 1)]))
    assert isinstance(logs, Table)
    assert isinstance(plot, Plot)
    assert isinstance(table, Table)
    assert (plot.x, plot.series, plot.kind) == ([10, 50], {"findings": [2.0, 1.0]}, "scatter")
    assert [row[2] for row in table.rows] == [4, 3, 2, 1, 0, 5]
    assert [row[-1] for row in table.rows] == [3, 0, 0, 0, 0, 0]
    assert table.rows[2][:7] == ("s", "t", 2, 4, 3, 1, 0)
    assert table.note == ""
    for count, note in ((200, ""), (201, "The worst of 201 queues.")):
        many = of_replica.sections_of(verified([queue(at, 1) for at in range(count)], []))[-1]
        assert isinstance(many, Table)
        assert (len(many.rows), many.note) == (200, note)


# verify-offsets


def side(place: str, facts: int, *, resting: bool, kinds: frozenset[str] = ALL) -> Snapshot:
    some = tuple(Fact("log", str(number)) for number in range(facts))
    role = "SLAVE" if place.startswith("s") else "SYNC_MASTER"
    return Snapshot(place, "b", 0, role, resting, 0, 0, kinds, some)


def test_replicas_and_what_a_fail_over_does_are_shown_in_any_case() -> None:
    masters = [side("old", 1, resting=False), side("m", 2, resting=False)]
    blind = side("s2", 4, resting=False, kinds=ALL - {"delay", "group"})
    pairings = [Pairing(masters, side("s", 3, resting=True), True), Pairing(masters, blind, True)]
    found = of_offsets.sections_of(pairings, {"s": Forecast(1, 2, 3, 4, 5, 6)}, [], None, [[]])
    replicas, forecast = found
    assert isinstance(replicas, Table)
    assert isinstance(forecast, Table)
    assert replicas.rows == [
        ("master", "m", "b", "SYNC_MASTER", "running", 2),
        ("slave", "s", "b", "SLAVE", "at rest", 3),
        ("slave", "s2", "b", "SLAVE", "running", 4),
    ]
    assert replicas.note == (
        "The slaves were held against 2 samples of the master around them. Not compared, as one"
        " side does not tell: delay, group."
    )
    assert [tuple(row) for row in forecast.rows] == [("s", 1, 2, 3, 4, 5, 6)]
    (whole, *_) = of_offsets.sections_of(pairings[:1], {}, [], None, [])
    assert isinstance(whole, Table)
    assert whole.note.endswith("around them.")


def test_groups_that_suffer_a_trend_and_a_plan_are_shown_where_there_are_some() -> None:
    worst = [WorstGroup("s", f"g{number}", 30 - number, number, "t", 0) for number in range(25)]
    trend = Trend([0, 60_000], {"g": [1.0, 2.0]})
    plans = [[RepairStep("a", "one")], [RepairStep("b", "two")] * 400]
    pairings = [Pairing([side("m", 1, resting=True)], side("s", 1, resting=True), True)]
    _, _, table, bars, line, plan = of_offsets.sections_of(pairings, {}, worst, trend, plans)
    assert isinstance(table, Table)
    assert list(table.rows) == worst
    assert isinstance(bars, Plot)
    assert bars.x == [f"g{number}" for number in range(20)]
    assert bars.series == {
        "repeated": [30.0 - number for number in range(20)],
        "skipped": [float(number) for number in range(20)],
    }
    assert isinstance(line, Plot)
    assert line.x == [datetime(1970, 1, 1, 0, minute, tzinfo=UTC) for minute in (0, 1)]
    assert line.series == {"g": [1.0, 2.0]}
    assert isinstance(plan, Table)
    assert len(plan.rows) == 300
    assert plan.rows[:2] == [(1, "a", "one"), (2, "b", "two")]
    for nothing in (None, Trend([], {})):
        assert of_offsets.trend_of(nothing) == []


# The lines


def broker(name: str, code: int = 0, **more: Any) -> Row:
    given = {"safe": True, "replicas": 2, "differing": 0, "verdict": f"says {name}"} | more
    return Row(broker=name, exitCode=code, **given)


@pytest.mark.parametrize(
    ("rows", "outcome", "line"),
    [
        (
            [broker("a"), broker("b", replicas=1, safe=None)],
            Outcome.HOLDS,
            "2 brokers, 9 stores: logs differ in 0, safe to fail over 1, without a slave 1",
        ),
        (
            [broker("a"), broker("b", 3, safe=None), broker("c", 3, safe=None)],
            Outcome.UNDECIDED,
            "3 brokers, 9 stores: logs differ in 0, safe to fail over 1, without a slave 0, could"
            " not be decided 2; first: b: says b",
        ),
        (
            [broker("b", 3, safe=None), broker("c", 1, safe=False, differing=4), broker("d", 1)],
            Outcome.VIOLATED,
            "3 brokers, 9 stores: logs differ in 1, safe to fail over 1, without a slave 0, could"
            " not be decided 1; first: c: says c",
        ),
    ],
)
def test_the_worst_broker_decides_for_a_fleet(rows: list[Row], outcome: Outcome, line: str) -> None:
    assert decided(rows, 9) == (outcome, line)


@pytest.mark.parametrize(
    ("errors", "ledgers", "line"),
    [
        ({}, [], "HOLDS: 1,234 messages in 5 queues: no gap, no damage, in order"),
        (
            {},
            ["delivered"],
            "HOLDS: 1,234 messages in 5 queues: no gap, no damage, in order, compared with the"
            " ledgers of consumers",
        ),
        (
            {},
            ["produced", "delivered"],
            "HOLDS: 1,234 messages in 5 queues: no gap, no damage, in order, nothing acknowledged"
            " is lost, compared with the ledgers of producers and consumers",
        ),
        (
            {"GAP": 1000, "LOST": 2},
            ["produced"],
            "VIOLATED: 1,000 GAP, 2 LOST; 1,234 messages in 5 queues",
        ),
    ],
)
def test_the_line_of_an_audit_promises_no_more_than_was_looked_at(
    errors: dict[str, int], ledgers: list[str], line: str
) -> None:
    assert audit._verdict({"stored": 1234, "queues": 5}, errors, ledgers) == line
