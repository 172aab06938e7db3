"""Reads an archive and the live topic as one table."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rmq_ha.base.errors import CannotDecide, WrongUsage
from rmq_ha.lake.scan.reducing import INTERNAL
from rmq_ha.lake.spark.archive.forms import PARQUET, open_archive
from rmq_ha.lake.spark.source.boundaries import BoundaryKind
from rmq_ha.lake.spark.source.messages import queues_of
from rmq_ha.lake.spark.source.options import SourceOptions, parse_options
from rmq_ha.lake.spark.source.reading import QueueId, QueueRange, Queues
from rmq_ha.lake.spark.source.schema import message_schema
from rmq_ha.lake.spark.source.streaming_offsets import Offsets, to_json
from rmq_ha.ops.offsets.findings import Finding, Severity

_WHICH = ("subscribe", "subscribepattern", "assign", "topic")


def lasts_of(table: DataFrame, ends: Offsets) -> dict[QueueId, str]:
    """Return a text that identifies the last archived message of each queue, for `was_replaced`."""
    places = {(queue.topic, queue.queue_id, end - 1) for queue, end in ends.items()}
    if not places:
        return {}
    topics, ids, offsets = (list(set(values)) for values in zip(*places, strict=True))
    # Spark knows the least and greatest offset of each file, so it reads few of them.
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
    lasts = {}
    for row in rows.collect():
        queue = QueueId(row["topic"], row["broker"], row["queueId"])
        if ends.get(queue) == row["queueOffset"] + 1:
            lasts[queue] = f"{row['msgId']}@{row['ms']}"
    return lasts


def was_replaced(queues: Queues, queue: QueueId, end: int, last: str) -> bool:
    """
    Return whether the queue's message before the archive's end differs from the archive's last
    message. Then the broker used offsets again: after a failover to a replica that lacked these
    messages, or in a topic that was deleted and created again.

    :param last: text of `lasts_of`; empty: not known, so the queue is not asked.
    """
    if not last:
        return False
    try:
        for batch in queues.read(QueueRange(queue, end - 1, end), ("msgId", "storeTimestamp")):
            for row in batch.to_pylist():
                stored = round(row["storeTimestamp"].timestamp() * 1000)
                return last != f"{row['msgId']}@{stored}"
    except CannotDecide:
        pass  # deleted meanwhile, or damaged: a read from there reports it
    return False


def joint(
    source: Queues,
    queues: Sequence[QueueId],
    ends: Offsets,
    lasts: Mapping[QueueId, str],
    before_ms: int | None = None,
) -> tuple[dict[QueueId, tuple[int, int]], list[Finding]]:
    """
    Return for each queue the range that continues its archive. Also return findings about queues
    that do not continue it: messages are gone, or offsets were used again.

    :param before_ms: only messages stored before this time; None: all.
    :raises WrongUsage: queues have other names than in the archive.
    """
    check_names({queue.broker for queue in ends}, {queue.broker for queue in queues})
    spans: dict[QueueId, tuple[int, int]] = {}
    misfits: list[Finding] = []
    for queue in queues:
        first, stop = source.bounds(queue)
        end = ends.get(queue, first)
        if queue in ends:
            misfits.extend(_misfits(source, queue, end, (first, stop), lasts.get(queue, "")))
        begin = min(max(end, first), stop)
        cold = None if before_ms is None else source.offset_at(queue, before_ms)
        spans[queue] = begin, stop if cold is None else max(begin, min(cold, stop))
    return spans, misfits


def _misfits(
    source: Queues, queue: QueueId, end: int, bounds: tuple[int, int], last: str
) -> Iterator[Finding]:
    """Yield a finding if a queue does not continue its archive, which ends at `end`."""
    first, stop = bounds
    if end < first:
        yield _error(
            "EXPIRED", queue, end,
            f"{first - end} messages were deleted before they were archived: the broker keeps them"
            " too short a time (fileReservedTime), or the archive job ran too seldom",
            f"offset {end}", f"begins at {first}",
        )  # fmt: skip
    elif end > stop:
        yield _error(
            "ARCHIVE_AHEAD", queue, stop,
            f"the archive has {end - stop} messages that the queue does not have: its end was lost,"
            " as in a fail-over to a replica that lacked it, or its topic was made anew. What comes"
            " now is archived with offsets that were used before; msgId tells them apart",
            f"at least {end} messages", f"ends at {stop}",
        )  # fmt: skip
    elif first < end and was_replaced(source, queue, end, last):
        yield _error(
            "REPLACED", queue, end - 1,
            f"offset {end - 1}, the last that is archived, holds another message now: offsets were"
            " used again, as after a fail-over to a replica that lacked the end, or in a topic that"
            " was made anew. What lies there in front of it is not in this archive; what comes"
            " behind it is. Another archive (--to) has what is there now",
            "the message that is archived", "another one",
        )  # fmt: skip


def _error(code: str, queue: QueueId, at: int, *texts: str) -> Finding:
    detail, expected, actual = texts
    return Finding(
        Severity.ERROR, code, detail, queue.broker or None, queue.topic, queue.queue_id,
        queue_offset=at, expected=expected, actual=actual,
    )  # fmt: skip


def check_names(archived: Collection[str], current: Collection[str]) -> None:
    """
    Check that the queues have the same names as in the archive: a queue with two names would be
    archived twice.

    :raises WrongUsage: one side has brokers without a name, the other has names.
    """
    if not archived or not current or ("" in archived) == ("" in current):
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
    form: str = PARQUET,
    include_properties: bool = False,
) -> DataFrame:
    """
    Return archive and live topic as one table: each message once, and none missing even if the
    broker has deleted archived messages.

    :param live: options of the data source that name brokers and topics, without a starting place;
        None: the archive alone.
    :param form: form of the archive; see `open_archive`.
    :raises WrongUsage: the options have a starting place, or name no broker although the archive
        does.
    :raises CannotDecide: messages between the archive's end and the beginning of a live queue are
        gone (not with `failOnDataLoss=false`).
    """
    schema = message_schema(include_properties)
    columns = schema.fieldNames()
    kept = open_archive(spark, archive, form)
    ends = kept.ends() or {}
    old = kept.rows(ends)
    if live is None:
        return old.select(columns)
    options = parse_options(live)
    if options.start.kind is not BoundaryKind.EARLIEST:
        raise WrongUsage("the live part begins where the archive ends: give no starting offsets")
    lasts = lasts_of(old, ends) if options.fail_on_data_loss else {}
    broker = options.broker_name
    if broker and {queue.broker for queue in ends} == {""}:  # the unnamed store is this broker's
        old = old.withColumn("brokerName", F.lit(broker))
        ends = {queue._replace(broker=broker): end for queue, end in ends.items()}
        lasts = {queue._replace(broker=broker): last for queue, last in lasts.items()}
    old = _subscribed_rows(old, ends, options).select(columns)
    # The live part begins where the archive ends, queue by queue. So no message comes twice and
    # none is left out.
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
    """Return offsets as JSON for options; queues without a broker's name have no level for it."""
    tree = to_json(offsets)
    return json.dumps({topic: brokers.get("", brokers) for topic, brokers in tree.items()})


