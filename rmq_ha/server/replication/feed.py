"""The master's half of a connection: the part that is the same in both dialects.

Each dialect has its own `receive_data` and `next_frame`, since they send different frames. In 4.9 a
heartbeat that is due is sent before data, and small frames are gathered. In 5.x data are sent
first, and a frame ends where its epoch ends.
"""

from enum import Enum
from typing import Protocol

from rmq_ha.base.errors import SlaveSilent
from rmq_ha.server.replication.statistics import STRANDED
from rmq_ha.server.store.log.journal_log import LogBytes


class Stage(Enum):
    """How far a slave has come, for operators."""

    NEW = "connected"
    CATCHING_UP = "catching up"
    CAUGHT_UP = "caught up"
    STRANDED = STRANDED


class Intervals(Protocol):
    """
    Settings of how long a connection may be idle or silent, in milliseconds; read at each use.
    """

    ha_send_heartbeat_interval: int
    ha_housekeeping_interval: int


class FeedBase:
    """
    A master's knowledge of one slave.

    :ivar requested: the physical offset in the first report; None: no report has come.
    :ivar sent: end of the bytes that were sent; the next frame starts here.
    :ivar has_sent_all: whether another call of `next_frame` at the same time would return nothing,
        because the slave was sent the whole log.
    :ivar is_introduced: see `FeedCore`.
    :ivar acked: physical offset up to which the slave says that it holds the log.
    """

    has_sent_all = False
    is_introduced = False

    def __init__(self, log: LogBytes, intervals: Intervals, now: float) -> None:
        self.requested: int | None = None
        self.sent = 0
        self.acked = 0
        self._log = log
        self._intervals = intervals
        self._paused = False
        self._last_read = now
        self._last_write = now

    @property
    def broker_id(self) -> int | None:
        """Return the id of the slave in its set; None: the slave has not told its id."""
        return None

    @property
    def lag(self) -> int:
        """Return the number of bytes of this log that the slave has not acknowledged."""
        return max(0, int(self._log.max_offset) - self.acked)

    def pause(self) -> None:
        """Send nothing before `resume`, since the transport is full."""
        self._paused = True

    def resume(self) -> None:
        """Send again, since the transport is empty."""
        self._paused = False

    def on_time(self, now: float) -> None:
        """
        Check that the slave is still there. A heartbeat that is due comes from `next_frame`.

        :raises SlaveSilent: the slave sent nothing for haHousekeepingInterval.
        """
        if now >= self._expiry_time():
            raise SlaveSilent(now - self._last_read)

    def _expiry_time(self) -> float:
        return self._last_read + self._intervals.ha_housekeeping_interval / 1000
