"""
The job `verify-fleet`: judges all brokers by the facts that `rmqha-scan` keeps of their stores.

A task judges one broker: its row names the facts of that broker only.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa

from rmq_ha.base.host.files import absolute
from rmq_ha.lake.frames import functions as F
from rmq_ha.lake.frames.frame import DataFrame, Engine
from rmq_ha.lake.scan.arrays import schema
from rmq_ha.lake.scan.fleet.facts import IDS, SUMS, ReplicaFacts, replicas_in
from rmq_ha.lake.scan.fleet.judging import JudgingLimits, judge, scanned_twice
from rmq_ha.lake.spark.findings import FINDINGS, findings_of, row_of
from rmq_ha.lake.spark.result import JobResult, Table
from rmq_ha.ops.offsets.findings import Outcome
from rmq_ha.ops.offsets.verdict import Limits

_SHOWN = 300
_TWICE = 1000
_TOPICS = schema("topic:string hour:timestamp messages:long bytes:long bad:long")
_BROKERS = schema(
    "broker:string replicas:long safe:boolean exitCode:int verdict:string compared:long"
    " differing:long fetched:long left:long oldestLook:timestamp"
)
_ROWS = pa.schema([*_BROKERS, ("findings", pa.list_(pa.struct(FINDINGS)))])


def verify(
    job: Any, directory: str, patience: JudgingLimits, now_ms: int, *, looks_for_ids: bool = False
) -> JobResult:
    """
    Judge every broker, and the fleet as a whole.

    :raises CannotDecide: the directory has no facts.
    """
    engine: Engine = job.engine()
    replicas = replicas_in(absolute(directory))
    twice = scanned_twice(replicas)
    brokers = [list(some) for _, some in groupby(replicas, key=lambda store: store.state.broker)]

    def work(some: Iterator[Sequence[ReplicaFacts]]) -> Iterator[Any]:
        for broker in some:
            yield pa.RecordBatch.from_pylist([_row(broker, patience, now_ms, twice)], _ROWS)

    frame = engine.spread(brokers, work, _ROWS).keep()
    with job.progress(f"{len(brokers)} brokers, {len(replicas)} stores"):
        rows = frame.orderBy("broker").select(*_BROKERS.names).collect()
    findings = frame.select(F.inline("findings"))
    damaged = findings.where("code = 'FACTS_DAMAGED'").select("broker").collect()
    odd = {row.broker for row in damaged}
    masters = [some[0] for some in brokers if some[0].directory not in odd]
    same_ids = duplicates(engine, masters) if looks_for_ids else None
    if same_ids is not None:
        findings = findings.unionByName(same_ids)
    outcome, verdict = decided(rows, len(replicas))
    worst = sorted(rows, key=lambda row: (row.exitCode == 0, row.safe is not False, row.broker))
    total = {
        name: sum(row[name] for row in rows)
        for name in ("compared", "differing", "fetched", "left")
    }
    return JobResult(
        findings,
        outcome,
        verdict,
        {"brokers": len(rows), "stores": len(replicas), **total},
        [Table("Brokers", _BROKERS.names, [tuple(row) for row in worst[:_SHOWN]], "Worst first.")],
        lambda: {"brokers": frame.select(*_BROKERS.names), "topics": topics(engine, masters)},
    )


def _row(
    replicas: Sequence[ReplicaFacts], patience: JudgingLimits, now_ms: int, twice: Collection[str]
) -> dict[str, Any]:
    """Judge one broker, and return its row of `_ROWS`."""
    told = judge(replicas, Limits(), patience, now_ms, twice)
    findings = list(map(row_of, told.findings))
    own = {"safe": told.is_safe, "exitCode": int(told.outcome), "findings": findings}
    own["oldestLook"] = told.oldest_look * 1000 or None
    return told._asdict() | own


def decided(rows: Sequence[Any], stores: int) -> tuple[Outcome, str]:
    """Return one outcome for the fleet, and the line that says it: the worst broker counts."""
    codes = Counter(row.exitCode for row in rows)
    bad = [row for row in rows if row.exitCode]
    differing = sum(1 for row in rows if row.differing)
    says = (
        f"{len(rows)} brokers, {stores} stores: logs differ in {differing}, safe to fail over"
        f" {sum(1 for row in rows if row.safe)}, without a slave"
        f" {sum(1 for row in rows if row.replicas == 1)}"
    )
    if codes[Outcome.UNDECIDED]:
        says += f", could not be decided {codes[Outcome.UNDECIDED]}"
    if bad:
        first = max(bad, key=lambda row: row.exitCode == Outcome.VIOLATED)
        says += f"; first: {first.broker}: {first.verdict}"
    if codes[Outcome.VIOLATED]:
        return Outcome.VIOLATED, says
    return (Outcome.UNDECIDED if codes[Outcome.UNDECIDED] else Outcome.HOLDS), says


def _read(
    engine: Engine, replicas: Sequence[ReplicaFacts], kind: str, file_as: str = ""
) -> DataFrame | None:
    """Read facts of a kind, the path of each row's file as `file_as`; None: there are none."""
    paths = [path for replica in replicas for path in replica.paths(kind)]
    return engine.parquet(paths, file_as) if paths else None


def topics(engine: Engine, masters: Sequence[ReplicaFacts]) -> DataFrame:
    """
    Return what the masters store, added up: messages, bytes, and bodies that do not fit their CRC.

    Columns: `topic`, `hour` (when the messages were born), `messages`, `bytes`, `bad`.

    :param masters: facts of one store of each broker, so that no message counts twice.
    """
    sums = _read(engine, masters, SUMS)
    if sums is None:
        return engine.table(_TOPICS.empty_table())
    return (
        sums.groupBy("topic", F.timestamp_millis("hour").alias("hour"))
        .agg(F.sum("n").alias("messages"), F.sum("bytes").alias("bytes"), F.sum("bad").alias("bad"))
        .orderBy("topic", "hour")
    )


def duplicates(engine: Engine, masters: Sequence[ReplicaFacts]) -> DataFrame | None:
    """
    Return findings for ids that two messages of ordinary topics have, on one broker or on two: the
    first thousand. None: no scan kept ids.

    Two ids may have the same hash: with 4 thousand million messages this happens in every second
    fleet.
    """
    ids = _read(engine, masters, IDS, "file")
    if ids is None:
        return None
    several = (
        ids.groupBy("hash")
        .agg(F.count("*").alias("n"), F.min("place").alias("place"), F.min("file").alias("file"))
        .where("n > 1")
        .limit(_TWICE)
    )
    return findings_of(
        several,
        severity="WARN",
        code="DUPLICATE",
        detail=F.concat(
            F.lit("an id that "), "n", F.lit(" messages of the fleet have; audit-messages of these"
            " stores says whether they are copies"),
        ),
        broker=F.regexp_extract("file", "([^/]+)-[0-9]+/[^/]+$", 1),
        physicalOffset=F.col("place"),
    )  # fmt: skip
