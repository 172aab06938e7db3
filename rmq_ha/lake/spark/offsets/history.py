"""Finds in the snapshots of a history what happened over time."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import pyarrow as pa

from rmq_ha.base.errors import CannotDecide
from rmq_ha.lake.frames import functions as F
from rmq_ha.lake.frames.columns import Column, Window
from rmq_ha.lake.frames.frame import DataFrame, Engine
from rmq_ha.lake.scan.arrays import schema
from rmq_ha.lake.spark.findings import findings_of, meaning
from rmq_ha.ops.offsets.codes import HISTORIC, MEANINGS
from rmq_ha.ops.offsets.model import OFFSET, QUEUE, SLAVE_ROLE, Snapshot
from rmq_ha.ops.offsets.snapshot_history import SnapshotFile, snapshot_files

ROWS = schema(
    "place:string broker:string brokerId:long role:string began:long ended:long kind:string"
    " topic:string group:string queueId:int value:long"
)
"""A row for each fact of a snapshot."""
NEAR_MS = 30_000
"""Ms before and after a master's reset in which the reset explains a change at its slave."""


def read(engine: Engine, directory: str) -> DataFrame:
    """
    Return all rows of a history.

    :raises CannotDecide: the history is empty.
    """
    files: list[SnapshotFile] = []
    for role in ("master", "slave"):
        with suppress(CannotDecide):
            files += snapshot_files(directory, role)
    if not files:
        raise CannotDecide(
            f"snapshot:{directory} is empty: `rmqha-admin snapshot PLACE --to {directory}` fills it"
        )

    def work(some: Iterator[SnapshotFile]) -> Iterator[Any]:
        for file in some:
            yield pa.RecordBatch.from_pylist(list(_rows(file.read())), ROWS)

    return engine.spread(files, work, ROWS)


def _rows(snapshot: Snapshot) -> Iterator[dict[str, Any]]:
    """Yield a row of `ROWS` for each fact of a snapshot."""
    about = {
        "place": snapshot.place,
        "broker": snapshot.broker,
        "brokerId": snapshot.broker_id,
        "role": snapshot.role,
        "began": snapshot.began,
        "ended": snapshot.ended,
    }
    for fact in snapshot.facts:
        named = {"kind": fact.kind, "topic": fact.topic, "group": fact.group}
        yield about | named | {"queueId": fact.queue_id, "value": fact.value}


class HistoryFindings(NamedTuple):
    """The findings of a history, and the number of those of severity ERROR."""

    findings: DataFrame | None = None
    violations: int = 0
    trend: "Trend | None" = None

    def added_to(self, findings: DataFrame) -> DataFrame:
        """Return the findings of the present together with those of the history."""
        return findings if self.findings is None else findings.unionByName(self.findings)


def read_history(engine: Engine, directory: str | None) -> HistoryFindings:
    """
    Read and judge a history.

    :raises CannotDecide: the history is empty.
    """
    if directory is None:
        return HistoryFindings()
    over_time = offsets_over_time(read(engine, directory))
    judged = findings(over_time)
    return HistoryFindings(
        judged, judged.filter(F.col("severity") == "ERROR").count(), trend(over_time)
    )


def offsets_over_time(rows: DataFrame) -> DataFrame:
    """Return offsets with the end of their queue in the same snapshot, and `isSlave`."""
    same = Window.partitionBy("place", "began", "topic", "queueId")
    end = F.max(F.when(F.col("kind") == QUEUE, F.col("value"))).over(same)
    slave = (F.col("role") == SLAVE_ROLE) | (F.col("role").isNull() & (F.col("brokerId") > 0))
    return (
        rows.filter(F.col("kind").isin(OFFSET, QUEUE))
        .withColumn("end", end)
        .filter(F.col("kind") == OFFSET)
        .withColumn("isSlave", F.coalesce(slave, F.lit(False)))
    )


