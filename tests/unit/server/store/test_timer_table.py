"""Which timer messages wait, as the log says, whatever happens to it."""

import json
from array import array
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_ha.base.errors import StoreError
from rmq_ha.base.model.properties import TIMER_SRC, decode_properties
from rmq_ha.base.model.topics import TIMER_PROGRESS_TOPIC, TIMER_TOPIC
from rmq_ha.base.store_format.commitlog import decode_record
from rmq_ha.base.store_format.timer_times import RECALL_BIT, due_in, due_of, timer_code
from rmq_ha.server.store.timer import delivery
from rmq_ha.server.store.timer.sources import TimerSource
from rmq_ha.server.store.timer.waiting import WaitingMessages
from tests.kits.draws import EXPLORES
from tests.unit.server.store.timer_world import NOW_MS, TimerWorld, a_message, a_recall

SEEDS = st.integers(0, (1 << 32) - 1)
EXAMPLES = settings(max_examples=3000 if EXPLORES else 60, deadline=None)


class History:
    """What happens to a set of timer messages, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = TimerWorld()
        self.rows = []

    def step(self) -> None:
        name = self.random.choice(
            ("send",) * 6 + ("recall",) * 2 + ("wait",) * 5 + ("dispatch",) * 3
            + ("long", "clock", "refuse", "crash", "cut", "promote", "slave", "frontier")
        )  # fmt: skip
        getattr(self, name)()

    def send(self) -> None:
        wait = self.random.choice((1, 50, 999, 1000, 5000, 61_000, 200_000))
        self.rows.append(
            self.world.send(self.random.randint(1, wait), java=self.random.random() < 0.2)
        )

    def recall(self) -> None:
        if self.rows:
            self.world.recall(self.random.choice(self.rows))

    def wait(self) -> None:
        self.world.run(self.random.choice((0.05, 0.2, 1.0)), 0.05)

    def long(self) -> None:
        self.world.run(self.random.randint(1, 90), 1.0)

    def dispatch(self) -> None:
        self.world.clock.advance(0)
        self.world.dispatch(self.random.randint(1, 5))

    def clock(self) -> None:
        self.world.step_ms += self.random.choice((-3_600_000, 3_600_000, -1000, 500))

    def refuse(self) -> None:
        self.world.refuses = not self.world.refuses

    def frontier(self) -> None:
        if self.world.timers._delivery is not None:
            self.world.timers._delivery.put_frontier()

    def crash(self) -> None:
        """The process dies; of the records that are not dispatched any part may be gone."""
        world = self.world
        world.end()
        known = sum(row[2] < world.log.dispatched for row, _ in world.log.rows)
        self._cut(self.random.randint(known, len(world.log.rows)))
        world.begin()

    def cut(self) -> None:
        """The end of a slave's log is cut off, and the slave is promoted."""
        self.world.end()
        self._cut(
            self.random.randint(max(0, len(self.world.log.rows) - 8), len(self.world.log.rows))
        )
        self.world.begin()

    def _cut(self, count: int) -> None:
        self.world.log.cut(count)
        self.rows = [row for row in self.rows if row[2] < self.world.log.end]

    def promote(self) -> None:
        """A replica takes over, with all of the log."""
        self.world.end()
        self.world.log = self.world.log.copy()
        self.world.log.dispatched = self.world.log.end
        self.world.begin()

    def slave(self) -> None:
        """The broker is no master for a while."""
        self.world.timers.stop()
        self.wait()
        self.world.timers.start()

    def finish(self) -> None:
        self.world.refuses = False
        self.world.run(1)
        for _ in range(8):
            if not self.world.timers.waiting:
                break
            self.world.run(1000, 20)
        self.world.run(1)

    # What must hold

    def check_table(self) -> None:
        """P4 and P6: the table is that of a start on the same log."""
        world = self.world
        scanned = world.log.scanned()
        assert set(scanned.waiting) == world.waiting()
        assert scanned.waiting.count == world.timers.waiting == len(world.waiting())

    def check_frontiers(self) -> None:
        """P5: no frontier claims a message that was not settled before it."""
        waiting: dict[tuple[int, int], tuple[int, str]] = {}
        numbers = 0
        for row, data in self.world.log.rows:
            properties = decode_record(data).properties
            if row[0] == TIMER_PROGRESS_TOPIC:
                said = json.loads(decode_record(data).body)
                for (due, number), (place, source) in waiting.items():
                    is_claimed = (due, number) <= (said["due"], said["offset"])
                    assert not is_claimed or place >= said["end"] or source in said["open"]
                continue
            source = properties.get(TIMER_SRC)
            if source is not None:
                waiting = {one: it for one, it in waiting.items() if it[1] != source}
            if row[0] == TIMER_TOPIC:
                code = timer_code(properties) or 0
                if not code & RECALL_BIT:
                    waiting[due_in(code), numbers] = row[2], f"{row[2]}-{numbers}"
                numbers += 1

    def check_deliveries(self) -> None:
        """P1 to P3, at the end of the history."""
        delivered, recalled, sent = self.world.deliveries(), set(), {}
        numbers = 0
        for row, data in self.world.log.rows:
            properties = decode_record(data).properties
            if row[0] == TIMER_TOPIC:
                if (timer_code(properties) or 0) & RECALL_BIT:
                    recalled.add(properties[TIMER_SRC])
                else:
                    sent[f"{row[2]}-{numbers}"] = due_of(properties)
                numbers += 1
            elif row[0] != TIMER_PROGRESS_TOPIC:
                assert row[5] >= sent[properties[TIMER_SRC]]
        assert delivered == {source: 1 for source in sent if source not in recalled}


