"""BrokerStats. Spec: remoting.md, sections 7.5 and 7.9."""

from datetime import datetime

import pytest

from rmq_ha.broker.stats import BrokerStats, Counter

START_MS = int(datetime(2026, 3, 3, 12).timestamp() * 1000)


class Now:
    value = START_MS

    def __call__(self) -> int:
        return self.value


def test_counter_rate() -> None:
    """Growth over the window, also long after the last growth, and nothing of before."""
    counter = Counter(1000, 600_000)
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
