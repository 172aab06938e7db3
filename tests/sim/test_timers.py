"""
Timer messages and recalls under faults, in all three kinds of journal, and as clients ask for them.

`RMQ_HA_SIM_TIMER_SEEDS` says how many seeds of each kind run (1; about 0.5 s of CPU each).
"""

import os

import pytest

from tests.sim_kit.timer_mutants import TIMER_MUTANTS, TimerMutant
from tests.sim_kit.timer_runs import ALL_KINDS, first_finding, run_storm
from tests.sim_kit.timers import PAIR

SEEDS = int(os.environ.get("RMQ_HA_SIM_TIMER_SEEDS", "1"))


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("kind", ALL_KINDS)
def test_each_message_is_delivered_once_and_not_before_it_is_due(kind: str, seed: int) -> None:
    storm = run_storm(kind, seed)
    assert not storm.findings.violations, (storm.history, storm.findings.violations)
    assert storm.count > 20


def test_a_torn_frontier_is_no_whole_record() -> None:
    """Seed 194: lost power left zeros in the topic of a frontier; the recovery sets it aside."""
    assert not run_storm(PAIR, 194).findings.violations


@pytest.mark.parametrize("mutant", TIMER_MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_fault_is_found(mutant: TimerMutant) -> None:
    """A seed shows the fault; `test_each_message...` and longer runs show such seeds clean."""
    assert first_finding(mutant, [mutant.seed]) is not None, mutant.fault
