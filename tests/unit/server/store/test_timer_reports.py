"""What operators are told of timer messages."""

from random import Random

import pytest

from rmq_ha.server.store.timer.reports import BOUNDS_S, TimerWork, due_within
from rmq_ha.server.store.timer.sources import TimerSource
from rmq_ha.server.store.timer.waiting import WaitingMessages
from tests.unit.server.store.timer_world import NOW_MS, TimerWorld


@pytest.mark.parametrize("seed", range(5))
def test_messages_are_counted_by_the_time_until_they_are_due(seed: int) -> None:
    random, waiting, dues = Random(seed), WaitingMessages(), list[int]()
    for number in range(300):
        span = random.choice((1, 60, 4000, 100_000)) * 1000
        dues.append(NOW_MS + random.randint(-span // 10, span))
        waiting.add(dues[-1], number)
    for number in random.sample(range(300), 60):
        is_recall = random.random() < 0.5
        assert waiting.settle(dues[number], TimerSource(1, number), is_recall=is_recall)
        dues[number] = 0
    counts: list[int] = []
    for _ in due_within(waiting, NOW_MS, counts):
        pass
    limits = [NOW_MS + bound * 1000 for bound in BOUNDS_S]
    assert counts == [sum(0 < due <= limit for due in dues) for limit in limits]


def test_the_report_follows_what_happens() -> None:
    world = TimerWorld()
    assert world.timers.report().work is TimerWork.DELIVERING
    row = world.send(30_000)
    world.send(60_000)
    world.run(1)
    report = world.timers.report()
    assert (report.waiting, report.recalled, report.overdue_ms(NOW_MS)) == (2, 0, 0)
    assert report.next_due_ms is not None
    assert NOW_MS + 29_000 < report.next_due_ms <= NOW_MS + 30_002
    assert world.recall(row)
    world.run(1)
    report = world.timers.report()
    assert (report.waiting, report.recalled) == (1, 1)
    world.is_held = True
    world.run(100, 1.0)
    report = world.timers.report()
    assert (report.work, report.waiting) == (TimerWork.HELD, 1)
    assert 30_000 < report.overdue_ms(world.now_ms()) < 50_000
    world.timers.stop()
    assert world.timers.report().work is TimerWork.SLAVE


def test_a_clock_that_is_set_while_messages_wait_is_told() -> None:
    world = TimerWorld()
    world.step_ms += 5000  # nothing waits, so nobody is concerned
    world.run(2)
    world.send(600_000)
    world.run(3)
    assert world.timers.report().clock_step_ms == 0
    world.step_ms -= 7000
    world.run(3)
    report = world.timers.report()
    assert report.clock_step_ms == -7000
    assert 0 < world.now_ms() - report.clock_step_at_ms <= 3000
