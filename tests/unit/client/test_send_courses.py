"""Whatever callers, brokers and time do in whatever order: each send ends once, nothing is left."""

from math import inf
from random import Random
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from rmq_ha.base.errors import RemotingTimeout
from rmq_ha.base.wire.bodies import MessageQueue
from tests.unit.client.test_sender import GONE, Bench, patient, refused, stored, topic

STEPS = 120
ACTS = {"send": 4.0, "answer": 5.0, "advance": 3.0, "cancel": 0.5}


class Course:
    """A producer's sender under a random course of events."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = Random(seed)
        self.bench: Bench = patient(
            max_in_flight=chance.choice([1, 3, 50]),
            max_waiting=chance.choice([2, 20, 500]),
            retry_times_when_send_failed=chance.choice([0, 2]),
            retry_chosen_queue=chance.random() < 0.5,
        )
        self.topics = [topic(), topic()]
        self.outcomes: list[list[Any]] = []
        self.sent: list[Deferred[Any]] = []

    def send(self) -> None:
        chance, bench = self.chance, self.bench
        bench.topic = chance.choice(self.topics)
        changes = chance.choice(
            [{}, {}, {"fixed_queue": MessageQueue("T", "a", 0)}, {"selector": min}]
        )
        one_way = {"oneway": True} if chance.random() < 0.1 else {}
        deadline = bench.clock.seconds() + chance.choice([1.0, 60.0, inf])
        self.outcomes.append(bench.send(deadline=deadline, **changes, **one_way))
        self.sent.append(bench.later)

    def answer(self) -> None:
        open_ = self.open_attempts()
        if open_:
            answers = [GONE, RemotingTimeout("slow"), refused(13), refused(14), stored()]
            self.bench.answer(self.chance.choice(open_), self.chance.choice(answers))

    def open_attempts(self) -> list[int]:
        return [n for n, (_, later) in enumerate(self.bench.attempts) if not later.called]

    def advance(self) -> None:
        self.bench.clock.advance(self.chance.choice([0.01, 0.1, 0.5, 2.0]))

    def cancel(self) -> None:
        if self.sent:
            self.chance.choice(self.sent).cancel()

    def drain(self) -> None:
        drained: list[None] = []
        Deferred.fromCoroutine(self.bench.sender.drain()).addCallback(drained.append)
        self.bench.clock.advance(6)
        assert drained == [None]

    def come_back(self) -> None:
        """Brokers answer everything from now on."""
        for _ in range(400):
            for number in self.open_attempts():
                self.bench.answer(number, stored())
            if all(self.outcomes):
                return
            self.bench.clock.advance(0.25)


@pytest.mark.parametrize("first", [0, 10])
def test_each_send_ends_once_and_nothing_is_left(first: int) -> None:
    """A send that nobody tries any more would hang until its time is over, or for ever."""
    for seed in range(first, first + 10):
        course = Course(seed)
        for act in course.chance.choices(list(ACTS), list(ACTS.values()), k=STEPS):
            getattr(course, act)()
        if course.chance.random() < 0.3:
            course.drain()
        course.come_back()
        assert [len(outcome) for outcome in course.outcomes] == [1] * len(course.outcomes), seed
        sender = course.bench.sender
        assert (sender.in_flight, sender._in_flight.size, sender._live) == (0, 0, {})
        resting = sender._resting
        assert (resting.rests, resting.count, resting._triers) == ({}, 0, {}), seed
