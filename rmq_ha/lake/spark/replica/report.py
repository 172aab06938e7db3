"""Tables and plots of `verify-replica`'s report."""

from collections.abc import Sequence

from rmq_ha.lake.scan.replica.verifying import ReplicaComparison
from rmq_ha.lake.spark.result import Plot, Table
from rmq_ha.ops.checks.sums import QueueSum

_MOST = 200


def sections_of(told: ReplicaComparison) -> list[Table | Plot]:
    """Return the sections of the report: the logs, errors along them, and the worst queues."""
    sections: list[Table | Plot] = [_logs(told)]
    if told.along:
        sections.append(
            Plot(
                "Errors along the log",
                [at for at, _ in told.along],
                {"findings": [float(count) for _, count in told.along]},
                "physical offset, bytes",
                "findings of ERROR",
                "scatter",
                "One far from the others is a disk; all from one place on is a log out of step.",
            )
        )
    if told.queues:
        sections.append(_queues(told.queues))
    return sections


def _logs(told: ReplicaComparison) -> Table:
    rows, sums, common = [], told.sums, told.common
    for side, (name, (low, high)) in enumerate(zip(told.names, told.ranges, strict=True)):
        records, size = sums.records.get(side, [0, 0])
        keys, before, pending = sums.keys.get(side, [0, 0, 0])
        role = ("master", "slave")[side]
        rows.append((role, name, low, high, records, size, keys, before, pending))
    return Table(
        "Logs",
        (
            *("role", "store", "from", "to", "messages", "bytes", "keys"),
            *("older than the index", "newer than the index"),
        ),
        rows,
        f"Compared byte by byte: [{common[0]}, {common[1]}), {sums.compared} bytes.",
    )


def _queues(queues: Sequence[QueueSum]) -> Table:
    worst = sorted(
        queues, key=lambda row: (-row.wrong - row.missing - max(0, row.surplus), -row.entries)
    )
    return Table(
        "Queues",
        (
            *("store", "topic", "queue", "entries", "right", "wrong", "missing"),
            *("not built yet", "older than the queue", "without a message"),
        ),
        [(*row, max(0, row.surplus)) for row in worst[:_MOST]],
        f"The worst of {len(queues)} queues." if len(queues) > _MOST else "",
    )
