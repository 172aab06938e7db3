"""Guava's consistent hash, by which Java's proxy chooses the queue of a message group.

A move from Java's proxy to this door therefore keeps each group in its queue.

Spec: grpc.md, section 4.2.
"""

from rmq_ha.base.model.java_hash import java_hash

_MASK = (1 << 64) - 1
_MULTIPLIER = 2862933555777941757
_INT_MAX = (1 << 31) - 1
_SCALE = float(1 << 31)


def queue_of_group(group: str, queues: int) -> int:
    """
    Return the queue of a message group.

    :param queues: number of queues that can be written; at least 1.
    """
    state = java_hash(group) & _MASK
    candidate = 0
    while True:
        state = (_MULTIPLIER * state + 1) & _MASK
        step = (state >> 33) + 1
        if step > _INT_MAX:  # negative in Java
            return candidate
        following = min(int((candidate + 1) / (step / _SCALE)), _INT_MAX)
        if following >= queues:
            return candidate
        candidate = following
