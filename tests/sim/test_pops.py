"""
Pops under faults, in all three kinds of journal.

`RMQ_HA_SIM_POP_SEEDS` says how many seeds of each kind run (1; about 1 s of CPU each).
"""

import os

import pytest

from tests.sim_kit.pops import KINDS, PopStorm

SEEDS = int(os.environ.get("RMQ_HA_SIM_POP_SEEDS", "1"))
FIRST = int(os.environ.get("RMQ_HA_SIM_POP_FIRST", "0"))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_acknowledged_is_gone_and_all_else_comes_again(kind: str, seed: int) -> None:
    storm = PopStorm(seed, kind)
    storm.run()
    assert not storm.findings.violations, (storm.events, storm.findings.violations)
    assert storm.load.found > 50
