"""QueueChoice: which queue a message goes to.

Java takes one queue after the other with a counter per thread. This client has one reactor and so a
counter per topic. It has a random start and follows the order of (broker name, queue id).

Spec: remoting.md, section 11.1 (TopicPublishInfo, MQFaultStrategy, SelectMessageQueueByHash).
"""

from collections.abc import Callable, Sequence
from typing import Any

from rmq_ha.base.model.java_hash import java_hash
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.rules.errors import IllegalMessage
from rmq_ha.client.rules.faults import LatencyFaults
from rmq_ha.client.rules.messages import Message
from rmq_ha.client.rules.routes import PublishInfo

Selector = Callable[[Sequence[MessageQueue], Message, Any], MessageQueue]


class QueueChoice:
    """
    A round robin over the queues of one topic.

    :param start: a random number, not negative.
    """

    __slots__ = ("_index",)

    def __init__(self, start: int) -> None:
        self._index = start

    def next(self, info: PublishInfo, avoid: str | None = None) -> MessageQueue:
        """
        Return the next queue.

        :param avoid: the broker of the attempt before; its queues are taken only if no other broker
            has any.
        """
        queues = info.queues
        size = len(queues)
        if avoid is not None:
            for _ in range(size):
                self._index += 1
                queue = queues[self._index % size]
                if queue.broker_name != avoid:
                    return queue
        self._index += 1
        return queues[self._index % size]

    def next_available(
        self, info: PublishInfo, faults: LatencyFaults, now_ms: float
    ) -> MessageQueue:
        """Return the next queue of an available broker; if none is, one of the least bad broker."""
        queues = info.queues
        size = len(queues)
        self._index += 1
        for step in range(size):
            queue = queues[(self._index + step) % size]
            if faults.is_available(queue.broker_name, now_ms):
                return queue
        broker = faults.least_bad(now_ms)
        if broker is not None:
            count = info.write_queues.get(broker, 0)
            if count > 0:
                self._index += 2
                return MessageQueue(queues[0].topic, broker, self._index % count)
            faults.remove(broker)
        return self.next(info)


def select_by_hash(
    queues: Sequence[MessageQueue], message: Message, arg: str | int | None
) -> MessageQueue:
    """
    Return the queue that Java's SelectMessageQueueByHash chooses: equal keys go to one queue.

    :param arg: the key: a text, or an integer (hashed as Java's Integer if it fits, else as Long).
    """
    code = hash_code(arg)
    # Java: the remainder has the sign of the hash, and abs() takes it away.
    return queues[abs(code) % len(queues)]


def hash_code(arg: str | int | None) -> int:
    """
    Return Java's hashCode of a String, Integer or Long.

    :raises IllegalMessage: the argument is neither a text nor an integer of 64 bits.
    """
    if isinstance(arg, bool) or not isinstance(arg, str | int):
        raise IllegalMessage(f"a key to select a queue by is a str or an int, not {arg!r}")
    if isinstance(arg, str):
        return java_hash(arg)
    if -0x80000000 <= arg <= 0x7FFFFFFF:
        return arg
    if not -(1 << 63) <= arg < 1 << 63:
        raise IllegalMessage(f"a key to select a queue by has at most 64 bits: {arg}")
    bits = arg & 0xFFFFFFFFFFFFFFFF
    code = (bits ^ bits >> 32) & 0xFFFFFFFF
    return code - 0x100000000 if code & 0x80000000 else code
