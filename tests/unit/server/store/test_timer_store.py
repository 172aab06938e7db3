"""Timer messages in a whole store: crashes, clean stops, files that expire."""

from collections import Counter

import pytest

from rmq_ha.base.model.message import PutMessageResult
from rmq_ha.base.model.topics import TIMER_PROGRESS_TOPIC, TIMER_TOPIC
from rmq_ha.base.store_format.commitlog import decode_record
from rmq_ha.base.store_format.timer_times import LEAST_DUE, out_for
from rmq_ha.server.store.timer.sources import TimerSource
from rmq_ha.server.store.timer.timers import TimerState
from tests.unit.server.store.delayed_store import DelayedStore
from tests.unit.server.store.timer_world import a_message, a_recall


class TimerStore(DelayedStore):
    """A store with timer messages."""

    def start(self) -> None:
        self.configuration.ours.timer_wheel_enable = True
        super().start()

    def now_ms(self) -> int:
        return self.host.now_ms()

    def wait_for(self, wait_ms: int, key: str, topic: str = "T", size: int = 4) -> TimerSource:
        """Put a message that is due in some ms; its source."""
        due = self.now_ms() + wait_ms
        results: list[PutMessageResult] = []
        message = a_message(
            {
                "TIMER_DELIVER_MS": str(due),
                "UNIQ_KEY": key,
                "KEYS": key,
                "TIMER_OUT_MS": str(out_for(due)),
                "REAL_TOPIC": topic,
                "REAL_QID": "0",
            }
        )
        message.body = b"x" * size
        self.store.put_message(message).addCallback(results.append)
        self.run(0.001)
        stored = results[0].append
        assert stored is not None
        return TimerSource(stored.physical_offset, stored.queue_offset)

    def copies(self) -> Counter[str]:
        return Counter(self.delivered())

    def count(self, topic: str) -> int:
        return self.store.max_offset_in_queue(topic, 0)

    def recall(self, source: TimerSource) -> None:
        data = self.store.record_at(source.physical_offset)
        assert data is not None
        properties = decode_record(data).properties
        text = "\x02".join(f"{name}\x01{value}" for name, value in properties.items())
        assert self.store.timers.begin_recall(source)
        self.store.put_message(a_recall((None,) * 11 + (text,), source.text))
        self.run(0.05)

    def state(self, source: TimerSource) -> TimerState:
        messages = []
        self.store.timers.find_source(source).addCallback(messages.append)
        self.run(0.1)
        return messages[0].state


@pytest.fixture
def store():
    made = TimerStore()
    yield made
    made.kill()


def test_units_hold_the_due_time_also_after_the_queue_is_built_anew(store):
    source = store.wait_for(60_000, "a")
    unit = store.store.queues.get(TIMER_TOPIC, 0).unit(source.queue_offset)
    assert unit[2] == store.now_ms() + 60_000 - 1 or unit[2] > LEAST_DUE
    store.kill()
    for path in store.host.disk.paths("/store/consumequeue"):
        store.host.disk.remove(path)
    store.start()
    assert store.store.queues.get(TIMER_TOPIC, 0).unit(source.queue_offset) == unit
    assert store.store.timers.waiting == 1


def test_each_message_is_delivered_once_through_kills(store):
    names = []
    for life in range(6):
        for number in range(40):
            names.append(f"{life}-{number}")
            store.wait_for(20 + number * 25, names[-1])
        store.run(0.3 + life * 0.13)
        store.kill()
        store.start()
    store.run(5)
    assert store.copies() == dict.fromkeys(names, 1)


def test_each_message_is_delivered_once_through_lost_power(store):
    for life in range(6):
        for number in range(30):
            store.wait_for(20 + number * 25, f"{life}-{number}")
        store.run(0.4)
        store.host.crash(power=True)
        store.host.restart()
        store.start()
    store.run(5)
    assert max(store.copies().values()) == 1
    assert store.store.timers.waiting == 0
    log = store.store.queues.get(TIMER_TOPIC, 0)
    assert len(store.copies()) == log.max_offset - log.min_offset


def test_a_clean_stop_writes_a_frontier(store):
    store.wait_for(50, "a")
    late = store.wait_for(90_000, "b")
    store.run(1)
    store.stop()
    store.start()
    assert store.count(TIMER_PROGRESS_TOPIC) >= 1
    assert store.store.timers.waiting == 1
    assert store.state(late) is TimerState.WAITING
    store.run(95)
    assert store.copies() == {"a": 1, "b": 1}


def test_a_recall_is_final_and_known_after_a_kill(store):
    first, second = store.wait_for(2000, "a"), store.wait_for(2000, "b")
    store.recall(first)
    assert store.state(first) is TimerState.RECALLED
    store.kill()
    store.start()
    assert store.state(first) is TimerState.RECALLED
    assert not store.store.timers.begin_recall(first)
    store.run(4)
    assert store.copies() == {"b": 1}
    assert store.state(second) is TimerState.SETTLED


def test_messages_are_found_by_key_and_time(store):
    source = store.wait_for(5000, "a")
    store.wait_for(9000, "a")
    data = store.store.record_at(source.physical_offset)
    out = int(decode_record(data).properties["TIMER_OUT_MS"])
    found = []
    store.store.timers.find_key("T", "a", out + 1).addCallback(found.extend)
    store.store.timers.find_key("U", "a", out + 1).addCallback(found.extend)
    store.store.timers.find_key("T", "b", out + 1).addCallback(found.extend)
    store.run(0.1)
    assert [message.source for message in found] == [source]


def test_a_file_with_waiting_messages_is_kept_until_they_are_rolled(store):
    store.wait_for(120_000, "early")
    for number in range(40):
        store.wait_for(100, f"n{number}", size=2000)
    store.run(10)
    log = store.store.log
    assert log.min_offset == 0
    store.configuration.store.file_reserved_time = 0
    store.store.clean_expired_files()
    store.run(75)
    assert log.min_offset > 0
    assert store.store.timers.waiting == 1
    store.run(60)
    names = [
        decode_record(data).properties["KEYS"]
        for data in store.store.get_message(
            "g", "T", 0, store.store.min_offset_in_queue("T", 0), 99, None
        ).messages
    ]
    assert names.count("early") == 1


def test_deliveries_stand_still_while_the_operator_holds_them(store):
    store.configuration.ours.timer_stop_dequeue = True
    store.wait_for(50, "a")
    store.run(3)
    assert not store.copies()
    store.configuration.ours.timer_stop_dequeue = False
    store.run(2)
    assert store.copies() == {"a": 1}


def test_waiting_messages_are_counted_by_topic(store):
    store.wait_for(5000, "a")
    store.wait_for(5000, "b", topic="U")
    store.wait_for(5000, "c", topic="U")
    store.run(0.1)
    counts = []
    store.store.timers.waiting_by_topic().addCallback(counts.append)
    store.run(0.1)
    assert counts == [{"T": 1, "U": 2}]
    assert store.store.runtime_info()["timerCongestNum"] == "3"


def test_a_store_without_timers_has_no_target_for_them(store):
    store.kill()
    store.configuration.ours.timer_wheel_enable = False
    DelayedStore.start(store)
    targets = [target for _, target in store.store.dispatcher._targets]
    assert store.store.timers.take_rows not in targets
    store.wait_for(50, "a")
    store.run(2)
    assert not store.copies()
