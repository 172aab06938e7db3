"""BrokerStats. Spec: remoting.md, sections 7.5 and 7.9."""

from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.model.message import Address, AppendResult, BrokerMessage, PutMessageResult
from rmq_ha.base.model.status import PutMessageStatus
from rmq_ha.base.runs.row_list import rows_of
from rmq_ha.base.store_format.commitlog import Record, encode_record
from rmq_ha.server.broker.stat_items import Figure, StatsItem, StatsTable, Window
from rmq_ha.server.broker.stats import BrokerStats

START_MS = int(datetime(2026, 3, 3, 12).timestamp() * 1000)


class Now:
    value = START_MS

    def __call__(self) -> int:
        return self.value

    def seconds(self) -> float:
        return (self.value - START_MS) / 1000


def test_latencies() -> None:
    now = Now()
    stats = BrokerStats(now, now.seconds, "C")
    for elapsed_ms, count in ((0, 18), (1, 3), (9, 1), (10, 1), (21, 1), (20000, 0)):
        stats.put_took(elapsed_ms, count)
    stats.put_took(-3, 0)
    info = stats.runtime_info()
    assert info["putMessageDistributeTime"] == (
        "[<=0ms]:18 [0~10ms]:4 [10~50ms]:2 [50~100ms]:0 [100~200ms]:0 [200~500ms]:0 "
        "[500ms~1s]:0 [1~2s]:0 [2~3s]:0 [3~4s]:0 [4~5s]:0 [5~10s]:0 [10s~]:0 "
    )
    assert info["putMessageEntireTimeMax"] == "20000"
    assert info["putLatency99"] == "50.00"
    now.value += 60_000
    assert stats.runtime_info()["putMessageDistributeTime"].startswith("[<=0ms]:18 ")
    stats.put_took(0, 5)
    now.value += 2 * 60_000  # a minute without any is over as well
    assert stats.runtime_info()["putMessageDistributeTime"].startswith("[<=0ms]:0 ")
    assert stats.runtime_info()["putLatency999"] == "0.00"


@pytest.mark.parametrize(("slow", "told"), [(1, "0.00"), (2, "45.00")])
def test_a_quantile_is_of_the_bucket_that_holds_it(slow: int, told: str) -> None:
    """No more than what the longest put really took."""
    now = Now()
    stats = BrokerStats(now, now.seconds)
    assert stats.runtime_info()["putLatency99"] == "0.00"
    stats.put_took(0, 100 - slow)
    stats.put_took(45, slow)
    assert stats.runtime_info()["putLatency99"] == told


