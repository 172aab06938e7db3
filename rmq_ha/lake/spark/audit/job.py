"""Runs the audit: reads the messages once, checks them by all rules, and returns the result."""

from collections.abc import Collection, Mapping
from functools import partial, reduce
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from rmq_ha.base.errors import CannotDecide
from rmq_ha.base.model.topics import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from rmq_ha.lake.frames import functions as F
from rmq_ha.lake.frames.frame import DataFrame
from rmq_ha.lake.scan import ledger_compare
from rmq_ha.lake.scan.ledger_files import LedgerReading, LedgerScope
from rmq_ha.lake.scan.ledger_rows import DELIVERED, PRODUCED, STORED
from rmq_ha.lake.scan.reducing import id_column_of
from rmq_ha.lake.scan.stamps import trusted_times
from rmq_ha.lake.scan.store.directory import open_store
from rmq_ha.lake.spark.audit import (
    delays,
    delivery,
    halves,
    keys,
    losses,
    queues,
    reduction,
    timers,
    windows,
)
from rmq_ha.lake.spark.audit.ledger_comparison import LedgerDifferences, compared
from rmq_ha.lake.spark.audit.ledgers import AuditLedger, read_ledger
from rmq_ha.lake.spark.audit.packed_rows import packed, unpacked
from rmq_ha.lake.spark.audit.shape import QUEUE, gathered
from rmq_ha.lake.spark.audit.stored_rows import AuditRequest, delayed_rows, op_marks, stored_rows
from rmq_ha.lake.spark.findings import frame_of
from rmq_ha.lake.spark.result import JobResult
from rmq_ha.ops.offsets.findings import Outcome, Severity
from rmq_ha.ops.offsets.places import StorePlace

if TYPE_CHECKING:  # executors load this module, and have no click
    from rmq_ha.lake.spark.running import Job

_PER_PARTITION = 500_000
"""About how many messages one part of a search for repeated ids has."""


def audit(job: "Job", asked: AuditRequest) -> JobResult:
    """
    Run the audit that docs/spark.md describes under "audit-messages".

    :raises WrongUsage: messages cannot be read from a place.
    :raises CannotDecide: nothing is stored there, or a ledger cannot be read.
    """
    return _Audit(job, asked).result()


