"""The strategies that cut the queues of a topic up by position.

Spec: remoting.md, section 11.3.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from rmq_ha.base.wire.bodies import MessageQueue


class AllocateStrategy(Protocol):
    """
    Decides which queues of a topic one member of a group has (AllocateMessageQueueStrategy).

    All members must use the same one: each works out its own share from the same two lists.
    """

    @property
    def name(self) -> str:
        """As Java's `getName()`."""

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]
    ) -> list[MessageQueue]:
        """
        This member's queues; none when it is not among the members.

        :param queues: all of them, sorted; not empty.
        :param clients: ids of all members, sorted; not empty.
        :raises ValueError: what it was given cannot be right; the assignment stays as it is.
        """


def is_member(client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> bool:
    """
    Java's check before every allocation.

    :returns: False when the broker does not know this member (yet): it gets nothing.
    :raises ValueError: there is no own id, no queue or no member.
    """
    if not client_id:
        raise ValueError("the own client id is empty")
    if not queues:
        raise ValueError("there are no queues to share out")
    if not clients:
        raise ValueError("the group has no members to share queues out to")
    return client_id in clients


class AllocateAveragely:
    """Contiguous blocks; the first members get one more where it does not come out even (AVG)."""

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
    """Dealt out like cards (AVG_BY_CIRCLE)."""

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
    Always the same queues (CONFIG).

    :param queues: this member's; nobody checks that members do not overlap.
    """

    name = "CONFIG"

    def __init__(self, queues: Iterable[MessageQueue]) -> None:
        self.queues = list(queues)

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]
    ) -> list[MessageQueue]:
        """Choose the queues that the member `client_id` consumes."""
        return list(self.queues)
