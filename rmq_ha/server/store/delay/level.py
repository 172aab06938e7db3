"""A delay level's progress, and what becomes of a record of its queue.

Spec: store.md, section 10.
"""

from collections import deque

from rmq_ha.base.errors import CorruptRecord
from rmq_ha.base.model.message import Message
from rmq_ha.base.model.properties import DELAY, REAL_TOPIC, WAIT
from rmq_ha.base.model.topics import HALF_TOPIC
from rmq_ha.base.store_format.commitlog import Record
from rmq_ha.server.store.delay.copies import copy_of, real_place

_MARKS_A_DELAY = 100
_MOST_MARKS = 256


class DelayLevel:
    """
    One delay level, whose queue is in the order of delivery.

    :ivar offset: queue offset of the next message.
    :ivar wake_at: when to look for it, seconds; None while the level is idle or putting.
    :ivar failed_at: queue offset of the last put that failed, so as to tell of it once.
    :ivar stored_ahead: offsets that wait for a failed put before them and are delivered.
    :ivar unsure_until: below, the log is asked whether a message was delivered already.
    :ivar recorded: what the progress file said.
    :ivar marks: queue offsets, and when everything below them had arrived, seconds; for the days
        when the machine's clock is set back.
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
        The queue has grown to `end`.

        :param at_once: not only when the last mark is old enough.
        """
        marks = self.marks
        while marks and marks[0][0] <= self.offset:
            marks.popleft()
        step = 0.0 if at_once else self.delay_ms / 1000 / _MARKS_A_DELAY
        if not marks or (marks[-1][0] < end and now - marks[-1][1] >= step):
            marks.append((end, now))

    def longest_wait_ms(self, offset: int, end: int, now: float) -> int:
        """How long a message may still wait that has arrived, by a clock that nobody sets."""
        self.mark(end, now, at_once=True)
        arrived = next((seconds for below, seconds in self.marks if below > offset), now)
        return max(0, self.delay_ms - int((now - arrived) * 1000))


def check_deliverable(record: Record) -> None:
    """
    A record of the schedule topic says where its message belongs.

    :raises CorruptRecord: it does not, or to the half topic.
    """
    topic, _ = real_place(record.properties)
    if topic == HALF_TOPIC:
        raise CorruptRecord(f"its {REAL_TOPIC} is {topic!r}")


def message_of(record: Record) -> Message:
    """
    The message for the real topic, from a deliverable record of the schedule topic.

    Its property string is kept as it is, with DELAY, REAL_TOPIC, REAL_QID and WAIT.

    Spec: store.md, sections 2.4 and 10.3.
    """
    properties = record.properties
    properties.pop(DELAY, None)
    properties[WAIT] = "false"
    return copy_of(record, *real_place(properties), properties, record.properties_string)
