"""BrokerStats. Spec: remoting.md, sections 7.5 and 7.9."""

from datetime import datetime

import pytest

from rmq_ha.broker.stats import (
    BrokerStats,
    Counter,
    duration_text,
    next_midnight_ms,
    readable_size,
)

START_MS = int(datetime(2026, 3, 3, 12).timestamp() * 1000)


class Now:
    value = START_MS

    def __call__(self) -> int:
        return self.value


def test_counter_rate() -> None:
    """Growth over the window, also long after the last growth, and nothing of before."""
    counter = Counter()
    counter.add(1000, START_MS)
    for second in range(60, 70):
        counter.add(5, START_MS + second * 1000)
    now_ms = START_MS + 70_000
    assert counter.rate(10_000, now_ms) == pytest.approx(4.5)  # a sample ago is outside
    assert counter.rate(60_000, now_ms) == pytest.approx(50 / 60)
    assert counter.rate(600_000, now_ms) == pytest.approx(1050 / 600)
    assert counter.rate(10_000, now_ms + 100_000) == 0.0


def test_a_counter_keeps_a_bounded_history() -> None:
    counter = Counter(1000, 60_000)
    for second in range(1000):
        counter.add(1, START_MS + second * 1000)
    assert len(counter._history) == 62
    assert counter.total == 1000


def test_rates_have_no_number_for_windows_longer_than_the_run() -> None:
    """As Java prints them: `"1.9 0.64 "`, and zeros for the total."""
    now = Now()
    stats = BrokerStats(now)
    assert stats.runtime_info()["putTps"] == "  "
    stats.put(50, 5000)
    stats.got("T", "G", 10)
    stats.missed()
    now.value += 10_001
    stats.missed()
    info = stats.runtime_info()
    assert info["putTps"] == "0.0  "
    assert info["getMissTps"] == "0.1  "
    assert info["getTotalTps"] == "0.1 0.0 0.0"
    now.value += 50_000
    info = stats.runtime_info()
    assert [float(word) for word in info["putTps"].split()] == [0.0, 0.0]
    assert float(info["getMissTps"].split()[1]) == pytest.approx(1 / 60)


def test_totals() -> None:
    stats = BrokerStats(Now())
    stats.put(20, 6330)
    stats.put_failed(2)
    stats.got("T", "G", 15)
    info = stats.runtime_info()
    assert info["putMessageTimesTotal"] == info["msgPutTotalTodayNow"] == "20"
    assert info["putMessageSizeTotal"] == "6330"
    assert info["putMessageAverageSize"] == "316.5"
    assert info["putMessageFailedTimes"] == "2"
    assert info["msgGetTotalTodayNow"] == "15"
    assert BrokerStats(Now()).runtime_info()["putMessageAverageSize"] == "0.0"


def test_mornings() -> None:
    """The totals at midnight, whether or not somebody looked then."""
    now = Now()
    stats = BrokerStats(now)
    stats.put(10, 1)
    now.value += 86_400_000
    stats.put(5, 1)
    info = stats.runtime_info()
    assert [info[f"msgPutTotal{day}"] for day in ("YesterdayMorning", "TodayMorning")] == [
        "0",
        "10",
    ]
    assert info["msgPutTotalTodayNow"] == "15"
    now.value += 86_400_000
    info = stats.runtime_info()
    assert [info[f"msgPutTotal{day}"] for day in ("YesterdayMorning", "TodayMorning")] == [
        "10",
        "15",
    ]
    now.value += 5 * 86_400_000
    info = stats.runtime_info()
    assert [info[f"msgPutTotal{day}"] for day in ("YesterdayMorning", "TodayMorning")] == [
        "15",
        "15",
    ]


def test_next_midnight() -> None:
    midnight = datetime.fromtimestamp(next_midnight_ms(START_MS) / 1000)
    assert midnight == datetime(2026, 3, 4)
    assert next_midnight_ms(next_midnight_ms(START_MS)) > next_midnight_ms(START_MS)


def test_latencies() -> None:
    now = Now()
    stats = BrokerStats(now)
    for elapsed_ms, count in ((0, 18), (9, 0), (21, 2), (20000, 0)):
        stats.put_took(elapsed_ms, count)
    stats.put_took(-3, 0)
    info = stats.runtime_info()
    assert info["putMessageDistributeTime"] == (
        "[<=0ms]:18 [0~10ms]:0 [10~50ms]:2 [50~100ms]:0 [100~200ms]:0 [200~500ms]:0 "
        "[500ms~1s]:0 [1~2s]:0 [2~3s]:0 [3~4s]:0 [4~5s]:0 [5~10s]:0 [10s~]:0 "
    )
    assert info["putMessageEntireTimeMax"] == "20000"
    assert info["putLatency99"] == "50.00"
    now.value += 60_000
    assert stats.runtime_info()["putMessageDistributeTime"].startswith("[<=0ms]:18 ")
    now.value += 200_000
    assert stats.runtime_info()["putMessageDistributeTime"].startswith("[<=0ms]:0 ")
    assert stats.runtime_info()["putLatency999"] == "0.00"


def test_group_rates() -> None:
    now = Now()
    stats = BrokerStats(now)
    assert stats.group_get_rate("T", "G") == 0.0
    stats.got("T", "G", 600)
    assert stats.group_get_rate("T", "G") == 10.0
    assert stats.group_get_rate("T", "other") == 0.0
    now.value += 61_000
    assert stats.group_get_rate("T", "G") == 0.0


def test_groups_are_bounded() -> None:
    now = Now()
    stats = BrokerStats(now)
    for number in range(10_010):
        stats.got("T", f"G{number}", 1)
    assert len(stats._groups) == 10_000
    now.value += 61_000
    stats.got("T", "new", 1)
    assert len(stats._groups) == 1


def test_words() -> None:
    assert duration_text(34_999) == "[ 0 days, 0 hours, 0 minutes, 34 seconds ]"
    assert duration_text(90_061_000) == "[ 1 days, 1 hours, 1 minutes, 1 seconds ]"
    assert readable_size(235) == "235 B"
    assert readable_size(6330) == "6.2 KiB"
    assert readable_size(252 << 30) == "252.0 GiB"
    assert readable_size(1 << 80) == "1048576.0 EiB"