def assigned(queues: Iterable[QueueId]) -> str:
    """Return queues as JSON for the option `assign`."""
    tree: dict[str, Any] = {}
    for queue in queues:
        if queue.broker:
            tree.setdefault(queue.topic, {}).setdefault(queue.broker, []).append(queue.queue_id)
        else:
            tree.setdefault(queue.topic, []).append(queue.queue_id)
    return json.dumps(tree)


def _subscribed_rows(old: DataFrame, ends: Offsets, options: SourceOptions) -> DataFrame:
    """Return the subscription's rows; topics are directories, and others are not opened."""
    subscription = options.subscription
    if options.tags is not None:
        old = old.where(F.col("tags").isin(*options.tags))
    if subscription.is_everything:
        return old
    queues = [queue for queue in ends if subscription.wants(queue)]
    old = old.where(F.col("topic").isin(*{queue.topic for queue in queues}))
    keys = [
        F.concat_ws("/", F.lit(queue.broker), F.lit(queue.queue_id), F.lit(queue.topic))
        for queue in queues
    ]
    return old.where(
        F.concat_ws("/", F.coalesce("brokerName", F.lit("")), "queueId", "topic").isin(*keys)
    )


def _starts(options: SourceOptions, ends: Offsets, lasts: Mapping[QueueId, str]) -> Offsets:
    """Return where each live queue is read from: the archive's end, or its own beginning."""
    # Read whatever the tags are: the message before the archive's end shows whether the queue is
    # the same.
    source = queues_of(replace(options, tags=None, tag_expression="*"))
    queues = source.queues(options.subscription)
    if options.subscription.is_everything:
        queues = [queue for queue in queues if queue.topic not in INTERNAL]
    spans, misfits = joint(source, queues, ends, lasts)
    for misfit in misfits if options.fail_on_data_loss else ():
        place = QueueId(misfit.topic or "", misfit.broker or "", misfit.queue_id or 0)
        raise CannotDecide(f"{place}: {misfit.detail}. failOnDataLoss=false reads what there is")
    return {queue: begin for queue, (begin, _) in spans.items()}
