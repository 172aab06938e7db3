"""What operators are told of timer messages: whether they are delivered, and when they are due."""

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from rmq_ha.server.store.timer.waiting import MINUTE_MS, WaitingMessages

BOUNDS_S = (0, 5, 60, 300, 900, 3600, 14400, 28800, 86400)
"""The bounds for which RocketMQ 5 counts waiting messages, and 0, for those that are due."""


class TimerWork(StrEnum):
    """What a broker does with the timer messages that wait."""

    OFF = "off"
    """`timerWheelEnable` is false: nothing is delivered."""
    SCANNING = "scanning"
    """A start, or a cut of the log: the waiting messages are not known yet."""
    SLAVE = "slave"
    """The master delivers them."""
    BEHIND = "behind"
    """A new master first dispatches the log that it has."""
    REFUSED = "refused"
    """The store takes no puts."""
    HELD = "held"
    """`timerStopDequeue` is true."""
    DELIVERING = "delivering"


class TimerReport(NamedTuple):
    """
    The state of the timer messages of one broker.

    :ivar waiting: how many wait; with timers off, how many waited when the store was opened.
    :ivar next_due_ms: when the first of them is due, or was; None if none waits.
    :ivar recalled: how many that were due later are recalled, to the minute.
    :ivar clock_step_ms: by how much the broker's clock was last set, forward or back; 0 if nobody
        has set it by a second since the start.
    :ivar clock_step_at_ms: when that was seen, by the new clock.
    """

    work: TimerWork
    waiting: int
    next_due_ms: int | None
    recalled: int
    clock_step_ms: int = 0
    clock_step_at_ms: int = 0

    def overdue_ms(self, now_ms: int) -> int:
        """Return for how many ms the first message is due."""
        return 0 if self.next_due_ms is None else max(0, now_ms - self.next_due_ms)


def due_within(waiting: WaitingMessages, now_ms: int, counts: list[int]) -> Iterator[None]:
    """
    Count the waiting messages that are due within each of `BOUNDS_S`, a minute at a time.

    :param counts: gets a count for each bound; those below a bound count for the later ones, too.
    """
    times = [now_ms + bound * 1000 for bound in BOUNDS_S]
    counts[:] = [0] * len(times)
    for number in waiting.minutes():
        if number * MINUTE_MS >= times[-1]:
            return
        of_minute = waiting.due_by(number, times)
        counts[:] = [count + more for count, more in zip(counts, of_minute, strict=True)]
        yield
