"""What a broker of rmq-ha tells operators of the popped messages of one group.

Spec: pop.md, section 13.2.
"""

from collections.abc import Sequence

import msgspec
from msgspec import field

from rmq_ha.base.wire.bodies import AnswerBody

IN_FLIGHT = "rmqHaInFlight"
"""
A header field of rmq-ha. If a request GET_CONSUME_STATS has it, with any value, the answer has an
`InFlightReport` instead of offsets. A broker of RocketMQ ignores the field, and its answer has no
member of this name.
"""


class QueueOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """
    The messages of one queue that are out with a group. Times are ms since the epoch.

    :ivar topic: the topic whose queue it is; for messages that came again, a retry topic.
    :ivar in_flight: number of messages that are out.
    :ivar committed: the first offset that is not consumed.
    :ivar next: the first offset that was never handed out.
    :ivar end: the offset behind the last message of the queue.
    :ivar oldest_ms: when the oldest lease began; 0 if nothing is out.
    :ivar due_ms: when the first lease ends; 0 if nothing is out.
    :ivar waits_since_ms: when the message at `committed` was stored; 0 if nothing is out, or if the
        store does not know it.
    :ivar attempts: how often the first message of the oldest lease was handed out by now; 0 if
        nothing is out, or if the log lacks it.
    :ivar client: address of the client with the oldest lease; empty if it is not known.
    """

    topic: str
    queue_id: int
    in_flight: int
    committed: int
    next: int
    end: int
    oldest_ms: int = 0
    due_ms: int = 0
    waits_since_ms: int = 0
    attempts: int = 0
    client: str = ""
    is_orderly: bool = False

    @property
    def acked_ahead(self) -> int:
        """Number of messages that are consumed, although one before them is not."""
        return max(0, self.next - self.committed - self.in_flight)


class TopicMoves(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """
    Numbers of messages of a group and a topic since the broker's start.

    :ivar again: messages that were handed out again.
    :ivar retried: messages that were moved to a retry topic.
    :ivar dead: messages that were moved to the dead letters.
    :ivar gone: messages that retention deleted while they were out.
    """

    topic: str
    again: int = 0
    retried: int = 0
    dead: int = 0
    gone: int = 0


class InFlightReport(AnswerBody, rename="camel"):
    """
    The popped messages of one group at one broker.

    :ivar state: `leading` if the broker hands messages out; `following` if it only copies the
        leases; `off` with `popEnable=false`; empty if a broker of RocketMQ answered.
    :ivar now_ms: the broker's clock, ms since the epoch.
    :ivar left_out: number of queues that are not in `queues`.
    """

    state: str = field(name=IN_FLIGHT, default="")
    now_ms: int = 0
    queues: Sequence[QueueOut] = ()
    moves: Sequence[TopicMoves] = ()
    left_out: int = 0
