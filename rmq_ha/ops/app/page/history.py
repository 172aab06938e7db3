"""
Measurements of the last hours, in bounded memory however many series are measured.

Pure: values and times are passed in, plain lists are returned.
"""

from array import array
from collections.abc import Iterable, Mapping
from math import isnan, nan
from typing import NamedTuple

FINE_S = 10
COARSE_S = 60
FINE_POINTS = 360
"""Number of points 10 s apart: an hour."""
COARSE_POINTS = 720
"""Number of points a minute apart: twelve hours."""
MOST_SERIES = 120


class Points(NamedTuple):
    """
    A part of a history.

    :ivar at_ms: when each point was taken, oldest first.
    :ivar series: for each series a value per point; None: not measured.
    """

    at_ms: list[int]
    series: dict[str, list[float | None]]


class Ring:
    """
    The last points of several series.

    :param most: how many series are kept. A new one replaces a series that was not measured since
        the oldest point; without such a series the new one is not kept.
    """

    def __init__(self, points: int, most: int = MOST_SERIES) -> None:
        self._points = points
        self._most = most
        self._at = array("d", [nan] * points)
        self._columns: dict[str, array[float]] = {}
        self._last_measured: dict[str, int] = {}  # the number of each series' last point
        self._count = 0

    def __len__(self) -> int:
        return min(self._count, self._points)

    @property
    def names(self) -> list[str]:
        return list(self._columns)

    def add(self, at_ms: int, values: Mapping[str, float | None]) -> None:
        """Add a point to each series; series that are not in `values` get an empty point."""
        place = self._count % self._points
        self._at[place] = at_ms
        for old_column in self._columns.values():
            old_column[place] = nan
        for name, value in values.items():
            column = self._columns.get(name) or self._new_column(name)
            if column is not None and value is not None:
                column[place] = value
                self._last_measured[name] = self._count
        self._count += 1

    def points_after(self, after_ms: int, names: Iterable[str]) -> Points:
        """
        Return the points that were taken later than `after_ms`.

        :param names: the series to return; unknown ones are left out.
        """
        first = self._count - len(self)
        order = [number % self._points for number in range(first, self._count)]
        order = [place for place in order if self._at[place] > after_ms]
        columns = {name: self._columns[name] for name in names if name in self._columns}
        return Points(
            [int(self._at[place]) for place in order],
            {name: _values_in_order(column, order) for name, column in columns.items()},
        )

    def _new_column(self, name: str) -> "array[float] | None":
        """Make the column of a new series; return None if each known series still needs its own."""
        if len(self._columns) >= self._most and not self._drop_empty_column():
            return None
        column = self._columns[name] = array("f", [nan] * self._points)
        return column

    def _drop_empty_column(self) -> bool:
        """
        Forget one series of which this ring keeps no value any more.

        A series with values is never dropped: with more series than columns, each new one would
        push out another, and no plot would have two points.

        :returns: whether there was such a series.
        """
        stalest = min(self._columns, key=lambda name: self._last_measured.get(name, -1))
        overwritten = self._count - self._points  # the number of the point that `add` overwrites
        if self._last_measured.get(stalest, -1) > overwritten:
            return False
        del self._columns[stalest]
        self._last_measured.pop(stalest, None)
        return True


def _values_in_order(column: "array[float]", order: list[int]) -> list[float | None]:
    values: list[float | None] = []
    for place in order:
        value = column[place]
        values.append(None if isnan(value) else float(f"{value:.5g}"))
    return values


class History:
    """
    An hour of points 10 s apart, and twelve hours of points a minute apart.

    A point of the coarse history is the mean of the fine points in it.

    :param peaks: series whose coarse point is the largest fine point instead.
    """

    def __init__(self, peaks: Iterable[str] = ()) -> None:
        self.fine = Ring(FINE_POINTS)
        self.coarse = Ring(COARSE_POINTS)
        self._peaks = frozenset(peaks)
        self._minute: dict[str, list[float]] = {}
        self._taken = 0

    def add(self, at_ms: int, values: Mapping[str, float | None]) -> None:
        """Add one point to each series. Must be called every `FINE_S` seconds."""
        self.fine.add(at_ms, values)
        for name, value in values.items():
            if value is not None:
                self._minute.setdefault(name, []).append(value)
        self._taken += 1
        if self._taken * FINE_S < COARSE_S:
            return
        self.coarse.add(at_ms, {name: self._reduce_one(name) for name in self._minute})
        self._minute.clear()
        self._taken = 0

    def _reduce_one(self, name: str) -> float:
        values = self._minute[name]
        return max(values) if name in self._peaks else sum(values) / len(values)
