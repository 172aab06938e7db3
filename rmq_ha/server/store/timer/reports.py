"""Reports for operators: whether timer messages are delivered, and when they are due."""

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from rmq_ha.server.store.timer.waiting import MINUTE_MS, WaitingMessages

BOUNDS_S = (0, 5, 60, 300, 900, 3600, 14400, 28800, 86400)
"""Seconds from now: RocketMQ 5 counts the messages that are due within each. 0 is for messages
that are due already."""


class TimerWork(StrEnum):
    """The reason why a broker delivers the waiting timer messages, or does not."""

    OFF = "off"
    """`timerWheelEnable` is false: nothing is delivered."""
    SCANNING = "scanning"
    """After a start or a cut of the log: the broker does not know yet which messages wait."""
    SLAVE = "slave"
    """This broker is a slave, and its master delivers the messages."""
    BEHIND = "behind"
    """This broker became the master, and first dispatches the log that it has."""
    REFUSED = "refused"
    """The store takes no puts now."""
    HELD = "held"
    """`timerStopDequeue` is true."""
    DELIVERING = "delivering"


class TimerReport(NamedTuple):
    """
    The state of the timer messages of one broker.

    :ivar waiting: how many wait; with timers off, how many waited when the store was opened.
    :ivar next_due_ms: when the first of them is due, or was; None if none waits.
    :ivar recalled: how many messages were recalled whose minute is not over, or still has messages.
    :ivar clock_step_ms: by how much the broker's clock was last set, forward or back; 0 if nobody
        has set it by a second since the start.
    :ivar clock_step_at_ms: when the broker noticed that, by the new clock.
    """

    work: TimerWork
    waiting: int
    next_due_ms: int | None
    recalled: int
    clock_step_ms: int = 0
    clock_step_at_ms: int = 0

    def overdue_ms(self, now_ms: int) -> int:
        """Return for how many ms the message that is due first has been due; 0 if none is."""
        return 0 if self.next_due_ms is None else max(0, now_ms - self.next_due_ms)


def due_within(waiting: WaitingMessages, now_ms: int, counts: list[int]) -> Iterator[None]:
    """
    Count the waiting messages that are due within each of `BOUNDS_S`; each step counts one minute.

    :param counts: gets a count for each bound. A message counts for its bound and all longer ones.
    """
    times = [now_ms + bound * 1000 for bound in BOUNDS_S]
    counts[:] = [0] * len(times)
    for number in waiting.minutes():
        if number * MINUTE_MS >= times[-1]:
            return
        of_minute = waiting.due_by(number, times)
        counts[:] = [count + more for count, more in zip(counts, of_minute, strict=True)]
        yield
