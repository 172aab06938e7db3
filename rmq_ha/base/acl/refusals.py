"""The reasons why requests are refused, and the limit of log lines about refusals."""

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
    A refusal that is to be logged.

    :ivar silent: how many refusals were not logged since the last line, of this host and of
        forgotten hosts.
    """

    silent: int


class RefusalLog:
    """
    Allows one line for each host and period, and counts the other refusals.

    :param period: seconds.
    """

    def __init__(self, period: float) -> None:
        self._period = period
        self._hosts: dict[str, tuple[float, int]] = {}  # when told, silent since
        self._lost = 0

    def count(self, host: str, now: float) -> RefusalLine | None:
        """
        Count a refusal, and decide whether it is logged.

        :param now: seconds of a clock.
        :returns: the line to log; None if nothing is to be logged.
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
        """
        Drop the hosts whose period is over. Their refusals that were not logged count for the next
        line of any host.
        """
        over = [host for host, (told, _) in self._hosts.items() if now - told >= self._period]
        for host in over:
            self._lost += self._hosts.pop(host)[1]