class _Audit:
    """
    One audit. The rows are read once and kept on disk, so that every rule sees the same rows.

    :ivar _whole: brokers whose log begins at 0 and is read as a whole, so that no message was
        deleted.
    :ivar _ends: where the consume queues of stores ended before the log was read.
    :ivar _progress: how far delayed messages were delivered before the log was read.
    :ivar _packed: the messages themselves, in packed form; None: stores without ledgers need only
        sums.
    """

    def __init__(self, job: "Job", asked: AuditRequest) -> None:
        self._job = job
        self._asked = asked
        self._whole: Collection[str] = ()
        self._ends = queues.written_ends(asked.places, asked.topics) if asked.to_ms is None else {}
        self._progress = delays.progress_of(asked.places) if asked.to_ms is None else {}
        self._packed: DataFrame | None = None
        with job.progress("reading what is stored"):
            if self._are_stores():
                every = reduction.of_stores(job.engine(), asked)
            else:
                every = reduction.of_rows(self._stored_rows(), asked.key, asked.window_ms)
            self._reduced = every = every.freeze()
            if asked.has_ledgers or not self._are_stores():  # else nothing needs single rows
                self._packed, others = reduction.split_packed(every)
                self._reduced = others.keep()
        given = {"produced": (asked.produced, PRODUCED), "delivered": (asked.delivered, DELIVERED)}
        self._ledgers = {name: self._ledger(uri, of) for name, (uri, of) in given.items() if uri}
        self._compared = LedgerDifferences(self._reduced, frozenset())  # empty
        self._produced = self._ledgers.get("produced")
        self._delivered = self._ledgers.get("delivered")

    def result(self) -> JobResult:
        """Judge the rows by all rules, and return the result."""
        asked, job = self._asked, self._job
        with job.progress("counting"):
            sums = reduction.sums_of(self._reduced).keep()
            totals = _totals(reduction.queues_of(sums))
            sums = gathered(sums, totals["sums"])
        if not totals["stored"]:
            where = ", ".join(map(str, asked.places))
            raise CannotDecide(
                f"no message is stored in {where}"
                + (f" of the topics {', '.join(asked.topics)}" if asked.topics else "")
                + ("; look at --from and --to" if asked.from_ms or asked.to_ms else "")
            )
        self._whole = totals["fromZero"] if self._reads_all() else ()
        is_whole = len(self._whole) == len(totals["brokers"]) or self._begins_at_zero()
        stamps = reduction.stamps_of(sums).values()
        times = [trusted_times(of_broker, asked.grace_ms) for of_broker in stamps]
        oldest, newest = min(low for low, _ in times), max(high for _, high in times)
        edges = keys.Edges(oldest, newest, asked.grace_ms, is_whole)
        if self._packed is not None:
            with job.progress("comparing"):
                self._compared = self._compare(self._packed, totals["stored"])
        with job.progress("judging"):
            findings = self._findings(sums, totals, edges).keep()
            errors = _errors(findings)
        sent = None if self._produced is None else self._produced.counts
        tiers = windows.tiers(sums, sent, self._compared.rows_of(ledger_compare.TAKEN)).keep()
        by_time = tiers.withColumn("window", F.timestamp_millis("window"))
        return JobResult(
            findings,
            Outcome.VIOLATED if errors else Outcome.HOLDS,
            _verdict(totals, errors, self._ledgers),
            self._numbers(totals),
            windows.sections(tiers, asked.window_ms, ledgers=self._ledgers),
            lambda: {"windows": by_time.orderBy("window", "topic")},
        )

    def _stored_rows(self, *, body: bool = False) -> DataFrame:
        return stored_rows(self._job.engine(), self._asked, body=body)

    @property
    def _rows(self) -> DataFrame:
        """The rows of single messages; those of stores that were reduced are read only now."""
        return self._stored_rows() if self._packed is None else unpacked(self._packed)

    def _looked_up(self, some: DataFrame) -> DataFrame:
        """Return some of `_rows`, frozen if just read, so that each rule sees the same ones."""
        return some if self._packed is not None else some.freeze()

    def _ledger(self, uri: str, side: int) -> AuditLedger:
        asked = self._asked
        scope = LedgerScope(asked.topics, asked.brokers, asked.from_ms, asked.to_ms)
        reading = LedgerReading(side, id_column_of(asked.key), asked.window_ms, scope)
        return read_ledger(self._job.engine(), uri, reading)

    def _reads_all(self) -> bool:
        """Return whether whole stores are read: a log from 0 then shows nothing was deleted."""
        asked = self._asked
        return not asked.topics and asked.from_ms is None and self._are_stores()

    def _begins_at_zero(self) -> bool:
        """Return whether the logs of all stores begin at 0, so that nothing was ever deleted."""
        if not self._are_stores() or self._asked.from_ms is not None:
            return False
        places = [place for place in self._asked.places if isinstance(place, StorePlace)]
        return all(open_store(place.uri, damaged=True).min_offset() == 0 for place in places)

    def _are_stores(self) -> bool:
        """Return whether all places are stores, so that no broker is asked."""
        return all(isinstance(place, StorePlace) for place in self._asked.places)

    def _findings(self, sums: DataFrame, totals: Mapping[str, Any], edges: keys.Edges) -> DataFrame:
        """Return the findings of all rules as one frame."""
        partitions = max(2, -(-totals["stored"] // _PER_PARTITION))
        # Over the wire rows come queue by queue, not in the order of the log.
        if self._are_stores():
            runs = reduction.segments_of(self._reduced)
        else:
            runs = queues.single_runs(self._rows)
        judged = queues.covered(queues.runs_of(runs).keep(), self._whole).keep()
        gaps = queues.gaps(judged).keep()
        missed, places = self._missed_findings(totals, edges, sums, gaps)
        is_one = len(self._asked.places) == 1  # of several, the owner is not known
        known = losses.known_in(gaps, places) if places and is_one and not gaps.isEmpty() else None
        findings = [
            self._inside_time(queues.queue_findings(judged, known)),
            self._inside_time(windows.clock_findings(sums, self._asked.grace_ms)),
            keys.unreadable_findings(reduction.unreadable_in(self._reduced)),
            *missed,
            *self._duplicates(partitions),
        ]
        torn = queues.tail_findings(self._ends, totals["ends"], self._job.now_ms())
        if torn:
            findings.append(frame_of(self._job.engine(), torn))
        if totals["bad"]:
            findings.append(queues.crc_findings(self._looked_up(self._rows.where("not crcOk"))))
        if totals["halves"]:
            rows = self._looked_up(self._rows.where(halves.is_needed()))
            marks = op_marks(self._job.engine(), self._asked)
            findings.append(halves.open_findings(rows, marks, edges.newest_ms))
            if self._produced is not None:
                told = unpacked(self._produced.rows)
                sent = keys.ledger_in_view(told, edges).where("state is null")
                old = marks.where(F.col("endedMs") <= edges.newest_ms - self._asked.grace_ms)
                findings.append(
                    halves.commit_findings(halves.unplaced_commits(sent, self._rows, old))
                )
        findings += self._by_id()
        findings += self._changed_findings()
        findings += self._of_consumers(sums)
        return reduce(DataFrame.unionByName, findings)

    def _compare(
        self, rows: DataFrame, count: int = 0, ids: DataFrame | None = None
    ) -> LedgerDifferences:
        """
        Compare rows of the log with the ledgers.

        :param count: about how many messages they are.
        :param ids: compare only the ledgers' rows with these ids; None: all rows.
        """
        given = [self._produced, self._delivered]
        if ids is not None:
            given = [None if ledger is None else ledger.select_ids(ids) for ledger in given]
        return compared(self._asked, rows, count, *given)

    def _duplicates(self, partitions: int) -> list[DataFrame]:
        """
        Return findings for ids that are stored more than once.

        Without ledgers the hashes of all ids tell which records to read again.
        """
        some = self._compared
        if self._packed is None:
            several = reduction.repeated_ids(self._reduced, partitions).keep()
            if several.isEmpty():
                return []
            named = reduction.places_of(self._reduced, several)
            copies = self._rows.join(named, named.columns, "left_semi")
            some = self._compare(packed(copies))
        return [keys.duplicate_findings(copies) for copies in some.rows_if_any(ledger_compare.COPY)]

    def _by_id(self) -> list[DataFrame]:
        """Return the findings of rules that judge each id by itself."""
        some = self._compared
        return [
            *map(keys.unproduced_findings, some.rows_if_any(ledger_compare.UNPRODUCED)),
            *map(delivery.misplaced_findings, some.rows_if_any(ledger_compare.ORDERED, PRODUCED)),
            *map(delivery.twice_findings, some.rows_if_any(ledger_compare.TWICE)),
            *map(delivery.early_findings, some.rows_if_any(ledger_compare.EARLY)),
            *map(keys.visible_findings, some.rows_if_any(ledger_compare.VISIBLE)),
            *map(keys.rekeyed_findings, some.rows_if_any(ledger_compare.REKEYED)),
        ]

    def _changed_findings(self) -> list[DataFrame]:
        """Return findings for bodies that differ from those that ledgers recorded."""
        findings = []
        for others in self._compared.rows_if_any(ledger_compare.UNLIKE):
            # The body may only be compressed: the record's CRC is then that of another body than
            # the producer's.
            bodies = self._stored_rows(body=True).join(
                others, ["brokerName", "commitLogOffset", "id"], "left_semi"
            )
            now = bodies.withColumn("bodyCrc", keys.crc_of_body())
            by_body = self._compare(packed(now), ids=others.select("id").distinct())
            sides = ((STORED, keys.changed_findings), (DELIVERED, keys.delivered_changed_findings))
            findings += [
                told(rows)
                for side, told in sides
                for rows in by_body.rows_if_any(ledger_compare.UNLIKE, side)
            ]
        return findings

    def _inside_time(self, findings: DataFrame) -> DataFrame:
        """Return the findings of the wanted time; rows around it only serve to compare edges."""
        asked, at = self._asked, F.unix_millis("observedAt")
        if asked.from_ms is not None:
            findings = findings.where(at >= asked.from_ms)
        if asked.to_ms is not None:
            findings = findings.where(at < asked.to_ms)
        return findings

    def _missed_findings(
        self, totals: Mapping[str, Any], edges: keys.Edges, sums: DataFrame, gaps: DataFrame
    ) -> tuple[list[DataFrame], list[DataFrame]]:
        """Return findings for messages missed by id, each once, and where they should lie."""
        findings: list[DataFrame] = []
        places: list[DataFrame] = []
        some = self._compared
        given, lost = some.rows_of(ledger_compare.ABSENT, DELIVERED), None
        bounds = (
            sums.where("ordinary and inQueue")
            .groupBy("topic", "queueId")
            .agg(F.min("leastOffset").alias("least"))
        )
        for absent in some.rows_if_any(ledger_compare.ABSENT, PRODUCED):
            in_view = keys.ledger_in_view(absent, edges, bounds)
            acked = keys.lost_messages(in_view).keep()
            findings.append(keys.unknown_findings(in_view))
            lost = losses.with_places(acked, given, gaps).keep()
            findings.append(keys.lost_findings(lost))
            places.append(lost)
        if given is not None:
            absent = keys.ledger_in_view(given, edges)
            if lost is not None:
                absent = absent.join(lost.select("id"), "id", "left_anti")
            gone = delivery.missing_deliveries(absent, bounds, edges.whole).keep()
            findings.append(delivery.gone_findings(gone))
            places.append(gone)
        if totals["delayed"]:
            copied = self._delayed_with_copies()
            late = self._undelivered_rows(copied, edges)
            findings += [delays.delay_findings(late), self._early(copied, sums)]
            places.append(delays.places_of(late))
        if totals["timers"]:
            findings += self._of_timers(sums)
        return findings, places

    def _of_timers(self, sums: DataFrame) -> list[DataFrame]:
        """Return the findings about timer messages."""
        by_broker = sums.groupBy("brokerName").agg(F.max("mostMs").alias("newest"))
        newest = {row["brokerName"]: row["newest"] for row in by_broker.collect()}
        told = timers.timer_rows(self._job.engine(), self._asked).keep()
        judged = timers.judged(told, newest).keep()
        return [] if judged.isEmpty() else timers.timer_findings(judged)

    def _delayed_with_copies(self) -> DataFrame:
        """Return the schedule topic's messages, with the time of their copy in the target."""
        delayed = delayed_rows(self._job.engine(), self._asked).keep()
        ids = F.broadcast(delayed.select("id").distinct())
        rows = self._looked_up(self._rows.join(ids, "id", "left_semi"))
        return delays.with_copies(delayed, rows).keep()

    def _undelivered_rows(self, copied: DataFrame, edges: keys.Edges) -> DataFrame:
        """Return the delayed messages that should have been delivered, and were not."""
        asked, newest = self._asked, edges.newest_ms
        # A message that is due may be delivered after the end of the rows that were read.
        late = newest - max(asked.grace_ms, delays.LATE_MS)
        due = dict(delays.due_before(asked.places, late)) if asked.to_ms is None else {}
        for level, offset in self._progress.items():
            due[level] = max(offset, due.get(level, 0))
        return delays.undelivered(copied, due, newest - asked.grace_ms).keep()

    def _early(self, copied: DataFrame, sums: DataFrame) -> DataFrame:
        """Return findings of brokers whose clock was not set back, which makes copies early."""
        asked = self._asked
        set_back = windows.clock_findings(sums, asked.grace_ms).select("broker")
        rows = delays.early(copied, delays.delays_of(asked.places), asked.grace_ms)
        brokers = F.broadcast(set_back.select(F.coalesce("broker", F.lit("")).alias("brokerName")))
        return delays.early_findings(rows.join(brokers, "brokerName", "left_anti"))

    def _of_consumers(self, sums: DataFrame) -> list[DataFrame]:
        """Return the findings about what groups were not given, or not in order."""
        asked, some = self._asked, self._compared
        taken = some.rows_of(ledger_compare.TAKEN)
        if taken is None:
            return []
        never = partial(delivery.never_findings, taken, asked.grace_ms, asked.tags)
        late = partial(delivery.late_findings, asked.ordered)
        return [
            delivery.silent_findings(taken, sums, asked.grace_ms, asked.tags),
            *map(never, some.rows_if_any(ledger_compare.UNGIVEN)),
            *map(late, some.rows_if_any(ledger_compare.ORDERED, DELIVERED)),
        ]

    def _numbers(self, totals: Mapping[str, Any]) -> dict[str, Any]:
        """Return the numbers for `summary.json`."""
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
        for name, ledger in self._ledgers.items():
            numbers[name] = ledger.count
            numbers[f"{name}Unusable"] = ledger.unusable
        return numbers


def _totals(of_queues: Collection[Any]) -> dict[str, Any]:
    """Return the sums over all stored messages, by the result of `reduction.queues_of`."""

    def total(name: str, *topics: str) -> int:
        return sum(row[name] for row in of_queues if not topics or row["topic"] in topics)

    place = itemgetter(*QUEUE)

    return {
        "stored": total("n"),
        "sums": total("sums"),
        "bytes": total("bytes"),
        "bad": total("bad"),
        "queues": len(set(map(place, of_queues))),
        "brokers": {row["brokerName"] for row in of_queues},
        "fromZero": {row["brokerName"] for row in of_queues if row["leastPlace"] == 0},
        "leastMs": min((row["leastMs"] for row in of_queues), default=None),
        "mostMs": max((row["mostMs"] for row in of_queues), default=None),
        "halves": total("n", HALF_TOPIC),
        "delayed": total("n", SCHEDULE_TOPIC),
        "timers": total("n", TIMER_TOPIC),
        "ends": {place(row): row["mostOffset"] + 1 for row in of_queues if row["inQueue"]},
    }


def _errors(findings: DataFrame) -> dict[str, int]:
    """Return the number of errors by code, sorted by code."""
    errors = findings.where(F.col("severity") == str(Severity.ERROR))
    return dict(sorted(map(tuple, errors.groupBy("code").count().collect())))


def _verdict(totals: Mapping[str, Any], errors: Mapping[str, int], ledgers: Collection[str]) -> str:
    """Return the verdict in one line, with numbers."""
    looked = f"{totals['stored']:,} messages in {totals['queues']:,} queues"
    if errors:
        named = ", ".join(f"{n:,} {code}" for code, n in errors.items())
        return f"VIOLATED: {named}; {looked}"
    promise = "no gap, no damage, in order"
    if "produced" in ledgers:
        promise += ", nothing acknowledged is lost"
    if ledgers:
        of = {"produced": "producers", "delivered": "consumers"}
        promise += f", compared with the ledgers of {' and '.join(of[name] for name in ledgers)}"
    return f"HOLDS: {looked}: {promise}"
