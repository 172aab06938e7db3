"""
Runs simulations of timer messages.

    python -m tests.sim_kit.timer_runs --seeds 2000     # of each kind
    python -m tests.sim_kit.timer_runs --mutant due-alone    # finds it?
    python -m tests.sim_kit.timer_runs --mutant all
    python -m tests.sim_kit.timer_runs --kind 'timers of a pair' --seed 7    # one, with its faults
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from tests.sim_kit.planting import Patches
from tests.sim_kit.timer_clients import CLIENTS, TimerClients
from tests.sim_kit.timer_mutants import TIMER_MUTANTS, TimerMutant
from tests.sim_kit.timers import KINDS, TimerStorm

ALL_KINDS = (*KINDS, CLIENTS)
MOST_SEEDS = 2000


def run_storm(kind: str, seed: int, write: Callable[[str], None] = lambda line: None) -> Any:
    """Run one simulation from nothing to its end; `findings` of the result says what it found."""
    storm = TimerClients(seed, write) if kind == CLIENTS else TimerStorm(seed, kind, write)
    storm.run()
    return storm


def first_finding(mutant: TimerMutant, seeds: Iterable[int]) -> int | None:
    """Return the first of some seeds that finds a planted fault; None if none does."""
    patches = Patches()
    mutant.plant(patches)
    try:
        for seed in seeds:
            if _finds(mutant.kind, seed):
                return seed
    finally:
        patches.undo()
    return None


def _finds(kind: str, seed: int) -> bool:
    """Return whether a seed shows a fault; one that only ends the simulation is no find."""
    try:
        return bool(run_storm(kind, seed).findings.violations)
    except Exception as error:
        print(f"{kind}, seed {seed}: {type(error).__name__}", flush=True)
        return False


def _search(names: str, count: int) -> int:
    """Search some seeds from 0 on for each mutant; return how many were not found."""
    lost = 0
    for mutant in TIMER_MUTANTS:
        if names not in ("all", mutant.name):
            continue
        began = time.monotonic()
        seed = first_finding(mutant, range(count))
        lost += seed is None
        found = f"found by seed {seed}" if seed is not None else f"not found by {count} seeds"
        print(f"{mutant.name}: {found} ({time.monotonic() - began:.0f} s)", flush=True)
    return lost


def _clean_runs(kinds: tuple[str, ...], first: int, count: int) -> int:
    """Run seeds of each kind in turn; return how many found something."""
    found = 0
    for done, seed in enumerate(range(first, first + count), 1):
        for kind in kinds:
            try:
                storm = run_storm(kind, seed)
                violations = [str(item) for item in storm.findings.violations]
            except Exception as error:
                violations = [f"{type(error).__name__}: {error}"]
            if violations:
                found += 1
                print(f"{kind}, seed {seed}: {'; '.join(violations[:3])}", flush=True)
        if done % 100 == 0:
            print(
                f"{time.strftime('%X')} {done} seeds of {len(kinds)} kinds, {found} found",
                flush=True,
            )
    return found


def main() -> None:
    """As the module says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--kind", choices=ALL_KINDS, help="default: all")
    parser.add_argument("--seeds", type=int, default=MOST_SEEDS)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="one seed, with its faults")
    parser.add_argument("--mutant", help="a planted fault, or `all`")
    options = parser.parse_args()
    kinds = (options.kind,) if options.kind else ALL_KINDS
    if options.mutant:
        sys.exit(_search(options.mutant, options.seeds) > 0)
    if options.seed is not None:
        for kind in kinds:
            storm = run_storm(kind, options.seed, print)
            print(f"{kind}: {storm.findings.violations or 'nothing found'}")
        return
    sys.exit(_clean_runs(kinds, options.first, options.seeds) > 0)


if __name__ == "__main__":
    main()
