"""Makes the job's answer from pairings."""

from collections.abc import Callable, Sequence
from typing import Any

from rmq_ha.lake.frames.frame import Engine
from rmq_ha.lake.spark.offsets.report import sections_of
from rmq_ha.lake.spark.result import Findings, JobResult
from rmq_ha.ops.offsets.judgement import JudgedKey
from rmq_ha.ops.offsets.model import OFFSET
from rmq_ha.ops.offsets.pairing import Pairing
from rmq_ha.ops.offsets.repair import steps
from rmq_ha.ops.offsets.verdict import Limits, answer

LAG = (
    "slave:string topic:string group:string queueId:int masterOffset:long slaveOffset:long"
    " slaveMinOffset:long slaveMaxOffset:long diff:long repeats:long skipped:long status:string"
)
"""A row for every group and queue, with the offsets of both sides."""


def verify(
    engine: Callable[[], Engine],
    pairings: Sequence[Pairing],
    limits: Limits,
    history_directory: str | None = None,
) -> JobResult:
    """
    Judge every slave.

    :param engine: starts the engine, which one pair without a history does not need.
    :param history_directory: directory of a history of snapshots, to judge the past as well.
    """
    past = None
    if history_directory is not None:
        from rmq_ha.lake.spark.offsets.history import read_history

        past = read_history(engine(), history_directory)
    told = answer(pairings, limits, past.violations if past else 0)
    plans = [steps(item, limits.max_lag) for item in pairings]
    findings: Findings = told.findings
    if past is not None:
        from rmq_ha.lake.spark.findings import frame_of

        findings = past.added_to(frame_of(engine(), told.findings))
    return JobResult(
        findings=findings,
        outcome=told.outcome,
        verdict=told.verdict,
        numbers=told.numbers,
        sections=sections_of(
            pairings, told.by_slave, told.worst, past.trend if past else None, plans
        ),
        frames=lambda: {"lag": engine().table(lag(told.rows))},
    )


def lag(rows: Sequence[JudgedKey]) -> Any:
    """Return a row for every group and queue, with the offsets of both sides."""
    import pyarrow as pa

    from rmq_ha.lake.scan.arrays import schema

    lines = []
    for row in rows:
        case, ruling = row.case, row.ruling
        if case.key.kind == OFFSET:
            known = case.master is not None and case.slave is not None
            lines.append(
                (
                    row.slave, case.key.topic, case.key.group, case.key.queue_id,
                    case.master, case.slave, case.slave_first, case.slave_end,
                    (case.master or 0) - (case.slave or 0) if known else None,
                    ruling.repeats, ruling.skipped, next(iter(ruling.codes), "IN_SYNC"),
                )
            )  # fmt: skip
    of = schema(LAG)
    columns = zip(*lines, strict=True) if lines else ([] for _ in of)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, of, strict=True)], of)
