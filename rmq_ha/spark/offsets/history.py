"""
Snapshots kept as Parquet, `DIR/ts=<ms>/<role>-<broker>-<id>.parquet`, and what they tell over time.
"""

from collections.abc import Sequence
from io import BytesIO
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from rmq_ha.spark.findings import COLUMNS
from rmq_ha.spark.host.files import listing, read_small
from rmq_ha.spark.host.keeping import put
from rmq_ha.spark.offsets.codes import HISTORIC, MEANINGS
from rmq_ha.spark.offsets.frames import by_code, sentence
from rmq_ha.spark.offsets.model import OFFSET, QUEUE, SLAVE_ROLE, Fact, Snapshot
from rmq_ha.spark.offsets.pairing import Pairing, is_right, pair
from rmq_ha.spark.result import CannotDecide

ROWS = pa.schema(
    [
        ("place", pa.string()),
        ("broker", pa.string()),
        ("brokerId", pa.int64()),
        ("role", pa.string()),
        ("resting", pa.bool_()),
        ("began", pa.int64()),
        ("ended", pa.int64()),
        ("kinds", pa.string()),
        ("kind", pa.string()),
        ("topic", pa.string()),
        ("group", pa.string()),
        ("queueId", pa.int32()),
        ("value", pa.int64()),
        ("low", pa.int64()),
        ("text", pa.string()),
    ]
)
"""One row for each fact."""

_HEAD = 8
NEAR_MS = 30_000
"""A master's reset explains what its slave did so long after it, or before."""


def is_slave(snapshot: Snapshot) -> bool:
    """It says so, or its broker id does."""
    return snapshot.role == SLAVE_ROLE or (snapshot.role is None and bool(snapshot.broker_id))


def name_of(snapshot: Snapshot) -> str:
    """Where it belongs below the directory of a history."""
    role = "slave" if is_slave(snapshot) else "master"
    broker = "".join(char if char.isalnum() or char in "-_." else "_" for char in _broker(snapshot))
    number = "x" if snapshot.broker_id is None else snapshot.broker_id
    return f"ts={snapshot.began}/{role}-{broker}-{number}.parquet"


def _broker(snapshot: Snapshot) -> str:
    return snapshot.broker or snapshot.place


def encode(snapshot: Snapshot) -> bytes:
    """A Parquet file."""
    count = len(snapshot.facts)
    head = (
        snapshot.place,
        snapshot.broker,
        snapshot.broker_id,
        snapshot.role,
        snapshot.is_resting,
        snapshot.began,
        snapshot.ended,
        ",".join(sorted(snapshot.kinds)),
    )
    columns = [[value] * count for value in head]
    columns += [list(values) for values in zip(*snapshot.facts, strict=True)]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, ROWS, strict=True)]
    file = BytesIO()
    pq.write_table(pa.table(arrays, schema=ROWS), file, compression="zstd")
    return file.getvalue()


def decode(data: bytes, name: str) -> Snapshot:
    """
    What `encode` wrote.

    :param name: of the file, for the error.
    :raises CannotDecide: it is something else.
    """
    try:
        rows = pq.read_table(pa.BufferReader(data)).select(ROWS.names).cast(ROWS).to_pylist()
        first = rows[0]
        return Snapshot(
            first["place"],
            first["broker"],
            first["brokerId"],
            first["role"],
            first["resting"],
            first["began"],
            first["ended"],
            frozenset(first["kinds"].split(",")),
            tuple(Fact(*(row[field] for field in ROWS.names[_HEAD:])) for row in rows),
        )
    except (pa.ArrowInvalid, pa.ArrowKeyError, KeyError, IndexError, AttributeError) as error:
        raise CannotDecide(f"{name} is no snapshot ({error}); remove it") from None


def append(snapshot: Snapshot, directory: str) -> str:
    """
    Add it to a history, whole or not at all.

    :returns: the file.
    :raises CannotDecide: it cannot be written.
    """
    path = f"{directory.rstrip('/')}/{name_of(snapshot)}"
    try:
        put(path, encode(snapshot))
    except (OSError, pa.ArrowInvalid) as error:
        raise CannotDecide(f"{path} cannot be written: {error}") from None
    return path


class Kept(NamedTuple):
    """One file of a history."""

    moment: int
    role: str
    path: str

    @property
    def broker(self) -> str:
        """As the file's name has it; of a store without a name, its place."""
        name = self.path.rpartition("/")[2].removeprefix(f"{self.role}-")
        return name.removesuffix(".parquet").rpartition("-")[0]

    def read(self) -> Snapshot:
        """:raises CannotDecide: it is no snapshot."""
        return decode(read_small(self.path), self.path)


def kept(directory: str, role: str) -> list[Kept]:
    """
    The snapshots of a role, oldest first.

    :param role: `master` or `slave`.
    :raises CannotDecide: there is none.
    """
    root = directory.rstrip("/")
    found = []
    for entry in listing(root):
        moment = entry.name.removeprefix("ts=")
        if moment.isdecimal() and moment != entry.name:
            found += [
                Kept(int(moment), role, f"{root}/{entry.name}/{file.name}")
                for file in listing(f"{root}/{entry.name}")
                if file.name.startswith(f"{role}-") and file.name.endswith(".parquet")
            ]
    if not found:
        raise CannotDecide(
            f"snapshot:{directory} holds none of a {role}: `rmqha-spark snapshot PLACE --to"
            f" {directory}` makes one"
        )
    return sorted(found)


