"""The sections of the report."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rmq_ha.lake.spark.result import Plot, Table
from rmq_ha.ops.offsets.judgement import WorstGroup
from rmq_ha.ops.offsets.pairing import Pairing
from rmq_ha.ops.offsets.repair import RepairStep
from rmq_ha.ops.offsets.verdict import not_compared

if TYPE_CHECKING:  # a pair without a history needs no Arrow
    from rmq_ha.lake.spark.offsets.history import Trend

_MOST = 300
_BARS = 20


def sections_of(
    pairings: Sequence[Pairing],
    by_slave: Mapping[str, Any],
    worst: Sequence[WorstGroup],
    trend: "Trend | None",
    plans: Sequence[Sequence[RepairStep]],
) -> list[Table | Plot]:
    """Return the sections in the order in which readers need them."""
    sections: list[Table | Plot] = [_replicas(pairings), _forecast(by_slave)]
    if worst:
        sections += [_worst_groups_table(worst), _bars(worst)]
    sections += trend_of(trend)
    plan = [step for steps in plans for step in steps]
    if plan:
        sections.append(
            Table(
                "Repair plan",
                ("step", "why", "command"),
                [(number, *step) for number, step in enumerate(plan[:_MOST], 1)],
                "Proposed, never applied; --repair DIR writes it down, with the merged tables.",
            )
        )
    return sections


def _replicas(pairings: Sequence[Pairing]) -> Table:
    rows = []
    for what, item in [
        ("master", pairings[0].masters[-1]),
        *(("slave", pairing.slave) for pairing in pairings),
    ]:
        state = "at rest" if item.is_resting else "running"
        rows.append((what, item.place, item.broker, item.role, state, len(item.facts)))
    count = len(pairings[0].masters)
    unknown = ", ".join(sorted({kind for pairing in pairings for kind in not_compared(pairing)}))
    note = f"The slaves were held against {count} samples of the master around them."
    if unknown:
        note += f" Not compared, as one side does not tell: {unknown}."
    return Table("Replicas", ("as", "place", "broker", "role", "state", "facts"), rows, note)


def _forecast(by_slave: Mapping[str, Any]) -> Table:
    return Table(
        "A fail-over now",
        ("slave", "repeated", "skipped", "lost", "delayed again", "errors", "not settled"),
        [(name, *totals) for name, totals in by_slave.items()],
        "In messages; errors and what is not settled in keys (a group's queue, a topic, ...).",
    )


def _worst_groups_table(worst: Sequence[WorstGroup]) -> Table:
    return Table(
        "Groups with most to repeat or skip",
        ("slave", "group", "repeated", "skipped", "worst topic", "queue"),
        worst,
    )


def _bars(worst: Sequence[WorstGroup]) -> Plot:
    shown = worst[:_BARS]
    return Plot(
        "What a fail-over does to groups",
        [item.group for item in shown],
        {
            "repeated": [float(item.repeats) for item in shown],
            "skipped": [float(item.skipped) for item in shown],
        },
        "group",
        "messages",
        kind="bar",
    )


def trend_of(trend: "Trend | None") -> list[Plot]:
    """Return a plot of the messages that a fail-over would have repeated; no plot without data."""
    if trend is None or not trend.moments:
        return []
    return [
        Plot(
            "Messages that a fail-over would have repeated",
            [datetime.fromtimestamp(moment / 1000, UTC) for moment in trend.moments],
            trend.groups,
            "time (UTC)",
            "messages",
            note="By group, from the history of snapshots; the groups with most.",
        )
    ]
