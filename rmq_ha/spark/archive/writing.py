"""What a run writes, and what is read back of it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from rmq_ha.spark.archive.files import Files
from rmq_ha.spark.archive.manifest import assigned, nested
from rmq_ha.spark.archive.planning import Took
from rmq_ha.spark.archive.reading import DAY, STORED, of_paths
from rmq_ha.spark.audit.rules import in_queue
from rmq_ha.spark.audit.stored import read
from rmq_ha.spark.source.reading import QueueId, QueueRange

_DAY_MS = 86_400_000
_WRITING = {
    # Files of several topics and days at once, in place of sorting all bodies by them.
    "spark.sql.maxConcurrentOutputFileWriters": "16",
}
_FORMAT = {"compression": "zstd", "parquet.block.size": str(16 << 20)}


class Sums(NamedTuple):
    """
    What rows have in common, whatever their order.

    :ivar bad_crc: rows whose body did not fit its CRC in the source.
    :ivar digest: XOR of a hash of all columns of each row, body and properties too.
    """

    rows: int
    bad_crc: int
    digest: int


def stage(
    spark: SparkSession,
    files: Files,
    options: Mapping[str, str],
    ranges: Sequence[QueueRange],
    staging: str,
) -> Sums:
    """
    Write ranges of queues as Parquet, by topic and day.

    :param options: of the data source, without what to read.
    :return: what was read from the source, counted on its way to the files.
    """
    frame = read(
        spark,
        {
            **options,
            "assign": assigned(each.queue for each in ranges),
            "startingOffsets": nested({each.queue: each.start for each in ranges}),
            "endingOffsets": nested({each.queue: each.stop for each in ranges}),
        },
        STORED.fieldNames(),
    )
    seen = Observation()
    rows = (
        frame.where(in_queue(F.col("sysFlag")))
        .withColumn(DAY, _day(F.col("storeTimestamp")))
        .observe(seen, *_sums())
    )
    with _settings(spark, _WRITING):
        rows.write.partitionBy("topic", DAY).options(**_FORMAT).parquet(files.at(staging))
    return _of(seen.get)


def read_back(
    spark: SparkSession, files: Files, staging: str, paths: Sequence[str]
) -> tuple[Sums, dict[QueueId, Took]]:
    """What the files of a run hold: all of it, and by queue."""
    rows = (
        staged(spark, files, staging, paths)
        .groupBy("topic", F.coalesce("brokerName", F.lit("")).alias("broker"), "queueId")
        .agg(
            *_sums(),
            F.count_distinct("queueOffset").alias("offsets"),
            F.min("queueOffset").alias("least"),
            F.max("queueOffset").alias("most"),
            # As `planning.identity`.
            F.max_by(
                F.concat("msgId", F.lit("@"), F.unix_millis("storeTimestamp")), "queueOffset"
            ).alias("last"),
        )
        .collect()
    )
    total = Sums(0, 0, 0)
    took = {}
    for row in rows:
        each = _of(row.asDict())
        total = Sums(
            total.rows + each.rows, total.bad_crc + each.bad_crc, total.digest ^ each.digest
        )
        queue = QueueId(row["topic"], row["broker"], row["queueId"])
        took[queue] = Took(each.rows, row["offsets"], row["least"], row["most"], row["last"] or "")
    return total, took


def staged(spark: SparkSession, files: Files, staging: str, paths: Sequence[str]) -> DataFrame:
    """The rows of a run that is not committed yet."""
    return of_paths(spark, files, list(paths), files.at(staging))


def _day(ms: Column) -> Column:
    """The day in UTC, whatever the session's time zone is."""
    days = F.floor(F.unix_millis(ms) / _DAY_MS).cast("int")
    return F.date_add(F.lit("1970-01-01").cast("date"), days).cast("string")


def _sums() -> tuple[Column, Column, Column]:
    # A map has no order, and so no hash: its entries have.
    columns = [
        F.array_sort(F.map_entries(name)) if name == "properties" else F.col(name)
        for name in STORED.fieldNames()
    ]
    return (
        F.count(F.lit(1)).alias("n"),
        F.count_if(~F.col("crcOk")).alias("bad"),
        F.bit_xor(F.xxhash64(*columns)).alias("digest"),
    )


def _of(values: Mapping[str, Any]) -> Sums:
    return Sums(values["n"] or 0, values["bad"] or 0, values["digest"] or 0)


@contextmanager
def _settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Spark's settings while the block runs."""
    before = {key: spark.conf.get(key, None) for key in wanted}
    for key, value in wanted.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)