def of_one_broker(
    masters: Sequence[Kept], slaves: Sequence[Kept]
) -> tuple[Sequence[Kept], Sequence[Kept]]:
    """
    Those of the broker that both are of; stores that were kept without a name are of any.

    :raises CannotDecide: they are of several brokers: the answer would be that of one.
    """
    names = {item.broker for item in slaves}
    common = names & {item.broker for item in masters}
    newest = {item.broker: item for item in slaves}
    if len(names) > 1 and len({item.read().broker for item in newest.values()}) > 1:
        raise CannotDecide(
            f"these are snapshots of slaves of several brokers ({', '.join(sorted(names))}): keep"
            " those of each broker in a directory of its own"
        )
    if not common:
        return masters, slaves
    return [item for item in masters if item.broker in common], slaves


def kept_pairing(of_master: str, of_slave: str, skew_ms: int) -> Pairing:
    """
    The newest snapshot of a slave after which there is one of its master, and those of the master
    around it.

    :raises CannotDecide: there are none.
    """
    masters, slaves = of_one_broker(kept(of_master, "master"), kept(of_slave, "slave"))
    newest = masters[-1].moment
    chosen = next((item for item in reversed(slaves) if item.moment <= newest), slaves[-1])
    slave = chosen.read()
    old = [item for item in masters if item.moment <= slave.began - skew_ms]
    window = [item for item in masters if not old or item.moment >= old[-1].moment]
    after = next((item.moment for item in window if item.moment >= slave.ended), newest)
    samples = [item.read() for item in window if item.moment <= after]
    if is_right(samples, slave):
        return Pairing(samples, slave, True)
    return pair(samples, slave, skew_ms)


# Over time


def read(spark: SparkSession, directory: str) -> DataFrame:
    """
    All rows of a history.

    :raises CannotDecide: there is nothing.
    """
    root = directory.rstrip("/")
    if "://" not in root and not any(item.name.startswith("ts=") for item in listing(root)):
        raise CannotDecide(
            f"snapshot:{directory} is empty: `rmqha-spark snapshot PLACE --to {directory}` fills it"
        )
    return spark.read.option("basePath", root).parquet(f"{root}/ts=*")


def offsets_over_time(rows: DataFrame) -> DataFrame:
    """Offsets with the end of their queue in the same snapshot, and `isSlave`."""
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
    """
    Rollbacks, resets and jumps, as rows of `FINDINGS`.

    :param offsets: as `offsets_over_time` makes them.
    """
    of_replica = Window.partitionBy("place", "topic", "group", "queueId").orderBy("began")
    of_queue = (
        Window.partitionBy("broker", "topic", "group", "queueId")
        .orderBy("began")
        .rangeBetween(-NEAR_MS, NEAR_MS)
    )
    of_group = Window.partitionBy("broker", "topic", "group", "queueId").orderBy("began")
    since = of_group.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    until = of_group.rowsBetween(Window.currentRow, Window.unboundedFollowing)
    value, previous, end = F.col("value"), F.col("previous"), F.col("end")
    of_master = F.when(~F.col("isSlave"), value)
    rows = offsets.withColumns(
        {
            # However far apart both are kept: near it, or else the nearest on either side.
            "onMaster": F.least(
                F.min(of_master).over(of_queue),
                F.last(of_master, ignorenulls=True).over(since),
                F.first(of_master, ignorenulls=True).over(until),
            ),
            # A slave's copy may be ahead of its log; its master's is not.
            "nearEnd": F.max("end").over(of_queue),
            "previous": F.lag("value").over(of_replica),
            "previousEnd": F.lag("end").over(of_replica),
        }
    )
    went_back = value < previous
    is_reset = F.coalesce(~F.col("isSlave"), F.lit(False))
    # The master itself was behind what the slave had: it was reset, and may have gone on since.
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
        .withColumns({"skipped": zero, "lost": zero})
    )
    severities = {name: str(MEANINGS[name].severity) for name in sorted(HISTORIC)}
    none = F.lit(None)
    named = {
        "severity": by_code(F.col("code"), severities),
        "code": F.col("code"),
        "detail": sentence(F.col("code")),
        "broker": F.col("place"),
        "topic": F.col("topic"),
        "queueId": F.col("queueId"),
        "group": F.col("group"),
        "physicalOffset": none.cast("bigint"),
        "queueOffset": value,
        "msgId": none.cast("string"),
        "expected": F.when(F.col("code") == "OFFSET_JUMP", end).otherwise(previous).cast("string"),
        "actual": value.cast("string"),
        "observedAt": F.timestamp_millis("ended"),
    }
    return rows.select(*(named[name].alias(name) for name in COLUMNS))


class Trend(NamedTuple):
    """Repeats that a fail-over would have caused, by moment and group."""

    moments: list[int]
    groups: dict[str, list[float | None]]


def trend(offsets: DataFrame, bucket_ms: int = 60_000, most: int = 8) -> Trend:
    """
    How the window of repeats moved.

    :param bucket_ms: snapshots of a master and a slave within it belong together.
    :param most: groups that are shown: those with most repeats.
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
