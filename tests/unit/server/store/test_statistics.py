"""What a store counts. Spec: remoting.md, section 7.9."""

from datetime import datetime

import pytest

from rmq_ha.server.store.statistics import (
    StoreStatistics,
    duration_text,
    next_midnight_ms,
    readable_size,
)

START_MS = int(datetime(2026, 3, 3, 12).timestamp() * 1000)


def test_rates_have_no_number_for_windows_longer_than_the_run() -> None:
    """As Java prints them: `"1.9 0.64 "`, and zeros for the total."""
    statistics = StoreStatistics(START_MS)
    assert statistics.table(0)["putTps"] == "  "
    for second in range(61):
        statistics.sample(START_MS + second * 1000, second * 1000)
        statistics.put_times += 5
        statistics.get_missed += 1
        if second == 10:
            table = statistics.table(0)
            assert table["putTps"] == "5.0  "
            assert table["getTotalTps"] == "1.0 0.0 0.0"
    table = statistics.table(0)
    assert table["putTps"] == "5.0 5.0 "
    assert table["getMissTps"] == "1.0 1.0 "
    assert table["getFoundTps"] == "0.0 0.0 "
    statistics.sample(START_MS + 71_000, 71_000)
    assert float(statistics.table(0)["putTps"].split()[0]) == pytest.approx(50 / 20)


def test_samples_of_one_moment() -> None:
    """A machine that slept makes up for its seconds; nothing is divided by 0."""
    statistics = StoreStatistics(START_MS)
    for _ in range(11):
        statistics.sample(START_MS, 0)
        statistics.put_times += 5
    assert statistics.table(0)["putTps"] == "50000.0  "


def test_totals() -> None:
    statistics = StoreStatistics(START_MS)
    statistics.put_times, statistics.put_size, statistics.put_failed = 20, 6330, 2
    statistics.get_transferred = 15
    table = statistics.table(34_999)
    assert table["bootTimestamp"] == str(START_MS)
    assert table["runtime"] == "[ 0 days, 0 hours, 0 minutes, 34 seconds ]"
    assert table["putMessageTimesTotal"] == table["msgPutTotalTodayNow"] == "20"
    assert table["putMessageSizeTotal"] == "6330"
    assert table["putMessageAverageSize"] == "316.5"
    assert table["putMessageFailedTimes"] == "2"
    assert table["msgGetTotalTodayNow"] == "15"
    assert StoreStatistics(START_MS).table(0)["putMessageAverageSize"] == "0.0"


def test_mornings() -> None:
    """The totals of the last two midnights."""
    statistics = StoreStatistics(START_MS)

    def mornings() -> list[str]:
        table = statistics.table(0)
        return [table[f"msgPutTotal{day}"] for day in ("YesterdayMorning", "TodayMorning")]

    statistics.put_times = 10
    statistics.sample(START_MS, 0)
    assert mornings() == ["0", "0"]
    statistics.sample(START_MS + 86_400_000, 86_400_000)
    statistics.put_times = 15
    statistics.sample(START_MS + 86_401_000, 86_401_000)
    assert mornings() == ["0", "10"]
    statistics.sample(START_MS + 2 * 86_400_000, 2 * 86_400_000)
    assert mornings() == ["10", "15"]


def test_next_midnight() -> None:
    midnight = datetime.fromtimestamp(next_midnight_ms(START_MS) / 1000)
    assert midnight == datetime(2026, 3, 4)
    assert next_midnight_ms(next_midnight_ms(START_MS)) > next_midnight_ms(START_MS)


def test_words() -> None:
    assert duration_text(34_999) == "[ 0 days, 0 hours, 0 minutes, 34 seconds ]"
    assert duration_text(90_061_000) == "[ 1 days, 1 hours, 1 minutes, 1 seconds ]"
    assert readable_size(235) == "235 B"
    assert readable_size(6330) == "6.2 KiB"
    assert readable_size(252 << 30) == "252.0 GiB"
    assert readable_size(1 << 80) == "1048576.0 EiB"


def test_a_run_that_has_just_begun_has_counted_nothing() -> None:
    """All keys of the runtime info are there, as Java has them."""
    numbers = ["putMessageTimesTotal", "putMessageSizeTotal", "putMessageFailedTimes"]
    for what in ("Put", "Get"):
        numbers += [f"msg{what}Total{day}" for day in ("YesterdayMorning", "TodayMorning")]
        numbers.append(f"msg{what}TotalTodayNow")
    rates = ("putTps", "getFoundTps", "getMissTps", "getTransferedTps")
    assert StoreStatistics(START_MS, 77).table(77) == {
        "bootTimestamp": str(START_MS),
        "runtime": "[ 0 days, 0 hours, 0 minutes, 0 seconds ]",
        "putMessageAverageSize": "0.0",
        "getTotalTps": "0.0 0.0 0.0",
        **dict.fromkeys(numbers, "0"),
        **dict.fromkeys(rates, "  "),
    }
    statistics = StoreStatistics(START_MS)
    assert (statistics.set_aside_bytes, statistics.set_aside_messages) == (0, 0)
    assert (statistics.get_found, statistics.get_missed) == (0, 0)


def test_each_rate_is_of_its_own_counter() -> None:
    """Over ten minutes, for which a sample a second is kept, and no more."""
    statistics = StoreStatistics(START_MS)
    for second in range(700):
        statistics.sample(START_MS + second * 1000, second * 1000)
        statistics.put_times += 5
        statistics.get_found += 2
        statistics.get_missed += 1 + (second < 50)
        statistics.get_transferred += 7
        table = statistics.table(0)
        assert table["putTps"] == " ".join("5.0" * (second >= size) for size in (10, 60, 600))
    assert table["getFoundTps"] == "2.0 2.0 2.0"
    assert table["getMissTps"] == "1.0 1.0 1.0"
    assert table["getTotalTps"] == "3.0 3.0 3.0"
    assert table["getTransferedTps"] == "7.0 7.0 7.0"


def test_mornings_of_pulls() -> None:
    """A day begins with the first sample of it, also where the machine slept through midnight."""
    statistics = StoreStatistics(START_MS)
    midnight = next_midnight_ms(START_MS)
    seen = []
    for hours in (-1, 0, 5, 24, 60, 61):
        statistics.get_transferred += 3
        statistics.sample(midnight + hours * 3_600_000, 0)
        table = statistics.table(0)
        days = ("YesterdayMorning", "TodayMorning")
        seen.append(tuple(int(table[f"msgGetTotal{day}"]) for day in days))
    assert seen == [(0, 0), (0, 6), (0, 6), (6, 12), (12, 15), (12, 15)]


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1 << 20, "1.0 MiB"), (3 << 50, "3.0 PiB")],
)
def test_sizes_have_the_largest_unit_of_which_there_is_one(size: int, text: str) -> None:
    assert readable_size(size) == text
