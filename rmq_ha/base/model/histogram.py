"""A histogram: counts values, such as waiting times, by buckets with upper limits."""

from bisect import bisect_left
from math import inf

LATENCY_LIMITS_S = (
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
)
"""Upper limits of the buckets for waiting times, in seconds."""


class Histogram:
    """
    Counts how many values lie below which limit, and adds the values up.

    :param limits: rising upper limits of the buckets. Values above the last limit go into one more
        bucket.
    :ivar counts: number of values in each bucket, not cumulated.
    :ivar total: sum of the values.
    """

    __slots__ = ("counts", "limits", "total")

    def __init__(self, limits: tuple[float, ...] = LATENCY_LIMITS_S) -> None:
        self.limits = limits
        self.counts = [0] * (len(limits) + 1)
        self.total = 0.0

    def add(self, value: float, count: int = 1) -> None:
        """
        Count a value.

        :param count: how many times the value occurred.
        """
        self.counts[bisect_left(self.limits, value)] += count
        self.total += value * count

    def cumulative(self) -> list[tuple[float, int]]:
        """
        Return each limit with the number of values that are not above it. The last limit is
        infinity.
        """
        sums = []
        seen = 0
        for limit, count in zip((*self.limits, inf), self.counts, strict=True):
            seen += count
            sums.append((limit, seen))
        return sums
