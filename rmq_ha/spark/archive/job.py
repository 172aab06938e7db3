"""The archive job: our stream into Spark's Parquet sink, up to what is cold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from rmq_ha.offsets.findings import Finding, Outcome, Severity
from rmq_ha.offsets.places import Place, StorePlace
from rmq_ha.scan.reducing import INTERNAL
from rmq_ha.spark.archive.table import (
    CHECKPOINT,
    DAY,
    STORED,
    archived,
    check_names,
    ends_of,
    lasts_of,
    was_replaced,
)
from rmq_ha.spark.audit.stored import source_options
from rmq_ha.spark.findings import frame_of
from rmq_ha.spark.result import JobResult
from rmq_ha.spark.running import Job
from rmq_ha.spark.source.batch import queues_of
from rmq_ha.spark.source.options import parse_options
from rmq_ha.spark.source.reading import QueueId
from rmq_ha.spark.source.streaming_offsets import Offsets

_SHOWN = 100
_DAY_MS = 86_400_000
_EVERYTHING = f"(?!(?:{'|'.join(INTERNAL)})$).*"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """
    What is to be archived.

    :ivar to: directory of the archive; a path, or a URI of any Hadoop file system.
    :ivar topics: empty: all but those in which brokers keep messages on their way.
    :ivar before_ms: only what was stored before; None: everything.
    :ivar broker_name: of a store.
    :ivar most: messages of a batch; so much is repeated when a run is killed.
    :ivar options: further ones of the data source.
    """

    place: Place
    to: str
    topics: Sequence[str] = ()
    before_ms: int | None = None
    broker_name: str = ""
    most: int = 5_000_000
    options: Mapping[str, str] = field(default_factory=dict)


def archive(job: Job, asked: Asked) -> JobResult:
    """
    Archive; see docs/spark.md, "archive". Nothing is deleted from the broker.

    :raises WrongUsage: messages cannot be read from the place, or it has another name there.
    :raises CannotDecide: source or archive cannot be read.
    """
    options = _source(asked)
    before = ends_of(asked.to) or {}
    findings = _look(job, asked, options, before)
    if findings:
        options["failOnDataLoss"] = "false"  # told once, and gone on behind it
    with job.progress(f"archiving into {asked.to}"):
        rows, bad = _write(job, asked, options)
    after = ends_of(asked.to) or {}
    if bad:
        findings += _damaged(archived(job.spark, asked.to), before)
    return _answer(job, asked, findings, {"rows": rows, "badCrc": bad}, (before, after))


def _source(asked: Asked) -> dict[str, str]:
    options = source_options(asked.place, asked.topics) | dict(asked.options)
    options.pop("scan", None)
    options["failOnDataLoss"] = "true"
    if not asked.topics:
        options["subscribePattern"] = _EVERYTHING
    if isinstance(asked.place, StorePlace) and asked.broker_name:
        options["brokerName"] = asked.broker_name
    return options


def _look(job: Job, asked: Asked, options: Mapping[str, str], ends: Offsets) -> list[Finding]:
    """What of the queues cannot be archived any more."""
    parsed = parse_options(options)
    queues = queues_of(parsed)
    there = queues.queues(parsed.subscription)
    check_names({queue.broker for queue in ends}, {queue.broker for queue in there})
    known = [queue for queue in there if queue in ends]
    lasts = lasts_of(archived(job.spark, asked.to), {queue: ends[queue] for queue in known})
    found = []
    for queue in known:
        (first, stop), end = queues.bounds(queue), ends[queue]
        if end < first:
            found.append(_expired(queue, end, first, job.now_ms()))
        elif end > stop:
            found.append(_ahead(queue, end, stop, job.now_ms()))
        elif first < end and was_replaced(queues, queue, end, lasts.get(queue, "")):
            found.append(_replaced(queue, end, job.now_ms()))
    return found


def _write(job: Job, asked: Asked, options: Mapping[str, str]) -> tuple[int, int]:
    """Rows that were archived, and how many of them had a body that did not fit its CRC."""
    spark = job.spark
    # Files of several topics and days at once, in place of sorting all bodies by them.
    spark.conf.set("spark.sql.maxConcurrentOutputFileWriters", "16")
    given = {**options, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(asked.most)}
    if asked.before_ms is not None:
        given["endingTimestamp"] = str(asked.before_ms)
    rows = (
        spark.readStream.format("rocketmq")
        .schema(STORED)
        .options(**given)
        .load()
        .withColumn(DAY, _day(F.col("storeTimestamp")))
        .observe("sums", F.count(F.lit(1)).alias("rows"), F.count_if(~F.col("crcOk")).alias("bad"))
    )
    query = (
        rows.writeStream.format("parquet")
        .queryName(f"archive {asked.place}")
        .partitionBy("topic", DAY)
        .option("checkpointLocation", f"{asked.to}/{CHECKPOINT}")
        .option("path", asked.to)
        .option("compression", "zstd")
        .option("parquet.block.size", str(16 << 20))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()
    sums = [_sums(batch) for batch in query.recentProgress]
    return sum(rows for rows, _ in sums), sum(bad for _, bad in sums)


def _sums(batch: Any) -> tuple[int, int]:
    """What was counted of a batch; over Connect pyspark wraps the row in another one."""
    row = batch["observedMetrics"].get("sums") or (0, 0)
    rows, bad = row[0] if isinstance(row[0], list) else row
    return rows, bad


def _day(ms: Column) -> Column:
    """The day in UTC, whatever the session's time zone is."""
    days = F.floor(F.unix_millis(ms) / _DAY_MS).cast("int")
    return F.date_add(F.lit("1970-01-01").cast("date"), days).cast("string")


