"""
Lists of topics, groups and clients: walked in slices, kept for some seconds, filtered.

A list of 50,000 topics takes a second of work. It is walked when a page asks for it, one
millisecond in a turn of the reactor. The next walk begins no sooner than after a hundred times the
work's duration, so lists never take more than 1 % of a core.
"""

from collections.abc import Callable, Iterator
from heapq import nlargest, nsmallest
from typing import Any, Generic, TypeVar

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from rmq_ha.base.timing.slices import Lane, in_slices

FRESH_S = 4.0
SHARE = 100
FILTERED_AT_ONCE = 2000
MOST_ROWS = 500

T = TypeVar("T")
Walk = Callable[[list[T]], Iterator[object]]


class Listing(Generic[T]):
    """
    A list of rows that is gathered on demand.

    :param walk: an iterator that appends the rows to a list, one slice for each step.
    :ivar walks: how often the list was walked, for tests.
    """

    def __init__(self, clock: IReactorTime, walk: Walk[T]) -> None:
        self._clock = clock
        self._walk = walk
        self._rows: list[T] = []
        self._at: float | None = None
        self._cost = 0.0
        self._waiting: list[Deferred[list[T]]] | None = None
        self.walks = 0

    @property
    def age(self) -> float:
        """Seconds since the rows were gathered."""
        return 0.0 if self._at is None else self._clock.seconds() - self._at

    def rows(self) -> "Deferred[list[T]]":
        """Return all rows, gathered now or a moment ago."""
        if self._at is not None and self.age < max(FRESH_S, self._cost * SHARE):
            return succeed(self._rows)
        answer: Deferred[list[T]] = Deferred()
        if self._waiting is not None:
            self._waiting.append(answer)
            return answer
        self._waiting = [answer]
        self.walks += 1
        rows: list[T] = []
        done = in_slices(self._clock, self._walk_timed(rows))
        done.addCallbacks(lambda _: self._walked(rows), self._failed)
        return answer

    def _walk_timed(self, rows: list[T]) -> Iterator[None]:
        cost = 0.0
        steps = self._walk(rows)
        while True:
            began = self._clock.seconds()
            try:
                next(steps)
            except StopIteration:
                break
            finally:
                cost += self._clock.seconds() - began
            yield
        self._cost = cost

    def _walked(self, rows: list[T]) -> None:
        self._rows, self._at = rows, self._clock.seconds()
        waiting, self._waiting = self._waiting or [], None
        for answer in waiting:
            answer.callback(rows)

    def _failed(self, failure: Failure) -> None:
        waiting, self._waiting = self._waiting or [], None
        for answer in waiting:
            answer.errback(failure)


class Selection(Generic[T]):
    """
    The first rows that a filter lets through.

    :ivar total: how many rows the filter lets through.
    :ivar rows: the first of them.
    """

    def __init__(self, total: int, rows: list[T]) -> None:
        self.total = total
        self.rows = rows


def pick(
    lane: Lane,
    host: str,
    rows: list[T],
    matches: Callable[[T], bool],
    key: Callable[[T], Any],
    most: int,
    *,
    largest: bool,
) -> "Deferred[Selection[T]]":
    """
    Return the rows that match, the largest or smallest first.

    :param host: address of the client.
    :param most: how many rows the answer has at most.
    """
    best = Selection[T](0, [])
    take = nlargest if largest else nsmallest
    most = max(1, min(most, MOST_ROWS))

    def walk() -> Iterator[None]:
        for first in range(0, len(rows), FILTERED_AT_ONCE):
            matching = [row for row in rows[first : first + FILTERED_AT_ONCE] if matches(row)]
            best.total += len(matching)
            best.rows = take(most, [*best.rows, *matching], key=key)
            yield

    return lane.run(host, walk()).addCallback(lambda _: best)
