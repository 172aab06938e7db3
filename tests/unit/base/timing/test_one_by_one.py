"""Works one after the other, however many wait and however short they are."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from rmq_ha.base.timing.one_by_one import OneByOne


def test_each_begins_when_the_one_before_is_over_and_gets_its_own_result() -> None:
    line, begun, found = OneByOne(), list[int](), list[Any]()
    works: list[Deferred[str]] = [Deferred() for _ in range(3)]
    for number, work in enumerate(works):

        def begin(number: int = number, work: Deferred[str] = work) -> Deferred[str]:
            begun.append(number)
            return work

        line.run(begin).addBoth(found.append)
    assert (begun, len(line)) == ([0], 2)
    works[1].callback("b")
    assert begun == [0]
    works[0].errback(ValueError("a"))
    assert begun == [0, 1, 2]
    assert isinstance(found[0], Failure)
    assert found[1:] == ["b"]
    works[2].callback("c")
    assert (found[1:], len(line)) == (["b", "c"], 0)
    line.run(lambda: begun.append(3))
    assert begun[-1] == 3


def test_a_thousand_that_are_over_at_once_wait_for_one_that_is_not() -> None:
    line, found, first = OneByOne(), list[int](), Deferred[None]()
    line.run(lambda: first)
    for number in range(1000):
        line.run(lambda number=number: number).addCallback(found.append)
    first.callback(None)
    assert found == list(range(1000))


def test_what_one_asks_for_while_it_runs_comes_behind_those_that_wait() -> None:
    line, begun = OneByOne(), list[str]()

    def first() -> None:
        begun.append("first")
        line.run(lambda: begun.append("asked for by the first"))

    hold: Deferred[None] = Deferred()
    line.run(lambda: hold)
    line.run(first)
    line.run(lambda: begun.append("second"))
    hold.callback(None)
    assert begun == ["first", "second", "asked for by the first"]


def test_what_is_cancelled_before_its_turn_never_begins_and_holds_nobody_up() -> None:
    line, begun, failed = OneByOne(), list[str](), list[Failure]()
    hold: Deferred[None] = Deferred()
    line.run(lambda: hold)
    gone = line.run(lambda: begun.append("gone"))
    gone.addErrback(failed.append)
    line.run(lambda: begun.append("next"))
    gone.cancel()
    hold.callback(None)
    assert (begun, failed[0].type) == (["next"], CancelledError)


def test_cancelling_the_one_whose_turn_it_is_cancels_what_it_waits_for() -> None:
    line, begun, failed = OneByOne(), list[str](), list[Failure]()
    hold: Deferred[None] = Deferred(lambda it: it.errback(ValueError("given up")))
    first = line.run(lambda: hold)
    first.addErrback(failed.append)
    other = line.run(lambda: begun.append("other"))
    other.addErrback(failed.append)
    line.run(lambda: begun.append("last"))
    other.cancel()
    assert ([failure.type for failure in failed], begun) == ([CancelledError], [])
    first.cancel()
    assert ([failure.type for failure in failed], begun) == ([CancelledError, ValueError], ["last"])


def test_who_does_not_let_himself_be_cancelled_ends_later_and_then_the_next_one_begins() -> None:
    line, begun, failed = OneByOne(), list[str](), list[Failure]()
    hold: Deferred[None] = Deferred()
    stubborn: Deferred[None] = Deferred()

    async def work() -> None:
        try:
            await hold
        except CancelledError:
            await stubborn

    first = line.run(lambda: Deferred.fromCoroutine(work()))
    first.addErrback(failed.append)
    line.run(lambda: begun.append("next"))
    first.cancel()
    assert ([failure.type for failure in failed], begun) == ([CancelledError], [])
    stubborn.callback(None)
    assert begun == ["next"]
