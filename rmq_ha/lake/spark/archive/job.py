"""Archives cold messages: a stream into Spark's Parquet sink, or commits to a Delta table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from rmq_ha.lake.scan.reducing import INTERNAL
from rmq_ha.lake.spark.archive.forms import (
    CHECKPOINT,
    DAY,
    PARQUET,
    STORED,
    DeltaArchive,
    open_archive,
)
from rmq_ha.lake.spark.archive.table import assigned, joint, lasts_of, nested
from rmq_ha.lake.spark.audit.stored_rows import source_options
from rmq_ha.lake.spark.compat import HAS_LIMITS
from rmq_ha.lake.spark.result import JobResult
from rmq_ha.lake.spark.running import Job
from rmq_ha.lake.spark.source.messages import queues_of
from rmq_ha.lake.spark.source.options import parse_options
from rmq_ha.lake.spark.source.reading import QueueId
from rmq_ha.lake.spark.source.streaming_offsets import Offsets, portions
from rmq_ha.ops.offsets.findings import Finding, Outcome, Severity
from rmq_ha.ops.offsets.places import Place, StorePlace

_SHOWN = 100
_DAY_MS = 86_400_000
_EVERYTHING = f"(?!(?:{'|'.join(INTERNAL)})$).*"


@dataclass(frozen=True, kw_only=True)
class ArchiveRequest:
    """
    The messages to archive.

    :ivar to: directory of the archive; a path, or a URI of any Hadoop file system.
    :ivar topics: topics to archive; empty: all except those in which brokers keep messages on their
        way.
    :ivar before_ms: only messages stored before this time; None: all.
    :ivar most: most messages in a batch; a run that was killed in a batch reads that batch again.
    """

    place: Place
    to: str
    form: str = PARQUET
    topics: Sequence[str] = ()
    before_ms: int | None = None
    broker_name: str = ""
    most: int = 5_000_000
    options: Mapping[str, str] = field(default_factory=dict)


def archive(job: Job, asked: ArchiveRequest) -> JobResult:
    """
    Archive; see docs/spark.md, "archive". Nothing is deleted from the broker.

    :raises WrongUsage: messages cannot be read from the place, its broker has another name in the
        archive, or this Spark does not know tables of that form.
    :raises CannotDecide: source or archive cannot be read.
    """
    options = _source(asked)
    target = open_archive(job.spark, asked.to, asked.form)
    before = target.ends() or {}
    parsed = parse_options(options)
    source = queues_of(parsed)
    queues = source.queues(parsed.subscription)
    known = {queue: before[queue] for queue in queues if queue in before}
    lasts = lasts_of(target.rows(before), known)
    spans, misfits = joint(source, queues, before, lasts, asked.before_ms)
    findings = [misfit._replace(observed_at=job.now_ms()) for misfit in misfits]
    if findings:
        options["failOnDataLoss"] = "false"  # reported once, and skipped
    # Write files of several topics and days at once, so that Spark need not sort all bodies by
    # them.
    job.spark.conf.set("spark.sql.maxConcurrentOutputFileWriters", "16")
    with job.progress(f"archiving into {asked.to}"):
        if isinstance(target, DeltaArchive):
            rows, bad, after = _commit(job, target, options, asked.most, (before, spans))
        else:
            (rows, bad), after = _stream(job, asked, options), target.ends() or {}
    if bad:
        findings += _crc_findings(target.rows(after), before)
    return _answer(job, asked, findings, {"rows": rows, "badCrc": bad}, (before, after))


def _source(asked: ArchiveRequest) -> dict[str, str]:
    options = source_options(asked.place, asked.topics) | dict(asked.options)
    options.pop("scan", None)
    options["failOnDataLoss"] = "true"
    if not asked.topics:
        options["subscribePattern"] = _EVERYTHING
    if isinstance(asked.place, StorePlace) and asked.broker_name:
        options["brokerName"] = asked.broker_name
    return options


def _stream(job: Job, asked: ArchiveRequest, options: Mapping[str, str]) -> tuple[int, int]:
    """Archive as a stream; return the numbers of rows, and of rows with a wrong CRC."""
    given = {**options, "startingOffsets": "earliest"}
    if HAS_LIMITS:  # without limits one batch takes all
        given["maxOffsetsPerTrigger"] = str(asked.most)
    if asked.before_ms is not None:
        given["endingTimestamp"] = str(asked.before_ms)
    rows = job.spark.readStream.format("rocketmq").schema(STORED).options(**given).load()
    query = (
        _with_day(rows)
        .observe("sums", *_sums())
        .writeStream.format("parquet")
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
    sums = [_sums_of_batch(batch) for batch in query.recentProgress]
    return sum(rows for rows, _ in sums), sum(bad for _, bad in sums)


def _commit(
    job: Job,
    target: DeltaArchive,
    options: Mapping[str, str],
    most: int,
    begun: tuple[Offsets, Mapping[QueueId, tuple[int, int]]],
) -> tuple[int, int, Offsets]:
    """
    Archive with the offsets in each commit of at most `most` messages; return numbers as `_stream`,
    and the end.

    :param begun: where the archive ends now; and for each queue where to begin and to stop.
    """
    before, spans = begun
    now = before | {queue: begin for queue, (begin, _) in spans.items()}
    given = {key: value for key, value in options.items() if not key.startswith("subscribe")}
    rows = bad = 0
    while True:
        left = {queue: stop - now[queue] for queue, (_, stop) in spans.items()}
        taken = portions(left, most, sum(now.values()))
        if not taken and all(now[queue] == end for queue, end in before.items()):
            return rows, bad, before
        given["assign"] = assigned(taken)
        given["startingOffsets"] = nested({queue: now[queue] for queue in taken})
        now = now | {queue: now[queue] + count for queue, count in taken.items()}
        given["endingOffsets"] = nested({queue: now[queue] for queue in taken})
        reader = job.spark.read.format("rocketmq").schema(STORED).options(**given)
        read = reader.load() if taken else job.spark.createDataFrame([], STORED)
        seen = Observation()
        target.append(_with_day(read).observe(seen, *_sums()), before, now)
        rows, bad, before = rows + seen.get["rows"], bad + seen.get["bad"], now


def _sums() -> tuple[Column, Column]:
    return F.count(F.lit(1)).alias("rows"), F.count_if(~F.col("crcOk")).alias("bad")


def _sums_of_batch(batch: Any) -> tuple[int, int]:
    """Return the sums of a batch; with Spark Connect pyspark wraps the row in another one."""
    row = batch["observedMetrics"].get("sums") or (0, 0)
    rows, bad = row[0] if isinstance(row[0], list) else row
    return rows, bad


def _with_day(rows: DataFrame) -> DataFrame:
    """Add the day in UTC, whatever the session's time zone is."""
    days = F.floor(F.unix_millis("storeTimestamp") / _DAY_MS).cast("int")
    return rows.withColumn(DAY, F.date_add(F.lit("1970-01-01").cast("date"), days).cast("string"))


def _crc_findings(table: DataFrame, before: Offsets) -> list[Finding]:
    """Return findings for the newest `_SHOWN` bodies with a wrong CRC, from `before` on."""
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
    asked: ArchiveRequest,
    findings: list[Finding],
    numbers: dict[str, Any],
    ends: tuple[Offsets, Offsets],
) -> JobResult:
    """Return the result; `ends` are the offsets where the archive ended before and after."""
    before, after = ends
    errors = [finding for finding in findings if finding.severity == Severity.ERROR]
    queues = sum(before.get(queue) != end for queue, end in after.items())
    done = f"{numbers['rows']:,} messages of {queues:,} queues archived"
    verdict = f"HOLDS: {done}, each once"
    if errors:
        kinds = ", ".join(sorted({error.code for error in errors}))
        verdict = f"VIOLATED: {kinds}: {errors[0].detail}; {done}"
    return JobResult(
        findings,
        Outcome.VIOLATED if errors else Outcome.HOLDS,
        verdict,
        {**numbers, "queues": queues, "beforeMs": asked.before_ms},
    )
