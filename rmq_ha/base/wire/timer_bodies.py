"""What a broker of rmq-ha tells operators of its timer messages.

Spec: timer.md, section 9.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import field

from rmq_ha.base.wire.bodies import AnswerBody

TIMERS = "timers"
"""A key in the JSON `REPLICATION_KEY`: the state of the timer messages, see `TimerFacts`."""
DUE_WITHIN = "rmqHaDueWithin"
"""
A header field of rmq-ha. If a request GET_TIMER_METRICS has it, with any value, the body of the
answer has a member of this name only: for each bound in seconds, how many waiting messages are due
by then. It has no counts by topic. Java's slaves send no such field and see no difference.
"""


class TimerCount(msgspec.Struct, rename="camel", frozen=True):
    """The waiting messages of one topic."""

    count: int = 0


class TimerCounts(AnswerBody):
    """
    The body of GET_TIMER_METRICS (61).

    :ivar by_topic: waiting messages by real topic.
    :ivar due_within: waiting messages by bound, in seconds; empty if nobody asked for them.
    """

    by_topic: Mapping[str, TimerCount] = field(name="timingCount", default_factory=dict)
    due_within: Mapping[str, int] = field(name=DUE_WITHIN, default_factory=dict)


class TimerFacts:
    """
    The state of a broker's timer messages, as it tells it; a member of another form counts as
    missing.

    :ivar work: see `rmq_ha.server.store.timer.reports.TimerWork`; empty: the broker does not tell.
    :ivar next_due_ms: when the first message is due; None: none waits.
    """

    def __init__(self, told: Any) -> None:
        told = told if isinstance(told, dict) else {}

        def number(name: str) -> int | None:
            value = told.get(name)
            return value if type(value) is int else None

        work = told.get("work")
        self.work = work if isinstance(work, str) else ""
        self.waiting = number("waiting") or 0
        self.next_due_ms = number("next_due_ms")
        self.recalled = number("recalled") or 0
        self.clock_step_ms = number("clock_step_ms") or 0
        self.clock_step_at_ms = number("clock_step_at_ms") or 0

    def overdue_ms(self, now_ms: int) -> int:
        """
        Return for how many ms the first message is due.

        :param now_ms: the broker's clock.
        """
        return 0 if self.next_due_ms is None else max(0, now_ms - self.next_due_ms)
