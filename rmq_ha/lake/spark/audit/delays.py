"""
Checks delayed messages, and those that were sent back: each must be delivered to its target topic.

A level is delivered in order, so a message before a delivered one is lost. If no later one was
delivered, the consume queue says when it was due.

Spec: store.md, section 10.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from rmq_ha.base.model.topics import RETRY_PREFIX, SCHEDULE_TOPIC
from rmq_ha.lake.scan.store.queues import Queue
from rmq_ha.lake.spark.audit.rules import Code
from rmq_ha.lake.spark.audit.shape import findings, sentence
from rmq_ha.lake.spark.audit.stored_rows import queues_of_stores
from rmq_ha.ops.offsets.places import Place

LATE_MS = 60_000
"""A message that has been due for less than so many ms may wait for others, as after a start."""
Due = Mapping[tuple[str, int], int]
"""By broker and queue of a level: every message before this queue offset was due."""


def due_before(places: Sequence[Place], at_ms: int) -> Due:
    """
    Return which messages should have been delivered by a time. Brokers over the wire do not tell.

    :raises CannotDecide: a store cannot be read.
    """
    return {
        (label, queue_id): _due(queue, at_ms)
        for label, topic, queue_id, queue in queues_of_stores(places)
        if topic == SCHEDULE_TOPIC
    }


def _due(queue: Queue, at_ms: int) -> int:
    """
    Return the first entry that is due later; a level's entries are in the order of their times.
    """

    def due_at(offset: int) -> int:
        return int(queue.tags_codes(queue.units(offset, offset + 1))[0])

    offsets = range(queue.min_offset, queue.max_offset)
    return queue.min_offset + bisect_right(offsets, at_ms, key=due_at)


def undelivered(delayed: DataFrame, rows: DataFrame, due: Due, until_ms: int) -> DataFrame:
    """
    Return messages of the schedule topic that have no copy in their target topic.

    A message may have been sent back several times; then it has as many copies as delayed messages.

    :param delayed: result of `stored_rows.delayed_rows`.
    :param rows: result of `stored_rows.stored_rows`, with at least all rows that have their ids.
    :param until_ms: copies that were stored later are ignored.

    Columns: those of `delayed`.
    """
    of_message = ["brokerName", "realTopic", "id"]
    copies = (
        rows.where(F.col("topic") != SCHEDULE_TOPIC)
        .select("brokerName", F.col("topic").alias("realTopic"), "id", "storedMs")
        .join(delayed.select(*of_message).distinct(), of_message, "left_semi")
    )
    in_order = Window.partitionBy(*of_message)
    first = copies.withColumn(
        "number", F.row_number().over(in_order.orderBy("storedMs"))
    ).withColumnRenamed("storedMs", "deliveredMs")
    numbered = delayed.withColumn(
        "number", F.row_number().over(in_order.orderBy("commitLogOffset"))
    )
    level = Window.partitionBy("brokerName", "queueId")
    was_delivered = F.col("deliveredMs") <= F.lit(until_ms)
    ends = [
        F.lit(part) for (broker, queue), end in due.items() for part in (f"{queue}/{broker}", end)
    ]
    of_queue = F.concat_ws("/", "queueId", "brokerName")
    end = F.try_element_at(F.create_map(*ends), of_queue) if due else F.lit(0)
    return (
        numbered.join(first, [*of_message, "number"], "left")
        .withColumn("front", F.max(F.when(was_delivered, F.col("queueOffset"))).over(level))
        .where("deliveredMs is null")
        .where((F.col("queueOffset") < F.col("front")) | (F.col("queueOffset") < end))
        .select(*delayed.columns)
    )


def places_of(missing: DataFrame) -> DataFrame:
    """Return the queues that lack these messages; their offsets are not known."""
    return missing.select(
        F.col("realTopic").alias("topic"),
        F.col("realQueueId").alias("queueId"),
        F.lit(None).cast("long").alias("queueOffset"),
    )


def delay_findings(missing: DataFrame) -> DataFrame:
    """:param missing: result of `undelivered`."""
    is_retry = F.col("realTopic").startswith(RETRY_PREFIX)
    rows = missing.withColumn("level", F.col("queueId") + 1)
    return findings(
        rows.withColumn("topic", F.lit(SCHEDULE_TOPIC)),
        F.when(is_retry, F.lit(str(Code.RETRY_LOST))).otherwise(
            F.lit(str(Code.DELAY_NOT_DELIVERED))
        ),
        sentence(
            "of delay level {level}, was due, and no record of {realTopic} has its id: consumers"
            " never get it. Was the level's progress (delayOffset.json) moved over it, or does its"
            " broker deliver nothing? Send it again"
        ),
        expected=sentence("in {realTopic}, queue {realQueueId}"),
        actual=F.lit("only in the schedule topic"),
    )
