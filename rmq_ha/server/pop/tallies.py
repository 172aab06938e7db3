"""Counts what became of popped messages, by group and topic, and remembers who popped them.

All of this is in memory only: it begins anew with the process, and followers have none of it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from rmq_ha.base.model.pop_topics import original_topic
from rmq_ha.server.pop.entries import MoveReason
from rmq_ha.server.pop.leases import QueueLeases
from rmq_ha.server.pop.state import PopState, QueueName

MOST_CLIENTS = 20_000
"""Most pops whose clients are remembered."""
_CHANCES = 8

GroupTopic = tuple[str, str]
"""A group, and the topic that its consumers name, also for messages of a retry topic."""


class PopTally(NamedTuple):
    """
    Numbers of messages of one group and topic since the start of this process.

    :ivar again: messages that were handed out again, after an earlier lease had ended.
    :ivar retried: messages that were moved to a retry topic.
    :ivar dead: messages that were moved to the dead-letter topic.
    :ivar gone: messages that retention deleted while they were out.
    """

    again: int = 0
    retried: int = 0
    dead: int = 0
    gone: int = 0


_FIELDS = {MoveReason.RETRY: "retried", MoveReason.DEAD: "dead", MoveReason.GONE: "gone"}


class PopTallies:
    """The counts of a broker's groups, and the addresses of the clients of its latest pops."""

    def __init__(self) -> None:
        self.counts: dict[GroupTopic, PopTally] = {}
        self._clients: dict[tuple[QueueName, int], tuple[int, str]] = {}

    def moved(self, known: GroupTopic, reason: MoveReason, count: int) -> None:
        """Count messages whose leases ended; `known` may name a retry topic."""
        self._add(known, **{_FIELDS[reason]: count})

    def popped(
        self,
        state: PopState,
        key: QueueName,
        pop_ms: int,
        offsets: Sequence[int],
        again: int,
        client: str,
    ) -> None:
        """
        Note that a client popped messages of a queue.

        :param pop_ms: the lease name.
        :param again: how many of the messages were handed out before.
        :param client: the client's address as `ip:port`; empty if it is not known.
        """
        known = state.names[key[0]]
        if original_topic(*known) != known[1]:
            again = len(offsets)
        if again:
            self._add(known, again=again)
        if client:
            self._clients[key, pop_ms] = offsets[0], client
            if len(self._clients) > MOST_CLIENTS:
                self._drop_one(state)

    def renamed(self, key: QueueName, offset: int, old_pop_ms: int, pop_ms: int) -> None:
        """Note that a lease of one message has a new name: its client stays the same."""
        place = self._clients.get((key, old_pop_ms))
        if place is not None:
            self._clients[key, pop_ms] = offset, place[1]
            if place[0] == offset and pop_ms != old_pop_ms:
                del self._clients[key, old_pop_ms]

    def client_of(self, key: QueueName, pop_ms: int) -> str:
        """Return the address of the client that has a lease; empty if it is not known any more."""
        return self._clients.get((key, pop_ms), (0, ""))[1]

    def forget(self, known: GroupTopic) -> None:
        """Forget the counts of a group and a topic, because one of them is deleted."""
        self.counts.pop((known[0], original_topic(*known)), None)

    def _add(self, known: GroupTopic, **more: int) -> None:
        pair = known[0], original_topic(*known)
        before = self.counts.get(pair, PopTally())
        changed = {name: getattr(before, name) + count for name, count in more.items()}
        self.counts[pair] = before._replace(**changed)

    def _drop_one(self, state: PopState) -> None:
        """Forget one pop: the oldest whose first message is not out any more, if one is near."""
        for _ in range(_CHANCES):
            place = next(iter(self._clients))
            told = self._clients.pop(place)
            if not _is_out(state.queues.get(place[0]), told[0], place[1]):
                return
            self._clients[place] = told
        del self._clients[next(iter(self._clients))]


def _is_out(leases: QueueLeases | None, offset: int, pop_ms: int) -> bool:
    lease = None if leases is None else leases.lease(offset)
    return lease is not None and lease[0] == pop_ms
