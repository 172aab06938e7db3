"""A wall clock that was set is noticed; two clocks that run a little apart are not."""

import pytest

from rmq_ha.base.timing.clock_steps import ClockSteps


@pytest.mark.parametrize("step_ms", [-3_600_000, -1000, 1000, 86_400_000])
def test_a_step_is_noticed_once_and_kept(step_ms: int) -> None:
    steps = ClockSteps(1_000_000, 5.0)
    assert not steps.look(1_001_000, 6.0)
    now_ms = 1_002_000 + step_ms
    assert steps.look(now_ms, 7.0)
    assert (steps.step_ms, steps.at_ms) == (step_ms, now_ms)
    assert not steps.look(now_ms + 1000, 8.0)
    assert (steps.step_ms, steps.at_ms) == (step_ms, now_ms)


def test_clocks_that_run_apart_are_no_step() -> None:
    steps = ClockSteps(1_000_000, 0.0)
    for second in range(1, 100):
        assert not steps.look(1_000_000 + second * 1999, float(second))
    assert (steps.step_ms, steps.at_ms) == (0, 0)


def test_a_step_while_nobody_looked_does_not_count() -> None:
    steps = ClockSteps(1_000_000, 0.0)
    steps.begin(9_000_000, 10.0)
    assert not steps.look(9_001_000, 11.0)
    assert steps.step_ms == 0
