"""Counting into buckets, for what is measured once a batch."""

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
"""Upper limits of buckets for seconds that somebody waits."""


class Histogram:
    """
    How many values fell below which limit, and their sum.

    :param limits: rising upper limits of the buckets; what is above the last goes into one more.
    :ivar counts: by bucket, not cumulated.
    :ivar total: sum of the values.
    """

    __slots__ = ("counts", "limits", "total")

    def __init__(self, limits: tuple[float, ...] = LATENCY_LIMITS_S) -> None:
        self.limits = limits
        self.counts = [0] * (len(limits) + 1)
        self.total = 0.0

    def add(self, value: float, count: int = 1) -> None:
        """:param count: how many had this value."""
        self.counts[bisect_left(self.limits, value)] += count
        self.total += value * count

    def cumulative(self) -> list[tuple[float, int]]:
        """Each limit and how many values are not above it; infinity last."""
        sums = []
        seen = 0
        for limit, count in zip((*self.limits, inf), self.counts, strict=True):
            seen += count
            sums.append((limit, seen))
        return sums
