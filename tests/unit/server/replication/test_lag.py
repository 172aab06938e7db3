"""Replication lag in seconds from offsets, on a time that the test makes."""

from bisect import bisect_right
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_ha.server.replication.lag import (
    CAPACITY,
    ERROR_SHARE,
    RESOLUTION_S,
    AppendTimes,
)


def test_nobody_is_behind_a_log_that_nobody_wrote() -> None:
    assert AppendTimes().seconds_behind(0, 10.0) == 0.0


def test_the_lag_is_the_age_of_the_first_byte_that_is_missing() -> None:
    times = AppendTimes()
    for offset, now in ((100, 1.0), (200, 2.0), (300, 5.0)):
        times.note(offset, now)
    assert times.seconds_behind(300, 9.0) == 0.0
    assert times.seconds_behind(250, 9.0) == 4.0
    assert times.seconds_behind(200, 9.0) == 4.0
    assert times.seconds_behind(199, 9.0) == 7.0
    assert times.seconds_behind(0, 9.0) == 8.0


def test_an_offset_beyond_the_log_is_not_behind() -> None:
    times = AppendTimes()
    times.note(100, 1.0)
    assert times.seconds_behind(101, 9.0) == 0.0


def test_the_lag_is_never_negative() -> None:
    times = AppendTimes()
    times.note(100, 5.0)
    assert times.seconds_behind(0, 4.0) == 0.0


def test_appends_close_together_are_one_sample() -> None:
    times = AppendTimes()
    for number in range(50):
        times.note(number + 1, 1.0 + number * RESOLUTION_S / 100)
    assert len(times) == 1
    assert times.seconds_behind(49, 2.0) == 1.0
    times.note(51, 1.0 + RESOLUTION_S)
    assert len(times) == 2


def test_appends_as_far_apart_as_that_are_two() -> None:
    times = AppendTimes()
    for number in range(3):
        times.note(number + 1, number * RESOLUTION_S)
    assert [times.seconds_behind(offset, 1.0) for offset in range(3)] == [1.0, 0.99, 0.98]


def test_a_truncated_log_begins_anew() -> None:
    times = AppendTimes()
    times.note(500, 1.0)
    times.note(100, 2.0)
    assert times.seconds_behind(99, 3.0) == 1.0
    assert times.seconds_behind(100, 3.0) == 0.0


def test_nothing_is_left_of_a_log_that_was_truncated() -> None:
    """What it grew to before would make a slave that has everything lag."""
    times = AppendTimes()
    for second in range(1, 10):
        times.note(second * 100, float(second))
    times.note(150, 20.0)
    assert len(times) == 1
    assert times.seconds_behind(150, 30.0) == 0.0
    assert times.seconds_behind(149, 30.0) == 10.0
    times.note(250, 25.0)
    assert times.seconds_behind(150, 30.0) == 5.0


def test_a_quiet_time_is_not_thinned_away() -> None:
    """One byte an hour, then a burst: the answer for the old byte stays exact."""
    times = AppendTimes()
    times.note(1, 0.0)
    times.note(2, 3600.0)
    now = 7200.0
    for number in range(3 * CAPACITY):
        now += RESOLUTION_S
        times.note(3 + number, now)
    assert len(times) <= CAPACITY
    assert times.seconds_behind(1, now) == now - 3600.0


def test_memory_is_bounded_and_the_error_small_over_days() -> None:
    times = AppendTimes()
    samples: list[tuple[int, float]] = []
    now, offset, step = 0.0, 0, 0.02
    while now < 10 * 86400:
        offset += 100
        times.note(offset, now)
        samples.append((offset, now))
        now += step
        step *= 1.0005
    assert len(times) <= CAPACITY
    for wanted, when in samples[:: len(samples) // 50]:
        true = now - when
        assert (
            abs(times.seconds_behind(wanted - 1, now) - true)
            <= 2 * ERROR_SHARE * true + RESOLUTION_S
        )


@settings(max_examples=25)
@given(st.integers(), st.sampled_from([0.05, 1.0, 30.0]))
def test_any_history_is_told_within_the_promised_error(seed: int, pace: float) -> None:
    random = Random(seed)
    times = AppendTimes()
    offset, now = 0, 0.0
    ends: list[int] = []
    samples: list[float] = []
    for _ in range(3 * CAPACITY):
        offset += random.randrange(1, 1000)
        now += random.expovariate(1 / pace) * random.choice((0.001, 1.0, 1.0, 20.0))
        times.note(offset, now)
        ends.append(offset)
        samples.append(now)
    assert len(times) <= CAPACITY
    for wanted in range(0, offset, offset // 200):
        true = now - samples[bisect_right(ends, wanted)]
        error = abs(times.seconds_behind(wanted, now) - true)
        assert error <= 2 * ERROR_SHARE * true + RESOLUTION_S


def test_a_history_that_cannot_be_thinned_fairly_is_thinned_all_the_same() -> None:
    """Ever longer pauses, more than any machine lives: the bound holds."""
    times = AppendTimes()
    now = 1.0
    for number in range(2 * CAPACITY):
        now *= 1.05
        times.note(number + 1, now)
        assert len(times) <= CAPACITY


def test_a_log_that_does_not_grow_takes_no_memory() -> None:
    times = AppendTimes()
    for second in range(100):
        times.note(10, float(second))
    assert len(times) == 1
    assert times.seconds_behind(9, 100.0) == 100.0
