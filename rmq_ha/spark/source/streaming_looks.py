"""What a stream sees of its queues at one moment: brokers may be away, and come back."""

from copy import copy
from typing import NamedTuple

from rmq_ha.spark.source.live import LiveQueues
from rmq_ha.spark.source.reading import QueueId, Queues, Subscription


class Look(NamedTuple):
    """
    Where a queue begins and ends.

    :ivar is_sure: its end is where it really ends; that of a slave may be behind what was read.
    """

    min_offset: int
    max_offset: int
    is_sure: bool = True


def current(queues: Queues) -> Queues:
    """The same queues, as they are now: a store stays as it was when it was first looked at."""
    return queues if isinstance(queues, LiveQueues) else copy(queues)


def look(queues: Queues, topics: Subscription) -> dict[QueueId, Look]:
    """
    The queues that can be read now.

    A broker that is away altogether is left out: the others go on without it.

    :raises CannotDecide: no name server answers, or the store cannot be read.
    """
    if not isinstance(queues, LiveQueues):
        now = current(queues)
        return {queue: Look(*now.bounds(queue)) for queue in now.queues(topics)}
    found = queues.all_ends(queues.present(topics))
    return {queue: Look(*ends) for queue, ends in found.items()}
