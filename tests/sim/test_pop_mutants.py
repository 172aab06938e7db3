"""
Faults that are planted into POP consumption, each of which the simulator has to find.

`RMQ_HA_SIM_POP_MUTANTS` says how many of them are planted (3; about 1 s of CPU each).
"""

import os

import pytest

from tests.sim_kit.planting import Patches
from tests.sim_kit.pop_mutants import POP_MUTANTS, PopMutant
from tests.sim_kit.pops import PopStorm

COUNT = int(os.environ.get("RMQ_HA_SIM_POP_MUTANTS", "3"))


@pytest.mark.parametrize("mutant", POP_MUTANTS[:COUNT], ids=lambda mutant: mutant.name)
def test_a_planted_fault_is_found(mutant: PopMutant) -> None:
    """`test_what_is_acknowledged...` and longer runs show such seeds clean."""
    patches = Patches()
    mutant.plant(patches)
    try:
        storm = PopStorm(mutant.seed, mutant.kind)
        storm.run()
    finally:
        patches.undo()
    assert storm.findings.violations, mutant.fault
