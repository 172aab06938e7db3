"""Calls that wait. Spec: remoting.md, sections 1.6 and 1.11."""

import pytest
from twisted.internet.task import Clock

from rmq_ha.errors import RemotingConnectError, RemotingTimeout
from rmq_ha.remoting.pending import PendingCalls
from rmq_ha.wire.command import RemotingCommand


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def calls(clock: Clock) -> PendingCalls:
    return PendingCalls(clock, "peer:1")


def called(calls: PendingCalls, *timeouts_ms: float) -> list[list[object]]:
    """What comes of calls with these limits."""
    outcomes: list[list[object]] = []
    for timeout_ms in timeouts_ms:
        outcome: list[object] = []
        calls.add(timeout_ms)[1].addErrback(lambda failure: failure.type).addCallback(
            outcome.append
        )
        outcomes.append(outcome)
    return outcomes


def test_all_that_are_late_are_told_together_and_the_others_at_their_time(
    clock: Clock, calls: PendingCalls
) -> None:
    outcomes = called(calls, 100, 100, 100, 300, 200)
    clock.advance(0.09)
    assert outcomes == [[]] * 5
    clock.advance(0.02)
    assert outcomes == [[RemotingTimeout]] * 3 + [[]] * 2
    clock.advance(0.1)
    assert outcomes == [[RemotingTimeout]] * 3 + [[], [RemotingTimeout]]
    clock.advance(0.1)
    assert outcomes == [[RemotingTimeout]] * 5
    assert len(calls) == 0
    assert clock.getDelayedCalls() == []


def test_a_late_answer_finds_nobody(clock: Clock, calls: PendingCalls) -> None:
    opaque, waiting = calls.add(100)
    waiting.addErrback(lambda failure: failure.type)
    clock.advance(0.2)
    assert not calls.resolve(RemotingCommand(0, opaque=opaque))
    assert waiting.result is RemotingTimeout


def test_each_answer_finds_its_call(clock: Clock, calls: PendingCalls) -> None:
    first, second = calls.add(100), calls.add(100)
    assert first[0] != second[0]
    answer = RemotingCommand(0, opaque=second[0])
    assert calls.resolve(answer)
    assert second[1].result is answer
    assert not first[1].called
    assert not calls.resolve(answer)
    assert calls.resolve(RemotingCommand(0, opaque=first[0]))


def test_when_the_connection_is_lost_everybody_hears_of_it(
    clock: Clock, calls: PendingCalls
) -> None:
    outcomes = called(calls, 100, 200, 300)
    calls.fail_all("gone")
    assert outcomes == [[RemotingConnectError]] * 3
    assert clock.getDelayedCalls() == []
