"""The plots of the page outlive a start: one small file, which nothing can make harmful."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.logger import capturedLogs, formatEvent

from rmq_ha.base.errors import StoreError
from rmq_ha.ops.app.page.history import RINGS, History, Point
from rmq_ha.ops.app.page.trends import DAMAGED, DamagedHistory, TrendForm, TrendKeeper, rings_for
from rmq_ha.testing.host import SimHost, World

ROOT, PATH = "/store", "/store/page/history"
NAMES = ("rate", "lag")
FORM = TrendForm(NAMES, rings_for(30))
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
NOW = 1_700_000_000_000


def told(events: Any) -> str:
    return "\n".join(formatEvent(event) for event in events)


def minutes(count: int, until_ms: int = NOW) -> list[Point]:
    first = until_ms - (count - 1) * MINUTE
    return [Point(first + n * MINUTE, {"rate": float(n), "lag": 1.0}) for n in range(count)]


def restored(history: History, points: Any) -> History:
    for _ in history.restore(points):
        pass
    return history


class Broker:
    """A machine whose broker keeps plots, as often as it is started."""

    def __init__(self, form: TrendForm = FORM) -> None:
        self.world = World(1)
        self.host: SimHost = self.world.add("a")
        self.form = form
        self.start()

    def start(self) -> None:
        self.keeper = TrendKeeper(self.host.seams, ROOT, self.form)
        self.points: list[list[Point]] = []
        self.keeper.load().addCallback(self.points.extend)
        self.run()

    def run(self, seconds: float = 1.0) -> None:
        self.world.clock.run_for(seconds)

    def write(self, *points: Point, ring: int = 0) -> None:
        for point in points:
            self.keeper.write(ring, point)
            self.run(0.1)

    def now(self) -> int:
        return self.host.now_ms()


def test_thirty_days_are_one_file_of_a_bounded_size() -> None:
    broker = Broker(TrendForm([f"series {n}" for n in range(12)], rings_for(30)))
    size = broker.host.disk.size(PATH)
    assert size == broker.form.size <= 128 << 10
    for number in range(1000):
        broker.write(Point(NOW + number * MINUTE, {"series 1": 1.0}))
    assert broker.host.disk.size(PATH) == size
    assert [ring.points for ring in rings_for(1)] == [720, 96, 24]
    assert [ring.points for ring in rings_for(30)] == [ring.points for ring in RINGS]


def test_points_are_there_after_a_start_and_old_ones_are_not() -> None:
    broker = Broker()
    now = broker.now()
    old, new = Point(now - 13 * HOUR, {"rate": 9.0}), Point(now, {"rate": 1.5})
    broker.write(old, new)
    broker.write(Point(now - 29 * DAY, {"lag": 7.0}), ring=2)
    broker.keeper.close()
    broker.start()
    assert broker.points[0] == [new]
    assert broker.points[2] == [Point(now - 29 * DAY, {"lag": 7.0})]


def test_a_torn_slot_is_dropped_with_a_line_in_the_log() -> None:
    broker = Broker()
    now = broker.now()
    broker.write(Point(now - MINUTE, {"rate": 1.0}), Point(now, {"rate": 2.0}))
    broker.keeper.close()
    data = bytearray(broker.host.disk.read_bytes(PATH))
    data[FORM.position(0, now) + 9] ^= 1
    broker.host.disk.replace(PATH, bytes(data))
    with capturedLogs() as events:
        broker.start()
    assert [point.values for point in broker.points[0]] == [{"rate": 1.0}]
    assert "1 points of the page's history were torn" in told(events)


@pytest.mark.parametrize("damage", ["header", "size", "nothing"])
def test_a_damaged_file_is_set_aside_and_a_new_one_begun(damage: str) -> None:
    broker = Broker()
    broker.write(Point(broker.now(), {"rate": 1.0}))
    broker.keeper.close()
    whole = broker.host.disk.read_bytes(PATH)
    bad = {"header": b"x" + whole[1:], "size": whole[:-1], "nothing": b""}[damage]
    for _ in range(2):
        broker.host.disk.replace(PATH, bad)
        with capturedLogs() as events:
            broker.start()
        broker.keeper.close()
        assert broker.points == [[], [], []]
        assert "is set aside" in told(events)
        assert broker.host.disk.read_bytes(PATH + DAMAGED) == bad
        assert len(broker.host.disk.read_bytes(PATH)) == FORM.size
    assert broker.host.disk.list_dir("/store/page") == ["history", "history.damaged"]


def test_another_release_or_another_number_of_days_keeps_what_it_can() -> None:
    points = [minutes(3), [Point(NOW - DAY, {"rate": 4.0})], [Point(NOW - 9 * DAY, {"rate": 5.0})]]
    data = FORM.file_with(points)
    other = TrendForm(("lag", "more"), rings_for(2)).load(data, NOW)
    assert (other.is_current, other.torn) == (False, 0)
    assert [len(ring) for ring in other.points] == [3, 1, 0]
    assert FORM.load(data, NOW).is_current
    assert FORM.load(data, NOW - DAY).points[0] == [], "nothing of the future"
    with pytest.raises(DamagedHistory):
        FORM.load(data[:100], NOW)


def test_a_disk_that_refuses_is_told_once_and_stops_nothing() -> None:
    broker = Broker()

    def refuse(data: Any, position: int) -> None:
        raise OSError(28, "No space left on device")

    file = broker.keeper._file
    assert file is not None
    original, file.pwrite = file.pwrite, refuse  # type: ignore[method-assign]
    with capturedLogs() as events:
        broker.write(*minutes(3))
    assert told(events).count("cannot be written") == 1
    file.pwrite = original  # type: ignore[method-assign]
    now = broker.now()
    broker.write(Point(now, {"rate": 3.0}))
    broker.keeper.close()
    broker.host.disk.read_bytes = _refuse  # type: ignore[method-assign]
    with capturedLogs() as events:
        broker.start()
    assert broker.points == [[], [], []]
    assert "in memory only" in told(events)


def _refuse(path: str) -> bytes:
    raise StoreError(f"{path}: Input/output error")


def test_quarters_and_hours_are_of_the_clock_also_across_a_start() -> None:
    kept: list[tuple[int, Point]] = []
    history = History(["lag"], lambda ring, point: kept.append((ring, point)))
    begin = NOW - NOW % HOUR
    before = [Point(begin + n * MINUTE, {"rate": float(n), "lag": float(n)}) for n in range(40)]
    quarters = [Point(begin + n * MINUTE, {"rate": 1.0}) for n in (14, 29)]
    restored(history, [before, quarters, []])
    assert kept == [], "the third quarter has not ended, nor has the hour"
    for number in range(50 * 6, 62 * 6):
        history.add(begin + number * 10_000, {"rate": 100.0, "lag": 0.0, "group:g": 1.0})
    (third, point), (last, _) = [(at, it) for at, it in kept if at == 1][:2]
    assert (third, last) == (1, 1)
    assert point == Point(begin + 39 * MINUTE, {"rate": 34.5, "lag": 39.0})
    ((_, hour),) = [item for item in kept if item[0] == 2]
    assert hour.values["lag"] == 39.0, "a peak"
    assert hour.values["rate"] == pytest.approx((sum(range(40)) + 100.0 * 10) / 50)
    assert all(":" not in name for _, item in kept for name in item.values)
    assert "group:g" in history.rings[0].names
    assert "group:g" not in history.rings[2].names


def test_points_that_came_while_the_file_was_read_stand_behind_those_of_the_file() -> None:
    history = History()
    for number in range(12):
        history.add(NOW + number * 10_000, {"rate": 1.0})
    restored(history, [minutes(2, NOW - MINUTE), [], []])
    assert history.coarse.points_after(0, ["rate"]).at_ms == [
        NOW - 2 * MINUTE, NOW - MINUTE, NOW + 50_000, NOW + 110_000,
    ]  # fmt: skip
