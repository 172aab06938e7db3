"""Strategies that share the queues of a topic out by position.

Spec: remoting.md, section 11.3.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from rmq_ha.base.wire.bodies import MessageQueue


class AllocateStrategy(Protocol):
    """
    Decides which queues of a topic one member of a group has (AllocateMessageQueueStrategy).

    All members must use the same strategy: each computes its own share from the same two lists.
    """

    @property
    def name(self) -> str:
        """The text that Java's `getName()` returns."""

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]
    ) -> list[MessageQueue]:
        """
        Return this member's queues; none if `client_id` is not among the members.

        :param queues: all queues of the topic, sorted; not empty.
        :param clients: client ids of all members, sorted; not empty.
        :raises ValueError: an argument cannot be right; the member keeps its present queues.
        """


def is_member(client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> bool:
    """
    Check the arguments of an allocation as Java does.

    :returns: False if the broker does not know this member (yet), so that it gets no queue.
    :raises ValueError: the member's own id, the queues or the members are empty.
    """
    if not client_id:
        raise ValueError("the own client id is empty")
    if not queues:
        raise ValueError("there are no queues to share out")
    if not clients:
        raise ValueError("the group has no members to share queues out to")
    return client_id in clients


class AllocateAveragely:
    """
    Gives contiguous blocks of queues to members; if the blocks are not equal, the first members get
    one queue more (AVG).
    """

    name = "AVG"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]
    ) -> list[MessageQueue]:
        """Choose the queues that the member `client_id` consumes."""
        if not is_member(client_id, queues, clients):
            return []
        index = clients.index(client_id)
        share, more = divmod(len(queues), len(clients))
        start = index * share + min(index, more)
        return list(queues[start : start + share + (index < more)])


class AllocateAveragelyByCircle:
    """Deals queues out one by one, like cards (AVG_BY_CIRCLE)."""

    name = "AVG_BY_CIRCLE"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]
    ) -> list[MessageQueue]:
        """Choose the queues that the member `client_id` consumes."""
        if not is_member(client_id, queues, clients):
            return []
        return list(queues[clients.index(client_id) :: len(clients)])


class AllocateByConfig:
    """
    Gives this member always the same queues (CONFIG).

    :param queues: this member's queues; whether other members have them too is not checked.
    """

    name = "CONFIG"

    def __init__(self, queues: Iterable[MessageQueue]) -> None:
        self.queues = list(queues)

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]
    ) -> list[MessageQueue]:
        """Choose the queues that the member `client_id` consumes."""
        return list(self.queues)
