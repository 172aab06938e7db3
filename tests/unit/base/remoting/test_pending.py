"""Calls that wait. Spec: remoting.md, sections 1.6 and 1.11."""

import pytest
from twisted.internet.task import Clock

from rmq_ha.base.errors import RemotingConnectError, RemotingTimeout
from rmq_ha.base.remoting import pending
from rmq_ha.base.remoting.pending import PendingCalls
from rmq_ha.base.wire.command import RemotingCommand


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


def test_an_answer_that_was_not_read_during_a_long_turn_is_in_time(
    clock: Clock, calls: PendingCalls
) -> None:
    opaque, waiting = calls.add(1000)
    clock.callLater(1, calls.resolve, RemotingCommand(0, opaque=opaque))
    clock.advance(30)
    assert isinstance(waiting.result, RemotingCommand)  # type: ignore[attr-defined]
    (outcome,) = called(calls, 1000)
    clock.advance(1)
    assert outcome == [RemotingTimeout]


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
    outcomes = called(calls, 300, 100, 200)
    calls.fail_all("gone")
    assert outcomes == [[RemotingConnectError]] * 3
    assert clock.getDelayedCalls() == []


def test_deadlines_that_lie_close_together_cost_one_timer(
    clock: Clock, calls: PendingCalls
) -> None:
    """Ten thousand calls a second do not mean as many wake-ups: they are looked for each 10 ms."""
    outcomes = called(calls, 100, 103, 106)
    clock.advance(0.1)
    clock.advance(0.007)
    assert outcomes == [[RemotingTimeout], [], []]
    clock.advance(0.003)
    assert outcomes == [[RemotingTimeout]] * 3


def test_the_numbers_begin_again_and_leave_out_those_that_somebody_waits_for(
    monkeypatch: pytest.MonkeyPatch, calls: PendingCalls
) -> None:
    """Java reads an opaque as an `int`."""
    monkeypatch.setattr(pending, "_LAST_OPAQUE", 3)
    first, kept, third = (calls.add(100)[0] for _ in range(3))
    calls.forget(first)
    calls.forget(third)
    again = [calls.add(100)[0] for _ in range(2)]
    assert sorted([kept, *again]) == sorted([first, kept, third]) == [1, 2, 3]
