"""The master's half of a connection, as far as it is the same in both dialects.

Each dialect has its own `receive_data` and `next_frame`, since all that they send differs. In 4.9 a
heartbeat that is due leaves before data, and small frames are gathered. In 5.x data leave first,
and a frame ends where its epoch ends.
"""

from enum import Enum
from typing import Protocol

from rmq_ha.base.errors import SlaveSilent
from rmq_ha.server.replication.statistics import STRANDED
from rmq_ha.server.store.log.journal_log import LogBytes


class Stage(Enum):
    """How far a slave has come, for those who look at it."""

    NEW = "connected"
    CATCHING_UP = "catching up"
    CAUGHT_UP = "caught up"
    STRANDED = STRANDED


class Intervals(Protocol):
    """Keys that say how long a connection may be idle or silent, in ms; read at each use."""

    ha_send_heartbeat_interval: int
    ha_housekeeping_interval: int


class FeedBase:
    """
    One slave, as its master knows it.

    :ivar requested: the first report; None before.
    :ivar sent: end of what was sent; the next frame starts here.
    :ivar acked: physical offset up to which the slave says that it holds the log.
    :ivar is_introduced: the slave has said what it is or has.
    """

    def __init__(self, log: LogBytes, intervals: Intervals, now: float) -> None:
        self.requested: int | None = None
        self.sent = 0
        self.acked = 0
        self.is_introduced = False
        self._log = log
        self._intervals = intervals
        self._paused = False
        self._last_read = now
        self._last_write = now

    @property
    def broker_id(self) -> int | None:
        """Id of the slave in its set; None: it has said none."""
        return None

    @property
    def lag(self) -> int:
        """Bytes of our log that it has not acknowledged."""
        return max(0, int(self._log.max_offset) - self.acked)

    def pause(self) -> None:
        """The transport is full: nothing leaves before `resume`."""
        self._paused = True

    def resume(self) -> None:
        """The transport is empty again."""
        self._paused = False

    def on_time(self, now: float) -> None:
        """
        See whether the slave is still there. A heartbeat that is due comes from `next_frame`.

        :raises SlaveSilent: it said nothing for haHousekeepingInterval.
        """
        if now >= self._expiry_time():
            raise SlaveSilent(now - self._last_read)

    def _expiry_time(self) -> float:
        return self._last_read + self._intervals.ha_housekeeping_interval / 1000
