"""Checks queues: no offset is missing or used twice, and the log has their order and ends."""

from collections.abc import Collection, Mapping, Sequence

from rmq_ha.lake.frames import functions as F
from rmq_ha.lake.frames.columns import Column, Window
from rmq_ha.lake.frames.frame import DataFrame
from rmq_ha.lake.spark.audit.rules import SEVERITIES, Code, in_queue
from rmq_ha.lake.spark.audit.shape import QUEUE, all_faults, fault, findings, sentence
from rmq_ha.lake.spark.audit.stored_rows import queues_of_stores
from rmq_ha.ops.offsets.findings import Finding
from rmq_ha.ops.offsets.places import Place

_LIFE = (*QUEUE, "life")


def single_runs(rows: DataFrame) -> DataFrame:
    """Return each row of `stored_rows.stored_rows` as a run of its own, for `runs_of`."""
    offset = F.col("queueOffset")
    return rows.where(in_queue(F.col("sysFlag"))).select(
        *QUEUE, "commitLogOffset", "storedMs", offset.alias("first"), offset.alias("last")
    )


def runs_of(parts: DataFrame) -> DataFrame:
    """
    Return the longest stretches in which each record of a queue has the offset after that of its
    predecessor in the log. A healthy queue is one run.

    :param parts: parts of runs: the queue, `commitLogOffset` and `storedMs` of the first record,
        `first` and `last` queue offset.

    Columns: those of the queue, `commitLogOffset` and `storedMs` of the first record, `first` and
    `last` queue offset, `before` (last offset of the run before it in the log) and `life`: a queue
    that begins at 0 again is another one, because its topic was deleted and created again.
    """
    in_log = Window.partitionBy(*QUEUE).orderBy("commitLogOffset")
    first, last, before, after = (F.col(name) for name in ("first", "last", "before", "after"))
    edges = (
        parts.withColumn("before", F.lag("last").over(in_log))
        .withColumn("after", F.lead("first").over(in_log))
        .withColumn("opens", before.isNull() | (first != before + 1))
        .withColumn("closes", after.isNull() | (after != last + 1))
        .where("opens or closes")
        .withColumn("last", F.when(F.col("closes"), last).otherwise(F.lead(last).over(in_log)))
        .where("opens")
    )
    begins_again = ((first == 0) & before.isNotNull()).cast("int")
    return edges.select(
        *(*QUEUE, "commitLogOffset", "storedMs", "first", "last", "before"),
        F.sum(begins_again).over(in_log).alias("life"),
    )


def covered(runs: DataFrame, whole: Collection[str] = ()) -> DataFrame:
    """
    Return the runs with `covered`: the greatest offset of all runs before each one; null: not
    known.

    :param runs: result of `runs_of`.
    :param whole: brokers whose log was never shortened by retention: their queues begin at 0.
    """
    by_offset = Window.partitionBy(*_LIFE).orderBy("first", "commitLogOffset")
    so_far = by_offset.rowsBetween(Window.unboundedPreceding, -1)
    head = F.when(F.col("brokerName").isin(*whole), F.lit(-1)) if whole else F.lit(None)
    return runs.withColumn("life", F.coalesce("life", F.lit(0))).withColumn(
        "covered", F.coalesce(F.max("last").over(so_far), head).cast("long")
    )


def gaps(judged: DataFrame) -> DataFrame:
    """Return the missing offsets: queue, `life`, `start` and `end` (included), and `missing`."""
    return judged.where(_lacks()).select(
        *_LIFE,
        (F.col("covered") + 1).alias("start"),
        (F.col("first") - 1).alias("end"),
        _missing().alias("missing"),
    )


def queue_findings(judged: DataFrame, known: DataFrame | None = None) -> DataFrame:
    """Return findings about queues; those of gaps leave out the messages `known` elsewhere."""
    if known is None:
        judged = judged.withColumn("known", F.lit(0))
    else:
        told = known.select(*_LIFE, (F.col("start") - 1).alias("covered"), "known")
        judged = judged.join(F.broadcast(told), [*_LIFE, "covered"], "left")
    faults = (_gap(), _offset_twice(), _swapped_fault(), _queue_restarted())
    return all_faults(judged, faults)


def _missing() -> Column:
    """Return how many offsets are missing before a run."""
    return F.col("first") - F.col("covered") - 1