def findings(offsets: DataFrame) -> DataFrame:
    """Return rollbacks, resets and jumps of `offsets_over_time` as rows of `FINDINGS`."""
    of_replica = Window.partitionBy("place", "topic", "group", "queueId").orderBy("began")
    of_group = Window.partitionBy("broker", "topic", "group", "queueId").orderBy("began")
    near = of_group.rangeBetween(-NEAR_MS, NEAR_MS)
    since = of_group.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    until = of_group.rowsBetween(Window.currentRow, Window.unboundedFollowing)
    value, previous, end = F.col("value"), F.col("previous"), F.col("end")
    of_master = F.when(~F.col("isSlave"), value)
    rows = offsets.withColumns(
        {
            # The master's offset near the slave's snapshot, or else the nearest on either side,
            # however far apart both were taken.
            "onMaster": F.least(
                F.min(of_master).over(near),
                F.last(of_master, ignorenulls=True).over(since),
                F.first(of_master, ignorenulls=True).over(until),
            ),
            # A slave's copied offset may be ahead of its log; the master's is not.
            "nearEnd": F.max("end").over(near),
            "previous": F.lag("value").over(of_replica),
            "previousEnd": F.lag("end").over(of_replica),
        }
    )
    went_back = value < previous
    is_reset = F.coalesce(~F.col("isSlave"), F.lit(False))
    # The master itself was behind the slave's offset: it was reset, and may have advanced since.
    is_explained = F.coalesce(F.col("onMaster") < previous, F.lit(False))
    jumped = (value > F.col("nearEnd")) & (
        F.coalesce(previous <= F.col("previousEnd"), F.lit(True))
    )
    code = (
        F.when(went_back & is_reset, F.lit("OFFSET_RESET"))
        .when(went_back & ~is_explained, F.lit("ROLLBACK"))
        .when(jumped & (value > F.coalesce(previous, F.lit(0))), F.lit("OFFSET_JUMP"))
    )
    zero = F.lit(0).cast("bigint")
    rows = (
        rows.withColumn("code", code)
        .filter(F.col("code").isNotNull())
        .withColumn("repeats", F.greatest(zero, previous - value))
    )
    sentence = meaning({name: MEANINGS[name].sentence for name in HISTORIC}, F.col("code"))
    return findings_of(
        rows,
        severity=meaning({name: MEANINGS[name].severity for name in HISTORIC}, F.col("code")),
        code=F.col("code"),
        detail=F.replace(sentence, F.lit("{repeats}"), F.col("repeats").cast("string")),
        broker=F.col("place"),
        topic=F.col("topic"),
        queueId=F.col("queueId"),
        group=F.col("group"),
        queueOffset=value,
        expected=F.when(F.col("code") == "OFFSET_JUMP", end).otherwise(previous),
        actual=value,
        observedAt=F.timestamp_millis("ended"),
    )


class Trend(NamedTuple):
    """
    How many messages a failover would have repeated, over time.

    :ivar moments: times in ms since the epoch, ascending.
    :ivar groups: by group the number of messages at each moment; None: not known.
    """

    moments: list[int]
    groups: dict[str, list[float | None]]


def trend(offsets: DataFrame, bucket_ms: int = 60_000, most: int = 8) -> Trend:
    """
    Return how the number of repeats changed over time.

    Time is divided into buckets of `bucket_ms`, counted from the epoch. In each bucket the greatest
    offset at the master is compared with the least one at a slave, queue by queue. So two snapshots
    on both sides of a bucket's edge are not compared. Only the newest `most * 500` numbers are
    returned.

    :param offsets: result of `offsets_over_time`.
    :param most: how many groups are shown: those with most repeats in total.
    """
    bucket: Column = F.floor(F.col("began") / bucket_ms) * bucket_ms
    behind = (
        offsets.groupBy(bucket.alias("moment"), "topic", "group", "queueId")
        .agg(
            F.max(F.when(~F.col("isSlave"), F.col("value"))).alias("master"),
            F.min(F.when(F.col("isSlave"), F.col("value"))).alias("slave"),
        )
        .groupBy("moment", "group")
        .agg(F.sum(F.greatest(F.lit(0), F.col("master") - F.col("slave"))).alias("repeats"))
        .filter(F.col("repeats").isNotNull())
    )
    rank = F.dense_rank().over(Window.orderBy(F.desc("total"), "group"))
    total = F.sum("repeats").over(Window.partitionBy("group"))
    rows: list[Any] = (
        behind.withColumn("total", total)
        .withColumn("rank", rank)
        .filter(F.col("rank") <= most)
        .orderBy(F.desc("moment"))
        .limit(most * 500)
        .collect()
    )
    moments = sorted({row.moment for row in rows})
    groups: dict[str, list[float | None]] = {}
    for row in rows:
        series = groups.setdefault(row.group, [None] * len(moments))
        series[moments.index(row.moment)] = float(row.repeats)
    return Trend(moments, groups)
