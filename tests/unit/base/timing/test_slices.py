"""Long work, a turn for each piece."""

from collections.abc import Callable, Iterator

from twisted.internet.defer import CancelledError
from twisted.internet.task import Clock

from rmq_ha.base.timing.slices import Lane, in_slices


class Turns(Clock):
    """Does what waits when the test says so, and not what that asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Callable[[], object]] = []

    def callLater(self, delay: float, what: Callable[[], object]) -> None:  # type: ignore[override]
        assert delay == 0
        self.waiting.append(what)

    def turn(self) -> None:
        waiting, self.waiting = self.waiting, []
        for what in waiting:
            what()


def pieces(done: list[int], count: int, fails: bool = False) -> Iterator[None]:
    for number in range(count):
        done.append(number)
        yield
    if fails:
        raise ValueError("a mistake")


def test_each_piece_has_a_turn() -> None:
    """The first one at once; it fires when there is none left."""
    clock, done, ends = Turns(), list[int](), list[object]()
    in_slices(clock, pieces(done, 3)).addCallback(ends.append)
    for count in (1, 2, 3):
        assert (len(done), ends) == (count, [])
        clock.turn()
    assert ends == [None]
    assert clock.waiting == []


def test_nothing_to_do_is_done_at_once() -> None:
    ends: list[object] = []
    in_slices(Clock(), pieces([], 0)).addCallback(ends.append)
    assert ends == [None]


def test_what_it_raises_is_told() -> None:
    clock, failures = Clock(), list[str]()
    later = in_slices(clock, pieces([], 1, fails=True))
    later.addErrback(lambda failure: failures.append(failure.getErrorMessage()))
    clock.advance(0)
    assert failures == ["a mistake"]
    assert clock.getDelayedCalls() == []


def test_a_lane_has_one_work_at_a_time() -> None:
    """Of several hosts each has one done in turn; the second work of one host comes last."""
    clock, done, ends = Turns(), list[int](), list[str]()
    lane = Lane(clock)
    for name, host in (("one", "a"), ("two", "a"), ("three", "b")):
        lane.run(host, pieces(done, 2)).addCallback(lambda _, name=name: ends.append(name))
    assert done == []
    for _ in range(3):
        clock.turn()
    assert (done, ends) == ([0, 1], ["one"])
    for _ in range(6):
        clock.turn()
    assert (done, ends) == ([0, 1] * 3, ["one", "three", "two"])
    assert (lane.waiting, clock.waiting) == ({}, [])


def test_a_work_of_a_lane_that_fails_or_is_cancelled_holds_up_no_other() -> None:
    clock, done, ends = Turns(), list[int](), list[object]()
    lane = Lane(clock)
    failing = lane.run("a", pieces(done, 1, fails=True)).addErrback(ends.append)
    given_up = lane.run("a", pieces(done, 5)).addErrback(ends.append)
    lane.run("a", pieces(done, 1)).addCallback(ends.append)
    clock.turn()
    given_up.cancel()
    for _ in range(4):
        clock.turn()
    assert done == [0, 0]
    assert [getattr(end, "type", end) for end in ends] == [CancelledError, ValueError, None]
    assert failing.called
    assert lane.waiting == {}
