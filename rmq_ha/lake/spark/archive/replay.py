"""Sends archived messages back into a topic."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from rmq_ha.base.errors import CannotDecide, WrongUsage
from rmq_ha.lake.spark.archive.forms import PARQUET, open_archive
from rmq_ha.lake.spark.audit.stored_rows import client_options
from rmq_ha.lake.spark.result import JobResult
from rmq_ha.lake.spark.running import Job
from rmq_ha.lake.spark.source.messages import queues_of
from rmq_ha.lake.spark.source.options import parse_options
from rmq_ha.lake.spark.source.reading import QueueId
from rmq_ha.ops.offsets.findings import Outcome

ORIGINAL_ID = "ORIGINAL_MSG_ID"
ORIGINAL_BORN = "ORIGINAL_BORN_TIMESTAMP"
ORIGINAL_STORED = "ORIGINAL_STORE_TIMESTAMP"


@dataclass(frozen=True, kw_only=True)
class ReplayRequest:
    """
    The messages to send again.

    :ivar to: the topic of the brokers, which must exist.
    :ivar rate: most messages a second; None: no limit.
    :ivar again: also send messages that the topic has already.
    """

    archive: str
    topic: str
    to: str
    from_ms: int | None = None
    to_ms: int | None = None
    rate: int | None = None
    again: bool = False
    form: str = PARQUET


def replay(job: Job, asked: ReplayRequest) -> JobResult:
    """
    Send the messages; see docs/spark.md, "replay".

    A queue's messages go to one queue, in their order, with their former times as properties.

    :raises WrongUsage: no name server was given.
    :raises CannotDecide: the archive has no such messages, or no broker has the topic.
    """
    spark, address = job.spark, job.client.namesrv_addr
    if not address:
        raise WrongUsage("where to? Give --namesrv host:port")
    options = {"namesrv": address, **client_options((), job.client)}
    chosen = _choose_rows(open_archive(spark, asked.archive, asked.form).rows(), asked)
    sources = chosen.select("brokerName", "queueId").distinct().count()
    if not sources:
        raise CannotDecide(f"{asked.archive} has no message of {asked.topic} in this time")
    live = parse_options({**options, "subscribe": asked.to})
    targets = queues_of(live).queues(live.subscription)
    rows = chosen
    if not asked.again:
        ids = _read_ids(spark, {**options, "subscribe": asked.to})
        # A replay that was broken off is repeated with the same command, and sends only the rest.
        rows = chosen.join(ids, "uniqKey", "left_anti")
    seen = Observation()
    messages = _in_order(_messages(rows, targets), asked.rate, sources)
    sent = messages.observe(seen, F.count(F.lit(1)).alias("rows"))
    if asked.rate is not None:
        options["rowsPerSecond"] = str(asked.rate)
    with job.progress(f"sending to {asked.to}"):
        sent.write.format("rocketmq").options(**options, topic=asked.to).mode("append").save()
    count = seen.get["rows"]
    numbers = {"sent": count, "queues": sources}
    if not asked.again:
        numbers["alreadyThere"] = chosen.count() - count
    left = f"; {numbers['alreadyThere']:,} were there already" if not asked.again else ""
    return JobResult(
        [],
        Outcome.HOLDS,
        f"HOLDS: {count:,} messages of {asked.topic} sent to {asked.to}{left}",
        numbers,
    )


def _choose_rows(table: DataFrame, asked: ReplayRequest) -> DataFrame:
    rows, stored = table.where(F.col("topic") == asked.topic), F.unix_millis("storeTimestamp")
    if asked.from_ms is not None:
        rows = rows.where(stored >= asked.from_ms)
    return rows if asked.to_ms is None else rows.where(stored < asked.to_ms)


def _read_ids(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    rows = spark.read.format("rocketmq").schema("uniqKey string").options(**options).load()
    return rows.where("uniqKey is not null").distinct()


def _messages(rows: DataFrame, targets: Sequence[QueueId]) -> DataFrame:
    """Give each queue's messages a target: the queue of its name, or always the same other."""
    names = [f"{queue.broker}/{queue.queue_id}" for queue in targets]
    here = F.concat_ws("/", F.coalesce("brokerName", F.lit("")), "queueId")
    turn = (F.pmod(F.xxhash64(here), F.lit(len(names))) + 1).cast("int")
    other = F.element_at(F.array(*map(F.lit, names)), turn)
    to = F.when(here.isin(names), here).otherwise(other)
    return rows.select(
        *("body", "keys", "tags", "flag"),
        _properties().alias("properties"),
        F.regexp_extract(to, "^(.*)/", 1).alias("brokerName"),
        F.substring_index(to, "/", -1).cast("int").alias("queueId"),
        *("storeTimestamp", "commitLogOffset"),
    )


def _properties() -> Column:
    """Return the properties. A message that was replayed before keeps its original times."""
    had = F.coalesce("properties", F.create_map().cast("map<string,string>"))
    more = F.create_map(
        F.lit(ORIGINAL_ID),
        F.col("msgId"),
        F.lit(ORIGINAL_BORN),
        F.unix_millis("bornTimestamp").cast("string"),
        F.lit(ORIGINAL_STORED),
        F.unix_millis("storeTimestamp").cast("string"),
    )
    return F.when(F.map_contains_key(had, ORIGINAL_ID), had).otherwise(F.map_concat(had, more))


def _in_order(messages: DataFrame, rate: int | None, queues: int) -> DataFrame:
    """Sort messages for sending; with a rate one task sends all, so that it can keep the rate."""
    parted = (
        messages.repartition(queues, "brokerName", "queueId")
        if rate is None
        else messages.repartition(1)
    )
    return parted.sortWithinPartitions("storeTimestamp", "commitLogOffset")
