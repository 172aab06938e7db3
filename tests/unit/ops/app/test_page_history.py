"""What the page remembers: plots, events, the timeline; all of it bounded."""

from rmq_ha.base.model.histogram import Histogram
from rmq_ha.ops.app.page.events import (
    MOST_EVENTS,
    MOST_LANES,
    EventKind,
    Events,
    EventSeverity,
    Timeline,
)
from rmq_ha.ops.app.page.history import COARSE_POINTS, FINE_POINTS, MOST_SERIES, History, Ring
from rmq_ha.ops.app.page.measures import KEYS_A_LOOK, DeadMeter, LagMeter, MeasuredRate, Quantile
from rmq_ha.ops.app.page.values import MemberRow, Tone
from rmq_ha.ops.app.page.watch import KEPT_LOOKS, ServerState, Watch


def test_a_ring_keeps_the_last_points() -> None:
    ring = Ring(3)
    for at in (10, 20, 30, 40):
        ring.add(at, {"x": at / 10})
    assert ring.points_after(0, ["x"]) == ([20, 30, 40], {"x": [2.0, 3.0, 4.0]})
    assert ring.points_after(30, ["x", "unknown"]) == ([40], {"x": [4.0]})
    assert len(ring) == 3


def test_what_was_not_measured_is_no_number() -> None:
    ring = Ring(3)
    ring.add(1, {"x": 1, "y": None})
    ring.add(2, {"z": 5})
    assert ring.points_after(0, ["x", "y", "z"]).series == {
        "x": [1.0, None],
        "y": [None, None],
        "z": [None, 5.0],
    }


def test_series_are_bounded_and_one_that_rests_makes_room() -> None:
    ring = Ring(2, most=2)
    ring.add(1, {"a": 1, "b": 1})
    ring.add(2, {"a": 1, "b": 1, "c": 1})
    assert ring.names == ["a", "b"]
    ring.add(3, {"a": 1})
    ring.add(4, {"a": 1, "c": 1})
    assert ring.names == ["a", "c"]


def test_a_minute_is_the_mean_of_its_points_or_the_worst() -> None:
    history = History(["lag"])
    for number in range(12):
        history.add(number * 10_000, {"rate": number, "lag": number})
    points = history.coarse.points_after(-1, ["rate", "lag"])
    assert points == ([50_000, 110_000], {"rate": [2.5, 8.5], "lag": [5.0, 11.0]})


def test_twelve_hours_take_bounded_memory() -> None:
    history = History()
    for number in range(FINE_POINTS * 13):
        history.add(number, {f"group:{number}": 1.0, "rate": 2.0})
    assert len(history.fine) == FINE_POINTS
    assert len(history.coarse.names) <= MOST_SERIES
    assert len(history.fine.names) <= MOST_SERIES
    assert len(history.coarse) <= COARSE_POINTS


def test_the_last_events_newest_first() -> None:
    events = Events()
    for number in range(MOST_EVENTS + 5):
        events.add(number, EventKind.LOG, EventSeverity.INFO, f"e{number}")
    found = events.newer_than(0)
    assert len(found) == MOST_EVENTS
    assert found[0].text == f"e{MOST_EVENTS + 4}"
    assert [event.text for event in events.newer_than(events.last_number - 1)] == [found[0].text]


def test_what_goes_on_is_one_event_with_a_count() -> None:
    """A flood of refusals drives out nothing else."""
    events = Events()
    events.add(0, EventKind.ROLE, EventSeverity.WARN, "SLAVE became SYNC_MASTER")
    for number in range(2000):
        events.add(number * 2000, EventKind.REFUSAL, EventSeverity.WARN, "refused", 3)
    first, second = events.newer_than(0)
    assert (first.text, first.times) == ("refused", 6000)
    assert second.kind is EventKind.ROLE
    events.add(2000 * 2000 + 500_000, EventKind.REFUSAL, EventSeverity.WARN, "refused")
    assert len(events.newer_than(0)) == 3


def test_a_long_text_with_controls_is_cut_and_escaped() -> None:
    events = Events()
    events.add(0, EventKind.LOG, EventSeverity.WARN, "\x1b[31m" + "x" * 5000)
    text = events.newer_than(0)[0].text
    assert text.startswith("\\x1b")
    assert len(text) < 500


def test_the_timeline_tells_changes_and_forgets_the_oldest_lane() -> None:
    timeline = Timeline()
    assert timeline.note(1, "s", "caught up")
    assert not timeline.note(2, "s", "caught up")
    assert timeline.note(3, "s", "gone")
    assert timeline.state_since("s") == 3
    for number in range(MOST_LANES):
        timeline.note(4, f"m{number}", "x")
    assert "s" not in [lane.name for lane in timeline.lanes()]


