"""
An archive: a Parquet table that Spark's own streaming sink writes out of our source.

Which files count, Spark keeps in `_spark_metadata`, and every reader of it minds that; how far the
queues were read, in the checkpoint beside it. Both are Spark's formats. A batch is in the table
when the first names it, and the checkpoint says which offsets that were.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from rmq_ha.errors import CannotDecide, WrongUsage
from rmq_ha.host.files import listing, read_small
from rmq_ha.scan.reducing import INTERNAL
from rmq_ha.spark.source.batch import queues_of
from rmq_ha.spark.source.boundaries import Kind
from rmq_ha.spark.source.options import SourceOptions, parse_options
from rmq_ha.spark.source.reading import QueueId, QueueRange, Queues
from rmq_ha.spark.source.schema import COLUMNS, message_schema, struct_of
from rmq_ha.spark.source.streaming_offsets import Offsets, from_json, to_json

CHECKPOINT = "_checkpoint"
"""Below the archive; readers of Parquet pass over names that begin with `_`."""
STORED = struct_of(COLUMNS)
"""What is kept of a message; `topic` and the day are in the names of directories."""
DAY = "day"
_OLD = "_rmqha"
_WHICH = ("subscribe", "subscribepattern", "assign", "topic")


def archived(spark: SparkSession, archive: str) -> DataFrame:
    """
    Everything that was archived: the columns of the data source, `properties` and `day` (text).

    :raises CannotDecide: it was made by an rmq-ha whose archives were of another form.
    """
    schema = StructType([*STORED.fields, StructField(DAY, StringType())])
    if ends_of(archive) is None:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(archive).select(*schema.fieldNames())


def ends_of(archive: str) -> Offsets | None:
    """
    Of each queue, the first offset that is not archived; None: nothing was archived yet.

    :raises CannotDecide: the archive is damaged, of another form, or where only Hadoop can look.
    """
    place = archive.replace("s3a://", "s3://", 1)
    if listing(f"{place}/{_OLD}"):
        raise CannotDecide(
            f"{archive} was archived by rmq-ha 0.1, which kept its own list of files: it is plain"
            " Parquet to read, but cannot go on; begin another archive"
        )
    names = [entry.name for entry in listing(f"{place}/_spark_metadata")]
    numbers = [name.removesuffix(".compact") for name in names]
    batches = [int(number) for number in numbers if number.isdecimal()]
    if not batches:
        return None
    offsets = f"{CHECKPOINT}/offsets/{max(batches)}"
    try:
        text = read_small(f"{place}/{offsets}").decode()
    except FileNotFoundError:
        raise CannotDecide(
            f"{archive} has no {offsets}, though its table has that batch: take the whole archive"
            " from one backup"
        ) from None
    return from_json(json.loads(text.splitlines()[-1]))


def lasts_of(table: DataFrame, ends: Offsets) -> dict[QueueId, str]:
    """
    What tells the last message of each queue that is archived from any other; for `was_replaced`.

    :param table: of `archived`.
    """
    wanted = {(queue.topic, queue.queue_id, end - 1): queue for queue, end in ends.items()}
    if not wanted:
        return {}
    topics, ids, offsets = (list(set(values)) for values in zip(*wanted, strict=True))
    # Of each file Spark knows least and greatest offset, so few of them are read.
    rows = (
        table.where(F.col("topic").isin(topics) & F.col("queueOffset").isin(offsets))
        .where(F.col("queueId").isin(ids))
        .select(
            *("topic", "queueId", "queueOffset", "commitLogOffset", "msgId"),
            F.coalesce("brokerName", F.lit("")).alias("broker"),
            F.unix_millis("storeTimestamp").alias("ms"),
        )
        .orderBy("ms")
    )
    found = {}
    for row in rows.collect():
        queue = QueueId(row["topic"], row["broker"], row["queueId"])
        if ends.get(queue) == row["queueOffset"] + 1:
            found[queue] = f"{row['msgId']}@{row['ms']}"
    return found


def was_replaced(queues: Queues, queue: QueueId, end: int, last: str) -> bool:
    """
    The queue's message before the archive's end is another one than the archive's last: offsets
    were used again, after a fail-over to a replica that lacked them, or in a topic made anew.

    :param end: the archive's, behind the first message that the queue has.
    :param last: of `lasts_of`.
    """
    try:
        for batch in queues.read(QueueRange(queue, end - 1, end), ("msgId", "storeTimestamp")):
            for row in batch.to_pylist():
                stored = round(row["storeTimestamp"].timestamp() * 1000)
                return last not in ("", f"{row['msgId']}@{stored}")
    except CannotDecide:
        pass  # deleted meanwhile, or damaged: who reads on from there is told
    return False


def check_names(archived: Collection[str], there: Collection[str]) -> None:
    """
    A queue must have one name for ever: with two of them it would be archived twice.

    :raises WrongUsage: one side has brokers without a name, the other has names.
    """
    if not archived or not there or ("" in archived) == ("" in there):
        return
    if "" in archived:
        raise WrongUsage(
            "this archive was made of a store whose broker was not named, so its queues would be"
            " archived again under their broker's name: give the store, or begin another archive"
        )
    names = ", ".join(sorted(archived))
    raise WrongUsage(f"the archive has messages of {names}: name the store's broker, --broker-name")


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
    :raises CannotDecide: messages between the archive's end and the beginning of a live queue are
        gone (not with `failOnDataLoss=false`).
    """
    schema = message_schema(include_properties)
    columns = schema.fieldNames()
    ends = ends_of(archive) or {}
    old = archived(spark, archive)
    if live is None:
        return old.select(columns)
    options = parse_options(live)
    if options.start.kind is not Kind.EARLIEST:
        raise WrongUsage("the live part begins where the archive ends: give no starting offsets")
    lasts = lasts_of(old, ends)
    broker = options.broker_name
    if broker and {queue.broker for queue in ends} == {""}:  # a store that was not named is its
        old = old.withColumn("brokerName", F.lit(broker))
        ends = {queue._replace(broker=broker): end for queue, end in ends.items()}
        lasts = {queue._replace(broker=broker): last for queue, last in lasts.items()}
    old = _only(old, ends, options).select(columns)
    starts = _starts(options, ends, lasts)
    if not starts:
        return old
    given = {key: value for key, value in live.items() if key.lower() not in _WHICH}
    given |= {"assign": assigned(starts), "startingOffsets": nested(starts), "scan": "queues"}
    if not options.is_offline:
        del given["scan"]
    new = spark.read.format("rocketmq").schema(schema).options(**given).load()
    return old.unionByName(new.select(columns))


