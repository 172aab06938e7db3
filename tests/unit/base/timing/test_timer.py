"""`rmq_ha.base.timing.timer`."""

from twisted.internet.task import Clock

from rmq_ha.base.timing.timer import LastTurn, next_turn, rearm


def test_calls_at_the_deadline() -> None:
    clock, calls = Clock(), []
    rearm(clock, None, 5.0, calls.append, "x")
    clock.advance(4.9)
    assert not calls
    clock.advance(0.1)
    assert calls == ["x"]


def test_a_timer_that_is_due_earlier_is_kept() -> None:
    clock, calls = Clock(), []
    timer = rearm(clock, None, 5.0, calls.append, "x")
    assert rearm(clock, timer, 9.0, calls.append, "x") is timer
    assert len(clock.calls) == 1


def test_an_earlier_deadline_replaces_the_timer() -> None:
    clock, calls = Clock(), []
    timer = rearm(clock, None, 5.0, calls.append, "x")
    rearm(clock, timer, 2.0, calls.append, "y")
    clock.advance(10)
    assert calls == ["y"]


def test_no_deadline_cancels() -> None:
    clock, calls = Clock(), []
    timer = rearm(clock, None, 5.0, calls.append, "x")
    assert rearm(clock, timer, None, calls.append) is None
    assert rearm(clock, None, None, calls.append) is None
    assert not clock.getDelayedCalls()


def test_a_deadline_in_the_past_calls_next_turn() -> None:
    clock, calls = Clock(), []
    clock.advance(10)
    timer = rearm(clock, None, 5.0, calls.append, "x")
    assert not calls
    clock.advance(0)
    assert calls == ["x"]
    assert rearm(clock, timer, 11.0, calls.append, "y") is not timer


def test_the_last_turn_comes_once_after_each_silence() -> None:
    clock, calls = Clock(), []
    turn = LastTurn()
    for _ in range(2):
        assert turn.look_again(clock, lambda: calls.append("again")) is not None
        clock.advance(0)
        assert turn.look_again(clock, lambda: calls.append("again")) is None
    assert calls == ["again"] * 2
    turn.look_again(clock, lambda: None)
    turn.reset()
    assert turn.look_again(clock, lambda: None) is not None


def test_the_next_turn_comes_after_what_is_due_now() -> None:
    clock, calls = Clock(), []
    clock.callLater(1, lambda: next_turn(clock).addCallback(lambda _: calls.append("timer")))
    clock.callLater(1, calls.append, "read")
    clock.advance(50)
    assert calls == ["read", "timer"]