def test_how_far_groups_are_behind_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that was told first goes."""
    monkeypatch.setattr("rmq_ha.server.broker.stats._MAX_ITEMS", 2)
    now = Now()
    stats = BrokerStats(now, now.seconds)
    for queue_id in range(3):
        stats.fell_behind("T", queue_id, "G", 1, 1)
    assert list(stats.fall_behind) == [("T", 1, "G"), ("T", 2, "G")]


def test_what_was_not_delivered_is_not_counted() -> None:
    now = Now()
    stats = BrokerStats(now, now.seconds, "C")
    host = Address.parse("127.0.0.1", 1)
    refused = PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE)
    stats.delivered(1, [BrokerMessage("T", 0, b"", host, host, START_MS)], [refused])
    assert {name: len(table) for name, table in stats.tables.items() if table} == {}


def test_each_message_of_a_run_counts_where_its_run_took_so_long() -> None:
    now = Now()
    stats = BrokerStats(now, now.seconds)
    rows = [("T", 0, 0, 100, 0, 0, 0, "", "", 0, 0, "")] * 3
    stats.put_rows(rows_of(rows), now.seconds() - 0.012, now.seconds())
    told = stats.runtime_info()
    assert "[0~10ms]:0 [10~50ms]:3 [50~100ms]:0" in told["putMessageDistributeTime"]
    assert told["putMessageEntireTimeMax"] == "12"


class Sampled:
    """An item as Java has it: sampled by timers, whether it moves or not."""

    def __init__(self, tick: int) -> None:
        self.total = self.times = 0
        self.windows: list[list[tuple[int, int, int]]] = [
            [(tick // unit, 0, 0)] for unit in (1, 60, 360)
        ]

    def sample(self, tick: int) -> None:
        for window, unit, kept in zip(self.windows, (1, 60, 360), (7, 7, 25), strict=True):
            if tick % unit == 0:
                window.append((tick // unit, self.total, self.times))
                del window[:-kept]

    def growth(self, window: int) -> tuple[int, float, float]:
        (first, old, before), (last, new, after) = self.windows[window][0], self.windows[window][-1]
        seconds = (last - first) * (1, 60, 360)[window] * 10
        total, times = new - old, after - before
        return (
            (total, total / seconds, total / times if times else 0.0) if seconds else (0, 0.0, 0.0)
        )


@given(
    st.integers(0, 400),
    st.lists(st.tuples(st.integers(1, 200), st.integers(0, 9), st.integers(1, 3)), max_size=30),
)
def test_an_item_says_what_one_that_is_always_sampled_says(
    born: int, steps: list[tuple[int, int, int]]
) -> None:
    tick = born
    item, model = StatsItem(tick), Sampled(tick)
    item.note(tick)
    for passed, count, times in steps:
        for _ in range(passed):
            tick += 1
            model.sample(tick)
        for window in Window:
            assert item.growth(window, Figure.MESSAGES, tick) == model.growth(window)
        if item.tick != tick:
            item.note(tick)
        item.messages += count
        item.times += times
        model.total += count
        model.times += times
    counted = item.messages, item.times, item.size, item.millis
    assert counted == (model.total, model.times, 0, 0)
    assert all(len(notes) <= kept for notes, kept in zip(item._notes, (7, 7, 25), strict=True))


def test_group_rates() -> None:
    """What came since the last sampling does not count yet; after a minute it is forgotten."""
    now = Now()
    stats = BrokerStats(now, now.seconds)
    assert stats.group_get_rate("T", "G") == 0.0
    stats.count_pull("T", 0, "G", 600, 6000)
    assert stats.group_get_rate("T", "G") == 0.0
    now.value += 10_000
    assert stats.group_get_rate("T", "G") == 60.0
    now.value += 50_000
    assert stats.group_get_rate("T", "G") == 10.0
    assert stats.group_get_rate("T", "other") == 0.0
    now.value += 10_000
    assert stats.group_get_rate("T", "G") == 0.0


def test_what_comes_after_a_sampling_is_not_counted_by_it() -> None:
    """Nobody has to have asked for the figures in between."""
    now = Now()
    stats = BrokerStats(now, now.seconds)
    stats.count_pull("T", 0, "G", 600, 6000)
    now.value += 15_000
    stats.count_pull("T", 0, "G", 600, 6000)
    assert stats.group_get_rate("T", "G") == 60.0


def test_every_name() -> None:
    """Names, keys and figures as Java 4.9.7 has them."""
    now = Now()
    stats = BrokerStats(now, now.seconds, "C")
    stats.put("T", 1, 5, 500, 2)
    sizes = [(1, 100), (2, 100), (2, 200)]
    rows = [("T", queue, 0, size, 0, 0, 0, "", "", 0, 0, "") for queue, size in sizes]
    stats.put_rows(rows_of(rows), now.seconds() - 0.003, now.seconds())
    stats.put_back("SCHEDULE_TOPIC_XXXX", 2, 50)
    host = Address.parse("127.0.0.1", 1)
    message = BrokerMessage("T", 0, b"", host, host, START_MS)
    append = AppendResult(0, 60, START_MS, 0, 1, "")
    stats.delivered(
        3,
        [message, message, message],
        [
            PutMessageResult(PutMessageStatus.PUT_OK, append),
            PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE, append),
            PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE),
        ],
    )
    stats.count_pull("T", 1, "G", 4, 400, 6)
    stats.count_pull("T", 1, "G", 2, 200, 0)
    stats.count_pull("T", 1, "G@2", 3, 300, 0)
    stats.sent_back("T", "G")
    stats.fell_behind("T", 1, "G", 1000, 20)
    now.value += 10_000
    expected = {
        ("TOPIC_PUT_NUMS", "T"): (9, 0.9, 9 / 6),
        ("TOPIC_PUT_SIZE", "T"): (960, 96.0, 160.0),
        ("QUEUE_PUT_NUMS", "T@1"): (6, 0.6, 2.0),
        ("QUEUE_PUT_SIZE", "T@2"): (300, 30.0, 150.0),
        ("TOPIC_PUT_NUMS", "SCHEDULE_TOPIC_XXXX"): (1, 0.1, 1.0),
        ("TOPIC_PUT_SIZE", "SCHEDULE_TOPIC_XXXX"): (50, 5.0, 50.0),
        ("QUEUE_PUT_NUMS", "T@2"): (2, 0.2, 1.0),
        ("QUEUE_PUT_SIZE", "T@1"): (600, 60.0, 200.0),
        ("QUEUE_PUT_NUMS", "SCHEDULE_TOPIC_XXXX@2"): (1, 0.1, 1.0),
        ("QUEUE_PUT_SIZE", "SCHEDULE_TOPIC_XXXX@2"): (50, 5.0, 50.0),
        ("GROUP_GET_NUMS", "SCHEDULE_TOPIC_XXXX@SCHEDULE_CONSUMER"): (1, 0.1, 1.0),
        ("QUEUE_GET_SIZE", "T@1@G"): (600, 60.0, 300.0),
        ("GROUP_GET_NUMS", "T@G"): (6, 0.6, 3.0),
        ("GROUP_GET_SIZE", "T@G"): (600, 60.0, 300.0),
        ("GROUP_GET_SIZE", "SCHEDULE_TOPIC_XXXX@SCHEDULE_CONSUMER"): (60, 6.0, 60.0),
        ("QUEUE_GET_SIZE", "SCHEDULE_TOPIC_XXXX@2@SCHEDULE_CONSUMER"): (60, 6.0, 60.0),
        ("GROUP_GET_LATENCY", "1@T@G"): (6, 0.6, 3.0),
        ("QUEUE_GET_NUMS", "T@1@G"): (6, 0.6, 3.0),
        ("QUEUE_GET_NUMS", "SCHEDULE_TOPIC_XXXX@2@SCHEDULE_CONSUMER"): (1, 0.1, 1.0),
        ("SNDBCK_PUT_NUMS", "T@G"): (1, 0.1, 1.0),
        ("BROKER_PUT_NUMS", "C"): (9, 0.9, 0.0),
        ("QUEUE_GET_NUMS", "T@1@G@2"): (3, 0.3, 3.0),
        ("GROUP_GET_NUMS", "T@G@2"): (3, 0.3, 3.0),
        ("BROKER_GET_NUMS", "C"): (9, 0.9, 0.0),
        ("GROUP_GET_FALL_SIZE", "1@T@G"): (1000, 0.0, 0.0),
        ("GROUP_GET_FALL_TIME", "1@T@G"): (20, 0.0, 0.0),
    }
    for (name, key), growth in expected.items():
        growths = stats.growths(name, key)
        assert growths is not None, name
        assert growths[0] == pytest.approx(growth), name
    for name, key in [
        ("TOPIC_PUT_NUMS", "other"),
        ("QUEUE_PUT_NUMS", "T"),
        ("QUEUE_PUT_NUMS", "T@x"),
        ("GROUP_GET_LATENCY", "x@T@G"),
        ("GROUP_GET_LATENCY", "T@G"),
        ("QUEUE_GET_NUMS", "T@1@G@x"),
        ("GROUP_GET_FROM_DISK_NUMS", "T@G"),
        ("no such name", ""),
    ]:
        assert stats.growths(name, key) is None, (name, key)


@pytest.mark.parametrize(("queue_id", "is_told"), [(999_999_999, True), (1_000_000_000, False)])
def test_a_queue_is_asked_for_with_nine_digits_at_most(queue_id: int, is_told: bool) -> None:
    """Text comes from outside: a long number takes long to read, or cannot be read at all."""
    now = Now()
    stats = BrokerStats(now, now.seconds)
    stats.put("T", queue_id, 1, 10)
    assert (stats.growths("QUEUE_PUT_NUMS", f"T@{queue_id}") is not None) is is_told


def test_hours_and_days_need_their_samplings() -> None:
    now = Now()
    stats = BrokerStats(now, now.seconds)
    stats.put("T", 0, 7, 70)
    now.value += 599_000
    assert [growth.total for growth in stats.growths("TOPIC_PUT_NUMS", "T") or ()] == [0, 0, 0]
    now.value += 1_000
    assert [growth.total for growth in stats.growths("TOPIC_PUT_NUMS", "T") or ()] == [0, 7, 0]
    now.value += 3_000_000
    growths = stats.growths("TOPIC_PUT_NUMS", "T") or []
    assert [growth.total for growth in growths] == [0, 7, 7]
    assert growths[2].per_second == pytest.approx(7 / 3600)


def test_without_queues() -> None:
    """`enableDetailStat=false`: no figures of queues, latency by topic and group."""
    now = Now()
    stats = BrokerStats(now, now.seconds, "C", False)
    stats.put("T", 1, 5, 500)
    stats.count_pull("T", 1, "G", 4, 400, 6)
    now.value += 10_000
    assert stats.growths("QUEUE_PUT_NUMS", "T@1") is None
    assert stats.growths("QUEUE_GET_NUMS", "T@1@G") is None
    growths = stats.growths("GROUP_GET_LATENCY", "T@G")
    assert growths is not None
    assert growths[0].total == 6


@pytest.mark.parametrize(
    ("forget", "is_gone"),
    [
        (lambda stats: stats.topic_deleted("T"), lambda topic, group: topic == "T"),
        (lambda stats: stats.group_deleted("G"), lambda topic, group: group == "G"),
        (lambda stats: stats.keep_topics({"U"}), lambda topic, group: topic != "U"),
    ],
)
def test_nothing_is_said_of_what_is_gone(forget: Any, is_gone: Any) -> None:
    """Neither of what it did, nor of how far it was behind; of all others, as before."""
    now = Now()
    stats = BrokerStats(now, now.seconds)
    names = [(topic, group) for topic in ("T", "U", "V") for group in ("G", "H")]
    for topic, group in names:
        stats.put(topic, 0, 1, 1)
        stats.count_pull(topic, 0, group, 1, 1)
        stats.sent_back(topic, group)
        stats.fell_behind(topic, 0, group, 1, 1)
    forget(stats)
    for topic, group in names:
        keys = {
            "GROUP_GET_NUMS": f"{topic}@{group}",
            "QUEUE_GET_NUMS": f"{topic}@0@{group}",
            "SNDBCK_PUT_NUMS": f"{topic}@{group}",
            "GROUP_GET_FALL_SIZE": f"0@{topic}@{group}",
        }
        for name, key in keys.items():
            assert (stats.growths(name, key) is None) == is_gone(topic, group), (name, key)
        for name, key in {"TOPIC_PUT_NUMS": topic, "QUEUE_PUT_NUMS": f"{topic}@0"}.items():
            assert (stats.growths(name, key) is None) == is_gone(topic, ""), (name, key)


def test_what_is_deleted_is_forgotten() -> None:
    now = Now()
    stats = BrokerStats(now, now.seconds)
    for topic in ("T", "U", "V"):
        stats.put(topic, 0, 1, 1)
        for group in ("G", "H"):
            stats.count_pull(topic, 0, group, 1, 1)
            stats.sent_back(topic, group)
            stats.fell_behind(topic, 0, group, 1, 1)
    stats.topic_deleted("T")
    stats.group_deleted("H")
    stats.keep_topics({"U"})
    assert set(stats.fall_behind) == {("U", 0, "G")}
    left = {name: len(table) for name, table in stats.tables.items()}
    assert left == {
        "topics": 1,
        "queues": 1,
        "groups": 1,
        "reads": 1,
        "backs": 1,
        "puts": 1,
        "gets": 1,
    }


def test_how_far_a_group_is_behind() -> None:
    """From the last record that it read to the end of the log, in bytes and ms."""
    now = Now()
    stats = BrokerStats(now, now.seconds, log_end=lambda: 5000)
    host = Address.parse("127.0.0.1", 1)
    stored_ms = START_MS - 250
    record = encode_record(
        Record(0, 0, 1, 0, 3, 4000, 0, START_MS, host, stored_ms, host, 0, 0, b"x", "T", "")
    )
    stats.read("T", 1, "G", [b"", record], len(record), now.seconds() - 0.0071)
    assert stats.fall_behind == {("T", 1, "G"): (1000, 250)}
    now.value += 10_000
    growths = stats.growths("GROUP_GET_LATENCY", "1@T@G")
    assert growths is not None
    assert growths[0].total == 7
    assert stats.runtime_info()["getMessageEntireTimeMax"] == "7"


def test_items_are_bounded() -> None:
    """At the limit those that rest go; where all move, the oldest."""
    table: StatsTable[int] = StatsTable(80)
    for number in range(85):
        table.add(number, 0, 1, 1)
        assert len(table) <= 80
    assert len(table) == 80 * 7 // 8 + 5  # the way through all of them is made once for ten
    assert table.get(0) is None
    assert table.get(84) is not None
    table.add(60, 92, 1, 1)
    table.add(61, 93, 1, 1)  # of these two one rests for a minute by then
    table.add(50, 100, 1, 1)
    for number in range(100, 120):
        table.add(number, 100, 1, 1)
    assert table.get(50) is not None
    assert table.get(60) is None
    assert table.get(61) is not None


def test_samplings_count_from_the_start_of_the_broker() -> None:
    """Whatever the clock said by then; what comes after one is for the next."""
    now = Now()
    now.value += 3_000
    stats = BrokerStats(now, now.seconds)
    totals: list[Any] = []
    for _ in range(4):
        rows = [(topic, 0, 0, 10, 0, 0, 0, "", "", 0, 0, "") for topic in ("T", "U")]
        stats.put_rows(rows_of(rows), now.seconds(), now.seconds())
        stats.count_pull("T", 0, "G", 1, 10)
        now.value += 5_000
        names = [("TOPIC_PUT_NUMS", "T"), ("TOPIC_PUT_NUMS", "U"), ("GROUP_GET_NUMS", "T@G")]
        growths = [stats.growths(*name) for name in names]
        totals.append([growth and growth[0].total for growth in growths])
    assert totals == [[0] * 3, [2] * 3, [2] * 3, [4] * 3]


def test_rows_alone_are_counted_where_they_came() -> None:
    """Nobody asks for the figures in between."""
    now = Now()
    stats = BrokerStats(now, now.seconds)
    for _ in range(2):
        rows = [("T", 0, 0, 10, 0, 0, 0, "", "", 0, 0, "")]
        stats.put_rows(rows_of(rows), now.seconds(), now.seconds())
        now.value += 15_000
    growths = stats.growths("TOPIC_PUT_NUMS", "T") or []
    assert [growth.total for growth in growths] == [2, 0, 0]
    now.value -= 15_000
    growths = stats.growths("TOPIC_PUT_NUMS", "T") or []
    assert [growth.total for growth in growths] == [1, 0, 0]


def test_each_delayed_message_counts_for_its_topic() -> None:
    now = Now()
    stats = BrokerStats(now, now.seconds)
    host = Address.parse("127.0.0.1", 1)
    stored = PutMessageResult(PutMessageStatus.PUT_OK, AppendResult(0, 60, START_MS, 0, 1, ""))
    messages = [BrokerMessage(topic, 0, b"", host, host, START_MS) for topic in ("T", "U", "T")]
    stats.delivered(1, messages, [stored] * 3)
    now.value += 10_000
    for topic, count in (("T", 2), ("U", 1)):
        growths = stats.growths("TOPIC_PUT_NUMS", topic)
        assert growths is not None
        assert growths[0].total == count


def test_a_minute_s_latencies_are_its_own() -> None:
    now = Now()
    now.value += 3_000
    stats = BrokerStats(now, now.seconds)
    info = stats.runtime_info()
    assert (info["getMessageEntireTimeMax"], info["putMessageEntireTimeMax"]) == ("0", "0")
    told = []
    for count in (5, 7, 9):
        stats.put_took(0, count)
        told.append(stats.runtime_info()["putMessageDistributeTime"].partition(" ")[0])
        now.value += 60_000
    assert told == ["[<=0ms]:5", "[<=0ms]:5", "[<=0ms]:7"]
