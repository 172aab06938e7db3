"""The audit: what is read once, what is asked of it, and the answer."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rmq_ha.errors import CannotDecide
from rmq_ha.model.topics import HALF_TOPIC, SCHEDULE_TOPIC
from rmq_ha.offsets.findings import Outcome, Severity
from rmq_ha.offsets.places import Place, StorePlace
from rmq_ha.spark.audit import (
    delays,
    delivery,
    halves,
    keys,
    losses,
    queues,
    reduced,
    tails,
    windows,
)
from rmq_ha.spark.audit.ledgers import Ledger, acknowledged, read_ledger
from rmq_ha.spark.audit.shape import frozen, kept
from rmq_ha.spark.audit.stored import Wanted, delayed_rows, op_marks, stored_rows
from rmq_ha.spark.findings import frame_of
from rmq_ha.spark.result import JobResult, Plot, Table
from rmq_ha.spark.running import Job

_PER_PARTITION = 500_000


@dataclass(frozen=True, kw_only=True)
class Asked:
    """
    What is to be audited.

    :ivar places: brokers whose messages make up the whole.
    :ivar topics: empty: all.
    :ivar produced: ledger of producers; `delivered` that of consumers.
    :ivar brokers: only rows of the ledgers about these; empty: all.
    :ivar key: what identifies a message: `uniqKey` or `keys`.
    :ivar window_ms: width of the tumbling windows.
    :ivar from_ms: only messages of then or later; `to_ms`: before then.
    :ivar grace_ms: how far clocks may differ, and how long a message may be on its way.
    :ivar ordered: groups that promise the order of each queue.
    :ivar tags: what groups subscribe to, where it is not everything.
    :ivar options: further ones of the data source.
    """

    places: Sequence[Place]
    topics: Sequence[str] = ()
    produced: str | None = None
    delivered: str | None = None
    brokers: Collection[str] = ()
    key: str = "uniqKey"
    window_ms: int = 60_000
    from_ms: int | None = None
    to_ms: int | None = None
    grace_ms: int = 10_000
    ordered: Collection[str] = ()
    tags: Mapping[str, Collection[str]] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)


def audit(job: Job, asked: Asked) -> JobResult:
    """
    Audit; see docs/spark.md, "audit_messages".

    :raises WrongUsage: messages cannot be read from a place.
    :raises CannotDecide: nothing is stored there, or a ledger cannot be read.
    """
    return _Audit(job, asked).result()


class _Audit:
    """One audit: the rows are read once and kept on disk, so that every question sees the same."""

    def __init__(self, job: Job, asked: Asked) -> None:
        self._job = job
        self._asked = asked
        self._whole: list[str] = []
        self._ends = tails.written_ends(asked.places, asked.topics) if asked.to_ms is None else {}
        self._read: DataFrame | None = None
        with job.progress("reading what is stored"):
            if self._is_plain():
                stores = [place for place in asked.places if isinstance(place, StorePlace)]
                found = reduced.of_stores(job.spark, stores, self._wanted(), asked.window_ms)
                self._reduced = frozen(found)
            else:
                self._read = frozen(self._stored())
                self._reduced = kept(reduced.of_rows(self._read, asked.key, asked.window_ms))
        self._produced = self._ledger(asked.produced, "sentAt")
        self._delivered = self._ledger(asked.delivered, "deliveredAt")

    def result(self) -> JobResult:
        """Read, judge, answer."""
        asked, job = self._asked, self._job
        with job.progress("counting"):
            sums = kept(reduced.sums_of(self._reduced))
            totals = _totals(sums)
        if not totals["stored"]:
            where = ", ".join(map(str, asked.places))
            raise CannotDecide(
                f"no message is stored in {where}"
                + (f" of the topics {', '.join(asked.topics)}" if asked.topics else "")
                + ("; look at --from and --to" if asked.from_ms or asked.to_ms else "")
            )
        self._whole = totals["fromZero"] if self._reads_all() else []
        is_whole = len(self._whole) == len(totals["brokers"])
        edges = keys.Edges(totals["leastMs"], totals["mostMs"], asked.grace_ms, is_whole)
        pairs = self._pairs()
        with job.progress("judging"):
            found = kept(self._findings(sums, totals, edges, pairs))
            counts = _counted(found)
        acked = (
            None
            if self._produced is None
            else self._produced.rows.where(acknowledged(F.col("status")))
        )
        tiers = kept(windows.tiers(sums, acked, pairs, asked.window_ms))
        numbers = self._numbers(totals, counts)
        return JobResult(
            found,
            Outcome.VIOLATED if _errors(counts) else Outcome.HOLDS,
            _verdict(totals, counts, self._produced is not None, self._delivered is not None),
            numbers,
            self._sections(tiers),
            {
                "windows": tiers.withColumn("window", F.timestamp_millis("window")).orderBy(
                    "window", "topic"
                )
            },
        )

    def _is_plain(self) -> bool:
        """Nobody asks about single messages: stores can be reduced where they are read."""
        asked = self._asked
        has_ledger = asked.produced is not None or asked.delivered is not None
        return not has_ledger and all(isinstance(place, StorePlace) for place in asked.places)

    def _wanted(self, *, body: bool = False) -> Wanted:
        asked = self._asked
        # What is sent at the edge of the time asked for is stored a little behind it.
        return Wanted(
            asked.topics,
            asked.key,
            asked.produced is not None,
            bool(asked.tags),
            None if asked.from_ms is None else asked.from_ms - asked.grace_ms,
            None if asked.to_ms is None else asked.to_ms + asked.grace_ms,
            asked.options,
            body,
        )

    def _stored(self) -> DataFrame:
        return stored_rows(self._job.spark, self._asked.places, self._wanted())

    @property
    def _rows(self) -> DataFrame:
        """Single messages; of stores that were reduced they are read when they are asked for."""
        return self._stored() if self._read is None else self._read

    def _looked_up(self, some: DataFrame) -> DataFrame:
        """:param some: of `_rows`; each question about them sees the same ones."""
        return some if self._read is not None else frozen(some)

    def _ledger(self, uri: str | None, time: str) -> Ledger | None:
        if uri is None:
            return None
        asked = self._asked
        ledger = read_ledger(self._job.spark, uri, time, asked.key)
        rows, at = ledger.rows, F.col("atMs")
        if asked.topics:
            rows = rows.where(F.col("topic").isNull() | F.col("topic").isin(*asked.topics))
        if asked.brokers:
            rows = rows.where(F.col("brokerName").isin(*asked.brokers))
        if asked.from_ms is not None:
            rows = rows.where(at.isNull() | (at >= asked.from_ms))
        if asked.to_ms is not None:
            rows = rows.where(at.isNull() | (at < asked.to_ms))
        return Ledger(rows, ledger.unusable)

    def _reads_all(self) -> bool:
        """Nothing was left out: where a log begins at 0, nothing was ever deleted of it."""
        asked = self._asked
        return (
            not asked.topics
            and asked.from_ms is None
            and all(isinstance(place, StorePlace) for place in asked.places)
        )

    def _pairs(self) -> DataFrame | None:
        if self._delivered is None:
            return None
        pairs = delivery.matched(self._delivered.rows, self._rows)
        return kept(pairs)

    def _findings(
        self,
        sums: DataFrame,
        totals: Mapping[str, Any],
        edges: keys.Edges,
        pairs: DataFrame | None,
    ) -> DataFrame:
        partitions = max(2, -(-totals["stored"] // _PER_PARTITION))
        runs = kept(
            queues.runs_of(
                reduced.segments_of(self._reduced)
                if self._read is None
                else queues.each(self._read)
            )
        )
        judged = kept(queues.covered(runs, self._whole))
        gaps = kept(queues.gaps(judged))
        missed, places = self._missed(totals, edges, sums, gaps)
        is_one = len(self._asked.places) == 1  # of several, nobody says whose queue it is
        known = losses.known_in(gaps, places) if places and is_one and not gaps.isEmpty() else None
        found = [
            self._inside(queues.queue_findings(judged, known)),
            self._inside(windows.clock_findings(sums, self._asked.grace_ms)),
            *missed,
            *self._duplicates(partitions),
        ]
        torn = tails.tail_findings(self._ends, tails.stored_ends(sums), self._job.now_ms())
        if torn:
            found.append(frame_of(self._job.spark, torn))
        if totals["bad"]:
            found.append(queues.crc_findings(self._looked_up(self._rows.where("not crcOk"))))
        if totals["halves"]:
            rows = self._looked_up(self._rows.where(halves.concerned()))
            marks = self._marks()
            found.append(halves.open_findings(rows, marks, totals["mostMs"]))
            if self._produced is not None:
                sent = keys.ledger_in_view(self._produced.rows, edges).where("state is null")
                old = marks.where(F.col("endedMs") <= totals["mostMs"] - self._asked.grace_ms)
                found.append(halves.commit_findings(halves.unplaced(sent, self._rows, old)))
        if self._produced is not None:
            found += [
                keys.unproduced_findings(self._rows, self._produced.rows),
                delivery.misplaced_findings(self._produced.rows, self._rows),
            ]
        found += self._changed()
        if self._delivered is not None and pairs is not None:
            found += self._of_consumers(self._delivered, pairs, sums)
        return reduce(DataFrame.unionByName, found)

    def _duplicates(self, partitions: int) -> list[DataFrame]:
        several = kept(reduced.several(self._reduced, partitions))
        if several.isEmpty():
            return []
        places = reduced.places_of(self._reduced, several)
        copies = self._rows.join(places, ["brokerName", "commitLogOffset"], "left_semi")
        return [keys.duplicate_findings(self._looked_up(copies))]

    def _changed(self) -> list[DataFrame]:
        ledgers = [one.rows for one in (self._produced, self._delivered) if one is not None]
        said = [rows.where("bodyCrc is not null").select(*keys.SAID) for rows in ledgers]
        if all(rows.isEmpty() for rows in said):
            return []
        every = kept(reduce(DataFrame.unionByName, said))
        others = kept(keys.unlike(self._rows, every, F.col("bodyCRC")))
        if others.isEmpty():
            return []
        # Perhaps only compressed: a record's CRC is then of another body than the producer's.
        bodies = stored_rows(self._job.spark, self._asked.places, self._wanted(body=True))
        there = bodies.join(others, ["brokerName", "commitLogOffset", "id"], "left_semi")
        return [keys.changed_findings(keys.unlike(frozen(there), every, keys.crc_of_body()))]

    def _inside(self, found: DataFrame) -> DataFrame:
        """The rows around the time that was asked for are there for the messages of its edges."""
        asked, at = self._asked, F.unix_millis("observedAt")
        if asked.from_ms is not None:
            found = found.where(at >= asked.from_ms)
        if asked.to_ms is not None:
            found = found.where(at < asked.to_ms)
        return found

    def _marks(self) -> DataFrame:
        asked = self._asked
        return op_marks(self._job.spark, asked.places, asked.options)

    def _missed(
        self, totals: Mapping[str, Any], edges: keys.Edges, sums: DataFrame, gaps: DataFrame
    ) -> tuple[list[DataFrame], list[DataFrame]]:
        """What is missed by its id, each message once: findings, and where they should lie."""
        found: list[DataFrame] = []
        places: list[DataFrame] = []
        given = None if self._delivered is None else self._delivered.rows
        lost = None
        if self._produced is not None:
            absent = keys.missing(keys.ledger_in_view(self._produced.rows, edges), self._rows)
            lost = kept(losses.placed(keys.lost(absent), given, gaps))
            found.append(keys.lost_findings(lost))
            places.append(lost)
        if given is not None:
            absent = keys.missing(keys.ledger_in_view(given, edges), self._rows)
            if lost is not None:
                absent = absent.join(lost.select("id"), "id", "left_anti")
            bounds = (
                sums.where("ordinary and inQueue")
                .groupBy("topic", "queueId")
                .agg(F.min("leastOffset").alias("least"))
            )
            gone = kept(delivery.gone(absent, bounds, edges.whole))
            found.append(delivery.gone_findings(gone))
            places.append(gone)
        if totals["delayed"]:
            late = self._undelivered(edges)
            found.append(delays.delay_findings(late))
            places.append(delays.places_of(late))
        return found, places

    def _undelivered(self, edges: keys.Edges) -> DataFrame:
        asked, newest = self._asked, edges.newest_ms
        delayed = kept(delayed_rows(self._job.spark, asked.places, self._wanted()))
        ids = F.broadcast(delayed.select("id").distinct())
        rows = self._looked_up(self._rows.join(ids, "id", "left_semi"))
        # What is due may be delivered behind the end of what is looked at.
        late = newest - max(asked.grace_ms, delays.LATE_MS)
        due = delays.due_before(asked.places, late) if asked.to_ms is None else {}
        return kept(delays.undelivered(delayed, rows, due, newest - asked.grace_ms))

    def _of_consumers(self, ledger: Ledger, pairs: DataFrame, sums: DataFrame) -> list[DataFrame]:
        asked = self._asked
        return [
            delivery.twice_findings(ledger.rows),
            delivery.never_findings(pairs, self._rows, asked.grace_ms, asked.tags),
            delivery.silent_findings(pairs, sums, asked.grace_ms, asked.tags),
            delivery.late_findings(pairs, asked.ordered),
        ]

    def _numbers(
        self, totals: Mapping[str, Any], counts: Mapping[tuple[str, str], int]
    ) -> dict[str, Any]:
        numbers = {
            "stored": totals["stored"],
            "bytes": totals["bytes"],
            "queues": totals["queues"],
            "badCrc": totals["bad"],
            "oldestMs": totals["leastMs"],
            "newestMs": totals["mostMs"],
            "beginsAtZero": len(totals["fromZero"]) == len(totals["brokers"]),
            "windowMs": self._asked.window_ms,
            "graceMs": self._asked.grace_ms,
        }
        for name, ledger in (("produced", self._produced), ("delivered", self._delivered)):
            if ledger is not None:
                numbers[name] = ledger.rows.count()
                numbers[f"{name}Unusable"] = ledger.unusable
        return numbers

    def _sections(self, tiers: DataFrame) -> list[Table | Plot]:
        ledgers = [
            name
            for name, ledger in (("produced", self._produced), ("delivered", self._delivered))
            if ledger is not None
        ]
        plots = windows.sections(tiers, self._asked.window_ms, ledgers=ledgers)
        return [windows.topics_table(tiers), *plots]


def _totals(sums: DataFrame) -> dict[str, Any]:
    """Of all that is stored."""
    row = sums.agg(
        F.coalesce(F.sum("n"), F.lit(0)).alias("stored"),
        F.sum("bytes").alias("bytes"),
        F.sum("bad").alias("bad"),
        F.count_distinct("brokerName", "topic", "queueId").alias("queues"),
        F.collect_set("brokerName").alias("brokers"),
        F.collect_set(F.when(F.col("leastPlace") == 0, F.col("brokerName"))).alias("fromZero"),
        F.min("leastMs").alias("leastMs"),
        F.max("mostMs").alias("mostMs"),
        F.sum(F.when(F.col("topic") == HALF_TOPIC, F.col("n")).otherwise(0)).alias("halves"),
        F.sum(F.when(F.col("topic") == SCHEDULE_TOPIC, F.col("n")).otherwise(0)).alias("delayed"),
    ).first()
    assert row is not None
    return row.asDict()


def _counted(found: DataFrame) -> dict[tuple[str, str], int]:
    rows = found.groupBy("severity", "code").count().collect()
    return {(row["severity"], row["code"]): row["count"] for row in rows}


def _errors(counts: Mapping[tuple[str, str], int]) -> int:
    return sum(n for (severity, _), n in counts.items() if severity == Severity.ERROR)


def _verdict(
    totals: Mapping[str, Any],
    counts: Mapping[tuple[str, str], int],
    has_produced: bool,
    has_delivered: bool,
) -> str:
    """One line: how many of what."""
    errors = {code: n for (severity, code), n in counts.items() if severity == Severity.ERROR}
    looked = f"{totals['stored']:,} messages in {totals['queues']:,} queues"
    if errors:
        named = ", ".join(f"{n:,} {code}" for code, n in sorted(errors.items()))
        return f"VIOLATED: {named}; {looked}"
    against = [
        name for name, given in (("producers", has_produced), ("consumers", has_delivered)) if given
    ]
    promise = "no gap, no damage, in order"
    if has_produced:
        promise += ", nothing acknowledged is lost"
    ledgers = f", compared with the ledgers of {' and '.join(against)}" if against else ""
    return f"HOLDS: {looked}: {promise}{ledgers}"