def _damaged(table: DataFrame, before: Offsets) -> list[Finding]:
    rows = table.where("not crcOk").select(
        "brokerName", "topic", "queueId", "queueOffset", "commitLogOffset", "msgId"
    )
    return [
        Finding(
            Severity.WARN,
            "BAD_CRC",
            "the body did not fit its CRC in the source; archived as it is, with crcOk=false."
            " Take it from a replica while there is one",
            row["brokerName"],
            row["topic"],
            row["queueId"],
            physical_offset=row["commitLogOffset"],
            queue_offset=row["queueOffset"],
            msg_id=row["msgId"],
        )
        for row in rows.orderBy(F.desc("commitLogOffset")).limit(_SHOWN).collect()
        if row["queueOffset"]
        >= before.get(QueueId(row["topic"], row["brokerName"] or "", row["queueId"]), 0)
    ]


def _answer(
    job: Job,
    asked: Asked,
    findings: list[Finding],
    numbers: dict[str, Any],
    ends: tuple[Offsets, Offsets],
) -> JobResult:
    before, after = ends
    errors = [each for each in findings if each.severity == Severity.ERROR]
    queues = sum(before.get(queue) != end for queue, end in after.items())
    done = f"{numbers['rows']:,} messages of {queues:,} queues archived"
    verdict = f"HOLDS: {done}, each once"
    if errors:
        kinds = ", ".join(sorted({each.code for each in errors}))
        verdict = f"VIOLATED: {kinds}: {errors[0].detail}; {done}"
    return JobResult(
        frame_of(job.spark, findings),
        Outcome.VIOLATED if errors else Outcome.HOLDS,
        verdict,
        {**numbers, "queues": queues, "beforeMs": asked.before_ms},
    )


def _error(code: str, queue: QueueId, at: int, now_ms: int, *texts: str) -> Finding:
    detail, expected, actual = texts
    return Finding(
        Severity.ERROR, code, detail, queue.broker or None, queue.topic, queue.queue_id,
        queue_offset=at, expected=expected, actual=actual, observed_at=now_ms,
    )  # fmt: skip


def _expired(queue: QueueId, end: int, first: int, now_ms: int) -> Finding:
    return _error(
        "EXPIRED", queue, end, now_ms,
        f"{first - end} messages were deleted before they were archived: the broker keeps them too"
        " short a time (fileReservedTime), or the archive job ran too seldom",
        f"offset {end}", f"begins at {first}",
    )  # fmt: skip


def _ahead(queue: QueueId, end: int, stop: int, now_ms: int) -> Finding:
    return _error(
        "ARCHIVE_AHEAD", queue, stop, now_ms,
        f"the archive has {end - stop} messages that the queue does not have: its end was lost, as"
        " in a fail-over to a replica that lacked it, or its topic was made anew. What comes now is"
        " archived with offsets that were used before; msgId tells them apart",
        f"at least {end} messages", f"ends at {stop}",
    )  # fmt: skip


def _replaced(queue: QueueId, end: int, now_ms: int) -> Finding:
    return _error(
        "REPLACED", queue, end - 1, now_ms,
        f"offset {end - 1}, the last that is archived, holds another message now: offsets were"
        " used again, as after a fail-over to a replica that lacked the end, or in a topic that was"
        " made anew. What lies there in front of it is not in this archive; what comes behind it"
        " is. Another archive (--to) has what is there now",
        "the message that is archived", "another one",
    )  # fmt: skip