@given(SEEDS)
@EXAMPLES
def test_each_message_has_one_delivery_through_any_history(seed):
    history = History(seed)
    for _ in range(history.random.randint(5, 60)):
        history.step()
        history.check_table()
    history.finish()
    history.check_table()
    history.check_frontiers()
    history.check_deliveries()


def test_a_message_is_delivered_when_it_is_due_and_not_before():
    world = TimerWorld()
    world.send(500)
    world.run(0.45, 0.01)
    assert not world.records("T")
    world.run(0.1, 0.01)
    (delivery,) = world.records("T")
    assert NOW_MS + 500 <= delivery.store_timestamp <= NOW_MS + 520
    assert delivery.properties["REAL_TOPIC"] == "T"
    assert delivery.properties["TIMER_DEQUEUE_MS"] == str(delivery.store_timestamp)
    assert delivery.properties["TIMER_ENQUEUE_MS"] == str(NOW_MS)


def test_nothing_runs_while_nothing_waits():
    world = TimerWorld()
    world.run(1)
    assert not world.clock.getDelayedCalls()
    world.send(100)
    world.run(10)
    assert len(world.records("T")) == 1
    assert not world.clock.getDelayedCalls()


def test_messages_of_one_time_keep_the_order_of_the_log():
    world = TimerWorld()
    for number in range(20):
        world.send(1000, key=f"k{number}")
    world.run(2)
    keys = [record.properties["UNIQ_KEY"] for record in world.records("T")]
    assert keys == [f"k{number}" for number in range(20)]


def test_a_refused_put_delays_only_its_own_messages():
    world = TimerWorld()
    world.send(100, key="first")
    world.refuses = True
    world.run(0.15, 0.01)
    world.refuses = False
    world.send(1, key="second")
    world.run(0.5, 0.01)
    assert [one.properties["UNIQ_KEY"] for one in world.records("T")] == ["second", "first"]


def test_a_recall_without_a_source_works_within_its_topic_and_second():
    world = TimerWorld()
    mine = world.send(30_500, key="k")
    other = world.send(30_500, key="k", topic="U")
    later = world.send(32_500, key="k")
    world.log.append(a_recall(mine), world.now_ms())
    world.run(1)
    left = {number for _, number in world.waiting()}
    assert left == {other[6], later[6]}
    assert set(world.log.scanned().waiting) == world.waiting()


def test_a_disk_that_refuses_once_hides_neither_recall_nor_message():
    world = TimerWorld()
    row = world.send(500, key="recalled")
    world.run(0.1)
    world.send(400, key="before")
    world.log.append(a_recall(row, f"{row[2]}-{row[6]}"), world.now_ms())
    world.send(600, key="after")
    read, faults = world.log.record_at, [StoreError("the disk refuses")] * 2

    def record_at(place, size):
        if faults:
            raise faults.pop()
        return read(place, size)

    world.timers._log = world.timers._table._log = world.log.access._replace(record_at=record_at)
    with pytest.raises(StoreError):
        world.dispatch()
    world.run(2)
    keys = [record.properties["UNIQ_KEY"] for record in world.records("T")]
    assert keys == ["before", "after"]


def test_a_recall_of_another_topic_does_nothing():
    world = TimerWorld()
    row = world.send(30_500, key="k", topic="U")
    properties = decode_properties(a_recall(row).properties_string)
    properties["REAL_TOPIC"] = "T"
    world.log.append(a_message(properties), world.now_ms())
    world.run(1)
    assert world.timers.waiting == 1


