"""
Keeps the plots of a broker's page on the disk, in one small file of fixed size.

The file has a header and the slots of the rings of `History`. The slot of a point follows from its
time, so each write replaces the oldest point, and the file never grows. Each slot has a CRC: a
write that a power cut tore is dropped at the next start. A file that cannot be read is set aside,
and never keeps a broker from starting.
"""

import json
from collections.abc import Sequence
from math import isnan, nan
from struct import Struct as Layout
from struct import error as StructError
from typing import NamedTuple
from zlib import crc32

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmq_ha.base.errors import StoreError
from rmq_ha.base.seams import Disk, File, Host
from rmq_ha.ops.app.page.history import RINGS, Point, RingShape

FOLDER = "page"
NAME = "history"
DAMAGED = ".damaged"
_MAGIC = b"RMQHA page\n\0"
_HEADER = 4096
_PREFIX = Layout(">12sII")
_CRC = Layout(">I")
_LONGEST_JSON = _HEADER - _PREFIX.size


class DamagedHistory(Exception):
    """The file is none of this program; the text says why."""


class LoadedTrends(NamedTuple):
    """
    The points of a file.

    :ivar points: for each ring its points, the oldest first.
    :ivar torn: how many slots were dropped because their CRC is wrong.
    :ivar is_current: whether the file has the rings and series of this program.
    """

    points: list[list[Point]]
    torn: int
    is_current: bool