def nested(offsets: Offsets) -> str:
    """Offsets as options want them: without a level of brokers where these have no name."""
    tree = to_json(offsets)
    return json.dumps({topic: brokers.get("", brokers) for topic, brokers in tree.items()})


def assigned(queues: Iterable[QueueId]) -> str:
    """Queues as the option `assign` wants them."""
    tree: dict[str, Any] = {}
    for queue in queues:
        if queue.broker:
            tree.setdefault(queue.topic, {}).setdefault(queue.broker, []).append(queue.queue_id)
        else:
            tree.setdefault(queue.topic, []).append(queue.queue_id)
    return json.dumps(tree)


def _only(old: DataFrame, ends: Offsets, options: SourceOptions) -> DataFrame:
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


def _starts(options: SourceOptions, ends: Offsets, lasts: Mapping[QueueId, str]) -> Offsets:
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
        is_checked = options.fail_on_data_loss and first < start <= stop
        if is_checked and was_replaced(source, queue, start, lasts.get(queue, "")):
            raise CannotDecide(
                f"{queue}: offset {start - 1}, the last that is archived, holds another message"
                " now: offsets were used again after the archive's end was lost."
                " failOnDataLoss=false reads on behind it"
            )
        starts[queue] = min(max(start, first), stop)
    return starts
