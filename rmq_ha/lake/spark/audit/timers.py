"""
Checks timer messages by the rules of `rmq_ha.ops.offline.timer_rules`: each message past its
time has one delivery or one recall.

Spec: timer.md, sections 4 and 13.1.
"""

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Any

import pyarrow as pa

from rmq_ha.base.model.properties import REAL_TOPIC, TIMER_DEQUEUE_MS
from rmq_ha.base.model.topics import TIMER_TOPIC
from rmq_ha.lake.frames import functions as F
from rmq_ha.lake.frames.frame import DataFrame, Engine
from rmq_ha.lake.scan.arrays import schema
from rmq_ha.lake.spark.audit.rules import Code
from rmq_ha.lake.spark.audit.shape import findings, sentence
from rmq_ha.lake.spark.audit.stored_rows import AuditRequest, inside_time, options_of_topics
from rmq_ha.ops.offline.timer_rules import TimerHistory, TimerPart, faults_in, timer_records

_PLACE = ("topic", "queueId", "queueOffset", "id")
_MOST_TOPICS = 1000
_OF_RECORD = (
    "commitLogOffset:long storedMs:long topic:string queueId:int queueOffset:long id:string"
)
_RECORDS = schema(
    f"brokerName:string part:string source:string name:string dueMs:long {_OF_RECORD}"
)
_JUDGED = schema(
    f"brokerName:string {_OF_RECORD} source:string dueMs:long deliveries:long code:string"
)


def timer_rows(engine: Engine, asked: AuditRequest) -> DataFrame:
    """
    Return the records that are about timer messages, with the columns of `_RECORDS`.

    Besides the timer topic only the topics are read in which its messages are delivered. If there
    are more than 1000 of them, all topics are read.
    """
    names = ["brokerName", "topic", "queueId", "queueOffset", "commitLogOffset", "storeTimestamp"]
    columns = [*names, "uniqKey", "properties"]

    def read(*some: str) -> DataFrame:
        frames = [
            inside_time(engine.messages(given, columns), asked)
            for given in options_of_topics(asked, some)
        ]
        return reduce(DataFrame.unionByName, frames)

    target = F.col("properties")[REAL_TOPIC]
    waiting = read(TIMER_TOPIC).select(target.alias("realTopic")).distinct()
    topics = [row["realTopic"] for row in waiting.limit(_MOST_TOPICS + 1).collect()]
    real_topics = [
        topic for topic in topics if topic and (not asked.topics or topic in asked.topics)
    ]
    is_few = len(topics) <= _MOST_TOPICS
    rows = read(TIMER_TOPIC, *real_topics) if is_few else read()
    is_delivery = F.col("properties")[TIMER_DEQUEUE_MS].isNotNull()
    told = rows.where((F.col("topic") == TIMER_TOPIC) | is_delivery)
    if asked.topics:
        told = told.where(F.col("properties")[REAL_TOPIC].isin(*asked.topics))
    return told.select(
        F.coalesce("brokerName", F.lit("")).alias("brokerName"),
        *names[1:5],
        F.unix_millis("storeTimestamp").alias("storedMs"),
        F.col("uniqKey").alias("id"),
        "properties",
    ).mapInArrow(_records_of_batches, _RECORDS)


def _records_of_batches(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        told: list[dict[str, Any]] = []
        for row in batch.to_pylist():
            properties = dict(row.pop("properties") or ())
            place = row["commitLogOffset"]
            for item in timer_records(row["topic"], properties, place, row["queueOffset"]):
                told.append(
                    {
                        **row,
                        "part": str(item.part),
                        "source": item.source,
                        "name": item.name,
                        "dueMs": item.due_ms,
                    }
                )
        if told:
            yield pa.RecordBatch.from_pylist(told, schema=_RECORDS)


def judged(told: DataFrame, newest_ms: Mapping[str, int]) -> DataFrame:
    """
    Return the messages with faults, one row for each fault, with the columns of `_JUDGED`.

    :param told: result of `timer_rows`.
    :param newest_ms: store time of the newest message of each broker, by its name, ms.
    """
    own = told.where(F.col("source") != "")

    def is_part(part: TimerPart) -> Any:
        return F.col("part") == str(part)

    def has_part(part: TimerPart) -> Any:
        return F.max(F.when(is_part(part), F.lit(1)).otherwise(F.lit(0)))

    delivery = is_part(TimerPart.DELIVERY)
    histories = own.groupBy("brokerName", "source").agg(
        F.max("dueMs").alias("dueMs"),
        has_part(TimerPart.WAITS).alias("waits"),
        F.sum(F.when(delivery, F.lit(1)).otherwise(F.lit(0))).cast("long").alias("deliveries"),
        F.min(F.when(delivery, F.col("storedMs"))).alias("deliveredMs"),
        has_part(TimerPart.RECALL).alias("recalled"),
        has_part(TimerPart.REPLACEMENT).alias("replaced"),
        F.max("name").alias("name"),
        F.max("commitLogOffset").alias("commitLogOffset"),
        F.max_by("storedMs", "commitLogOffset").alias("storedMs"),
        *(F.max_by(name, "commitLogOffset").alias(name) for name in _PLACE),
    )
    named = told.where("source = ''").select("brokerName", "name").distinct()
    marked = named.withColumn("named", F.lit(1))

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            rows: list[dict[str, Any]] = []
            for row in batch.to_pylist():
                newest = newest_ms.get(row["brokerName"], 0)
                kept = {name: row[name] for name in _JUDGED.names if name != "code"}
                rows += [{**kept, "code": str(fault)} for fault in faults_in(_history(row), newest)]
            if rows:
                yield pa.RecordBatch.from_pylist(rows, schema=_JUDGED)

    joined = histories.join(marked, ["brokerName", "name"], "left")
    return joined.mapInArrow(work, _JUDGED)


def _history(row: Mapping[str, Any]) -> TimerHistory:
    return TimerHistory(
        row["dueMs"],
        bool(row["waits"]),
        row["deliveries"],
        row["deliveredMs"] or 0,
        bool(row["recalled"]),
        bool(row["replaced"]),
        bool(row["named"]),
    )


_SENTENCES = {
    Code.TIMER_NOT_DELIVERED: (
        "a timer message that is past its time, and the log has neither a delivery nor a recall of"
        " it. A start with timerWheelEnable=true delivers it, unless a record of progress says that"
        " it was delivered: `rmqha-admin store verify` tells. Look at timerStopDequeue, too"
    ),
    Code.TIMER_DELIVERED_TWICE: (
        "the timer message at {source} was delivered {deliveries} times, or it and its copy were:"
        " consumers get it again"
    ),
    Code.TIMER_DELIVERED_EARLY: (
        "the timer message at {source} was delivered before it was due: was the clock of a master"
        " set?"
    ),
    Code.TIMER_RECALLED_DELIVERED: (
        "the timer message at {source} was recalled and delivered: its producer was told that"
        " nobody gets it"
    ),
}


def timer_findings(rows: DataFrame) -> list[DataFrame]:
    """Return the findings of the rows of `judged`, one frame for each kind of fault."""
    return [
        findings(
            rows.where(F.col("code") == str(code)),
            code,
            sentence(text),
            expected=F.concat(F.lit("once, from "), F.timestamp_millis("dueMs").cast("string")),
            actual="{deliveries} deliveries",
        )
        for code, text in _SENTENCES.items()
    ]
