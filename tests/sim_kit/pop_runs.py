"""
Runs simulations of pops, many at a time.

    python -m tests.sim_kit.pop_runs --seeds 20000 --counts FILE    # of each kind
    python -m tests.sim_kit.pop_runs --mutant all                   # finds them?
    python -m tests.sim_kit.pop_runs --kind 'pops of a pair' --seed 7    # one, with its faults

The processes run at the lowest priority (nice 19). After each 20 seeds the counts are written, so
that a run may be ended at any time, and another may go on with `--first`.
"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from traceback import format_exception_only
from typing import NamedTuple

from tests.sim_kit.planting import Patches
from tests.sim_kit.pop_mutants import POP_MUTANTS, PopMutant
from tests.sim_kit.pops import KINDS, PopStorm

_CHUNK = 20
MOST_SEEDS = 2000


class Outcome(NamedTuple):
    """
    One seed of one kind.

    :ivar deliveries: number of messages that pops handed out.
    :ivar found: the violations in words; none if the seed is clean.
    """

    kind: str
    seed: int
    deliveries: int
    found: tuple[str, ...]


def run_seed(kind: str, seed: int) -> Outcome:
    """Run one simulation; what ends it early is a finding, too."""
    storm = PopStorm(seed, kind)
    try:
        storm.run()
        found = tuple(str(item) for item in storm.findings.violations)
    except Exception as error:
        found = ("".join(format_exception_only(error)).strip(),)
    return Outcome(kind, seed, storm.load.found, found)


def _run_chunk(kinds: Sequence[str], seeds: range) -> list[Outcome]:
    return [run_seed(kind, seed) for seed in seeds for kind in kinds]


def outcomes(kinds: Sequence[str], seeds: range, processes: int) -> Iterator[list[Outcome]]:
    """
    Run seeds of each kind; yield their outcomes by chunks, in the order of the seeds.

    :param processes: 1: in this process.
    """
    chunks = [seeds[place : place + _CHUNK] for place in range(0, len(seeds), _CHUNK)]
    if processes == 1:
        for chunk in chunks:
            yield _run_chunk(kinds, chunk)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(_run_chunk, [kinds] * len(chunks), chunks)


class Counts:
    """How many seeds ran, and what they found."""

    def __init__(self, kinds: Sequence[str]) -> None:
        self._kinds = kinds
        self.runs: Counter[str] = Counter()
        self.deliveries: Counter[str] = Counter()
        self.found: list[Outcome] = []

    def add(self, chunk: Sequence[Outcome]) -> None:
        """Count some outcomes."""
        for outcome in chunk:
            self.runs[outcome.kind] += 1
            self.deliveries[outcome.kind] += outcome.deliveries
            if outcome.found:
                self.found.append(outcome)

    def text(self, seeds: range) -> str:
        """Return lines for people: by kind, and one for each seed that found something."""
        lines = []
        for kind in self._kinds:
            bad = sum(outcome.kind == kind for outcome in self.found)
            lines.append(
                f"{kind}: {self.runs[kind] - bad} of {self.runs[kind]} seeds from {seeds.start} on "
                f"are clean, {self.deliveries[kind]:,} messages handed out"
            )
        lines += [
            f"{item.kind}, seed {item.seed}: {'; '.join(item.found[:3])}" for item in self.found
        ]
        return "\n".join(lines) + "\n"


def first_finding(mutant: PopMutant, seeds: range) -> int | None:
    """Return the first of some seeds that finds a planted fault; None if none does."""
    patches = Patches()
    mutant.plant(patches)
    try:
        for seed in seeds:
            storm = PopStorm(seed, mutant.kind)
            try:
                storm.run()
            except Exception as error:  # a fault that only ends the simulation is no find
                print(f"{mutant.kind}, seed {seed}: {type(error).__name__}", flush=True)
                continue
            if storm.findings.violations:
                return seed
    finally:
        patches.undo()
    return None


def _search(names: str, seeds: range) -> int:
    """Search some seeds for each mutant; return how many mutants were not found."""
    lost = 0
    for mutant in POP_MUTANTS:
        if names not in ("all", mutant.name):
            continue
        began = time.monotonic()
        seed = first_finding(mutant, seeds)
        lost += seed is None
        said = f"found by seed {seed}" if seed is not None else f"not found by {len(seeds)} seeds"
        print(f"{mutant.name}: {said} ({time.monotonic() - began:.0f} s)", flush=True)
    return lost


def main() -> None:
    """As the module says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--kind", choices=KINDS, help="default: all")
    parser.add_argument("--seeds", type=int, default=MOST_SEEDS)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--counts", type=Path, help="the file for the counts")
    parser.add_argument("--seed", type=int, help="one seed, with its faults")
    parser.add_argument("--mutant", help="a planted fault, or `all`")
    options = parser.parse_args()
    kinds = (options.kind,) if options.kind else KINDS
    seeds = range(options.first, options.first + options.seeds)
    if options.seed is not None:
        for kind in kinds:
            storm = PopStorm(options.seed, kind, print)
            storm.run()
            print(f"{kind}: {storm.findings.violations or 'nothing found'}")
        return
    os.nice(19)
    if options.mutant:
        sys.exit(_search(options.mutant, seeds) > 0)
    counts = Counts(kinds)
    for chunk in outcomes(kinds, seeds, options.processes):
        counts.add(chunk)
        print(f"{time.strftime('%X')} {counts.text(seeds)}", flush=True)
        if options.counts is not None:
            options.counts.write_text(counts.text(seeds))
    sys.exit(bool(counts.found))


if __name__ == "__main__":
    main()
