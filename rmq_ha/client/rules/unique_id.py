"""Ids that a client gives its messages (UNIQ_KEY).

An id is upper-case hex of: address (4 or 16 bytes), pid (2), a number that tells producers apart
(4), ms since the first of the month in local time (4), counter (2). Tools read the time from an id,
so its form has to be Java's.

Spec: remoting.md, section 5.6.
"""

import time
from ipaddress import ip_address

_LOOPBACK = "127.0.0.1"
_LEAST_LATE = -1_000_000


class UniqueIds:
    """
    Makes ids; two ids of the same ms differ by the counter.

    :param address: this machine's address; a text that is no IP address counts as 127.0.0.1.
    :param salt: a number that tells producers of one process apart; its lower 32 bits are used.
    :param first: the first value of the counter.
    """

    __slots__ = ("_counter", "_end", "_prefix", "_start")

    def __init__(self, address: str, pid: int, salt: int, first: int = 0) -> None:
        try:
            packed = ip_address(address.partition("%")[0]).packed
        except ValueError:
            packed = ip_address(_LOOPBACK).packed
        self._prefix = f"{packed.hex()}{pid & 0xFFFF:04x}{salt & 0xFFFFFFFF:08x}".upper()
        self._counter = first - 1
        self._start = 0
        self._end = 0

    def next(self, now_ms: int) -> str:
        """
        Return a new id.

        :param now_ms: the current time, in ms since the epoch.
        """
        if now_ms >= self._end:
            self._start, self._end = _month(now_ms)
        since = now_ms - self._start
        if _LEAST_LATE < since < 0:
            since = 0  # the clock was set back a little, to the month before
        counter = self._counter = self._counter + 1 & 0xFFFF
        return f"{self._prefix}{since & 0xFFFFFFFF:08X}{counter:04X}"


def _month(now_ms: int) -> tuple[int, int]:
    """Return the first ms of the local month of a time, and the first ms of the month after it."""
    local = time.localtime(now_ms / 1000)
    return _month_start_ms(local.tm_year, local.tm_mon), _month_start_ms(
        local.tm_year, local.tm_mon + 1
    )


def _month_start_ms(year: int, month: int) -> int:
    return int(time.mktime((year, month, 1, 0, 0, 0, 0, 0, -1))) * 1000
