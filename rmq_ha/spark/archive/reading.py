"""An archive as a table, by itself or with the live topic behind it."""

from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from rmq_ha.errors import CannotDecide, WrongUsage
from rmq_ha.scan.reducing import INTERNAL
from rmq_ha.spark.archive.commit import load
from rmq_ha.spark.archive.files import Files
from rmq_ha.spark.archive.manifest import Manifest, assigned, nested
from rmq_ha.spark.archive.planning import check_names, was_replaced
from rmq_ha.spark.audit.rules import in_queue
from rmq_ha.spark.source.batch import queues_of
from rmq_ha.spark.source.boundaries import Kind
from rmq_ha.spark.source.options import SourceOptions, parse_options
from rmq_ha.spark.source.reading import QueueId
from rmq_ha.spark.source.schema import MESSAGE_COLUMNS, ON_REQUEST, message_schema, struct_of

STORED = struct_of(MESSAGE_COLUMNS | ON_REQUEST)
"""What an archive keeps of a message; `topic` and the day are in the names of directories."""
DAY = "day"


def archived(spark: SparkSession, archive: str) -> DataFrame:
    """
    Everything that was archived: the columns of the data source, `properties` and `day` (text).

    :raises CannotDecide: the archive is damaged.
    """
    files = Files(spark, archive)
    return of_manifest(spark, files, load(files))


def of_manifest(spark: SparkSession, files: Files, manifest: Manifest) -> DataFrame:
    """Only the files that count."""
    return of_paths(spark, files, manifest.paths)


def of_paths(
    spark: SparkSession, files: Files, paths: list[str], base: str | None = None
) -> DataFrame:
    """
    Files of the archive's layout.

    :param base: where `topic=...` begins; default: the archive.
    """
    schema = StructType([*STORED.fields, StructField(DAY, StringType())])
    if not paths:
        return spark.createDataFrame([], schema)
    reader = spark.read.schema(schema).option("basePath", base or files.root)
    return reader.parquet(*map(files.at, paths)).select(*schema.fieldNames())


def table(
    spark: SparkSession,
    archive: str,
    live: Mapping[str, str] | None = None,
    *,
    include_properties: bool = False,
) -> DataFrame:
    """
    Archive and live topic as one table: each message once, none missing, whatever the broker has
    deleted of what is archived.

    :param live: options of the data source that say whom to read and which topics, without where to
        begin; None: the archive alone.
    :raises WrongUsage: they say where to begin, or name no broker where the archive does.
    :raises CannotDecide: the archive is damaged; or messages between its end and the beginning of a
        live queue are gone (not with `failOnDataLoss=false`).
    """
    files = Files(spark, archive)
    manifest = load(files)
    schema = message_schema(include_properties)
    columns = schema.fieldNames()
    old = of_manifest(spark, files, manifest)
    if live is None:
        return old.select(columns)
    options = parse_options(live)
    if options.start.kind is not Kind.EARLIEST:
        raise WrongUsage("the live part begins where the archive ends: give no starting offsets")
    old, ends, lasts = _named(old, manifest, options.broker_name)
    old = _only(old, ends, options).select(columns)
    starts = _starts(options, ends, lasts)
    if not starts:
        return old
    which = ("subscribe", "subscribepattern", "assign", "topic")
    given = {key: value for key, value in live.items() if key.lower() not in which}
    new = (
        spark.read.format("rocketmq")
        .schema(schema)
        .options(**given)
        .option("assign", assigned(starts))
        .option("startingOffsets", nested(starts))
        .load()
        .where(in_queue(F.col("sysFlag")))
        .select(columns)
    )
    return old.unionByName(new)


def view(
    spark: SparkSession, name: str, archive: str, live: Mapping[str, str] | None = None
) -> None:
    """`table` as a temporary view, for SQL; it sees what is archived now."""
    table(spark, archive, live).createOrReplaceTempView(name)


def _named(
    old: DataFrame, manifest: Manifest, broker: str | None
) -> tuple[DataFrame, dict[QueueId, int], dict[QueueId, str]]:
    """
    Archived rows, where each queue's end, and with what message.

    A store whose broker was not named is that of the one broker that is read live.
    """
    ends, lasts = manifest.ends(), manifest.lasts()
    if not broker or manifest.brokers() != {""}:
        return old, ends, lasts
    return (
        old.withColumn("brokerName", F.lit(broker)),
        {queue._replace(broker=broker): end for queue, end in ends.items()},
        {queue._replace(broker=broker): last for queue, last in lasts.items()},
    )


def _only(old: DataFrame, ends: Mapping[QueueId, int], options: SourceOptions) -> DataFrame:
    """What was subscribed to; topics are directories, so that others are not opened."""
    wanted = options.subscription
    if options.tags is not None:
        old = old.where(F.col("tags").isin(*options.tags))
    if wanted.is_everything:
        return old
    queues = [queue for queue in ends if wanted.wants(queue)]
    old = old.where(F.col("topic").isin(*{queue.topic for queue in queues}))
    if wanted.assigned is None:
        return old
    keys = [
        F.concat_ws("/", F.lit(each.broker), F.lit(each.queue_id), F.lit(each.topic))
        for each in queues
    ]
    return old.where(
        F.concat_ws("/", F.coalesce("brokerName", F.lit("")), "queueId", "topic").isin(*keys)
    )


def _starts(
    options: SourceOptions, ends: Mapping[QueueId, int], lasts: Mapping[QueueId, str]
) -> dict[QueueId, int]:
    """Where each live queue goes on: at the archive's end, or at its own beginning."""
    # Whatever its tags: the message before the archive's end tells whether it is the same queue.
    source = queues_of(replace(options, tags=None, tag_expression="*"))
    queues = source.queues(options.subscription)
    if options.subscription.is_everything:
        queues = [queue for queue in queues if queue.topic not in INTERNAL]
    check_names({queue.broker for queue in ends}, {queue.broker for queue in queues})
    starts = {}
    for queue in queues:
        first, stop = source.bounds(queue)
        start = ends.get(queue, first)
        if not first <= start <= stop and options.fail_on_data_loss:
            what = (
                f"offsets {start} to {first - 1} were deleted before they were archived"
                if start < first
                else f"it ends at {stop}, the archive at {start}: its end was lost"
            )
            raise CannotDecide(f"{queue}: {what}. failOnDataLoss=false reads what there is")
        last = lasts.get(queue, "") if options.fail_on_data_loss and queue in ends else ""
        if was_replaced(source, queue, start, first, last):
            raise CannotDecide(
                f"{queue}: offset {start - 1}, the last that is archived, holds another message"
                " now: offsets were used again after the archive's end was lost."
                " failOnDataLoss=false reads on behind it"
            )
        starts[queue] = min(max(start, first), stop)
    return starts
