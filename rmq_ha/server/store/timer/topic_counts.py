"""Counts the waiting timer messages by topic, for all that ask."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from rmq_ha.base.timing.slices import in_slices

_REST = 5
"""A count is kept for so many times the seconds that it took."""

Count = Callable[[Counter[str]], Iterator[None]]


class TopicCounts:
    """
    Counts once for all that ask at a time, and not again at once.

    A count reads all messages that wait: a million takes some 20 s. Java's slaves ask every 10 s.

    :param count: counts in slices into a Counter.
    """

    def __init__(self, clock: IReactorTime, count: Count) -> None:
        self._clock = clock
        self._count = count
        self._asking: list[Deferred[Mapping[str, int]]] = []
        self._kept: Mapping[str, int] = {}
        self._kept_until = 0.0

    def get(self) -> "Deferred[Mapping[str, int]]":
        """
        Return the counts.

        :returns: fails with StoreError if the disk refuses.
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
