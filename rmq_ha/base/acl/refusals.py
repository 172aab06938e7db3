"""Why requests are refused, and which of them are worth a line in the log."""

from enum import StrEnum
from typing import NamedTuple

_MAX_HOSTS = 1024


class RefusalReason(StrEnum):
    """Why access control refused a request; the value is a label of a metric."""

    UNSIGNED = "unsigned"
    SIGNATURE = "signature"
    PLAIN = "aclRequiresTls"
    NOT_TIMED = "aclRequiresSignedTime"
    TIME = "aclSignedTimeWindow"
    REPLAY = "replay"
    CERTIFICATE = "certificate"
    PERMISSION = "permission"


class RefusalLine(NamedTuple):
    """
    A line to log.

    :ivar silent: how many refusals of this host, or of all, went unlogged since the last line.
    """

    silent: int


class RefusalLog:
    """
    One line per host and period, and a count of the rest.

    :param period: seconds.
    """

    def __init__(self, period: float) -> None:
        self._period = period
        self._hosts: dict[str, tuple[float, int]] = {}  # when told, silent since
        self._lost = 0

    def refused(self, host: str, now: float) -> RefusalLine | None:
        """
        Note one more.

        :param now: seconds of a clock.
        :returns: None when it stays silent.
        """
        told_at, silent = self._hosts.get(host, (None, 0))
        if told_at is not None and now - told_at < self._period:
            self._hosts[host] = (told_at, silent + 1)
            return None
        if told_at is None and len(self._hosts) >= _MAX_HOSTS:
            self._forget(now)
            if len(self._hosts) >= _MAX_HOSTS:
                self._lost += 1
                return None
        self._hosts[host] = (now, 0)
        lost, self._lost = self._lost, 0
        return RefusalLine(silent + lost)

    def _forget(self, now: float) -> None:
        """Drop the hosts whose period is over; what they had silent is counted for all."""
        over = [host for host, (told, _) in self._hosts.items() if now - told >= self._period]
        for host in over:
            self._lost += self._hosts.pop(host)[1]
