"""The slave's half of a connection: the part that is the same in both dialects.

Each dialect proves in its own way that two logs have a common past. In 4.9 the slave asks for the
log from an offset on, and compares the bytes. In 5.x the slave compares epochs first.
"""

from rmq_ha.base.errors import DivergedLog, ReplicationError
from rmq_ha.server.replication.feed import Intervals
from rmq_ha.server.store.log.journal_log import CopiedLog


class ReplicaBase:
    """
    A slave's log, and its connection to its master.

    :ivar last_read: when bytes last came, in seconds of the clock.
    :ivar last_write: when bytes were last sent, in seconds of the clock.
    """

    read_size = 0

    def __init__(self, log: CopiedLog, intervals: Intervals, now: float) -> None:
        self.last_read = now
        self.last_write = now
        self._log = log
        self._intervals = intervals

    def is_overdue(self, now: float) -> bool:
        """Whether the master sent nothing for haHousekeepingInterval."""
        return now >= self._expiry_time()

    def _check_silence(self, now: float) -> None:
        if self.is_overdue(now):
            raise ReplicationError(f"the master sent nothing for {now - self.last_read:.0f} s")

    def _check_fits(self, offset: int, size: int) -> None:
        file_size = self._log.file_size
        if offset % file_size + size > file_size:
            raise DivergedLog(
                f"{size} bytes at {offset} do not fit into a file of {file_size}: set "
                "mappedFileSizeCommitLog as on the master"
            )

    def _expiry_time(self) -> float:
        return self.last_read + self._intervals.ha_housekeeping_interval / 1000
