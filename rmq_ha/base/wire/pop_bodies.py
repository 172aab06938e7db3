"""Bodies about pop: acknowledgements of many messages, assignments of queues, and modes of groups.

Spec: pop.md, sections 2.5 and 2.8.
"""

from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import Any, Self

import msgspec
from msgspec import field

from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.model.numbers import MOST_ITEMS, Int32, Int64
from rmq_ha.base.model.pop_topics import TopicKind, real_topic
from rmq_ha.base.wire.bodies import AnswerBody, Body, MessageQueue
from rmq_ha.base.wire.members import from_members

MOST_ACKED = 20_000
"""Most messages that one request may acknowledge. A client that acknowledges all that one pop
returned names 32."""
_MOST_SET_BYTES = 1 << 13
_LONG_NAMES = {
    "consumerGroup": "c", "topic": "t", "retry": "r", "startOffset": "so", "queueId": "q",
    "reviveQueueId": "rq", "popTime": "pt", "invisibleTime": "it", "bitSet": "b",
}  # fmt: skip
_EMPTY_SET = (None, "")


class BatchAckEntry(msgspec.Struct):
    """
    The acknowledged messages of one pop and one queue, in a BATCH_ACK_MESSAGE.

    :ivar topic: the topic that the group subscribed to.
    :ivar retry: the number of a `TopicKind` as text.
    :ivar bit_set: Base64 of bytes; bit i, counted from the lowest of the first byte, stands for
        the message at `start_offset` + i.
    """

    consumer_group: str = field(name="c", default="")
    topic: str = field(name="t", default="")
    retry: str = field(name="r", default="0")
    start_offset: Int64 = field(name="so", default=0)
    queue_id: Int32 = field(name="q", default=0)
    revive_queue: Int32 = field(name="rq", default=0)
    pop_time: Int64 = field(name="pt", default=0)
    invisible_ms: Int64 = field(name="it", default=0)
    bit_set: str = field(name="b", default="")

    @property
    def kind(self) -> int:
        """
        The kind of the topic.

        :raises ProtocolViolation: the entry has another text there.
        """
        if self.retry not in ("0", "1", "2"):
            raise ProtocolViolation(f"the member r is {self.retry[:20]!r}, not 0, 1 or 2")
        return TopicKind(int(self.retry))

    @property
    def real_topic(self) -> str:
        """The topic that the messages were read from; raises as `kind`."""
        return real_topic(self.consumer_group, self.topic, self.kind)

    def offsets(self) -> list[int]:
        """
        Return the offsets of the acknowledged messages, ascending.

        :raises ProtocolViolation: the bit set is no Base64, or too long.
        """
        return [self.start_offset + index for index in decode_bit_set(self.bit_set)]


class BatchAck(Body):
    """The body of BATCH_ACK_MESSAGE (200151)."""

    broker_name: str = ""
    acks: list[BatchAckEntry] = field(default_factory=list)

    @classmethod
    def _from_members(cls, members: dict[str, Any]) -> Self:
        acks = members.get("acks") or []
        if len(acks) > MOST_ITEMS:
            raise ProtocolViolation(f"{len(acks)} acks, more than the {MOST_ITEMS} of a request")
        short = [
            {_LONG_NAMES.get(name, name): value for name, value in dict(item).items()}
            for item in acks
        ]
        batch = from_members(cls, {**members, "acks": short})
        if sum(map(len, (item.offsets() for item in batch.acks))) > MOST_ACKED:
            raise ProtocolViolation(f"more than the {MOST_ACKED} messages of a request")
        return batch


def encode_bit_set(indices: Iterable[int]) -> str:
    """Return a set of small numbers as the Base64 of the bytes of a BitSet of Java."""
    bits = 0
    for index in indices:
        bits |= 1 << index
    return b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode()


def decode_bit_set(text: str) -> list[int]:
    """
    Return the numbers in a bit set, ascending.

    :raises ProtocolViolation: the text is no Base64, or has more than 65,536 bits.
    """
    if text in _EMPTY_SET:
        return []
    try:
        data = b64decode(text, validate=True)
    except ValueError:
        raise ProtocolViolation("the bit set of an acknowledgement is no Base64") from None
    if len(data) > _MOST_SET_BYTES:
        raise ProtocolViolation(f"a bit set of {len(data)} bytes, more than {_MOST_SET_BYTES}")
    return [
        position * 8 + bit
        for position, byte in enumerate(data)
        if byte
        for bit in range(8)
        if byte >> bit & 1
    ]


class AssignmentQuery(Body):
    """The body of QUERY_ASSIGNMENT (400), which asks for the queues that a client gets."""

    topic: str = ""
    consumer_group: str = ""
    client_id: str = ""
    strategy_name: str = ""
    message_model: str = ""


class AssignedQueue(msgspec.Struct, rename="camel"):
    """One queue that a client gets, and how it gets the queue's messages: `PULL` or `POP`."""

    message_queue: MessageQueue
    mode: str = "PULL"


class Assignments(AnswerBody):
    """
    The answer to QUERY_ASSIGNMENT.

    :ivar queues: the client's queues. For None it keeps those that it has; an empty list takes all
        away.
    """

    queues: list[AssignedQueue] | None = field(name="messageQueueAssignments", default=None)


class RequestMode(Body):
    """
    How a group gets the messages of a topic: the body of SET_MESSAGE_REQUEST_MODE (401).

    :ivar pop_share_queue_num: how many neighbours' queues a client pops beside its own; 0, negative
        or many: all queues.
    """

    topic: str = ""
    consumer_group: str = ""
    mode: str = ""
    pop_share_queue_num: Int32 = 0


class RequestModeTable(AnswerBody):
    """The answer to 402, and the file `messageRequestMode.json`: modes by topic and group."""

    modes: dict[str, dict[str, RequestMode]] = field(
        name="messageRequestModeMap", default_factory=dict
    )
