"""
Checks delayed messages, and messages that consumers sent back: each must be delivered to its target
topic.

A level is delivered in order. So a message that was not delivered is lost if a later one of its
level was. If no later one was delivered, `delayOffset.json` or the times in the consume queue tell
whether the message should have been delivered.

Spec: store.md, section 10.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from rmq_ha.base.errors import CannotDecide, ProtocolViolation
from rmq_ha.base.model.topics import RETRY_PREFIX, SCHEDULE_TOPIC
from rmq_ha.base.wire.bodies import decode_delay_offsets
from rmq_ha.lake.frames import functions as F
from rmq_ha.lake.frames.columns import Column, Window
from rmq_ha.lake.frames.frame import DataFrame
from rmq_ha.lake.scan.store.directory import open_store
from rmq_ha.lake.scan.store.parts import Queue
from rmq_ha.lake.spark.audit.rules import Code
from rmq_ha.lake.spark.audit.shape import findings, sentence
from rmq_ha.lake.spark.audit.stored_rows import label_of, queues_of_stores
from rmq_ha.ops.offsets.places import Place, StorePlace

LATE_MS = 60_000
"""A message that has been due for less than so many ms may wait for others, as after a start."""
_SAMPLES = 20
"""From how many messages of a level its delay is computed."""
Due = Mapping[tuple[str, int], int]
"""
By broker and queue of a level: a queue offset, before which every message was due or delivered; or
a delay in ms.
"""


def due_before(places: Sequence[Place], at_ms: int) -> Due:
    """
    Return for each level the offset of the first message that is due after a time. It is not known
    for brokers over the wire.

    :raises CannotDecide: a store cannot be read.
    """
    return {
        (label, queue_id): _due(queue, at_ms)
        for label, topic, queue_id, queue in queues_of_stores(places)
        if topic == SCHEDULE_TOPIC
    }


def _due(queue: Queue, at_ms: int) -> int:
    """Return the first entry that is due later; entries are in the order of their times."""

    def due_at(offset: int) -> int:
        return int(queue.tags_codes(queue.units(offset, offset + 1))[0])

    offsets = range(queue.min_offset, queue.max_offset)
    return queue.min_offset + bisect_right(offsets, at_ms, key=due_at)


def progress_of(places: Sequence[Place]) -> Due:
    """
    Return the offset up to which each level was delivered, as `delayOffset.json` of each store has
    it.

    Call this before the log is read, because brokers write the log first. A damaged table is
    ignored.

    :raises CannotDecide: a store cannot be read.
    """
    progress: dict[tuple[str, int], int] = {}
    for place in places:
        if isinstance(place, StorePlace):
            store, label = open_store(place.uri, damaged=True), label_of(place, places)
            try:
                table = decode_delay_offsets(store.config("delayOffset.json") or b"{}")
            except (CannotDecide, ProtocolViolation):
                continue
            progress |= {(label, level - 1): offset for level, offset in table.items()}
    return progress


def delays_of(places: Sequence[Place]) -> Due:
    """
    Return the shortest delay of each level in ms, by some messages of the level: a store does not
    say with which `messageDelayLevel` it was written. Brokers over the wire do not tell.

    :raises CannotDecide: a store cannot be read.
    """
    shortest: dict[tuple[str, int], int] = {}
    for place in places:
        if not isinstance(place, StorePlace):
            continue
        store, label = open_store(place.uri, damaged=True), label_of(place, places)
        for topic, queue_id in store.topics_on_disk():
            if topic != SCHEDULE_TOPIC:
                continue
            queue = store.queue(topic, queue_id)
            low, count = queue.min_offset, queue.max_offset - queue.min_offset
            places_of_samples = {low + number * count // _SAMPLES for number in range(_SAMPLES)}
            for offset in places_of_samples if count else ():
                unit = queue.units(offset, offset + 1)
                stored = store.store_time_of(int(unit["offset"][0])) if len(unit) else 0
                if stored:
                    delay = int(queue.tags_codes(unit)[0]) - stored
                    known = shortest.get((label, queue_id), delay)
                    shortest[label, queue_id] = min(known, delay)
    return shortest


def with_copies(delayed: DataFrame, rows: DataFrame) -> DataFrame:
    """
    Add to messages of the schedule topic when their copy was stored in their target topic.

    A message may have been sent back several times; then it has as many copies as delayed messages.

    :param delayed: result of `stored_rows.delayed_rows`.
    :param rows: result of `stored_rows.stored_rows`, with at least all rows that have their ids.

    Columns: those of `delayed`, `deliveredMs` (null: there is no copy), and `isRepeated` (there are
    more copies than delayed messages, so it is not known which copy is whose).
    """
    of_message = ["brokerName", "realTopic", "id"]
    copies = (
        rows.where(F.col("topic") != SCHEDULE_TOPIC)
        .select("brokerName", F.col("topic").alias("realTopic"), "id", "storedMs")
        .join(delayed.select(*of_message).distinct(), of_message, "left_semi")
    )
    every = Window.partitionBy(*of_message)
    first = (
        copies.withColumn("number", F.row_number().over(every.orderBy("storedMs")))
        .withColumn("copies", F.count(F.lit(1)).over(every))
        .withColumnRenamed("storedMs", "deliveredMs")
    )
    numbered = delayed.withColumn(
        "number", F.row_number().over(every.orderBy("commitLogOffset"))
    ).withColumn("times", F.count(F.lit(1)).over(every))
    joined = numbered.join(first, [*of_message, "number"], "left")
    is_repeated = F.coalesce(F.col("copies") > F.col("times"), F.lit(False))
    return joined.select(*delayed.columns, "deliveredMs", is_repeated.alias("isRepeated"))


def undelivered(copied: DataFrame, due: Due, until_ms: int) -> DataFrame:
    """
    Return messages of the schedule topic that have no copy in their target topic.

    :param due: by level: every message before this offset has to be delivered.
    :param until_ms: copies that were stored later are ignored.
    """
    level = Window.partitionBy("brokerName", "queueId")
    was_delivered = F.col("deliveredMs") <= F.lit(until_ms)
    end = _of_level(due, F.lit(0))
    return (
        copied.withColumn("front", F.max(F.when(was_delivered, F.col("queueOffset"))).over(level))
        .where("deliveredMs is null")
        .where((F.col("queueOffset") < F.col("front")) | (F.col("queueOffset") < end))
        .drop("front")
    )


def early(copied: DataFrame, delays: Due, grace_ms: int) -> DataFrame:
    """
    Return messages of the schedule topic whose copy was stored before they were due.

    :param grace_ms: by how much a copy may be early: clocks of two masters differ.
    """
    waited = F.col("deliveredMs") - F.col("storedMs")
    return copied.withColumn("delay", _of_level(delays, F.lit(None))).where(
        ~F.col("isRepeated") & (waited >= 0) & (waited < F.col("delay") - grace_ms)
    )


def _of_level(values: Due, other: Column) -> Column:
    """Return the value of a row's level."""
    if not values:
        return other.cast("long")
    parts = [
        F.lit(part)
        for (broker, queue), value in values.items()
        for part in (f"{queue}/{broker}", value)
    ]
    of_queue = F.concat_ws("/", "queueId", "brokerName")
    return F.coalesce(F.try_element_at(F.create_map(*parts), of_queue).cast("long"), other)


