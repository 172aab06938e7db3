"""What a new share of a topic's queues means for the queues that a member has."""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.rebalance.strategies import AllocateStrategy


class Assignment(NamedTuple):
    """
    The step from one share to the next.

    :ivar removed: owned up to now, and no more.
    :ivar added: newly owned.
    """

    removed: list[MessageQueue]
    added: list[MessageQueue]


def sort_queues(queues: Collection[MessageQueue]) -> list[MessageQueue]:
    """As Java's MessageQueue compares: topic, broker, number; texts by UTF-16 unit."""
    return sorted(
        queues, key=lambda queue: (_units(queue.topic), _units(queue.broker_name), queue.queue_id)
    )


def sort_clients(clients: Collection[str]) -> list[str]:
    """As Java's String compares."""
    return sorted(clients, key=_units)


def share_of(
    strategy: AllocateStrategy,
    group: str,
    client_id: str,
    queues: Collection[MessageQueue],
    clients: Collection[str],
) -> list[MessageQueue]:
    """
    What one member shall have.

    :raises ValueError: see `AllocateStrategy.allocate`.
    """
    return strategy.allocate(group, client_id, sort_queues(queues), sort_clients(clients))


def by_topic(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    """The queues of each topic."""
    grouped: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        grouped.setdefault(queue.topic, []).append(queue)
    return grouped


def compare(owned: Collection[MessageQueue], share: Sequence[MessageQueue]) -> Assignment:
    """
    What has to go and to come.

    :param owned: the member's queues of the topic.
    """
    assigned, have = set(share), set(owned)
    removed = [queue for queue in owned if queue not in assigned]
    added = [queue for queue in dict.fromkeys(share) if queue not in have]
    return Assignment(removed, added)


def _units(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")
