"""Who consumes which queue: the strategies of RocketMQ 4.9 and what follows from a new share."""

from rmq_ha.client.rebalance.changes import Assignment, compare
from rmq_ha.client.rebalance.consistent_hash import AllocateConsistentHash
from rmq_ha.client.rebalance.machine_rooms import AllocateByMachineRoom, AllocateMachineRoomNearby
from rmq_ha.client.rebalance.strategies import (
    AllocateAveragely,
    AllocateAveragelyByCircle,
    AllocateByConfig,
    AllocateStrategy,
)

__all__ = [
    "AllocateAveragely",
    "AllocateAveragelyByCircle",
    "AllocateByConfig",
    "AllocateByMachineRoom",
    "AllocateConsistentHash",
    "AllocateMachineRoomNearby",
    "AllocateStrategy",
    "Assignment",
    "compare",
]