def slave(state: str, tone: Tone = Tone.GOOD) -> MemberRow:
    name = "slave 10.0.0.2"
    return MemberRow(key=name, name=name, role="slave", state=state, tone=tone, lag_bytes=0)


def here(role: str = "master") -> MemberRow:
    return MemberRow(
        key="a:1", name="a:1", role=role, state="as it is", tone=Tone.GOOD, is_here=True
    )


class TestWatch:
    """What becomes an event."""

    def setup_method(self) -> None:
        self.events = Events()
        self.watch = Watch(self.events, Timeline())

    def look(
        self, now_ms: int, *members: MemberRow, role: str = "SYNC_MASTER", **more: object
    ) -> None:
        seen = {"is_ready": True, "health": "fine", **more}
        self.watch.look(now_ms, ServerState(role, members=list(members), **seen))  # type: ignore[arg-type]

    def texts(self) -> list[str]:
        return [event.text for event in reversed(self.events.newer_than(0))]

    def test_a_slave_comes_goes_and_comes_back(self) -> None:
        self.look(1, here())
        self.look(2, here(), slave("catching up"))
        self.look(3, here(), slave("caught up"))
        self.look(4, here())
        self.look(5, here())
        assert [(item.name, item.state, item.since_ms) for item in self.watch.members[1:]] == [
            ("slave 10.0.0.2", "gone", 4)
        ]
        self.look(6, slave("caught up"))
        assert self.texts()[1:] == [
            "slave 10.0.0.2: catching up",
            "slave 10.0.0.2: caught up",
            "slave 10.0.0.2 is gone",
            "slave 10.0.0.2: caught up",
        ]
        assert [item.state for item in self.watch.members] == ["caught up"]

    def test_who_is_gone_for_long_leaves_the_sheet(self) -> None:
        self.look(1, slave("caught up"))
        for number in range(KEPT_LOOKS + 2):
            self.look(2 + number)
        assert self.watch.members == []

    def test_a_change_of_role_and_of_health(self) -> None:
        self.look(1, role="SLAVE")
        self.look(2, role="SYNC_MASTER")
        self.look(3, is_ready=False, health="the disk is full")
        assert self.texts()[1:] == ["SLAVE became SYNC_MASTER", "not ready: the disk is full"]

    def test_what_was_refused_is_counted(self) -> None:
        self.look(1, counts={"refused": 5})
        self.look(2, counts={"refused": 5})
        self.look(3, counts={"refused": 12})
        last = self.events.newer_than(0)[0]
        assert (last.text, last.times, last.kind) == ("refused", 7, EventKind.REFUSAL)

    def test_brokers_that_register_and_go(self) -> None:
        self.look(1, registered={})
        self.look(2, registered={"10.0.0.1:1": "a 0"})
        self.look(3, registered={})
        assert self.texts()[1:] == [
            "a 0 at 10.0.0.1:1 registered",
            "a 0 at 10.0.0.1:1 is not registered any more",
        ]


def test_a_rate_begins_anew_with_its_counter() -> None:
    rate = MeasuredRate()
    assert rate.per_second(0, 100) is None
    assert rate.per_second(10, 150) == 5
    assert rate.per_second(20, 3) is None
    assert rate.per_second(30, 13) == 1


def test_a_quantile_is_of_what_came_since() -> None:
    histogram, quantile = Histogram(), Quantile(0.99)
    histogram.add(9.0, 1000)
    assert quantile.upper_limit(histogram) is None
    assert quantile.upper_limit(histogram) is None
    histogram.add(0.002, 99)
    histogram.add(0.3)
    assert quantile.upper_limit(histogram) == 0.0025
    histogram.add(77.0)
    assert quantile.upper_limit(histogram) == 10.0


def test_lags_are_measured_a_part_a_look() -> None:
    table = {f"t{number}@g{number % 2}": number for number in range(KEYS_A_LOOK * 3)}
    asked: list[str] = []
    meter = LagMeter(lambda key: asked.append(key) or 2)
    meter.look(table)
    assert len(asked) == KEYS_A_LOOK
    for _ in range(2):
        meter.look(table)
    assert meter.total == KEYS_A_LOOK * 6
    assert set(meter.by_group) == {"g0", "g1"}
    for _ in range(2):
        meter.look({})
    assert meter.total == 0
    assert meter.by_group == {}


def test_dead_letters_are_counted_as_they_come_and_go() -> None:
    counts = {"%DLQ%a": 3, "%DLQ%b": 4}
    meter = DeadMeter(counts.__getitem__)
    meter.look({**counts, "orders": 1})
    assert meter.total == 7
    counts["%DLQ%a"] = 9
    meter.look(counts)
    assert meter.total == 13
    meter.look({"%DLQ%a": 1})
    meter.look({"%DLQ%a": 1})
    assert meter.total == 9
