"""Makes the job's answer from pairings."""

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import SparkSession

from rmq_ha.lake.spark.findings import frame_of
from rmq_ha.lake.spark.offsets import history
from rmq_ha.lake.spark.offsets.report import sections_of
from rmq_ha.lake.spark.result import JobResult
from rmq_ha.ops.offsets.judgement import JudgedKey
from rmq_ha.ops.offsets.model import OFFSET
from rmq_ha.ops.offsets.pairing import Pairing
from rmq_ha.ops.offsets.repair import steps
from rmq_ha.ops.offsets.verdict import Limits, answer


def verify(
    spark: SparkSession,
    pairings: Sequence[Pairing],
    limits: Limits,
    history_directory: str | None = None,
) -> JobResult:
    """
    Judge every slave.

    :param history_directory: directory of a history of snapshots, to judge the past as well.
    """
    past = history.read_history(spark, history_directory)
    told = answer(pairings, limits, past.violations)
    plans = [steps(item, limits.max_lag) for item in pairings]
    return JobResult(
        findings=past.added_to(frame_of(spark, told.findings)),
        outcome=told.outcome,
        verdict=told.verdict,
        numbers=told.numbers,
        sections=sections_of(pairings, told.by_slave, told.worst, past.trend, plans),
        frames={"lag": spark.createDataFrame(lag(told.rows))},
    )


LAG = pa.schema(
    [
        ("slave", pa.string()),
        ("topic", pa.string()),
        ("group", pa.string()),
        ("queueId", pa.int32()),
        ("masterOffset", pa.int64()),
        ("slaveOffset", pa.int64()),
        ("slaveMinOffset", pa.int64()),
        ("slaveMaxOffset", pa.int64()),
        ("diff", pa.int64()),
        ("repeats", pa.int64()),
        ("skipped", pa.int64()),
        ("status", pa.string()),
    ]
)


def lag(rows: Sequence[JudgedKey]) -> pa.Table:
    """Return a row for every group and queue, with the offsets of both sides."""
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
    columns = zip(*lines, strict=True) if lines else ([] for _ in LAG)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, LAG, strict=True)], LAG)