def _lacks() -> Column:
    """Return the condition for runs before which offsets are missing."""
    return F.col("first") > F.col("covered") + 1


def _gap() -> Column:
    """Return the fault of a run before which offsets are missing that no other finding names."""
    missing = _missing() - F.coalesce("known", F.lit(0))
    return fault(
        Code.GAP,
        _lacks() & (missing > 0),
        sentence(
            "{n} messages are missing in front of queue offset {first}: no record of the log has"
            " these offsets. Look for them on another replica (verify-replica)",
            n=missing,
        ),
        at=F.col("covered") + 1,
        expected=sentence(
            "offsets {start} to {end}", start=F.col("covered") + 1, end=F.col("first") - 1
        ),
        actual="next is {first}",
    )


def _offset_twice() -> Column:
    """Return the fault of a run that begins with offsets which an earlier run has already."""
    return fault(
        Code.OFFSET_TWICE,
        (F.col("covered") >= 0) & (F.col("first") <= F.col("covered")),
        sentence(
            "queue offsets {first} to {end} stand in the log a second time; consumers see only"
            " what the consume queue points to. Compare the records with another replica",
            end=F.least("last", "covered"),
        ),
        at=F.col("first"),
        expected=sentence("{next}", next=F.col("before") + 1),
        actual="{first}",
    )


def _swapped_fault() -> Column:
    """Return the fault of a run that lies in the log after later offsets of its queue."""
    is_fresh = F.col("covered").isNull() | (F.col("first") > F.col("covered"))
    is_back = F.col("before").isNotNull() & (F.col("first") <= F.col("before"))
    return fault(
        Code.SWAPPED,
        is_fresh & is_back & ~_starts_life(),
        "queue offsets {first} to {last} lie in the log behind offset {before}: the queue's"
        " order is not that of the log. Compare with another replica (verify-replica)",
        at=F.col("first"),
        expected="a queue offset above {before}",
        actual="{first}",
    )


def _queue_restarted() -> Column:
    """Return the remark that a queue begins at 0 again."""
    return fault(
        Code.QUEUE_RESTARTED,
        _starts_life(),
        "the queue begins at 0 again behind offset {before}: its topic was deleted and made"
        " anew. If nobody did that, compare with another replica",
        at=F.col("first"),
    )


def _starts_life() -> Column:
    """Return the condition for runs that begin a queue anew, at 0 behind earlier records."""
    return (F.col("first") == 0) & F.col("before").isNotNull()


def crc_findings(rows: DataFrame) -> DataFrame:
    """Return findings for records whose body does not fit its CRC."""
    return findings(
        rows.where("not crcOk"),
        Code.BAD_CRC,
        "the body does not fit its CRC: it was damaged on disk. Take it from another replica;"
        " rebuild this one if there are more",
        expected="{bodyCrc}",
    )


Ends = Mapping[tuple[str, str, int], int]
"""By broker, topic and queue: the offset after the last entry of the consume queue."""


def written_ends(places: Sequence[Place], topics: Collection[str]) -> Ends:
    """
    Return the ends of the consume queues of stores. Brokers over the wire only tell ends that can
    be read.

    Call this before the log is read, because brokers write the log first.

    :param topics: topics to look at; empty: all.
    :raises CannotDecide: a store cannot be read.
    """
    return {
        (label, topic, queue_id): queue.written_offset
        for label, topic, queue_id, queue in queues_of_stores(places)
        if not topics or topic in topics
    }


def tail_findings(written: Ends, stored: Ends, now_ms: int) -> list[Finding]:
    """
    Return findings for entries at the end of queues whose records the log does not have.

    A queue of which the log has no record is left out: retention may have deleted all of them.

    :param written: result of `written_ends`.
    :param stored: the ends of the queues in the log.
    """
    return [
        Finding(
            SEVERITIES[Code.TAIL_LOST],
            Code.TAIL_LOST,
            f"the consume queue has {end - stored[place]} entries behind the last record of the"
            " log: the log's end was torn or cut. Do not start this broker before its end was"
            " compared with a replica (verify-replica): a start cuts the queue",
            place[0] or None,
            place[1],
            place[2],
            queue_offset=stored[place],
            expected=f"offsets up to {end - 1}",
            actual=f"up to {stored[place] - 1}",
            observed_at=now_ms,
        )
        for place, end in sorted(written.items())
        if place in stored and end > stored[place]
    ]
