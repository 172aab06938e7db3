"""Stores messages with many keys one after the other.

Spec: store.md, section 6.
"""

from collections.abc import Callable
from operator import itemgetter
from typing import Any

from twisted.internet.defer import Deferred

from rmq_ha.base.timing.one_by_one import OneByOne
from rmq_ha.server.store.log.dispatch import Dispatcher

_MANY = 64


def has_many_keys(properties: str) -> bool:
    """
    Return whether a message may have so many keys that the index takes longer to enter them than a
    client takes to send them.

    :param properties: the message's properties, as text.
    """
    return len(properties) > 2 * _MANY and properties.count(" ") > _MANY


class ManyKeys:
    """
    Stores a message with many keys only when all earlier messages are in the index.

    The index takes longer for keys than a client takes to send them. If keys piled up, nobody would
    find messages that other clients sent after them.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._line = OneByOne()

    def put(self, put: "Callable[[], Deferred[Any]]") -> "Deferred[Any]":
        """
        Call `put` when all earlier messages are in the index, one message at a time.

        :returns: fires with the result of `put`. It may be cancelled before `put` is called; then
            the next message gets its turn.
        """

        def put_now(_: object) -> "tuple[Deferred[Any]]":
            return (put(),)  # a tuple, so that the next need not wait for flush and replication

        def when_indexed() -> "Deferred[Any]":
            return self._dispatcher.reached_end().addCallback(put_now)

        later: Deferred[Any] = self._line.run(when_indexed)
        return later.addCallback(itemgetter(0))
