"""Rows of tasks as a table of Spark's, and what is asked of it."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from rmq_ha.errors import CannotDecide
from rmq_ha.offsets.findings import Finding, Severity
from rmq_ha.spark.findings import FINDINGS, finding_row
from rmq_ha.spark.replica.tasks import (
    BOTH,
    COUNT,
    DELAY,
    FAILED,
    FINDING,
    KEYS,
    QUEUE,
    SHIFT,
    TALLY,
    Row,
    Work,
)

ROWS = StructType(
    [
        StructField("task", IntegerType(), False),
        StructField("kind", StringType(), False),
        StructField("side", IntegerType(), False),
        StructField("name", StringType(), False),
        StructField("numbers", ArrayType(LongType(), False), False),
        StructField("finding", FINDINGS),
    ]
)
_MOST_DELAYS = 1000
_MOST_SHIFTS = 100_000
_POINTS = 120


def rows_of(
    spark: SparkSession,
    work: Work,
    tasks: Sequence[Any],
    run: Callable[[Work, Any], Iterable[Row]],
    parts: int = 0,
) -> DataFrame:
    """
    What tasks answer.

    :param run: of `tasks`: `run_stretch`, `run_survey` or `run_doubt`.
    :param parts: in how many tasks of Spark, at least, if there are so many.
    """
    if not tasks:
        return spark.createDataFrame([], ROWS)
    shared = spark.sparkContext.broadcast(work)
    context = spark.sparkContext
    parts = min(len(tasks), max(2 * context.defaultParallelism, parts))
    found = context.parallelize(tasks, parts).flatMap(
        lambda task: (_plain(row) for row in run(shared.value, task))
    )
    return spark.createDataFrame(found, ROWS, verifySchema=False)


def _plain(row: Row) -> tuple[Any, ...]:
    one = row[5]
    return (*row[:5], None if one is None else finding_row(one))


def count_of(rows: DataFrame) -> tuple[int, int]:
    """
    How many findings there are, and errors; reads all rows, so that they are kept from then on.

    :raises CannotDecide: a task could not read something.
    """
    failed = F.when(F.col("kind") == FAILED, F.col("name"))
    is_finding = F.col("kind") == FINDING
    row = rows.agg(
        F.sum(is_finding.cast("int")), F.sum(_is_bad().cast("int")), F.max(failed)
    ).collect()[0]
    if row[2] is not None:
        raise CannotDecide(row[2])
    return row[0] or 0, row[1] or 0


def _is_bad() -> Column:
    is_error = F.col("finding.severity") == str(Severity.ERROR)
    return F.coalesce(is_error, F.lit(False)) | (F.col("kind") == SHIFT)


def findings_of(rows: DataFrame) -> DataFrame:
    """The findings; one that two stretches saw counts once."""
    found = rows.where(F.col("kind") == FINDING).select("finding.*")
    return found.dropDuplicates(
        ["code", "broker", "topic", "queueId", "queueOffset", "physicalOffset", "expected"]
    )


def tasks_in_error(rows: DataFrame, most: int) -> list[int]:
    """Tasks that found an error; at most so many."""
    bad = rows.where(_is_bad())
    return sorted(row[0] for row in bad.select("task").distinct().limit(most).collect())


class Sums(NamedTuple):
    """
    What the rows of all stretches add up to.

    :ivar compared: bytes; `blank`: of them, those that differ and mean nothing.
    :ivar records: of each side, and of those compared (`COMMON`), with their bytes.
    :ivar tallies: side, topic, queue id: as in `queues.Tally`.
    :ivar delays: side, level, delay: as in `queues.Delay`.
    :ivar keys: of each side, as in `indexes.Counts`.
    :ivar shifts: where logs get out of step, in order, and where the stretch ends.
    """

    compared: int
    blank: int
    records: dict[int, tuple[int, int]]
    tallies: dict[tuple[int, str, int], list[int]]
    delays: dict[tuple[int, int, int], list[int]]
    keys: dict[int, list[int]]
    shifts: list[tuple[int, int]]


def sums_of(rows: DataFrame) -> Sums:
    """Added up by Spark, in one go; what comes here is a row for each queue."""
    n = F.col("numbers")
    kind = F.col("kind")
    wide = rows.where(kind != FINDING).select(
        kind,
        "side",
        "name",
        F.when(kind.isin(TALLY, DELAY, SHIFT), n[0]).alias("key"),
        F.when(kind.isin(DELAY, SHIFT), n[1]).alias("more"),
        *(F.get(n, F.lit(at)).alias(f"n{at}") for at in range(7)),
    )
    added = wide.groupBy("kind", "side", "name", "key", "more").agg(
        *(F.sum(f"n{at}").alias(f"s{at}") for at in range(6)),
        F.min("n3").alias("first"),
        F.max("n4").alias("last"),
        F.min("n5").alias("queue"),
        F.min_by("n6", "n3").alias("offset"),
    )
    sums = Sums(0, 0, {}, {}, {}, {}, [])
    for row in added.collect():
        sums = _with(sums, row)
    sums.shifts.sort()
    return sums


def _with(sums: Sums, row: Any) -> Sums:
    side = row.side
    if row.kind == COUNT and side == BOTH:
        return sums._replace(compared=row.s0, blank=row.s1)
    if row.kind == COUNT:
        sums.records[side] = row.s0, row.s1
    elif row.kind == KEYS:
        sums.keys[side] = [row.s0, row.s1, row.s2]
    elif row.kind == TALLY:
        sums.tallies[side, row.name, row.key] = [row.s1, row.s2, row.s3, row.s4, row.s5]
    elif row.kind == DELAY and len(sums.delays) < _MOST_DELAYS:
        # Of several queues: the schedule topic has one for each level.
        sums.delays[side, row.key, row.more] = [
            row.s2,
            row.first,
            row.last,
            row.queue,
            row.offset,
        ]
    elif row.kind == SHIFT and len(sums.shifts) < _MOST_SHIFTS:
        sums.shifts.append((row.key, row.more))
    return sums


class QueueEnd(NamedTuple):
    """What the survey says of one queue."""

    side: int
    topic: str
    queue_id: int
    entries: int
    end: int
    last: int
    first: int


def queue_ends(rows: DataFrame) -> list[QueueEnd]:
    """Of all queues of all sides."""
    found = rows.where(F.col("kind") == QUEUE).select("side", "name", "numbers")
    return [QueueEnd(side, name, *numbers) for side, name, numbers in found.collect()]


class Overview(NamedTuple):
    """
    The findings in numbers.

    :ivar errors: findings of ERROR.
    :ivar apart: of them, those that say that the logs differ.
    :ivar first: of these the one nearest to the log's start.
    :ivar along: how many errors there are from which offset on, up to the next.
    """

    errors: int
    apart: int
    first: Finding | None
    along: list[tuple[int, int]]


def overview_of(findings: DataFrame, codes: Sequence[str], low: int, high: int) -> Overview:
    """
    :param codes: that say that the logs differ.
    :param low: of the log, as `high`: for `along`.
    """
    width = max(1, (high - low) // _POINTS)
    place = F.col("physicalOffset")
    counted = (
        findings.where(F.col("severity") == str(Severity.ERROR))
        .groupBy(
            F.col("code").isin(*codes).alias("apart"),
            F.floor((place - low) / width).cast("long").alias("part"),
        )
        .agg(F.count("*").alias("n"), F.min_by(F.struct("*"), place).alias("first"))
        .collect()
    )
    firsts = [Finding(*row["first"]) for row in counted if row["apart"] and row["first"]]
    along: Counter[int] = Counter()
    for row in counted:
        if row["part"] is not None:
            along[low + row["part"] * width] += row["n"]
    return Overview(
        sum(row["n"] for row in counted),
        sum(row["n"] for row in counted if row["apart"]),
        min(firsts, key=lambda one: one.physical_offset or 0, default=None),
        sorted(along.items()),
    )
