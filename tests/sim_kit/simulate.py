"""Run simulations: `python -m tests.sim_kit.simulate --seed 7`."""

import argparse
import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
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

from rmq_ha.base.errors import RmqHaError
from rmq_ha.testing.findings import CheckerFinding
from rmq_ha.testing.trace import Trace
from tests.sim_kit.faults import KINDS as FAULT_KINDS
from tests.sim_kit.faults import Fault, FaultPlan, plan_faults
from tests.sim_kit.mutants import ALL_MUTANTS, mutant_named, planted
from tests.sim_kit.pair import HAPair, PairOptions
from tests.sim_kit.planting import CLUSTER, CONTROLLED, PAIR, Mutant
from tests.sim_kit.raft import RaftGroup, RaftOptions
from tests.sim_kit.raft_faults import RaftFault
from tests.sim_kit.simcluster import SimCluster
from tests.sim_kit.slow_storm import SlowStorm
from tests.sim_kit.storm import Storm

BUSY_SECONDS = (3.0, 5.0, 8.0)
RAFT = "raft"
KINDS = (PAIR, CLUSTER, RAFT, CONTROLLED)
SETTLE_SECONDS = {PAIR: 45.0, CLUSTER: 75.0}


@dataclass
class Result:
    """
    The result of the simulation of one seed.

    :ivar statuses: number of puts by their status.
    """

    kind: str
    seed: int
    digest: str
    events: int
    options: str
    faults: Sequence[Fault | RaftFault | str]
    statuses: dict[str, int]
    violations: list[CheckerFinding]
    hazards: list[CheckerFinding]
    nodes: int = 0

    @property
    def ok(self) -> bool:
        """Return whether no promise was broken."""
        return not self.violations

    @property
    def command(self) -> str:
        """Return the command that repeats the simulation."""
        nodes = f" --nodes {self.nodes}" if self.nodes else ""
        module = "tests.sim_kit.simulate"
        return f"python -m {module} --kind {self.kind}{nodes} --seed {self.seed} --trace"

    def report(self) -> str:
        """Return the report for people, in many lines."""
        lines = [
            f"seed {self.seed}: {'ok' if self.ok else 'FAILED'}; {self.options}; "
            f"{self.events} events, digest {self.digest[:16]}",
            "  puts: " + ", ".join(f"{name} {n}" for name, n in sorted(self.statuses.items())),
        ]
        lines += [f"  fault {fault}" for fault in self.faults]
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
    busy: float | None = None,
    kind: str = PAIR,
    without: Sequence[str] = (),
) -> Result:
    """
    Simulate one master and one slave, from the first start to the last check.

    :param kind: `PAIR`: two stores; `CLUSTER`: two brokers, a name server and clients.
    :param options: None: drawn from the seed.
    :param faults: None: drawn from the seed.
    :param busy: seconds in which producers put messages and faults happen; None: drawn from the
        seed.
    :param without: kinds of faults that are not drawn.
    """
    make = SimCluster if kind == CLUSTER else HAPair
    pair = make(seed, options or PairOptions.draw(Random(f"{seed}/options")), trace)
    world = pair.world
    random = world.random("workload")
    busy = random.choice(BUSY_SECONDS) if busy is None else busy
    if faults is None:
        weights = {name: n for name, n in FAULT_KINDS.items() if name not in without}
        faults = plan_faults(world.random("faults"), busy, weights)
    plan = FaultPlan(pair, faults)
    pauses = random.choice(((0.05,), (0.1, 0.1), (0.02, 0.5)))
    producers = [pair.producer(number, pause) for number, pause in enumerate(pauses)]
    with _no_leftovers(), _Complaints(pair):
        for producer in producers:
            producer.attempts = pair.attempts
            producer.start()
        pair.start()
        for other in pair.others():
            other.start()
        plan.start()
        world.clock.run_for(busy)
        for load in (*producers, *pair.others()):
            load.stop()
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


def run_raft(
    seed: int,
    nodes: int = 3,
    *,
    options: RaftOptions | None = None,
    faults: list[RaftFault] | None = None,
    trace: Trace | None = None,
    write: Callable[[str], None] | None = None,
) -> Result:
    """
    Simulate a DLedger group, from the first start to the last check.

    :param options: None: drawn from the seed.
    :param faults: None: drawn from the seed.
    :param write: takes a line for each change of role and each fault.
    """
    chosen = options or RaftOptions.draw(Random(f"{seed}/options"), nodes)
    group = RaftGroup(seed, chosen, trace)
    group.write = write
    group.run(faults)
    findings = group.judge.findings
    return Result(
        RAFT,
        seed,
        group.trace.digest,
        group.trace.count,
        str(chosen),
        group.struck,
        group.judge.statuses | {"leaders": len(group.judge.leaders)},
        findings.violations,
        findings.hazards,
        chosen.nodes,
    )


def run_storm(seed: int, write: Callable[[str], None] = lambda line: None) -> Result:
    """
    Simulate brokers in controller mode, from the first start to the last check. Each fifth seed
    runs a `SlowStorm`.

    :param write: takes a line for each fault.
    """
    with _no_leftovers():
        storm = (SlowStorm if seed % 5 == 4 else Storm)(seed, write)
        with _Complaints(storm):
            storm.run()
        trace, findings = storm.world.trace, storm.findings
        told = storm.promises
        statuses = {"PUT_OK": len(told.places), "others": len(told.attempts) - len(told.places)}
        return Result(
            CONTROLLED,
            seed,
            trace.digest,
            trace.count,
            storm.options,
            storm.history,
            statuses,
            findings.violations,
            findings.hazards,
        )


