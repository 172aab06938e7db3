"""Run simulations: `python -m rmq_ha.testing.simulate --seed 7`."""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from random import Random
from traceback import format_exc

from twisted.logger import (
    ILogObserver,
    LogEvent,
    formatEvent,
    globalLogBeginner,
    globalLogPublisher,
)
from zope.interface import implementer, provider

from rmq_ha.errors import RmqHaError
from rmq_ha.testing.checkers import Finding
from rmq_ha.testing.faults import Fault, FaultPlan, plan_faults
from rmq_ha.testing.pair import HAPair, PairOptions
from rmq_ha.testing.simcluster import SimCluster
from rmq_ha.testing.trace import Trace

BUSY_SECONDS = 12.0
PAIR, CLUSTER = "pair", "cluster"
SETTLE_SECONDS = {PAIR: 45.0, CLUSTER: 75.0}


@dataclass
class Result:
    """
    What became of one seed.

    :ivar statuses: how many puts ended how.
    """

    kind: str
    seed: int
    digest: str
    events: int
    options: str
    faults: list[Fault]
    statuses: dict[str, int]
    violations: list[Finding]
    hazards: list[Finding]

    @property
    def ok(self) -> bool:
        """No promise was broken."""
        return not self.violations

    @property
    def command(self) -> str:
        """What replays it."""
        return f"python -m rmq_ha.testing.simulate --kind {self.kind} --seed {self.seed} --trace"

    def report(self) -> str:
        """Many lines for a person."""
        lines = [
            f"seed {self.seed}: {'ok' if self.ok else 'FAILED'}; {self.options}; "
            f"{self.events} events, digest {self.digest[:16]}",
            "  puts: " + ", ".join(f"{name} {n}" for name, n in sorted(self.statuses.items())),
        ]
        lines += [
            f"  fault {f.at:.3f} s: {f.kind} {f.machine} {f.seconds:.2f} s" for f in self.faults
        ]
        lines += [f"  hazard at {finding}" for finding in self.hazards[:5]]
        lines += [f"  VIOLATION at {finding}" for finding in self.violations[:5]]
        if not self.ok:
            lines.append(f"  replay: {self.command}")
        return "\n".join(lines)


def run_pair(
    seed: int,
    *,
    options: PairOptions | None = None,
    faults: list[Fault] | None = None,
    trace: Trace | None = None,
    busy: float = BUSY_SECONDS,
    kind: str = PAIR,
) -> Result:
    """
    One master and one slave, from nothing to the end.

    :param kind: `PAIR`: two stores; `CLUSTER`: two brokers, a name server and clients.
    :param options: None: drawn from the seed.
    :param faults: None: drawn from the seed.
    :param busy: seconds in which things are put and go wrong.
    """
    make = SimCluster if kind == CLUSTER else HAPair
    pair = make(seed, options or PairOptions.draw(Random(f"{seed}/options")), trace)
    world = pair.world
    random = world.random("workload")
    plan = FaultPlan(pair, plan_faults(world.random("faults"), busy) if faults is None else faults)
    pauses = random.choice(((0.05,), (0.1, 0.1), (0.02, 0.5)))
    producers = [pair.producer(number, pause) for number, pause in enumerate(pauses)]
    with _Complaints(pair):
        for producer in producers:
            producer.attempts = pair.attempts
            producer.start()
        pair.start()
        plan.start()
        world.clock.run_for(busy)
        for producer in producers:
            producer.stop()
        plan.finish()
        world.clock.run_for(SETTLE_SECONDS[kind])
        pair.check_end()
        pair.stop()
    statuses = Counter(
        "unanswered" if attempt.status is None else attempt.status.name
        for attempt in pair.attempts.values()
    )
    return Result(
        kind,
        seed,
        world.trace.digest,
        world.trace.count,
        str(pair.options),
        plan.done,
        dict(statuses),
        pair.findings.violations,
        pair.findings.hazards,
    )


@implementer(ILogObserver)
class _Complaints:
    """What the product logs as a failure, unless disk or peers are to blame."""

    def __init__(self, pair: HAPair) -> None:
        self._pair = pair

    def __enter__(self) -> None:
        globalLogPublisher.addObserver(self)

    def __exit__(self, *_: object) -> None:
        globalLogPublisher.removeObserver(self)

    def __call__(self, event: LogEvent) -> None:
        """A log event."""
        failure = event.get("log_failure")
        if failure is not None and failure.check(OSError, RmqHaError) is None:
            text = f"{event.get('log_namespace')}: {formatEvent(event)}: {failure.getTraceback()}"
            self._pair.findings.violation(self._pair.now, "logged failure", text)


def run_safely(seed: int, kind: str = PAIR) -> Result:
    """As `run_pair`; a simulation that breaks down is a violation of its seed."""
    try:
        return run_pair(seed, kind=kind)
    except Exception:
        broken = Finding(0.0, "broke down", format_exc())
        return Result(kind, seed, "", 0, "", [], {}, [broken], [])


def be_quiet() -> None:
    """Let the product's log go nowhere: thousands of faults would fill the screen."""
    globalLogBeginner.beginLoggingTo([_forget], redirectStandardIO=False)


@provider(ILogObserver)
def _forget(event: LogEvent) -> None:
    """Nobody reads it."""


def run_seeds(seeds: range, jobs: int, kind: str = PAIR) -> Iterator[Result]:
    """Many seeds, in several processes."""
    if jobs <= 1:
        yield from (run_safely(seed, kind) for seed in seeds)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn"), be_quiet) as pool:
        yield from pool.map(partial(run_safely, kind=kind), seeds, chunksize=8)


def main(arguments: list[str] | None = None) -> int:
    """The command line; 1 when a promise was broken."""
    parser = argparse.ArgumentParser(description="Simulate a master and a slave under faults.")
    parser.add_argument("--seed", type=int, default=0, help="the (first) seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--kind", choices=(PAIR, CLUSTER), default=PAIR, help="what is simulated")
    parser.add_argument("--trace", action="store_true", help="print every event of one seed")
    chosen = parser.parse_args(arguments)
    be_quiet()
    if chosen.trace:
        results: Iterator[Result] = iter(
            [run_pair(chosen.seed, trace=Trace(print), kind=chosen.kind)]
        )
    else:
        results = run_seeds(
            range(chosen.seed, chosen.seed + chosen.seeds), chosen.jobs, chosen.kind
        )
    failed, hazards = 0, 0
    for result in results:
        failed += not result.ok
        hazards += bool(result.hazards)
        if chosen.seeds == 1 or not result.ok:
            print(result.report())
    if chosen.seeds > 1:
        print(f"{chosen.seeds} seeds, {failed} failed, {hazards} with hazards that 4.x allows")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
