"""
Timer messages and recalls under faults, in all three kinds of journal.

`RMQ_HA_SIM_TIMER_SEEDS` says how many seeds of each kind run (2; about 0.5 s of CPU each).
"""

import os

import pytest

from tests.sim_kit.planting import Patches
from tests.sim_kit.timer_mutants import TIMER_MUTANTS, TimerMutant
from tests.sim_kit.timers import KINDS, TimerStorm

SEEDS = int(os.environ.get("RMQ_HA_SIM_TIMER_SEEDS", "2"))


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("kind", KINDS)
def test_each_message_is_delivered_once_and_not_before_it_is_due(kind: str, seed: int) -> None:
    storm = TimerStorm(seed, kind)
    storm.run()
    assert not storm.findings.violations, (storm.history, storm.findings.violations)
    assert storm.load.count > 20


@pytest.mark.parametrize("mutant", TIMER_MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_fault_is_found(mutant: TimerMutant) -> None:
    """A seed shows the fault; `test_each_message...` and longer runs show such seeds clean."""
    patches = Patches()
    mutant.plant(patches)
    try:
        storm = TimerStorm(mutant.seed, mutant.kind)
        storm.run()
    finally:
        patches.undo()
    assert storm.findings.violations, mutant.fault
