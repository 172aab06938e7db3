"""Changes: the queues that a member has to take and to give up for a new share of a topic."""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.rebalance.strategies import AllocateStrategy


class Assignment(NamedTuple):
    """
    The difference between the queues that a member has and its new share.

    :ivar removed: queues that it has and has to give up.
    :ivar added: queues that it has to take.
    """

    removed: list[MessageQueue]
    added: list[MessageQueue]


def sort_queues(queues: Collection[MessageQueue]) -> list[MessageQueue]:
    """Sort as Java's MessageQueue compares: by topic, broker, number; texts by UTF-16 unit."""
    return sorted(
        queues, key=lambda queue: (_units(queue.topic), _units(queue.broker_name), queue.queue_id)
    )


def sort_clients(clients: Collection[str]) -> list[str]:
    """Sort client ids as Java's String compares."""
    return sorted(clients, key=_units)


def share_of(
    strategy: AllocateStrategy,
    group: str,
    client_id: str,
    queues: Collection[MessageQueue],
    clients: Collection[str],
) -> list[MessageQueue]:
    """
    Return the queues of a topic that one member is to have.

    :raises ValueError: see `AllocateStrategy.allocate`.
    """
    return strategy.allocate(group, client_id, sort_queues(queues), sort_clients(clients))


def group_by_topic(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    """Return the queues of each topic, in the order in which they come."""
    grouped: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        grouped.setdefault(queue.topic, []).append(queue)
    return grouped


def compare(owned: Collection[MessageQueue], share: Sequence[MessageQueue]) -> Assignment:
    """
    Return the queues that a member has to give up and to take.

    :param owned: the queues of the topic that the member has.
    :param share: the queues of the topic that it is to have.
    """
    assigned, have = set(share), set(owned)
    removed = [queue for queue in owned if queue not in assigned]
    added = [queue for queue in dict.fromkeys(share) if queue not in have]
    return Assignment(removed, added)


def _units(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")
