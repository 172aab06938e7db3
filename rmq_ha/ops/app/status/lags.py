"""Finds the groups that lag most, with bounded work in each scrape."""

from collections.abc import Callable, Collection
from heapq import nlargest
from typing import Any, NamedTuple

SLICE = 500


class Lag(NamedTuple):
    """The messages of one topic that a group has not committed."""

    messages: int
    key: str


class GroupLags:
    """
    The pairs of topic and group with the greatest lag.

    Each scrape measures the pairs of the last scrape and the next `SLICE` of all others. So every
    pair is measured after some scrapes, even if there are many.

    :param limit: the number of pairs in a scrape.
    :param lag_of: returns the messages that a pair `topic@group` lags; None: not known.
    """

    def __init__(self, limit: int, lag_of: Callable[[str], int | None]) -> None:
        self._limit = limit
        self._lag_of = lag_of
        self._told: list[str] = []
        self._pending: list[str] = []

    def measure(self, keys: Collection[str]) -> list[Lag]:
        """
        Return the greatest lags, greatest first.

        :param keys: `topic@group` of every pair that ever committed.
        """
        if not self._pending:
            self._pending = list(keys)
        due = dict.fromkeys(self._told)
        due.update(dict.fromkeys(self._pending[-SLICE:]))
        del self._pending[-SLICE:]
        lags = []
        for key in due:
            messages = self._lag_of(key) if key in keys else None
            if messages is not None:
                lags.append(Lag(messages, key))
        greatest = nlargest(self._limit, lags)
        self._told = [lag.key for lag in greatest]
        return greatest


def lag_of(broker: Any, key: str) -> int | None:
    """
    Return how many messages of a topic's queues a group has not committed.

    :param broker: a `Broker`.
    :param key: `topic@group`; for a key of another form, as Java's tables may hold, the result is
        None.
    """
    topic, separator, _ = key.partition("@")
    if not separator:
        return None
    end_of: Callable[[str, int], int] = broker.store.max_offset_in_queue
    committed: dict[int, int] = broker.consumer_offsets.table[key]
    return sum([max(0, end_of(topic, queue_id) - at) for queue_id, at in committed.items()])