def test_records_that_are_no_timer_messages_stop_no_other():
    world = TimerWorld()
    world.log.append(a_message({"KEYS": "poison"}), world.now_ms())
    world.log.append(a_message({"TIMER_OUT_MS": "x", "REAL_TOPIC": "T"}), world.now_ms())
    world.log.append(a_message({"TIMER_OUT_MS": str(NOW_MS + 1)}), world.now_ms())
    world.log.append(a_message({"TIMER_OUT_MS": "9" * 18, "REAL_TOPIC": "T"}), world.now_ms())
    world.send(500)
    world.run(3)
    assert len(world.records("T")) == 1
    world.end()
    world.begin()
    world.run(3)
    assert len(world.records("T")) == 1


def test_deliveries_of_java_settle_by_topic_key_and_time():
    world = TimerWorld()
    world.timers.stop()
    row = world.send(10_000, java=True)
    world.run(1)
    properties = decode_properties(row[11]) | {"TIMER_DEQUEUE_MS": "1", "TIMER_ENQUEUE_MS": "1"}
    world.log.append(a_message(properties, "T"), world.now_ms())
    world.run(1)
    assert world.timers.waiting == 0
    assert world.log.scanned().waiting.count == 0


def test_a_rolled_copy_replaces_its_record():
    world = TimerWorld()
    first = world.send(60_000)
    java = world.send(60_000, java=True)
    world.run(1)
    assert not world.timers.releases(world.log.end)
    world.run(1)
    assert world.timers.waiting == 2
    assert {number for _, number in world.waiting()}.isdisjoint({first[6], java[6]})
    assert world.timers.releases(java[2] + java[3])
    world.run(65, 1)
    assert sorted(world.deliveries().values()) == [1, 1]


@pytest.mark.parametrize("is_held", [False, True])
def test_all_messages_of_a_file_are_rolled_run_after_run(monkeypatch, is_held):
    """An operator who holds deliveries back wants the disk to be cleaned all the same."""
    monkeypatch.setattr(delivery, "_MOST_MESSAGES", 3)
    world = TimerWorld()
    world.is_held = is_held
    rows = [world.send(60_000 + 1000 * number) for number in range(10)]
    world.run(1)
    assert not world.timers.releases(world.log.end)
    world.run(1)
    assert world.timers.waiting == 10
    assert {number for _, number in world.waiting()}.isdisjoint({row[6] for row in rows})
    assert world.timers.releases(rows[-1][2] + rows[-1][3])
    world.is_held = False
    world.run(80, 1)
    assert sorted(world.deliveries().values()) == [1] * 10


def test_a_file_is_asked_about_without_a_look_at_all_messages():
    waiting = WaitingMessages()
    for number in range(3000):
        waiting.add(NOW_MS + 1, number)
    waiting.settle(NOW_MS + 1, TimerSource(0, 1))
    (minute,) = waiting._minutes.values()
    minute.entries = array("q", minute.entries[:5])
    minute.entries.append(1 << 46)  # behind the place that is asked about
    assert waiting.offsets_below(3) == [0, 2]
    minute.entries = TooFar(minute.entries)
    assert waiting.offsets_below(3) == [0, 2]


class TooFar:
    """Numbers of which nobody may read more than the first four."""

    def __init__(self, numbers):
        self.numbers = numbers

    def __iter__(self):
        yield from self.numbers[:4]
        raise AssertionError("read too far")


def test_sends_learn_how_many_wait_for_their_second_and_sort_no_minute(monkeypatch):
    waiting = WaitingMessages()
    first = NOW_MS - NOW_MS % 60_000 + 1
    for number in range(600):
        waiting.add(first + number * 100, number)
    waiting.settle(first, TimerSource(0, 0))
    monkeypatch.setattr(WaitingMessages, "of_minute", None)
    assert [waiting.in_second(first + ms) for ms in (0, 999, 1000, 59_999)] == [9, 9, 10, 10]
    assert waiting.in_second(first - 1) == waiting.in_second(first + 60_000) == 0
    waiting.add(first + 999, 600)
    waiting.settle(first + 1000, TimerSource(0, 10))
    assert [waiting.in_second(first + ms) for ms in (0, 1000)] == [10, 9]


def test_a_frontier_lets_a_start_read_only_the_end_of_the_log():
    world = TimerWorld()
    for _ in range(30):
        world.send(100)
        world.run(1)
    late = world.send(100_000)
    world.run(20)
    frontiers = world.records(TIMER_PROGRESS_TOPIC)
    assert 2 <= len(frontiers) <= 8
    asked: list[int] = []
    read = world.log.next_slice
    world.log.next_slice = lambda position, waits: asked.append(position) or read(position, waits)
    assert {number for _, number in world.log.scanned().waiting} == {late[6]}
    assert min(asked) >= json.loads(frontiers[-1].body)["end"] > 0