@contextmanager
def _no_leftovers() -> Iterator[None]:
    """
    Collect the garbage of earlier simulations first, so that their failures do not count for this
    one.
    """
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@implementer(ILogObserver)
class _Complaints:
    """
    Collects the failures that the product logs, except those that a simulated disk or peer causes.
    """

    def __init__(self, pair: HAPair | Storm) -> None:
        self._pair = pair

    def __enter__(self) -> None:
        globalLogPublisher.addObserver(self)

    def __exit__(self, *_: object) -> None:
        globalLogPublisher.removeObserver(self)

    def __call__(self, event: LogEvent) -> None:
        """Take a log event."""
        failure = event.get("log_failure")
        if failure is not None and failure.check(OSError, RmqHaError) is None:
            text = f"{event.get('log_namespace')}: {formatEvent(event)}: {failure.getTraceback()}"
            self._pair.findings.violation(self._pair.now, "logged failure", text)


def run_safely(
    seed: int,
    kind: str = PAIR,
    nodes: int = 0,
    without: Sequence[str] = (),
    mutant: str | None = None,
) -> Result:
    """
    Simulate one seed. An exception of the simulation counts as a violation.

    :param nodes: number of members of a group; 0: usually 3, sometimes 5.
    :param without: kinds of faults that are not drawn for a pair or cluster.
    :param mutant: a fault to plant, one of `tests.sim_kit.mutants`.
    """
    try:
        with planted(mutant):
            if kind == RAFT:
                return run_raft(seed, nodes or (5 if seed % 5 == 4 else 3))
            if kind == CONTROLLED:
                return run_storm(seed)
            return run_pair(seed, kind=kind, without=without)
    except Exception:
        broken = CheckerFinding(0.0, "broke down", format_exc())
        return Result(kind, seed, "", 0, "", [], {}, [broken], [], nodes)


def be_quiet() -> None:
    """
    Discard the product's log, because thousands of faults would fill the screen.

    Objects that exist now are never collected, so that a collection of garbage after each seed is
    quick.
    """
    gc.collect()
    gc.freeze()
    globalLogBeginner.beginLoggingTo([_forget], redirectStandardIO=False)


@provider(ILogObserver)
def _forget(event: LogEvent) -> None:
    """Discard a log event."""


def run_seeds(
    seeds: range,
    jobs: int,
    kind: str = PAIR,
    nodes: int = 0,
    without: Sequence[str] = (),
    mutant: str | None = None,
) -> Iterator[Result]:
    """Simulate many seeds, in several processes."""
    run = partial(run_safely, kind=kind, nodes=nodes, without=without, mutant=mutant)
    if jobs <= 1:
        yield from map(run, seeds)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn"), be_quiet) as pool:
        yield from pool.map(run, seeds, chunksize=8)


def find(mutant: Mutant, seeds: range, jobs: int = 1) -> Result | None:
    """
    Plant a fault, and simulate seeds until one finds it.

    :returns: the result of the first seed that shows the fault and finds no violation without it;
        None: there is no such seed.
    """
    step = 50 * jobs
    for start in range(seeds.start, seeds.stop, step):
        batch = range(start, min(start + step, seeds.stop))
        for result in run_seeds(batch, jobs, mutant.kind, mutant=mutant.name):
            if not result.ok and run_safely(result.seed, mutant.kind).ok:
                return result
    return None


def _find_all(name: str, seeds: range, jobs: int) -> int:
    """Print a table of the mutants, and return the exit code: 1 if no seed finds one of them."""
    mutants = ALL_MUTANTS if name == "all" else [mutant_named(name)]
    alive = 0
    for mutant in mutants:
        result = find(mutant, seeds, jobs)
        alive += result is None
        if result is None:
            verdict = f"NOT FOUND in {len(seeds)} seeds"
        else:
            verdict = f"seed {result.seed}: {result.violations[0].kind}"
        print(f"{mutant.name:24} {mutant.kind:8} {verdict:44} {mutant.what}", flush=True)
    return 1 if alive else 0


def _traced(seed: int, kind: str, nodes: int, without: Sequence[str]) -> Result:
    if kind == RAFT:
        return run_raft(seed, nodes or (5 if seed % 5 == 4 else 3), write=print)
    if kind == CONTROLLED:
        return run_storm(seed, print)
    return run_pair(seed, trace=Trace(print), kind=kind, without=without)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line, and return the exit code: 1 if a promise was broken."""
    parser = argparse.ArgumentParser(description="Simulate brokers under faults.")
    parser.add_argument("--seed", type=int, default=0, help="the (first) seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--kind", choices=KINDS, default=PAIR, help="what is simulated")
    parser.add_argument("--nodes", type=int, choices=(3, 5), default=0, help="of a raft group")
    parser.add_argument("--trace", action="store_true", help="print every event of one seed")
    parser.add_argument("--without", default="", help="kinds of faults to leave out, with commas")
    names = [mutant.name for mutant in ALL_MUTANTS]
    parser.add_argument(
        "--mutant", choices=["all", *names], help="plant a fault; look until a seed finds it"
    )
    chosen = parser.parse_args(arguments)
    without = chosen.without.split(",") if chosen.without else []
    be_quiet()
    if chosen.mutant:
        seeds = range(chosen.seed, chosen.seed + chosen.seeds)
        return _find_all(chosen.mutant, seeds, chosen.jobs)
    if chosen.trace:
        results = iter([_traced(chosen.seed, chosen.kind, chosen.nodes, without)])
    else:
        seeds = range(chosen.seed, chosen.seed + chosen.seeds)
        results = run_seeds(seeds, chosen.jobs, chosen.kind, chosen.nodes, without)
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