def places_of(missing: DataFrame) -> DataFrame:
    """Return the queues that lack these messages; their offsets are not known."""
    return missing.select(
        F.col("realTopic").alias("topic"),
        F.col("realQueueId").alias("queueId"),
        F.lit(None).cast("long").alias("queueOffset"),
    )


def delay_findings(missing: DataFrame) -> DataFrame:
    """Return findings for delayed messages that were due and are in no topic (`undelivered`)."""
    is_retry = F.col("realTopic").startswith(RETRY_PREFIX)
    rows = missing.withColumn("level", F.col("queueId") + 1)
    return findings(
        rows.withColumn("topic", F.lit(SCHEDULE_TOPIC)),
        F.when(is_retry, F.lit(str(Code.RETRY_LOST))).otherwise(
            F.lit(str(Code.DELAY_NOT_DELIVERED))
        ),
        "of delay level {level}, was due, and no record of {realTopic} has its id: consumers"
        " never get it. Was the level's progress (delayOffset.json) moved over it, or does its"
        " broker deliver nothing? Send it again",
        expected="in {realTopic}, queue {realQueueId}",
        actual="only in the schedule topic",
    )


def early_findings(rows: DataFrame) -> DataFrame:
    """Return findings for delayed messages that came before they were due (`early`)."""
    return findings(
        rows.withColumn("topic", F.lit(SCHEDULE_TOPIC)).withColumn("level", F.col("queueId") + 1),
        Code.DELAY_EARLY,
        sentence(
            "of delay level {level}, came to {realTopic} after {waited} ms: consumers got it"
            " before it was due",
            waited=F.col("deliveredMs") - F.col("storedMs"),
        ),
        expected="after {delay} ms",
        actual=sentence("after {waited} ms", waited=F.col("deliveredMs") - F.col("storedMs")),
    )
