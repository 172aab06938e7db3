"""What operators are told of timer messages."""

from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from rmq_ha.base.errors import StoreError
from rmq_ha.server.store.timer.reports import BOUNDS_S, TimerWork, due_within
from rmq_ha.server.store.timer.sources import TimerSource
from rmq_ha.server.store.timer.topic_counts import TopicCounts
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


class CountedTopics:
    """Counts that take two slices, a second each."""

    def __init__(self) -> None:
        self.clock, self.begun = Clock(), 0
        self.fails = False
        self.counts = TopicCounts(self.clock, self.count)

    def count(self, counts: Counter[str]) -> Iterator[None]:
        self.begun += 1
        counts["T"] = self.begun
        yield
        if self.fails:
            raise StoreError("the disk refuses")

    def ask(self) -> list[object]:
        answers: list[object] = []
        self.counts.get().addBoth(answers.append)
        return answers


def test_those_that_ask_at_a_time_share_a_count_and_it_is_kept_for_a_while() -> None:
    topics = CountedTopics()
    asked = [topics.ask() for _ in range(3)]
    topics.clock.advance(1)
    assert asked == [[{"T": 1}]] * 3
    assert topics.ask() == [{"T": 1}]
    topics.clock.advance(4.9)
    assert topics.ask() == [{"T": 1}]
    topics.clock.advance(0.2)
    assert topics.ask() == []
    topics.clock.advance(1)
    assert topics.begun == 2


def test_a_count_that_fails_fails_for_all_and_is_tried_again() -> None:
    topics = CountedTopics()
    topics.fails = True
    asked = [topics.ask() for _ in range(2)]
    topics.clock.advance(1)
    assert all(isinstance(answer, Failure) for (answer,) in asked)
    topics.fails = False
    again = topics.ask()
    topics.clock.advance(1)
    assert again == [{"T": 2}]
