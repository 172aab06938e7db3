"""What a broker of rmq-ha tells operators of its gRPC port, and of the groups that pop.

Spec: grpc.md, section 14.3.
"""

from typing import Any

DOOR = "grpcPort"
"""
A key in the JSON `REPLICATION_KEY`: the state of the gRPC port, see `DoorFacts`. The port's address
is in `stat_bodies.GRPC_DOOR`, which other brokers ask for.
"""
POPPING = "popping"
"""A key in the JSON `REPLICATION_KEY`: the pairs of topic and group whose mode is POP."""


class DoorFacts:
    """
    The state of a broker's gRPC port, as it tells it; a member of another form counts as missing.

    :ivar protobuf: how the package protobuf decodes messages: `upb`, `cpp` or `python`; empty: the
        broker does not tell, or has no such port.
    :ivar refused_consumers: calls of consumers that were refused since the start, because
        `popEnable` is false.
    """

    def __init__(self, told: Any) -> None:
        told = told if isinstance(told, dict) else {}
        protobuf, refused = told.get("protobuf"), told.get("refused_consumers")
        self.protobuf = protobuf if isinstance(protobuf, str) else ""
        self.refused_consumers = refused if type(refused) is int else 0


def popping_pairs(told: Any) -> list[tuple[str, str]]:
    """Return the pairs of topic and group that a broker told, without those of another form."""
    items = told if isinstance(told, list) else []
    return [
        (item[0], item[1])
        for item in items
        if isinstance(item, list) and len(item) == 2 and all(isinstance(it, str) for it in item)
    ]
