"""Messages with many keys, one after the other.

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
    """The index takes longer for this message than its sender: it may be no ordinary one."""
    return len(properties) > 2 * _MANY and properties.count(" ") > _MANY


class ManyKeys:
    """
    Stores what has many keys when all that came before it is in the index.

    Keys take the index longer than they take a peer to send. If they piled up there, nobody would
    find what others sent behind them.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._line = OneByOne()

    def put(self, put: "Callable[[], Deferred[Any]]") -> "Deferred[Any]":
        """
        Call `put` when it is its turn.

        :returns: as `put`; may be cancelled before, which leaves the turn to the next one.
        """

        def put_now(_: object) -> "tuple[Deferred[Any]]":
            return (put(),)  # the next one need not wait until it is flushed and replicated

        def when_indexed() -> "Deferred[Any]":
            return self._dispatcher.reached_end().addCallback(put_now)

        later: Deferred[Any] = self._line.run(when_indexed)
        return later.addCallback(itemgetter(0))