class TrendForm:
    """
    The form of a file.

    :param names: the series that the file keeps.
    :param rings: the rings that it keeps.
    """

    def __init__(self, names: Sequence[str], rings: Sequence[RingShape]) -> None:
        self.names = tuple(names)
        self.rings = tuple(rings)
        self._values = Layout(f">Q{len(self.names)}f")
        self.slot_size = self._values.size + _CRC.size

    @property
    def size(self) -> int:
        """The size of the whole file, bytes."""
        return _HEADER + self.slot_size * sum(ring.points for ring in self.rings)

    def header(self) -> bytes:
        text = json.dumps({"names": self.names, "rings": self.rings}).encode()
        prefix = _PREFIX.pack(_MAGIC, len(text), crc32(text))
        return (prefix + text).ljust(_HEADER, b"\0")

    def position(self, ring: int, at_ms: int) -> int:
        """Return where in the file the point of a ring with this time stands."""
        before = sum(shape.points for shape in self.rings[:ring])
        shape = self.rings[ring]
        number = before + (at_ms // (shape.step_s * 1000)) % shape.points
        return _HEADER + number * self.slot_size

    def slot(self, point: Point) -> bytes:
        values = [point.values.get(name) for name in self.names]
        data = self._values.pack(point.at_ms, *[nan if item is None else item for item in values])
        return data + _CRC.pack(crc32(data))

    def file_with(self, points: Sequence[Sequence[Point]]) -> bytes:
        """Return a whole file with these points."""
        data = bytearray(self.size)
        data[:_HEADER] = self.header()
        for ring, known in enumerate(points):
            for point in known:
                at = self.position(ring, point.at_ms)
                data[at : at + self.slot_size] = self.slot(point)
        return bytes(data)

    def load(self, data: bytes, now_ms: int) -> LoadedTrends:
        """
        Return the points of a file that are not too old for their ring, and not of the future.

        :raises DamagedHistory: the header is damaged, or the file has another size.
        """
        form = _form_of(data)
        by_step: dict[int, list[Point]] = {}
        torn = 0
        for ring, shape in enumerate(form.rings):
            by_step[shape.step_s], bad = form._points_of(data, ring)
            torn += bad
        points = []
        for shape in self.rings:
            oldest_ms = now_ms - shape.points * shape.step_s * 1000
            known = by_step.get(shape.step_s, [])
            points.append([point for point in known if oldest_ms < point.at_ms <= now_ms])
        is_current = (form.names, form.rings) == (self.names, self.rings)
        return LoadedTrends(points, torn, is_current)

    def _points_of(self, data: bytes, ring: int) -> tuple[list[Point], int]:
        """Return the points of a ring, the oldest first, and how many slots are torn."""
        shape = self.rings[ring]
        first = self.position(ring, 0)
        points, torn = [], 0
        for at in range(first, first + shape.points * self.slot_size, self.slot_size):
            slot = data[at : at + self.slot_size]
            body, crc = slot[: -_CRC.size], slot[-_CRC.size :]
            if not any(slot):
                continue
            if _CRC.unpack(crc)[0] != crc32(body):
                torn += 1
                continue
            at_ms, *values = self._values.unpack(body)
            named = zip(self.names, values, strict=True)
            points.append(Point(at_ms, {name: x for name, x in named if not isnan(x)}))
        return sorted(points, key=lambda point: point.at_ms), torn


def _form_of(data: bytes) -> TrendForm:
    try:
        magic, length, crc = _PREFIX.unpack_from(data)
        text = data[_PREFIX.size : _PREFIX.size + min(length, _LONGEST_JSON)]
        if magic != _MAGIC or crc32(text) != crc:
            raise DamagedHistory("its header is damaged")
        told = json.loads(text)
        form = TrendForm(told["names"], [RingShape(*item) for item in told["rings"]])
    except (StructError, ValueError, TypeError, KeyError) as error:
        raise DamagedHistory("its header is damaged") from error
    if len(data) != form.size:
        raise DamagedHistory(f"it has {len(data)} bytes instead of {form.size}")
    return form


def rings_for(days: int) -> list[RingShape]:
    """Return the rings that a file keeps for some days, of which there are 30 at most."""
    return [
        shape._replace(points=max(1, min(shape.points, days * 86_400 // shape.step_s)))
        for shape in RINGS
    ]


class TrendKeeper:
    """
    Loads the file of one broker, and writes points into it.

    It uses the disk only in the worker. After an error of the disk it says so once. It tries
    again with the next point, or at the next start if the file could not be loaded.

    :param root: `storePathRootDir`.
    :ivar path: the path of the file.
    """

    log = Logger()

    def __init__(self, host: Host, root: str, form: TrendForm) -> None:
        self._host = host
        self._form = form
        self.path = f"{root}/{FOLDER}/{NAME}"
        self._file: File | None = None
        self._is_busy = False
        self._waiting: list[tuple[int, Point]] = []
        self._complained = False
        self._is_closed = False

    def load(self) -> "Deferred[list[list[Point]]]":
        """
        Open the file, and make it if it is missing.

        :returns: fires with the points of each ring, which are none if the disk refuses; never
            fails.
        """
        self._is_busy = True
        later = self._host.worker.call(self._load, self._host.disk, self._host.now_ms())
        return later.addCallbacks(self._take_loaded, self._begin_empty)

    def write(self, ring: int, point: Point) -> None:
        """Write a point of a ring soon; a point that cannot be written is dropped."""
        self._waiting.append((ring, point))
        if self._is_busy or self._is_closed or self._file is None:
            del self._waiting[: -2 * len(self._form.rings)]
            return
        self._is_busy = True
        waiting, self._waiting = self._waiting, []
        slots = [
            (self._form.slot(item), self._form.position(number, item.at_ms))
            for number, item in waiting
        ]
        self._host.worker.call(_write, self._file, slots).addCallbacks(self._written, self._failed)

    def close(self) -> None:
        """Write no more, and close the file when nobody writes."""
        self._is_closed = True
        if not self._is_busy:
            self._close_file()

    def _load(self, disk: Disk, now_ms: int) -> tuple[LoadedTrends, File, str]:
        """Called in the worker. Return the points, the file, and why an older file is set aside."""
        why = ""
        loaded = LoadedTrends([[] for _ in self._form.rings], 0, False)
        if disk.exists(self.path):
            try:
                loaded = self._form.load(disk.read_bytes(self.path), now_ms)
            except DamagedHistory as damage:
                why = str(damage)
                disk.remove(self.path + DAMAGED)
                disk.move(self.path, self.path + DAMAGED)
        if not loaded.is_current:
            disk.make_dirs(self.path.rpartition("/")[0])
            disk.replace(self.path, self._form.file_with(loaded.points))
        return loaded, disk.open(self.path, self._form.size), why

    def _take_loaded(self, outcome: tuple[LoadedTrends, File, str]) -> list[list[Point]]:
        loaded, self._file, why = outcome
        self._is_busy = False
        if why:
            self.log.warn(
                "the history of the page is set aside as {path}, and begins anew: {why}",
                path=self.path + DAMAGED,
                why=why,
            )
        if loaded.torn:
            self.log.warn(
                "{count} points of the page's history were torn and are dropped: {path}",
                count=loaded.torn,
                path=self.path,
            )
        if self._is_closed:
            self._close_file()
        return loaded.points

    def _begin_empty(self, failure: Failure) -> list[list[Point]]:
        failure.trap(OSError, StoreError)  # type: ignore[no-untyped-call]
        self._is_busy = False
        self.log.warn(
            "the page keeps its history in memory only, until the next start: {why}",
            why=failure.getErrorMessage(),
        )
        return [[] for _ in self._form.rings]

    def _written(self, _: object) -> None:
        self._complained = False
        self._rest()

    def _failed(self, failure: Failure) -> None:
        if not self._complained:
            self._complained = True
            self.log.warn(
                "the page's history cannot be written: {why}", why=failure.getErrorMessage()
            )
        self._rest()

    def _rest(self) -> None:
        self._is_busy = False
        if self._is_closed:
            self._close_file()

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _write(file: File, slots: Sequence[tuple[bytes, int]]) -> None:
    for data, position in slots:
        file.pwrite(data, position)
