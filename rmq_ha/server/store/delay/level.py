"""The progress of a delay level, and how a record of its queue becomes a message.

Spec: store.md, section 10.
"""

from collections import deque

from rmq_ha.base.errors import CorruptRecord
from rmq_ha.base.model.message import BrokerMessage
from rmq_ha.base.model.properties import (
    DELAY,
    REAL_TOPIC,
    TIMER_SRC,
    WAIT,
    encode_properties,
)
from rmq_ha.base.model.topics import HALF_TOPIC
from rmq_ha.base.store_format.commitlog import Record
from rmq_ha.server.store.delay.copies import copy_of, real_place

_MARKS_A_DELAY = 100
_MOST_MARKS = 256


class DelayLevel:
    """
    One delay level, whose queue is in the order of delivery.

    :ivar offset: queue offset of the next message.
    :ivar wake_at: time in seconds of the next look at the queue; None while the level is idle or
        putting.
    :ivar failed_at: queue offset of the last put that failed, so that a repeated failure is logged
        once.
    :ivar stored_ahead: queue offsets of messages that are delivered, although an earlier put
        failed.
    :ivar unsure_until: a message below this queue offset may have been delivered before this start,
        so the log is searched for its copy.
    :ivar recorded: the queue offset in the progress file.
    :ivar found: number of messages that are not delivered again, because their copies were found.
    :ivar again: number of messages below `recorded` that are delivered, as they have no copies.
    :ivar marks: queue offsets, each with the time in seconds when all messages below it had
        arrived. They replace the machine's clock after somebody set that back.
    """

    __slots__ = (
        "again",
        "delay_ms",
        "failed_at",
        "found",
        "is_putting",
        "marks",
        "number",
        "offset",
        "recorded",
        "stored_ahead",
        "unsure_until",
        "wake_at",
    )

    def __init__(self, number: int, delay_ms: int, offset: int) -> None:
        self.number = number
        self.delay_ms = delay_ms
        self.offset = self.recorded = offset
        self.wake_at: float | None = None
        self.is_putting = False
        self.failed_at = -1
        self.stored_ahead: set[int] = set()
        self.unsure_until = 0
        self.found = self.again = 0
        self.marks: deque[tuple[int, float]] = deque(maxlen=_MOST_MARKS)

    def mark(self, end: int, now: float, *, at_once: bool = False) -> None:
        """
        Note that the queue has grown to `end`.

        :param at_once: make a mark even if the last mark is young.
        """
        marks = self.marks
        while marks and marks[0][0] <= self.offset:
            marks.popleft()
        step = 0.0 if at_once else self.delay_ms / 1000 / _MARKS_A_DELAY
        if not marks or (marks[-1][0] < end and now - marks[-1][1] >= step):
            marks.append((end, now))

    def longest_wait_ms(self, offset: int, end: int, now: float) -> int:
        """Return how many ms an arrived message may still wait, by a clock that nobody sets."""
        self.mark(end, now, at_once=True)
        arrived = next((seconds for below, seconds in self.marks if below > offset), now)
        return max(0, self.delay_ms - int((now - arrived) * 1000))


def check_deliverable(record: Record) -> None:
    """
    Check that a record of the schedule topic can be delivered.

    :raises CorruptRecord: it does not name its real topic and queue, or it names the half topic.
    """
    topic, _ = real_place(record.properties)
    if topic == HALF_TOPIC:
        raise CorruptRecord(f"its {REAL_TOPIC} is {topic!r}")


def message_of(record: Record) -> BrokerMessage:
    """
    Make the message for the real topic from a deliverable record of the schedule topic.

    The property string stays as it is, with DELAY, REAL_TOPIC, REAL_QID and WAIT. Only TIMER_SRC is
    left out, which a Java master keeps in messages that are sent back: it would settle a timer
    message.

    Spec: store.md, sections 2.4 and 10.3; timer.md, section 12.
    """
    properties, stored = record.properties, record.properties_string
    if properties.pop(TIMER_SRC, None) is not None:
        stored = encode_properties(properties)
    properties.pop(DELAY, None)
    properties[WAIT] = "false"
    return copy_of(record, *real_place(properties), properties, stored)
