"""Judges many pairs, several in a task, each as `rmqha-admin verify-offsets` judges one."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from rmq_ha.base.errors import CannotDecide, WrongUsage
from rmq_ha.client.rules.settings import ClientConfig
from rmq_ha.lake.frames import functions as F
from rmq_ha.lake.frames.frame import Engine
from rmq_ha.lake.scan.arrays import schema
from rmq_ha.lake.spark.findings import FINDINGS, row_of
from rmq_ha.lake.spark.host.threads import map_in_threads
from rmq_ha.lake.spark.offsets import history
from rmq_ha.lake.spark.offsets.job import LAG, lag
from rmq_ha.lake.spark.offsets.report import trend_of
from rmq_ha.lake.spark.result import JobResult, Plot, Table
from rmq_ha.ops.offsets.findings import Outcome
from rmq_ha.ops.offsets.opening import look_at_pair
from rmq_ha.ops.offsets.pairing import Forecast
from rmq_ha.ops.offsets.places import Place
from rmq_ha.ops.offsets.sampling import Patience
from rmq_ha.ops.offsets.snapshot_history import append_pairings
from rmq_ha.ops.offsets.verdict import Limits, answer, best_of

_AT_ONCE = 8
"""How many pairs a task judges at the same time; it mostly waits for slaves to catch up."""
_SHOWN = 300
PAIRS = schema(
    "master:string slaves:strings safe:boolean exitCode:int verdict:string "
    + " ".join(f"{name}:long" for name in Forecast._fields)
)
"""A row for each pair; the numbers are those of its best slave."""
_ROWS = schema(
    "number:long",
    *((field.name, field.type) for field in PAIRS),
    ("findings", pa.list_(pa.struct(FINDINGS))),
    ("lag", pa.list_(pa.struct(schema(LAG)))),
)


class PairWork(NamedTuple):
    """The work for each pair; `record` is a history to which snapshots are added, or None."""

    client: ClientConfig
    patience: Patience
    limits: Limits
    record: str | None = None

    def row(self, number: int, places: Sequence[Place]) -> dict[str, Any]:
        """Judge a pair and return its row of `_ROWS`."""
        line: dict[str, Any] = dict.fromkeys(Forecast._fields, None)
        line |= {"number": number, "findings": [], "lag": []}
        line |= {"master": str(places[0]), "slaves": list(map(str, places[1:]))}
        try:
            pairings = look_at_pair(self.client, places, self.patience)
            if self.record is not None:
                append_pairings(pairings, self.record)
        except (CannotDecide, WrongUsage) as error:
            line |= {"safe": False, "exitCode": int(Outcome.UNDECIDED)}
            return line | {"verdict": f"could not decide: {error}"}
        told = answer(pairings, self.limits)
        return {
            **line,
            **best_of(told.by_slave, self.limits)[1]._asdict(),
            "safe": told.numbers["safe"],
            "exitCode": int(told.outcome),
            "verdict": told.verdict,
            "findings": list(map(row_of, told.findings)),
            "lag": lag(told.rows).to_pylist(),
        }


def verify(
    engine: Engine,
    pairs: Sequence[Sequence[Place]],
    pair_work: PairWork,
    history_directory: str | None = None,
) -> JobResult:
    """Judge every pair, places that executors can see with the master's first, and all together."""

    def work(some: Iterator[tuple[int, Sequence[Place]]]) -> Iterator[Any]:
        rows = map_in_threads(lambda task: pair_work.row(*task), some, _AT_ONCE)
        yield pa.RecordBatch.from_pylist(rows, _ROWS)

    frame = engine.spread(list(enumerate(pairs)), work, _ROWS, _AT_ONCE).keep()
    of_pairs = frame.orderBy("number").select(*PAIRS.names)
    rows = of_pairs.collect()
    past = history.read_history(engine, history_directory)
    outcome, verdict = decided(rows, past.violations)
    worst = sorted(rows, key=lambda row: (row.safe, row.exitCode))
    shown = [(row.master, ", ".join(row.slaves), row.verdict) for row in worst[:_SHOWN]]
    sections: list[Table | Plot] = [
        Table("Pairs", ("master", "slaves", "verdict"), shown, "Those that are not safe first."),
        *trend_of(past.trend),
    ]
    return JobResult(
        findings=past.added_to(frame.select(F.inline("findings"))),
        outcome=outcome,
        verdict=verdict,
        numbers={
            "safe": all(row.safe for row in rows),
            "pairs": [row.asDict() for row in rows],
            "historyViolations": past.violations,
        },
        sections=sections,
        frames=lambda: {"pairs": of_pairs, "lag": frame.select(F.inline("lag"))},
    )


def decided(rows: Sequence[Any], past: int = 0) -> tuple[Outcome, str]:
    """Return one outcome for all pairs, and the line that says it: the worst pair counts."""
    codes = Counter(row.exitCode for row in rows)
    unsafe = [row for row in rows if not row.safe]
    total = {name: sum(row[name] or 0 for row in rows) for name in ("repeats", "skipped", "lost")}
    safe = f"no: {len(unsafe)} of" if unsafe else "yes, all"
    says = (
        f"safe to fail over: {safe} {len(rows)} pairs; {total['repeats']} messages would be"
        f" repeated, {total['skipped']} skipped, {total['lost']} lost"
    )
    if codes[Outcome.UNDECIDED]:
        says += f"; {codes[Outcome.UNDECIDED]} could not be decided"
    if unsafe:
        first = max(unsafe, key=lambda row: row.exitCode == Outcome.VIOLATED)
        says += f"; first: {first.master}: {first.verdict}"
    if past:
        says += f"; the history holds {past} violations"
    if codes[Outcome.VIOLATED] or past:
        return Outcome.VIOLATED, says
    return (Outcome.UNDECIDED if codes[Outcome.UNDECIDED] else Outcome.HOLDS), says
