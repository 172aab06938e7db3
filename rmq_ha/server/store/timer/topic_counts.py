"""Counts the waiting timer messages by topic, and keeps the result for a while."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from rmq_ha.base.timing.slices import in_slices

_REST = 5
"""A result is kept for so many times the seconds that its count took."""

Count = Callable[[Counter[str]], Iterator[None]]


class TopicCounts:
    """
    Counts the waiting messages of each topic when somebody asks, but not for every request.

    A count reads the records of all waiting messages, which takes some 20 s for a million, and
    Java's slaves ask every 10 s. So requests that come while a count runs all get its result. After
    that the result is kept for five times as long as the count took.

    :param count: takes a Counter; returns an iterator that does one slice of the work for each
        item, and leaves the number of messages of each topic in the Counter.
    """

    def __init__(self, clock: IReactorTime, count: Count) -> None:
        self._clock = clock
        self._count = count
        self._asking: list[Deferred[Mapping[str, int]]] = []
        self._kept: Mapping[str, int] = {}
        self._kept_until = 0.0

    def get(self) -> "Deferred[Mapping[str, int]]":
        """
        Return the number of waiting messages of each topic.

        :returns: fires with the numbers by topic; fails with StoreError if the disk refuses.
        """
        now = self._clock.seconds()
        if now < self._kept_until:
            return succeed(self._kept)
        later: Deferred[Mapping[str, int]] = Deferred()
        self._asking.append(later)
        if len(self._asking) == 1:
            counts = Counter[str]()
            done = in_slices(self._clock, self._count(counts))
            done.addCallbacks(lambda _: self._counted(counts, now), self._failed)
        return later

    def _counted(self, counts: Mapping[str, int], began: float) -> None:
        now = self._clock.seconds()
        self._kept, self._kept_until = counts, now + (now - began) * _REST
        asking, self._asking = self._asking, []
        for later in asking:
            later.callback(counts)

    def _failed(self, failure: Failure) -> None:
        asking, self._asking = self._asking, []
        for later in asking:
            later.errback(failure)
