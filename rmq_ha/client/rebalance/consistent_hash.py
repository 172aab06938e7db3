"""Consistent hashing: few queues move when members come and go.

Spec: remoting.md, section 11.3; the ring is that of Java's ConsistentHashRouter.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from hashlib import md5

from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.rebalance.strategies import is_member

VIRTUAL_NODES = 10


def md5_hash(key: str) -> int:
    """Return the first four bytes of a key's MD5 as a big-endian number."""
    return int.from_bytes(md5(key.encode(), usedforsecurity=False).digest()[:4], "big")


class HashRing:
    """
    A ring of hashes. Each node has several places on it, its virtual nodes. A key belongs to the
    node whose virtual node is the next one at or after the key's hash.

    :param replicas: how many virtual nodes each node has.
    :param hash_function: returns the place of a text on the ring.
    """

    def __init__(
        self, nodes: Iterable[str], replicas: int, hash_function: Callable[[str], int] = md5_hash
    ) -> None:
        self._hash = hash_function
        ring = {
            hash_function(f"{node}-{replica}"): node
            for node in nodes
            for replica in range(replicas)
        }
        self._hashes = sorted(ring)
        self._nodes = [ring[value] for value in self._hashes]

    def node_of(self, key: str) -> str | None:
        """Return the node of a key; None if the ring is empty."""
        if not self._hashes:
            return None
        return self._nodes[bisect_left(self._hashes, self._hash(key)) % len(self._hashes)]


class AllocateConsistentHash:
    """
    Gives queues to members by a ring of hashes (CONSISTENT_HASH).

    :param virtual_nodes: virtual nodes of each member; the same number at all members.
    :param hash_function: returns a number for a text; the same function at all members.
    """

    name = "CONSISTENT_HASH"

    def __init__(
        self,
        virtual_nodes: int = VIRTUAL_NODES,
        hash_function: Callable[[str], int] = md5_hash,
    ) -> None:
        if virtual_nodes < 0:
            raise ValueError(f"the number of virtual nodes must not be negative: {virtual_nodes}")
        self._virtual_nodes = virtual_nodes
        self._hash_function = hash_function

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]
    ) -> list[MessageQueue]:
        """Choose the queues that the member `client_id` consumes."""
        if not is_member(client_id, queues, clients):
            return []
        ring = HashRing(clients, self._virtual_nodes, self._hash_function)
        return [queue for queue in queues if ring.node_of(_java_text(queue)) == client_id]


def _java_text(queue: MessageQueue) -> str:
    """Return the text of Java's `MessageQueue.toString()`, which is the queue's key on the ring."""
    return (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
        f"queueId={queue.queue_id}]"
    )
