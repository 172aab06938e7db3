"""
Measurements of the last hours, in bounded memory however many series are measured.

Pure: values and times are passed in, plain lists are returned.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import isnan, nan
from typing import NamedTuple

FINE_S = 10
COARSE_S = 60
FINE_POINTS = 360
"""Number of points 10 s apart: an hour."""
COARSE_POINTS = 720
"""Number of points a minute apart: twelve hours."""
MOST_SERIES = 120
_RESTORED_AT_ONCE = 150


class RingShape(NamedTuple):
    """How many points a ring has, and how many seconds they are apart."""

    step_s: int
    points: int


RINGS = (RingShape(COARSE_S, COARSE_POINTS), RingShape(900, 672), RingShape(3600, 720))
"""Twelve hours by minutes, seven days by quarters of an hour, thirty days by hours."""


class Point(NamedTuple):
    """
    One point of several series.

    :ivar values: the series that were measured.
    """

    at_ms: int
    values: Mapping[str, float | None]


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


class _Means:
    """
    Makes one point of several.

    :param peaks: series whose point is the largest value; of the others it is the mean.
    """

    def __init__(self, peaks: frozenset[str]) -> None:
        self._peaks = peaks
        self._values: dict[str, list[float]] = {}
        self.at_ms = 0
        self.taken = 0

    def add(self, at_ms: int, values: Mapping[str, float | None]) -> None:
        for name, value in values.items():
            if value is not None:
                self._values.setdefault(name, []).append(value)
        self.at_ms = at_ms
        self.taken += 1

    def take(self) -> Point:
        """Return the point of all values since the last call."""
        point = Point(self.at_ms, {name: self._reduce(name) for name in self._values})
        self._values, self.taken = {}, 0
        return point

    def _reduce(self, name: str) -> float:
        values = self._values[name]
        return max(values) if name in self._peaks else sum(values) / len(values)


class History:
    """
    An hour of points 10 s apart, and the rings of `RINGS`.

    A point of a ring is the mean of the finer points in it. A ring behind the first has only the
    series of the server as a whole, whose names have no colon. Its points belong to whole quarters
    of an hour, and whole hours, of the clock.

    :param peaks: series whose coarser point is the largest finer point instead.
    :param keep: called with each point of a ring in `RINGS`, and the ring's number.
    """

    def __init__(
        self, peaks: Iterable[str] = (), keep: Callable[[int, Point], object] = lambda *_: None
    ) -> None:
        self.fine = Ring(FINE_POINTS)
        self.rings = [Ring(shape.points) for shape in RINGS]
        self._keep = keep
        self._peaks = frozenset(peaks)
        self._means = [_Means(self._peaks) for _ in RINGS]

    @property
    def coarse(self) -> Ring:
        """The points of the last twelve hours, a minute apart."""
        return self.rings[0]

    def add(self, at_ms: int, values: Mapping[str, float | None]) -> None:
        """Add one point to each series. Must be called every `FINE_S` seconds."""
        self.fine.add(at_ms, values)
        minute = self._means[0]
        minute.add(at_ms, values)
        if minute.taken * FINE_S < COARSE_S:
            return
        point = minute.take()
        self.rings[0].add(point.at_ms, point.values)
        self._keep(0, Point(point.at_ms, whole_server(point.values)))
        self._add_coarser(point)

    def restore(self, points: Sequence[Sequence[Point]]) -> Iterator[None]:
        """
        Put points of an earlier run before those of this one, some for each item.

        :param points: for each ring its points, the oldest first.
        """
        rings = [Ring(shape.points) for shape in RINGS]
        means = [_Means(self._peaks) for _ in RINGS]
        for ring, known in zip(rings, points, strict=True):
            for number, point in enumerate(known, 1):
                ring.add(point.at_ms, point.values)
                if number % _RESTORED_AT_ONCE == 0:
                    yield
        # The last minutes belong to a quarter of an hour, and to an hour, that had not ended.
        for number, known in enumerate(points[1:], 1):
            begun_ms = known[-1].at_ms if known else 0
            for point in points[0]:
                if point.at_ms > begun_ms:
                    self._add_to(number, rings[number], means[number], point)
            yield
        since = [ring.points_after(0, ring.names) for ring in self.rings]
        means[0] = self._means[0]
        self.rings, self._means = rings, means
        for number, (at_ms, series) in enumerate(since):
            for place, at in enumerate(at_ms):
                point = Point(at, {name: column[place] for name, column in series.items()})
                rings[number].add(point.at_ms, point.values)
                if number == 0:
                    self._add_coarser(point)

    def _add_coarser(self, point: Point) -> None:
        """Add a point of a minute to the means of the coarser rings."""
        for number in range(1, len(RINGS)):
            self._add_to(number, self.rings[number], self._means[number], point)

    def _add_to(self, number: int, ring: Ring, means: _Means, point: Point) -> None:
        step_ms = RINGS[number].step_s * 1000
        if means.taken and means.at_ms // step_ms != point.at_ms // step_ms:
            done = means.take()
            ring.add(done.at_ms, done.values)
            self._keep(number, done)
        means.add(point.at_ms, whole_server(point.values))


def whole_server(values: Mapping[str, float | None]) -> dict[str, float | None]:
    """Return the series of the server as a whole: those without a colon in their names."""
    return {name: value for name, value in values.items() if ":" not in name}
